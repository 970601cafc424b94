//! The running process of an upgrade: it starts the new one and hands over to it.

use std::ffi::OsString;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use strowger_control::protocol::{UpgradePhase, UpgradeReport, UpgradeRequest};
use strowger_foundation::Timestamp;
use strowger_shard::{ListenerState, PROCESS_NUMBERS};
use strowger_takeover::{
    Channel, ChannelError, Go, Hello, ListenerInfo, PROTOCOL, PredecessorInfo, Relay, RelayEnd, RelayFrame, Reply,
    Section, StateSender, receive_reply,
};
use strowger_worker::{MAX_PREDECESSORS, ProcessLink};

use super::handover::{
    ADMINISTRATION, CALLS, CLIENTS_VERSION, CONTROL, FROZEN_AT, LIVE_MEMBERS, MEMBER, NONCES, PROVEN_SOURCES, TARGETS,
    origin_of,
};
use super::retirement::STAY;
use super::{DRAIN_TICK, Server};
use crate::admin::AdminListener;
use crate::text::count;

/// Time for the new process to load what is not handed over.
pub(super) const READY_LIMIT: Duration = Duration::from_secs(60);
/// Time for what has been read to be done.
const FREEZE_LIMIT: Duration = Duration::from_millis(400);
/// Time for everything while nothing is read.
const HANDOVER_LIMIT: Duration = Duration::from_secs(3);
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
}

/// Why a server cannot hand over now.
pub(super) enum GreetingError {
    /// There are [`MAX_PREDECESSORS`] earlier processes.
    TooManyProcesses,
    Other(String),
}

impl From<String> for GreetingError {
    fn from(why: String) -> Self {
        Self::Other(why)
    }
}

impl From<GreetingError> for String {
    fn from(error: GreetingError) -> Self {
        match error {
            GreetingError::TooManyProcesses => format!(
                "{MAX_PREDECESSORS} earlier processes still have transactions or connections: try again when one has ended, see \
                 `strowger ctl status`, or close their connections with `strowger upgrade --close-connections`"
            ),
            GreetingError::Other(why) => why,
        }
    }
}

impl Successor {
    /// Starts a program and waits until it has loaded what is not handed over.
    pub(super) fn start(request: &UpgradeRequest, hello: Hello) -> Result<Self, String> {
        let hello = Hello { closes_connections: request.close_connections, ..hello };
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
        let mut successor = Self { child: Some(child), channel, hello, version: String::new() };
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
    pub(super) fn greeting(&self) -> Result<Hello, GreetingError> {
        if std::process::id() == FIRST_PROCESS {
            let why = "this process is the first one of its container, which ends with it; start a container of the new version";
            return Err(why.to_owned().into());
        }
        if !self.is_loaded || !self.fleet.locations().is_complete() {
            return Err("registrations are being loaded: try again later".to_owned().into());
        }
        if let Some(trouble) = self.store.trouble() {
            return Err(format!("the store of registrations must be in order: {trouble}").into());
        }
        if !self.chain.predecessors.has_room() {
            return Err(GreetingError::TooManyProcesses);
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
            closes_connections: false,
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
        self.follow_predecessors();
        let mut now = self.greeting()?;
        now.closes_connections = successor.hello.closes_connections;
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
                self.relinquish(relay, successor.hello.closes_connections);
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
        for one in self.chain.predecessors.stop_relays() {
            let keys = self.chain.predecessors.keys_of(one.process);
            state.predecessor((one.process, &one.info), &one.relay, keys).map_err(text)?;
        }
        let (own, other) = RelayEnd::pair().map_err(system)?;
        let info = self.own_info(frozen_at, handover.keys.len());
        state.predecessor((self.chain.process, &info), &other, handover.keys.iter().copied()).map_err(text)?;
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
        let (heard, ended) = (Arc::clone(&self.chain.successor_state), Arc::clone(&self.chain.successor_state));
        heard.set_pid(successor.pid());
        let on_frame = move |frame: RelayFrame<'_>| match frame {
            RelayFrame::Message(kind, message) => inlet.pass(kind, message),
            frame => heard.on_frame(frame),
        };
        let relay = Relay::start(own, on_frame, move || ended.on_end()).map_err(system)?;
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

    /// Returns what the next process shows of this one, which has `transactions`, until it reports.
    fn own_info(&self, replaced_at: Timestamp, transactions: usize) -> PredecessorInfo {
        PredecessorInfo {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            replaced_at: replaced_at.as_nanos(),
            transactions: transactions as u64,
            connections: self.fleet.status().total.connections as u64,
        }
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
        (self.chain.successor, self.chain.is_succeeded) = (Some(relay), true);
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
