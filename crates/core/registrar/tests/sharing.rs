//! Members that share registrations converge, in whatever order they learn of changes.

mod common;

use common::{at_s, over, read, register, source};
use proptest::prelude::*;
use strowger_foundation::{ConnId, ShardId, Timestamp, Transport};
use strowger_registrar::record::merge;
use strowger_registrar::{Cursor, Locations, MemberId, Policy, Record, Source, Version};

const BEGAN: u64 = 1_700_000_000_000_000_000;
const AOR: &[u8] = b"alice@example.com";

struct Server {
    locations: Locations,
    /// How far its clock is ahead, in seconds.
    ahead_s: u64,
}

impl Server {
    fn new(number: u16, ahead_s: u64) -> Self {
        let listeners = ["192.0.2.100:5060", "192.0.2.100:5060"].map(|address| address.parse().expect("an address"));
        let listeners = [Transport::Udp, Transport::Tcp].into_iter().zip(listeners);
        let locations = Locations::new(2, 7).with_listeners(listeners);
        let locations = locations.with_member(MemberId::new(number).expect("a number"), Policy::default().expires_max);
        locations.set_store_origin(BEGAN + ahead_s * 1_000_000_000);
        let others = (1..10).filter_map(MemberId::new);
        locations.set_live_members(others.map(|member| (member, ([192, 0, 2, 200], member.get()).into())).collect());
        Self { locations, ahead_s }
    }

    /// Applies a REGISTER and returns its changes as the other members receive them; empty if it is refused.
    fn register(&self, now: Timestamp, from: &Source, request: &[u8]) -> Vec<Vec<u8>> {
        let mut record = Vec::new();
        let staged =
            read(request, |update| self.locations.stage(now, AOR, &Policy::default(), from, &update?, &mut record));
        if staged.is_err() || record.is_empty() {
            return Vec::new();
        }
        let restamped = self.put(now, &record);
        [record].into_iter().chain(restamped).collect()
    }

    /// Applies a change that was staged here; returns the changes that the other members must learn.
    fn put(&self, now: Timestamp, record: &[u8]) -> Option<Vec<u8>> {
        let record = Record::parse(record).expect("a record");
        assert!(record.is_change_set());
        self.known(now, &record, self.locations.put(now, &record, None))
    }

    /// The same for a change of another member.
    fn take(&self, now: Timestamp, record: &[u8]) -> Option<Vec<u8>> {
        let record = Record::parse(record).expect("a record");
        self.known(now, &record, self.locations.put_remote(now, &record))
    }

    fn known(&self, now: Timestamp, record: &Record<'_>, is_restamped: bool) -> Option<Vec<u8>> {
        self.locations.check_invariants();
        is_restamped.then(|| {
            let mut known = Vec::new();
            self.locations.write_current_changes(now, record, &mut known);
            known
        })
    }

    /// Returns the URIs, except those whose expiry is within the clock difference.
    fn uris(&self, now: Timestamp) -> Vec<String> {
        let mut targets = Vec::new();
        self.locations.lookup(now, AOR, &mut targets);
        let mut uris: Vec<_> =
            targets.iter().map(|target| String::from_utf8(target.uri.to_vec()).expect("ASCII")).collect();
        uris.sort();
        uris
    }

    fn changes(&self, now: Timestamp) -> Vec<Box<[u8]>> {
        let (mut cursor, mut all) = (Some(Cursor::default()), Vec::new());
        while let Some(from) = cursor {
            cursor = self.locations.copy_changes(now, from, &|_| true, &mut all);
        }
        all
    }
}

