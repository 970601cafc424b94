//! Power failures at every disk operation, with every possible state of the disk afterwards.
//!
//! One scripted run of registrations contains groups, segments and checkpoints. After each power failure a new
//! process starts, and its location table is compared with what was acknowledged.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use strowger_directory::Directory;
use strowger_foundation::{ConnId, Flow, ListenerId, Timestamp, Transport};
use strowger_journal::simulated::SimDisk;
use strowger_message::{HeaderName, Message, Uri};
use strowger_registrar::model::Model;
use strowger_registrar::{ContactUpdate, Durability, OptionTags, Path, Record, Source, Update, UpdateKind};
use strowger_shard::{Listener, Snapshot};

use crate::mutant::{self, Bug};
use crate::rng::Rng;
use crate::scenario::DOMAIN;
use crate::server::{PendingRecord, ProcessStart, SentMessage, Server, Step};
use crate::store::{Image, Store};

use crate::ledger::Ledger;

const SHARDS: u16 = 2;
const SEED: u64 = 0x0C4A_5401;
/// Downtime after a power failure.
const DOWN: Duration = Duration::from_secs(5);
/// Step of the wall clock during the downtime, at every second operation, in ms.
const JUMP_MS: i64 = 3 * 365 * 86_400_000;
/// Tolerance of expiry times, in ns: store time is recorded in whole milliseconds.
const ROUNDING_NS: u128 = 3_000_000;
/// Every n-th start after a power failure fails as well, at each of its operations.
const AGAIN_EVERY: u64 = 23;

/// What a run covered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Disk operations.
    pub operations: u64,
    /// Power failures.
    pub crashes: u64,
    /// Power failures that left a disk unlike any other at the same operation.
    pub distinct: u64,
    /// Power failures during the start after a power failure.
    pub again: u64,
    /// Bindings found after all of them.
    pub bindings: u64,
    /// Temporary GRUUs checked after all of them.
    pub gruus: u64,
}

/// Runs the script with a power failure at every operation.
///
/// # Errors
/// The guarantee that was violated, and the operation after which power failed.
pub fn run(bug: Option<Bug>) -> Result<Report, String> {
    let mut run = Run::begin(bug)?;
    for order in script() {
        let followed = run.execute(&order);
        run.state().error.take().map_or(Ok(()), Err)?;
        followed?;
    }
    run.store.disk().set_hook(None);
    let state = run.state();
    Ok(Report { operations: run.store.disk().operations(), ..state.report })
}

