//! The thread between the workers and the engine.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use strowger_members::{BatchId, Member, Output, Reply, Request, Status};
use strowger_registrar::{Cursor, MemberId, Record, Version};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, watch};
use tokio::task::LocalSet;

use crate::ClusterConfig;
use crate::engine::{Configured, Engine};
use crate::keeper::{Handed, Waiting};
use crate::log::Log;

/// The longest sleep, after which the status is brought up to date.
const LONGEST_SLEEP: Duration = Duration::from_millis(500);

/// The thread, from outside.
pub(crate) struct Running {
    sender: UnboundedSender<Handed>,
    status: watch::Receiver<Status>,
    is_stopping: Arc<Notify>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Running {
    pub(crate) fn start(config: ClusterConfig) -> io::Result<Self> {
        let (sender, batches) = unbounded_channel();
        let (publish, status) = watch::channel(Status::default());
        let is_stopping = Arc::new(Notify::new());
        let stop = Arc::clone(&is_stopping);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = thread::Builder::new().name("strowger-share".to_owned()).spawn(move || {
            let sharing = Sharing::new(config, publish);
            LocalSet::new().block_on(&runtime, sharing.run(batches, &stop));
        })?;
        Ok(Self { sender, status, is_stopping, thread: Mutex::new(Some(thread)) })
    }

    pub(crate) fn sender(&self) -> UnboundedSender<Handed> {
        self.sender.clone()
    }

    pub(crate) fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    pub(crate) fn stop(&self, within: Duration) {
        let deadline = Instant::now() + within;
        while self.status().waiting > 0 && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
        self.is_stopping.notify_one();
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that shares registrations panicked; please report it");
        }
    }
}

/// What the thread has.
struct Sharing {
    config: ClusterConfig,
    engine: Rc<Configured>,
    member: Member,
    waiting: HashMap<BatchId, Waiting>,
    next_batch: BatchId,
    publish: watch::Sender<Status>,
    /// From where on is to be announced what the table has.
    held: Option<Cursor>,
    log: Log,
    /// The other members that the table was told of.
    alive: Vec<(MemberId, SocketAddr)>,
}

