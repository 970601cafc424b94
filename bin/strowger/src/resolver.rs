//! Host name resolution for the workers. All of them share the cache; answers also go to the worker that asked.

use std::sync::{Arc, PoisonError, RwLock};

use strowger_control::dns::DnsResolver;
use strowger_locate::{LocateQuery, NameCache};
use strowger_net::Clock;
use strowger_worker::{Reply, Resolve};

/// The resolver and the cache for its answers.
pub(crate) struct Resolver {
    dns: RwLock<Arc<DnsResolver>>,
    pub(crate) names: Arc<NameCache>,
    pub(crate) clock: Clock,
}

impl Resolver {
    pub(crate) fn new(dns: DnsResolver, names: Arc<NameCache>, clock: Clock) -> Self {
        Self { dns: RwLock::new(Arc::new(dns)), names, clock }
    }

    /// Returns the resolver in use.
    pub(crate) fn dns(&self) -> Arc<DnsResolver> {
        Arc::clone(&self.dns.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Uses another resolver. The earlier one still answers what it was asked.
    pub(crate) fn replace(&self, dns: DnsResolver) {
        let mut place = self.dns.write().unwrap_or_else(PoisonError::into_inner);
        let earlier = std::mem::replace(&mut *place, Arc::new(dns));
        drop(place);
        earlier.retire();
    }
}

impl Resolve for Resolver {
    fn resolve(&self, question: LocateQuery, reply: Reply) {
        let (names, clock, asked) = (Arc::clone(&self.names), self.clock, question.clone());
        let keep = move |answer: strowger_locate::LocateResult, ttl| {
            names.insert(clock.now(), &asked, answer.clone(), ttl);
            reply.send(answer);
        };
        self.dns().ask(question, Box::new(keep));
    }
}
