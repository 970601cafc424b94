//! The server's sockets, at its start and while it runs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use strowger_control::config::Config;
use strowger_control::dns::SendableTransports;
use strowger_foundation::{ListenerId, Transport};
use strowger_net::{BufferSizes, StreamSocket, TcpListener, TlsContext, UdpSocket, WebSocketContext};
use strowger_registrar::MAX_LISTENER_IDS;
use strowger_shard::{Listener, ListenerState, Listeners, Snapshot};
use strowger_takeover::ListenerInfo;
use strowger_worker::{PreparedSockets, Socket};

use super::Server;
use super::handover::transport_of;
use crate::check;
use crate::failure::Failure;
use crate::segmentation::Segmentation;

/// A transport and an address, as configured: the port may be 0.
type Wanted = (Transport, SocketAddr);

/// The configured addresses of the listeners, and those that are about to close.
pub(super) struct ListenerSet {
    /// By listener id.
    wanted: Vec<Wanted>,
    /// Listeners for datagrams that were removed, and when their sockets close.
    draining: Vec<(ListenerId, Instant)>,
}

/// Listeners that a reload adds and removes.
#[derive(Default)]
pub(super) struct ListenerPlan {
    /// New addresses, with the ids that they get.
    opened: Vec<(ListenerId, Wanted)>,
    /// Listeners that were removed a short time ago and still have their sockets.
    reopened: Vec<ListenerId>,
    removed: Vec<ListenerId>,
}

impl ListenerSet {
    /// Creates the set of the listeners at the start.
    pub(super) fn new(wanted: Vec<Wanted>) -> Self {
        Self { wanted, draining: Vec::new() }
    }

    /// Creates the set of a process that takes over from another one, and its listeners. The configuration must name the
    /// same addresses.
    pub(super) fn inherit(config: &Config, infos: &[ListenerInfo]) -> Result<(Self, Vec<Listener>), Failure> {
        let mut set = Self::new(Vec::new());
        let mut listeners = Vec::new();
        let now = Instant::now();
        for (id, info) in (0_u16..).map(ListenerId).zip(infos) {
            let transport = transport_of(info).map_err(|error| Failure::No(format!("listener: {error}")))?;
            let state = match (info.is_open, info.has_sockets) {
                (true, _) => ListenerState::Open,
                (false, true) => ListenerState::Draining,
                (false, false) => ListenerState::Closed,
            };
            listeners.push(Listener::new(transport, info.address).with_state(state));
            set.wanted.push((transport, info.configured));
            if let (ListenerState::Draining, Some(ms)) = (state, info.closes_in_ms) {
                set.draining.push((id, now + Duration::from_millis(ms)));
            }
        }
        let plan = set.plan(config, &Listeners::new(listeners.clone())).map_err(Failure::No)?;
        if !plan.is_empty() {
            let differs =
                "server.listen differs from the running server's: run `strowger ctl reload` before the upgrade";
            return Err(Failure::No(differs.to_owned()));
        }
        Ok((set, listeners))
    }

    /// Returns the configured address of each listener.
    pub(super) fn configured(&self) -> impl Iterator<Item = SocketAddr> {
        self.wanted.iter().map(|(_, address)| *address)
    }

    /// Returns when the sockets of a removed listener are closed.
    pub(super) fn closes_at(&self, listener: usize) -> Option<Instant> {
        self.draining.iter().find(|(id, _)| usize::from(id.0) == listener).map(|(_, at)| *at)
    }

    /// Compares the listeners with a new configuration.
    pub(super) fn plan(&self, config: &Config, listeners: &Listeners) -> Result<ListenerPlan, String> {
        let mut plan = ListenerPlan::default();
        let addresses = check::addresses(config).map_err(|failure| failure.to_string())?;
        let ids = || (0_u16..).map(ListenerId).zip(self.wanted.iter().zip(listeners.all()));
        let is_open = |listener: &Listener| matches!(listener.state(), ListenerState::Opening | ListenerState::Open);
        for (id, (wanted, listener)) in ids() {
            if is_open(listener) && !is_configured(config, *wanted) {
                plan.removed.push(id);
            }
        }
        let mut next = self.wanted.len();
        let mut taken: Vec<ListenerId> = Vec::new();
        for address in addresses {
            let find = |fits: &dyn Fn(ListenerId, &Listener) -> bool| {
                let is_it = |(id, (wanted, listener)): &(ListenerId, (&Wanted, &Listener))| {
                    **wanted == address && !taken.contains(id) && fits(*id, listener)
                };
                ids().find(is_it).map(|(id, _)| id)
            };
            let is_draining = |id: ListenerId| self.draining.iter().any(|(draining, _)| *draining == id);
            let id = if let Some(id) = find(&|_, listener| is_open(listener)) {
                id
            } else if let Some(id) = find(&|id, _| is_draining(id)) {
                plan.reopened.push(id);
                id
            } else {
                // Port 0 means another port each time.
                let id = find(&|_, _| address.1.port() != 0).unwrap_or_else(|| {
                    next += 1;
                    u16::try_from(next - 1).map(ListenerId).unwrap_or_default()
                });
                plan.opened.push((id, address));
                id
            };
            taken.push(id);
        }
        plan.check_ports(listeners)?;
        if next > MAX_LISTENER_IDS {
            return Err(format!(
                "server.listen: the server has had {} addresses since its start, and keeps at most {MAX_LISTENER_IDS} in \
                 mind; restart it",
                self.wanted.len()
            ));
        }
        Ok(plan)
    }
}

