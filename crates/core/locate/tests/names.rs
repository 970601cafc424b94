//! The name cache, in virtual time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use strowger_foundation::{Timestamp, Transport};
use strowger_locate::{
    CachePolicy, Candidate, CandidateList, Hop, LocateError, LocateQuery, LocateResult, Lookup, MAX_HOST, MAX_NAMES,
    NameCache, RETRY_AFTER,
};

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(seconds * 1_000)
}

fn question(host: &str) -> LocateQuery {
    LocateQuery::new(host.as_bytes(), None, None, false)
}

fn found(port: u16) -> LocateResult {
    let hops = [Hop::new(Transport::Udp, ([192, 0, 2, 1], port).into())].into_iter().collect();
    Ok(Arc::new(CandidateList::new(vec![Candidate { rank: 0, priority: 0, weight: 0, hops }])))
}

fn names() -> NameCache {
    NameCache::new(CachePolicy::default(), 7)
}

fn with(policy: impl FnOnce(&mut CachePolicy)) -> NameCache {
    let mut wanted = CachePolicy::default();
    policy(&mut wanted);
    NameCache::new(wanted, 7)
}

#[test]
fn overlong_names_are_not_cached() {
    let names = names();
    for (length, kept) in [(MAX_HOST, true), (MAX_HOST + 1, false), (60_000, false)] {
        let asked = question(&"a".repeat(length));
        names.insert(at(0), &asked, Err(LocateError::NoSuchName), s(86_400));
        let expected = if kept { Lookup::Fresh(Err(LocateError::NoSuchName)) } else { Lookup::Miss };
        assert_eq!(names.lookup(at(1), &asked), expected, "{length}");
    }
    assert_eq!(names.counts().entries, 1);
}

#[test]
fn an_answer_is_fresh_for_its_ttl_and_stale_for_a_day_more() {
    let (names, asked) = (names(), question("a.example"));
    assert_eq!(names.lookup(at(0), &asked), Lookup::Miss);
    names.insert(at(0), &asked, found(1), s(60));
    assert_eq!(names.lookup(at(59), &asked), Lookup::Fresh(found(1)));
    assert_eq!(names.lookup(at(60), &asked), Lookup::Stale(found(1)));
    assert_eq!(names.lookup(at(86_400 + 59), &asked), Lookup::Stale(found(1)));
    assert_eq!(names.lookup(at(86_400 + 60), &asked), Lookup::Miss);
}

#[test]
fn a_query_is_more_than_its_host() {
    let names = names();
    let plain = question("A.Example.");
    names.insert(at(0), &plain, found(1), s(60));
    assert_eq!(names.lookup(at(1), &question("a.example")), Lookup::Fresh(found(1)));
    for other in [
        LocateQuery { port: Some(5060), ..plain.clone() },
        LocateQuery { transport: Some(Transport::Tcp), ..plain.clone() },
        LocateQuery { is_secure: true, ..plain.clone() },
        question("b.example"),
    ] {
        assert_eq!(names.lookup(at(1), &other), Lookup::Miss, "{other:?}");
    }
}

#[test]
fn only_one_caller_refreshes() {
    let (names, asked) = (names(), question("a.example"));
    names.insert(at(0), &asked, found(1), s(60));
    assert_eq!(names.lookup(at(60), &asked), Lookup::Stale(found(1)));
    assert_eq!(names.lookup(at(60), &asked), Lookup::Fresh(found(1)));
    assert_eq!(names.lookup(at(64), &asked), Lookup::Fresh(found(1)));
    // The caller that was told to refresh did not.
    assert_eq!(names.lookup(at(65), &asked), Lookup::Stale(found(1)));
    names.insert(at(66), &asked, found(2), s(60));
    assert_eq!(names.lookup(at(125), &asked), Lookup::Fresh(found(2)));
}

