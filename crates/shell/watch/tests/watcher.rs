//! Watchers of one zone in virtual time: servers die and recover, the name server fails, and two watchers see
//! different states.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use strowger_balancer::Probe;
use strowger_foundation::Timestamp;
use strowger_watch::{
    Entry, Event, Kind, Output, Plan, RecordData, RecordSet, RecordSetContents, Server, Transport, Update, Watcher,
    ZoneError,
};

const NAME: &str = "_sip._udp.example.com";
const TTL_S: u32 = 30;
/// Round-trip time of the name server and of servers.
const ROUND_TRIP: Duration = Duration::from_millis(10);
/// Interval of regular reads.
const REFRESH: Duration = Duration::from_secs(60);

fn data(number: u8) -> RecordData {
    RecordData::Service { priority: 0, weight: 1, port: 5060, target: format!("s{number}.example.com") }
}

fn plan(count: u8) -> Plan {
    let server = |number| Server {
        transport: Transport::Udp,
        address: (IpAddr::V4(Ipv4Addr::new(192, 0, 2, number)), 5060).into(),
    };
    let entries =
        (1..=count).map(|number| Entry { data: data(number), server: Some(usize::from(number) - 1) }).collect();
    Plan {
        servers: (1..=count).map(server).collect(),
        sets: vec![RecordSet { name: NAME.to_owned(), kind: Kind::Srv, ttl_s: TTL_S, entries }],
        probe: Probe {
            interval: Duration::from_secs(1),
            timeout: Duration::from_millis(500),
            down: 2,
            up: 2,
            ..Probe::default()
        },
        refresh: REFRESH,
        retry: Duration::from_secs(5),
    }
}

/// An operation in progress.
enum Answer {
    Probe(usize, Option<u16>),
    /// A pending read, answered with the zone's contents at that time.
    Read(usize),
    Update(Update),
    Timeout,
}

/// A zone, servers, and their watchers.
struct World {
    now: Timestamp,
    zone: Vec<RecordData>,
    ttl_s: u32,
    /// Number of changes of the zone.
    changes: usize,
    is_silent: bool,
    refuses: bool,
    /// By watcher and server.
    alive: Vec<Vec<bool>>,
    watchers: Vec<Watcher>,
    events: Vec<(usize, Event)>,
    queue: BTreeMap<(Timestamp, u64), (usize, Answer)>,
    sequence: u64,
}

impl World {
    fn new(watchers: usize, servers: u8, zone: &[RecordData]) -> World {
        let now = Timestamp::from_millis(1_000);
        let mut world = World {
            now,
            zone: zone.to_vec(),
            ttl_s: TTL_S,
            changes: 0,
            is_silent: false,
            refuses: false,
            alive: vec![vec![true; usize::from(servers)]; watchers],
            watchers: Vec::new(),
            events: Vec::new(),
            queue: BTreeMap::new(),
            sequence: 0,
        };
        world.watchers = (0..watchers).map(|_| Watcher::new(plan(servers), now)).collect();
        (0..watchers).for_each(|index| world.drain(index));
        world
    }

    /// Sets whether a server is alive, for all watchers.
    fn set(&mut self, server: usize, is_alive: bool) {
        self.alive.iter_mut().for_each(|seen| seen[server] = is_alive);
    }

    fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(entry) = self.queue.first_entry().filter(|entry| entry.key().0 <= end) {
            let ((at, _), (index, answer)) = entry.remove_entry();
            self.now = at;
            self.answer(index, answer);
            self.drain(index);
        }
        self.now = end;
    }

    fn answer(&mut self, index: usize, answer: Answer) {
        let (now, silent) = (self.now, self.is_silent);
        match answer {
            Answer::Probe(server, status) => self.watchers[index].handle_probe(now, server, status),
            Answer::Read(set) => {
                let found = RecordSetContents {
                    records: self.zone.clone(),
                    ttl_s: if self.zone.is_empty() { 0 } else { self.ttl_s },
                };
                self.watchers[index].handle_read(now, set, if silent { Err(ZoneError::Timeout) } else { Ok(found) });
            }
            Answer::Update(update) => {
                let outcome = if silent { Err(ZoneError::Timeout) } else { self.update(&update) };
                self.watchers[index].handle_update(now, update.set, outcome);
            }
            Answer::Timeout => self.watchers[index].handle_timeout(now),
        }
    }

    /// Updates the zone as in RFC 2136.
    fn update(&mut self, update: &Update) -> Result<(), ZoneError> {
        if self.refuses {
            return Err(ZoneError::Refused("REFUSED".to_owned()));
        }
        let sorted = |records: &[RecordData]| {
            let mut shown: Vec<String> = records.iter().map(ToString::to_string).collect();
            shown.sort();
            shown
        };
        if sorted(&update.expected) != sorted(&self.zone) {
            return Err(ZoneError::Conflict);
        }
        self.zone.retain(|data| !update.remove.contains(data));
        for data in &update.add {
            if !self.zone.contains(data) {
                self.zone.push(data.clone());
            }
            self.ttl_s = TTL_S;
        }
        self.changes += 1;
        assert!(!self.zone.is_empty(), "a zone always has a server");
        Ok(())
    }

    fn drain(&mut self, index: usize) {
        while let Some(output) = self.watchers[index].poll_output() {
            match output {
                Output::Event(event) => self.events.push((index, event)),
                Output::Probe(server) if self.alive[index][server] => {
                    self.push(self.now + ROUND_TRIP, index, Answer::Probe(server, Some(200)));
                }
                Output::Probe(server) => {
                    self.push(self.now + Duration::from_millis(500), index, Answer::Probe(server, None));
                }
                Output::Read(set) => self.push(self.now + ROUND_TRIP, index, Answer::Read(set)),
                Output::Update(update) => self.push(self.now + ROUND_TRIP, index, Answer::Update(update)),
            }
        }
        if let Some(at) = self.watchers[index].poll_timeout() {
            self.push(at.max(self.now), index, Answer::Timeout);
        }
    }

    fn push(&mut self, at: Timestamp, index: usize, answer: Answer) {
        self.sequence += 1;
        // Only the earliest timeout of a watcher matters.
        if matches!(answer, Answer::Timeout) {
            self.queue.retain(|_, (of, other)| *of != index || !matches!(other, Answer::Timeout));
        }
        self.queue.insert((at, self.sequence), (index, answer));
    }

    fn has(&self, number: u8) -> bool {
        self.zone.contains(&data(number))
    }

    fn count(&self, is_it: impl Fn(&Event) -> bool) -> usize {
        self.events.iter().filter(|(_, event)| is_it(event)).count()
    }
}

