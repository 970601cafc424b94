//! The new process of an upgrade: what it takes over from the one that has started it.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use strowger_control::config::Config;
use strowger_control::protocol::Takeover;
use strowger_foundation::{Timestamp, Transport};
use strowger_net::{
    BufferSizes, Clock, StreamSocket, TcpListener as SipListener, TlsContext, UdpSocket, WebSocketContext,
};
use strowger_registrar::{Locations, MemberId, Policy, Record};
use strowger_shard::ImportedState;
use strowger_takeover::{
    Channel, Go, Hello, ListenerInfo, PROTOCOL, PredecessorState, Reply, Section, State, StateReceiver, receive_go,
    send_reply,
};
use strowger_worker::{ListenerHandover, Predecessors, Socket, TakenOver};

use super::Server;
use super::chain::Chain;
use super::handover::{
    ADMINISTRATION, CALLS, CLIENTS_VERSION, CONTROL, FROZEN_AT, LIVE_MEMBERS, MEMBER, NONCES, PROVEN_SOURCES, TARGETS,
    monotonic_ns, transport_of,
};
use super::operators::OperatorAccess;
use crate::admin::Served;
use crate::cluster::{self, InheritedMember};
use crate::failure::Failure;
use crate::segmentation::Segmentation;
use crate::text::{count, size};

/// Time for the other process to say what it hands over, and to decide.
const GREETING_LIMIT: Duration = Duration::from_secs(10);
/// Time from readiness until the other process begins to hand over: it may write a checkpoint before.
const STATE_LIMIT: Duration = Duration::from_secs(120);

/// What the process before this one says about itself, and the way to it.
pub(crate) struct Inheritance {
    channel: Arc<Channel>,
    pub(super) hello: Hello,
    pub(super) clock: Clock,
}

/// What it has handed over.
pub(super) struct Inherited {
    /// The process before this one.
    pub(super) from: Inheritance,
    sockets: Vec<Vec<Socket>>,
    new_work: Vec<Vec<Option<UdpSocket>>>,
    pub(super) predecessors: Vec<PredecessorState>,
    pub(super) control: Option<OwnedFd>,
    pub(super) administration: Option<TcpListener>,
    member: Option<OwnedFd>,
    /// When the other process has stopped reading.
    pub(super) frozen_at: Timestamp,
    /// State of parts that the protocol does not know.
    pub(super) sections: Vec<Section>,
}

impl Inherited {
    /// Returns the place of this process.
    pub(super) fn chain(&self) -> Chain {
        Chain::new(self.from.hello.process, self.from.hello.nonce_seed)
    }

    /// Returns the sockets for the workers. Who the predecessors are is told before the workers read anything.
    pub(super) fn take_sockets(&mut self) -> (Vec<Vec<Socket>>, Option<TakenOver>) {
        let hello = &self.from.hello;
        let taken_over = TakenOver {
            process: hello.process,
            new_work: std::mem::take(&mut self.new_work),
            predecessors: Arc::default(),
            source_seed: hello.nonce_seed,
        };
        (std::mem::take(&mut self.sockets), Some(taken_over))
    }

    /// Returns what the process before has been as a member.
    pub(super) fn take_member(&mut self) -> Option<InheritedMember> {
        let info = self.from.hello.member.clone()?;
        Some(InheritedMember { info, socket: self.member.take() })
    }
}

impl Inheritance {
    /// Takes the channel from the standard input, and receives the greeting.
    pub(crate) fn receive() -> Result<Self, Failure> {
        let no = |why: String| {
            Failure::Usage(format!(
                "--take-over: {why}; only a running server starts one with it, for `strowger upgrade`"
            ))
        };
        let input = rustix::stdio::stdin();
        let descriptor = input.try_clone_to_owned().map_err(|error| no(error.to_string()))?;
        let channel = Channel::from_descriptor(descriptor).map_err(|error| no(error.to_string()))?;
        // The input must not keep the channel open.
        if let Ok(null) = std::fs::File::open("/dev/null") {
            let _ = rustix::stdio::dup2_stdin(&null);
        }
        let hello = Hello::receive(&channel, Instant::now() + GREETING_LIMIT).map_err(|error| no(error.to_string()))?;
        let age = Duration::from_nanos(monotonic_ns().saturating_sub(hello.clock_origin));
        let clock =
            Clock::started_before(age).ok_or_else(|| no("the clock of the running server is wrong".to_owned()))?;
        Ok(Self { channel: Arc::new(channel), hello, clock })
    }

