//! Tests of persistence: simulated disks, a database file, and parsed REGISTER requests.

mod backups;
mod clocks;
mod crashes;
mod faults;
mod latest_states;
mod loading;
mod losses;
mod upkeep;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use strowger_foundation::{Flow, ListenerId, Timestamp, Transport};
use strowger_journal::simulated::SimDisk;
use strowger_journal::{JournalError, Operation};
use strowger_message::Message;
use strowger_registrar::{Locations, Policy, Record, Source, Update};
use tempfile::TempDir;

use crate::batch::Batch;
use crate::engine::{Engine, Parts};
use crate::failure::StartError;
use crate::time::MachineClocks;
use crate::{Limits, Mode, State};

const PATIENCE: Duration = Duration::from_secs(20);

/// A batch of records, and who waits for them.
pub(crate) struct TestBatch {
    records: Vec<Vec<u8>>,
    reply: Option<Sender<bool>>,
    token: Option<Arc<()>>,
    /// Receives the token while the worker has not handled the result.
    undealt: Option<Arc<Mutex<Vec<Arc<()>>>>>,
}

impl Batch for TestBatch {
    fn for_each(&self, show: &mut dyn FnMut(&[u8], bool)) {
        self.records.iter().for_each(|record| show(record, self.reply.is_some()));
    }

    fn hold_token(&mut self, token: Arc<()>) {
        self.token = Some(token);
    }

    fn acknowledge(self, kept: bool) {
        if let Some(undealt) = &self.undealt {
            undealt.lock().expect("whole").extend(self.token);
        }
        if let Some(reply) = self.reply {
            reply.send(kept).expect("somebody waits");
        }
    }
}

/// Clocks of the machine, set by tests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    wall_ms: u64,
    boot_ms: u64,
    boot: u8,
}

impl MachineClocks for Mutex<Clocks> {
    fn wall_ms(&self) -> u64 {
        self.lock().expect("whole").wall_ms
    }

    fn boot_ms(&self) -> u64 {
        self.lock().expect("whole").boot_ms
    }

    fn boot_id(&self) -> [u8; 16] {
        [self.lock().expect("whole").boot; 16]
    }
}

/// State that outlives the server.
pub(crate) struct Site {
    disk: SimDisk,
    folder: Arc<TempDir>,
    clocks: Arc<Mutex<Clocks>>,
    mode: Mode,
    limits: Limits,
}

/// A server running on a site.
pub(crate) struct Server {
    engine: Engine<TestBatch>,
    locations: Arc<Locations>,
    /// Nanoseconds that the test has added to the real time.
    passed: Arc<AtomicU64>,
    begun: Instant,
    undealt: Arc<Mutex<Vec<Arc<()>>>>,
    /// Number of times that the threads read the clock.
    asked: Arc<AtomicU64>,
}

/// Contacts by address.
type Contents = BTreeMap<String, BTreeSet<String>>;

impl Site {
    fn new(mode: Mode) -> Self {
        let limits = Limits { recover_every: Duration::from_millis(1), segment_bytes: 600, ..Limits::default() };
        let clocks = Clocks { wall_ms: 1_800_000_000_000, boot_ms: 5_000_000, boot: 1 };
        let folder = Arc::new(TempDir::new().expect("a folder"));
        Self { disk: SimDisk::new(), folder, clocks: Arc::new(Mutex::new(clocks)), mode, limits }
    }

    fn database(&self) -> PathBuf {
        self.folder.path().join("strowger.db")
    }

    /// Returns the same site with another disk and a copy of the database.
    fn with_disk(&self, disk: SimDisk) -> Self {
        let folder = Arc::new(TempDir::new().expect("a folder"));
        for entry in fs::read_dir(self.folder.path()).expect("readable") {
            let entry = entry.expect("readable");
            fs::copy(entry.path(), folder.path().join(entry.file_name())).expect("copied");
        }
        let clocks = Arc::new(Mutex::new(*self.clocks.lock().expect("whole")));
        Self { disk, folder, clocks, mode: self.mode, limits: self.limits.clone() }
    }

    /// Makes the disk wait in the operations that `is_blocked` selects. Returns a channel on which their beginnings arrive,
    /// and a sender; when that is dropped, all of them go on.
    fn gate(&self, is_blocked: impl Fn(Operation) -> bool + Send + Sync + 'static) -> (Receiver<()>, Sender<()>) {
        let (arrived, arrivals) = sync_channel(9);
        let (go_on, gate) = channel::<()>();
        let gate = Mutex::new(gate);
        self.disk.set_hook(Some(Arc::new(move |operation| {
            if is_blocked(operation) {
                let _ = arrived.try_send(());
                let _ = gate.lock().expect("whole").recv();
            }
        })));
        (arrivals, go_on)
    }

    /// Cuts the power of a server, and returns the site with what its disk had synced.
    fn crash(self, server: Server) -> Self {
        self.disk.stop_at(0);
        drop(server);
        self.with_disk(self.disk.restarted())
    }

