//! Members that report used nonces to each other.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const AGE: Duration = Duration::from_secs(300);
const KEY: [u8; 16] = [7; 16];
/// A time within a window of issue that is common to all members' clocks.
const T0: u64 = 8_192 * 1_000 + 100;

struct Member {
    issuer: Issuer,
    windows: NonceWindows,
}

fn ring() -> KeyRing {
    KeyRing::new(TagKey::new(KEY)).derive("nonce")
}

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(T0 + ms)
}

impl Member {
    /// Creates a member; clocks and start times differ between members.
    fn new(member: u16) -> Self {
        Self::begun(member, 1_700_000_000_000 + u64::from(member) * 977)
    }

    fn begun(member: u16, began_ms: u64) -> Self {
        let issuer = Issuer { member, clock_origin_ms: began_ms };
        Self { issuer, windows: NonceWindows::for_members(2, KEY, issuer) }
    }

    fn nonce(&self, ms: u64, request: u64) -> Vec<u8> {
        self.windows.issue(at(ms), request).to_text(&ring(), self.windows.seed(), 5).to_vec()
    }

    /// Verifies as the authenticator does.
    fn accepts(&self, ms: u64, nonce: &[u8], nc: Option<u32>) -> bool {
        let (now, windows) = (at(ms), &self.windows);
        let Some(id) = NonceId::from_text(nonce, &ring(), windows.seed()) else {
            return windows.use_foreign(now, AGE, (nonce, &ring()), nc);
        };
        let shared = windows.nonce_sharing().expect("it shares");
        let is_used = shared.is_known(id) && !is_aged(&id, now, AGE) && windows.use_count(now, AGE, id, nc);
        if is_used {
            shared.note_use(id, nc);
        }
        is_used
    }
}

/// Delivers all messages of the members to all others and confirms them.
fn exchange(members: &[Member], ms: u64) {
    let mut is_quiet = false;
    while !core::mem::replace(&mut is_quiet, true) {
        for from in members {
            while let Some(message) = from.windows.poll_uses(at(ms)) {
                is_quiet = false;
                for to in members.iter().filter(|to| to.issuer != from.issuer) {
                    assert!(to.windows.handle_uses(at(ms), &message));
                    from.windows.confirm_uses(Some(to.issuer.member), at(ms));
                }
            }
        }
    }
}

fn three() -> Vec<Member> {
    let members: Vec<_> = (1..=3).map(Member::new).collect();
    exchange(&members, 0);
    members
}

#[test]
fn a_nonce_of_one_member_passes_at_another_only_once() {
    let members = three();
    let nonce = members[0].nonce(1, 5);
    assert!(members[1].accepts(2, &nonce, Some(1)));
    assert!(!members[1].accepts(2, &nonce, Some(1)));
    exchange(&members, 3);
    assert!(members.iter().all(|member| !member.accepts(4, &nonce, Some(1))), "a replay");
    assert!(members[0].accepts(5, &nonce, Some(2)), "its next count, at who has issued it");
    exchange(&members, 6);
    assert!(!members[2].accepts(7, &nonce, Some(2)) && members[2].accepts(7, &nonce, Some(3)));
}

#[test]
fn nonce_without_count_passes_once() {
    let members = three();
    let nonce = members[0].nonce(1, 5);
    assert!(members[1].accepts(2, &nonce, None));
    exchange(&members, 3);
    assert!(members.iter().all(|member| !member.accepts(4, &nonce, None) && !member.accepts(4, &nonce, Some(1))));
}

#[test]
fn a_silent_members_nonce_is_rejected() {
    let members = three();
    let silent = |ms| members[0].nonce(ms, ms);
    assert!(members[1].accepts(1_900, &silent(1_900), Some(1)));
    assert!(!members[1].accepts(2_000, &silent(2_000), Some(1)), "the issuer has not been heard");
    // Its messages arrive again, but it does not confirm.
    let message = members[0].windows.poll_uses(at(2_100)).expect("it is time");
    members[1].windows.handle_uses(at(2_100), &message);
    assert!(!members[1].accepts(2_200, &silent(2_200), Some(1)), "it has not confirmed");
    members[1].windows.confirm_uses(None, at(2_150));
    assert!(members[1].accepts(2_300, &silent(2_300), Some(1)));
}

#[test]
fn a_member_with_a_gap_rejects_nonces_of_that_time() {
    let members = three();
    let before = members[0].nonce(1, 1);
    assert!(members[0].accepts(2, &before, Some(1)));
    assert!(members[0].windows.poll_uses(at(3)).is_some(), "it is lost on the way");
    exchange(&members, 600);
    assert!(!members[1].accepts(601, &before, Some(1)), "a replay that it has not heard of");
    assert!(!members[1].accepts(601, &members[0].nonce(601, 2), Some(1)), "of the same window of issue");
    exchange(&members, 9_000);
    assert!(members[1].accepts(9_001, &members[0].nonce(9_001, 3), Some(1)));
}