/// Step of the script.
#[derive(Clone, Debug)]
enum Operation {
    Register(Register),
    /// Commits all waiting records as one group.
    Commit,
    Checkpoint,
    Forget(&'static str),
    Unregister(Unregister),
    Wait(u64),
}

/// Request of the operator to remove registrations.
#[derive(Clone, Copy, Debug)]
struct Unregister {
    user: &'static str,
    /// Contact to remove; `None` removes all.
    contact: Option<&'static str>,
}

#[derive(Clone, Debug)]
struct Register {
    user: &'static str,
    /// Index of the user's phone.
    phone: u8,
    call: u32,
    contacts: String,
    by_stream: bool,
}

/// State of the run, and what the hook of its disk needs.
#[derive(Debug)]
struct Run {
    now: Timestamp,
    snapshot: Arc<Snapshot>,
    server: Server,
    store: Store,
    bug: Option<Bug>,
    cseq: u32,
    /// REGISTERs that wait for the store, by shard and ticket.
    waiting: BTreeMap<(usize, u64), PendingRegister>,
    /// Operations that wait for a REGISTER of their address.
    orders: Vec<Unregister>,
    state: Arc<Mutex<State>>,
}

/// REGISTER that waits for the store.
#[derive(Debug)]
struct PendingRegister {
    aor: Vec<u8>,
    at: Timestamp,
    flow: Flow,
    request: Vec<u8>,
    record: Vec<u8>,
}

/// State that is guaranteed at a moment.
#[derive(Debug)]
struct State {
    now: Timestamp,
    bug: Option<Bug>,
    snapshot: Arc<Snapshot>,
    ledger: Ledger,
    image: Image,
    gruus: Vec<Gruu>,
    report: Report,
    error: Option<String>,
}

/// Temporary GRUU given to a client.
#[derive(Clone, Debug)]
struct Gruu {
    user: Vec<u8>,
    aor: Vec<u8>,
    call: Vec<u8>,
    /// Whether it is valid; `None` while the record that ends it is on its way to the store.
    is_good: Option<bool>,
}

fn script() -> Vec<Operation> {
    let mut script = Vec::new();
    for round in 0..10u32 {
        let register = |user, phone, call, contacts: &str| {
            let contacts = contacts.to_owned();
            Operation::Register(Register { user, phone, call, contacts, by_stream: false })
        };
        let second = if round % 2 == 0 { 600 } else { 0 };
        script.push(register("alice", 1, 0, "<sip:alice@198.51.100.1:5060>;q=0.5;expires=900"));
        script.push(register(
            "bob",
            1,
            round / 3,
            "<sip:bob@198.51.100.1:5060>;+sip.instance=\"<urn:x:bob>\";reg-id=1",
        ));
        script.push(Operation::Commit);
        script.push(register("alice", 2, 0, &format!("<sip:alice@198.51.100.2:5060>;expires={second}")));
        script.push(Operation::Register(Register {
            user: "carol",
            phone: 3,
            call: round,
            contacts: "<sip:carol@198.51.100.3>;+sip.instance=\"<urn:x:carol>\";reg-id=1".to_owned(),
            by_stream: true,
        }));
        script.push(Operation::Commit);
        script.push(register("dave", 1, 0, "<sip:dave@198.51.100.1>;expires=60, <sip:dave@198.51.100.9>;expires=700"));
        script.push(register("erin", 1, 0, "<sip:erin@198.51.100.1:5060>;expires=800"));
        script.push(Operation::Commit);
        match round {
            1 | 7 => script.extend([register("alice", 1, 0, "*"), Operation::Commit]),
            2 | 6 | 9 => script.push(Operation::Checkpoint),
            3 => script.extend([Operation::Forget("erin"), register("carol", 4, 9, "<sip:carol@198.51.100.4:5060>")]),
            4 => script.push(Operation::Wait(70_000)),
            _ => script.push(register("dave", 1, 0, "<sip:dave@198.51.100.9>;expires=0")),
        }
        script.push(Operation::Commit);
        let unregister = |user, contact| Operation::Unregister(Unregister { user, contact });
        let second = || register("alice", 2, 0, "<sip:alice@198.51.100.2:5060>;expires=600");
        match round {
            // The second phone is new to the store, or only refreshes, while the operator removes the first one's
            // contact.
            5 | 8 => script.extend([
                second(),
                unregister("alice", Some("sip:alice@198.51.100.1:5060")),
                Operation::Commit,
                Operation::Wait(100),
                Operation::Commit,
                second(),
                Operation::Commit,
            ]),
            0 | 7 => script.extend([
                unregister("dave", Some("sip:dave@198.51.100.1")),
                unregister("dave", Some("sip:dave@198.51.100.1")),
                register("erin", 1, 0, "<sip:erin@198.51.100.1:5060>;expires=800"),
                unregister("erin", None),
                Operation::Commit,
                Operation::Commit,
            ]),
            _ => {}
        }
        script.push(Operation::Wait(5000));
    }
    script.extend([Operation::Wait(1000), Operation::Checkpoint]);
    script
}

fn snapshot() -> Arc<Snapshot> {
    let server = SocketAddr::from(([192, 0, 2, 1], 5060));
    let listeners = [Transport::Udp, Transport::Tcp].map(|transport| Listener::new(transport, server));
    let mut snapshot = Snapshot::new(listeners.into(), vec![DOMAIN.as_bytes().into()], Directory::empty(1));
    snapshot.auth.require.clear();
    snapshot.registrar.durability = Durability::WriteThrough;
    Arc::new(snapshot)
}

impl Run {
    fn begin(bug: Option<Bug>) -> Result<Self, String> {
        let (now, snapshot) = (Timestamp::ZERO, snapshot());
        let mut store = Store::new(Rng::new(1), 0, bug);
        store.set_segment_bytes(1800);
        let state = State {
            now,
            bug,
            snapshot: Arc::clone(&snapshot),
            ledger: Ledger::default(),
            image: store.image(false),
            gruus: Vec::new(),
            report: Report::default(),
            error: None,
        };
        let state = Arc::new(Mutex::new(state));
        let (disk, shared) = (store.disk().clone(), Arc::clone(&state));
        let hooked = disk.clone();
        disk.set_hook(Some(Arc::new(move |_| {
            let mut state = shared.lock().unwrap_or_else(PoisonError::into_inner);
            if state.error.is_none() {
                state.error = state.lose_power(&hooked).err();
            }
        })));
        let start = store.open(now)?;
        let birth = ProcessStart { at: now, life: 0, store_ns: Some(start.store_ns) };
        let mut server = Server::begin(SHARDS, SEED, Arc::clone(&snapshot), birth);
        server.handle(&Step::Complete { at: now });
        let mut run =
            Self { now, snapshot, server, store, bug, cseq: 0, waiting: BTreeMap::new(), orders: Vec::new(), state };
        run.publish_state(false);
        Ok(run)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes the time, and the durable state of the store outside the disk, to the hook.
    fn publish_state(&mut self, checkpointed: bool) {
        let image = self.store.image(checkpointed);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.image, state.now) = (image, self.now);
    }

