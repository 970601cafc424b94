//! Members that forward to each other, with location tables, disks and a network that loses, repeats and delays
//! datagrams, in virtual time. In the end every member must find what was acknowledged.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use proptest::prelude::*;
use strowger_foundation::{TagKey, Timestamp};
use strowger_members::{PeerLimits, PeerOutput, Peers, PeersConfig, Process};
use strowger_message::Message;
use strowger_registrar::{Locations, MemberId, Record, Version};
use support::Random;

const NODES: usize = 3;
/// Maximum delay of a datagram, in ms.
const SLOWEST_MS: u64 = 40;

struct Node {
    id: MemberId,
    peers: Peers,
    locations: Locations,
    is_warm: bool,
    is_dead: bool,
    /// Nonce messages received, in order.
    uses: Vec<Vec<u8>>,
}

/// An injected fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    /// Datagrams are not retransmitted.
    NeverSendsAgain,
    /// Removals of other members are ignored.
    DropsRemovals,
    /// A full synchronization sends only part of the table.
    TellsHalf,
    /// The registrations of dead members are not announced.
    ForgetsTheDead,
    /// Full synchronizations send nothing.
    TellsNothing,
}

#[derive(Clone)]
struct Datagram {
    from: SocketAddr,
    to: usize,
    bytes: Vec<u8>,
}

struct World {
    bug: Option<Bug>,
    limits: PeerLimits,
    now: Timestamp,
    nodes: Vec<Node>,
    disks: Vec<Vec<Vec<u8>>>,
    has_disks: bool,
    network: Vec<(Timestamp, Datagram)>,
    /// All datagrams sent so far.
    sent: Vec<Datagram>,
    seen: BTreeSet<Vec<u8>>,
    is_perfect: bool,
    /// Pairs of nodes that cannot reach each other.
    cut: BTreeSet<(usize, usize)>,
    asked: BTreeMap<u8, u32>,
    /// Whether each user is bound, as last acknowledged to its client.
    acked: BTreeMap<u8, bool>,
    random: Random,
}

fn address(number: usize) -> SocketAddr {
    format!("192.0.2.{}:5064", number + 1).parse().expect("an address")
}

impl Node {
    fn new(number: usize, now: Timestamp, limits: PeerLimits) -> Self {
        let (id, locations, started_ms) = support::locations(u16::try_from(number).expect("few") + 1, now);
        let sip: SocketAddr = format!("192.0.2.{}:5060", number + 1).parse().expect("an address");
        let config = PeersConfig {
            process: Process { member: id, started_ms },
            address: sip,
            listen: address(number),
            peers: (0..NODES).filter(|other| *other != number).map(address).collect(),
            key: TagKey::new([7; 16]),
            limits,
        };
        Self { id, peers: Peers::new(now, config), locations, is_warm: false, is_dead: false, uses: Vec::new() }
    }

    fn uris(&self, now: Timestamp, user: u8) -> Vec<String> {
        support::uris(&self.locations, now, user)
    }

    fn take(&mut self, now: Timestamp, record: &[u8]) {
        let record = Record::parse(record).expect("a record");
        let is_restamped = self.locations.put_remote(now, &record);
        self.tell(now, &record, is_restamped);
    }

    fn tell(&mut self, now: Timestamp, record: &Record<'_>, is_restamped: bool) {
        if is_restamped {
            let mut known = Vec::new();
            self.locations.write_current_changes(now, record, &mut known);
            self.peers.handle_changes(now, &[known.into()]);
        }
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let now = Timestamp::from_millis(1_000);
        let limits = PeerLimits { changes: 4, bytes: 100_000 };
        let mut world = Self {
            bug: None,
            limits,
            now,
            nodes: (0..NODES).map(|number| Node::new(number, now, limits)).collect(),
            disks: vec![Vec::new(); NODES],
            has_disks: true,
            network: Vec::new(),
            sent: Vec::new(),
            seen: BTreeSet::new(),
            is_perfect: false,
            cut: BTreeSet::new(),
            asked: BTreeMap::new(),
            acked: BTreeMap::new(),
            random: Random::new(seed),
        };
        world.nodes.iter_mut().for_each(|node| node.peers.handle_loaded(now));
        world
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random.draw(below)
    }

