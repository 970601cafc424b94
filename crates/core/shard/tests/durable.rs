//! When a pending REGISTER is answered, and what others see meanwhile.

mod support;

use std::time::Duration;

use strowger_foundation::{ConnId, Flow, ListenerId, Transport};
use strowger_registrar::{Durability, Record};
use strowger_shard::{Event, Input, MAX_PENDING_PER_AOR, MAX_PENDING_REGISTERS};
use support::{ALICE, BOB, BOB2, SentMessage, World, request};

fn world(durability: Durability) -> World {
    World::listening(&["UDP", "TCP"], |snapshot| snapshot.registrar.durability = durability)
}

fn through() -> World {
    world(Durability::WriteThrough)
}

/// A REGISTER of Bob.
fn register(cseq: u32, contact: &str) -> String {
    let contact = if contact.is_empty() { String::new() } else { format!("Contact: {contact}\r\n") };
    format!(
        "REGISTER sip:example.com SIP/2.0\r\nVia: SIP/2.0/UDP {BOB};branch=z9hG4bKr{cseq}\r\nMax-Forwards: 70\r\n\
         From: <sip:bob@example.com>;tag=r\r\nTo: <sip:bob@example.com>\r\nCall-ID: reg-bob\r\n\
         CSeq: {cseq} REGISTER\r\n{contact}Content-Length: 0\r\n\r\n"
    )
}

impl World {
    /// Reports the result for the oldest record.
    fn stored(&mut self, kept: bool) -> Vec<SentMessage> {
        let (ticket, record) = self.records.remove(0);
        let ticket = ticket.expect("somebody waits for it");
        self.give(Input::Stored { ticket, record, is_durable: kept })
    }

    fn contacts(&self) -> Vec<String> {
        let mut targets = Vec::new();
        self.locations.lookup(self.now, b"bob@example.com", &mut targets);
        targets.iter().map(|target| String::from_utf8_lossy(&target.uri).into_owned()).collect()
    }
}

fn statuses(sent: &[SentMessage]) -> Vec<u16> {
    sent.iter().map(SentMessage::status).collect()
}

//= rfc3261#10.3:visible-together
#[test]
fn response_and_binding_wait_for_the_store() {
    let mut world = through();
    let contact = format!("<sip:bob@{BOB}>");
    assert!(world.input(BOB, &register(1, &contact)).is_empty(), "nothing is promised yet");
    assert!(world.contacts().is_empty(), "and nobody sees it");
    assert!(world.input(BOB, &register(1, &contact)).is_empty(), "a retransmission waits too");
    assert_eq!((world.records.len(), world.shard.unanswered()), (1, 1));
    let call = world.input(ALICE, &request("INVITE", "sip:bob@example.com", "c", ""));
    assert!(statuses(&call).contains(&404), "{call:?}");

    let sent = world.stored(true);
    assert_eq!(statuses(&sent), [200]);
    assert_eq!(sent[0].header("Contact"), Some(&*format!("<sip:bob@{BOB}>;expires=3600")));
    assert_eq!((world.contacts().len(), world.shard.unanswered()), (1, 0));
    world.input(ALICE, &request("ACK", "sip:bob@example.com", "c", ""));
    world.settle();
}

//= rfc3261#10.3:failure-changes-nothing
#[test]
fn a_register_the_store_rejects_changes_nothing() {
    let mut world = through();
    world.input(BOB, &register(1, &format!("<sip:bob@{BOB}>")));
    world.stored(true);
    world.input(BOB, &register(2, "*"));
    world.input(BOB, &register(3, &format!("<sip:bob@{BOB2}>")));
    assert!(world.records.len() == 1, "one of an address at a time; * without Expires is refused");
    let sent = world.stored(false);
    assert_eq!(statuses(&sent), [503]);
    assert_eq!(sent[0].header("Retry-After"), Some("5"));
    assert_eq!(world.contacts(), [format!("sip:bob@{BOB}")]);
    // The same numbers may be used again, since the request had no effect.
    world.input(BOB, &register(4, &format!("<sip:bob@{BOB2}>")));
    assert_eq!(statuses(&world.stored(true)), [200]);
    assert_eq!(world.contacts().len(), 2);
    world.settle();
}

//= rfc3261#10.3:in-order
#[test]
fn registers_of_one_address_run_in_turn_and_see_the_one_before() {
    let mut world = through();
    for cseq in 1..=4 {
        assert!(world.input(BOB, &register(cseq, &format!("<sip:bob@192.0.2.{cseq}>"))).is_empty());
    }
    assert_eq!((world.records.len(), world.shard.unanswered()), (1, 4));
    assert_eq!(statuses(&world.stored(true)), [200]);
    // The store fails for the second only.
    assert_eq!(statuses(&world.stored(false)), [503]);
    assert_eq!(statuses(&world.stored(true)), [200]);
    let last = world.stored(true);
    assert_eq!(statuses(&last), [200]);
    assert_eq!(last[0].headers("Contact").count(), 3);
    assert_eq!(world.contacts().len(), 3);
    // A REGISTER without changes is answered in order, without the store.
    world.input(BOB, &register(5, "<sip:bob@192.0.2.1>;expires=0"));
    assert!(world.input(BOB, &register(6, "")).is_empty());
    let sent = world.stored(true);
    assert_eq!(statuses(&sent), [200, 200]);
    assert_eq!(sent[1].headers("Contact").count(), 2);
    assert!(world.records.is_empty());
    world.settle();
}

