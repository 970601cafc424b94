//! Callers of an overloaded server, in virtual time: what they retransmit, when they retry, and what is counted.

use std::time::Duration;

use strowger_foundation::Timestamp;

use super::cases::{Recorder, T0, pass, receive, response, setup};
use super::{Driver, EndedSession};
use crate::meter::Meter;
use crate::metrics::Calls;
use crate::script::{MethodId, SessionResult};
use crate::workload::{CallTimes, caller, registering};

fn at(millis: u64) -> Timestamp {
    T0 + Duration::from_millis(millis)
}

fn caller_with(retries: u8) -> (Driver, Recorder) {
    let mut setup = setup(vec![caller(&CallTimes::default()).expect("built in")]);
    setup.retries = retries;
    (Driver::new(setup), Recorder::default())
}

/// Advances time and returns when each message was sent.
fn sent_until(driver: &mut Driver, end: Timestamp, out: &mut Recorder) -> Vec<(u128, String)> {
    let mut all = Vec::new();
    while let Some(next) = driver.poll_timeout().filter(|next| *next <= end) {
        driver.handle_timeout(next, out);
        let method = |line: String| line.split(' ').next().unwrap_or_default().to_owned();
        all.extend(out.lines().into_iter().map(|line| ((next - T0).as_millis(), method(line))));
    }
    all
}

fn calls(meter: &Meter) -> &Calls {
    &meter.metrics.calls
}

#[test]
fn an_unanswered_invite_is_sent_seven_times_in_64_t1() {
    let (mut driver, mut out) = caller_with(0);
    driver.begin(T0, 0, (1, 2), &mut out).expect("room");
    out.next();
    let sent = sent_until(&mut driver, at(60_000), &mut out);
    assert_eq!(sent.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [500, 1_500, 3_500, 7_500, 15_500, 31_500]);
    assert!(sent.iter().all(|(_, method)| method == "INVITE"));
    let meter = driver.meter();
    assert_eq!((meter.began.lost, calls(meter).timed_out, calls(meter).in_progress()), (1, 1, 0));
}

#[test]
fn a_503_is_retried_after_its_retry_after_and_no_sooner() {
    let (mut driver, mut out) = caller_with(1);
    driver.begin(T0, 0, (1, 2), &mut out).expect("room");
    let first = out.next().2;
    let refusal = response(&first, 503, "Retry-After: 7 (busy);duration=60\r\n");
    receive(&mut driver, at(100), &refusal, &mut out);
    assert!(out.next().2.starts_with("ACK "));
    // The ACK was lost.
    receive(&mut driver, at(600), &refusal, &mut out);
    assert!(out.next().2.starts_with("ACK "));
    assert_eq!(sent_until(&mut driver, at(7_099), &mut out), []);
    assert_eq!((driver.session_count(), calls(driver.meter()).tried_again), (1, 1));
    driver.handle_timeout(at(7_101), &mut out);
    let again = out.next().2;
    assert!(again.starts_with("INVITE ") && again.contains("CSeq: 2 INVITE"), "{again}");
    // A copy of the old refusal changes nothing.
    receive(&mut driver, at(7_200), &refusal, &mut out);
    assert!(out.next().2.contains("CSeq: 1 ACK"));
    receive(&mut driver, at(7_301), &response(&again, 200, ""), &mut out);
    let (ack, bye) = (out.next().2, out.next().2);
    assert!(ack.starts_with("ACK ") && bye.starts_with("BYE "));
    receive(&mut driver, at(7_310), &response(&bye, 200, ""), &mut out);
    let calls = calls(driver.meter());
    assert_eq!((calls.begun, calls.answered, calls.ended_by_bye, calls.refused_503), (1, 1, 1, 0));
    let setup = calls.setup.max();
    assert!(setup.abs_diff(Duration::from_millis(200)) < Duration::from_millis(4), "from its own INVITE: {setup:?}");
    assert_eq!((driver.meter().began.carried, driver.session_count()), (1, 0));
}

#[test]
fn a_503_without_retries_or_retry_after_is_a_rejection() {
    for (retries, more, refusals) in [(0, "Retry-After: 1\r\n", 1), (3, "", 1), (2, "Retry-After: 1\r\n", 3)] {
        let (mut driver, mut out) = caller_with(retries);
        driver.begin(T0, 0, (1, 2), &mut out).expect("room");
        let mut count = 0;
        for second in 0..10 {
            pass(&mut driver, second, &mut out);
            while let Some((_, _, invite)) = out.sent.pop_front() {
                if invite.starts_with("INVITE ") {
                    count += 1;
                    receive(&mut driver, T0 + Duration::from_secs(second), &response(&invite, 503, more), &mut out);
                }
            }
        }
        let meter = driver.meter();
        assert_eq!((count, calls(meter).refused_503, calls(meter).tried_again), (refusals, 1, refusals - 1));
        assert_eq!((meter.failures[&SessionResult::Refused(503)], driver.session_count()), (1, 0));
        assert!(meter.began.add_up());
    }
}

#[test]
fn an_in_dialog_request_is_not_retried() {
    let (mut driver, mut out) = caller_with(3);
    driver.begin(T0, 0, (1, 2), &mut out).expect("room");
    let invite = out.next().2;
    receive(&mut driver, T0, &response(&invite, 200, ""), &mut out);
    let bye = out.sent.pop_back().expect("a BYE").2;
    receive(&mut driver, T0, &response(&bye, 503, "Retry-After: 1\r\n"), &mut out);
    let calls = calls(driver.meter());
    assert_eq!((calls.answered, calls.ended_otherwise, calls.refused_503, driver.session_count()), (1, 1, 0, 0));
}

