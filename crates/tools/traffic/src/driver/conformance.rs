//! What RFC 3261 requires of either end beside the usual course of a call, in virtual time: retransmissions, forks,
//! routes, timers, several challengers.

use std::net::SocketAddr;
use std::time::Duration;

use strowger_foundation::Timestamp;

use super::cases::{
    PHONE, PROXY, Recorder, T0, address, callee_of, pass, receive, request, response, ringing, seconds, setup,
};
use super::{Driver, Setup};
use crate::meter::ResponseClass;
use crate::script::{Extract, MethodId, Pattern, Script, ScriptBuilder, SessionResult};
use crate::workload::{CallTimes, Faults, MidCall, MidCallRequest, Workload, caller, registering};

fn at(millis: u64) -> Timestamp {
    T0 + Duration::from_millis(millis)
}

fn caller_of(times: &CallTimes) -> Driver {
    Driver::new(setup(vec![caller(times).expect("built in")]))
}

fn field<'a>(message: &'a str, name: &str) -> &'a str {
    let mut values = message.lines().filter_map(|line| line.split_once(": ").filter(|(got, _)| *got == name));
    values.next().unwrap_or_else(|| panic!("{name} in {message}")).1
}

/// Returns a response with another tag.
fn of_fork(request: &str, status: u16, tag: &str, contact: &str) -> String {
    response(request, status, "").replace(";tag=x", &format!(";tag={tag}")).replace("u1@127.0.0.1:5070", contact)
}

#[test]
fn a_late_copy_of_an_invite_starts_no_call() {
    let (mut driver, mut out) = ringing(&CallTimes::default());
    receive(&mut driver, T0, &request("ACK", 1, &[PROXY], ";tag=x"), &mut out);
    receive(&mut driver, T0, &request("BYE", 2, &[PROXY], ";tag=x"), &mut out);
    assert_eq!((driver.session_count(), driver.meter().answered.carried), (0, 1));
    out.sent.clear();
    let copy = request("INVITE", 1, &[PROXY, PHONE], "");
    for millis in [1, 10_000, 31_000] {
        receive(&mut driver, at(millis), &copy, &mut out);
    }
    pass(&mut driver, 60, &mut out);
    assert_eq!(out.lines(), Vec::<String>::new());
    let meter = driver.meter();
    assert_eq!((meter.answered.sent, meter.repeats_received, meter.unexpected), (1, 3, 0));
    // Another request of the same call is not a copy, nor is the same one much later.
    receive(&mut driver, at(61_000), &request("INVITE", 3, &[PROXY, PHONE], ""), &mut out);
    receive(&mut driver, at(200_000), &copy.replace("c1", "c2"), &mut out);
    assert_eq!(driver.session_count(), 2);
    assert_eq!(driver.forgotten(), 0);
}

#[test]
fn a_copy_of_a_cancelled_invite_starts_no_call() {
    let (mut driver, mut out) = ringing(&CallTimes { ring: Some(seconds(60)), hold: None, reaction: None });
    receive(&mut driver, T0, &request("CANCEL", 1, &[PROXY], ""), &mut out);
    receive(&mut driver, T0, &request("ACK", 1, &[PROXY], ";tag=x"), &mut out);
    receive(&mut driver, at(500), &request("INVITE", 1, &[PROXY, PHONE], ""), &mut out);
    assert_eq!((driver.session_count(), driver.meter().answered.sent), (0, 1));
}

#[test]
fn timer_e_continues_at_t2_after_a_provisional_response() {
    let sent_at = |has_provisional: bool| {
        let (mut driver, mut out) = (Driver::new(setup(vec![registering().expect("built in")])), Recorder::default());
        driver.begin(T0, 0, (1, 1), &mut out).expect("room");
        let (_, _, register) = out.next();
        if has_provisional {
            receive(&mut driver, T0, &response(&register, 100, ""), &mut out);
        }
        let mut times = Vec::new();
        while let Some(at) = driver.poll_timeout().filter(|at| *at < T0 + Duration::from_secs(14)) {
            driver.handle_timeout(at, &mut out);
            times.extend(out.sent.drain(..).map(|_| (at - T0).as_millis()));
        }
        times
    };
    assert_eq!(sent_at(false), [500, 1_500, 3_500, 7_500, 11_500]);
    assert_eq!(sent_at(true), [500, 4_500, 8_500, 12_500]);
}

