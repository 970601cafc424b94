//! Bans in virtual time, and against a model.

use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use strowger_ban::{BanCause, BanList, BanPolicy, BannedSources, FailureOutcome, FullError, MAX_BANNED, MAX_SUSPECTS};
use strowger_foundation::Timestamp;

const POLICY: BanPolicy = BanPolicy {
    is_automatic: true,
    failures: 3,
    period: Duration::from_secs(60),
    duration: Duration::from_secs(100),
    max_duration: Duration::from_secs(1_000),
};

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(seconds * 1_000)
}

fn source(number: u32) -> IpAddr {
    Ipv4Addr::from(0x0A00_0000 + number).into()
}

fn list(policy: BanPolicy) -> (BanList, Arc<BannedSources>) {
    let banned = Arc::new(BannedSources::new(9));
    (BanList::new(5, policy, Arc::clone(&banned)), banned)
}

/// Lets a source fail until it is banned; returns the duration.
fn fail_until_banned(list: &mut BanList, now: Timestamp, ip: IpAddr) -> Duration {
    for _ in 1..POLICY.failures {
        assert_eq!(list.handle_failure(now, ip, || panic!("too early")), FailureOutcome::Counted);
    }
    match list.handle_failure(now, ip, || false) {
        FailureOutcome::Banned(ban) => ban.until.expect("it ends").saturating_since(now),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_source_is_banned_after_failures_within_the_period_and_until_its_time() {
    let (mut list, banned) = list(POLICY);
    list.handle_failure(at(0), source(1), || false);
    list.handle_failure(at(1), source(1), || false);
    // The period has ended, so the count begins again.
    assert_eq!(list.handle_failure(at(60), source(1), || false), FailureOutcome::Counted);
    assert!(!banned.contains(source(1)));
    list.handle_failure(at(61), source(1), || false);
    assert!(matches!(list.handle_failure(at(62), source(1), || false), FailureOutcome::Banned(_)));
    assert!(banned.contains(source(1)) && !banned.contains(source(2)));
    assert_eq!(list.poll_timeout(), Some(at(162)));
    assert!(list.handle_timeout(at(161)).is_empty() && banned.contains(source(1)));
    assert_eq!(list.handle_timeout(at(162)).len(), 1);
    assert!(!banned.contains(source(1)) && list.is_empty() && list.poll_timeout().is_none());
    assert_eq!((list.counters().banned, list.counters().ended), (1, 1));
}

#[test]
fn each_further_ban_is_twice_as_long_up_to_the_maximum_and_forgotten_after_it() {
    let (mut list, _) = list(POLICY);
    let mut now = at(0);
    for expected in [100, 200, 400, 800, 1_000, 1_000] {
        assert_eq!(fail_until_banned(&mut list, now, source(1)), Duration::from_secs(expected));
        now = list.poll_timeout().expect("it ends");
        list.handle_timeout(now);
    }
    now += POLICY.max_duration;
    assert_eq!(fail_until_banned(&mut list, now, source(1)), POLICY.duration, "forgotten");
}

#[test]
fn exempt_sources_are_spared_and_looked_up_only_at_the_limit() {
    let (mut list, banned) = list(POLICY);
    for _ in 0..2 {
        for _ in 1..POLICY.failures {
            list.handle_failure(at(0), source(1), || panic!("looked up too early"));
        }
        assert_eq!(list.handle_failure(at(0), source(1), || true), FailureOutcome::Spared);
    }
    assert!(banned.is_empty());
    assert_eq!(list.counters().spared, 2);
}

#[test]
fn commands_ban_and_unban_also_if_failures_do_not() {
    let (mut list, banned) = list(BanPolicy { is_automatic: false, ..POLICY });
    (0..100).for_each(|_| assert_eq!(list.handle_failure(at(0), source(1), || false), FailureOutcome::Counted));
    assert!(banned.is_empty());
    let prefix: IpAddr = "2001:db8::1".parse().expect("an address");
    let ban = list.add(at(0), prefix, None).expect("room");
    assert_eq!((ban.until, ban.cause, ban.network().1), (None, BanCause::Operator, 64));
    assert!(banned.contains("2001:db8::ffff".parse().expect("an address")), "one network is one source");
    // A command replaces a ban.
    let ban = list.add(at(0), prefix, Some(Duration::from_secs(5))).expect("room");
    assert_eq!((ban.until, list.len(), list.poll_timeout()), (Some(at(5)), 1, Some(at(5))));
    assert!(list.remove(prefix).is_some() && list.remove(prefix).is_none());
    assert!(banned.is_empty() && list.poll_timeout().is_none());
}

#[test]
fn an_unbanned_source_starts_anew() {
    let (mut list, _) = list(POLICY);
    fail_until_banned(&mut list, at(0), source(1));
    list.remove(source(1));
    assert_eq!(fail_until_banned(&mut list, at(1), source(1)), POLICY.duration);
}

#[test]
fn bans_are_bounded_and_overflow_is_counted() {
    let (mut list, banned) = list(POLICY);
    for number in 0..u32::try_from(MAX_BANNED).expect("small") {
        list.add(at(0), source(number), None).expect("room");
    }
    let further = source(u32::try_from(MAX_BANNED).expect("small"));
    assert_eq!(list.add(at(0), further, None), Err(FullError));
    (1..POLICY.failures).for_each(|_| _ = list.handle_failure(at(0), further, || false));
    assert_eq!(list.handle_failure(at(0), further, || false), FailureOutcome::Full);
    assert_eq!((list.counters().full, banned.len()), (1, MAX_BANNED));
    list.add(at(0), source(0), Some(POLICY.period)).expect("its own room");
    list.remove(source(0));
    list.add(at(0), further, None).expect("room again");
}

#[test]
fn suspects_are_bounded_and_forgotten() {
    let (mut list, _) = list(POLICY);
    let many = u32::try_from(MAX_SUSPECTS).expect("small");
    (0..many + 10).for_each(|number| _ = list.handle_failure(at(1), source(number), || false));
    assert_eq!((list.suspects(), list.counters().suspects_full), (MAX_SUSPECTS, 10));
    list.handle_failure(at(61), source(many), || false);
    assert_eq!(list.suspects(), 1, "all others are forgotten");
}

#[test]
fn bans_of_an_earlier_process_go_on_and_their_number_is_known() {
    let (mut old, _) = list(POLICY);
    fail_until_banned(&mut old, at(0), source(1));
    fail_until_banned(&mut old, at(50), source(2));
    let (mut list, banned) = list(POLICY);
    for ban in old.iter() {
        list.restore(at(120), *ban).expect("room");
    }
    assert!(!banned.contains(source(1)) && banned.contains(source(2)));
    assert_eq!(fail_until_banned(&mut list, at(121), source(1)), 2 * POLICY.duration);
}

/// What happens to one of a few sources.
#[derive(Clone, Copy, Debug)]
enum Action {
    Fail(u32, bool),
    Add(u32, Option<u16>),
    Remove(u32),
    Wait(u16),
}

fn action() -> impl Strategy<Value = Action> {
    let number = 0..4u32;
    prop_oneof![
        6 => (number.clone(), prop::bool::weighted(0.1)).prop_map(|(number, exempt)| Action::Fail(number, exempt)),
        1 => (number.clone(), prop::option::of(0..300u16)).prop_map(|(number, time)| Action::Add(number, time)),
        1 => number.prop_map(Action::Remove),
        2 => (0..90u16).prop_map(Action::Wait),
    ]
}

proptest! {
    /// Nobody is banned without a command or enough failures within the period; whoever is banned stays so exactly
    /// until the end; exempt sources never are.
    #[test]
    fn bans_follow_the_rules(actions in prop::collection::vec(action(), 1..200)) {
        let (mut list, banned) = list(POLICY);
        let mut now = at(0);
        // Failures since the last ban, and the end of the ban.
        let mut failures: BTreeMap<u32, Vec<Timestamp>> = BTreeMap::new();
        let mut ends: BTreeMap<u32, Option<Timestamp>> = BTreeMap::new();
        for action in actions {
            match action {
                Action::Fail(number, exempt) => {
                    let is_banned = ends.contains_key(&number);
                    if !is_banned {
                        failures.entry(number).or_default().push(now);
                    }
                    match list.handle_failure(now, source(number), || exempt) {
                        FailureOutcome::Banned(ban) => {
                            prop_assert!(!exempt && !is_banned);
                            let recent = failures.remove(&number).unwrap_or_default();
                            let recent = recent.iter().filter(|then| now.saturating_since(**then) < POLICY.period);
                            prop_assert!(recent.count() >= POLICY.failures as usize);
                            let duration = ban.until.expect("it ends").saturating_since(now);
                            prop_assert!(duration >= POLICY.duration && duration <= POLICY.max_duration);
                            ends.insert(number, ban.until);
                        }
                        FailureOutcome::Spared => {
                            prop_assert!(exempt && !is_banned);
                            failures.remove(&number);
                        }
                        FailureOutcome::Counted => {}
                        FailureOutcome::Full => prop_assert!(false, "there is room"),
                    }
                }
                Action::Add(number, time) => {
                    let time = time.map(|time| Duration::from_secs(time.into()));
                    prop_assert!(list.add(now, source(number), time).is_ok());
                    ends.insert(number, time.map(|time| now + time));
                }
                Action::Remove(number) => {
                    prop_assert_eq!(list.remove(source(number)).is_some(), ends.remove(&number).is_some());
                    failures.remove(&number);
                }
                Action::Wait(seconds) => now += Duration::from_secs(seconds.into()),
            }
            list.handle_timeout(now);
            ends.retain(|_, end| end.is_none_or(|end| now < end));
            for number in 0..4 {
                prop_assert_eq!(banned.contains(source(number)), ends.contains_key(&number));
            }
            prop_assert_eq!(list.len(), ends.len());
        }
    }
}