    fn execute(&mut self, order: &Operation) -> Result<(), String> {
        self.advance(20);
        match order {
            Operation::Register(register) => self.register(register),
            Operation::Commit => self.commit(),
            Operation::Checkpoint => {
                self.store.begin_checkpoint(self.now)?;
                self.advance(200);
                let disk = self.store.disk().clone();
                self.state().lose_power(&disk)?;
                self.publish_state(true);
                self.store.end_checkpoint();
                Ok(())
            }
            Operation::Forget(user) => {
                let aor = format!("{user}@{DOMAIN}").into_bytes();
                self.server.handle(&Step::Forget { at: self.now, aor: aor.clone() });
                let records = self.server.take_records();
                let record = records.first().map(|kept| &kept.record[..]);
                self.state().ledger.forget(&aor, record, false);
                self.store.add(records);
                Ok(())
            }
            Operation::Unregister(order) => {
                let aor = order.aor();
                let contact = order.contact.map(|contact| contact.as_bytes().to_vec());
                self.server.handle(&Step::Unregister { at: self.now, aor: aor.clone(), contact });
                self.orders.push(*order);
                self.drain_waiting(&aor)
            }
            Operation::Wait(ms) => {
                self.advance(*ms);
                Ok(())
            }
        }
    }

    /// Executes the operations that do not wait for a REGISTER.
    ///
    /// Their records are queued at the store behind the waiting REGISTERs, so they must preserve what those bring.
    fn drain_waiting(&mut self, aor: &[u8]) -> Result<(), String> {
        let mut records = VecDeque::from(self.server.take_records());
        let waiting: Vec<_> = self.waiting.values().filter(|waiting| waiting.aor == aor).collect();
        if records.is_empty() && !waiting.is_empty() {
            return Ok(());
        }
        let (mut state, mut added) = (self.state(), Vec::new());
        for order in self.orders.iter().filter(|order| order.aor() == aor) {
            let mut next = state.ledger.model.clone();
            waiting.iter().for_each(|waiting| self.apply(&mut next, waiting));
            let before = next.entries(self.now, aor);
            self.apply_order(&mut next, order);
            let after = next.entries(self.now, aor);
            if order.contact.is_none() || before != after {
                let kept = records.pop_front().filter(|kept| kept.ticket.is_none());
                let kept = kept.ok_or_else(|| format!("nobody is asked to keep what {order:?} does"))?;
                state.ledger.emit(aor, &kept.record, after);
                added.push(kept);
            }
            let mut model = core::mem::take(&mut state.ledger.model);
            self.apply_order(&mut model, order);
            state.ledger.model = model;
        }
        drop(state);
        self.store.add(added);
        self.orders.retain(|order| order.aor() != aor);
        if records.is_empty() { Ok(()) } else { Err(format!("records of nobody: {records:?}")) }
    }