/// Returns whether the configuration names the address of a listener, by itself or by the wildcard of its family. An
/// address that the machine has lost for a while stays in use.
fn is_configured(config: &Config, (transport, address): Wanted) -> bool {
    config.server.listen.iter().any(|listen| {
        let is_any = listen.address.ip().is_unspecified() && listen.address.is_ipv4() == address.is_ipv4();
        let is_it = is_any || listen.address.ip() == address.ip();
        listen.transport == transport && listen.address.port() == address.port() && is_it
    })
}

impl ListenerPlan {
    /// Returns whether nothing changes.
    pub(super) fn is_empty(&self) -> bool {
        self.opened.is_empty() && self.reopened.is_empty() && self.removed.is_empty()
    }

    /// Checks that no new listener needs the port of a removed one.
    fn check_ports(&self, listeners: &Listeners) -> Result<(), String> {
        for (transport, address) in self.opened.iter().map(|(_, wanted)| *wanted) {
            let removed = self.removed.iter().filter_map(|id| listeners.get(*id));
            let mut before =
                removed.filter(|old| old.transport.is_reliable() == transport.is_reliable() && old.address == address);
            if let Some(old) = before.next() {
                let (old, new) = (shown((old.transport, old.address)), shown((transport, address)));
                return Err(format!(
                    "server.listen: {new} needs the port of {old}; remove {old} and reload, then add {new} and reload again"
                ));
            }
        }
        Ok(())
    }

    /// Returns what the server can send over afterwards.
    pub(super) fn reach(&self, listeners: &Listeners) -> SendableTransports {
        let kept = self.kept(listeners).map(|listener| (listener.transport, listener.address));
        SendableTransports::of(kept.chain(self.opened.iter().map(|(_, wanted)| *wanted)))
    }

    /// Returns the listeners of now that are open afterwards.
    pub(super) fn kept<'a>(&'a self, listeners: &'a Listeners) -> impl Iterator<Item = &'a Listener> {
        let is_kept = |id: ListenerId, listener: &Listener| {
            self.reopened.contains(&id) || (listener.state() == ListenerState::Open && !self.removed.contains(&id))
        };
        let all = (0_u16..).map(ListenerId).zip(listeners.all());
        all.filter(move |(id, listener)| is_kept(*id, listener)).map(|(_, listener)| listener)
    }

    /// Returns the first address for datagrams afterwards, as [`SharedTable`](crate::cluster::SharedTable) chooses it.
    pub(super) fn candidates(&self, listeners: &Listeners) -> Vec<Listener> {
        let opened = self.opened.iter().map(|(_, (transport, address))| Listener::new(*transport, *address));
        self.kept(listeners).cloned().chain(opened).collect()
    }

    /// Returns the new addresses that are not named in the configuration but by a wildcard.
    pub(super) fn found(&self, config: &Config) -> Vec<String> {
        let is_named =
            |wanted: &Wanted| config.server.listen.iter().any(|listen| (listen.transport, listen.address) == *wanted);
        let found = self.opened.iter().filter(|(_, wanted)| !is_named(wanted));
        found.map(|(_, wanted)| shown(*wanted)).collect()
    }

    /// Binds the sockets of the new addresses: all or none.
    pub(super) fn bind(
        &self,
        server: &Server,
        tls: Option<&Arc<TlsContext>>,
    ) -> Result<(Vec<Listener>, Option<PreparedSockets>), String> {
        if self.opened.is_empty() {
            return Ok((Vec::new(), None));
        }
        let addresses = self.opened.iter().map(|(_, wanted)| *wanted).collect();
        let workers = u16::try_from(server.fleet.status().workers.len()).unwrap_or(u16::MAX);
        let sockets = bind_addresses(addresses, workers, &server.segmentation, (tls, &server.web_sockets));
        let sockets = sockets.map_err(|failure| format!("server.listen: {failure}"))?;
        let listeners = listeners_of(&sockets);
        let ids: Vec<ListenerId> = self.opened.iter().map(|(id, _)| *id).collect();
        let prepared = server.fleet.prepare_sockets(&ids, sockets);
        let prepared = prepared.map_err(|error| format!("server.listen: the sockets cannot be registered: {error}"))?;
        Ok((listeners, Some(prepared)))
    }
}

