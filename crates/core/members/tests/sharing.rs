//! Members, their location tables and a failing engine, in virtual time. In the end every member must find what was
//! confirmed.

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use strowger_foundation::Timestamp;
use strowger_members::model::Engine;
use strowger_members::{Kind, Limits, Member, Output, Position, Reply, Request};
use strowger_registrar::{Locations, MemberId, Record, Version};
use support::Random;

/// Maximum delay of a request and of a disk write, in ms.
const SLOWEST_MS: u64 = 40;
const SLOWEST_DISK_MS: u64 = 200;

struct Node {
    id: MemberId,
    member: Member,
    locations: Locations,
    /// Requests in flight, with the time when they reach the engine.
    asked: Vec<(Timestamp, Request)>,
    /// Unconfirmed records, with what each acknowledges.
    staged: BTreeMap<u64, (Vec<u8>, Acked)>,
    /// Records confirmed by the engine, with the time when the disk has them too.
    confirmed: Vec<(Timestamp, u64)>,
    is_warm: bool,
}

/// What a client was told.
#[derive(Clone, Copy, Debug)]
struct Acked {
    user: u8,
    cseq: u32,
    is_bound: bool,
}

/// A fault injected between the members and their engine, or into the handling of outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    /// Clients are answered before the engine has the change.
    AcknowledgesEarly,
    /// Log entries are skipped now and then.
    SkipsEntries,
    /// The same, and the next entry hides the gap.
    HidesGaps,
    /// Removals of other members are ignored.
    DropsRemovals,
    /// Members do not see that the engine has lost data.
    HidesForgetting,
    /// Only part of the table is announced.
    AnnouncesHalf,
    /// Only part of the state is read.
    ReadsHalf,
    /// A process continues with its predecessor's numbers.
    RepeatsNumbers,
    /// The engine keeps the change written last, not the newest.
    KeepsLast,
    /// Changes are applied regardless of their version.
    TakesAll,
}

struct World {
    bug: Option<Bug>,
    now: Timestamp,
    engine: Engine,
    is_frozen: bool,
    nodes: Vec<Node>,
    /// Newest CSeq of each user, requested and acknowledged.
    asked: BTreeMap<u8, u32>,
    acked: BTreeMap<u8, Acked>,
    batches: u64,
    random: Random,
}

impl Node {
    fn new(number: u16, now: Timestamp) -> Self {
        let (id, locations, incarnation) = support::locations(number, now);
        let member = Member::new(id, incarnation, String::new(), Limits::default());
        let (asked, staged, confirmed) = (Vec::new(), BTreeMap::new(), Vec::new());
        Self { id, member, locations, asked, staged, confirmed, is_warm: false }
    }

    fn uris(&self, now: Timestamp, user: u8) -> Vec<String> {
        support::uris(&self.locations, now, user)
    }

    /// Applies a change of another member, or of this one's earlier process.
    fn take(&mut self, now: Timestamp, record: &[u8], bug: Option<Bug>) {
        let record = Record::parse(record).expect("a record");
        if bug == Some(Bug::DropsRemovals) && !record.has_bindings() {
            return;
        }
        if bug == Some(Bug::TakesAll) {
            // As if the address were unknown.
            let mut forgotten = Vec::new();
            self.locations.remove_address(now, record.aor(), &mut forgotten);
        }
        let is_restamped = self.locations.put_remote(now, &record);
        self.tell(now, &record, is_restamped);
    }

    /// Applies staged changes.
    fn put(&mut self, now: Timestamp, record: &[u8]) {
        let record = Record::parse(record).expect("a record");
        let is_restamped = self.locations.put(now, &record, None);
        self.tell(now, &record, is_restamped);
    }

