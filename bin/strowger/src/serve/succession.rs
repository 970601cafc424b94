//! The running process of an upgrade: it starts the new one and hands over to it.

use std::ffi::OsString;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use signal_hook::consts::SIGHUP;
use strowger_control::protocol::{Predecessor, Takeover, UpgradePhase, UpgradeReport, UpgradeRequest};
use strowger_foundation::Timestamp;
use strowger_shard::{ListenerState, PROCESS_NUMBERS};
use strowger_takeover::{
    Channel, ChannelError, Go, Hello, ListenerInfo, PROTOCOL, Relay, RelayEnd, RelayFrame, Reply, Section, StateSender,
    receive_reply,
};
use strowger_worker::{MAX_PREDECESSORS, Predecessors, ProcessLink, RelayInlet};

use super::chain::PredecessorRelay;
use super::inheritance::{
    ADMINISTRATION, CALLS, CLIENTS_VERSION, CONTROL, FROZEN_AT, LIVE_MEMBERS, MEMBER, NONCES, PROVEN_SOURCES, TARGETS,
    origin_of,
};
use super::{DRAIN_LIMIT, DRAIN_TICK, Message, Server};
use crate::admin::AdminListener;
use crate::text::count;

/// Time for the new process to load what is not handed over.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// Time for what has been read to be done.
const FREEZE_LIMIT: Duration = Duration::from_millis(400);
/// Time for everything while nothing is read.
const HANDOVER_LIMIT: Duration = Duration::from_secs(3);
/// Interval at which a process without sockets reports how many transactions it has.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum time for which a process stays after it has handed over, for clients of its control socket.
const STAY: Duration = Duration::from_secs(1);
/// Process id of the process that a container begins with.
const FIRST_PROCESS: u32 = 1;
/// Argument of `serve` in a process that takes over.
const TAKE_OVER: &str = "--take-over";

/// A process that is about to take over. Dropping it ends it.
pub(super) struct Successor {
    child: Option<Child>,
    channel: Channel,
    hello: Hello,
    version: String,
    /// Whether connections are closed instead of staying with the process that has them.
    closes_connections: bool,
}

impl Successor {
    /// Starts a program and waits until it has loaded what is not handed over.
    pub(super) fn start(request: &UpgradeRequest, hello: Hello) -> Result<Self, String> {
        let binary = match &request.binary {
            Some(binary) => binary.clone(),
            None => own_binary()?,
        };
        let (channel, other) =
            Channel::pair().map_err(|error| format!("no socket can be opened for the new process: {error}"))?;
        let mut command = Command::new(&binary);
        command.args(arguments()).stdin(Stdio::from(other));
        let child = command.spawn();
        // The other end must not stay open here.
        drop(command);
        let child = child.map_err(|error| format!("{} cannot be started: {error}", binary.display()))?;
        let mut successor = Self {
            child: Some(child),
            channel,
            hello,
            version: String::new(),
            closes_connections: request.close_connections,
        };
        let limit = request.ready_ms.map_or(READY_LIMIT, Duration::from_millis);
        let deadline = Instant::now() + limit;
        // A program that does not know the protocol ends without reading this.
        let sent = successor.hello.send(&successor.channel, deadline);
        let reply = sent.and_then(|()| receive_reply(&successor.channel, deadline));
        match reply {
            Ok(Reply::Ready(version)) => successor.version = version,
            Ok(Reply::Refused(why)) => return Err(why),
            Ok(Reply::Prepared) => return Err("the new process is of another version".to_owned()),
            Err(ChannelError::Timeout) => {
                return Err(format!(
                    "{} (process {}) was not ready within {limit:?} and has been ended; see the server's log, or allow more \
                     time with --wait",
                    binary.display(),
                    successor.pid()
                ));
            }
            Err(error) => return Err(successor.why_ended(&binary, &error.to_string())),
        }
        Ok(successor)
    }