impl Server {
    /// Returns the listeners while the plan is carried out: new ones receive, but nothing is begun on them, and none on
    /// removed ones. `opened` are the new ones.
    pub(super) fn changed_listeners(&mut self, plan: &ListenerPlan, opened: Vec<Listener>) -> Listeners {
        let mut all: Vec<Listener> = self.snapshot.listeners.all().cloned().collect();
        let set = |all: &mut Vec<Listener>, id: ListenerId, state| {
            if let Some(listener) = all.get_mut(usize::from(id.0)) {
                *listener = listener.clone().with_state(state);
            }
        };
        let closing = Instant::now() + draining_time(&self.config);
        for id in &plan.removed {
            let is_datagram = all.get(usize::from(id.0)).is_some_and(|one| one.transport == Transport::Udp);
            set(&mut all, *id, ListenerState::Draining);
            // Connections have no common end.
            if is_datagram {
                self.listening.draining.push((*id, closing));
            }
        }
        for id in &plan.reopened {
            set(&mut all, *id, ListenerState::Open);
            self.listening.draining.retain(|(draining, _)| draining != id);
        }
        for ((id, wanted), listener) in plan.opened.iter().zip(opened) {
            let listener = listener.with_state(ListenerState::Opening);
            match (all.get_mut(usize::from(id.0)), self.listening.wanted.get_mut(usize::from(id.0))) {
                (Some(place), Some(known)) => (*place, *known) = (listener, *wanted),
                _ => {
                    all.push(listener);
                    self.listening.wanted.push(*wanted);
                }
            }
        }
        Listeners::new(all)
    }

    /// Hands new sockets to the workers, which must have the snapshot with their listeners, and closes those of removed
    /// listeners for connections.
    pub(super) fn exchange_sockets(&mut self, plan: &ListenerPlan, prepared: Option<PreparedSockets>) {
        if plan.is_empty() {
            return;
        }
        if !self.fleet.wait_for_snapshot() {
            tracing::warn!("a worker does not take the new configuration: it is stalled");
        }
        if let Some(prepared) = prepared
            && !self.fleet.open_sockets(prepared)
        {
            tracing::warn!("a worker does not take its new sockets: it is stalled");
        }
        let is_stream = |id: &&ListenerId| {
            self.snapshot.listeners.get(**id).is_some_and(|listener| listener.transport != Transport::Udp)
        };
        let closed: Vec<ListenerId> = plan.removed.iter().filter(is_stream).copied().collect();
        if !closed.is_empty() && !self.fleet.close_sockets(&closed) {
            tracing::warn!("a worker does not close its sockets: it is stalled");
        }
        let all = self.snapshot.listeners.all().cloned();
        let all = all.map(|listener| match listener.state() {
            ListenerState::Opening => listener.with_state(ListenerState::Open),
            _ => listener,
        });
        let listeners = Listeners::new(all.collect());
        self.publish(Snapshot { listeners, ..Snapshot::clone(&self.snapshot) });
        self.log_listeners(plan);
    }

    fn log_listeners(&self, plan: &ListenerPlan) {
        let address = |id: &ListenerId| {
            let listener = self.snapshot.listeners.get(*id);
            listener.map(|listener| shown((listener.transport, listener.address))).unwrap_or_default()
        };
        for id in plan.opened.iter().map(|(id, _)| id).chain(&plan.reopened) {
            tracing::info!("listening on {}", address(id));
        }
        for id in &plan.removed {
            match self.listening.draining.iter().find(|(draining, _)| draining == id) {
                Some((_, at)) => tracing::info!(
                    "no longer listening on {}: new requests get 503; it closes in {} s, when its calls have been answered",
                    address(id),
                    at.saturating_duration_since(Instant::now()).as_secs()
                ),
                None => tracing::info!("no longer listening on {}; its connections stay", address(id)),
            }
        }
    }

