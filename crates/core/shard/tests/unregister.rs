//! An operator removes registrations while REGISTERs wait for the store: the last record of the store must equal
//! memory.

mod support;

use std::time::Duration;

use strowger_foundation::Timestamp;
use strowger_registrar::record::merge;
use strowger_registrar::{Durability, Record};
use strowger_shard::{Event, Input, MAX_UNREGISTER_COMMANDS};
use support::{BOB, BOB2, SentMessage, World};

const AOR: &[u8] = b"bob@example.com";
const A: &str = "sip:bob@192.0.2.20:5060";
const B: &str = "sip:bob@192.0.2.21:5060";

/// A server and all records given to its store, in order.
struct StoredRecords {
    world: World,
    journal: Vec<Vec<u8>>,
    cseq: u32,
}

impl StoredRecords {
    fn new(durability: Durability) -> Self {
        let world = World::listening(&["UDP"], |snapshot| snapshot.registrar.durability = durability);
        Self { world, journal: Vec::new(), cseq: 0 }
    }

    /// Creates one with these contacts registered.
    fn with(contacts: &[&str]) -> Self {
        let mut kept = Self::new(Durability::WriteThrough);
        for contact in contacts {
            assert!(kept.register(contact).is_empty());
            assert_eq!(kept.stored(true), [200]);
        }
        kept
    }

    /// Registers one contact; each contact is a phone of its own.
    fn register(&mut self, contact: &str) -> Vec<SentMessage> {
        self.cseq += 1;
        let (cseq, peer) = (self.cseq, if contact == B { BOB2 } else { BOB });
        let text = format!(
            "REGISTER sip:example.com SIP/2.0\r\nVia: SIP/2.0/UDP {peer};branch=z9hG4bKr{cseq}\r\nMax-Forwards: 70\r\n\
             From: <sip:bob@example.com>;tag=r\r\nTo: <sip:bob@example.com>\r\nCall-ID: {contact}\r\n\
             CSeq: {cseq} REGISTER\r\nContact: <{contact}>\r\nContent-Length: 0\r\n\r\n"
        );
        self.world.input(peer, &text)
    }

    fn unregister(&mut self, contact: Option<&str>) {
        let contact = contact.map(str::as_bytes);
        assert!(self.world.give(Input::Unregister { aor: AOR, contact }).is_empty());
    }

    /// Completes the records up to the first that a client waits for; returns the responses.
    fn stored(&mut self, kept: bool) -> Vec<u16> {
        loop {
            let (ticket, record) = self.world.records.remove(0);
            if kept || ticket.is_none() {
                self.journal.push(record.clone());
            }
            if let Some(ticket) = ticket {
                let sent = self.world.give(Input::Stored { ticket, record, is_durable: kept });
                return sent.iter().map(SentMessage::status).collect();
            }
        }
    }

    /// Stores the remaining records, for which nobody waits; returns the contacts in memory, which must equal those
    /// after a restart.
    fn contacts_at(&mut self, now: Timestamp) -> Vec<String> {
        for (ticket, record) in self.world.records.drain(..) {
            assert_eq!(ticket, None);
            self.journal.push(record);
        }
        let in_memory = contacts(&self.world, now);
        let mut state: Option<Vec<u8>> = None;
        for record in &self.journal {
            Record::parse(record).expect("what is stored can be read");
            let mut merged = Vec::new();
            state = merge(state.as_deref(), record, &mut merged).then_some(merged);
            let is_whole = |state: &Vec<u8>| !Record::parse(state).expect("a record").is_refresh();
            assert!(state.as_ref().is_none_or(is_whole), "a refresh has a state before it");
        }
        let other = Self::new(Durability::WriteThrough).world;
        if let Some(state) = &state {
            let record = Record::parse(state).expect("a record");
            other.locations.restore(self.world.now, &other.snapshot.registrar, &record);
        }
        assert_eq!(contacts(&other, now), in_memory, "a restart changes nothing");
        self.world.shard.check_invariants();
        in_memory
    }

    fn contacts(&mut self) -> Vec<String> {
        self.contacts_at(self.world.now)
    }
}

fn contacts(world: &World, now: Timestamp) -> Vec<String> {
    let mut targets = Vec::new();
    world.locations.lookup(now, AOR, &mut targets);
    let mut contacts: Vec<_> = targets.iter().map(|target| String::from_utf8_lossy(&target.uri).into_owned()).collect();
    contacts.sort();
    contacts
}

#[test]
fn a_contact_is_removed_on_disk_too() {
    let mut kept = StoredRecords::with(&[A, B]);
    kept.unregister(Some(A));
    assert_eq!((kept.world.records.len(), kept.contacts()), (1, vec![B.to_owned()]));
    kept.unregister(Some(B));
    assert!(kept.contacts().is_empty());
    kept.world.settle();
}

#[test]
fn a_concurrent_register_survives_a_restart() {
    let mut kept = StoredRecords::with(&[A]);
    kept.register(B);
    kept.unregister(Some(A));
    assert_eq!(kept.world.records.len(), 1, "the order takes its turn");
    assert_eq!(kept.stored(true), [200]);
    assert_eq!(kept.contacts(), [B]);
    // It is refreshed as a binding that the store has.
    kept.register(B);
    assert_eq!(kept.stored(true), [200]);
    assert!(Record::parse(kept.journal.last().expect("one")).expect("a record").is_refresh());
    assert_eq!(kept.contacts(), [B]);
    kept.world.settle();
}