#[test]
fn a_repeated_ack_keeps_its_branch() {
    let (mut driver, mut out) = (caller_of(&CallTimes::default()), Recorder::default());
    driver.begin(T0, 0, (1, 2), &mut out).expect("room");
    let ok = response(&out.next().2, 200, "");
    receive(&mut driver, T0, &ok, &mut out);
    let (ack, bye) = (out.next().2, out.next().2);
    assert!(ack.starts_with("ACK ") && bye.starts_with("BYE "));
    assert_ne!(field(&ack, "Via"), field(&bye, "Via"));
    receive(&mut driver, T0, &ok, &mut out);
    assert_eq!(out.next().2, ack);
}

#[test]
fn repeated_rejections_are_acknowledged() {
    let (mut driver, mut out) = (caller_of(&CallTimes::default()), Recorder::default());
    driver.begin(T0, 0, (1, 2), &mut out).expect("room");
    let invite = out.next().2;
    let challenge = "Proxy-Authenticate: Digest realm=\"r\", nonce=\"n\"\r\n";
    let challenge = response(&invite, 407, challenge);
    receive(&mut driver, T0, &challenge, &mut out);
    let (to_first, again) = (out.next().2, out.next().2);
    assert!(again.starts_with("INVITE ") && to_first.contains("CSeq: 1 ACK"));
    // The ACK to the challenge was lost.
    receive(&mut driver, T0, &challenge, &mut out);
    let copy = out.next().2;
    assert_eq!((field(&copy, "CSeq"), field(&copy, "Via")), ("1 ACK", field(&to_first, "Via")));
    let busy = response(&again, 486, "");
    receive(&mut driver, T0, &busy, &mut out);
    let ack = out.next().2;
    assert_eq!((driver.session_count(), driver.meter().began.failed), (0, 1));
    for millis in [500, 1_500, 31_000] {
        receive(&mut driver, at(millis), &busy, &mut out);
        let copy = out.next().2;
        assert_eq!(copy.lines().next(), ack.lines().next());
        for name in ["Via", "To", "From", "Call-ID", "CSeq"] {
            assert_eq!(field(&copy, name), field(&ack, name));
        }
    }
    // A response that belongs to none of our calls gets no ACK.
    receive(&mut driver, at(500), &busy.replace("Call-ID: ", "Call-ID: z"), &mut out);
    assert_eq!(out.lines(), Vec::<String>::new());
    let meter = driver.meter();
    assert_eq!((meter.repeats_received, meter.repeats_sent, meter.late), (4, 4, 1));
    assert!(meter.began.add_up());
}

/// A callee that hangs up: it takes its dialog from the INVITE.
fn hanging_up() -> Script {
    let mut script = ScriptBuilder::new("hanging up");
    let (invited, talking, done) = (script.label(), script.label(), script.label());
    let ok = "SIP/2.0 200 OK\n[answer]\nContact: <sip:[local]>\nContent-Length: 0\n";
    let bye = "BYE [next_url] SIP/2.0\nVia: SIP/2.0/UDP [local];branch=[branch]\n[routes]\nMax-Forwards: 70\n\
        From: <sip:u1@b>;tag=[local_tag]\nTo: [peer]\nCall-ID: c1\nCSeq: [cseq] BYE\nContent-Length: 0\n";
    script.wait(&[(Pattern::Request(MethodId::Invite), Extract::DIALOG, Some(invited))]);
    script.place_label(invited).send(ok).wait(&[(Pattern::Request(MethodId::Ack), Extract::NOTHING, Some(talking))]);
    script.place_label(talking).send(bye).wait(&[
        (Pattern::SUCCESS, Extract::NOTHING, Some(done)),
        (Pattern::Request(MethodId::Info), Extract::NOTHING, None),
    ]);
    script.place_label(done).end(SessionResult::Carried);
    script.build().expect("a script")
}