//= rfc3261#10.3:independent
#[test]
fn other_addresses_do_not_wait() {
    let mut world = through();
    world.input(BOB, &register(1, &format!("<sip:bob@{BOB}>")));
    let other = register(9, &format!("<sip:alice@{ALICE}>")).replace("bob@example", "alice@example");
    assert!(world.input(ALICE, &other).is_empty());
    assert_eq!(world.records.len(), 2);
    world.records.swap(0, 1);
    assert_eq!(statuses(&world.stored(true)), [200]);
    assert_eq!(statuses(&world.stored(true)), [200]);
    world.settle();
}

#[test]
fn a_slow_store_times_out_after_two_seconds_but_late_writes_count() {
    let mut world = through();
    world.input(BOB, &register(1, &format!("<sip:bob@{BOB}>")));
    world.wait(Duration::from_millis(500));
    world.input(BOB, &register(2, &format!("<sip:bob@{BOB2}>")));
    let sent = world.wait(Duration::from_secs(4));
    let told: Vec<_> = sent.iter().map(|(at, sent)| (*at, sent.status())).collect();
    assert_eq!(told, [(1500, 503), (2000, 503)]);
    assert!(world.contacts().is_empty());
    assert_eq!(world.records.len(), 1, "the second never reached the store");
    assert!(world.stored(true).is_empty(), "its client was told already");
    assert_eq!(world.contacts(), [format!("sip:bob@{BOB}")], "memory is as the store is");
    assert_eq!(world.shard.counters().store_unavailable, 2);
    world.settle();
}

#[test]
fn pending_is_bounded() {
    let mut world = World { is_checked: false, ..through() };
    let of = |user: usize| {
        register(1, "<sip:x@192.0.2.9>")
            .replace("bob@example", &format!("u{user}@example"))
            .replace("z9hG4bKr", &format!("z9hG4bKu{user}r"))
    };
    for user in 0..MAX_PENDING_REGISTERS {
        assert!(world.input(BOB, &of(user)).is_empty());
    }
    let sent = world.input(BOB, &of(MAX_PENDING_REGISTERS));
    assert_eq!(statuses(&sent), [503]);
    assert_eq!(world.records.len(), MAX_PENDING_REGISTERS);
    for (ticket, record) in std::mem::take(&mut world.records) {
        world.give(Input::Stored { ticket: ticket.expect("somebody waits for it"), record, is_durable: true });
    }
    world.shard.check_invariants();
    assert_eq!(world.locations.len(), MAX_PENDING_REGISTERS);
    assert_eq!(world.shard.unanswered(), 0);
}

#[test]
fn a_connection_closed_during_a_write_removes_its_binding() {
    let mut world = through();
    let connection = ConnId::new(0, 1, 0);
    let peer = BOB.parse().expect("an address");
    let flow = Flow::on_connection(ListenerId(1), Transport::Tcp, peer, connection);
    let contact = "<sip:bob@10.0.0.1;ob>;+sip.instance=\"<urn:x:1>\";reg-id=1";
    let text = register(1, contact).replace("SIP/2.0/UDP", "SIP/2.0/TCP") + "";
    let text = text.replace("CSeq", "Supported: outbound\r\nCSeq");
    assert!(world.input_by(flow, &text).is_empty());
    world.give(Input::Closed { connection, peer });
    world.stored(true);
    assert!(world.contacts().is_empty());
    assert!(world.locations.is_empty());
    world.locations.check_invariants();
}

#[test]
fn a_user_barred_during_a_write_stays_away_and_is_removed_last() {
    let mut world = through();
    world.input(BOB, &register(1, &format!("<sip:bob@{BOB}>")));
    world.input(BOB, &register(2, &format!("<sip:bob@{BOB2}>")));
    world.give(Input::BarUser { aor: b"bob@example.com" });
    let (ticket, record) = world.records.pop().expect("the removal");
    assert!(ticket.is_none() && Record::parse(&record).expect("a record").is_removal());
    assert_eq!(world.records.len(), 1, "after what was staged before");
    assert_eq!(statuses(&world.stored(true)), [403, 403]);
    assert!(world.contacts().is_empty() && world.records.is_empty());
    world.settle();
}

