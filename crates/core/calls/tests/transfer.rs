//! Calls that another process takes over: everything that follows must be as if they had stayed.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use strowger_balancer::{CallGuard, Target, TargetId};
use strowger_calls::{
    CallKey, CallRecord, Calls, EARLY_BYE_LIFETIME, ImportedCalls, Limits, MAX_EARLY_BYES, Reason, State,
};
use strowger_foundation::{Flow, ListenerId, TagKey, Timestamp, Transport};
use strowger_message::Message;

const HOUR: Duration = Duration::from_secs(3600);
/// When the other process takes over.
const HANDOVER: Timestamp = Timestamp::from_millis(3_700_000);

fn calls(limits: Limits) -> Calls {
    Calls::new(&TagKey::new([7; 16]), limits)
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(seconds * 1000)
}

/// Builds a message of the call with this number; `tags` are those of From and To, empty for none.
fn message(start: &str, method: &str, number: usize, tags: [&str; 2], more: &str) -> String {
    let tag = |tag: &str| if tag.is_empty() { String::new() } else { format!(";tag={tag}") };
    format!(
        "{start} SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK1\r\nMax-Forwards: 70\r\n\
         From: \"A\" <sip:alice{number}@example.com>{}\r\nTo: <sip:bob@example.com>{}\r\nCall-ID: call-{number}\r\n\
         Contact: <sip:alice@192.0.2.1>\r\nCSeq: 1 {method}\r\n{more}Content-Length: 0\r\n\r\n",
        tag(tags[0]),
        tag(tags[1])
    )
}

fn parse(text: &str) -> Message<'_> {
    Message::parse(text.as_bytes()).expect("valid")
}

fn flow(text: &str, transport: Transport) -> Flow {
    Flow::new(ListenerId(0), transport, text.parse().expect("an address"))
}

fn bye(number: usize, is_caller: bool) -> String {
    let tags = if is_caller { ["a", "b"] } else { ["b", "a"] };
    message("BYE sip:bob@example.com", "BYE", number, tags, "")
}

/// How a call is set up.
#[derive(Clone, Debug)]
struct Setup {
    began: u64,
    /// The answer comes after this time; `None` for a challenge with this status.
    outcome: Result<u64, u16>,
    session_s: Option<u32>,
    is_over_tls: bool,
    source_trunk: Option<String>,
    target_trunk: Option<String>,
    uri: String,
    target: Option<usize>,
    routes: usize,
    is_cancelled: bool,
    is_commanded: bool,
    /// Whether the callee hangs up.
    ends_by_callee: bool,
}

fn setup() -> impl Strategy<Value = Setup> {
    let outcome =
        prop_oneof![8 => (0_u64..300).prop_map(Ok), 2 => prop_oneof![Just(401), Just(407), Just(422)].prop_map(Err)];
    let trunk = || proptest::option::of("[a-z]{1,12}");
    let session = proptest::option::of(90_u32..7200);
    let first = (3000_u64..3300, outcome, session, any::<bool>(), trunk(), trunk());
    let second = ("sip:[0-9]{3,9}@carrier", proptest::option::of(0_usize..3), 0_usize..30);
    (first, second, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(first, second, cancelled, commanded, by)| {
            let (began, outcome, session_s, is_over_tls, source_trunk, target_trunk) = first;
            let (uri, target, routes) = second;
            Setup {
                began,
                outcome,
                session_s,
                is_over_tls,
                source_trunk,
                target_trunk,
                uri,
                target,
                routes,
                is_cancelled: cancelled && outcome.is_ok(),
                is_commanded: commanded,
                ends_by_callee: by,
            }
        },
    )
}

