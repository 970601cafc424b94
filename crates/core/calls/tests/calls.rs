//! Calls as a shard reports them, in virtual time.

use std::time::Duration;

use strowger_balancer::Target;
use strowger_calls::{CHALLENGE_GRACE, CallKey, CallRecord, Calls, Limits, Reason, SESSION_GRACE, State};
use strowger_foundation::{Flow, ListenerId, TagKey, Timestamp, Transport};
use strowger_message::Message;

const HOUR: u64 = 3_600_000;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn flow() -> Flow {
    Flow::new(ListenerId(0), Transport::Udp, "192.0.2.1:5060".parse().expect("an address"))
}

fn target() -> std::net::SocketAddr {
    "[2001:db8::2]:5080".parse().expect("an address")
}

fn calls() -> Calls {
    Calls::new(&TagKey::new([7; 16]), Limits::default())
}

/// Builds a request; `from` and `to` are tags, empty for none.
fn request(method: &str, call_id: &str, from: &str, to: &str, more: &str) -> String {
    message(&format!("{method} sip:bob@example.com;x=1 SIP/2.0"), method, call_id, from, to, more)
}

fn response(status: u16, method: &str, from: &str, to: &str, more: &str) -> String {
    message(&format!("SIP/2.0 {status} Whatever"), method, "c1", from, to, more)
}

fn message(start: &str, method: &str, call_id: &str, from: &str, to: &str, more: &str) -> String {
    let tag = |tag: &str| if tag.is_empty() { String::new() } else { format!(";tag={tag}") };
    format!(
        "{start}\r\nVia: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK1\r\nMax-Forwards: 70\r\n\
         From: \"A\" <sip:alice@example.com>{}\r\nTo: <sip:bob@example.com>{}\r\nCall-ID: {call_id}\r\n\
         CSeq: 1 {method}\r\n{more}Content-Length: 0\r\n\r\n",
        tag(from),
        tag(to)
    )
}

fn parse(text: &str) -> Message<'_> {
    Message::parse(text.as_bytes()).expect("valid")
}

fn begin(calls: &mut Calls, now: Timestamp) -> CallKey {
    calls.begin(now, &parse(&request("INVITE", "c1", "a", "", "")), &flow()).expect("noted")
}

fn answer(calls: &mut Calls, now: Timestamp, key: CallKey, tag: &str, more: &str) {
    calls.handle_answer(
        now,
        key,
        &parse(&response(200, "INVITE", "a", tag, more)),
        &Flow::new(ListenerId(0), Transport::Udp, target()),
    );
}

fn only(calls: &mut Calls) -> CallRecord {
    let record = calls.poll_record().expect("a record");
    assert_eq!(calls.poll_record(), None);
    assert!(calls.is_empty());
    assert_eq!(calls.poll_timeout(), None);
    calls.check_invariants();
    record
}

#[test]
fn a_call_from_invite_to_bye() {
    let mut calls = calls();
    let key = begin(&mut calls, at(1000));
    calls.handle_ringing(at(1100), key);
    calls.for_each(|view| assert_eq!((view.state, view.answered, view.target), (State::Ringing, None, None)));
    answer(&mut calls, at(5000), key, "b", "");
    calls.for_each(|view| {
        assert_eq!((view.state, view.answered, view.target), (State::Answered, Some(at(5000)), Some(target())));
        assert_eq!((view.caller, view.callee), (&b"sip:alice@example.com"[..], &b"sip:bob@example.com"[..]));
    });
    assert!(calls.poll_record().is_none());
    assert!(calls.handle_bye(at(65_000), &parse(&request("BYE", "c1", "a", "b", ""))).is_some());
    let record = only(&mut calls);
    assert_eq!((record.began, record.answered, record.ended), (at(1000), Some(at(5000)), at(65_000)));
    assert_eq!((record.reason, record.status), (Reason::CallerHungUp, Some(200)));
    assert_eq!((record.source, record.target), (flow().peer, Some(target())));
    assert_eq!((record.caller(), record.call_id()), (&b"sip:alice@example.com"[..], &b"c1"[..]));
    assert!(calls.handle_bye(at(65_001), &parse(&request("BYE", "c1", "a", "b", ""))).is_none(), "a call ends once");
}