    fn try_start(&self) -> Result<Server, StartError> {
        let address: SocketAddr = "192.0.2.100:5060".parse().expect("an address");
        let locations = Locations::new(4, 7).with_listeners([(Transport::Udp, address)]).with_pending_source();
        let locations = Arc::new(locations);
        let (passed, begun) = (Arc::new(AtomicU64::new(0)), Instant::now());
        let (since, asked) = (Arc::clone(&passed), Arc::new(AtomicU64::new(0)));
        let count = Arc::clone(&asked);
        let parts = Parts {
            database: self.database(),
            mode: self.mode,
            now: Arc::new(move || {
                count.fetch_add(1, Ordering::Relaxed);
                Timestamp::ZERO + begun.elapsed() + Duration::from_nanos(since.load(Ordering::Relaxed))
            }),
            machine: Arc::clone(&self.clocks) as Arc<dyn MachineClocks>,
            locations: Arc::clone(&locations),
            policy: Policy::default(),
            limits: self.limits.clone(),
            is_filled: false,
        };
        let disk = self.disk.clone();
        let engine = Engine::start(move || Ok::<_, JournalError>(disk.clone()), parts)?;
        Ok(Server { engine, locations, passed, begun, undealt: Arc::default(), asked })
    }

    /// Starts a server and waits until it has loaded.
    fn start(&self) -> Server {
        let server = self.try_start().expect("it starts");
        server.until(|| server.locations.is_complete());
        server
    }
}

impl Server {
    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.begun.elapsed() + Duration::from_nanos(self.passed.load(Ordering::Relaxed))
    }

    fn pass(&self, duration: Duration) {
        self.passed.fetch_add(u64::try_from(duration.as_nanos()).expect("short"), Ordering::Relaxed);
    }

    fn until(&self, is_so: impl Fn() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < PATIENCE, "it does not come: {:?}", self.engine.status());
            std::thread::yield_now();
        }
    }

    fn until_well(&self) {
        self.until(|| self.engine.status().state == State::Ok);
    }

    fn until_checkpointed(&self) {
        self.until(|| self.engine.status().journal_segments <= 1);
    }

    /// Returns the record of a REGISTER.
    fn stage(&self, user: &str, cseq: u32, headers: &str) -> Vec<u8> {
        let headers = headers.replace('|', "\r\n");
        let text = format!(
            "REGISTER sip:example.com SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bKa\r\nFrom: <sip:{user}@example.com>;tag=1\r\n\
             To: <sip:{user}@example.com>\r\nCall-ID: {user}\r\nCSeq: {cseq} REGISTER\r\n{headers}\r\nContent-Length: 0\r\n\r\n"
        );
        let peer: SocketAddr = "192.0.2.1:5060".parse().expect("an address");
        let flow = Flow::new(ListenerId(0), Transport::Udp, peer);
        let source = Source { flow, via_sent_by_matches: true };
        let message = Message::parse(text.as_bytes()).expect("a message");
        let update = Update::read(&message).expect("an update");
        let (aor, mut record) = (format!("{user}@example.com"), Vec::new());
        let policy = Policy::default();
        self.locations.stage(self.now(), aor.as_bytes(), &policy, &source, &update, &mut record).expect("staged");
        record
    }

    fn apply(&self, record: &[u8]) {
        self.locations.put(self.now(), &Record::parse(record).expect("a record"), None);
    }

    /// Submits a batch; returns the channel of its result.
    fn offer(&self, records: &[&[u8]]) -> Receiver<bool> {
        self.offer_to(records, None)
    }

    /// Does the same, but the result stays unhandled until `undealt` is emptied.
    fn offer_undealt(&self, records: &[&[u8]]) -> Receiver<bool> {
        self.offer_to(records, Some(Arc::clone(&self.undealt)))
    }

    fn offer_to(&self, records: &[&[u8]], undealt: Option<Arc<Mutex<Vec<Arc<()>>>>>) -> Receiver<bool> {
        let (reply, answer) = channel();
        let records = records.iter().map(|record| record.to_vec()).collect();
        self.engine.store(TestBatch { records, reply: Some(reply), token: None, undealt });
        answer
    }

    /// Submits a record that nothing waits for.
    fn give(&self, record: &[u8]) {
        self.engine.store(TestBatch { records: vec![record.to_vec()], reply: None, token: None, undealt: None });
    }

    /// Sends a REGISTER; returns whether the response was a 200.
    fn register(&self, user: &str, cseq: u32, headers: &str) -> bool {
        let record = self.stage(user, cseq, headers);
        let kept = self.offer_undealt(&[&record]).recv_timeout(PATIENCE).expect("an answer");
        if kept {
            self.apply(&record);
        }
        self.undealt.lock().expect("whole").clear();
        kept
    }

    /// Registers in write-behind mode.
    fn register_behind(&self, user: &str, cseq: u32, headers: &str) {
        let record = self.stage(user, cseq, headers);
        self.apply(&record);
        self.give(&record);
    }

    fn contacts(&self, user: &str) -> BTreeSet<String> {
        let mut targets = Vec::new();
        self.locations.lookup(self.now(), format!("{user}@example.com").as_bytes(), &mut targets);
        targets.iter().map(|target| String::from_utf8(target.uri.to_vec()).expect("ASCII")).collect()
    }

    fn contents(&self) -> Contents {
        let mut users = Vec::new();
        self.locations.for_each_state(self.now(), |state| {
            let aor = Record::parse(state).expect("a record").aor().to_vec();
            users.push(String::from_utf8(aor).expect("ASCII").replace("@example.com", ""));
        });
        users.into_iter().map(|user| (user.clone(), self.contacts(&user))).collect()
    }
}

fn contact(number: u32) -> String {
    format!("Contact: <sip:{number}@192.0.2.1>;expires=3600")
}