    /// Returns the way to tell the other process of a failure.
    pub(crate) fn refusal(&self) -> Refusal {
        Refusal(Arc::clone(&self.channel))
    }

    /// Checks that this process can go on where the other one is.
    pub(super) fn check(&self, config: &Config, workers: u16) -> Result<(), Failure> {
        let Hello { protocol, version, workers: before, sorts_new_work, store, .. } = &self.hello;
        let differs = |what: String| Err(Failure::No(what));
        if *protocol != PROTOCOL {
            return differs(format!(
                "version {version}, which runs, hands over by protocol {protocol}, and version {} takes over by {PROTOCOL}; \
                 restart the server",
                env!("CARGO_PKG_VERSION")
            ));
        }
        if *before != workers {
            return differs(format!(
                "server.workers: {before} run, and the configuration has {workers}; restart the server"
            ));
        }
        if *sorts_new_work != config.overload.control {
            return differs("overload.control has changed; reload or restart the server first".to_owned());
        }
        if store != config.store_mode().as_str() {
            return differs(format!(
                "store.mode: registrations are in {store} mode, and the configuration has {}; restart the server",
                config.store_mode().as_str()
            ));
        }
        cluster::check_member(config, self.hello.member.as_ref())
    }

    /// Checks that both have the same key.
    pub(super) fn check_key(&self, fingerprint: &str) -> Result<(), Failure> {
        if self.hello.key == fingerprint {
            return Ok(());
        }
        Err(Failure::No("server.key_file has another key than the running server; restart it".to_owned()))
    }

    /// Says that everything is loaded that is not handed over, and receives the rest. Registrations go into `locations`.
    pub(super) fn receive_state(
        self,
        locations: &Locations,
        policy: &Policy,
        contexts: (Option<&Arc<TlsContext>>, &Arc<WebSocketContext>),
        segmentation: &Segmentation,
    ) -> Result<Inherited, Failure> {
        let no = |error: strowger_takeover::ChannelError| Failure::No(format!("the takeover has failed: {error}"));
        let ready = Reply::Ready(env!("CARGO_PKG_VERSION").to_owned());
        send_reply(&self.channel, &ready, Instant::now() + GREETING_LIMIT).map_err(no)?;
        let mut damaged = 0_u64;
        let state =
            StateReceiver::receive(&self.channel, Instant::now() + STATE_LIMIT, |bytes| match Record::parse(bytes) {
                Ok(record) => locations.take_over(self.clock.now(), policy, &record),
                Err(_) => damaged += 1,
            });
        let state = state.map_err(no)?;
        if damaged > 0 {
            return Err(Failure::No(format!("{damaged} registrations were handed over that this version cannot read")));
        }
        self.adopt(state, contexts, segmentation)
            .map_err(|error| Failure::No(format!("the sockets cannot be taken over: {error}")))
    }