#[test]
fn setup_times_count_each_call_once_by_its_result() {
    let mut calls = calls();
    let key = begin(&mut calls, at(1000));
    calls.handle_ringing(at(1100), key);
    calls.handle_ringing(at(1300), key);
    answer(&mut calls, at(5000), key, "b", "");
    answer(&mut calls, at(6000), key, "c", "");
    calls.handle_bye(at(7000), &parse(&request("BYE", "c1", "a", "b", ""))).expect("it ends the call");
    // A challenge is no result.
    let key = begin(&mut calls, at(10_000));
    calls.handle_failure(at(10_001), key, 407, None);
    assert_eq!(begin(&mut calls, at(10_002)), key);
    calls.handle_failure(at(10_010), key, 486, Some(target()));
    let key = begin(&mut calls, at(20_000));
    calls.handle_cancel(at(20_500), key);
    calls.handle_failure(at(20_600), key, 487, Some(target()));
    let times = calls.setup_times();
    let all = [&times.ringing, &times.answered, &times.rejected, &times.cancelled];
    assert_eq!(all.map(|times| times.counts().iter().sum::<u64>()), [1, 1, 1, 1]);
    assert_eq!(all.map(|times| times.sum().as_millis()), [100, 4000, 10, 600]);
}

#[test]
fn a_callees_bye_has_the_tags_swapped() {
    let mut calls = calls();
    let key = begin(&mut calls, at(0));
    answer(&mut calls, at(10), key, "b", "");
    assert!(calls.handle_bye(at(20), &parse(&request("BYE", "c1", "b", "a", ""))).is_some());
    assert_eq!(only(&mut calls).reason, Reason::CalleeHungUp);
}

#[test]
fn a_bye_hands_out_the_call_guard_and_other_ends_release_it() {
    let balanced = Target::new("pool", b"sip:192.0.2.2");
    let mut calls = calls();
    let with_seat = |calls: &mut Calls| {
        let key = begin(calls, at(0));
        answer(calls, at(10), key, "b", "");
        calls.assign_target(key, balanced.begin_call());
    };
    for (from, to, by) in [("a", "b", Reason::CallerHungUp), ("b", "a", Reason::CalleeHungUp)] {
        with_seat(&mut calls);
        let ended = calls.handle_bye(at(20), &parse(&request("BYE", "c1", from, to, ""))).expect("it ends the call");
        assert_eq!(only(&mut calls).reason, by, "the call is over, and told");
        assert_eq!((ended.by, balanced.calls()), (by, 1), "who has the seat decides for how long it counts");
        drop(ended);
        assert_eq!(balanced.calls(), 0);
    }
    with_seat(&mut calls);
    calls.handle_timeout(at(13 * HOUR));
    assert_eq!((only(&mut calls).reason, balanced.calls()), (Reason::Lost, 0));
}

#[test]
fn only_the_first_answered_dialog_of_a_fork_is_the_call() {
    let mut calls = calls();
    let key = begin(&mut calls, at(0));
    answer(&mut calls, at(10), key, "b", "");
    answer(&mut calls, at(12), key, "late", "");
    assert!(
        calls.handle_bye(at(20), &parse(&request("BYE", "c1", "a", "late", ""))).is_none(),
        "the caller ends what it does not want"
    );
    assert!(calls.handle_bye(at(20), &parse(&request("BYE", "c1", "stranger", "b", ""))).is_none());
    assert!(calls.handle_bye(at(20), &parse(&request("BYE", "c2", "a", "b", ""))).is_none());
    assert!(calls.handle_bye(at(30), &parse(&request("BYE", "c1", "a", "b", ""))).is_some());
    let record = only(&mut calls);
    assert_eq!((record.answered, record.ended), (Some(at(10)), at(30)));
    assert_eq!(calls.counters().answered, 1);
}

#[test]
fn unanswered_calls_say_why() {
    let mut calls = calls();
    let key = begin(&mut calls, at(0));
    calls.handle_failure(at(40), key, 486, Some(target()));
    let busy = only(&mut calls);
    assert_eq!((busy.reason, busy.status, busy.answered), (Reason::Rejected, Some(486), None));
    assert_eq!(busy.target, Some(target()));

    let key = begin(&mut calls, at(100));
    calls.handle_ringing(at(110), key);
    calls.handle_cancel(at(200), key);
    assert!(calls.poll_record().is_none(), "it may yet be answered");
    calls.handle_failure(at(210), key, 487, Some(target()));
    let cancelled = only(&mut calls);
    assert_eq!((cancelled.reason, cancelled.status, cancelled.ended), (Reason::Cancelled, Some(487), at(210)));
}