#[test]
fn a_concurrent_refresh_keeps_its_new_expiry() {
    let mut kept = StoredRecords::with(&[A, B]);
    kept.world.wait(Duration::from_secs(1000));
    kept.register(B);
    kept.unregister(Some(A));
    assert_eq!(kept.stored(true), [200]);
    let later = kept.world.now + Duration::from_secs(3000);
    assert_eq!(kept.contacts_at(later), [B]);
    kept.world.settle();
}

#[test]
fn a_store_failure_does_not_block_an_unregister() {
    let mut kept = StoredRecords::with(&[A]);
    kept.register(B);
    kept.unregister(Some(A));
    assert_eq!(kept.stored(false), [503]);
    assert!(kept.contacts().is_empty());
    kept.world.settle();
}

#[test]
fn earlier_registers_are_removed_and_later_ones_stay() {
    for contact in [None, Some(A)] {
        let mut kept = StoredRecords::with(&[]);
        kept.register(A);
        kept.register(A);
        kept.unregister(contact);
        kept.register(B);
        assert_eq!(kept.stored(true), [200], "nobody is barred");
        assert_eq!(kept.world.records.len(), 1, "the second is before the order too");
        assert_eq!(kept.stored(true), [200]);
        assert_eq!(kept.stored(true), [200]);
        assert_eq!(kept.contacts(), [B]);
        kept.world.settle();
    }
}

#[test]
fn all_contacts_go_and_phones_are_answered_and_may_return() {
    let mut kept = StoredRecords::with(&[A]);
    kept.register(A);
    kept.register(B);
    kept.unregister(None);
    assert_eq!(kept.stored(true), [200]);
    assert_eq!(kept.stored(true), [200]);
    let (ticket, record) = kept.world.records.last().expect("a removal");
    assert!(ticket.is_none() && Record::parse(record).expect("a record").is_removal());
    assert!(kept.contacts().is_empty());
    kept.register(A);
    assert_eq!(kept.stored(true), [200]);
    assert_eq!(kept.contacts(), [A]);
    kept.world.settle();
}

#[test]
fn an_unregister_outlasts_the_registers_it_waits_for() {
    let mut kept = StoredRecords::with(&[]);
    kept.register(A);
    kept.register(B);
    kept.unregister(None);
    let sent = kept.world.wait(Duration::from_secs(4));
    assert_eq!(sent.iter().map(|(_, sent)| sent.status()).collect::<Vec<_>>(), [503, 503]);
    assert!(kept.stored(true).is_empty(), "they were told already");
    assert!(kept.contacts().is_empty());
    kept.world.settle();
}

#[test]
fn a_missing_contact_is_not_sent_to_the_store() {
    for durability in [Durability::Memory, Durability::WriteBehind, Durability::WriteThrough] {
        let mut kept = StoredRecords::new(durability);
        kept.unregister(Some(A));
        assert!(kept.world.records.is_empty(), "{durability:?}");
    }
    let mut kept = StoredRecords::with(&[A, B]);
    kept.unregister(Some(A));
    assert_eq!(kept.contacts(), [B]);
    kept.unregister(Some(A));
    assert!(kept.world.records.is_empty(), "a second time");
    assert_eq!(kept.contacts(), [B]);
    kept.world.settle();
}

#[test]
fn without_write_through_an_unregister_runs_at_once() {
    for durability in [Durability::Memory, Durability::WriteBehind] {
        for contact in [None, Some(A)] {
            let mut kept = StoredRecords::new(durability);
            kept.register(A);
            kept.unregister(contact);
            assert!(contacts(&kept.world, kept.world.now).is_empty());
            let stored = if durability == Durability::Memory { 0 } else { 2 };
            assert_eq!(kept.world.records.len(), stored);
            kept.world.settle();
        }
    }
}

#[test]
fn nothing_is_unregistered_while_loading() {
    for contact in [None, Some(A.as_bytes())] {
        let mut before = StoredRecords::with(&[A, B]);
        let mut world = World::loading(|snapshot| snapshot.registrar.durability = Durability::WriteThrough);
        for record in &before.journal {
            world.locations.restore(world.now, &world.snapshot.registrar, &Record::parse(record).expect("a record"));
        }
        world.give(Input::Unregister { aor: AOR, contact });
        assert!(world.records.is_empty());
        assert_eq!(contacts(&world, world.now), before.contacts());
        world.locations.complete_source();
        world.give(Input::Unregister { aor: AOR, contact });
        assert_eq!(world.records.len(), 1);
    }
}

#[test]
fn pending_unregisters_are_bounded_and_unique() {
    let mut kept = StoredRecords::with(&[]);
    kept.register(A);
    for _ in 0..2 {
        for number in 0..MAX_UNREGISTER_COMMANDS {
            kept.unregister(Some(&format!("sip:{number}@192.0.2.9")));
        }
        assert!(kept.world.events.is_empty(), "{:?}", kept.world.events);
    }
    kept.unregister(Some(A));
    assert!(matches!(kept.world.events[..], [Event::TableFull { .. }]), "{:?}", kept.world.events);
    assert_eq!(kept.stored(true), [200]);
    assert_eq!(kept.contacts(), [A]);
    kept.unregister(Some(A));
    assert!(kept.contacts().is_empty(), "there is room again");
    kept.world.settle();
}