    fn tell(&mut self, now: Timestamp, record: &Record<'_>, is_restamped: bool) {
        if is_restamped {
            let mut known = Vec::new();
            self.locations.write_current_changes(now, record, &mut known);
            self.member.handle_changes(now, None, vec![known.into()]);
        }
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let now = Timestamp::from_millis(1_000);
        let nodes = (1..=3).map(|number| Node::new(number, now)).collect();
        let (asked, acked) = (BTreeMap::new(), BTreeMap::new());
        let engine = Engine::default();
        let mut world = Self {
            bug: None,
            now,
            engine,
            is_frozen: false,
            nodes,
            asked,
            acked,
            batches: 0,
            random: Random::new(seed),
        };
        world.nodes.iter_mut().for_each(|node| node.member.handle_timeout(now));
        world
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random.draw(below)
    }

    fn register(&mut self, number: usize, user: u8, is_bound: bool) {
        let cseq = self.asked.entry(user).and_modify(|cseq| *cseq += 1).or_insert(1).to_owned();
        let (now, node) = (self.now, &mut self.nodes[number]);
        if !node.is_warm || node.staged.values().any(|(_, acked)| acked.user == user) {
            return;
        }
        if let Some(record) = support::stage(&node.locations, now, user, cseq, is_bound) {
            self.batches += 1;
            let acked = Acked { user, cseq, is_bound };
            if self.bug == Some(Bug::AcknowledgesEarly) {
                self.acked.insert(user, acked);
            }
            node.staged.insert(self.batches, (record.clone(), acked));
            node.member.handle_changes(now, Some(self.batches), vec![record.into()]);
        }
    }

    /// Advances time.
    fn pass(&mut self, millis: u64) {
        let end = self.now + Duration::from_millis(millis);
        while self.now < end {
            self.now = (self.now + Duration::from_millis(5)).min(end);
            for number in 0..self.nodes.len() {
                self.run_engine(number);
                self.run_node(number);
            }
        }
    }

    fn run_engine(&mut self, number: usize) {
        if self.is_frozen {
            return;
        }
        let now = self.now;
        let due: Vec<Request> =
            self.nodes[number].asked.extract_if(.., |(at, _)| *at <= now).map(|(_, request)| request).collect();
        for request in due {
            // With few failures a member rarely reads the log ends and detects losses late.
            let one_of = if self.bug == Some(Bug::RepeatsNumbers) { 2_000 } else { 20 };
            let (fate, kind) = (self.draw(one_of), request.kind());
            let node = &mut self.nodes[number];
            let failed = Reply::Failed { request: kind, why: "lost".to_owned() };
            // The request or its answer is lost.
            let reply = if fate == 0 {
                failed
            } else {
                let mut shown = Vec::new();
                let reply = self.engine.execute(node.id, &request, &mut |record| shown.push(record.to_vec()));
                if self.bug == Some(Bug::ReadsHalf) {
                    shown.truncate(shown.len() / 2);
                }
                shown.iter().for_each(|record| node.take(now, record, self.bug));
                if fate == 1 { failed } else { spoil(self.bug, &node.member, reply) }
            };
            node.member.handle_reply(now, reply);
        }
    }

    fn run_node(&mut self, number: usize) {
        let now = self.now;
        if self.nodes[number].member.poll_timeout() <= now {
            self.nodes[number].member.handle_timeout(now);
        }
        self.run_disk(number);
        while let Some(output) = self.nodes[number].member.poll_output() {
            let [delay, disk] = [SLOWEST_MS, SLOWEST_DISK_MS].map(|most| Duration::from_millis(self.draw(most)));
            let node = &mut self.nodes[number];
            match output {
                // A follow request waits for new entries, so that members need not poll.
                Output::Request(request) => node.asked.push((now + delay, request)),
                Output::Apply(records) => records.iter().for_each(|record| node.take(now, record, self.bug)),
                Output::Confirm(id) => node.confirmed.push((now + disk, id)),
                Output::Refuse(id) => drop(node.staged.remove(&id)),
                Output::Synced => {
                    node.is_warm = true;
                    node.locations.complete_source();
                }
                Output::ReadTable(from) => {
                    let is_wanted = |version: Version| node.member.must_announce(version);
                    let mut records = Vec::new();
                    let next = node.locations.copy_changes(now, from, &is_wanted, &mut records);
                    if self.bug == Some(Bug::AnnouncesHalf) {
                        records.truncate(records.len() / 2);
                    }
                    node.member.handle_table_part(now, records, next);
                }
            }
        }
    }