    fn apply_order(&self, model: &mut Model, order: &Unregister) {
        let contact = |contact: &'static str| {
            let uri = Uri::parse(contact.as_bytes())?;
            Some(ContactUpdate { uri, expires_s: Some(0), q: None, instance: b"", reg_id: None })
        };
        let kind = match order.contact {
            None => UpdateKind::RemoveAll,
            Some(text) => UpdateKind::Contacts(contact(text).into_iter().collect()),
        };
        let (path, supported) = (Path::new(), OptionTags::default());
        let update = Update { call_id: b"operator", cseq: u32::MAX, path, supported, is_first_hop: true, kind };
        let flow = Flow::new(ListenerId(0), Transport::Udp, SocketAddr::from(([0, 0, 0, 0], 0)));
        let source = Source { flow, via_sent_by_matches: true };
        let _ = model.apply(self.now, &order.aor(), &self.snapshot.registrar, &source, &update);
    }

    /// Advances time and serves timers.
    fn advance(&mut self, ms: u64) {
        let end = self.now + Duration::from_millis(ms);
        while let Some((at, shard)) = self.server.next_timeout().filter(|(at, _)| *at <= end) {
            self.now = self.now.max(at);
            self.server.handle(&Step::Timeout { at: self.now, shard });
        }
        self.now = end;
        self.publish_state(false);
    }

    fn register(&mut self, register: &Register) -> Result<(), String> {
        self.cseq += 1;
        let Register { user, phone, call, contacts, by_stream } = register;
        let (cseq, peer) = (self.cseq, SocketAddr::from(([198, 51, 100, *phone], 5060)));
        let expires = if contacts == "*" { "Expires: 0\r\n" } else { "" };
        let transport = if *by_stream { "TCP" } else { "UDP" };
        let request = format!(
            "REGISTER sip:{DOMAIN} SIP/2.0\r\nVia: SIP/2.0/{transport} {peer};branch=z9hG4bK{cseq}\r\nMax-Forwards: 70\r\n\
             From: <sip:{user}@{DOMAIN}>;tag=phone-{cseq}\r\nTo: <sip:{user}@{DOMAIN}>\r\nCall-ID: {user}-{phone}-{call}\r\n\
             CSeq: {cseq} REGISTER\r\nSupported: gruu, outbound\r\nContact: {contacts}\r\n{expires}Content-Length: 0\r\n\r\n"
        );
        let flow = if *by_stream {
            Flow::on_connection(ListenerId(1), Transport::Tcp, peer, ConnId::new(0, 1, 1))
        } else {
            Flow::new(ListenerId(0), Transport::Udp, peer)
        };
        let (at, request) = (self.now, request.into_bytes());
        let sent = self.server.handle(&Step::Message { at, flow, bytes: request.clone() });
        let records = self.server.take_records();
        let [PendingRecord { shard, ticket: Some(ticket), record }] = &records[..] else {
            let said = sent.first().map(|sent| sent.bytes.escape_ascii().to_string());
            return Err(format!("a REGISTER of {user} leaves no record, but is answered {said:?}"));
        };
        let aor = format!("{user}@{DOMAIN}").into_bytes();
        let waiting = PendingRegister { aor, at, flow, request, record: record.clone() };
        let mut state = self.state();
        let mut next = state.ledger.model.clone();
        self.apply(&mut next, &waiting);
        let after = next.entries(at, &waiting.aor);
        let removes = after.is_empty();
        state.ledger.emit(&waiting.aor, record, after);
        let call = format!("{user}-{phone}-{call}").into_bytes();
        for gruu in state.gruus.iter_mut().filter(|gruu| gruu.aor == waiting.aor && gruu.is_good == Some(true)) {
            if removes || gruu.call != call {
                gruu.is_good = None;
            }
        }
        drop(state);
        self.waiting.insert((*shard, *ticket), waiting);
        let answered = (*shard, *ticket);
        self.store.add(records);
        // A record counts as durable only once the store has reported it.
        if self.bug == Some(Bug::RepliesEarly) { self.stored(answered, true) } else { Ok(()) }
    }