const LONG: Duration = Duration::from_secs(10);

#[test]
fn a_dead_servers_record_is_removed_and_later_restored() {
    let mut world = World::new(1, 2, &[data(1), data(2)]);
    world.run_for(LONG);
    assert_eq!(world.changes, 0, "nothing was to be changed");
    assert!(world.watchers[0].is_settled());
    world.set(0, false);
    // Worst case: it has just answered. One interval, a second failed probe, the timeout of the last, and the name
    // server.
    world.run_for(Duration::from_millis(1_000 + 1_000 + 500 + 20 + 10));
    assert!(!world.has(1) && world.has(2), "{:?}", world.zone);
    world.run_for(REFRESH * 3);
    assert_eq!(world.changes, 1);
    world.set(0, true);
    world.run_for(Duration::from_millis(2_040));
    assert!(world.has(1) && world.has(2), "{:?}", world.zone);
    assert_eq!((world.changes, world.ttl_s), (2, TTL_S));
    assert_eq!(world.count(|event| matches!(event, Event::Down { .. })), 1);
    assert_eq!(world.count(|event| matches!(event, Event::Up { .. })), 3, "two of them at the start");
}

#[test]
fn one_lost_answer_changes_nothing() {
    let mut world = World::new(1, 2, &[data(1), data(2)]);
    world.run_for(LONG);
    world.set(0, false);
    world.run_for(Duration::from_millis(1_100));
    world.set(0, true);
    world.run_for(LONG);
    assert_eq!((world.changes, world.count(|event| matches!(event, Event::Down { .. }))), (0, 0));
}

#[test]
fn the_zone_is_corrected_at_startup() {
    let other = |priority, number: u8| RecordData::Service {
        priority,
        weight: 7,
        port: 5060,
        target: format!("s{number}.example.com"),
    };
    let foreign =
        RecordData::Service { priority: 9, weight: 0, port: 5060, target: "elsewhere.example.net".to_owned() };
    // The first record has another priority, the second server is dead, the third record is missing, and one record
    // is foreign.
    let mut world = World::new(1, 3, &[other(5, 1), other(0, 2), foreign.clone()]);
    world.ttl_s = 3_600;
    world.set(1, false);
    world.run_for(LONG);
    let shown: Vec<String> = world.zone.iter().map(ToString::to_string).collect();
    assert!(world.has(1) && world.has(3) && world.zone.contains(&foreign), "{shown:?}");
    assert_eq!(world.zone.len(), 3, "{shown:?}");
    assert_eq!(world.ttl_s, TTL_S);
}

#[test]
fn empty_zone_is_filled() {
    let mut world = World::new(1, 2, &[]);
    world.run_for(LONG);
    assert!(world.has(1) && world.has(2));
}

#[test]
fn last_server_stays_and_is_reported_once() {
    let mut world = World::new(1, 2, &[data(1), data(2)]);
    world.run_for(LONG);
    world.set(0, false);
    world.run_for(LONG);
    world.set(1, false);
    world.run_for(REFRESH * 5);
    assert!(world.has(2) && !world.has(1));
    let last_kept = |event: &Event| matches!(event, Event::LastKept { .. });
    assert_eq!(world.count(last_kept), 1);
    // Once the other server is back, the dead one can be removed.
    world.set(0, true);
    world.run_for(LONG);
    assert!(world.has(1) && !world.has(2));
    world.set(0, false);
    world.run_for(LONG);
    assert!(world.has(1));
    assert_eq!(world.count(last_kept), 2, "it is another time");
}