    /// Applies and acknowledges what both engine and disk have.
    fn run_disk(&mut self, number: usize) {
        let (now, node) = (self.now, &mut self.nodes[number]);
        let due: Vec<u64> = node.confirmed.extract_if(.., |(at, _)| *at <= now).map(|(_, id)| id).collect();
        for (record, acked) in due.into_iter().filter_map(|id| node.staged.remove(&id)).collect::<Vec<_>>() {
            node.put(now, &record);
            let newest = self.acked.entry(acked.user).or_insert(acked);
            if newest.cseq < acked.cseq {
                *newest = acked;
            }
        }
    }

    /// Ends a process and starts another of the same member.
    fn restart(&mut self, number: usize) {
        let now = if self.bug == Some(Bug::RepeatsNumbers) { Timestamp::from_millis(1_000) } else { self.now };
        self.nodes[number] = Node::new(u16::try_from(number).expect("few") + 1, now);
        self.nodes[number].member.handle_timeout(now);
    }

    /// Returns a user with the wrong state. Both the last acknowledged change and later unanswered ones are right.
    fn contradiction(&self) -> Option<String> {
        self.acked.iter().find_map(|(user, acked)| {
            let found: Vec<_> = self.nodes.iter().map(|node| node.uris(self.now, *user)).collect();
            let is_certain = self.asked[user] == acked.cseq;
            let is_right = !is_certain || found[0].len() == usize::from(acked.is_bound);
            let is_one = found.iter().all(|one| *one == found[0]);
            (!is_right || !is_one).then(|| format!("user {user}: {acked:?}, found {found:?}"))
        })
    }

    fn check(&self) {
        assert_eq!(self.contradiction(), None);
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Register { node, user, is_bound } => self.register(node, user, is_bound),
            Step::Restart { node } => self.restart(node),
            // What the replica lacks is lost with every member that has read it, so no member dies until everything
            // is announced again.
            Step::FailOver => {
                self.pass(1_000);
                self.engine.fail_over();
                // A process that ends at this point leaves the announcement to the others.
                if self.draw(2) == 0 {
                    let node = usize::try_from(self.draw(3)).expect("few");
                    self.restart(node);
                }
                // Some clients come at that moment, others when the new process is ready.
                for wait_ms in [1_000, 4_000] {
                    for user in 0..3 {
                        let (node, is_bound) = (usize::try_from(self.draw(3)).expect("few"), self.draw(2) == 0);
                        self.register(node, user, is_bound);
                    }
                    self.pass(wait_ms);
                }
                self.engine.replicate();
            }
            Step::CutLogs => self.engine.cut_logs(1),
            Step::Freeze { millis } => {
                self.is_frozen = true;
                self.pass(millis);
                self.is_frozen = false;
            }
            Step::Pass { millis } => self.pass(millis),
        }
    }

    /// Draws one of the steps of [`step`] with the world's own generator.
    fn any_step(&mut self) -> Step {
        let (kind, node) = (self.draw(16), usize::try_from(self.draw(3)).expect("few"));
        match kind {
            0..8 => {
                let (user, is_bound) = (u8::try_from(self.draw(3)).expect("few"), self.draw(2) == 0);
                Step::Register { node, user, is_bound }
            }
            8 => Step::Restart { node },
            9 => Step::FailOver,
            10 => Step::CutLogs,
            11 => Step::Freeze { millis: 100 + self.draw(2_900) },
            _ => Step::Pass { millis: 1 + self.draw(300) },
        }
    }
}