#[test]
fn callee_requests_go_to_the_remote_target_and_responses_to_the_source() {
    let to = |more: &str| -> (SocketAddr, SocketAddr, SocketAddr) {
        let mut setup = setup(vec![hanging_up()]);
        setup.answers = vec![(MethodId::Invite, 0)];
        let (mut driver, mut out) = (Driver::new(setup), Recorder::default());
        let invite = request("INVITE", 1, &[PROXY, PHONE], "");
        receive(&mut driver, T0, &invite.replace("Max-Forwards", &format!("{more}Max-Forwards")), &mut out);
        let (_, answered, ok) = out.next();
        assert!(ok.starts_with("SIP/2.0 200 OK"));
        let ack = request("ACK", 1, &["127.0.0.1:88;branch=z9hG4bKa"], ";tag=x");
        driver.handle_message(T0, T0, (0, address("127.0.0.1:88")), ack.as_bytes(), &mut out);
        let (_, hung_up, bye) = out.next();
        assert!(bye.starts_with("BYE "));
        let options = request("OPTIONS", 2, &["127.0.0.1:77;branch=z9hG4bKo"], ";tag=x");
        driver.handle_message(T0, T0, (0, address("127.0.0.1:77")), options.as_bytes(), &mut out);
        let (_, told, _) = out.next();
        pass(&mut driver, 1, &mut out);
        assert_eq!(out.next().1, hung_up, "the repeated BYE");
        (answered, hung_up, told)
    };
    let (proxy, phone, asker) = (address("127.0.0.1:9"), address("127.0.0.5:55"), address("127.0.0.1:77"));
    assert_eq!(to("Contact: <sip:a@127.0.0.5:55>\r\n"), (proxy, phone, asker));
    let through = "Record-Route: <sip:127.0.0.1:9;lr>\r\nContact: <sip:a@127.0.0.5:55>\r\n";
    assert_eq!(to(through), (proxy, proxy, asker));
}

#[test]
fn each_dialog_of_a_forked_invite_is_acknowledged_and_one_is_kept() {
    let (mut driver, mut out) =
        (caller_of(&CallTimes { ring: None, hold: Some(seconds(5)), reaction: None }), Recorder::default());
    driver.begin(T0, 0, (1, 2), &mut out).expect("room");
    let invite = out.next().2;
    receive(&mut driver, T0, &of_fork(&invite, 200, "aaa", "a@127.0.0.1:5071"), &mut out);
    let (_, to, ack) = out.next();
    assert_eq!((field(&ack, "To"), to), ("<sip:u1@b>;tag=aaa", address("127.0.0.1:5071")));
    let other = of_fork(&invite, 200, "bbb", "b@127.0.0.1:5072");
    receive(&mut driver, T0, &other, &mut out);
    let ((_, to, second), (_, _, bye)) = (out.next(), out.next());
    assert_eq!(to, address("127.0.0.1:5072"));
    assert_eq!(second.lines().next(), Some("ACK sip:b@127.0.0.1:5072 SIP/2.0"));
    assert_eq!((field(&second, "To"), field(&second, "CSeq")), ("<sip:u1@b>;tag=bbb", "1 ACK"));
    assert!(bye.starts_with("BYE sip:b@127.0.0.1:5072 SIP/2.0\r\n") && field(&bye, "To").ends_with(";tag=bbb"));
    let branches = [&invite, &ack, &second, &bye].map(|message| field(message, "Via").to_owned());
    assert!((0..4).all(|at| !branches[..at].contains(&branches[at])), "{branches:?}");
    // It comes again if the ACK was lost.
    receive(&mut driver, T0, &other, &mut out);
    assert_eq!((out.next().2, out.next().2), (second, bye.clone()));
    receive(&mut driver, T0, &of_fork(&bye, 200, "bbb", "b@127.0.0.1:5072"), &mut out);
    assert_eq!((driver.session_count(), out.sent.len()), (1, 0));
    // The call itself continues, and its BYE waits for its own response.
    pass(&mut driver, 5, &mut out);
    let bye = out.next().2;
    assert_eq!(field(&bye, "To"), "<sip:u1@b>;tag=aaa");
    receive(&mut driver, at(5_000), &response(&bye, 200, ""), &mut out);
    assert_eq!((driver.session_count(), driver.meter().began.carried, driver.meter().repeats_received), (0, 1, 2));
}