#[test]
fn call_outcomes_are_distinguished() {
    let (mut driver, mut out) = caller_with(0);
    let invites: Vec<_> = (0..6)
        .map(|user| {
            driver.begin(T0, 0, (user, 9), &mut out).expect("room");
            out.next().2
        })
        .collect();
    // Two are answered, one of which hangs up without getting a response; others are refused or get no answer; the
    // last rings.
    for (invite, status) in invites.iter().zip([200, 200, 408, 486]) {
        receive(&mut driver, at(50), &response(invite, status, ""), &mut out);
    }
    receive(&mut driver, at(50), &response(&invites[5], 180, ""), &mut out);
    let bye = out.sent.iter().find(|(_, _, text)| text.starts_with("BYE ")).expect("a BYE").2.clone();
    receive(&mut driver, at(60), &response(&bye, 200, ""), &mut out);
    pass(&mut driver, 40, &mut out);
    let calls = calls(driver.meter());
    assert_eq!((calls.begun, calls.answered, calls.ended_by_bye, calls.ended_otherwise), (6, 2, 1, 1));
    assert_eq!((calls.timed_out, calls.timed_out_408, calls.refused_otherwise, calls.in_progress()), (2, 1, 1, 1));
    assert!((calls.bye_share() - 0.5).abs() < 1e-9);
}

#[test]
fn a_challenged_calls_setup_starts_at_its_first_invite() {
    let (mut driver, mut out) = caller_with(0);
    driver.begin(T0, 0, (1, 2), &mut out).expect("room");
    let first = out.next().2;
    let challenge = "Proxy-Authenticate: Digest realm=\"r\", nonce=\"n\"\r\n";
    receive(&mut driver, at(300), &response(&first, 407, challenge), &mut out);
    let again = out.sent.pop_back().expect("credentials").2;
    receive(&mut driver, at(400), &response(&again, 200, ""), &mut out);
    let setup = calls(driver.meter()).setup.max();
    assert!(setup.abs_diff(Duration::from_millis(400)) < Duration::from_millis(6), "{setup:?}");
}

#[test]
fn only_calls_started_in_the_window_are_counted() {
    let (mut driver, mut out) = caller_with(0);
    driver.begin(T0, 0, (1, 2), &mut out).expect("room");
    let inside = out.next().2;
    driver.stop_counting();
    driver.begin(T0, 0, (3, 4), &mut out).expect("room");
    let outside = out.next().2;
    for invite in [&outside, &inside] {
        receive(&mut driver, at(10), &response(invite, 200, ""), &mut out);
        let bye = out.sent.pop_back().expect("a BYE").2;
        receive(&mut driver, at(20), &response(&bye, 200, ""), &mut out);
    }
    let meter = driver.meter();
    assert_eq!((meter.began.offered, meter.began.carried, meter.began.unfinished), (1, 1, 0));
    assert_eq!((meter.sent.requests(MethodId::Invite), calls(meter).begun, calls(meter).ended_by_bye), (1, 1, 1));
    assert_eq!(driver.session_count(), 0);
    driver.restart_meter();
    driver.begin(T0, 0, (1, 2), &mut out).expect("room");
    assert_eq!(driver.meter().began.offered, 1, "counting can begin anew");
}

#[test]
fn re_registering_keeps_call_id_and_socket_and_raises_cseq() {
    let mut setup = setup(vec![registering().expect("built in")]);
    setup.locals = vec![setup.locals[0], "127.0.0.1:40001".parse().expect("an address")];
    let (mut driver, mut out) = (Driver::new(setup), Recorder::default());
    driver.watch_ends();
    let field =
        |text: &str, name: &str| text.lines().find(|line| line.starts_with(name)).map(str::to_owned).expect("a line");
    let mut cseq = 0;
    let mut seen = Vec::new();
    for _ in 0..2 {
        driver.begin_again((T0, T0), 0, (7, cseq), &mut out).expect("room");
        let (link, _, register) = out.next();
        let more = "Contact: <sip:u7@127.0.0.1:40001>;expires=60\r\nExpires: 600\r\nRetry-After: 5\r\n";
        receive(&mut driver, T0, &response(&register, 200, more), &mut out);
        let EndedSession { caller, ending, cseq: last, expires, retry_after, requests, .. } =
            driver.take_ended().expect("it ended");
        assert_eq!((caller, ending, requests, retry_after), (7, SessionResult::Carried, 1, None));
        assert_eq!(expires, Some(Duration::from_secs(60)), "what is said of its own contact");
        cseq = last;
        seen.push((link, register));
    }
    assert_eq!((seen[0].0, seen[1].0), (1, 1));
    assert_eq!(field(&seen[0].1, "Call-ID"), field(&seen[1].1, "Call-ID"));
    assert_ne!(field(&seen[0].1, "Via"), field(&seen[1].1, "Via"), "another transaction has another branch");
    assert!(seen[0].1.contains("CSeq: 1 REGISTER") && seen[1].1.contains("CSeq: 2 REGISTER"));
    driver.begin_again((T0, T0), 0, (7, cseq), &mut out).expect("room");
    let register = out.next().2;
    receive(&mut driver, T0, &response(&register, 503, "Retry-After: 5\r\n"), &mut out);
    let ended = driver.take_ended().expect("it ended");
    assert_eq!((ended.ending, ended.retry_after), (SessionResult::Refused(503), Some(Duration::from_secs(5))));
}