/// Applies the injected fault to a reply.
fn spoil(bug: Option<Bug>, member: &Member, reply: Reply) -> Reply {
    match (bug, reply) {
        (Some(bug @ (Bug::SkipsEntries | Bug::HidesGaps)), Reply::Entries(logs)) => {
            let spoilt = logs.into_iter().map(|(member, mut entries)| {
                if entries.first().is_some_and(|entry| entry.position.number % 4 == 0) {
                    entries.remove(0);
                }
                if bug == Bug::HidesGaps {
                    entries.iter_mut().for_each(|entry| entry.after = Position::BEGIN);
                }
                (member, entries)
            });
            Reply::Entries(spoilt.collect())
        }
        // As if the logs still ended where they were read up to.
        (Some(Bug::HidesForgetting), Reply::Ends(ends)) if member.status().is_synced => {
            let far = Position { incarnation: u64::MAX / 2, number: 0 };
            let own = |id: &MemberId| member.status().others.iter().all(|other| other.member != *id);
            Reply::Ends(ends.into_iter().filter(|(id, _)| !own(id)).map(|(id, _)| (id, far)).collect())
        }
        (_, reply) => reply,
    }
}

#[derive(Clone, Debug)]
enum Step {
    Register { node: usize, user: u8, is_bound: bool },
    Restart { node: usize },
    FailOver,
    CutLogs,
    Freeze { millis: u64 },
    Pass { millis: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..3_usize, 0..6_u8, any::<bool>()).prop_map(|(node, user, is_bound)| Step::Register { node, user, is_bound }),
        1 => (0..3_usize).prop_map(|node| Step::Restart { node }),
        1 => Just(Step::FailOver),
        1 => Just(Step::CutLogs),
        1 => (100..3_000_u64).prop_map(|millis| Step::Freeze { millis }),
        4 => (1..300_u64).prop_map(|millis| Step::Pass { millis }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn confirmed_changes_reach_every_member(seed in any::<u64>(), steps in prop::collection::vec(step(), 1..60)) {
        let mut world = World::new(seed);
        world.pass(1_000);
        for step in &steps {
            world.step(step);
        }
        world.pass(20_000);
        world.check();
    }
}

#[test]
fn changes_the_engine_lost_are_resent() {
    let mut world = World::new(5);
    world.pass(2_000);
    world.engine.replicate();
    world.register(0, 1, true);
    world.register(1, 2, true);
    world.pass(500);
    world.engine.fail_over();
    world.pass(3_000);
    world.restart(2);
    world.pass(3_000);
    world.check();
    assert_eq!(world.acked.len(), 2);
    assert!(world.nodes[..2].iter().all(|node| node.member.status().full_announcements > 0));
    assert_eq!(world.nodes[2].uris(world.now, 1).len(), 1);
}

#[test]
fn changes_lost_by_the_engine_before_disk_are_resent() {
    let mut world = World::new(7);
    world.pass(2_000);
    world.register(0, 1, true);
    while world.nodes[0].confirmed.is_empty() {
        world.pass(5);
    }
    // The disk is slow, and through other changes the member sees at once that the engine has lost this one.
    world.nodes[0].confirmed[0].0 = world.now + Duration::from_millis(1_900);
    world.engine.fail_over();
    world.register(0, 2, true);
    world.pass(10_000);
    assert_eq!(world.acked.len(), 2);
    world.check();
}

#[test]
fn a_reply_of_an_abandoned_engine_confirms_nothing() {
    let own = MemberId::new(1).expect("a number");
    let mut member = Member::new(own, 5, String::new(), Limits::default());
    let mut now = Timestamp::from_millis(1_000);
    let answer = |member: &mut Member, now: &mut Timestamp, reply: Reply| {
        *now += Duration::from_millis(600);
        member.handle_reply(*now, reply);
        std::iter::from_fn(|| member.poll_output()).collect::<Vec<_>>()
    };
    member.handle_timeout(now);
    for reply in [Reply::Ends(Vec::new()), Reply::AllRead, Reply::Heartbeats(Vec::new()), Reply::Heartbeats(Vec::new())]
    {
        answer(&mut member, &mut now, reply);
    }
    member.handle_changes(now, Some(1), vec![b"a change".as_slice().into()]);
    let asked = std::iter::from_fn(|| member.poll_output()).collect::<Vec<_>>();
    let entry = asked.iter().find_map(|output| match output {
        Output::Request(Request::Append(entry)) => Some(entry.clone()),
        _ => None,
    });
    let entry = entry.expect("it is to be appended");
    // Meanwhile the request goes to another engine, whose log ends where this entry begins.
    answer(&mut member, &mut now, Reply::Failed { request: Kind::Heartbeat, why: "silent".to_owned() });
    answer(&mut member, &mut now, Reply::Ends(Vec::new()));
    let outputs = answer(&mut member, &mut now, Reply::Appended(entry.position));
    assert!(!outputs.contains(&Output::Confirm(1)), "the first one has it: {outputs:?}");
    assert!(
        outputs.contains(&Output::Request(Request::Append(entry.clone()))),
        "it is appended to the other one: {outputs:?}"
    );
    assert!(answer(&mut member, &mut now, Reply::Appended(entry.position)).contains(&Output::Confirm(1)));
}

#[test]
fn another_member_resends_a_dead_members_lost_changes() {
    let mut world = World::new(11);
    world.pass(2_000);
    world.register(1, 1, true);
    world.pass(5_000);
    // Its process ends and its log is lost, while all others find their logs unchanged.
    world.restart(1);
    world.engine.forget(MemberId::new(2).expect("a number"));
    world.pass(5_000);
    world.restart(1);
    world.pass(5_000);
    world.check();
    assert_eq!(world.nodes[1].uris(world.now, 1).len(), 1);
}

#[test]
fn with_a_frozen_engine_lookups_work_and_nothing_is_confirmed() {
    let mut world = World::new(9);
    world.pass(2_000);
    world.register(0, 1, true);
    world.pass(500);
    world.is_frozen = true;
    world.register(0, 2, true);
    world.pass(60_000);
    assert!(world.nodes.iter().all(|node| node.uris(world.now, 1).len() == 1));
    assert!(!world.acked.contains_key(&2));
    let is_alive =
        |world: &World, number: u16| world.nodes[0].member.is_alive(MemberId::new(number).expect("a number"));
    assert!(is_alive(&world, 2) && is_alive(&world, 3), "nobody knows better");
    world.is_frozen = false;
    world.pass(100);
    assert!(is_alive(&world, 2) && is_alive(&world, 3), "they could say nothing meanwhile");
    world.pass(3_000);
    assert!(world.acked.contains_key(&2));
    world.check();
}

/// Whether any of several runs detects the fault.
fn is_caught(bug: Bug) -> bool {
    (0..400).any(|seed| {
        let mut world = World::new(seed * 2_654_435_761);
        world.bug = Some(bug);
        world.engine.set_last_write_wins(bug == Bug::KeepsLast);
        world.pass(1_000);
        for _ in 0..40 {
            let step = world.any_step();
            world.step(&step);
        }
        world.pass(20_000);
        world.contradiction().is_some() || world.nodes.iter().any(|node| !node.is_warm)
    })
}

#[test]
fn planted_faults_are_caught() {
    let all = [
        Bug::AcknowledgesEarly,
        Bug::SkipsEntries,
        Bug::HidesGaps,
        Bug::DropsRemovals,
        Bug::HidesForgetting,
        Bug::AnnouncesHalf,
        Bug::ReadsHalf,
        Bug::RepeatsNumbers,
        Bug::KeepsLast,
        Bug::TakesAll,
    ];
    let missed: Vec<_> = all.into_iter().filter(|bug| !is_caught(*bug)).collect();
    assert!(missed.is_empty(), "nobody notices {missed:?}");
}