#[test]
fn a_late_cancel_is_ignored() {
    let mut calls = calls();
    let key = begin(&mut calls, at(0));
    calls.handle_cancel(at(5), key);
    answer(&mut calls, at(10), key, "b", "");
    calls.handle_failure(at(11), key, 487, None);
    assert!(calls.poll_record().is_none());
    assert!(calls.handle_bye(at(20), &parse(&request("BYE", "c1", "a", "b", ""))).is_some());
    assert_eq!(only(&mut calls).reason, Reason::CallerHungUp);
}

#[test]
fn a_retried_challenged_invite_is_one_call() {
    let mut calls = calls();
    let key = begin(&mut calls, at(0));
    calls.handle_failure(at(10), key, 407, Some(target()));
    calls.for_each(|view| assert_eq!(view.state, State::Challenged));
    assert_eq!(begin(&mut calls, at(20)), key);
    calls.for_each(|view| assert_eq!((view.state, view.began), (State::Trying, at(0))));
    calls.handle_failure(at(60), key, 603, Some(target()));
    let record = only(&mut calls);
    assert_eq!((record.began, record.status), (at(0), Some(603)));

    let key = begin(&mut calls, at(100));
    calls.handle_failure(at(110), key, 401, None);
    calls.handle_timeout(at(109) + CHALLENGE_GRACE);
    assert_eq!(calls.len(), 1, "there is time yet");
    calls.handle_timeout(at(110) + CHALLENGE_GRACE);
    let record = only(&mut calls);
    assert_eq!((record.reason, record.status, record.target), (Reason::Rejected, Some(401), None));
}

#[test]
fn a_looped_invite_is_one_call_that_ends_with_its_outer_leg() {
    let mut calls = calls();
    let outer = begin(&mut calls, at(0));
    let inner = begin(&mut calls, at(1));
    assert_eq!((outer, calls.len()), (inner, 1));
    calls.handle_failure(at(5), inner, 480, Some(target()));
    assert!(calls.poll_record().is_none(), "the outer one may try elsewhere");
    calls.handle_failure(at(6), outer, 404, Some(target()));
    assert_eq!(only(&mut calls).status, Some(404));
}

#[test]
fn an_expired_session_timer_ends_the_call_and_a_refresh_delays_it() {
    let mut calls = calls();
    let key = begin(&mut calls, at(0));
    answer(&mut calls, at(0), key, "b", "Session-Expires: 600;refresher=uac\r\n");
    // The callee refreshes; the interval in the response applies.
    calls.handle_refresh(at(300_000), &parse(&request("UPDATE", "c1", "b", "a", "x: 3600\r\n")));
    calls.handle_refresh(at(300_050), &parse(&response(200, "UPDATE", "b", "a", "x: 1200;refresher=uas\r\n")));
    let due = calls.poll_timeout().expect("armed").at;
    // The wheel may wake up early; no call ends before its time.
    let over = at(300_050 + 1_200_000) + SESSION_GRACE;
    assert!(due <= over);
    calls.handle_timeout(at(300_050 + 1_200_000));
    assert_eq!(calls.len(), 1);
    calls.handle_timeout(over);
    let record = only(&mut calls);
    assert_eq!((record.reason, record.ended), (Reason::SessionExpired, at(1_500_050)));
}

#[test]
fn a_refresh_request_without_its_response_counts() {
    let mut calls = calls();
    let key = begin(&mut calls, at(0));
    answer(&mut calls, at(0), key, "b", "x: 600\r\n");
    calls.handle_refresh(at(300_000), &parse(&request("INVITE", "c1", "a", "b", "x: 900\r\n")));
    calls.handle_timeout(at(300_000 + 899_000) + SESSION_GRACE);
    assert_eq!(calls.len(), 1);
    calls.handle_timeout(at(300_000 + 900_000) + SESSION_GRACE);
    assert_eq!(only(&mut calls).ended, at(1_200_000));
}