    fn apply(&self, model: &mut Model, waiting: &PendingRegister) {
        if let Ok(message) = Message::parse(&waiting.request)
            && let Ok(update) = Update::read(&message)
        {
            let source = Source { flow: waiting.flow, via_sent_by_matches: true };
            let _ = model.apply(waiting.at, &waiting.aor, &self.snapshot.registrar, &source, &update);
        }
    }

    fn commit(&mut self) -> Result<(), String> {
        if self.store.begin().is_none() {
            return Ok(());
        }
        self.advance(3);
        let (records, kept) = self.store.finish(self.now);
        for one in records {
            match one.ticket {
                Some(ticket) if self.waiting.contains_key(&(one.shard, ticket)) => {
                    self.stored((one.shard, ticket), kept)?;
                }
                Some(_) => {}
                None => {
                    let aor = Record::parse(&one.record).map(|record| record.aor().to_vec()).unwrap_or_default();
                    self.state().ledger.on_stored(&aor, &one.record);
                }
            }
        }
        Ok(())
    }

    /// Handles the store's result for a record, and the response to the client.
    fn stored(&mut self, (shard, ticket): (usize, u64), kept: bool) -> Result<(), String> {
        let Some(waiting) = self.waiting.remove(&(shard, ticket)) else { return Ok(()) };
        let record = waiting.record.clone();
        let sent = self.server.handle(&Step::Stored { at: self.now, shard, ticket, record, kept });
        let answer = sent.iter().find_map(|sent| Message::parse(&sent.bytes).ok());
        let told = answer.filter(|answer| answer.status().is_some_and(|status| status.is_success() == kept));
        let Some(answer) = told else { return Err(format!("the store says {kept}, and the client hears {sent:?}")) };
        let (mut gruus, aor) = (Vec::new(), waiting.aor.clone());
        for contact in answer.head().elements(HeaderName::Contact) {
            let text = String::from_utf8_lossy(contact).into_owned();
            let user = text.split("temp-gruu=\"sip:").nth(1).and_then(|rest| rest.split('@').next());
            let call = answer.call_id().to_vec();
            gruus.extend(user.map(|user| Gruu { user: user.into(), aor: aor.clone(), call, is_good: Some(true) }));
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.ledger.on_stored(&aor, &waiting.record);
        let mut model = core::mem::take(&mut state.ledger.model);
        self.apply(&mut model, &waiting);
        state.ledger.model = model;
        let ended = state.gruus.iter_mut().filter(|gruu| gruu.aor == aor && gruu.is_good.is_none());
        ended.for_each(|gruu| gruu.is_good = Some(false));
        // One of several equal ones is enough.
        state.gruus.retain(|old| !gruus.iter().any(|new| new.aor == old.aor && new.call == old.call));
        state.gruus.extend(gruus);
        drop(state);
        self.drain_waiting(&aor)
    }
}

impl Unregister {
    fn aor(&self) -> Vec<u8> {
        format!("{}@{DOMAIN}", self.user).into_bytes()
    }
}

impl State {
    /// Fails power before the next operation, in every way, and starts a new process each time.
    fn lose_power(&mut self, disk: &SimDisk) -> Result<(), String> {
        let operation = disk.operations();
        let mut seen = BTreeSet::new();
        for crash in disk.choices() {
            self.report.crashes += 1;
            let left = disk.crash(crash);
            if !seen.insert(contents(&left)) {
                continue;
            }
            self.report.distinct += 1;
            let again = self.report.distinct.is_multiple_of(AGAIN_EVERY);
            let told = |why| format!("power fails before operation {operation} and leaves {crash:?}: {why}");
            if again {
                self.lose_power_again(&left).map_err(told)?;
            }
            self.check(left, operation.is_multiple_of(2)).map_err(told)?;
        }
        let left = disk.restarted();
        left.set_hook(None);
        self.check(left, false).map_err(|why| format!("killed before operation {operation}: {why}"))
    }