    fn register(&mut self, number: usize, user: u8, is_bound: bool) {
        let cseq = self.asked.entry(user).and_modify(|cseq| *cseq += 1).or_insert(1).to_owned();
        let (now, node) = (self.now, &mut self.nodes[number]);
        if !node.is_warm || node.is_dead {
            return;
        }
        if let Some(record) = support::stage(&node.locations, now, user, cseq, is_bound) {
            self.disks[number].push(record.clone());
            let parsed = Record::parse(&record).expect("a record");
            let is_restamped = node.locations.put(now, &parsed, None);
            node.tell(now, &parsed, is_restamped);
            node.peers.handle_changes(now, &[record.clone().into()]);
            self.acked.insert(user, is_bound);
        }
    }

    fn pass(&mut self, millis: u64) {
        let end = self.now + Duration::from_millis(millis);
        while self.now < end {
            self.now = (self.now + Duration::from_millis(5)).min(end);
            self.deliver();
            (0..NODES).for_each(|number| self.run_node(number));
        }
    }

    fn deliver(&mut self) {
        let now = self.now;
        let due: Vec<_> = self.network.extract_if(.., |(at, _)| *at <= now).map(|(_, datagram)| datagram).collect();
        for Datagram { from, to, bytes } in due {
            if !self.nodes[to].is_dead {
                self.nodes[to].peers.handle_datagram(now, from, &bytes);
                // What it sends here does not answer what comes next.
                self.run_node(to);
            }
        }
    }

    fn send(&mut self, number: usize, to: SocketAddr, bytes: Vec<u8>) {
        let Some(to) = (0..NODES).find(|other| address(*other) == to) else { return };
        let datagram = Datagram { from: address(number), to, bytes };
        let is_again = !self.seen.insert(datagram.bytes.clone());
        self.sent.push(datagram.clone());
        let fate = if self.is_perfect { 9 } else { self.draw(10) };
        let is_lost =
            fate == 0 || self.cut.contains(&(number, to)) || self.bug == Some(Bug::NeverSendsAgain) && is_again;
        for _ in 0..if is_lost {
            0
        } else if fate == 1 {
            2
        } else {
            1
        } {
            let at = self.now + Duration::from_millis(1 + self.draw(SLOWEST_MS));
            self.network.push((at, datagram.clone()));
        }
    }

    fn run_node(&mut self, number: usize) {
        let (now, bug) = (self.now, self.bug);
        if self.nodes[number].is_dead {
            return;
        }
        if self.nodes[number].peers.poll_timeout() <= now {
            self.nodes[number].peers.handle_timeout(now);
        }
        while let Some(output) = self.nodes[number].peers.poll_output() {
            let node = &mut self.nodes[number];
            match output {
                PeerOutput::Send { to, bytes } => self.send(number, to, bytes),
                PeerOutput::Apply(records) => {
                    let (uses, records): (Vec<_>, Vec<_>) = records.into_iter().partition(|one| one.starts_with(b"N"));
                    node.uses.extend(uses.into_iter().map(Vec::from));
                    let binds = |record: &[u8]| Record::parse(record).is_ok_and(|record| record.has_bindings());
                    let taken = records.iter().filter(|record| bug != Some(Bug::DropsRemovals) || binds(record));
                    taken.for_each(|record| node.take(now, record));
                }
                PeerOutput::NoncesAcknowledged { .. } => {}
                PeerOutput::Synced => {
                    node.is_warm = true;
                    node.locations.complete_source();
                }
                PeerOutput::ReadTable { peer, from } => {
                    let own = node.id;
                    let is_wanted = |version: Version| match bug {
                        Some(Bug::ForgetsTheDead) => version.member() == Some(own),
                        Some(Bug::TellsNothing) => false,
                        _ => node.peers.must_announce(now, peer, version),
                    };
                    let mut records = Vec::new();
                    let next = node.locations.copy_changes(now, from, &is_wanted, &mut records);
                    if bug == Some(Bug::TellsHalf) {
                        records.truncate(records.len() / 2);
                    }
                    node.peers.handle_table_part(now, peer, &records, next);
                }
            }
        }
    }

    /// Ends a process and starts another of the same member.
    fn restart(&mut self, number: usize) {
        let now = self.now;
        let mut node = Node::new(number, now, self.limits);
        if self.has_disks {
            self.disks[number].iter().for_each(|record| node.take(now, record));
        }
        node.peers.handle_loaded(now);
        self.nodes[number] = node;
    }

    /// All members run and no datagram is lost.
    fn recover(&mut self) {
        self.cut.clear();
        for number in 0..NODES {
            if self.nodes[number].is_dead {
                self.restart(number);
            }
        }
        self.pass(60_000);
    }