    /// Closes the sockets of removed listeners whose requests have ended.
    pub(super) fn follow_listeners(&mut self) {
        let now = Instant::now();
        let is_due = |(_, at): &(ListenerId, Instant)| *at <= now;
        let due: Vec<ListenerId> =
            self.listening.draining.iter().filter(|one| is_due(one)).map(|(id, _)| *id).collect();
        if due.is_empty() {
            return;
        }
        self.listening.draining.retain(|one| !is_due(one));
        let all = (0_u16..).map(ListenerId).zip(self.snapshot.listeners.all().cloned());
        let close = |(id, listener): (ListenerId, Listener)| {
            if due.contains(&id) { listener.with_state(ListenerState::Closed) } else { listener }
        };
        let listeners = Listeners::new(all.map(close).collect());
        self.publish(Snapshot { listeners, ..Snapshot::clone(&self.snapshot) });
        if !self.fleet.wait_for_snapshot() || !self.fleet.close_sockets(&due) {
            tracing::warn!("a worker does not close its sockets: it is stalled");
        }
        for listener in due.iter().filter_map(|id| self.snapshot.listeners.get(*id)) {
            tracing::info!("{} is closed", shown((listener.transport, listener.address)));
        }
    }
}

/// Returns how long a removed listener for datagrams stays: until a call that rings has been answered, and its
/// transactions have ended.
pub(super) fn draining_time(config: &Config) -> Duration {
    let ringing = config.routes.iter().filter_map(|route| route.timeout).map(|span| span.0);
    let ringing = ringing.fold(config.proxy.ring_timeout.0, Duration::max);
    ringing + config.timers.t1.0 * 64
}

fn shown((transport, address): Wanted) -> String {
    format!("{}:{address}", transport.as_str().to_ascii_lowercase())
}

/// Returns the listeners of the first worker's sockets.
pub(super) fn listeners_of(sockets: &[Vec<Socket>]) -> Vec<Listener> {
    let first = sockets.first().map_or(&[][..], Vec::as_slice);
    first.iter().map(|socket| Listener::new(socket.transport(), socket.local_addr())).collect()
}

/// Binds one socket per address and worker.
pub(super) fn bind(
    config: &Config,
    workers: u16,
    segmentation: &Segmentation,
    contexts: (Option<&Arc<TlsContext>>, &Arc<WebSocketContext>),
) -> Result<(ListenerSet, Vec<Vec<Socket>>), Failure> {
    let addresses = check::addresses(config)?;
    let sockets = bind_addresses(addresses.clone(), workers, segmentation, contexts)?;
    for listener in listeners_of(&sockets) {
        tracing::info!("listening on {}", shown((listener.transport, listener.address)));
    }
    Ok((ListenerSet::new(addresses), sockets))
}

fn bind_addresses(
    addresses: Vec<Wanted>,
    workers: u16,
    segmentation: &Segmentation,
    (tls, web_sockets): (Option<&Arc<TlsContext>>, &Arc<WebSocketContext>),
) -> Result<Vec<Vec<Socket>>, Failure> {
    let no = |error: strowger_net::BindError| Failure::No(error.to_string());
    let mut sockets: Vec<Vec<Socket>> = (0..workers).map(|_| Vec::new()).collect();
    let mut firsts: Vec<Socket> = Vec::new();
    for (transport, mut address) in addresses {
        // Port 0 means one free port for UDP and TCP of the address.
        let is_twin = |first: &&Socket| {
            let is_plain = |one| matches!(one, Transport::Udp | Transport::Tcp);
            let are_plain = is_plain(first.transport()) && is_plain(transport);
            address.port() == 0 && first.local_addr().ip() == address.ip() && are_plain
        };
        let twin = firsts.iter().find(is_twin).map(Socket::local_addr);
        address.set_port(twin.map_or(address.port(), |twin| twin.port()));
        let first = match (transport, tls) {
            (Transport::Udp, _) => UdpSocket::bind(address, BufferSizes::DEFAULT).map(|mut socket| {
                segmentation.apply(&mut socket);
                Socket::from(socket)
            }),
            (Transport::Ws | Transport::Wss, tls) => {
                let tls = tls.filter(|_| transport.is_secure()).cloned();
                StreamSocket::bind_web_socket(address, tls, Arc::clone(web_sockets)).map(Socket::from)
            }
            (Transport::Tls, Some(tls)) => StreamSocket::bind_tls(address, Arc::clone(tls)).map(Socket::from),
            _ => TcpListener::bind(address).map(Socket::from),
        };
        firsts.push(first.map_err(no)?);
    }
    for first in firsts {
        let others = (1..workers).map(|_| first.sibling().map_err(no)).collect::<Result<Vec<_>, _>>()?;
        for (mine, socket) in sockets.iter_mut().zip(std::iter::once(first).chain(others)) {
            mine.push(socket);
        }
    }
    Ok(sockets)
}