#[test]
fn a_proxy_and_a_callee_may_both_challenge() {
    for reuses_nonces in [false, true] {
        let mut setup = setup(vec![caller(&CallTimes::default()).expect("built in")]);
        setup.reuses_nonces = reuses_nonces;
        let (mut driver, mut out) = (Driver::new(setup), Recorder::default());
        driver.begin(T0, 0, (1, 2), &mut out).expect("room");
        let mut counts = Vec::new();
        while let Some((_, _, message)) = out.sent.pop_front() {
            let count = |name: &str| message.lines().any(|line| line.starts_with(&format!("{name}: Digest ")));
            let (by_proxy, by_callee) = (count("Proxy-Authorization"), count("Authorization"));
            let answer = match message.split(' ').next() {
                Some("INVITE") if !by_proxy => {
                    response(&message, 407, "Proxy-Authenticate: Digest realm=\"p\", nonce=\"p\", qop=\"auth\"\r\n")
                }
                Some("INVITE") if !by_callee => {
                    response(&message, 401, "WWW-Authenticate: Digest realm=\"c\", nonce=\"c\", qop=\"auth\"\r\n")
                }
                Some("ACK") => continue,
                _ => response(&message, 200, ""),
            };
            counts.push((by_proxy, by_callee));
            receive(&mut driver, T0, &answer, &mut out);
        }
        assert_eq!(counts, [(false, false), (true, false), (true, true), (true, true)]);
        assert_eq!(driver.meter().began.carried, 1);
    }
}

#[test]
fn stale_is_recognized_in_any_spelling() {
    for stale in ["stale=TRUE", "stale=\"true\"", "stale=true"] {
        let (mut driver, mut out) = (caller_of(&CallTimes::default()), Recorder::default());
        driver.begin(T0, 0, (1, 2), &mut out).expect("room");
        for nonce in 0..5 {
            let invite = out.next().2;
            let more = format!("Proxy-Authenticate: Digest realm=\"p\", nonce=\"{nonce}\", {stale}\r\n");
            receive(&mut driver, T0, &response(&invite, 407, &more), &mut out);
            assert!(out.next().2.starts_with("ACK "));
        }
        assert_eq!(driver.session_count(), 1);
    }
}

#[test]
fn tags_are_found_in_any_case_and_only_as_parameters() {
    let (mut driver, mut out) = (callee_of(&CallTimes::default()), Recorder::default());
    receive(&mut driver, T0, &request("INVITE", 1, &[PROXY], ";TAG=abc"), &mut out);
    let (_, _, gone) = out.next();
    assert!(gone.starts_with("SIP/2.0 481 ") && gone.contains("To: <sip:u1@b>;TAG=abc\r\n"), "{gone}");
    let inside = request("INVITE", 1, &[PROXY], "").replace("<sip:u1@b>", "<sip:u1;tag=3@b>");
    receive(&mut driver, T0, &inside, &mut out);
    let (_, _, ringing) = out.next();
    assert!(ringing.contains("To: <sip:u1;tag=3@b>;tag="), "{ringing}");
}

#[test]
fn a_405_lists_the_allowed_methods() {
    let (mut driver, mut out) = (callee_of(&CallTimes::default()), Recorder::default());
    receive(&mut driver, T0, &request("REGISTER", 1, &[PROXY], ""), &mut out);
    let (_, _, answer) = out.next();
    assert!(answer.starts_with("SIP/2.0 405 "));
    assert_eq!(field(&answer, "Allow"), "INVITE, ACK, BYE, CANCEL, OPTIONS");
}