    /// Returns why the new process has not become ready.
    fn why_ended(&mut self, binary: &Path, error: &str) -> String {
        let status = self.child.as_mut().and_then(|child| {
            // It has closed the channel just before its end.
            let deadline = Instant::now() + STAY;
            loop {
                match child.try_wait() {
                    Ok(None) if Instant::now() < deadline => std::thread::sleep(DRAIN_TICK),
                    found => return found.ok().flatten(),
                }
            }
        });
        let shown = binary.display();
        match status {
            Some(status) => format!(
                "{shown} does not take over: it has ended with {status}; the server's log has its output, and a version \
                 before `strowger upgrade` cannot take over"
            ),
            None => format!("{shown} (process {}) does not take over: {error}", self.pid()),
        }
    }

    fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// Leaves the process running.
    fn release(mut self) {
        self.child = None;
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Returns the path of the running program, as it was before a newer one replaced the file.
fn own_binary() -> Result<PathBuf, String> {
    strowger_control::own_program().map_err(|error| format!("the running program has no path: {error}"))
}

/// Returns the arguments of this process for one that takes over.
fn arguments() -> Vec<OsString> {
    let own = std::env::args_os().skip(1).filter(|argument| argument != TAKE_OVER);
    own.chain([TAKE_OVER.into()]).collect()
}

/// The parts of the time for which nothing is read.
struct Phases {
    begun: Instant,
    last: Instant,
    done: Vec<UpgradePhase>,
}

impl Phases {
    fn begin() -> Self {
        let now = Instant::now();
        Self { begun: now, last: now, done: Vec::new() }
    }

    fn end(&mut self, name: &str) {
        let now = Instant::now();
        let us = micros(now.saturating_duration_since(self.last));
        self.done.push(UpgradePhase { name: name.to_owned(), us });
        self.last = now;
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Server {
    /// Returns what a new process must match.
    ///
    /// # Errors
    /// Why this server cannot hand over now.
    pub(super) fn greeting(&self) -> Result<Hello, String> {
        if std::process::id() == FIRST_PROCESS {
            return Err(
                "this process is the first one of its container, which ends with it; start a container of the new version"
                    .to_owned(),
            );
        }
        if !self.is_loaded || !self.fleet.locations().is_complete() {
            return Err("registrations are being loaded: try again later".to_owned());
        }
        if let Some(trouble) = self.store.trouble() {
            return Err(format!("the store of registrations must be in order: {trouble}"));
        }
        if self.chain.predecessors.len() >= MAX_PREDECESSORS {
            return Err(format!(
                "{MAX_PREDECESSORS} earlier processes still have transactions or connections: try again when one has ended, see \
                 `strowger ctl status`, or close its connections with `strowger upgrade --close-connections`"
            ));
        }
        Ok(Hello {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            process: (self.chain.process + 1) % PROCESS_NUMBERS,
            key: self.fingerprint.clone(),
            workers: u16::try_from(self.fleet.status().workers.len()).unwrap_or(u16::MAX),
            sorts_new_work: self.config.overload.control,
            clock_origin: origin_of(self.clock),
            store_origin: self.fleet.locations().store_origin(),
            nonce_seed: self.chain.nonce_seed,
            store: self.config.store_mode().as_str().to_owned(),
            member: self.cluster.member_info(),
            listeners: self.listener_infos(),
        })
    }

    fn listener_infos(&self) -> Vec<ListenerInfo> {
        let now = Instant::now();
        let info = |(id, (listener, configured)): (usize, (&strowger_shard::Listener, std::net::SocketAddr))| {
            let closes = self.listening.closes_at(id).map(|at| at.saturating_duration_since(now));
            let is_datagram = listener.transport == strowger_foundation::Transport::Udp;
            ListenerInfo {
                transport: listener.transport.as_str().to_owned(),
                address: listener.address,
                configured,
                is_open: matches!(listener.state(), ListenerState::Opening | ListenerState::Open),
                has_sockets: match listener.state() {
                    ListenerState::Closed => false,
                    // Listeners for connections are closed at once.
                    ListenerState::Draining => is_datagram,
                    ListenerState::Opening | ListenerState::Open => true,
                },
                closes_in_ms: closes.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
            }
        };
        self.snapshot.listeners.all().zip(self.listening.configured()).enumerate().map(info).collect()
    }

    /// Hands over to a process that is ready. If that fails, this one goes on.
    pub(super) fn hand_over(&mut self, successor: Successor) -> Result<UpgradeReport, String> {
        let mut now = self.greeting()?;
        // It is the only number that changes by itself.
        now.clock_origin = successor.hello.clock_origin;
        now.listeners.iter_mut().zip(&successor.hello.listeners).for_each(|(now, then)| {
            now.closes_in_ms = now.closes_in_ms.and(then.closes_in_ms);
        });
        if now != successor.hello {
            return Err("the configuration has changed meanwhile: try again".to_owned());
        }
        self.bans.end();
        let mut phases = Phases::begin();
        let frozen_at = self.clock.now();
        self.fleet
            .freeze(FREEZE_LIMIT, || self.store.commit())
            .map_err(|why| format!("the server is too busy: {why}; try again"))?;
        phases.end("finish what was read");
        if let Err(why) = self.cluster.pause() {
            self.cluster.resume();
            self.fleet.thaw();
            return Err(why);
        }
        match self.send_state(&successor, frozen_at, &mut phases) {
            Ok((report, relay)) => {
                self.relinquish(relay, successor.closes_connections);
                let report =
                    UpgradeReport { frozen_us: micros(phases.last - phases.begun), phases: phases.done, ..report };
                successor.release();
                Ok(report)
            }
            Err(why) => {
                let _ = Go::Abort.send(&successor.channel, Instant::now() + HANDOVER_LIMIT);
                // It must have closed the store before this process opens it again.
                drop(successor);
                self.store.reopen();
                self.cluster.resume();
                self.fleet.thaw();
                self.restart_relays();
                Err(why)
            }
        }
    }

    /// Sends everything and waits until the other process can go on.
    fn send_state(
        &mut self,
        successor: &Successor,
        frozen_at: Timestamp,
        phases: &mut Phases,
    ) -> Result<(UpgradeReport, Relay), String> {
        let text = |error: ChannelError| error.to_string();
        let system = |error: std::io::Error| format!("the system refuses: {error}");
        self.store.release().map_err(|why| format!("the store cannot be handed over: {why}"))?;
        phases.end("commit registrations");
        let deadline = Instant::now() + HANDOVER_LIMIT;
        let handover = self.fleet.hand_over(HANDOVER_LIMIT)?;
        phases.end("collect transactions");
        let calls = self.fleet.export_states().ok_or("a worker is stalled")?;
        phases.end("collect calls");
        let mut state = StateSender::new(&successor.channel, deadline);
        state.fleet(&handover).map_err(text)?;
        for (process, relay) in self.stop_relays() {
            let known = self.chain.known_predecessors.as_deref();
            let keys = known.into_iter().flat_map(|known| known.keys_of(process));
            state.predecessor(process, &relay, keys).map_err(text)?;
        }
        let (own, other) = RelayEnd::pair().map_err(system)?;
        state.predecessor(self.chain.process, &other, handover.keys.iter().copied()).map_err(text)?;
        drop(other);
        if let Some(control) = &self.control {
            state.extra(CONTROL, control.to_handover().map_err(system)?.as_fd()).map_err(text)?;
        }
        let admin = self.admin.as_ref().map(AdminListener::to_handover).transpose().map_err(system)?.flatten();
        if let Some(admin) = admin {
            state.extra(ADMINISTRATION, admin.as_fd()).map_err(text)?;
        }
        if let Some(socket) = self.cluster.to_handover().map_err(system)? {
            state.extra(MEMBER, socket.as_fd()).map_err(text)?;
        }
        phases.end("send sockets and transactions");
        let (mut addresses, mut failed) = (0, None);
        self.fleet.locations().for_each_state(self.clock.now(), |record| {
            if failed.is_none() {
                addresses += 1;
                failed = state.registration(record).err();
            }
        });
        failed.map_or(Ok(()), |error| Err(text(error)))?;
        phases.end("send registrations");
        for section in self.sections(frozen_at, calls) {
            state.section(&section).map_err(text)?;
        }
        phases.end("send calls and nonces");
        let bytes = state.complete().map_err(text)?;
        match receive_reply(&successor.channel, deadline).map_err(text)? {
            Reply::Prepared => {}
            Reply::Refused(why) => return Err(why),
            Reply::Ready(_) => return Err("the new process is of another version".to_owned()),
        }
        phases.end("wait for the new process");
        let inlet = self.fleet.relay_inlet();
        let closes_connections = Arc::clone(&self.chain.closes_connections);
        let on_frame = move |frame: RelayFrame<'_>| match frame {
            RelayFrame::Message(kind, message) => inlet.pass(kind, message),
            RelayFrame::CloseConnections => closes_connections.store(true, Ordering::Release),
            RelayFrame::Remaining { .. } | RelayFrame::Call(_) => {}
        };
        let is_alone = Arc::clone(&self.chain.is_alone);
        let relay = Relay::start(own, on_frame, move || is_alone.store(true, Ordering::Release)).map_err(system)?;
        Go::Go.send(&successor.channel, deadline).map_err(text)?;
        phases.end("decide");
        let report = UpgradeReport {
            from_version: env!("CARGO_PKG_VERSION").to_owned(),
            version: successor.version.clone(),
            pid: successor.pid(),
            addresses,
            transactions: handover.keys.len() as u64,
            bytes: bytes as u64,
            ..UpgradeReport::default()
        };
        Ok((report, relay))
    }

    /// Returns the other members that are alive, as JSON.
    fn live_members(&self) -> Vec<u8> {
        let found = self.fleet.locations().live_members();
        let found: Vec<_> = found.into_iter().map(|(member, address)| (member.get(), address)).collect();
        // Numbers and addresses always have a form.
        serde_json::to_vec(&found).unwrap_or_default()
    }

    /// Returns the state of parts that outlive transactions.
    fn sections(&self, frozen_at: Timestamp, calls: Vec<Vec<u8>>) -> impl Iterator<Item = Section> {
        let section = |name: &str, version, bytes| Section { name: name.to_owned(), version, bytes };
        let (mut nonces, mut proven) = (Vec::new(), Vec::new());
        self.nonces.export(&mut nonces);
        self.fleet.proven().export(&mut proven);
        let own = [
            section(FROZEN_AT, 1, frozen_at.as_nanos().to_le_bytes().into()),
            section(TARGETS, 1, self.balancing.export_targets()),
            section(LIVE_MEMBERS, 1, self.live_members()),
            section(NONCES, CLIENTS_VERSION, nonces),
            section(PROVEN_SOURCES, CLIENTS_VERSION, proven),
        ];
        // Pieces of one name are one section.
        let of_shard = |(shard, bytes)| Section { name: format!("{CALLS}{shard}"), version: 1, bytes };
        own.into_iter().chain(calls.into_iter().enumerate().map(of_shard))
    }

    /// Leaves everything to the other process but the transactions that this one has begun.
    fn relinquish(&mut self, relay: Relay, closes_connections: bool) {
        let link: Arc<dyn ProcessLink> = Arc::new(relay.link());
        self.fleet.release(&link, closes_connections);
        self.cluster.leave();
        self.passed_calls.set_successor(relay.link());
        if !self.fleet.pass_on_calls() {
            tracing::warn!("a worker does not know that another process has its calls: it is stalled");
        }
        if let Some(control) = self.control.take() {
            control.abandon();
        }
        self.admin = None;
        self.chain.predecessors.clear();
        self.chain.known_predecessors = None;
        (self.chain.successor, self.chain.is_succeeded) = (Some(relay), true);
    }

    /// Waits until the transactions of a process that has handed over have ended.
    pub(super) fn retire(&mut self) {
        let Some(relay) = self.chain.successor.take() else { return };
        let limit = super::listeners::draining_time(&self.config);
        tracing::info!(
            "handed over: ending when every transaction has ended, within {} s, and every connection is closed",
            limit.as_secs()
        );
        let begun = Instant::now();
        let (deadline, mut end_at, mut report_at) = (begun + limit, None::<Instant>, begun);
        loop {
            let total = self.fleet.status().total;
            let (left, connections) = (total.transactions, total.connections);
            let now = Instant::now();
            if self.chain.is_alone.load(Ordering::Acquire) {
                // Nothing reaches the transactions any more.
                end_at = end_at.or(Some(now + DRAIN_LIMIT));
            }
            if self.chain.closes_connections.swap(false, Ordering::AcqRel) {
                self.fleet.end_connections();
            }
            if now >= report_at {
                report_at = now + REPORT_INTERVAL;
                let (transactions, connections) = (left as u64, connections as u64);
                relay.link().send(&RelayFrame::Remaining { transactions, connections });
            }
            if left == 0 && connections == 0 && now >= begun + STAY {
                return;
            }
            if (now >= deadline && connections == 0) || end_at.is_some_and(|at| now >= at) {
                let left = count(left as u64, "transaction");
                return tracing::info!("ending with {left} and {} left", count(connections as u64, "connection"));
            }
            match self.messages.recv_timeout(DRAIN_TICK) {
                Ok(Message::Signal(SIGHUP)) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Message::Signal(_)) => end_at = end_at.or(Some(Instant::now() + DRAIN_LIMIT)),
                Ok(Message::Request(_, reply)) => {
                    let moved = "another process serves now; ask again".to_owned();
                    drop(reply.try_send(strowger_control::protocol::Response::Busy(moved)));
                }
                Ok(Message::CloseEarlierConnections(reply)) => _ = reply.try_send(()),
                Ok(Message::Greeting(reply)) => {
                    drop(reply.try_send(Err("another process serves now; ask again".to_owned())));
                }
                Ok(Message::HandOver(_, reply)) => drop(reply.try_send(Err("another process serves now".to_owned()))),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

/// Logs what an upgrade took.
pub(super) fn log(report: &UpgradeReport) {
    let UpgradeReport { version, pid, frozen_us, phases, addresses, transactions, bytes, .. } = report;
    let phases: Vec<_> = phases.iter().map(|phase| format!("{} {} us", phase.name, phase.us)).collect();
    tracing::info!(
        "process {pid} of version {version} has taken over: nothing was read for {frozen_us} us ({}); {}, {}, {bytes} bytes",
        phases.join(", "),
        count(*addresses, "registered address"),
        count(*transactions, "transaction")
    );
}

/// Takes over a call that an earlier process has set up.
fn import_call(inlet: &RelayInlet, state: &[u8]) {
    let why = match inlet.import_call(state) {
        Some(Ok(imported)) if imported.refused == 0 => return,
        Some(Ok(_)) => "there is no room for it".to_owned(),
        Some(Err(error)) => error.to_string(),
        None => "its worker is stalled".to_owned(),
    };
    tracing::error!("a call of an earlier process is not tracked, and its call record will be missing: {why}");
}

impl Server {
    /// Makes earlier processes close their connections.
    pub(super) fn close_earlier_connections(&self) {
        for relay in self.chain.predecessors.iter().filter_map(|one| one.relay.as_ref()) {
            relay.link().send(&RelayFrame::CloseConnections);
        }
    }

    /// Stops the relays to earlier processes, and returns their sockets.
    fn stop_relays(&mut self) -> Vec<(u8, RelayEnd)> {
        let mut ends = Vec::new();
        for one in &mut self.chain.predecessors {
            let Some(Ok(end)) = one.relay.take().map(Relay::stop) else { continue };
            let copy = end.as_fd().try_clone_to_owned().map(RelayEnd::from_descriptor);
            one.stopped = copy.ok();
            ends.push((one.process, end));
        }
        ends
    }

    /// Starts the relays to earlier processes again.
    fn restart_relays(&mut self) {
        let stopped: Vec<_> =
            self.chain.predecessors.iter_mut().filter_map(|one| Some((one.process, one.stopped.take()?))).collect();
        if stopped.is_empty() {
            return;
        }
        let mut known = Predecessors::default();
        for (process, end) in stopped {
            let keys: Vec<u64> =
                self.chain.known_predecessors.iter().flat_map(|known| known.keys_of(process)).collect();
            self.add_predecessor(process, end, &keys, &mut known);
        }
        self.set_predecessors(known);
    }

    /// Starts the relay to an earlier process, and adds it to those that the workers know.
    pub(super) fn add_predecessor(&mut self, process: u8, end: RelayEnd, keys: &[u64], known: &mut Predecessors) {
        let transactions = Arc::new(AtomicU64::new(keys.len() as u64));
        let connections = Arc::<AtomicU64>::default();
        let has_ended = Arc::new(AtomicBool::new(false));
        let (reported, ended) = ((Arc::clone(&transactions), Arc::clone(&connections)), Arc::clone(&has_ended));
        let inlet = self.fleet.relay_inlet();
        let on_frame = move |frame: RelayFrame<'_>| match frame {
            RelayFrame::Message(kind, message) => inlet.pass(kind, message),
            RelayFrame::CloseConnections => {}
            RelayFrame::Call(state) => import_call(&inlet, state),
            RelayFrame::Remaining { transactions, connections } => {
                reported.0.store(transactions, Ordering::Relaxed);
                reported.1.store(connections, Ordering::Relaxed);
            }
        };
        let on_end = move || ended.store(true, Ordering::Release);
        let relay = match Relay::start(end, on_frame, on_end) {
            Ok(relay) => relay,
            Err(error) => {
                return tracing::error!("process {process} gets nothing for its transactions, which time out: {error}");
            }
        };
        known.add(strowger_worker::Predecessor { process, link: Arc::new(relay.link()) }, keys.iter().copied());
        self.chain.predecessors.retain(|one| one.process != process);
        self.chain.predecessors.push(PredecessorRelay {
            process,
            relay: Some(relay),
            stopped: None,
            transactions,
            connections,
            has_ended,
        });
    }

    /// Makes the workers know the earlier processes.
    pub(super) fn set_predecessors(&mut self, known: Predecessors) {
        let known = (!known.is_empty()).then(|| Arc::new(known));
        self.chain.known_predecessors.clone_from(&known);
        if !self.fleet.set_predecessors(known.as_ref()) {
            tracing::warn!("a worker does not know which transactions earlier processes have: it is stalled");
        }
    }

    /// Returns how this process has replaced an earlier one.
    pub(super) fn takeover_status(&self) -> Option<Takeover> {
        let shown = |one: &PredecessorRelay| Predecessor {
            process: one.process,
            transactions: one.transactions.load(Ordering::Relaxed),
            connections: one.connections.load(Ordering::Relaxed),
        };
        let predecessors = self.chain.predecessors.iter().map(shown).collect();
        self.chain.takeover.clone().map(|takeover| Takeover { predecessors, ..takeover })
    }

    /// Forgets earlier processes that have ended.
    pub(super) fn follow_predecessors(&mut self) {
        let has_ended = |one: &PredecessorRelay| one.has_ended.load(Ordering::Acquire);
        if !self.chain.predecessors.iter().any(has_ended) {
            return;
        }
        let ended: Vec<u8> =
            self.chain.predecessors.iter().filter(|one| has_ended(one)).map(|one| one.process).collect();
        self.chain.predecessors.retain(|one| !has_ended(one));
        let mut known = self.chain.known_predecessors.as_deref().cloned().unwrap_or_default();
        ended.iter().for_each(|process| known.remove(*process));
        self.set_predecessors(known);
        tracing::info!(
            "{} of an upgrade ended; {} left",
            count(ended.len() as u64, "process"),
            self.chain.predecessors.len()
        );
    }
}
