//! Records given to the store restore the same table after a restart.

mod common;
#[path = "common/history.rs"]
mod history;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use common::{AOR, Table, at_s, over, read, register, source};
use history::{Step, aor, step};
use proptest::prelude::*;
use strowger_foundation::{ConnId, Flow, ListenerId, ShardId, Timestamp, Transport};
use strowger_registrar::model::Model;
use strowger_registrar::record::merge;
use strowger_registrar::{ContactTarget, Locations, Policy, Record, Update, UpdateCounts, UpdateKind};

/// Store time at the start of the first process, in nanoseconds.
const BEGAN: u64 = 1_700_000_000_000_000_000;

fn listeners() -> [(Transport, SocketAddr); 2] {
    let address: SocketAddr = "192.0.2.100:5060".parse().expect("an address");
    [(Transport::Udp, address), (Transport::Tcp, address)]
}

/// A store that merges its records, like a journal and its checkpoint.
#[derive(Default)]
struct Store(BTreeMap<Vec<u8>, Vec<u8>>);

impl Store {
    fn keep(&mut self, bytes: &[u8]) {
        let record = Record::parse(bytes).expect("a record");
        let mut merged = Vec::new();
        if merge(self.0.get(record.aor()).map(Vec::as_slice), bytes, &mut merged) {
            assert!(!Record::parse(&merged).expect("a record").is_refresh(), "a refresh has a state before it");
            self.0.insert(record.aor().to_vec(), merged);
        } else {
            self.0.remove(record.aor());
        }
    }

    /// Returns the table of a process that starts at `now` of the previous one, and restores at `passed` after its
    /// own zero.
    fn restart(&self, now: Timestamp, stripes: u16, seed: u64, passed: Timestamp) -> Locations {
        let locations = Locations::new(stripes, seed).with_listeners(listeners()).with_pending_source();
        locations.set_store_origin(BEGAN + now.as_nanos() - passed.as_nanos());
        for bytes in self.0.values() {
            locations.restore(passed, &Policy::default(), &Record::parse(bytes).expect("a record"));
        }
        locations.complete_source();
        locations.check_invariants();
        locations
    }
}

fn stage(
    locations: &Locations,
    now: Timestamp,
    aor: &[u8],
    policy: &Policy,
    from: &strowger_registrar::Source,
    request: &[u8],
) -> Result<Vec<u8>, strowger_registrar::Refusal> {
    let mut record = Vec::new();
    read(request, |update| locations.stage(now, aor, policy, from, &update?, &mut record)).map(|_| record)
}

/// Returns a target as it is after a restart, when connections are closed.
fn after_restart(target: &ContactTarget) -> Option<ContactTarget> {
    let Flow { listener, transport, reopen, peer, connection, .. } = target.flow;
    let lives = connection.is_none() || reopen;
    lives.then(|| ContactTarget { flow: Flow::new(listener, transport, peer), ..target.clone() })
}

proptest! {
    #[test]
    fn a_restart_restores_stored_bindings(seed in any::<u64>(), stripes in 1u16..5, steps in prop::collection::vec(step(), 1..60)) {
        let policy = Policy { max_contacts: 4, ..Policy::default() };
        let locations = Locations::new(3, seed).with_listeners(listeners());
        locations.set_store_origin(BEGAN);
        let (mut model, mut store, mut now) = (Model::default(), Store::default(), at_s(100));
        for step in steps {
            match step {
                Step::Register { user, call_id, cseq, headers, port, via_matches, slot } => {
                    let peer = format!("192.0.2.1:{port}");
                    let mut from = slot.map_or_else(|| source(&peer), |slot| over(ConnId::new(0, slot, 0), &peer));
                    from.via_sent_by_matches = via_matches;
                    let request = register(&call_id.to_string(), cseq, &headers);
                    let before = targets(&locations, now, user);
                    let staged = stage(&locations, now, &aor(user), &policy, &from, &request);
                    assert_eq!(targets(&locations, now, user), before, "nobody sees what is staged");
                    read(&request, |update| {
                        let Ok(update) = update else { return };
                        let applied = model.apply(now, &aor(user), &policy, &from, &update);
                        assert_eq!(staged.as_ref().err(), applied.as_ref().err());
                    });
                    let Ok(record) = staged else { continue };
                    if !record.is_empty() {
                        store.keep(&record);
                        locations.put(now, &Record::parse(&record).expect("a record"), None);
                    }
                }
                Step::Disconnect { slot } => {
                    let connection = ConnId::new(0, slot, 0);
                    for shard in 0..3 {
                        locations.disconnect(now, ShardId(shard), connection, |_| {});
                    }
                    model.disconnect(connection);
                }
                Step::Pass { millis, limit } => {
                    now = Timestamp::from_millis(now.as_millis() + millis);
                    for shard in 0..3 {
                        locations.expire(now, ShardId(shard), limit);
                    }
                }
            }
            let passed = at_s(7);
            let restarted = store.restart(now, stripes, seed, passed);
            let mut all = 0;
            for user in 0..4 {
                let kept: Vec<_> = model.lookup(now, &aor(user)).iter().filter_map(after_restart).collect();
                assert_eq!(targets(&restarted, passed, user), kept);
                all += kept.len();
            }
            assert_eq!(restarted.len(), all, "what has expired is left out");
        }
    }

    #[test]
    fn garbage_records_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(record) = Record::parse(&bytes) {
            Locations::new(1, 1).restore(Timestamp::ZERO, &Policy::default(), &record);
        }
        merge(Some(&bytes), &bytes, &mut Vec::new());
    }
}

