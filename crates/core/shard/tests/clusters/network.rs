//! First stages and clusters at separate addresses in one virtual time. Messages between servers are delivered; all
//! others go to the test, which emulates the phones.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use strowger_balancer::{Key, Member, Partition, Policy, Set, SetConfig, Slot, SlotLoads, Target};
use strowger_directory::{Directory, DirectoryChange, Ha1s, User};
use strowger_foundation::{ConnId, Flow, ListenerId, Transport};
use strowger_proxy::Stateless;
use strowger_registrar::Nat;
use strowger_shard::{Action, Clusters, Route, RouteTarget, Snapshot};

use crate::support::{SentMessage, World};

/// The indices of the servers.
pub(crate) const S1: usize = 0;
pub(crate) const S2: usize = 1;
pub(crate) const A: usize = 2;
pub(crate) const B: usize = 3;
pub(crate) const C: usize = 4;
const ADDRESSES: [&str; 5] =
    ["198.51.100.1:5060", "198.51.100.2:5060", "198.51.100.11:5060", "198.51.100.12:5060", "198.51.100.13:5060"];
const NAMES: [&str; 3] = ["a", "b", "c"];
/// Number of users in the directory: u0, u1 and so on.
const USERS: usize = 64;
/// First port from which servers open connections; the index of the remote server is added.
const CONNECTING: u16 = 40_000;

/// The weights of the clusters a, b and c.
pub(crate) type Weights = [u16; 3];

/// The assignment of users to clusters in the view of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) now: Weights,
    pub(crate) before: Option<Weights>,
}

impl Plan {
    pub(crate) const fn settled(now: Weights) -> Self {
        Self { now, before: None }
    }

    pub(crate) const fn moving(before: Weights, now: Weights) -> Self {
        Self { now, before: Some(before) }
    }
}

/// A message that reached a phone, and the server that sent it.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedMessage {
    pub(crate) by: usize,
    pub(crate) sent: SentMessage,
}

pub(crate) struct Network {
    pub(crate) servers: Vec<World>,
    pub(crate) dead: Vec<usize>,
}

impl Network {
    /// Creates five servers with this `plan`, each configured by `edit`.
    pub(crate) fn new(plan: Plan, edit: impl Fn(usize, &mut Snapshot)) -> Self {
        let server = |number: usize| {
            World::at(ADDRESSES[number], &["UDP", "TCP"], |snapshot| {
                set_up(number, snapshot, plan);
                edit(number, snapshot);
            })
        };
        Self { servers: (0..ADDRESSES.len()).map(server).collect(), dead: Vec::new() }
    }

    /// Gives some servers another plan.
    pub(crate) fn replan(&mut self, servers: &[usize], plan: Plan) {
        for server in servers {
            self.servers[*server].configure(|snapshot| snapshot.clusters = Some(clusters(*server, plan)));
        }
    }

    pub(crate) fn kill(&mut self, server: usize) {
        self.dead.push(server);
    }

    /// Sends a message from a phone to a server; returns what phones receive.
    pub(crate) fn send_by(&mut self, flow: Flow, to: usize, text: &str) -> Vec<ReceivedMessage> {
        let mut arrived = Vec::new();
        if !self.dead.contains(&to) {
            let sent = self.servers[to].input_by(flow, text);
            self.deliver(to, sent, &mut arrived);
        }
        arrived
    }

    /// Answers `request` as the phone that received it.
    pub(crate) fn answer(&mut self, request: &ReceivedMessage, status: u16, extra: &str) -> Vec<ReceivedMessage> {
        let text = request.sent.response(status, "Reason", ";tag=callee", extra);
        self.send_by(request.sent.flow, request.by, &text)
    }

    /// Lets time pass; returns what phones receive.
    pub(crate) fn wait(&mut self, duration: Duration) -> Vec<ReceivedMessage> {
        let end = self.servers[S1].now + duration;
        let mut arrived = Vec::new();
        loop {
            let alive = (0..self.servers.len()).filter(|server| !self.dead.contains(server));
            let next = alive.filter_map(|server| Some((self.servers[server].shard.poll_timeout()?.at, server))).min();
            let Some((at, server)) = next.filter(|(at, _)| *at <= end) else { break };
            self.servers.iter_mut().for_each(|world| world.now = world.now.max(at));
            let sent = self.servers[server].wait(Duration::ZERO).into_iter().map(|(_, sent)| sent).collect();
            self.deliver(server, sent, &mut arrived);
        }
        self.servers.iter_mut().for_each(|world| world.now = end);
        arrived
    }

    /// Lets all timers run out and checks that no state remains.
    pub(crate) fn settle(&mut self) {
        self.wait(Duration::from_secs(300));
        for (number, world) in self.servers.iter().enumerate().filter(|(number, _)| !self.dead.contains(number)) {
            assert_eq!(world.shard.transactions(), 0, "transactions are left at {number}");
            assert_eq!(world.shard.contexts(), 0, "contexts are left at {number}");
        }
    }