#[test]
fn one_record_stays_if_all_die() {
    // The watcher itself may be cut off.
    let mut world = World::new(1, 3, &[data(1), data(2), data(3)]);
    world.run_for(LONG);
    (0..3).for_each(|server| world.set(server, false));
    world.run_for(LONG);
    let left = world.zone.len();
    assert!(left >= 1, "{:?}", world.zone);
    (0..3).for_each(|server| world.set(server, true));
    world.run_for(LONG);
    assert_eq!(world.zone.len(), 3);
}

#[test]
fn silent_name_server_is_reported_once_and_retried() {
    let mut world = World::new(1, 2, &[data(1), data(2)]);
    world.run_for(LONG);
    world.is_silent = true;
    world.set(0, false);
    world.run_for(Duration::from_secs(100));
    assert!(world.has(1));
    assert_eq!(world.count(|event| matches!(event, Event::Unreachable)), 1);
    world.is_silent = false;
    world.run_for(Duration::from_secs(6));
    assert!(!world.has(1));
    assert_eq!(world.count(|event| matches!(event, Event::Reachable)), 1);
}

#[test]
fn refusal_is_reported_once_and_retried() {
    let mut world = World::new(1, 2, &[data(1), data(2)]);
    world.run_for(LONG);
    world.refuses = true;
    world.set(0, false);
    world.run_for(Duration::from_secs(100));
    assert_eq!(world.count(|event| matches!(event, Event::Refused { .. })), 1);
    world.refuses = false;
    world.run_for(Duration::from_secs(6));
    assert!(!world.has(1));
}

#[test]
fn two_watchers_make_each_change_once() {
    let mut world = World::new(2, 3, &[data(1), data(2), data(3)]);
    world.run_for(LONG);
    for server in 0..3 {
        let before = world.changes;
        world.set(server, false);
        world.run_for(LONG);
        assert_eq!(world.changes, before + 1, "one of the two has made it");
        world.set(server, true);
        world.run_for(LONG);
        assert_eq!(world.changes, before + 2);
    }
    assert_eq!(world.count(|event| matches!(event, Event::PutBack { .. })), 0);
}

#[test]
fn two_watchers_missing_different_servers_keep_both() {
    // Each would remove the server that the other has left.
    let mut world = World::new(2, 2, &[data(1), data(2)]);
    world.run_for(LONG);
    world.alive[0][0] = false;
    world.alive[1][1] = false;
    world.run_for(REFRESH * 10);
    assert!(!world.zone.is_empty());
    // Servers that either watcher reaches are in the zone, and the watchers do not fight about it.
    let before = world.changes;
    world.run_for(REFRESH * 10);
    assert_eq!(world.changes, before);
    assert!(world.has(1) && world.has(2), "{:?}", world.zone);
}

#[test]
fn a_server_missed_by_one_watcher_only_is_restored() {
    let mut world = World::new(2, 2, &[data(1), data(2)]);
    world.run_for(LONG);
    world.alive[0][0] = false;
    world.run_for(LONG);
    assert!(!world.has(1), "the one that misses it has removed it");
    world.run_for(REFRESH * 10);
    assert!(world.has(1), "the one that reaches it has put it back");
    assert_eq!(world.changes, 2, "and they do not fight about it");
    let told: Vec<&(usize, Event)> =
        world.events.iter().filter(|(_, event)| matches!(event, Event::PutBack { .. })).collect();
    assert!(matches!(told.as_slice(), [(0, _)]), "{told:?}");
}

/// Servers fail and recover independently for each of two or three watchers, and the name server is down at times.
/// The zone is never empty ([`World::update`] checks), and is right once all watchers agree for a while.
#[test]
fn the_zone_converges_after_any_events() {
    for seed in 0..60_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut below = |bound: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % bound
        };
        let (watchers, servers) = (2 + below(2), 2 + below(3));
        let servers = u8::try_from(servers).expect("few");
        let mut world = World::new(usize::try_from(watchers).expect("few"), servers, &[data(1)]);
        for _ in 0..40 {
            let (watcher, server) = (below(watchers), below(servers.into()));
            let seen = &mut world.alive[usize::try_from(watcher).expect("few")][usize::try_from(server).expect("few")];
            *seen = !*seen;
            world.is_silent = below(8) == 0;
            world.run_for(Duration::from_millis(below(5_000)));
        }
        world.is_silent = false;
        (0..usize::from(servers)).for_each(|server| world.set(server, true));
        world.run_for(REFRESH * 3);
        assert_eq!(world.zone.len(), usize::from(servers), "seed {seed}: {:?}", world.zone);
        world.set(0, false);
        world.run_for(REFRESH * 3);
        assert!(!world.has(1) && world.zone.len() == usize::from(servers) - 1, "seed {seed}: {:?}", world.zone);
        let changes = world.changes;
        world.run_for(REFRESH * 10);
        assert_eq!(world.changes, changes, "seed {seed}: they fight");
    }
}