    /// Fails power again, at each operation of the following start.
    fn lose_power_again(&mut self, left: &SimDisk) -> Result<(), String> {
        for operation in 0.. {
            let disk = left.restarted();
            disk.stop_at(disk.operations() + operation);
            let mut store = Store::from_image(self.image.clone(), disk.clone(), self.bug);
            // With power failing, it opens as far as it gets.
            drop(store.open(self.now + DOWN / 2));
            if !disk.is_stopped() {
                return Ok(());
            }
            for seed in 0..3 {
                self.report.again += 1;
                let twice = disk.crash(strowger_journal::simulated::Crash::Random(seed + operation));
                self.check(twice, true)
                    .map_err(|why| format!("and again at operation {operation} of the start: {why}"))?;
            }
        }
        Ok(())
    }

    /// Starts a new process on that disk and checks its table.
    fn check(&mut self, disk: SimDisk, reboots: bool) -> Result<(), String> {
        let mut store = Store::from_image(self.image.clone(), disk, self.bug);
        let at = self.now + DOWN;
        if reboots {
            store.reboot(self.now + DOWN / 2);
        } else {
            store.set_wall_clock(JUMP_MS);
        }
        let start = store.open(at)?;
        let skew_ns = i128::from(start.store_ns) - i128::from(start.expected_ns);
        if !start.is_new && skew_ns.unsigned_abs() > ROUNDING_NS {
            return Err(format!("store time jumps by {skew_ns} ns"));
        }
        let store_ns = Some(mutant::believed(start.store_ns, self.bug));
        let birth = ProcessStart { at, life: 1, store_ns };
        let mut server = Server::begin(SHARDS, SEED, Arc::clone(&self.snapshot), birth);
        let mut ledger = self.ledger.clone();
        ledger.restart(if start.is_new { 0 } else { skew_ns }, start.found);
        for record in start.records {
            server.handle(&Step::Restored { at, record });
        }
        server.handle(&Step::Complete { at });
        ledger.complete(at, &server, true)?;
        server.check_invariants();
        server.for_each_binding(at, |_| self.report.bindings += 1);
        self.check_gruus(at, &mut server)
    }

    /// Checks that a GRUU reaches its owner while it is valid and not after it has ended.
    fn check_gruus(&mut self, at: Timestamp, server: &mut Server) -> Result<(), String> {
        for (number, gruu) in self.gruus.iter().enumerate() {
            let Some(is_good) = gruu.is_good else { continue };
            let mut found = Vec::new();
            server.lookup(at, &gruu.aor, &mut found);
            let user = String::from_utf8_lossy(&gruu.user).into_owned();
            let request = format!(
                "MESSAGE sip:{user}@{DOMAIN};gr SIP/2.0\r\nVia: SIP/2.0/UDP 203.0.113.1:5060;branch=z9hG4bKgruu{number}\r\n\
                 Max-Forwards: 70\r\nFrom: <sip:x@example.net>;tag=1\r\nTo: <sip:{user}@{DOMAIN};gr>\r\nCall-ID: {number}\r\n\
                 CSeq: 1 MESSAGE\r\nContent-Length: 0\r\n\r\n"
            );
            let flow = Flow::new(ListenerId(0), Transport::Udp, SocketAddr::from(([203, 0, 113, 1], 5060)));
            let sent = server.handle(&Step::Message { at, flow, bytes: request.into_bytes() });
            self.report.gruus += 1;
            let expected = is_good && found.iter().any(|target| target.instance != 0);
            let reached = sent.iter().any(|sent| leads_to(sent, &gruu.aor));
            if reached != expected {
                let aor = gruu.aor.escape_ascii();
                return Err(format!("a temporary GRUU of {aor} leads there: {reached}, and should: {expected}"));
            }
        }
        Ok(())
    }
}

fn leads_to(sent: &SentMessage, aor: &[u8]) -> bool {
    let Ok(message) = Message::parse(&sent.bytes) else { return false };
    let is_request = message.status().is_none();
    let user = aor.split(|byte| *byte == b'@').next();
    is_request
        && matches!(Uri::parse(message.request_uri()), Some(Uri::Sip(uri)) if uri.user.is_some() && uri.user == user)
}

fn contents(disk: &SimDisk) -> Vec<(String, Option<Vec<u8>>)> {
    disk.names()
        .into_iter()
        .map(|name| {
            let bytes = disk.contents(&name);
            (name, bytes)
        })
        .collect()
}