#[test]
fn a_new_nonce_after_a_gap_is_accepted() {
    let mut members = three();
    let old = members[1].nonce(1, 1);
    members[0] = Member::begun(1, members[0].issuer.clock_origin_ms + 1_000);
    exchange(&members, 2);
    assert!(!members[1].accepts(3, &old, Some(1)), "the process that is gone may have accepted it");
    let new = members[1].nonce(4, 2);
    assert!(members[1].accepts(5, &new, Some(1)), "in the same window of issue");
    exchange(&members, 6);
    assert!(members[2].accepts(7, &new, Some(2)) && !members[2].accepts(7, &new, Some(1)));
    // A member that joins here has not learned of the first use.
    let joined = Member::new(4);
    let message = members[1].windows.poll_uses(at(600)).expect("it is time");
    joined.windows.handle_uses(at(600), &message);
    joined.windows.confirm_uses(None, at(600));
    assert!(!joined.accepts(601, &new, Some(1)));
    let ahead = members[1].nonce(8_192, 3);
    assert!(members[1].accepts(8_200, &ahead, Some(1)));
}

#[test]
fn nonces_end_with_the_issuing_process() {
    let mut members = three();
    let nonce = members[0].nonce(1, 1);
    assert!(members[0].accepts(2, &nonce, Some(1)));
    let began_ms = members[0].issuer.clock_origin_ms + 100;
    members[0] = Member::begun(1, began_ms);
    assert!(!members[0].accepts(3, &nonce, Some(1)), "of its earlier process");
    exchange(&members, 600);
    assert!(!members[1].accepts(601, &nonce, Some(1)) && !members[2].accepts(601, &nonce, Some(2)));
    assert!(members[1].accepts(602, &members[0].nonce(601, 2), Some(1)), "all that the new one says was heard");
}

#[test]
fn other_messages_are_not_nonce_uses() {
    let members = three();
    assert!(!members[0].windows.handle_uses(at(0), &[3, 0, 0]) && !members[0].windows.handle_uses(at(0), b""));
    assert!(members[0].windows.handle_uses(at(0), b"N too short"));
    assert!(NonceWindows::new(1, 1).poll_uses(at(0)).is_none(), "who is alone has nothing to say");
}

#[test]
fn dropped_nonce_uses_are_noticed() {
    let members = three();
    let nonce = members[0].nonce(1, 1);
    for nc in 1..=u32::try_from(MAX_USES).expect("few") + 1 {
        assert!(members[0].accepts(2, &nonce, Some(nc)));
    }
    exchange(&members, 3);
    assert!(!members[1].accepts(4, &members[0].nonce(1, 2), Some(1)));
}

proptest! {
    #[test]
    fn does_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let message = [b"N".as_slice(), &bytes].concat();
        prop_assert!(Member::new(1).windows.handle_uses(at(0), &message));
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// A request with the nonce of one member arrives at another.
    Answer {
        to: usize,
        issuer: usize,
        request: u64,
        nc: u32,
        /// The request uses the first nonce that it got instead of a new one.
        is_old: bool,
    },
    Exchange,
    /// A message reaches only one other member, or none.
    Lose {
        from: usize,
        to: Option<usize>,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..3usize, 0..3usize, 0..4u64, 1..4u32, any::<bool>())
            .prop_map(|(to, issuer, request, nc, is_old)| Step::Answer { to, issuer, request, nc, is_old }),
        3 => Just(Step::Exchange),
        1 => (0..3usize, prop::option::of(0..3usize)).prop_map(|(from, to)| Step::Lose { from, to }),
    ]
}

proptest! {
    /// What was accepted anywhere before the last exchange is accepted nowhere after it, whatever was lost.
    #[test]
    fn no_nonce_passes_twice_after_an_exchange(steps in prop::collection::vec(step(), 1..80)) {
        let members = three();
        let mut first = BTreeMap::new();
        let mut told = BTreeSet::new();
        let mut fresh = BTreeSet::new();
        for (at_step, step) in (1u64..).zip(&steps) {
            // Every member sends something in each exchange, so gaps are noticed.
            let ms = at_step * 600;
            match *step {
                Step::Answer { to, issuer, request, nc, is_old } => {
                    // All within one window, so that without losses a request gets the same nonce again.
                    let new = members[issuer].nonce(1, request);
                    let old = first.entry((issuer, request)).or_insert_with(|| new.clone()).clone();
                    let nonce = if is_old { old } else { new };
                    if members[to].accepts(ms, &nonce, Some(nc)) {
                        prop_assert!(!told.contains(&(nonce.clone(), nc)), "twice");
                        fresh.insert((nonce, nc));
                    }
                }
                Step::Exchange => {
                    exchange(&members, ms);
                    told.append(&mut fresh);
                }
                Step::Lose { from, to } => {
                    while let Some(message) = members[from].windows.poll_uses(at(ms)) {
                        for other in to.into_iter().filter(|other| *other != from) {
                            members[other].windows.handle_uses(at(ms), &message);
                        }
                    }
                }
            }
        }
    }
}