#[derive(Clone, Debug)]
enum Step {
    Register {
        server: usize,
        call_id: u8,
        cseq: u32,
        contact: u8,
        expires_s: u32,
    },
    RemoveAll {
        server: usize,
        call_id: u8,
        cseq: u32,
    },
    /// Delivers the newest change that a member has not seen, or any other.
    Hear {
        server: usize,
        which: usize,
    },
    Pass {
        seconds: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let server = 0..3_usize;
    prop_oneof![
        4 => (server.clone(), 0..3_u8, 1..6_u32, 0..3_u8, prop_oneof![Just(0), 600..3_600_u32])
            .prop_map(|(server, call_id, cseq, contact, expires_s)| Step::Register { server, call_id, cseq, contact, expires_s }),
        1 => (server.clone(), 0..3_u8, 1..6_u32).prop_map(|(server, call_id, cseq)| Step::RemoveAll { server, call_id, cseq }),
        4 => (server, any::<usize>()).prop_map(|(server, which)| Step::Hear { server, which }),
        1 => (1..30_u64).prop_map(|seconds| Step::Pass { seconds }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]
    #[test]
    fn all_servers_converge(steps in prop::collection::vec(step(), 1..40), ahead in [0..200_u64, 0..200_u64, 0..200_u64], order in any::<u64>()) {
        let servers: Vec<_> = (1..).zip(ahead).map(|(number, ahead_s)| Server::new(number, ahead_s)).collect();
        let (mut told, mut now): (Vec<Vec<u8>>, _) = (Vec::new(), at_s(100));
        for step in steps {
            match step {
                Step::Register { server, call_id, cseq, contact, expires_s } => {
                    let contact = format!("Contact: <sip:alice@192.0.2.{contact}>;expires={expires_s}");
                    let request = register(&call_id.to_string(), cseq, &contact);
                    told.extend(servers[server].register(now, &source("192.0.2.1:5060"), &request));
                }
                Step::RemoveAll { server, call_id, cseq } => {
                    let request = register(&call_id.to_string(), cseq, "Contact: *|Expires: 0");
                    told.extend(servers[server].register(now, &source("192.0.2.1:5060"), &request));
                }
                Step::Hear { server, which } if !told.is_empty() => {
                    let record = told[which % told.len()].clone();
                    told.extend(servers[server].take(now, &record));
                }
                Step::Hear { .. } => {}
                Step::Pass { seconds } => now += std::time::Duration::from_secs(seconds),
            }
        }
        // All changes reach all members, each in its own order, as long as new ones result.
        let mut heard = [0; 3];
        for _ in 0..50 {
            for (number, server) in servers.iter().enumerate() {
                let mut news: Vec<_> = told[heard[number]..].to_vec();
                heard[number] = told.len();
                news.sort_by_key(|record| record.iter().fold(order ^ number as u64, |hash, byte| hash.wrapping_mul(31).wrapping_add((*byte).into())));
                for record in news {
                    told.extend(server.take(now, &record));
                }
            }
        }
        prop_assert!(heard.iter().all(|heard| *heard == told.len()), "they go on telling each other");
        let all: Vec<_> = servers.iter().map(|server| server.uris(now)).collect();
        prop_assert!(all.iter().all(|one| *one == all[0]), "{all:?}");
        // A joining member that copies one member's state has the same, and so does a store that got all changes.
        let joining = Server::new(9, servers[0].ahead_s);
        servers[0].changes(now).iter().for_each(|record| drop(joining.take(now, record)));
        prop_assert_eq!(joining.uris(now), all[0].clone());
        let mut kept: Vec<u8> = Vec::new();
        for record in &told {
            let mut merged = Vec::new();
            merge((!kept.is_empty()).then_some(&kept[..]), record, &mut merged);
            kept = merged;
        }
        if !kept.is_empty() {
            let restored = Server::new(8, servers[0].ahead_s);
            restored.locations.restore(now, &Policy::default(), &Record::parse(&kept).expect("a record"));
            prop_assert_eq!(restored.uris(now), all[0].clone());
        }
    }
}

#[test]
fn a_removal_received_before_its_binding_keeps_it_away() {
    let (one, two) = (Server::new(1, 0), Server::new(2, 0));
    let now = at_s(10);
    let added = one.register(now, &source("192.0.2.1:5060"), &register("a", 1, "Contact: <sip:alice@192.0.2.1>"));
    let removed =
        one.register(now, &source("192.0.2.1:5060"), &register("a", 2, "Contact: <sip:alice@192.0.2.1>;expires=0"));
    two.take(now, &removed[0]);
    two.take(now, &added[0]);
    assert!(two.uris(now).is_empty());
    // The removed REGISTER may still reach another member.
    assert!(
        two.register(now, &source("192.0.2.1:5060"), &register("a", 1, "Contact: <sip:alice@192.0.2.1>")).is_empty()
    );
    assert!(
        !two.register(now, &source("192.0.2.1:5060"), &register("a", 3, "Contact: <sip:alice@192.0.2.1>")).is_empty()
    );
}

#[test]
fn a_register_repeated_at_another_server_is_accepted() {
    let (one, two) = (Server::new(1, 0), Server::new(2, 0));
    let (now, from) = (at_s(10), source("192.0.2.1:5060"));
    let bind = |cseq| register("a", cseq, "Contact: <sip:alice@192.0.2.1>");
    let remove = |cseq| register("a", cseq, "Contact: <sip:alice@192.0.2.1>;expires=0");
    two.take(now, &one.register(now, &from, &bind(2))[0]);
    assert!(two.register(now, &from, &remove(2)).is_empty(), "it is another REGISTER of this number");
    assert!(!two.register(now, &from, &bind(2)).is_empty(), "the first server may have died before it answered");
    assert!(two.register(now, &from, &bind(2)).is_empty(), "its own it answers again without that");
    assert!(two.register(now, &from, &bind(1)).is_empty(), "what is older");
    assert_eq!(two.uris(now).len(), 1);
    two.take(now, &one.register(now, &from, &remove(3))[0]);
    assert!(two.register(now, &from, &bind(3)).is_empty(), "what was removed stays away");
    assert!(!two.register(now, &from, &remove(3)).is_empty());
    assert!(two.uris(now).is_empty());
}

#[test]
fn a_binding_reached_only_by_another_server_is_not_used() {
    let (one, two) = (Server::new(1, 0), Server::new(2, 0));
    let now = at_s(10);
    let connection = ConnId::new(0, 1, 0);
    let mut behind = over(connection, "198.51.100.7:40000");
    behind.via_sent_by_matches = false;
    let record = one.register(now, &behind, &register("a", 1, "Contact: <sip:alice@10.0.0.1>"));
    two.take(now, &record[0]);
    two.locations.set_live_members(Vec::new());
    assert!(two.uris(now).is_empty(), "the other one is dead");
    let address = "192.0.2.101:5060".parse().expect("an address");
    two.locations.set_live_members(vec![(MemberId::new(1).expect("a number"), address)]);
    let mut targets = Vec::new();
    two.locations.lookup(now, AOR, &mut targets);
    assert_eq!((targets.len(), targets[0].holder), (1, Some(address)));
    let mut own = Vec::new();
    one.locations.lookup(now, AOR, &mut own);
    assert_eq!(own[0].holder, None);
    // A connection with the same ID is a different one here.
    for shard in 0..2 {
        assert_eq!(two.locations.disconnect(now, ShardId(shard), connection, |_| {}), 0);
    }
    // When it closes there, all members learn of it.
    let mut told = Vec::new();
    for shard in 0..2 {
        one.locations.disconnect(now, ShardId(shard), connection, |record| told.push(record.to_vec()));
    }
    assert_eq!(told.len(), 1);
    two.take(now, &told[0]);
    assert!(two.uris(now).is_empty());
}

#[test]
fn servers_sharing_an_address_both_use_its_nat_binding() {
    let (one, two) = (Server::new(1, 0), Server::new(2, 0));
    let elsewhere = [(Transport::Udp, "192.0.2.102:5060".parse().expect("an address"))];
    let three = Locations::new(2, 7).with_listeners(elsewhere);
    let three = Server {
        locations: three.with_member(MemberId::new(3).expect("a number"), Policy::default().expires_max),
        ahead_s: 0,
    };
    three.locations.set_store_origin(BEGAN);
    let now = at_s(10);
    let behind = Source { via_sent_by_matches: false, ..source("198.51.100.7:40000") };
    let record = one.register(now, &behind, &register("a", 1, "Contact: <sip:alice@10.0.0.1>"));
    let targets = |server: &Server| {
        let mut targets = Vec::new();
        server.take(now, &record[0]);
        server.locations.set_live_members(Vec::new());
        server.locations.lookup(now, AOR, &mut targets);
        targets
    };
    let found = targets(&two);
    assert_eq!(
        (found.len(), found[0].holder, found[0].flow.peer),
        (1, None, behind.flow.peer),
        "the other one is dead"
    );
    assert!(targets(&three).is_empty(), "who has another address is let in by no translation");
}

#[test]
fn a_lone_server_has_no_versions() {
    let alone = Locations::new(1, 7);
    let mut record = Vec::new();
    let request = register("a", 1, "Contact: <sip:alice@192.0.2.1>");
    read(&request, |update| {
        let update = update.expect("valid");
        alone.stage(at_s(1), AOR, &Policy::default(), &source("192.0.2.1:5060"), &update, &mut record).expect("staged");
    });
    let record = Record::parse(&record).expect("a record");
    assert!(!record.is_change_set() && record.versions().all(|version| version == Version::NONE));
}