fn targets(locations: &Locations, now: Timestamp, user: u8) -> Vec<ContactTarget> {
    let mut targets = Vec::new();
    locations.lookup(now, &aor(user), &mut targets);
    targets
}

/// A table, and the record of a REGISTER for three contacts.
fn three() -> (Table, Vec<u8>) {
    let table = Table::new();
    let contacts = "Contact: <sip:a@192.0.2.1>, <sip:b@192.0.2.1>;q=0.5, <sip:c@192.0.2.1>;+sip.instance=\"<urn:x:1>\"";
    let record = stage(&table.locations, at_s(1), AOR, &table.policy, &table.source, &register("x", 1, contacts));
    (table, record.expect("taken"))
}

#[test]
fn cut_records_are_rejected() {
    let (_, record) = three();
    assert!(Record::parse(&record).is_ok());
    for length in 0..record.len() {
        assert!(Record::parse(&record[..length]).is_err(), "cut at {length}");
    }
    assert!(Record::parse(&[record.as_slice(), &[0]].concat()).is_err(), "something is left over");
    for at in 0..record.len() {
        for bit in 0..8 {
            let mut flipped = record.clone();
            flipped[at] ^= 1 << bit;
            if let Ok(record) = Record::parse(&flipped) {
                Locations::new(1, 1).restore(Timestamp::ZERO, &Policy::default(), &record);
            }
        }
    }
}

#[test]
fn a_plain_refresh_has_a_short_record() {
    let (table, record) = three();
    table.locations.put(at_s(1), &Record::parse(&record).expect("a record"), None);
    let refresh = |cseq: u32, call_id: &str, contact: &str| {
        stage(&table.locations, at_s(2), AOR, &table.policy, &table.source, &register(call_id, cseq, contact))
            .expect("taken")
    };
    let short = refresh(2, "x", "Contact: <sip:a@192.0.2.1>;expires=600");
    let parsed = Record::parse(&short).expect("a record");
    assert!(parsed.is_refresh() && short.len() <= 5 + AOR.len() + 20, "{} bytes", short.len());
    assert_eq!(parsed.expires_ms(), 602_000);
    for (call_id, contact) in [("y", "<sip:a@192.0.2.1>"), ("x", "<sip:a@192.0.2.1>;q=0.1"), ("x", "<sip:d@192.0.2.1>")]
    {
        let whole = refresh(3, call_id, &format!("Contact: {contact}"));
        assert!(!Record::parse(&whole).expect("a record").is_refresh(), "{call_id} {contact}");
    }
    assert!(refresh(4, "x", "").is_empty(), "nothing is asked for");
}

