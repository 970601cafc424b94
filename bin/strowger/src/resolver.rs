//! Host name resolution for the workers. All of them share the cache; answers also go to the worker that asked.

use std::sync::Arc;

use strowger_control::dns::DnsResolver;
use strowger_locate::{LocateQuery, NameCache};
use strowger_net::Clock;
use strowger_worker::{Reply, Resolve};

/// The resolver and the cache for its answers.
pub(crate) struct Resolver {
    pub(crate) dns: DnsResolver,
    pub(crate) names: Arc<NameCache>,
    pub(crate) clock: Clock,
}

impl Resolve for Resolver {
    fn resolve(&self, question: LocateQuery, reply: Reply) {
        let (names, clock, asked) = (Arc::clone(&self.names), self.clock, question.clone());
        let keep = move |answer: strowger_locate::LocateResult, ttl| {
            names.insert(clock.now(), &asked, answer.clone(), ttl);
            reply.send(answer);
        };
        self.dns.ask(question, Box::new(keep));
    }
}