#[test]
fn write_behind_responds_first_and_still_stores() {
    let mut world = world(Durability::WriteBehind);
    assert_eq!(statuses(&world.input(BOB, &register(1, &format!("<sip:bob@{BOB}>")))), [200]);
    assert_eq!(statuses(&world.input(BOB, &register(2, &format!("<sip:bob@{BOB}>")))), [200]);
    assert_eq!(statuses(&world.input(BOB, &register(3, ""))), [200]);
    world.give(Input::BarUser { aor: b"bob@example.com" });
    let kinds: Vec<_> = world
        .records
        .iter()
        .map(|(ticket, record)| {
            let record = Record::parse(record).expect("a record");
            (ticket.is_some(), record.is_refresh(), record.is_removal())
        })
        .collect();
    assert_eq!(kinds, [(false, false, false), (false, true, false), (false, false, true)]);
    world.settle();
}

#[test]
fn memory_durability_stores_nothing() {
    let mut world = world(Durability::Memory);
    assert_eq!(statuses(&world.input(BOB, &register(1, &format!("<sip:bob@{BOB}>")))), [200]);
    world.give(Input::BarUser { aor: b"bob@example.com" });
    assert!(world.records.is_empty());
    world.settle();
}

#[test]
fn a_predecessors_stored_bindings_count() {
    let mut before = through();
    before.input(BOB, &register(1, &format!("<sip:bob@{BOB}>")));
    let mut world = through();
    world.records = std::mem::take(&mut before.records);
    assert!(world.stored(true).is_empty(), "nobody is left to be answered");
    assert_eq!(world.contacts().len(), 1);
}

#[test]
fn while_loading_known_users_are_called_and_others_get_retry_after() {
    let mut world = World::loading(|snapshot| snapshot.registrar.durability = Durability::WriteThrough);
    let later = |sent: &[SentMessage]| {
        let last = sent.last().expect("an answer");
        (last.status(), last.header("Retry-After").map(str::to_owned))
    };
    let contact = format!("<sip:bob@{BOB}>");
    assert_eq!(later(&world.input(BOB, &register(1, &contact))), (503, Some("2".to_owned())));
    let call = world.input(ALICE, &request("INVITE", "sip:bob@example.com", "c1", ""));
    assert_eq!(later(&call), (503, Some("2".to_owned())));
    world.input(ALICE, &request("ACK", "sip:bob@example.com", "c1", ""));
    assert!(world.records.is_empty());

    let mut kept = through();
    kept.input(BOB, &register(1, &contact));
    let (_, record) = kept.records.remove(0);
    let record = Record::parse(&record).expect("a record");
    world.locations.restore(world.now, &world.snapshot.registrar, &record);
    let call = world.input(ALICE, &request("OPTIONS", "sip:bob@example.com", "c2", ""));
    assert_eq!(call[0].to.to_string(), BOB, "who is there already is reached");
    world.respond(&call[0], 200, "b", "");

    world.locations.complete_source();
    world.input(BOB, &register(2, &contact));
    assert_eq!(statuses(&world.stored(true)), [200]);
    world.settle();
}

#[test]
fn one_address_cannot_fill_the_queue() {
    let mut world = through();
    let contact = format!("<sip:bob@{BOB}>");
    let most = u32::try_from(MAX_PENDING_PER_AOR).expect("small");
    assert!((1..=most).all(|cseq| world.input(BOB, &register(cseq, &contact)).is_empty()));
    assert_eq!(statuses(&world.input(BOB, &register(most + 1, &contact))), [503]);
    let [Event::TooManyPendingRegisters { aor, .. }] = &world.events[..] else { panic!("{:?}", world.events) };
    assert_eq!(aor, "bob@example.com", "it is told from a store that is slow for all");
    let other = register(99, "<sip:carol@192.0.2.9>").replace("bob@example", "carol@example");
    assert!(world.input(BOB2, &other).is_empty(), "others have theirs");
}

#[test]
fn a_predecessors_connection_or_stranger_bindings_are_dropped() {
    let connection = ConnId::new(0, 1, 0);
    let flow = Flow::on_connection(ListenerId(1), Transport::Tcp, BOB.parse().expect("an address"), connection);
    let contact = "<sip:bob@10.0.0.1;ob>;+sip.instance=\"<urn:x:1>\";reg-id=1";
    let text =
        register(1, contact).replace("SIP/2.0/UDP", "SIP/2.0/TCP").replace("CSeq", "Supported: outbound\r\nCSeq");
    let mut before = through();
    assert!(before.input_by(flow, &text).is_empty());
    let mut world = through();
    world.records = std::mem::take(&mut before.records);
    world.stored(true);
    assert!(world.locations.is_empty(), "its connection may be closed");

    let mut before = through();
    before.input(BOB, &register(2, &format!("<sip:bob@{BOB}>")));
    let mut world = through();
    world.configure(|snapshot| snapshot.auth.require = vec![b"REGISTER".as_slice().into()]);
    world.records = std::mem::take(&mut before.records);
    world.stored(true);
    assert!(world.locations.is_empty(), "no such user");
}