#[test]
fn removals_of_expired_bindings_are_still_written() {
    let (table, record) = three();
    table.locations.put(at_s(1), &Record::parse(&record).expect("a record"), None);
    let mut store = Store::default();
    store.keep(&record);
    // The store has a refresh that it stored only after the binding had expired in the table.
    let later = at_s(1 + 3600 - 30);
    let contact = "Contact: <sip:a@192.0.2.1>;expires=600";
    let late = stage(&table.locations, later, AOR, &table.policy, &table.source, &register("x", 2, contact));
    let late = late.expect("taken");
    assert!(Record::parse(&late).expect("a record").is_refresh());
    store.keep(&late);
    let after = at_s(3700);
    while table.locations.expire(after, table.shard(), 10) > 0 {}
    table.locations.put(after, &Record::parse(&late).expect("a record"), None);
    assert!(table.uris(after).is_empty());
    for (cseq, removal) in [(3, "Contact: <sip:a@192.0.2.1>;expires=0"), (4, "Contact: *|Expires: 0")] {
        let mut store = Store(store.0.clone());
        let gone = stage(&table.locations, after, AOR, &table.policy, &table.source, &register("x", cseq, removal));
        store.keep(&gone.expect("taken"));
        assert!(store.restart(after, 1, 7, at_s(1)).is_empty(), "{removal}");
    }
    // The same together with a refresh.
    table.register(after, "x", 5, "Contact: <sip:b@192.0.2.1>").expect("taken");
    let both = "Contact: <sip:b@192.0.2.1>, <sip:a@192.0.2.1>;expires=0";
    let both = stage(&table.locations, after, AOR, &table.policy, &table.source, &register("x", 6, both));
    assert!(!Record::parse(&both.expect("taken")).expect("a record").is_refresh());
}

#[test]
fn records_are_bounded() {
    let long = |length: usize| format!("Contact: <sip:a@192.0.2.1;x={}>", "y".repeat(length));
    let read = |length| read(&register("x", 1, &long(length)), |update| update.map(|_| ()));
    assert!(read(1900).is_ok());
    assert_eq!(read(2048), Err(strowger_registrar::Refusal::BadRequest("Contact Too Long")));
}

#[test]
fn bindings_gone_during_a_store_write_stay_gone() {
    let table = Table::new();
    let (old, new) = (ConnId::new(0, 1, 0), ConnId::new(0, 2, 0));
    let flow = |cseq: u32, connection: ConnId, id: u32| {
        let contact = format!("Supported: outbound|Contact: <sip:a@10.0.0.1>;+sip.instance=\"<urn:x:1>\";reg-id={id}");
        let from = over(connection, "192.0.2.1:40000");
        stage(&table.locations, at_s(1), AOR, &table.policy, &from, &register("x", cseq, &contact)).expect("taken")
    };
    let first = flow(1, old, 1);
    table.locations.put(at_s(1), &Record::parse(&first).expect("a record"), None);
    let second = flow(2, new, 2);
    table.locations.disconnect(at_s(1), table.shard(), old, |_| {});
    table.locations.put(at_s(1), &Record::parse(&second).expect("a record"), None);
    let flows: Vec<_> = table.lookup(at_s(1)).iter().map(|target| target.flow.connection).collect();
    assert_eq!(flows, [Some(new)], "the first flow is closed");
    // A contact registered over a connection that has closed meanwhile is not bound at all.
    let third = flow(3, old, 3);
    table.locations.put(at_s(1), &Record::parse(&third).expect("a record"), Some(old));
    assert_eq!(table.lookup(at_s(1)).len(), 1);
    table.locations.check_invariants();
}

#[test]
fn a_temporary_gruu_survives_a_restart_and_an_ended_one_does_not() {
    let (table, record) = three();
    let key = |locations: &Locations, now: Timestamp| {
        let keys = std::cell::RefCell::new(Vec::new());
        let seal = |key: &strowger_registrar::GruuKey| {
            keys.borrow_mut().push(*key);
            strowger_registrar::GruuText::from_slice(b"x")
        };
        locations.write_contacts(now, AOR, Some(&seal), &mut Vec::new());
        keys.into_inner().pop().expect("one device")
    };
    table.locations.put(at_s(1), &Record::parse(&record).expect("a record"), None);
    let ended = key(&table.locations, at_s(1));
    // Another Call-ID invalidates the earlier ones.
    let again = "Contact: <sip:c@192.0.2.1>;+sip.instance=\"<urn:x:1>\"";
    let whole = stage(&table.locations, at_s(2), AOR, &table.policy, &table.source, &register("z", 1, again));
    let whole = whole.expect("taken");
    table.locations.put(at_s(2), &Record::parse(&whole).expect("a record"), None);
    let good = key(&table.locations, at_s(2));
    assert_ne!(ended, good);

    let restarted = Locations::new(4, 7).with_listeners([listeners()[0]]);
    restarted.set_store_origin(0);
    restarted.restore(at_s(3), &table.policy, &Record::parse(&whole).expect("a record"));
    let reached = |key| {
        let mut targets = Vec::new();
        restarted.lookup_temporary(at_s(3), key, &mut targets).map(|_| targets.len())
    };
    assert_eq!((reached(&good), reached(&ended)), (Some(1), None));
}

