//! A refresh shortly before its binding expires, and a slow store.

#![allow(clippy::expect_used, reason = "tests")]

mod common;

use common::{AOR, Table, at_s, read, register};
use strowger_registrar::Record;

#[test]
fn a_refresh_survives_expiry_during_the_store_write() {
    let table = Table::new();
    table.register(at_s(0), "a", 1, "Contact: <sip:a@192.0.2.1>;expires=60").expect("valid");
    let mut record = Vec::new();
    read(&register("a", 2, "Contact: <sip:a@192.0.2.1>;expires=60"), |update| {
        let update = update.expect("valid");
        let staged = table.locations.stage(at_s(59), AOR, &table.policy, &table.source, &update, &mut record);
        assert_eq!(staged.expect("valid").refreshed, 1);
    });
    assert_eq!(
        table.locations.expire(at_s(61), table.shard(), 10),
        1,
        "it has expired while the record is at the store"
    );
    table.locations.put(at_s(61), &Record::parse(&record).expect("a record"), None);
    table.locations.check_invariants();
    assert_eq!(table.uris(at_s(61)), ["sip:a@192.0.2.1"]);
    assert_eq!(table.uris(at_s(118)), ["sip:a@192.0.2.1"]);
    assert!(table.uris(at_s(119)).is_empty());
}