/// Returns a caller of the faults workload that has run until its CANCEL.
fn cancelling(name: &str) -> (Driver, Recorder, String, String) {
    let faults = Faults::parse(&format!("{name}=100%")).expect("a fault");
    let times = CallTimes::default();
    let workload = Workload::calls("test", &times).expect("built in");
    let workload = workload.with_faults(&faults, &times, &seconds(3)).expect("built in");
    let script = workload.callers.iter().position(|script| script.name == name).expect("a script");
    let mut driver = Driver::new(setup(workload.callers));
    let mut out = Recorder::default();
    driver.begin(T0, u16::try_from(script).expect("few"), (1, 2), &mut out).expect("room");
    let invite = out.next().2;
    receive(&mut driver, T0, &response(&invite, 180, ""), &mut out);
    pass(&mut driver, 3, &mut out);
    let cancel = out.next().2;
    assert!(cancel.starts_with("CANCEL "), "{cancel}");
    (driver, out, invite, cancel)
}

#[test]
fn a_cancel_counts_whichever_response_comes_first() {
    let now = at(3_000);
    for (status, after) in [(487, vec!["ACK"]), (200, vec!["ACK", "BYE"])] {
        for is_cancel_first in [true, false] {
            let (mut driver, mut out, invite, cancel) = cancelling("no-answer");
            out.sent.clear();
            let mut answers = [response(&invite, status, ""), response(&cancel, 200, "")];
            if is_cancel_first {
                answers.reverse();
            }
            answers.iter().for_each(|answer| receive(&mut driver, now, answer, &mut out));
            let sent: Vec<_> = out.sent.drain(..).map(|(_, _, text)| text).collect();
            let methods: Vec<_> = sent.iter().map(|text| text.split(' ').next().expect("a word")).collect();
            assert_eq!(methods, after);
            if let Some(bye) = sent.get(1) {
                receive(&mut driver, now, &response(bye, 200, ""), &mut out);
            }
            let meter = driver.meter();
            assert_eq!((driver.session_count(), meter.began.carried, meter.repeats_received, meter.late), (0, 1, 0, 0));
            let ends = meter.transactions.of(MethodId::Cancel);
            assert_eq!((ends.succeeded, ends.all), (1, 1), "{status} {is_cancel_first}");
            assert!(meter.answer(MethodId::Cancel, ResponseClass::Success).is_some_and(|times| times.count() == 1));
        }
    }
}

#[test]
fn an_unanswered_cancel_is_a_failure() {
    let (mut driver, mut out, invite, _) = cancelling("no-answer");
    receive(&mut driver, at(3_000), &response(&invite, 487, ""), &mut out);
    pass(&mut driver, 40, &mut out);
    assert!(out.lines().iter().filter(|line| line.starts_with("CANCEL ")).count() > 5);
    let ends = driver.meter().transactions.of(MethodId::Cancel);
    assert_eq!((driver.meter().began.lost, ends.succeeded, ends.all), (1, 0, 1));
}

#[test]
fn a_cancel_response_counts_after_the_script_moves_on() {
    let mut script = ScriptBuilder::new("hasty");
    let (answered, done) = (script.label(), script.label());
    let line = |method: &str| {
        format!(
            "{method} sip:[callee]@[domain] SIP/2.0\nVia: SIP/2.0/UDP [local];branch=[branch]\nMax-Forwards: 70\n\
             From: <sip:[caller]@[domain]>;tag=[local_tag]\nTo: <sip:b@b>\nCall-ID: [call_id]\nCSeq: [cseq] {method}\n\
             Content-Length: 0\n"
        )
    };
    script.send(&line("INVITE")).wait(&[(Pattern::SUCCESS, Extract::DIALOG, Some(answered))]);
    script.place_label(answered).send(&line("CANCEL")).send(&line("ACK")).send(&line("BYE"));
    script.wait(&[(Pattern::SUCCESS, Extract::NOTHING, Some(done))]);
    script.place_label(done).end(SessionResult::Carried);
    let mut driver = Driver::new(setup(vec![script.build().expect("a script")]));
    let mut out = Recorder::default();
    driver.begin(T0, 0, (1, 2), &mut out).expect("room");
    let invite = out.next().2;
    receive(&mut driver, T0, &response(&invite, 200, ""), &mut out);
    let (cancel, _, bye) = (out.next().2, out.next().2, out.next().2);
    let ok = response(&cancel, 200, "");
    receive(&mut driver, at(1), &ok, &mut out);
    receive(&mut driver, at(2), &ok, &mut out);
    assert_eq!((driver.session_count(), driver.meter().repeats_received), (1, 1), "the BYE is not answered by it");
    receive(&mut driver, at(3), &response(&bye, 200, ""), &mut out);
    let meter = driver.meter();
    assert_eq!((meter.began.carried, meter.transactions.of(MethodId::Cancel).succeeded), (1, 1));
    let times = meter.answer(MethodId::Cancel, ResponseClass::Success).expect("timed");
    assert!(times.max() >= Duration::from_micros(990) && times.max() < Duration::from_millis(2), "{times:?}");
}