/// Sets a call up as described, and returns its key.
fn begin(calls: &mut Calls, targets: &[Arc<Target>], number: usize, setup: &Setup) -> CallKey {
    let invite = message("INVITE sip:bob@example.com", "INVITE", number, ["a", ""], "");
    let transport = if setup.is_over_tls { Transport::Tls } else { Transport::Udp };
    let source = flow(if setup.is_over_tls { "[2001:db8::9]:5061" } else { "192.0.2.1:5060" }, transport);
    let key = calls.begin(at(setup.began), &parse(&invite), &source).expect("tracked");
    setup.source_trunk.iter().for_each(|name| calls.set_source_trunk(key, name));
    if setup.is_cancelled {
        calls.handle_cancel(at(setup.began), key);
    }
    calls.set_target_trunk(key, setup.target_trunk.as_deref(), setup.uri.as_bytes());
    match setup.outcome {
        Ok(after) => {
            let mut more = String::new();
            setup.session_s.iter().for_each(|seconds| more = format!("Session-Expires: {seconds}\r\n"));
            for hop in 0..setup.routes {
                more.push_str(&format!("Record-Route: <sip:hop{hop}.example.com:5060;lr;transport=tcp;token=xyz>\r\n"));
            }
            let answer = message("SIP/2.0 200 OK", "INVITE", number, ["a", "b"], &more).replace(" OK SIP/2.0", " OK");
            let callee = flow("192.0.2.99:5080", Transport::Tcp);
            calls.handle_answer(at(setup.began + after), key, &parse(&answer), &callee);
        }
        Err(status) => drop(calls.handle_failure(at(setup.began + 400), key, status, Some(source.peer))),
    }
    if let Some(target) = setup.target {
        calls.assign_target(key, targets[target].begin_call());
    }
    if setup.is_commanded {
        calls.begin_ending(key);
    }
    key
}

fn targets() -> Vec<Arc<Target>> {
    (0..3).map(|number| Target::new("pool", format!("sip:192.0.2.{number}").as_bytes())).collect()
}

fn begin_call(targets: &[Arc<Target>]) -> impl FnMut(TargetId) -> Option<CallGuard> {
    |id| targets.iter().find(|target| target.id() == id).map(Target::begin_call)
}

fn export_all(calls: &Calls) -> Vec<u8> {
    let mut bytes = Vec::new();
    calls.settled().for_each(|key| assert!(calls.export(key, &mut bytes)));
    bytes
}

fn import(calls: &mut Calls, bytes: &[u8], targets: &[Arc<Target>]) -> Option<ImportedCalls> {
    calls.import(HANDOVER, bytes, begin_call(targets))
}

/// Returns everything that the operator sees of the calls, sorted.
fn listed(calls: &Calls) -> Vec<String> {
    let mut list = Vec::new();
    calls.for_each(|view| list.push(format!("{view:?}")));
    list.sort();
    list
}

