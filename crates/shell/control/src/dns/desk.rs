//! Who waits for what: the loop of the resolver's thread.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use strowger_locate::{Answer, Failure, Question};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;

use super::records::Records;
use super::rfc3263::{Locator, locate};
use super::{Counters, DnsConfig, MAX_UNDER_WAY, MAX_WAITING, Reach, Reply};

/// One question with the one who asked it.
pub(super) struct Request {
    pub(super) question: Question,
    pub(super) reply: Reply,
}

/// The questions that are under way.
pub(super) struct Desk<R> {
    records: R,
    reach: Reach,
    timeout: Duration,
    counters: Arc<Counters>,
    slots: Arc<Semaphore>,
    waiting: HashMap<Question, Vec<Reply>>,
    /// All replies of `waiting`.
    waiters: usize,
    tasks: JoinSet<(Answer, Duration)>,
    asked_by: HashMap<Id, Question>,
}

impl<R: Records> Desk<R> {
    pub(super) fn new(records: R, config: &DnsConfig, counters: Arc<Counters>) -> Self {
        Self {
            records,
            reach: config.reach,
            timeout: config.timeout,
            counters,
            slots: Arc::new(Semaphore::new(MAX_UNDER_WAY)),
            waiting: HashMap::new(),
            waiters: 0,
            tasks: JoinSet::new(),
            asked_by: HashMap::new(),
        }
    }

    /// Answers what comes out of `queue` until that is closed; what is open then is answered [`Failure::NoAnswer`].
    pub(super) async fn run(mut self, mut queue: mpsc::Receiver<Request>) {
        loop {
            tokio::select! {
                request = queue.recv() => match request {
                    Some(request) => self.handle_request(request),
                    None => break,
                },
                Some(done) = self.tasks.join_next_with_id() => self.handle_done(done),
            }
        }
        for (_, replies) in self.waiting.drain() {
            answer_all(replies, &Err(Failure::NoAnswer), Duration::ZERO);
        }
    }

    fn handle_request(&mut self, Request { question, reply }: Request) {
        if self.waiters >= MAX_WAITING {
            self.counters.refused.fetch_add(1, Ordering::Relaxed);
            reply(Err(Failure::NoAnswer), Duration::ZERO);
            return;
        }
        self.waiters += 1;
        if let Some(others) = self.waiting.get_mut(&question) {
            self.counters.shared.fetch_add(1, Ordering::Relaxed);
            others.push(reply);
            return;
        }
        // A little is kept back, so that the asker has the answer within the time, and not after it.
        let deadline = Instant::now() + self.timeout - self.timeout / 20;
        let locator = Locator { records: self.records.clone(), reach: self.reach, deadline };
        let task = in_turn(Arc::clone(&self.slots), locator, question.clone());
        self.asked_by.insert(self.tasks.spawn(task).id(), question.clone());
        self.waiting.insert(question, vec![reply]);
    }

    fn handle_done(&mut self, done: Result<(Id, (Answer, Duration)), JoinError>) {
        let (id, (answer, ttl)) = match done {
            Ok(done) => done,
            // The panic hook has reported it; whoever waits shall not wait for ever.
            Err(error) => (error.id(), (Err(Failure::NoAnswer), Duration::ZERO)),
        };
        let counter = match &answer {
            Ok(_) => &self.counters.found,
            Err(Failure::NoSuchName) => &self.counters.missing,
            Err(Failure::NoAnswer) => &self.counters.unanswered,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        let replies = self.asked_by.remove(&id).and_then(|question| self.waiting.remove(&question));
        let replies = replies.unwrap_or_default();
        self.waiters -= replies.len();
        answer_all(replies, &answer, ttl);
    }
}

fn answer_all(replies: Vec<Reply>, answer: &Answer, ttl: Duration) {
    for reply in replies {
        reply(answer.clone(), ttl);
    }
}

/// Locates once there is a free slot, all within the locator's time.
async fn in_turn<R: Records>(slots: Arc<Semaphore>, locator: Locator<R>, question: Question) -> (Answer, Duration) {
    let Ok(Ok(_slot)) = tokio::time::timeout_at(locator.deadline, slots.acquire()).await else {
        return (Err(Failure::NoAnswer), Duration::ZERO);
    };
    locate(&locator, &question).await
}
