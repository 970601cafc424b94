//! Host names for the workers: what the DNS says is kept for all of them and handed to who asked.

use std::sync::Arc;

use strowger_control::dns::DnsResolver;
use strowger_locate::{LocateQuery, NameCache};
use strowger_net::Clock;
use strowger_worker::{Reply, Resolve};

/// The resolver and the cache that its answers go into.
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