/// Hangs up the calls with even numbers and lets the others expire; returns the records by Call-ID.
fn play_to_the_end(calls: &mut Calls, setups: &[Setup]) -> Vec<CallRecord> {
    for (number, setup) in setups.iter().enumerate().filter(|(number, _)| number % 2 == 0) {
        calls.handle_bye(HANDOVER + Duration::from_secs(1), &parse(&bye(number, !setup.ends_by_callee)));
    }
    while let Some(wakeup) = calls.poll_timeout() {
        calls.handle_timeout(wakeup.at);
    }
    calls.check_invariants();
    let mut records: Vec<CallRecord> = std::iter::from_fn(|| calls.poll_record()).collect();
    records.sort_by(|one, other| one.call_id().cmp(other.call_id()));
    records
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn calls_go_on_as_if_they_had_stayed(setups in proptest::collection::vec(setup(), 0..40)) {
        let (mut old, mut new) = (calls(Limits::default()), calls(Limits::default()));
        let (before, after) = (targets(), targets());
        let keys: Vec<CallKey> =
            setups.iter().enumerate().map(|(number, setup)| begin(&mut old, &before, number, setup)).collect();
        let bytes = export_all(&old);
        let imported = import(&mut new, &bytes, &after).expect("what was written");
        prop_assert_eq!(imported, ImportedCalls { added: setups.len(), known: 0, refused: 0 });
        new.check_invariants();
        prop_assert_eq!(listed(&old), listed(&new));
        for key in &keys {
            prop_assert_eq!(old.dialog_of(*key), new.dialog_of(*key));
            prop_assert_eq!(old.is_ending(*key), new.is_ending(*key));
        }
        prop_assert!(before.iter().zip(&after).all(|(before, after)| before.calls() == after.calls()));
        let expected = play_to_the_end(&mut old, &setups);
        prop_assert_eq!(expected.len(), setups.len());
        prop_assert_eq!(expected, play_to_the_end(&mut new, &setups));
        prop_assert!(after.iter().all(|target| target.calls() == 0));
    }

    #[test]
    fn damaged_bytes_never_panic(
        setups in proptest::collection::vec(setup(), 1..5),
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        end in any::<prop::sample::Index>(),
    ) {
        let mut old = calls(Limits::default());
        for (number, setup) in setups.iter().enumerate() {
            begin(&mut old, &targets(), number, setup);
        }
        let mut bytes = export_all(&old);
        for (place, byte) in edits {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        bytes.truncate(end.index(bytes.len() + 1));
        let mut new = calls(Limits::default());
        let _ = import(&mut new, &bytes, &targets());
        new.check_invariants();
        new.for_each(|view| assert!(view.began <= HANDOVER && view.answered.is_none_or(|at| at <= HANDOVER)));
        while let Some(wakeup) = new.poll_timeout() {
            new.handle_timeout(wakeup.at);
        }
        prop_assert!(new.is_empty());
    }

    #[test]
    fn any_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut new = calls(Limits::default());
        let _ = import(&mut new, &bytes, &targets());
        new.check_invariants();
    }
}

fn answered() -> Setup {
    Setup {
        began: 3000,
        outcome: Ok(5),
        session_s: None,
        is_over_tls: false,
        source_trunk: None,
        target_trunk: None,
        uri: "sip:bob@example.com".to_owned(),
        target: None,
        routes: 1,
        is_cancelled: false,
        is_commanded: false,
        ends_by_callee: false,
    }
}

#[test]
fn a_call_that_is_being_set_up_stays_until_it_is_answered() {
    let mut old = calls(Limits::default());
    let invite = message("INVITE sip:bob@example.com", "INVITE", 0, ["a", ""], "");
    let key = old.begin(at(3000), &parse(&invite), &flow("192.0.2.1:5060", Transport::Udp)).expect("tracked");
    old.handle_ringing(at(3001), key);
    let mut bytes = Vec::new();
    assert!(old.settled().next().is_none() && !old.is_settled(key) && !old.export(key, &mut bytes));
    assert!(bytes.is_empty());
    // The INVITE passes twice, and one of the two is challenged: the other may still be answered.
    old.begin(at(3002), &parse(&invite), &flow("192.0.2.1:5060", Transport::Udp));
    old.handle_failure(at(3003), key, 407, None);
    assert!(!old.is_settled(key));
    old.handle_failure(at(3004), key, 407, None);
    assert!(old.is_settled(key), "the caller may retry at the other process");
}

#[test]
fn a_transferred_call_leaves_no_record_and_no_load() {
    let (mut old, targets) = (calls(Limits::default()), targets());
    let key = begin(&mut old, &targets, 0, &Setup { target: Some(1), ..answered() });
    assert_eq!(targets[1].calls(), 1);
    old.transfer(key);
    assert!(old.is_empty() && old.poll_record().is_none() && old.poll_timeout().is_none());
    assert_eq!(targets[1].calls(), 0);
    old.check_invariants();
}

