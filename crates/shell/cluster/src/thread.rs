//! The thread that connects the workers with the other members, and its loop with an engine.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use strowger_members::{BatchId, Kind, Member, Output, Reply, Request, Status};
use strowger_registrar::{Cursor, Version};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, watch};
use tokio::task::LocalSet;

use crate::any_engine::AnyEngine;
use crate::context::EngineContext;
use crate::engine::Engine;
use crate::pause::{PausePoint, PauseSwitch};
use crate::peers::PeerLoop;
use crate::process_start::process_start_ms;
use crate::report::Reporter;
use crate::sink::{EngineBatch, Waiter};
use crate::table::SharedState;
use crate::{ClusterConfig, EngineConfig, SharingMode};

/// Maximum sleep, after which the status is updated.
const MAX_SLEEP: Duration = Duration::from_millis(500);

/// Handle of the thread.
pub(crate) struct ClusterThread {
    sender: UnboundedSender<EngineBatch>,
    status: watch::Receiver<Status>,
    is_stopping: Arc<Notify>,
    pauses: PauseSwitch,
    peers: watch::Sender<Vec<SocketAddr>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl ClusterThread {
    pub(crate) fn start(config: ClusterConfig) -> io::Result<Self> {
        let (sender, batches) = unbounded_channel();
        let (publish, status) = watch::channel(Status::default());
        let is_stopping = Arc::new(Notify::new());
        let stop = Arc::clone(&is_stopping);
        let (peers, wanted) = watch::channel(Vec::new());
        let (pauses, point) = PauseSwitch::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = thread::Builder::new().name("strowger-share".to_owned()).spawn(move || {
            LocalSet::new().block_on(&runtime, run_thread(config, publish, wanted, (batches, point, &stop)));
        })?;
        Ok(Self { sender, status, is_stopping, pauses, peers, thread: Mutex::new(Some(thread)) })
    }

    pub(crate) fn sender(&self) -> UnboundedSender<EngineBatch> {
        self.sender.clone()
    }

    pub(crate) fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    pub(crate) fn set_peers(&self, peers: Vec<SocketAddr>) {
        // With an engine there are no peers and nothing receives this.
        drop(self.peers.send(peers));
    }

    /// Makes the thread send nothing more. Returns whether it does so in time.
    pub(crate) fn pause(&self, within: Duration) -> bool {
        self.pauses.pause().recv_timeout(within).is_ok()
    }

    /// Lets the thread go on.
    pub(crate) fn resume(&self) {
        self.pauses.resume();
    }

    pub(crate) fn stop(&self, within: Duration) {
        let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        let deadline = Instant::now() + within;
        while self.status().waiting > 0 && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
        self.is_stopping.notify_one();
        if thread.join().is_err() {
            tracing::error!("the thread that shares registrations panicked; please report it");
        }
    }
}

async fn run_thread(
    config: ClusterConfig,
    publish: watch::Sender<Status>,
    wanted: watch::Receiver<Vec<SocketAddr>>,
    (batches, mut pauses, stop): (UnboundedReceiver<EngineBatch>, PausePoint, &Notify),
) {
    if config.starts_paused && !pauses.resumed(stop).await {
        return;
    }
    let reporter = Reporter::new(Arc::clone(&config.locations), publish, (config.now)());
    match &config.mode {
        SharingMode::Engine(engine) => EngineLoop::new(&config, engine, reporter).run(batches, pauses, stop).await,
        SharingMode::Peers(peers) => match PeerLoop::new(&config, peers, wanted, reporter) {
            Ok(forwarding) => forwarding.run(batches, pauses, stop).await,
            Err(error) => tracing::error!("cluster: registrations are not shared: cannot wait for the socket: {error}"),
        },
    }
}

/// State of the thread with an engine.
struct EngineLoop {
    table: SharedState,
    engine: Rc<AnyEngine>,
    member: Member,
    waiters: HashMap<BatchId, Waiter>,
    next_batch: BatchId,
    reporter: Reporter,
    /// Notified when nonces have been used.
    wake: Arc<Notify>,
    /// Batch with used nonces in flight.
    nonce_batch: Option<BatchId>,
    /// Cursor from which the table is to be announced.
    table_cursor: Option<Cursor>,
    /// Number of requests in flight that write to the engine.
    writes: u32,
}

impl EngineLoop {
    fn new(config: &ClusterConfig, engine: &EngineConfig, reporter: Reporter) -> Self {
        let incarnation = process_start_ms();
        let member = Member::new(config.member, incarnation, engine.key.clone(), engine.limits);
        let engine = Rc::new(AnyEngine::new(engine.kind, EngineContext::new(config, engine, incarnation)));
        let table = SharedState::new(config);
        let wake = Arc::new(Notify::new());
        table.set_waker(&wake);
        Self {
            table,
            engine,
            member,
            waiters: HashMap::new(),
            next_batch: 0,
            reporter,
            wake,
            nonce_batch: None,
            table_cursor: None,
            writes: 0,
        }
    }