    /// Makes sockets of the descriptors.
    fn adopt(
        self,
        state: State,
        contexts: (Option<&Arc<TlsContext>>, &Arc<WebSocketContext>),
        segmentation: &Segmentation,
    ) -> std::io::Result<Inherited> {
        let mut found: BTreeMap<(usize, usize), ListenerHandover> = BTreeMap::new();
        for one in state.sockets {
            found.insert((one.worker, one.listener), one.sockets);
        }
        let (mut sockets, mut new_work) = (Vec::new(), Vec::new());
        for worker in 0..usize::from(self.hello.workers) {
            let (mut own, mut second) = (Vec::new(), Vec::new());
            for (listener, info) in self.hello.listeners.iter().enumerate() {
                let handover = found.remove(&(worker, listener)).unwrap_or_default();
                if handover.socket.is_some() != info.has_sockets {
                    return Err(std::io::ErrorKind::InvalidData.into());
                }
                let (socket, queue) = adopt_sockets(info, handover, contexts, segmentation)?;
                own.push(socket);
                second.push(queue);
            }
            sockets.push(own);
            new_work.push(second);
        }
        let mut extras: BTreeMap<String, OwnedFd> = state.extras.into_iter().collect();
        let frozen_at = state.sections.iter().find(|section| section.name == FROZEN_AT);
        let frozen_at = frozen_at.and_then(|section| section.bytes.as_slice().try_into().ok()).map(u64::from_le_bytes);
        let frozen_at = frozen_at.map_or_else(|| self.clock.now(), Timestamp::from_nanos);
        Ok(Inherited {
            from: self,
            sockets,
            new_work,
            predecessors: state.predecessors,
            control: extras.remove(CONTROL),
            administration: extras.remove(ADMINISTRATION).map(TcpListener::from),
            member: extras.remove(MEMBER),
            frozen_at,
            sections: state.sections,
        })
    }

    /// Says that this process can go on, and waits for the decision of the other one.
    pub(super) fn await_decision(&self) -> Result<(), Failure> {
        let no = |error: strowger_takeover::ChannelError| Failure::No(format!("the takeover has failed: {error}"));
        send_reply(&self.channel, &Reply::Prepared, Instant::now() + GREETING_LIMIT).map_err(no)?;
        match receive_go(&self.channel, Instant::now() + GREETING_LIMIT).map_err(no)? {
            Go::Go => Ok(()),
            Go::Abort => Err(Failure::No("the running server goes on by itself".to_owned())),
        }
    }
}

impl Server {
    /// Goes on where the process before has stopped, once that has decided so.
    pub(super) fn take_over(&mut self, inherited: Inherited, served: Served) -> Result<(), Failure> {
        let mut known = Predecessors::default();
        for state in inherited.predecessors {
            self.add_predecessor(state, &mut known);
        }
        self.set_predecessors(known);
        self.import_sections(&inherited.sections)?;
        let hello = &inherited.from.hello;
        let access = OperatorAccess::bind(&self.config, (inherited.control, inherited.administration))?;
        inherited.from.await_decision()?;
        // From here on, nobody else serves.
        self.cluster.resume();
        self.fleet.thaw();
        let frozen = self.clock.now().saturating_since(inherited.frozen_at);
        self.chain.predecessors.sweep_soon();
        if hello.closes_connections {
            self.chain.predecessors.close_connections();
        }
        match access.serve(served) {
            Ok((admin, control)) => (self.admin, self.control) = (Some(admin), Some(control)),
            Err(failure) => tracing::error!("nobody can control this process: {failure}"),
        }
        self.chain.takeover = Some(Takeover {
            from_version: hello.version.clone(),
            from_pid: hello.pid,
            frozen_us: u64::try_from(frozen.as_micros()).unwrap_or(u64::MAX),
            predecessors: Vec::new(),
        });
        tracing::info!(
            "took over from process {} of version {}: nothing was read for {:.1} ms",
            hello.pid,
            hello.version,
            frozen.as_secs_f64() * 1000.0
        );
        Ok(())
    }