impl Sharing {
    fn new(config: ClusterConfig, publish: watch::Sender<Status>) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let incarnation = u64::try_from(since.as_millis()).unwrap_or(0);
        let engine = Rc::new(Configured::new(&config, incarnation));
        let member = Member::new(config.member, incarnation, config.key.clone(), config.limits);
        Self {
            config,
            engine,
            member,
            waiting: HashMap::new(),
            next_batch: 0,
            publish,
            held: None,
            log: Log::default(),
            alive: Vec::new(),
        }
    }

    async fn run(mut self, mut batches: UnboundedReceiver<Handed>, stop: &Notify) {
        let (replies, mut answers) = unbounded_channel();
        self.member.handle_timeout(self.now());
        loop {
            self.carry_out(&replies);
            // What is still being read from the disk is announced too.
            if self.config.locations.is_complete()
                && let Some(cursor) = self.held.take()
            {
                self.announce(cursor);
                continue;
            }
            self.report();
            let sleep = self.member.poll_timeout().saturating_since(self.now()).min(LONGEST_SLEEP);
            tokio::select! {
                () = stop.notified() => return,
                Some(Answer { reply, known }) = answers.recv() => {
                    self.tell(known);
                    self.member.handle_reply(self.now(), reply);
                }
                Some(handed) = batches.recv() => self.hand_over(handed),
                () = tokio::time::sleep(sleep) => self.member.handle_timeout(self.now()),
            }
        }
    }

    fn now(&self) -> strowger_foundation::Timestamp {
        (self.config.now)()
    }

    fn hand_over(&mut self, Handed { records, waiting }: Handed) {
        let now = self.now();
        let id = match waiting {
            Waiting::Nobody => None,
            waiting => {
                self.next_batch += 1;
                self.waiting.insert(self.next_batch, waiting);
                Some(self.next_batch)
            }
        };
        self.member.handle_changes(now, id, records);
    }

    /// Does what the member wants.
    fn carry_out(&mut self, replies: &UnboundedSender<Answer>) {
        while let Some(output) = self.member.poll_output() {
            match output {
                Output::Ask(request) => self.ask(request, replies.clone()),
                Output::Apply(records) => self.apply(&records),
                Output::Confirm(id) => self.finish(id, true),
                Output::Refuse(id) => self.finish(id, false),
                Output::Warm => {
                    self.config.locations.complete();
                    tracing::info!("cluster: {} registrations are here", self.config.locations.len());
                }
                Output::Announce(cursor) => self.held = Some(cursor),
            }
        }
    }

    fn ask(&self, request: Request, replies: UnboundedSender<Answer>) {
        let (engine, table) = (Rc::clone(&self.engine), self.table());
        let kind = request.kind();
        let asking = tokio::task::spawn_local(async move {
            let known = RefCell::new(Vec::new());
            let show = |record: &[u8]| known.borrow_mut().extend(table.put(record));
            let reply = match engine.carry_out(&request, &show).await {
                Ok(reply) => reply,
                Err(error) => Reply::Failed { request: kind, why: error.to_string() },
            };
            Answer { reply, known: known.take() }
        });
        tokio::task::spawn_local(async move {
            let answer = asking.await.unwrap_or_else(|error| {
                let why = format!("please report this: {error}");
                Answer { reply: Reply::Failed { request: kind, why }, known: Vec::new() }
            });
            drop(replies.send(answer));
        });
    }

    fn table(&self) -> Table {
        Table { locations: Arc::clone(&self.config.locations), now: Arc::clone(&self.config.now) }
    }

    /// Takes changes of another member.
    fn apply(&mut self, records: &[Box<[u8]>]) {
        let table = self.table();
        let known = records.iter().filter_map(|record| table.put(record)).collect();
        self.tell(known);
    }

    /// Tells again what turned out to be newer than what says that it is later.
    fn tell(&mut self, known: Vec<Box<[u8]>>) {
        if !known.is_empty() {
            self.member.handle_changes(self.now(), None, known);
        }
    }

    fn finish(&mut self, id: BatchId, kept: bool) {
        if let Some(waiting) = self.waiting.remove(&id) {
            waiting.finish(kept);
        }
    }

    /// Hands over what this member has changed, and what those have that are no more.
    fn announce(&mut self, from: Cursor) {
        let now = self.now();
        let is_wanted = |version: Version| self.member.announces(version);
        let mut records = Vec::new();
        let next = self.config.locations.copy_changes(now, from, &is_wanted, &mut records);
        self.member.handle_announcement(now, records, next);
    }

    fn report(&mut self) {
        let status = self.member.status();
        self.log.report(self.now(), &status);
        let alive: Vec<_> = status.others.iter().filter(|other| other.is_alive).collect();
        let alive: Vec<_> = alive.into_iter().filter_map(|other| Some((other.member, other.address?))).collect();
        if alive != self.alive {
            self.config.locations.set_others(alive.clone());
            self.alive = alive;
        }
        self.publish.send_if_modified(|published| {
            let is_new = *published != status;
            *published = status;
            is_new
        });
    }
}

/// What came of a request, and what the table knows better than what it was shown.
struct Answer {
    reply: Reply,
    known: Vec<Box<[u8]>>,
}

/// What takes changes of others.
struct Table {
    locations: Arc<strowger_registrar::Locations>,
    now: crate::Now,
}

impl Table {
    /// Takes a record; where a change in it got another version, what is known now.
    fn put(&self, record: &[u8]) -> Option<Box<[u8]>> {
        let record = Record::parse(record).ok()?;
        let now = (self.now)();
        if !self.locations.take(now, &record) {
            return None;
        }
        let mut known = Vec::new();
        self.locations.write_known(now, &record, &mut known);
        Some(known.into())
    }
}
