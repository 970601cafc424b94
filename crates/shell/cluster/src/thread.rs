//! The thread between the workers and the other members; what it does where there is an engine.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use strowger_members::{BatchId, Member, Output, Reply, Request, Status};
use strowger_registrar::{Cursor, Version};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, watch};
use tokio::task::LocalSet;

use crate::engine::{Configured, Engine};
use crate::keeper::{Handed, Waiting};
use crate::own::Own;
use crate::peers::Forwarding;
use crate::report::Reporter;
use crate::table::Table;
use crate::{ClusterConfig, EngineConfig, Way};

/// The longest sleep, after which the status is brought up to date.
const LONGEST_SLEEP: Duration = Duration::from_millis(500);

/// The thread, from outside.
pub(crate) struct Running {
    sender: UnboundedSender<Handed>,
    status: watch::Receiver<Status>,
    is_stopping: Arc<Notify>,
    peers: watch::Sender<Vec<SocketAddr>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Running {
    pub(crate) fn start(config: ClusterConfig) -> io::Result<Self> {
        let (sender, batches) = unbounded_channel();
        let (publish, status) = watch::channel(Status::default());
        let is_stopping = Arc::new(Notify::new());
        let stop = Arc::clone(&is_stopping);
        let (peers, wanted) = watch::channel(Vec::new());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = thread::Builder::new().name("strowger-share".to_owned()).spawn(move || {
            LocalSet::new().block_on(&runtime, share(config, publish, wanted, (batches, &stop)));
        })?;
        Ok(Self { sender, status, is_stopping, peers, thread: Mutex::new(Some(thread)) })
    }

    pub(crate) fn sender(&self) -> UnboundedSender<Handed> {
        self.sender.clone()
    }

    pub(crate) fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    pub(crate) fn set_peers(&self, peers: Vec<SocketAddr>) {
        // Who has an engine has no peers, and does not listen.
        drop(self.peers.send(peers));
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

async fn share(
    config: ClusterConfig,
    publish: watch::Sender<Status>,
    wanted: watch::Receiver<Vec<SocketAddr>>,
    (batches, stop): (UnboundedReceiver<Handed>, &Notify),
) {
    let reporter = Reporter::new(Arc::clone(&config.locations), publish);
    match &config.way {
        Way::Engine(engine) => Sharing::new(&config, engine, reporter).run(batches, stop).await,
        Way::Peers(peers) => match Forwarding::new(&config, peers, wanted, reporter) {
            Ok(forwarding) => forwarding.run(batches, stop).await,
            Err(error) => tracing::error!("cluster: registrations are not shared: cannot wait for the socket: {error}"),
        },
    }
}

/// When this process began, in milliseconds since 1970.
pub(crate) fn began() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(0)
}

/// What the thread has where there is an engine.
struct Sharing {
    table: Table,
    engine: Rc<Configured>,
    member: Member,
    waiting: HashMap<BatchId, Waiting>,
    next_batch: BatchId,
    reporter: Reporter,
    /// There is something to say of nonces.
    wake: Arc<Notify>,
    /// What was said of them last is on its way.
    telling: Option<BatchId>,
    /// From where on is to be announced what the table has.
    held: Option<Cursor>,
}

impl Sharing {
    fn new(config: &ClusterConfig, engine: &EngineConfig, reporter: Reporter) -> Self {
        let incarnation = began();
        let member = Member::new(config.member, incarnation, engine.key.clone(), engine.limits);
        let engine = Rc::new(Configured::new(engine.kind, Own::new(config, engine, incarnation)));
        let table = Table::new(config);
        let wake = Arc::new(Notify::new());
        table.wakes(&wake);
        Self {
            table,
            engine,
            member,
            waiting: HashMap::new(),
            next_batch: 0,
            reporter,
            wake,
            telling: None,
            held: None,
        }
    }

    async fn run(mut self, mut batches: UnboundedReceiver<Handed>, stop: &Notify) {
        let (replies, mut answers) = unbounded_channel();
        self.member.handle_timeout(self.now());
        loop {
            self.tell_uses();
            self.carry_out(&replies);
            // What is still being read from the disk is announced too.
            if self.table.locations.is_complete()
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
                () = self.wake.notified() => {}
                () = tokio::time::sleep(sleep) => self.member.handle_timeout(self.now()),
            }
        }
    }

    fn now(&self) -> strowger_foundation::Timestamp {
        self.table.now()
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

    /// Says which nonces were used, once what was said before is in the log.
    fn tell_uses(&mut self) {
        let now = self.now();
        if self.telling.is_some() {
            return;
        }
        if let Some(uses) = self.table.nonces.poll_uses(now) {
            self.hand_over(Handed { records: vec![uses.into()], waiting: Waiting::Told(now) });
            self.telling = Some(self.next_batch);
        }
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
                    self.table.locations.complete();
                    tracing::info!("cluster: {} registrations are here", self.table.locations.len());
                }
                Output::Announce(cursor) => self.held = Some(cursor),
            }
        }
    }

    fn ask(&self, request: Request, replies: UnboundedSender<Answer>) {
        let (engine, table) = (Rc::clone(&self.engine), self.table.clone());
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

    /// Takes changes of another member.
    fn apply(&mut self, records: &[Box<[u8]>]) {
        let table = self.table.clone();
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
        self.telling.take_if(|telling| *telling == id);
        match self.waiting.remove(&id) {
            Some(Waiting::Told(until)) if kept => self.table.nonces.note_told(None, until),
            Some(waiting) => waiting.finish(kept),
            None => {}
        }
    }

    /// Hands over what this member has changed, and what those have that are no more.
    fn announce(&mut self, from: Cursor) {
        let now = self.now();
        let is_wanted = |version: Version| self.member.announces(version);
        let mut records = Vec::new();
        let next = self.table.locations.copy_changes(now, from, &is_wanted, &mut records);
        self.member.handle_announcement(now, records, next);
    }

    fn report(&mut self) {
        let status = self.member.status();
        self.reporter.report(self.now(), status);
    }
}

/// What came of a request, and what the table knows better than what it was shown.
struct Answer {
    reply: Reply,
    known: Vec<Box<[u8]>>,
}