    async fn run(mut self, mut batches: UnboundedReceiver<EngineBatch>, mut pauses: PausePoint, stop: &Notify) {
        let (replies, mut answers) = unbounded_channel();
        self.member.handle_timeout(self.now());
        loop {
            self.send_nonce_uses();
            self.drain_outputs(&replies);
            // Wait for the disk, since what is still being read must be announced too.
            if self.table.locations.is_complete()
                && let Some(cursor) = self.table_cursor.take()
            {
                self.read_table(cursor);
                continue;
            }
            self.report();
            let sleep = self.member.poll_timeout().saturating_since(self.now()).min(MAX_SLEEP);
            tokio::select! {
                () = stop.notified() => return,
                pause = pauses.wanted() => {
                    self.finish_writes(&mut answers).await;
                    if !pauses.hold(pause, stop).await {
                        return;
                    }
                }
                Some(answer) = answers.recv() => self.handle_answer(answer),
                Some(handed) = batches.recv() => self.push(handed),
                () = self.wake.notified() => {}
                () = tokio::time::sleep(sleep) => self.member.handle_timeout(self.now()),
            }
        }
    }

    /// Waits for the answers to what writes to the engine, such as the heartbeat. Requests that follow wait as outputs.
    async fn finish_writes(&mut self, answers: &mut UnboundedReceiver<EngineReply>) {
        while self.writes > 0 {
            let Some(answer) = answers.recv().await else { return };
            self.handle_answer(answer);
        }
    }

    fn handle_answer(&mut self, EngineReply { reply, newer }: EngineReply) {
        self.writes -= u32::from(is_write(reply.kind()));
        self.republish(newer);
        self.member.handle_reply(self.now(), reply);
    }

    fn now(&self) -> strowger_foundation::Timestamp {
        self.table.now()
    }

    fn push(&mut self, EngineBatch { records, waiter: waiting }: EngineBatch) {
        let now = self.now();
        let id = match waiting {
            Waiter::None => None,
            waiting => {
                self.next_batch += 1;
                self.waiters.insert(self.next_batch, waiting);
                Some(self.next_batch)
            }
        };
        self.member.handle_changes(now, id, records);
    }

    /// Sends the used nonces once the previous ones are in the log.
    fn send_nonce_uses(&mut self) {
        let now = self.now();
        if self.nonce_batch.is_some() {
            return;
        }
        if let Some(uses) = self.table.nonces.poll_uses(now) {
            self.push(EngineBatch { records: vec![uses.into()], waiter: Waiter::NonceUses(now) });
            self.nonce_batch = Some(self.next_batch);
        }
    }

    /// Processes the outputs of the member.
    fn drain_outputs(&mut self, replies: &UnboundedSender<EngineReply>) {
        while let Some(output) = self.member.poll_output() {
            match output {
                Output::Request(request) => self.send_request(request, replies.clone()),
                Output::Apply(records) => self.apply(&records),
                Output::Confirm(id) => self.finish(id, true),
                Output::Refuse(id) => self.finish(id, false),
                Output::Synced => {
                    self.table.locations.complete_source();
                    tracing::info!("cluster: synchronized, {} registrations", self.table.locations.len());
                }
                Output::ReadTable(cursor) => self.table_cursor = Some(cursor),
            }
        }
    }

    fn send_request(&mut self, request: Request, replies: UnboundedSender<EngineReply>) {
        let (engine, table) = (Rc::clone(&self.engine), self.table.clone());
        let kind = request.kind();
        self.writes += u32::from(is_write(kind));
        let asking = tokio::task::spawn_local(async move {
            let known = RefCell::new(Vec::new());
            let show = |record: &[u8]| known.borrow_mut().extend(table.put(record));
            let reply = match engine.execute(&request, &show).await {
                Ok(reply) => reply,
                Err(error) => Reply::Failed { request: kind, why: error.to_string() },
            };
            EngineReply { reply, newer: known.take() }
        });
        tokio::task::spawn_local(async move {
            let answer = asking.await.unwrap_or_else(|error| {
                let why = format!("please report this: {error}");
                EngineReply { reply: Reply::Failed { request: kind, why }, newer: Vec::new() }
            });
            drop(replies.send(answer));
        });
    }

    /// Applies changes of another member.
    fn apply(&mut self, records: &[Box<[u8]>]) {
        let table = self.table.clone();
        let known = records.iter().filter_map(|record| table.put(record)).collect();
        self.republish(known);
    }

    /// Republishes changes that conflict with a newer local version and were restamped.
    fn republish(&mut self, known: Vec<Box<[u8]>>) {
        if !known.is_empty() {
            self.member.handle_changes(self.now(), None, known);
        }
    }

    fn finish(&mut self, id: BatchId, kept: bool) {
        self.nonce_batch.take_if(|telling| *telling == id);
        match self.waiters.remove(&id) {
            Some(Waiter::NonceUses(until)) if kept => self.table.nonces.confirm_uses(None, until),
            Some(waiting) => waiting.finish(kept),
            None => {}
        }
    }

    /// Reads a part of the table: the changes of this member and of dead members.
    fn read_table(&mut self, from: Cursor) {
        let now = self.now();
        let is_wanted = |version: Version| self.member.must_announce(version);
        let mut records = Vec::new();
        let next = self.table.locations.copy_changes(now, from, &is_wanted, &mut records);
        self.member.handle_table_part(now, records, next);
    }

    fn report(&mut self) {
        let status = self.member.status();
        self.reporter.report(self.now(), status);
    }
}

/// Returns whether requests of this kind change the engine's state.
fn is_write(kind: Kind) -> bool {
    match kind {
        Kind::Append | Kind::Heartbeat => true,
        Kind::Ends | Kind::ReadAll | Kind::Follow => false,
    }
}

/// Result of a request, and the changes that are newer in the table than in the state read.
struct EngineReply {
    reply: Reply,
    newer: Vec<Box<[u8]>>,
}