    /// Takes over the state of parts that outlive transactions.
    fn import_sections(&self, sections: &[Section]) -> Result<(), Failure> {
        let no = |why: String| Failure::No(format!("the takeover has failed: {why}"));
        let mut all = ImportedState::default();
        for section in sections {
            let Section { name, version, bytes } = section;
            match name.as_str() {
                FROZEN_AT => {}
                TARGETS => drop(self.balancing.import_targets(bytes).map_err(|error| no(error.to_string()))?),
                LIVE_MEMBERS => self.import_live_members(bytes).map_err(no)?,
                NONCES | PROVEN_SOURCES => self.import_clients(section).map_err(no)?,
                name if name.starts_with(CALLS) => match self.fleet.import_state(bytes) {
                    Some(Ok(imported)) => all.add(&imported),
                    Some(Err(error)) => return Err(no(error.to_string())),
                    None => return Err(no("a worker is stalled".to_owned())),
                },
                name => tracing::info!(
                    "{} of {name} (format {version}) are not known to this version",
                    size(bytes.len() as u64)
                ),
            }
        }
        if all.refused > 0 {
            tracing::error!("{} are not tracked: there is no room for them", count(all.refused as u64, "call"));
        }
        tracing::info!("took over {}", count(all.calls as u64, "call"));
        Ok(())
    }

    /// Knows the members that are alive until they are heard of.
    fn import_live_members(&self, bytes: &[u8]) -> Result<(), String> {
        let found: Vec<(u16, SocketAddr)> =
            serde_json::from_slice(bytes).map_err(|error| format!("the live members cannot be read: {error}"))?;
        let known = found.into_iter().filter_map(|(member, address)| Some((MemberId::new(member)?, address)));
        self.fleet.locations().set_live_members(known.collect());
        Ok(())
    }

    /// Takes over which nonce counts clients have used, or which of them have proven their address.
    fn import_clients(&self, Section { name, version, bytes }: &Section) -> Result<(), String> {
        if *version > CLIENTS_VERSION {
            return Err(format!("{name} are in form {version}, and this program reads forms up to {CLIENTS_VERSION}"));
        }
        let is_imported = match name.as_str() {
            NONCES => self.nonces.import(bytes).is_some(),
            _ => self.fleet.proven().import(bytes),
        };
        if is_imported { Ok(()) } else { Err(format!("{name} of the other process cannot be read")) }
    }
}

/// The way to tell the process before this one that it must go on.
pub(crate) struct Refusal(Arc<Channel>);

impl Refusal {
    /// Says why this process cannot take over.
    pub(crate) fn send(&self, failure: &Failure) {
        // The other process may have given up.
        drop(send_reply(&self.0, &Reply::Refused(failure.to_string()), Instant::now() + GREETING_LIMIT));
    }
}

fn adopt_sockets(
    info: &ListenerInfo,
    handover: ListenerHandover,
    (tls, web_sockets): (Option<&Arc<TlsContext>>, &Arc<WebSocketContext>),
    segmentation: &Segmentation,
) -> std::io::Result<(Socket, Option<UdpSocket>)> {
    let transport = transport_of(info)?;
    let Some(descriptor) = handover.socket else { return Ok((Socket::Closed(transport, info.address), None)) };
    let [drops, new_work_drops] = handover.drops;
    let adopt = |descriptor, drops| {
        let mut socket = UdpSocket::take_over(descriptor, drops, BufferSizes::DEFAULT)?;
        segmentation.apply(&mut socket);
        Ok::<_, std::io::Error>(socket)
    };
    let socket: Socket = match transport {
        Transport::Udp => adopt(descriptor, drops)?.into(),
        transport => {
            let tls = tls.filter(|_| transport.is_secure()).cloned();
            if transport.is_secure() && tls.is_none() {
                return Err(std::io::Error::other("a listener for TLS has no certificate; see [tls]"));
            }
            let web_socket = transport.is_web_socket().then(|| Arc::clone(web_sockets));
            StreamSocket::from_listener(SipListener::take_over(descriptor)?, tls, web_socket).into()
        }
    };
    if socket.local_addr() != info.address {
        return Err(std::io::ErrorKind::InvalidData.into());
    }
    let new_work = handover.new_work.map(|descriptor| adopt(descriptor, new_work_drops)).transpose()?;
    Ok((socket, new_work))
}
