//! Keep-alives for bindings behind NAT.

mod common;

use common::{Table, at_s, read, register};
use strowger_foundation::{ShardId, Timestamp};
use strowger_registrar::{KeepAlive, Locations, PendingKeepAlive};

const BEHIND: &str = "Contact: <sip:a@10.0.0.1>;expires=7200";

fn due(locations: &Locations, now: Timestamp) -> Vec<PendingKeepAlive> {
    let mut due = Vec::new();
    loop {
        due.extend(core::iter::from_fn(|| locations.poll_keep_alive(now, ShardId(0))));
        locations.expire(now, ShardId(0), 100);
        if locations.next_deadline(ShardId(0)).is_none_or(|next| next > now) {
            return due;
        }
    }
}

/// Returns when keep-alives were due between `from` and `until`, driven by the deadline alone.
fn turns(table: &Table, from: Timestamp, until: Timestamp) -> Vec<Timestamp> {
    let (mut now, mut turns) = (from, Vec::new());
    while let Some(at) = table.locations.next_deadline(ShardId(0)).filter(|at| *at < until) {
        now = now.max(at);
        turns.extend(due(&table.locations, now).iter().map(|_| now));
        table.locations.check_invariants();
    }
    turns
}

#[test]
fn keep_alives_repeat_until_expiry() {
    let table = Table::new();
    table.register(at_s(100), "a", 1, BEHIND).expect("valid");
    let turns = turns(&table, at_s(100), at_s(9000));
    assert_eq!(turns.len(), 240);
    assert!(turns[0] <= at_s(130));
    assert!(turns.windows(2).all(|pair| pair[1] - pair[0] <= core::time::Duration::from_millis(30_001)));
    assert!(table.locations.is_empty());
}

#[test]
fn a_keep_alive_goes_to_its_binding() {
    let table = Table::new();
    table.register(at_s(0), "a", 1, BEHIND).expect("valid");
    let all = due(&table.locations, at_s(31));
    assert_eq!(all.len(), 1);
    assert_eq!((&all[0].uri[..], &all[0].aor[..]), (&b"sip:a@10.0.0.1"[..], common::AOR));
    assert_eq!(all[0].flow, table.source.flow);
    assert_eq!(due(&table.locations, at_s(31)), [], "not again before its next turn");
    assert_eq!(due(&table.locations, at_s(3000)).len(), 1, "missed turns do not pile up");
}

#[test]
fn keep_alives_need_nat_and_must_be_enabled() {
    let table = Table::new();
    table.register(at_s(0), "a", 1, "Contact: <sip:a@192.0.2.1>").expect("valid");
    assert!(turns(&table, at_s(0), at_s(3000)).is_empty());
    let mut table = Table::new();
    table.policy.keep_alive = KeepAlive::Off;
    table.register(at_s(0), "a", 1, BEHIND).expect("valid");
    assert!(turns(&table, at_s(0), at_s(3000)).is_empty());
}

#[test]
fn removed_or_public_bindings_get_no_keep_alives() {
    let mut table = Table::new();
    table.register(at_s(0), "a", 1, BEHIND).expect("valid");
    table.register(at_s(1), "a", 2, "Contact: *|Expires: 0").expect("valid");
    assert!(due(&table.locations, at_s(100)).is_empty());
    table.register(at_s(100), "a", 3, BEHIND).expect("valid");
    table.source = common::source("10.0.0.1:5060");
    table.register(at_s(101), "a", 4, BEHIND).expect("valid");
    assert!(due(&table.locations, at_s(200)).is_empty());
    table.source = common::source("192.0.2.1:5060");
    table.register(at_s(200), "a", 5, BEHIND).expect("valid");
    table.policy.keep_alive = KeepAlive::Off;
    table.register(at_s(201), "a", 6, "").expect("a fetch under the new policy");
    assert!(due(&table.locations, at_s(300)).is_empty());
}

#[test]
fn turns_are_spread() {
    let table = Table::new();
    for user in 0..3000 {
        let aor = format!("{user}@example.com");
        read(&register("a", 1, BEHIND), |update| {
            let update = update.expect("valid");
            table.locations.apply(at_s(60), aor.as_bytes(), &table.policy, &table.source, &update).expect("taken");
        });
    }
    for second in 1..=30 {
        let count = due(&table.locations, at_s(60 + second)).len();
        assert!((50..=150).contains(&count), "{count} in second {second} where 100 are fair");
    }
}

#[test]
fn removing_a_user_does_not_change_the_turns_of_others() {
    let table = Table::new();
    table.register(at_s(100), "a", 1, BEHIND).expect("valid");
    table.locations.remove_address(at_s(110), b"bob@example.com", &mut Vec::new());
    assert_eq!(turns(&table, at_s(110), at_s(400)).len(), 10, "one each 30 s");
    table.locations.remove_address(at_s(400), common::AOR, &mut Vec::new());
    assert!(turns(&table, at_s(400), at_s(900)).is_empty());
}