#[test]
fn only_a_2xx_without_session_expires_turns_the_session_timer_off() {
    let mut calls = calls();
    let key = begin(&mut calls, at(0));
    answer(&mut calls, at(0), key, "b", "x: 600\r\n");
    calls.handle_refresh(at(1000), &parse(&response(200, "INFO", "a", "b", "")));
    calls.handle_refresh(at(1000), &parse(&request("INFO", "c1", "a", "b", "")));
    calls.handle_refresh(at(1000), &parse(&response(491, "INVITE", "a", "b", "")));
    calls.handle_timeout(at(600_000) + SESSION_GRACE);
    assert_eq!(only(&mut calls).reason, Reason::SessionExpired);

    let key = begin(&mut calls, at(HOUR));
    answer(&mut calls, at(HOUR), key, "b", "x: 600\r\n");
    calls.handle_refresh(at(HOUR + 1000), &parse(&response(200, "INVITE", "a", "b", "")));
    calls.handle_timeout(at(2 * HOUR));
    assert_eq!(calls.len(), 1, "the parties have agreed on no timer");
}

#[test]
fn a_silent_call_is_lost_after_twelve_hours() {
    let mut calls = calls();
    let key = begin(&mut calls, at(0));
    answer(&mut calls, at(0), key, "b", "");
    calls.handle_refresh(at(HOUR), &parse(&request("INFO", "c1", "a", "b", "")));
    calls.handle_timeout(at(12 * HOUR));
    assert_eq!(calls.len(), 1);
    calls.handle_timeout(at(13 * HOUR));
    let record = only(&mut calls);
    assert_eq!((record.reason, record.ended, record.status), (Reason::Lost, at(13 * HOUR), Some(200)));
}

#[test]
fn other_requests_begin_no_call() {
    let mut calls = calls();
    for text in [request("INVITE", "c1", "a", "b", ""), request("OPTIONS", "c1", "a", "", "")] {
        assert_eq!(calls.begin(at(0), &parse(&text), &flow()), None);
    }
    assert_eq!(calls.counters().overflow, 0);
}

#[test]
fn a_full_table_counts_untracked_calls_and_expires_in_batches() {
    let limits = Limits { calls: 100, age: Duration::from_secs(1) };
    let mut calls = Calls::new(&TagKey::new([7; 16]), limits);
    for number in 0..150 {
        let text = request("INVITE", &format!("c{number}"), "a", "", "");
        assert_eq!(calls.begin(at(0), &parse(&text), &flow()).is_some(), number < 100);
    }
    assert_eq!((calls.len(), calls.counters().overflow), (100, 50));
    calls.handle_timeout(at(1000));
    assert_eq!(calls.len(), 100 - 64, "the work of one wake-up is bounded");
    assert!(calls.poll_timeout().expect("more is due").at <= at(1000));
    calls.handle_timeout(at(1000));
    let records: Vec<_> = std::iter::from_fn(|| calls.poll_record()).collect();
    assert_eq!(records.len(), 100);
    assert!(records.iter().all(|record| record.reason == Reason::Lost && record.status.is_none()));
    calls.check_invariants();
}

/// Compares with a list of calls over a random history.
#[test]
fn the_table_agrees_with_a_plain_list() {
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = move |bound: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % bound
    };
    let mut calls = calls();
    let mut model: Vec<(u64, CallKey)> = Vec::new();
    for number in 0..20_000 {
        let now = at(number);
        let grows = number % 4000 < 2500;
        if next(10) < if grows { 7 } else { 2 } {
            let text = request("INVITE", &format!("c{number}"), "a", "", "");
            model.push((number, calls.begin(now, &parse(&text), &flow()).expect("noted")));
        } else if !model.is_empty() {
            let (id, key) = model.swap_remove(usize::try_from(next(model.len() as u64)).expect("small"));
            calls.handle_failure(now, key, 486, None);
            let record = calls.poll_record().expect("ended");
            assert_eq!(record.call_id(), format!("c{id}").as_bytes());
        }
        assert_eq!(calls.len(), model.len());
        if number % 500 == 0 {
            calls.check_invariants();
        }
    }
}