#[test]
fn a_callee_cancelled_by_a_fault_succeeds() {
    for (fault, times) in [
        ("no-answer", CallTimes { ring: None, hold: None, reaction: None }),
        ("late-cancel", CallTimes { ring: Some(seconds(60)), hold: None, reaction: None }),
    ] {
        let faults = Faults::parse(&format!("{fault}=100%")).expect("a fault");
        let workload = Workload::calls("test", &times).expect("built in");
        let workload = workload.with_faults(&faults, &times, &seconds(3)).expect("built in");
        let class = workload.callers.iter().find(|script| script.name == fault).expect("a script").class;
        let setup = Setup { answers: workload.answers, ..setup(workload.callees) };
        let (mut driver, mut out) = (Driver::new(setup), Recorder::default());
        let invite = request("INVITE", 1, &[PROXY, PHONE], "");
        receive(&mut driver, T0, &invite.replace("tag=f", &format!("tag=f.{class}")), &mut out);
        receive(&mut driver, T0, &request("CANCEL", 1, &[PROXY], ""), &mut out);
        receive(&mut driver, T0, &request("ACK", 1, &[PROXY], ";tag=x"), &mut out);
        let meter = driver.meter();
        assert_eq!((meter.answered.carried, meter.answered.failed), (1, 0), "{fault}: {:?}", meter.failures);
    }
}

#[test]
fn a_repeated_bye_is_answered_again() {
    let workload = Workload::parse("mid-call", &[], 1.0).expect("built in");
    // The callee takes the caller's class from the tag and sends accordingly.
    let script = workload.callers.iter().find(|script| script.class > 0).expect("a script").clone();
    let (mut driver, mut out) = (Driver::new(setup(vec![script])), Recorder::default());
    driver.begin(T0, 0, (1, 2), &mut out).expect("room");
    let invite = out.next().2;
    receive(&mut driver, T0, &response(&invite, 200, ""), &mut out);
    assert!(out.next().2.starts_with("ACK "));
    let (_, tag) = field(&invite, "From").rsplit_once(";tag=").expect("a tag");
    let bye = request("BYE", 9, &[PROXY], &format!(";tag={tag}")).replace("c1", field(&invite, "Call-ID"));
    for _ in 0..2 {
        receive(&mut driver, T0, &bye, &mut out);
        let answer = out.next().2;
        assert!(answer.starts_with("SIP/2.0 200 OK"), "{answer}");
    }
    assert_eq!((driver.session_count(), driver.meter().repeats_received, driver.meter().unexpected), (0, 1, 0));
}