    fn deliver(&mut self, from: usize, sent: Vec<SentMessage>, arrived: &mut Vec<ReceivedMessage>) {
        let mut queue: VecDeque<(usize, SentMessage)> = sent.into_iter().map(|sent| (from, sent)).collect();
        while let Some((from, sent)) = queue.pop_front() {
            let Some((to, flow)) = arrival(from, &sent) else {
                arrived.push(ReceivedMessage { by: from, sent });
                continue;
            };
            if !self.dead.contains(&to) {
                queue.extend(self.servers[to].input_by(flow, &sent.text).into_iter().map(|sent| (to, sent)));
            }
        }
    }
}

/// Returns the server that `sent` goes to, and the flow as that server sees it; `None` for a message to a phone.
fn arrival(from: usize, sent: &SentMessage) -> Option<(usize, Flow)> {
    let by_connection = |peer, other: usize| {
        let slot = u32::try_from(100 + other).expect("small");
        Flow::on_connection(ListenerId(1), Transport::Tcp, peer, ConnId::new(0, slot, 1))
    };
    let port_of = |server: usize| CONNECTING + u16::try_from(server).expect("small");
    let to = (0..ADDRESSES.len()).find(|server| address(*server).ip() == sent.to.ip())?;
    let flow = match sent.flow.transport {
        Transport::Udp => Flow::new(ListenerId(0), Transport::Udp, address(from)),
        _ if sent.to == address(to) => by_connection(SocketAddr::new(address(from).ip(), port_of(to)), from),
        _ => {
            assert_eq!(sent.to.port(), port_of(from), "a connection that {to} has opened");
            by_connection(address(from), from)
        }
    };
    Some((to, flow))
}

pub(crate) fn address(server: usize) -> SocketAddr {
    ADDRESSES[server].parse().expect("an address")
}

/// Returns the server that a URI leads to.
pub(crate) fn server_of(uri: &str) -> Option<usize> {
    ADDRESSES.iter().position(|address| uri.contains(*address))
}

/// Returns a user in cluster `from` by the weights `before` and in `to` by `now`, both as indices of A, B and C.
pub(crate) fn user(before: Weights, from: usize, now: Weights, to: usize) -> String {
    users(before, from, now, to).next().expect("there are enough users")
}

pub(crate) fn users(before: Weights, from: usize, now: Weights, to: usize) -> impl Iterator<Item = String> {
    let (before, now) = (partition(before), partition(now));
    let has = move |user: &String| {
        let slot = Slot::of(format!("{user}@example.com").as_bytes());
        before.owner(slot) == Some(from - A) && now.owner(slot) == Some(to - A)
    };
    (0..USERS).map(|number| format!("u{number}")).filter(has)
}

fn partition(weights: Weights) -> Partition {
    Partition::new(NAMES.into_iter().zip(weights))
}

fn set_up(number: usize, snapshot: &mut Snapshot, plan: Plan) {
    snapshot.siblings = (0..ADDRESSES.len()).filter(|other| *other != number).map(address).collect();
    snapshot.clusters = Some(clusters(number, plan));
    snapshot.has_shared_keys = true;
    let is_first_stage = number < A;
    snapshot.track_calls = !is_first_stage;
    snapshot.proxy.outbound = is_first_stage;
    snapshot.proxy.only_where_needed = is_first_stage;
    if !is_first_stage {
        let user = |number| User {
            aor: format!("u{number}@example.com").into_bytes().into(),
            ha1: Ha1s::default(),
            enabled: true,
        };
        snapshot.directory = Directory::empty(1).with_changes((0..USERS).map(user).map(DirectoryChange::PutUser));
    }
}

fn clusters(number: usize, plan: Plan) -> Arc<Clusters> {
    let own = number.checked_sub(A);
    let stage = own.map_or("first", |own| NAMES[own]);
    let registrar = strowger_registrar::Policy { nat: Nat::Never, ..strowger_registrar::Policy::default() };
    Arc::new(Clusters {
        own,
        stage: stage.into(),
        partition: partition(plan.now),
        previous: plan.before.map(partition),
        routes: (A..=C).map(route).collect(),
        loads: Arc::new(SlotLoads::default()),
        registrar,
    })
}

/// A route to the only member of a cluster.
fn route(member: usize) -> Route {
    let uri = format!("sip:{}", ADDRESSES[member]);
    let name = NAMES[member - A].to_owned();
    let target = Target::new(&name, uri.as_bytes());
    let config = SetConfig {
        name,
        policy: Policy::Hash,
        key: Key::Aor,
        failover_timeout: Some(Duration::from_millis(500)),
        ..SetConfig::default()
    };
    let set = Set::new(config, vec![Member::new(target)]).expect("a sound set");
    let place = RouteTarget::at(uri.as_bytes(), address(member));
    Route::of_domain(b"*", Action::balance(Arc::new(set), vec![place], Stateless::Never))
}