#[test]
fn a_moved_listener_is_found_by_transport() {
    let (table, _) = three();
    let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
    let locations = Locations::new(1, 7).with_listeners([(Transport::Udp, address("192.0.2.100:5060"))]);
    let record =
        stage(&locations, at_s(1), AOR, &table.policy, &table.source, &register("x", 1, "Contact: <sip:a@192.0.2.1>"));
    let record = record.expect("taken");
    let listener_after = |listeners: &[(Transport, &str)]| {
        let listeners = listeners.iter().map(|(transport, text)| (*transport, address(text)));
        let restarted = Locations::new(1, 7).with_listeners(listeners);
        restarted.restore(at_s(1), &table.policy, &Record::parse(&record).expect("a record"));
        let mut targets = Vec::new();
        restarted.lookup(at_s(1), AOR, &mut targets);
        targets.first().map(|target| target.flow.listener)
    };
    let (tcp, udp) = (Transport::Tcp, Transport::Udp);
    let v6 = "[2001:db8::1]:5060";
    assert_eq!(listener_after(&[(udp, v6), (tcp, "192.0.2.100:5060"), (udp, "192.0.2.100:5060")]), Some(ListenerId(2)));
    assert_eq!(listener_after(&[(udp, v6), (udp, "192.0.2.7:5070")]), Some(ListenerId(1)), "of the same family");
    assert_eq!(listener_after(&[(tcp, "192.0.2.100:5060"), (udp, v6)]), Some(ListenerId(1)), "of the same transport");
    assert_eq!(listener_after(&[(tcp, "192.0.2.100:5060")]), None, "nothing could send to it");
}

#[test]
fn a_removed_listener_keeps_its_id_and_gets_no_restored_binding() {
    let (table, _) = three();
    let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
    let (first, second) = (address("192.0.2.7:5070"), address("192.0.2.100:5060"));
    let listeners = |is_open| [(Transport::Udp, first, true), (Transport::Udp, second, is_open)];
    let locations = Locations::new(1, 7);
    locations.set_listeners(listeners(true));
    let source =
        strowger_registrar::Source { flow: Flow { listener: ListenerId(1), ..table.source.flow }, ..table.source };
    let known = register("x", 1, "Contact: <sip:a@192.0.2.1>");
    let record = stage(&locations, at_s(1), AOR, &table.policy, &source, &known).expect("taken");
    let listener_after = |is_open| {
        let restarted = Locations::new(1, 7);
        restarted.set_listeners(listeners(true));
        restarted.set_listeners(listeners(is_open));
        restarted.restore(at_s(1), &table.policy, &Record::parse(&record).expect("a record"));
        let mut targets = Vec::new();
        restarted.lookup(at_s(1), AOR, &mut targets);
        targets.first().map(|target| target.flow.listener)
    };
    assert_eq!(listener_after(true), Some(ListenerId(1)));
    assert_eq!(listener_after(false), Some(ListenerId(0)));
    // What comes over a removed listener is stored with its address all the same.
    locations.set_listeners(listeners(false));
    let late = stage(&locations, at_s(1), AOR, &table.policy, &source, &known).expect("taken");
    assert_eq!(late, record);
}

#[test]
fn an_empty_update_stages_no_record() {
    let locations = Locations::new(1, 7).with_listeners(listeners());
    let from = source("192.0.2.1:5060");
    let known = register("1", 1, "Contact: <sip:a@192.0.2.1>");
    let record = stage(&locations, at_s(1), &aor(0), &Policy::default(), &from, &known).expect("a record");
    locations.put(at_s(1), &Record::parse(&record).expect("a record"), None);
    read(&register("1", 2, ""), |update| {
        let update = Update { kind: UpdateKind::Contacts(Default::default()), ..update.expect("well formed") };
        let mut record = b"of before".to_vec();
        let staged = locations.stage(at_s(2), &aor(0), &Policy::default(), &from, &update, &mut record);
        assert_eq!((staged, record.len()), (Ok(UpdateCounts::default()), 0));
    });
    assert_eq!(locations.len(), 1);
}