#[test]
fn a_call_at_a_target_that_is_gone_has_none() {
    let (mut old, mut new) = (calls(Limits::default()), calls(Limits::default()));
    begin(&mut old, &targets(), 0, &Setup { target: Some(1), ..answered() });
    assert_eq!(new.import(HANDOVER, &export_all(&old), |_| None).map(|imported| imported.added), Some(1));
}

#[test]
fn a_full_table_refuses_further_calls_and_counts_them() {
    let (mut old, mut new) = (calls(Limits::default()), calls(Limits { calls: 2, ..Limits::default() }));
    for number in 0..5 {
        begin(&mut old, &targets(), number, &answered());
    }
    let bytes = export_all(&old);
    assert_eq!(import(&mut new, &bytes, &targets()), Some(ImportedCalls { added: 2, known: 0, refused: 3 }));
    assert_eq!((new.len(), new.counters().overflow), (2, 3));
    assert_eq!(Calls::count_exported(HANDOVER, &bytes), Some(5));
}

#[test]
fn a_caller_who_retried_at_the_new_process_has_one_call_that_began_with_the_first_invite() {
    let (mut old, mut new) = (calls(Limits::default()), calls(Limits::default()));
    let challenged = Setup { outcome: Err(407), ..answered() };
    let key = begin(&mut old, &targets(), 0, &challenged);
    let again = message("INVITE sip:bob@example.com", "INVITE", 0, ["a", ""], "");
    assert_eq!(new.begin(at(3650), &parse(&again), &flow("192.0.2.1:5060", Transport::Udp)), Some(key));
    let imported = import(&mut new, &export_all(&old), &targets());
    assert_eq!(imported, Some(ImportedCalls { added: 0, known: 1, refused: 0 }));
    new.for_each(|view| assert_eq!((view.began, view.state), (at(3000), State::Trying)));
}

#[test]
fn a_bye_that_is_here_before_its_call_ends_it_at_its_own_time() {
    for (is_caller, reason) in [(true, Reason::CallerHungUp), (false, Reason::CalleeHungUp)] {
        let (mut old, mut new, targets) = (calls(Limits::default()), calls(Limits::default()), targets());
        begin(&mut old, &targets, 0, &Setup { target: Some(2), ..answered() });
        begin(&mut old, &targets, 1, &answered());
        let bytes = export_all(&old);
        drop(old);
        new.expect_imports();
        let hung_up = at(3690);
        assert!(new.handle_bye(hung_up, &parse(&bye(0, is_caller))).is_none());
        import(&mut new, &bytes, &targets).expect("calls");
        let record = new.poll_record().expect("it has ended");
        assert_eq!((record.call_id(), record.reason, record.ended), (&b"call-0"[..], reason, hung_up));
        assert_eq!((new.len(), targets[2].calls()), (1, 0), "the other goes on");
        new.check_invariants();
    }
}

#[test]
fn early_byes_are_bounded_and_forgotten() {
    let (mut old, mut new) = (calls(Limits::default()), calls(Limits::default()));
    begin(&mut old, &targets(), 0, &answered());
    let bytes = export_all(&old);
    // Not expected: nothing is remembered.
    new.handle_bye(at(3600), &parse(&bye(0, true)));
    new.expect_imports();
    new.handle_bye(at(3601), &parse(&bye(0, true)));
    (0..MAX_EARLY_BYES).for_each(|number| drop(new.handle_bye(at(3602), &parse(&bye(number + 1, true)))));
    import(&mut new, &bytes, &targets()).expect("calls");
    assert_eq!((new.len(), new.poll_record()), (1, None), "the first was pushed out");

    let mut later = calls(Limits::default());
    later.expect_imports();
    later.handle_bye(at(3600), &parse(&bye(0, true)));
    later.handle_bye(at(3600) + EARLY_BYE_LIFETIME + HOUR / 3600, &parse(&bye(9, true)));
    import(&mut later, &bytes, &targets()).expect("calls");
    assert_eq!((later.len(), later.poll_record()), (1, None), "it was too long ago");
}