    /// Returns a user whose state differs from what its client was told, or between members.
    fn contradiction(&self) -> Option<String> {
        self.acked.iter().find_map(|(user, is_bound)| {
            let found: Vec<_> = self.nodes.iter().map(|node| node.uris(self.now, *user)).collect();
            let is_right = !self.has_disks || found[0].len() == usize::from(*is_bound);
            let is_one = found.iter().all(|one| *one == found[0]);
            (!is_right || !is_one).then(|| format!("user {user}: bound {is_bound}, found {found:?}"))
        })
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Register { node, user, is_bound } => self.register(node, user, is_bound),
            Step::Restart { node } => self.restart(node),
            Step::Kill { node } => self.nodes[node].is_dead = true,
            Step::Cut { from, to } => drop(self.cut.insert((from, to))),
            Step::Heal => self.cut.clear(),
            Step::Pass { millis } => self.pass(millis),
        }
    }

    /// Draws one of the steps of [`step`] with the world's own generator.
    fn any_step(&mut self) -> Step {
        let (kind, node) = (self.draw(16), usize::try_from(self.draw(3)).expect("few"));
        match kind {
            0..8 => {
                Step::Register { node, user: u8::try_from(self.draw(8)).expect("few"), is_bound: self.draw(2) == 0 }
            }
            8 => Step::Restart { node },
            9 => Step::Kill { node },
            10 => Step::Cut { from: node, to: usize::try_from(self.draw(3)).expect("few") },
            11 => Step::Heal,
            _ => Step::Pass { millis: 1 + self.draw(3_000) },
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Register { node: usize, user: u8, is_bound: bool },
    Restart { node: usize },
    Kill { node: usize },
    Cut { from: usize, to: usize },
    Heal,
    Pass { millis: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..NODES, 0..12_u8, any::<bool>()).prop_map(|(node, user, is_bound)| Step::Register { node, user, is_bound }),
        1 => (0..NODES).prop_map(|node| Step::Restart { node }),
        1 => (0..NODES).prop_map(|node| Step::Kill { node }),
        1 => (0..NODES, 0..NODES).prop_map(|(from, to)| Step::Cut { from, to }),
        1 => Just(Step::Heal),
        4 => (1..3_000_u64).prop_map(|millis| Step::Pass { millis }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn acknowledged_changes_reach_every_member(seed in any::<u64>(), steps in prop::collection::vec(step(), 1..60)) {
        let mut world = World::new(seed);
        world.pass(3_000);
        steps.iter().for_each(|step| world.step(step));
        world.recover();
        prop_assert_eq!(world.contradiction(), None);
        for node in &world.nodes {
            let status = node.peers.status(world.now);
            prop_assert!(node.is_warm && status.waiting == 0, "{:?}", status);
        }
    }

    /// Without disks the state may be older, but all members agree.
    #[test]
    fn members_agree_even_without_disks(seed in any::<u64>(), steps in prop::collection::vec(step(), 1..60)) {
        let mut world = World::new(seed);
        world.has_disks = false;
        world.pass(3_000);
        steps.iter().for_each(|step| world.step(step));
        world.recover();
        prop_assert_eq!(world.contradiction(), None);
    }
}

/// Whether any of several runs detects the fault.
fn is_caught(bug: Bug) -> bool {
    (0..100).any(|seed| {
        let mut world = World::new(seed * 2_654_435_761);
        world.bug = Some(bug);
        // A member with a disk announces everything again eventually.
        world.has_disks = bug != Bug::ForgetsTheDead;
        world.pass(3_000);
        for _ in 0..40 {
            let step = world.any_step();
            world.step(&step);
        }
        world.recover();
        world.contradiction().is_some() || world.nodes.iter().any(|node| !node.is_warm)
    })
}

#[test]
fn planted_faults_are_caught() {
    let all = [Bug::NeverSendsAgain, Bug::DropsRemovals, Bug::TellsHalf, Bug::ForgetsTheDead, Bug::TellsNothing];
    let missed: Vec<_> = all.into_iter().filter(|bug| !is_caught(*bug)).collect();
    assert!(missed.is_empty(), "nobody notices {missed:?}");
}

/// Three synchronized members without loss.
fn well() -> World {
    let mut world = World::new(3);
    world.is_perfect = true;
    world.pass(3_000);
    assert!(world.nodes.iter().all(|node| node.is_warm));
    world
}

fn taken_by(world: &World, number: usize) -> u64 {
    world.nodes[number].peers.status(world.now).others.iter().map(|other| other.read.number).sum()
}

#[test]
fn changes_are_forwarded_once_to_each_peer() {
    let mut world = well();
    world.sent.clear();
    world.register(0, 1, true);
    world.pass(2_000);
    let forwarded: Vec<_> = world.sent.iter().filter(|one| one.bytes.starts_with(b"REGISTER ")).collect();
    assert_eq!(forwarded.iter().map(|one| (one.from, one.to)).collect::<Vec<_>>(), [(address(0), 1), (address(0), 2)]);
    let text = String::from_utf8_lossy(&forwarded[0].bytes);
    for line in [
        "Max-Forwards: 0",
        "To: <sip:user1@example.com>",
        "Contact: <sip:user1@198.51.100.1>;expires=3600",
        "Content-Type: application/vnd.strowger.changes",
    ] {
        assert!(text.contains(&format!("\r\n{line}\r\n")), "{line} in {text}");
    }
    Message::parse(&forwarded[0].bytes).expect("a SIP message");
    assert!(world.nodes.iter().all(|node| node.uris(world.now, 1).len() == 1));
}

#[test]
fn replayed_datagrams_have_no_effect() {
    let mut world = well();
    world.register(0, 1, true);
    world.register(1, 2, true);
    world.pass(1_000);
    world.register(0, 1, false);
    world.pass(1_000);
    let before: Vec<u64> = (0..NODES).map(|number| taken_by(&world, number)).collect();
    // Each datagram is replayed to each member, including those it was not addressed to.
    for Datagram { from, bytes, .. } in world.sent.clone() {
        for to in 0..NODES {
            world.nodes[to].peers.handle_datagram(world.now, from, &bytes);
            world.run_node(to);
        }
    }
    assert_eq!((0..NODES).map(|number| taken_by(&world, number)).collect::<Vec<u64>>(), before);
    assert!(world.nodes.iter().all(|node| node.uris(world.now, 1).is_empty() && node.uris(world.now, 2).len() == 1));
}

#[test]
fn a_restarted_process_rejects_messages_for_the_old_one() {
    let mut world = well();
    world.register(0, 1, true);
    world.pass(1_000);
    let forwarded = world.sent.iter().find(|one| one.to == 1 && one.bytes.starts_with(b"REGISTER ")).cloned();
    let Datagram { from, bytes, .. } = forwarded.expect("it was forwarded");
    world.nodes[0].is_dead = true;
    world.nodes[2].is_dead = true;
    world.has_disks = false;
    world.restart(1);
    world.pass(3_000);
    world.nodes[1].peers.handle_datagram(world.now, from, &bytes);
    let answer = core::iter::from_fn(|| world.nodes[1].peers.poll_output()).last();
    assert!(matches!(answer, Some(PeerOutput::Send { bytes, .. }) if bytes.starts_with(b"SIP/2.0 403 ")));
    assert!(world.nodes[1].uris(world.now, 1).is_empty());
}

#[test]
fn an_altered_message_is_rejected() {
    let mut world = well();
    world.register(0, 1, true);
    world.sent.clear();
    world.run_node(0);
    let forwarded = world.sent.iter().find(|one| one.to == 1).cloned().expect("it was forwarded");
    let text = String::from_utf8_lossy(&forwarded.bytes);
    let sealed = text.find("Strowger-Member").expect("the header field");
    for at in (0..8).chain(sealed..forwarded.bytes.len()) {
        let mut bytes = forwarded.bytes.clone();
        bytes[at] ^= 4;
        world.nodes[1].peers.handle_datagram(world.now, forwarded.from, &bytes);
        while let Some(output) = world.nodes[1].peers.poll_output() {
            assert!(!matches!(output, PeerOutput::Apply(_)) || is_harmless(&forwarded.bytes, at), "byte {at}");
        }
    }
}

#[test]
fn truncation_is_rejected() {
    let mut world = well();
    world.register(0, 1, true);
    world.sent.clear();
    world.run_node(0);
    let forwarded = world.sent.iter().find(|one| one.to == 1).cloned().expect("it was forwarded");
    for length in 0..forwarded.bytes.len() {
        world.nodes[1].peers.handle_datagram(world.now, forwarded.from, &forwarded.bytes[..length]);
        let mut outputs = core::iter::from_fn(|| world.nodes[1].peers.poll_output());
        assert!(!outputs.any(|output| matches!(output, PeerOutput::Apply(_))), "{length} bytes");
    }
}

/// Names of header fields and lengths may be written differently; the tag covers what matters.
fn is_harmless(message: &[u8], at: usize) -> bool {
    let end = message.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
    let mut lines = message[..end].iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    let begin = lines.rfind(|begin| *begin <= at).unwrap_or(0);
    at < end + 4 && !message[begin..].starts_with(b"Strowger-Member: ") && begin > 0
}

#[test]
fn a_dead_member_is_noticed_in_two_seconds_despite_replays() {
    let mut world = well();
    let alive =
        |world: &World| world.nodes[1].peers.alive(world.now).map(|(member, _)| member.get()).collect::<Vec<_>>();
    assert_eq!(alive(&world), [1, 3]);
    let answers: Vec<_> = world.sent.iter().filter(|one| one.to == 1 && one.from == address(0)).cloned().collect();
    world.nodes[0].is_dead = true;
    for _ in 0..20 {
        world.pass(100);
        for Datagram { from, bytes, .. } in &answers {
            world.nodes[1].peers.handle_datagram(world.now, *from, bytes);
        }
    }
    assert_eq!(alive(&world), [3]);
    world.restart(0);
    world.pass(1_000);
    assert_eq!(alive(&world), [1, 3]);
}

#[test]
fn members_are_added_and_removed_at_run_time() {
    let mut world = well();
    let now = world.now;
    // The third is not their peer anymore: it must report this, and gets no changes.
    for number in [0, 1] {
        world.nodes[number].peers.set_peers(now, &[address(1 - number)]);
    }
    (0..20).for_each(|user| world.register(0, user, true));
    world.pass(3_000);
    let conflict = world.nodes[0].peers.status(world.now).conflict;
    assert!(conflict.is_some_and(|why| why.contains("add it to cluster.peers here")));
    assert!((0..20).all(|user| world.nodes[1].uris(world.now, user).len() == 1));
    assert!((0..20).all(|user| world.nodes[2].uris(world.now, user).is_empty()));
    // A new process waits for peers that do not know it yet.
    world.restart(2);
    world.pass(5_000);
    assert!(!world.nodes[2].is_warm);
    let now = world.now;
    for number in [0, 1] {
        world.nodes[number].peers.set_peers(now, &[address(1 - number), address(2)]);
    }
    world.pass(3_000);
    assert!(world.nodes[2].is_warm);
    assert!((0..20).all(|user| world.nodes[2].uris(world.now, user).len() == 1));
    assert_eq!(world.nodes[0].peers.status(world.now).conflict, None);
}

#[test]
fn lone_member_serves_after_two_seconds() {
    let mut world = World::new(1);
    world.nodes[1].is_dead = true;
    world.nodes[2].is_dead = true;
    world.pass(1_900);
    assert!(!world.nodes[0].is_warm);
    world.pass(200);
    assert!(world.nodes[0].is_warm);
    let status = world.nodes[0].peers.status(world.now);
    assert!(status.failure.is_some_and(|why| why.contains("192.0.2.2:5064 sends no heartbeat")));
}

#[test]
fn dropped_changes_are_resent_when_the_peer_is_back() {
    let mut world = well();
    world.nodes[2].is_dead = true;
    (0..20).for_each(|user| world.register(0, user, true));
    world.pass(5_000);
    let peer = world.nodes[0].peers.status(world.now).peers[1].clone();
    assert!(peer.dropped > 0 && peer.waiting <= world.limits.changes, "{peer:?}");
    // Its process was only cut off.
    world.nodes[2].is_dead = false;
    world.pass(5_000);
    assert!((0..20).all(|user| world.nodes[2].uris(world.now, user).len() == 1));
}

#[test]
fn nonce_uses_arrive_in_order_and_at_most_once() {
    let mut world = World::new(11);
    world.pass(5_000);
    let message = |number: u32| format!("N{number}").into_bytes();
    for number in 0..200 {
        let now = world.now;
        world.nodes[0].peers.handle_nonce_uses(now, message(number));
        world.pass(u64::from(number % 7) * 5);
    }
    world.pass(20_000);
    let all: Vec<_> = (0..200).map(message).collect();
    assert_eq!(world.nodes[1].uses, all, "although every tenth datagram is lost");
    assert_eq!(world.nodes[2].uses, all);
    // A peer that is down misses what is sent meanwhile, and nothing else.
    world.nodes[2].is_dead = true;
    world.pass(3_000);
    let now = world.now;
    world.nodes[0].peers.handle_nonce_uses(now, message(200));
    world.pass(1_000);
    world.nodes[2].is_dead = false;
    world.pass(3_000);
    let now = world.now;
    world.nodes[0].peers.handle_nonce_uses(now, message(201));
    world.pass(20_000);
    assert_eq!(world.nodes[2].uses[200..], [message(201)]);
}
