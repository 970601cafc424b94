//! Loop of the resolver's thread, with the waiters of each query.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use strowger_locate::{LocateError, LocateQuery, LocateResult};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;

use super::records::RecordLookup;
use super::rfc3263::{Locator, addresses, locate, servers};
use super::{Counters, DnsConfig, MAX_IN_FLIGHT, MAX_WAITING, Reply, SendableTransports, ServersReply};

/// A query with the reply function of its asker.
pub(super) struct Request {
    pub(super) question: LocateQuery,
    pub(super) reply: LookupReply,
}

/// Kind of lookup, with its reply function.
pub(super) enum LookupReply {
    /// Addresses of the next hop.
    Location(Reply),
    /// Servers in SRV records.
    Servers(ServersReply),
    /// Addresses of a host.
    Addresses(ServersReply),
}

impl LookupReply {
    /// Replies that there is no answer.
    pub(super) fn refuse(self) {
        match self {
            Self::Location(reply) => reply(Err(LocateError::NoAnswer), Duration::ZERO),
            Self::Servers(reply) | Self::Addresses(reply) => reply(Err(LocateError::NoAnswer), Duration::ZERO),
        }
    }
}

/// Queries in progress.
pub(super) struct ResolverLoop<R> {
    records: R,
    reach: SendableTransports,
    timeout: Duration,
    counters: Arc<Counters>,
    slots: Arc<Semaphore>,
    waiting: HashMap<LocateQuery, Vec<Reply>>,
    /// Number of replies in `waiting`.
    waiters: usize,
    tasks: JoinSet<(LocateResult, Duration)>,
    asked_by: HashMap<Id, LocateQuery>,
    /// Server lookups. They are rare and never share a name, so equal ones are not merged.
    of_servers: JoinSet<()>,
    /// Whether queries pending at the end are still answered properly.
    is_retired: Arc<AtomicBool>,
}

impl<R: RecordLookup> ResolverLoop<R> {
    pub(super) fn new(records: R, config: &DnsConfig, counters: Arc<Counters>, is_retired: Arc<AtomicBool>) -> Self {
        Self {
            records,
            reach: config.reach,
            timeout: config.timeout,
            counters,
            slots: Arc::new(Semaphore::new(MAX_IN_FLIGHT)),
            waiting: HashMap::new(),
            waiters: 0,
            tasks: JoinSet::new(),
            asked_by: HashMap::new(),
            of_servers: JoinSet::new(),
            is_retired,
        }
    }

    /// Answers requests from `queue` until it is closed. Queries pending then are answered [`LocateError::NoAnswer`],
    /// unless the resolver is retired.
    pub(super) async fn run(mut self, mut queue: mpsc::Receiver<Request>) {
        loop {
            tokio::select! {
                request = queue.recv() => match request {
                    Some(request) => self.handle_request(request),
                    None => break,
                },
                Some(done) = self.tasks.join_next_with_id() => self.handle_done(done),
                Some(_) = self.of_servers.join_next() => {}
            }
        }
        if self.is_retired.load(Ordering::Acquire) {
            while let Some(done) = self.tasks.join_next_with_id().await {
                self.handle_done(done);
            }
            while self.of_servers.join_next().await.is_some() {}
        }
        for (_, replies) in self.waiting.drain() {
            answer_all(replies, &Err(LocateError::NoAnswer), Duration::ZERO);
        }
    }

    fn handle_request(&mut self, Request { question, reply: wanted }: Request) {
        if self.waiters >= MAX_WAITING {
            self.counters.refused.fetch_add(1, Ordering::Relaxed);
            return wanted.refuse();
        }
        let reply = match wanted {
            LookupReply::Location(reply) => reply,
            LookupReply::Servers(reply) => return self.ask_for_servers(question, reply),
            LookupReply::Addresses(reply) => return self.ask_for_addresses(question, reply),
        };
        self.waiters += 1;
        if let Some(others) = self.waiting.get_mut(&question) {
            self.counters.coalesced.fetch_add(1, Ordering::Relaxed);
            others.push(reply);
            return;
        }
        let task = locate_limited(Arc::clone(&self.slots), self.locator(), question.clone());
        self.asked_by.insert(self.tasks.spawn(task).id(), question.clone());
        self.waiting.insert(question, vec![reply]);
    }

    fn locator(&self) -> Locator<R> {
        // A margin ensures that the asker gets the answer before its timeout.
        let deadline = Instant::now() + self.timeout - self.timeout / 20;
        Locator { records: self.records.clone(), reach: self.reach, deadline }
    }

    fn ask_for_servers(&mut self, question: LocateQuery, reply: ServersReply) {
        let (locator, counters) = (self.locator(), Arc::clone(&self.counters));
        self.of_servers.spawn(async move {
            let (answer, ttl) = servers(&locator, &question).await;
            count(&counters, answer.as_ref().err());
            reply(answer, ttl);
        });
    }

    fn ask_for_addresses(&mut self, question: LocateQuery, reply: ServersReply) {
        let (locator, counters) = (self.locator(), Arc::clone(&self.counters));
        self.of_servers.spawn(async move {
            let (answer, ttl) = addresses(&locator, &question).await;
            count(&counters, answer.as_ref().err());
            reply(answer, ttl);
        });
    }

    fn handle_done(&mut self, done: Result<(Id, (LocateResult, Duration)), JoinError>) {
        let (id, (answer, ttl)) = match done {
            Ok(done) => done,
            // The panic hook has reported it; waiters still need an answer.
            Err(error) => (error.id(), (Err(LocateError::NoAnswer), Duration::ZERO)),
        };
        count(&self.counters, answer.as_ref().err());
        let replies = self.asked_by.remove(&id).and_then(|question| self.waiting.remove(&question));
        let replies = replies.unwrap_or_default();
        self.waiters -= replies.len();
        answer_all(replies, &answer, ttl);
    }
}

fn count(counters: &Counters, failure: Option<&LocateError>) {
    let counter = match failure {
        None => &counters.answered,
        Some(LocateError::NoSuchName) => &counters.not_found,
        Some(LocateError::NoAnswer) => &counters.timeouts,
    };
    counter.fetch_add(1, Ordering::Relaxed);
}

fn answer_all(replies: Vec<Reply>, answer: &LocateResult, ttl: Duration) {
    for reply in replies {
        reply(answer.clone(), ttl);
    }
}

/// Locates once a slot is free, all within the locator's timeout.
async fn locate_limited<R: RecordLookup>(
    slots: Arc<Semaphore>,
    locator: Locator<R>,
    question: LocateQuery,
) -> (LocateResult, Duration) {
    let Ok(Ok(_slot)) = tokio::time::timeout_at(locator.deadline, slots.acquire()).await else {
        return (Err(LocateError::NoAnswer), Duration::ZERO);
    };
    locate(&locator, &question).await
}
