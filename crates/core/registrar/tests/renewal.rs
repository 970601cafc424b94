//! The fast path of a REGISTER that only refreshes, and the general path: both give the same result.

mod common;
#[path = "common/history.rs"]
mod history;

use common::{AOR, Table, at_s, over, register, source};
use history::{Step, aor, step};
use proptest::prelude::*;
use strowger_foundation::{ConnId, ShardId, Timestamp};
use strowger_message::Message;
use strowger_registrar::{Locations, Nat, Policy, RefreshRequest, Refusal, Source, Update, UpdateCounts};

/// Returns whether a REGISTER took the fast path, and its result.
fn short(
    locations: &Locations,
    now: Timestamp,
    aor: &[u8],
    policy: &Policy,
    source: &Source,
    request: &[u8],
) -> (bool, Result<UpdateCounts, Refusal>) {
    let message = Message::parse(request).expect("a valid message");
    let mut lines = Vec::new();
    let is_short = RefreshRequest::read(&message)
        .is_some_and(|renewal| locations.refresh(now, aor, policy, source, &renewal, &mut lines));
    if !is_short {
        assert!(lines.is_empty(), "nothing was done");
        return (false, Update::read(&message).and_then(|update| locations.apply(now, aor, policy, source, &update)));
    }
    let mut all = Vec::new();
    locations.write_contacts(now, aor, None, &mut all);
    assert_eq!(lines, all);
    (true, Ok(UpdateCounts { added: 0, refreshed: 1, removed: 0 }))
}

fn states(locations: &Locations, now: Timestamp) -> Vec<Vec<u8>> {
    let mut states = Vec::new();
    locations.for_each_state(now, |state| states.push(state.to_vec()));
    states.sort_unstable();
    states
}

proptest! {
    #[test]
    fn fast_and_slow_paths_agree(seed in any::<u64>(), nats in [0..3, 0..3], steps in prop::collection::vec(step(), 1..40)) {
        let nat = |number: i32| [Nat::Auto, Nat::Always, Nat::Never][number as usize];
        let mut policy = Policy { max_contacts: 4, nat: nat(nats[0]), ..Policy::default() };
        let (one, other, mut now) = (Locations::new(3, seed), Locations::new(3, seed), Timestamp::ZERO);
        let half = steps.len() / 2;
        for (number, step) in steps.into_iter().enumerate() {
            // The operator changes the configuration.
            if number == half {
                policy.nat = nat(nats[1]);
            }
            match step {
                Step::Register { user, call_id, cseq, headers, port, via_matches, slot } => {
                    let peer = format!("192.0.2.1:{port}");
                    let mut source = slot.map_or_else(|| source(&peer), |slot| over(ConnId::new(0, slot, 0), &peer));
                    source.via_sent_by_matches = via_matches;
                    // Three times: as it is, as the following refresh, and as a repetition of that.
                    for cseq in [cseq, cseq + 1, cseq + 1] {
                        let request = register(&call_id.to_string(), cseq, &headers);
                        let message = Message::parse(&request).expect("a valid message");
                        let long = Update::read(&message)
                            .and_then(|update| other.apply(now, &aor(user), &policy, &source, &update));
                        assert_eq!(short(&one, now, &aor(user), &policy, &source, &request).1, long);
                        now = Timestamp::from_millis(now.as_millis() + 700);
                    }
                }
                Step::Disconnect { slot } => {
                    for shard in (0..3).map(ShardId) {
                        one.disconnect(now, shard, ConnId::new(0, slot, 0), |_| {});
                        other.disconnect(now, shard, ConnId::new(0, slot, 0), |_| {});
                    }
                }
                Step::Pass { millis, limit } => {
                    now = Timestamp::from_millis(now.as_millis() + millis);
                    for shard in (0..3).map(ShardId) {
                        one.expire(now, shard, limit);
                        other.expire(now, shard, limit);
                        loop {
                            let due = one.poll_keep_alive(now, shard);
                            assert_eq!(due, other.poll_keep_alive(now, shard));
                            if due.is_none() {
                                break;
                            }
                        }
                    }
                }
            }
            one.check_invariants();
            assert_eq!(states(&one, now), states(&other, now));
        }
    }
}

#[test]
fn usual_refreshes_take_the_fast_path_from_the_second_on() {
    let contact = "Contact: <sip:a@192.0.2.1:5060>|Expires: 600";
    let behind = "Contact: <sip:a@10.0.0.1:5060>;expires=600;q=0.5";
    for (headers, via_matches) in [(contact, true), (contact, false), (behind, false)] {
        let mut table = Table::new();
        table.source.via_sent_by_matches = via_matches;
        for cseq in 1..6 {
            let request = register("a", cseq, headers);
            let now = at_s(u64::from(cseq) * 300);
            let (is_short, applied) = short(&table.locations, now, AOR, &table.policy, &table.source, &request);
            assert!(applied.is_ok());
            assert!(is_short || cseq < 3, "CSeq {cseq} of {headers}");
            let (again, applied) = short(&table.locations, now, AOR, &table.policy, &table.source, &request);
            assert_eq!((again, applied), (false, Err(Refusal::OutOfOrder)));
        }
        assert_eq!(table.uris(at_s(2099)).len(), 1);
        assert!(table.uris(at_s(2100)).is_empty());
    }
}

#[test]
fn other_sources_and_changed_registers_take_the_slow_path() {
    let mut table = Table::new();
    let contact = "Contact: <sip:a@192.0.2.1:5060>";
    for cseq in 1..4 {
        let request = register("a", cseq, contact);
        short(&table.locations, at_s(1), AOR, &table.policy, &table.source, &request).1.expect("taken");
    }
    let mut cseq = 4;
    let mut is_short = |table: &Table, headers: &str| {
        cseq += 1;
        let request = register("a", cseq, headers);
        short(&table.locations, at_s(2), AOR, &table.policy, &table.source, &request).0
    };
    assert!(is_short(&table, contact));
    for other in [
        "Contact: <sip:a@192.0.2.1:5060>;q=0.4",
        "Contact: <sip:a@192.0.2.1:5060>|Path: <sip:p;lr>",
        "Contact: <sip:a@192.0.2.1:5060>;+sip.instance=\"<urn:x:1>\"",
        "Contact: <sip:a@192.0.2.1:5060>;expires=0",
        "Contact: <sip:A@192.0.2.1:5060>",
        "Contact: <sip:a@192.0.2.1:5060>, <sip:b@192.0.2.1:5060>",
        "",
    ] {
        assert!(!is_short(&table, other), "{other}");
        is_short(&table, "Contact: *|Expires: 0");
        is_short(&table, contact);
        is_short(&table, contact);
        assert!(is_short(&table, contact), "as before");
    }
    table.source = source("192.0.2.9:5060");
    assert!(!is_short(&table, contact), "another peer");
}