#[test]
fn ttls_are_clamped() {
    let names = with(|policy| {
        policy.max_ttl = s(100);
        policy.negative_ttl = s(30);
        policy.serve_stale = s(0);
    });
    let lasts = |answer: LocateResult, ttl: Duration| {
        let asked = question("a.example");
        names.clear();
        names.insert(at(0), &asked, answer, ttl);
        (0..1_000).find(|second| names.lookup(at(*second), &asked) == Lookup::Miss)
    };
    assert_eq!(lasts(found(1), s(7)), Some(7));
    assert_eq!(lasts(found(1), s(100_000)), Some(100));
    assert_eq!(lasts(found(1), s(0)), Some(1));
    assert_eq!(lasts(Err(LocateError::NoSuchName), s(10)), Some(10));
    assert_eq!(lasts(Err(LocateError::NoSuchName), s(3_600)), Some(30));
    assert_eq!(lasts(Err(LocateError::NoSuchName), s(0)), Some(1));
}

#[test]
fn an_answer_with_ttl_zero_is_not_cached() {
    let names = with(|policy| policy.min_ttl = s(0));
    let asked = question("a.example");
    names.insert(at(0), &asked, found(1), s(0));
    assert_eq!(names.lookup(at(0), &asked), Lookup::Miss);
}

#[test]
fn dns_failures_are_cached_briefly() {
    let (names, asked) = (names(), question("a.example"));
    names.insert(at(10), &asked, Err(LocateError::NoAnswer), s(0));
    assert_eq!(names.lookup(at(14), &asked), Lookup::Fresh(Err(LocateError::NoAnswer)));
    assert_eq!(names.lookup(at(15), &asked), Lookup::Miss);
}

#[test]
fn a_dns_failure_keeps_a_usable_answer() {
    let (names, asked) = (names(), question("a.example"));
    names.insert(at(0), &asked, found(1), s(60));
    names.insert(at(30), &asked, Err(LocateError::NoAnswer), s(0));
    assert_eq!(names.lookup(at(59), &asked), Lookup::Fresh(found(1)));
    assert_eq!(names.lookup(at(60), &asked), Lookup::Stale(found(1)));
    names.insert(at(62), &asked, Err(LocateError::NoAnswer), s(0));
    assert_eq!(names.lookup(at(66), &asked), Lookup::Fresh(found(1)));
    assert_eq!(names.lookup(at(67), &asked), Lookup::Stale(found(1)));
    // The DNS answers again, and the name does not exist.
    names.insert(at(68), &asked, Err(LocateError::NoSuchName), s(60));
    names.insert(at(69), &asked, Err(LocateError::NoAnswer), s(0));
    assert_eq!(names.lookup(at(70), &asked), Lookup::Fresh(Err(LocateError::NoSuchName)));
}

#[test]
fn a_disabled_cache_is_empty() {
    let names = with(|policy| policy.enabled = false);
    let asked = question("a.example");
    names.insert(at(0), &asked, found(1), s(60));
    assert_eq!(names.lookup(at(0), &asked), Lookup::Miss);
    assert_eq!(names.counts().entries, 0);
}

#[test]
fn another_policy_is_for_answers_to_come() {
    let (names, asked, later) = (names(), question("a.example"), question("b.example"));
    names.insert(at(0), &asked, found(1), s(60));
    names.set_policy(CachePolicy { serve_stale: Duration::ZERO, ..CachePolicy::default() });
    names.insert(at(0), &later, found(2), s(60));
    assert_eq!((names.lookup(at(60), &asked), names.lookup(at(60), &later)), (Lookup::Stale(found(1)), Lookup::Miss));
    names.set_policy(CachePolicy { enabled: false, ..CachePolicy::default() });
    assert_eq!(names.lookup(at(60), &asked), Lookup::Miss);
    names.set_policy(CachePolicy::default());
    assert_eq!(names.lookup(at(70), &asked), Lookup::Stale(found(1)));
}