#[test]
fn a_user_answered_before_its_cancel_hangs_up() {
    let workload = Workload::parse("users", &[], 1.0).expect("built in");
    let script = workload.callers.iter().position(|script| script.name == "cancelled").expect("a script");
    for is_ringing in [true, false] {
        let (mut driver, mut out) = (Driver::new(setup(workload.callers.clone())), Recorder::default());
        driver.begin(T0, u16::try_from(script).expect("few"), (1, 2), &mut out).expect("room");
        let invite = out.next().2;
        if is_ringing {
            receive(&mut driver, T0, &response(&invite, 180, ""), &mut out);
        }
        receive(&mut driver, T0, &response(&invite, 200, ""), &mut out);
        let (ack, bye) = (out.next().2, out.next().2);
        assert!(ack.starts_with("ACK ") && bye.starts_with("BYE "), "{ack}");
        receive(&mut driver, T0, &response(&bye, 200, ""), &mut out);
        assert_eq!((driver.session_count(), driver.meter().began.carried), (0, 1));
    }
}

#[test]
fn branches_differ() {
    let mut script = ScriptBuilder::new("options");
    let again = script.label();
    script.place_label(again).send(
        "OPTIONS sip:b@b SIP/2.0\nVia: SIP/2.0/UDP [local];branch=[branch]\nMax-Forwards: 70\n\
         From: <sip:[caller]@[domain]>;tag=[local_tag]\nTo: <sip:b@b>\nCall-ID: [call_id]\nCSeq: [cseq] OPTIONS\n\
         Content-Length: 0\n",
    );
    script.wait(&[(Pattern::SUCCESS, Extract::NOTHING, Some(again))]);
    let mut driver = Driver::new(setup(vec![script.build().expect("a script")]));
    let mut out = Recorder::default();
    driver.begin(T0, 0, (1, 2), &mut out).expect("room");
    let mut branches = std::collections::BTreeSet::new();
    for _ in 0..70_000 {
        let (_, _, options) = out.next();
        assert!(branches.insert(field(&options, "Via").to_owned()), "{options}");
        receive(&mut driver, T0, &response(&options, 200, ""), &mut out);
    }
}

/// A refused re-INVITE: its ACK takes the route of that request, not that of the call's first INVITE.
#[test]
fn the_ack_of_a_rejected_reinvite_takes_the_reinvites_route() {
    let mid = MidCall { requests: vec![MidCallRequest::Hold], every: seconds(1), from_callee: 0.0 };
    let workload = Workload::mid_call(&CallTimes::default(), &mid).expect("built in");
    for status in [407, 488] {
        let (mut driver, mut out) = (Driver::new(setup(workload.callers[..1].to_vec())), Recorder::default());
        driver.begin(T0, 0, (1, 2), &mut out).expect("room");
        let first = out.next().2;
        let challenge = "Proxy-Authenticate: Digest realm=\"r\", nonce=\"n\"\r\n";
        let refused = response(&first, 407, challenge);
        receive(&mut driver, T0, &refused, &mut out);
        assert_eq!(out.next().2.lines().next(), Some("ACK sip:u2@example.com SIP/2.0"));
        let ok = response(&out.next().2, 200, "Record-Route: <sip:127.0.0.1:9;lr>\r\n");
        receive(&mut driver, T0, &ok, &mut out);
        assert!(out.next().2.starts_with("ACK sip:u1@127.0.0.1:5070 "));
        pass(&mut driver, 1, &mut out);
        let change = out.next().2;
        assert!(change.starts_with("INVITE sip:u1@127.0.0.1:5070 "), "{change}");
        let refusal = response(&change, status, challenge);
        for _ in 0..3 {
            receive(&mut driver, at(1_100), &refusal, &mut out);
            let ack = out
                .sent
                .iter()
                .map(|sent| &sent.2)
                .rev()
                .find(|text| text.starts_with("ACK "))
                .expect("an ACK")
                .clone();
            let uri = |text: &str| text.split(' ').nth(1).map(str::to_owned);
            assert_eq!((uri(&ack), field(&ack, "Route")), (uri(&change), field(&change, "Route")));
            assert_eq!(field(&ack, "Via"), field(&change, "Via"));
        }
        // The ACK to the first INVITE may have been lost too.
        receive(&mut driver, at(1_200), &refused, &mut out);
        let ack = out.sent.back().expect("an ACK").2.clone();
        assert!(ack.starts_with("ACK sip:u2@example.com SIP/2.0\r\n") && !ack.contains("\r\nRoute: "), "{ack}");
    }
}
