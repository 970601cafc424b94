//! Random histories: the table and a naive list agree.

mod common;
#[path = "common/history.rs"]
mod history;

use common::{Table, at_s, over, read, register, source};
use history::{Step, aor, step};
use proptest::prelude::*;
use strowger_foundation::{ConnId, Timestamp};
use strowger_registrar::model::Model;
use strowger_registrar::{Locations, Nat, Policy, UpdateCounts};

fn agree(now: Timestamp, locations: &Locations, model: &Model) {
    for user in 0..4 {
        let mut targets = Vec::new();
        locations.lookup(now, &aor(user), &mut targets);
        assert_eq!(targets, model.lookup(now, &aor(user)));
    }
    let mut shown = 0;
    for stripe in 0..3 {
        locations.for_each_in_stripe(now, stripe, |_| shown += 1);
    }
    assert_eq!(shown, model.bindings(now));
    assert!(locations.len() >= shown);
    locations.check_invariants();
}

proptest! {
    #[test]
    fn matches_the_model(seed in any::<u64>(), nat in 0..3, steps in prop::collection::vec(step(), 1..60)) {
        let nat = [Nat::Auto, Nat::Always, Nat::Never][nat as usize];
        let policy = Policy { max_contacts: 4, nat, ..Policy::default() };
        let (locations, mut model, mut now) = (Locations::new(3, seed), Model::default(), Timestamp::ZERO);
        for step in steps {
            match step {
                Step::Register { user, call_id, cseq, headers, port, via_matches, slot } => {
                    let peer = format!("192.0.2.1:{port}");
                    let mut source = slot.map_or_else(|| source(&peer), |slot| over(ConnId::new(0, slot, 0), &peer));
                    source.via_sent_by_matches = via_matches;
                    read(&register(&call_id.to_string(), cseq, &headers), |update| {
                        // Several contacts including a flow are refused before there is anything to compare.
                        let Ok(update) = update else { return };
                        let ours = locations.apply(now, &aor(user), &policy, &source, &update);
                        assert_eq!(ours, model.apply(now, &aor(user), &policy, &source, &update));
                    });
                }
                Step::Disconnect { slot } => {
                    let connection = ConnId::new(0, slot, 0);
                    for shard in 0..3 {
                        locations.disconnect(now, strowger_foundation::ShardId(shard), connection, |_| {});
                    }
                    model.disconnect(connection);
                }
                Step::Pass { millis, limit } => {
                    now = Timestamp::from_millis(now.as_millis() + millis);
                    for shard in 0..3 {
                        assert!(locations.expire(now, strowger_foundation::ShardId(shard), limit) <= limit);
                        while locations.poll_keep_alive(now, strowger_foundation::ShardId(shard)).is_some() {}
                    }
                }
            }
            agree(now, &locations, &model);
            if let Some(at) = model.next_expiry(now) {
                let woken = (0..3).filter_map(|shard| locations.next_deadline(strowger_foundation::ShardId(shard))).min();
                assert!(woken.is_some_and(|woken| woken <= at), "woken at {woken:?}, due at {at:?}");
            }
        }
        let end = Timestamp::from_millis(now.as_millis() + 7_200_000);
        for shard in 0..3 {
            locations.expire(end, strowger_foundation::ShardId(shard), usize::MAX);
            assert_eq!(locations.poll_keep_alive(end, strowger_foundation::ShardId(shard)), None);
            assert_eq!(locations.next_deadline(strowger_foundation::ShardId(shard)), None);
        }
        assert!(locations.is_empty() && locations.addresses() == 0);
    }
}

/// Tables large enough to shrink, in one stripe.
#[test]
fn large_tables_shrink() {
    let table = Table::new();
    let apply = |now, user: u32, headers: &str| -> UpdateCounts {
        let aor = format!("{user}@example.com");
        read(&register("a", u32::try_from(now).expect("small") + 1, headers), |update| {
            let update = update.expect("valid");
            table.locations.apply(at_s(now), aor.as_bytes(), &table.policy, &table.source, &update).expect("taken")
        })
    };
    for user in 0..5000 {
        apply(0, user, "Contact: <sip:a@10.0.0.1>;expires=100, <sip:b@192.0.2.1>;expires=300");
    }
    table.locations.check_invariants();
    assert_eq!((table.locations.len(), table.locations.addresses()), (10_000, 5000));
    let mut expired = 0;
    while table.locations.len() > 5000 {
        expired += table.locations.expire(at_s(100), table.shard(), 10);
    }
    assert_eq!(expired, 5000);
    table.locations.check_invariants();
    for user in 0..4900 {
        assert_eq!(apply(101, user, "Contact: *|Expires: 0").removed, 1);
    }
    table.locations.check_invariants();
    assert_eq!(table.locations.addresses(), 100);
    assert_eq!(table.locations.expire(at_s(299), table.shard(), 1000), 0);
    assert_eq!(table.locations.expire(at_s(300), table.shard(), 1000), 100);
    assert_eq!(table.locations.next_deadline(table.shard()), None);
}