#[test]
fn a_flood_of_names_does_not_evict_used_ones() {
    let names = names();
    let used: Vec<LocateQuery> = (0..100).map(|i| question(&format!("used{i}.example"))).collect();
    for asked in &used {
        names.insert(at(0), asked, found(1), s(3_600));
    }
    // Three times what fits, half of it invented; each name in use is looked up regularly.
    let flood = 3 * u64::try_from(MAX_NAMES).unwrap();
    for i in 0..flood {
        let answer = if i % 2 == 0 { found(2) } else { Err(LocateError::NoSuchName) };
        names.insert(at(1), &question(&format!("n{i}.example")), answer, s(3_600));
        if i % 20 == 0 {
            let asked = &used[usize::try_from(i / 20).unwrap() % used.len()];
            assert_eq!(names.lookup(at(1), asked), Lookup::Fresh(found(1)), "after {i}");
        }
    }
    let counts = names.counts();
    assert!(counts.entries <= u64::try_from(MAX_NAMES).unwrap(), "{counts:?}");
    assert_eq!(counts.entries + counts.evicted, flood + 100);
}

#[test]
fn expired_names_are_evicted_first() {
    let names = with(|policy| policy.serve_stale = s(0));
    for i in 0..2 * MAX_NAMES {
        names.insert(at(0), &question(&format!("n{i}.example")), found(2), s(1));
    }
    let evicted = names.counts().evicted;
    for i in 0..MAX_NAMES / 32 {
        names.insert(at(1), &question(&format!("m{i}.example")), found(2), s(1));
    }
    assert_eq!(names.counts().evicted, evicted);
}

#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    Insert(u8, LocateResult, u64),
    Lookup(u8),
}

fn any_step() -> impl Strategy<Value = Step> {
    let answer = prop_oneof![
        (1_u16..100).prop_map(found),
        Just(Err(LocateError::NoSuchName)),
        Just(Err(LocateError::NoAnswer)),
    ];
    prop_oneof![
        (0_u64..20).prop_map(Step::Wait),
        (0_u8..4, answer, 0_u64..30).prop_map(|(name, answer, ttl)| Step::Insert(name, answer, ttl)),
        (0_u8..4).prop_map(Step::Lookup),
    ]
}

proptest! {
    /// The cache returns the last valid answer, never an expired one, and never prefers a missing answer to a usable
    /// one.
    #[test]
    fn matches_a_model(steps in proptest::collection::vec(any_step(), 0..60)) {
        let names = with(|policy| policy.serve_stale = s(40));
        let mut now = 0;
        // The valid answer, the end of its freshness and the end of its use.
        let mut model: BTreeMap<u8, (LocateResult, u64, u64)> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Wait(seconds) => now += seconds,
                Step::Insert(name, answer, ttl) => {
                    names.insert(at(now), &question(&format!("n{name}")), answer.clone(), s(ttl));
                    let usable = model.get(&name).is_some_and(|(_, _, until)| now < *until);
                    if answer == Err(LocateError::NoAnswer) && usable {
                        continue;
                    }
                    let fresh = match answer {
                        Err(LocateError::NoAnswer) => now + RETRY_AFTER.as_secs(),
                        _ => now + ttl.max(1),
                    };
                    let stale = if answer.is_ok() && ttl > 0 { 40 } else { 0 };
                    model.insert(name, (answer, fresh, fresh + stale));
                }
                Step::Lookup(name) => match names.lookup(at(now), &question(&format!("n{name}"))) {
                    Lookup::Miss => prop_assert!(model.get(&name).is_none_or(|(_, _, until)| now >= *until)),
                    Lookup::Fresh(said) => {
                        let (answer, _, until) = &model[&name];
                        prop_assert_eq!(&said, answer);
                        prop_assert!(now < *until);
                    }
                    Lookup::Stale(said) => {
                        let (answer, fresh, until) = &model[&name];
                        prop_assert_eq!(&said, answer);
                        prop_assert!((*fresh..*until).contains(&now));
                    }
                },
            }
        }
    }
}
