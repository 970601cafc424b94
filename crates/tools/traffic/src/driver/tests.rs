//! Both ends in virtual time: no sockets, no sleeping.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use strowger_foundation::Timestamp;

use super::wire::Wire;
use super::{Driver, Setup};
use crate::law::Law;
use crate::meter::{Meter, ResponseClass};
use crate::population::Users;
use crate::script::{MethodId, SessionResult};
use crate::time_histogram::TimeHistogram;
use crate::workload::{CallTimes, Workload};

fn caller_at() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 40_000))
}

fn callee_at() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 5070))
}

/// A caller and a callee, and a wire that loses selected messages.
struct Pair {
    now: Timestamp,
    caller: Driver,
    callee: Driver,
    up: Wire,
    down: Wire,
    trace: Vec<String>,
    lose: Box<dyn FnMut(&str) -> bool>,
}

impl Pair {
    fn new(times: &CallTimes) -> Self {
        let workload = Workload::calls("test", times).expect("built in");
        let users = Arc::new(Users::generated("u%", "p", "example.com", 100));
        let caller = Setup::new(workload.callers.into(), users.clone(), callee_at(), caller_at());
        let mut callee = Setup::new(workload.callees.into(), users, caller_at(), callee_at());
        callee.answers = workload.answers;
        Self {
            now: Timestamp::from_millis(1_000),
            caller: Driver::new(caller),
            callee: Driver::new(callee),
            up: Wire::default(),
            down: Wire::default(),
            trace: Vec::new(),
            lose: Box::new(|_| false),
        }
    }

    fn call(&mut self) {
        self.caller.begin(self.now, 0, (3, 7), &mut self.up).expect("no limit");
    }

    /// Carries messages both ways until none are left.
    fn settle(&mut self) {
        loop {
            if let Some(bytes) = self.up.next() {
                if self.passes(&bytes, "→") {
                    self.callee.handle_message(self.now, self.now, (0, caller_at()), &bytes, &mut self.down);
                }
            } else if let Some(bytes) = self.down.next() {
                if self.passes(&bytes, "←") {
                    self.caller.handle_message(self.now, self.now, (0, callee_at()), &bytes, &mut self.up);
                }
            } else {
                return;
            }
        }
    }

    fn passes(&mut self, bytes: &[u8], arrow: &str) -> bool {
        let text = String::from_utf8_lossy(bytes);
        let line = text.lines().next().unwrap_or_default();
        let words: Vec<_> = line.split(' ').collect();
        let name = if line.starts_with("SIP/") { words[1] } else { words[0] };
        let lost = (self.lose)(name);
        self.trace.push(format!("{arrow}{name}{}", if lost { "✗" } else { "" }));
        assert!(strowger_message::Message::parse(bytes).is_ok(), "{text}");
        !lost
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.settle();
            let next = [self.caller.poll_timeout(), self.callee.poll_timeout()].into_iter().flatten().min();
            match next {
                Some(next) if next <= end => {
                    self.now = self.now.max(next);
                    self.caller.handle_timeout(self.now, &mut self.up);
                    self.callee.handle_timeout(self.now, &mut self.down);
                }
                _ => break,
            }
        }
        self.now = end;
    }

    fn check(&self) {
        assert!(self.caller.meter().began.add_up(), "{:?}", self.caller.meter().began);
    }
}

#[test]
fn a_call_is_six_messages() {
    let mut pair = Pair::new(&CallTimes::default());
    pair.call();
    pair.settle();
    assert_eq!(pair.trace, ["→INVITE", "←180", "←200", "→ACK", "→BYE", "←200"]);
    let meter = pair.caller.meter();
    assert_eq!((meter.began.offered, meter.began.carried, meter.began.unfinished), (1, 1, 0));
    assert_eq!(meter.answer(MethodId::Invite, ResponseClass::Provisional).map(TimeHistogram::count), Some(1));
    assert_eq!(pair.callee.meter().answered.carried, 1);
    assert_eq!((pair.caller.session_count(), pair.callee.session_count()), (0, 0));
    pair.run(Duration::from_secs(100));
    assert_eq!(pair.trace.len(), 6, "nothing is repeated afterwards");
    pair.check();
}

#[test]
fn call_times_are_kept() {
    let law = |ms| Some(Law::constant(Duration::from_millis(ms)));
    let mut pair = Pair::new(&CallTimes { ring: law(250), hold: law(1_000), reaction: None });
    pair.call();
    pair.run(Duration::from_secs(10));
    let meter = pair.caller.meter();
    let times = meter.answer(MethodId::Invite, ResponseClass::Success).expect("answered").mean();
    assert!(times >= Duration::from_millis(248) && times <= Duration::from_millis(253), "{times:?}");
    assert!(meter.durations.mean() >= Duration::from_millis(1_240), "{:?}", meter.durations.mean());
    assert_eq!(meter.began.carried, 1);
    assert_eq!(meter.repeats_sent, 0);
}

#[test]
fn a_reaction_time_applies_three_times() {
    let reaction = Some(Law::constant(Duration::from_millis(100)));
    let mut pair = Pair::new(&CallTimes { reaction, ..CallTimes::default() });
    pair.call();
    pair.run(Duration::from_secs(10));
    let meter = pair.caller.meter();
    let answered = meter.answer(MethodId::Invite, ResponseClass::Success).expect("answered").mean();
    assert!(answered >= Duration::from_millis(98) && answered <= Duration::from_millis(103), "{answered:?}");
    let all = meter.durations.mean();
    assert!(all >= Duration::from_millis(295) && all <= Duration::from_millis(310), "{all:?}");
    assert_eq!((meter.began.carried, meter.repeats_sent), (1, 0));
}

#[test]
fn every_message_may_be_lost_once() {
    for victim in 0..6 {
        let mut pair = Pair::new(&CallTimes::default());
        let mut count = 0;
        pair.lose = Box::new(move |_| {
            count += 1;
            count == victim + 1
        });
        pair.call();
        pair.run(Duration::from_secs(40));
        let meter = pair.caller.meter();
        assert_eq!(meter.began.carried, 1, "{victim}: {:?} {:?}", pair.trace, meter.failures);
        assert_eq!(pair.callee.meter().answered.carried, 1, "{victim}: {:?}", pair.trace);
        assert_eq!((pair.caller.session_count(), pair.callee.session_count()), (0, 0));
        pair.check();
    }
}

#[test]
fn an_unanswered_call_ends_after_64_t1() {
    let mut pair = Pair::new(&CallTimes::default());
    pair.lose = Box::new(|_| true);
    pair.call();
    pair.run(Duration::from_secs(31));
    assert_eq!(pair.trace.len(), 6, "at 0, 0.5, 1.5, 3.5, 7.5 and 15.5 s: {:?}", pair.trace);
    pair.run(Duration::from_secs(5));
    assert_eq!(pair.trace.len(), 7, "and at 31.5 s");
    let meter = pair.caller.meter();
    assert_eq!((meter.began.lost, meter.failures.get(&SessionResult::Lost)), (1, Some(&1)));
    pair.check();
}

#[test]
fn a_refused_call_is_acknowledged_and_counted() {
    let mut pair = Pair::new(&CallTimes::default());
    pair.call();
    let invite = String::from_utf8(pair.up.next().expect("an INVITE")).expect("ASCII");
    let line = |name: &str| invite.lines().find(|line| line.starts_with(name)).expect(name).to_owned();
    let response = format!(
        "SIP/2.0 486 Busy Here\r\n{}\r\n{}\r\n{};tag=x\r\n{}\r\n{}\r\nContent-Length: 0\r\n\r\n",
        line("Via"),
        line("From"),
        line("To"),
        line("Call-ID"),
        line("CSeq")
    );
    pair.caller.handle_message(pair.now, pair.now, (0, callee_at()), response.as_bytes(), &mut pair.up);
    let ack = String::from_utf8(pair.up.next().expect("an ACK")).expect("ASCII");
    assert!(ack.starts_with("ACK sip:u7@example.com SIP/2.0\r\n"), "{ack}");
    assert!(ack.contains(&line("Via")) && ack.contains("CSeq: 1 ACK\r\n") && ack.contains(";tag=x"), "{ack}");
    assert_eq!(pair.caller.meter().failures.get(&SessionResult::Refused(486)), Some(&1));
    pair.check();
}

#[test]
fn a_challenge_is_answered_once_and_each_is_acknowledged() {
    let mut pair = Pair::new(&CallTimes::default());
    pair.call();
    let answer = |invite: &str, nonce: &str| {
        let line = |name: &str| invite.lines().find(|line| line.starts_with(name)).expect(name).to_owned();
        format!(
            "SIP/2.0 407 x\r\n{}\r\n{}\r\n{};tag=x\r\n{}\r\n{}\r\nProxy-Authenticate: Digest realm=\"r\", nonce=\"{nonce}\", \
             algorithm=SHA-256, qop=\"auth\"\r\nContent-Length: 0\r\n\r\n",
            line("Via"),
            line("From"),
            line("To"),
            line("Call-ID"),
            line("CSeq")
        )
    };
    for (round, nonce) in ["a", "b"].into_iter().enumerate() {
        let invite = String::from_utf8(pair.up.next().expect("an INVITE")).expect("ASCII");
        assert!(invite.contains(&format!("CSeq: {} INVITE", round + 1)));
        assert_eq!(invite.contains("Proxy-Authorization: Digest username=\"u3\""), round > 0, "{invite}");
        let challenge = answer(&invite, nonce);
        pair.caller.handle_message(pair.now, pair.now, (0, callee_at()), challenge.as_bytes(), &mut pair.up);
        let ack = String::from_utf8(pair.up.next().expect("an ACK")).expect("ASCII");
        assert!(ack.contains(&format!("CSeq: {} ACK", round + 1)) && ack.contains(";tag=x"), "{ack}");
    }
    assert!(pair.up.is_empty(), "what was refused is not tried again");
    assert_eq!(pair.caller.meter().failures.get(&SessionResult::Refused(407)), Some(&1));
    pair.check();
}

#[test]
fn a_call_holds_at_most_256_bytes_of_buffers() {
    let law = |s| Some(Law::constant(Duration::from_secs(s)));
    let mut pair = Pair::new(&CallTimes { ring: None, hold: law(1_000), reaction: None });
    for _ in 0..1_000 {
        pair.call();
    }
    pair.settle();
    assert_eq!(pair.caller.session_count(), 1_000);
    assert_eq!(pair.callee.session_count(), 1_000);
    let bytes = pair.caller.buffer_bytes() / 1_000;
    assert!(bytes <= 256, "{bytes} bytes of buffers a call");
}

#[test]
fn calls_begun_in_the_warm_up_are_not_counted_later() {
    let law = |ms| Some(Law::constant(Duration::from_millis(ms)));
    let mut pair = Pair::new(&CallTimes { ring: None, hold: law(1_000), reaction: None });
    pair.call();
    pair.run(Duration::from_millis(500));
    let before = pair.caller.restart_meter().began;
    assert!(before.add_up());
    assert_eq!((before.offered, before.unfinished), (1, 1));
    pair.call();
    pair.run(Duration::from_secs(3));
    let began = pair.caller.meter().began;
    assert_eq!((began.offered, began.sent, began.carried, began.unfinished), (1, 1, 1, 0));
    assert_eq!((pair.caller.originated_count(), pair.caller.session_count()), (0, 0));
    pair.check();
}

#[test]
fn warm_up_calls_are_in_no_later_message_count() {
    let law = |ms| Some(Law::constant(Duration::from_millis(ms)));
    let mut pair = Pair::new(&CallTimes { ring: law(100), hold: law(1_000), reaction: None });
    pair.call();
    pair.run(Duration::from_millis(500));
    assert_eq!((pair.caller.meter().asked(MethodId::Invite), pair.caller.meter().silent(MethodId::Invite)), (1, 0));
    pair.caller.restart_meter();
    pair.run(Duration::from_secs(3));
    let meter = pair.caller.final_counts(pair.now);
    assert_eq!(meter.sent.requests(MethodId::Bye), 0, "it was sent for a call that is not counted");
    assert_eq!((meter.asked(MethodId::Bye), meter.silent(MethodId::Bye), meter.transactions.sum().all), (0, 0, 0));
    assert_eq!((meter.began.sent, meter.began.carried), (0, 0));
    assert_eq!(meter.ended.count(), 1, "but the server carried it now");
    pair.call();
    pair.run(Duration::from_secs(3));
    let meter = pair.caller.final_counts(pair.now);
    assert_eq!(
        (meter.asked(MethodId::Bye), meter.silent(MethodId::Bye), meter.transactions.of(MethodId::Bye).succeeded),
        (1, 0, 1)
    );
    assert_eq!((meter.ended.count(), meter.slowest.count(), meter.success_times()), (2, 1, 2));
}

#[test]
fn a_warm_up_call_answered_later_is_in_no_time_or_message_count() {
    let law = |ms| Some(Law::constant(Duration::from_millis(ms)));
    let mut pair = Pair::new(&CallTimes { ring: law(100), hold: law(1_000), reaction: None });
    pair.call();
    pair.run(Duration::from_millis(50));
    drop((pair.caller.restart_meter(), pair.callee.restart_meter()));
    pair.run(Duration::from_secs(3));
    let counts = |meter: &Meter| {
        let due: u64 = meter.from_due.values().map(TimeHistogram::count).sum();
        (due, meter.answers().count() as u64, meter.sent.total(), meter.received.total())
    };
    assert_eq!(counts(pair.caller.meter()), (0, 0, 0, 0));
    assert_eq!(counts(pair.callee.meter()), (0, 0, 0, 0));
    pair.call();
    pair.run(Duration::from_secs(3));
    let meter = pair.caller.meter();
    let sent = [MethodId::Invite, MethodId::Ack, MethodId::Bye].map(|verb| meter.sent.requests(verb));
    assert_eq!((sent, meter.received.responses(200)), ([1, 1, 1], 2));
    assert_eq!(meter.from_due[&MethodId::Invite].count(), 1);
}

#[test]
fn requests_unanswered_at_the_end_have_not_succeeded() {
    let mut pair = Pair::new(&CallTimes::default());
    pair.lose = Box::new(|_| true);
    pair.call();
    pair.run(Duration::from_millis(400));
    let ends = |pair: &Pair| pair.caller.final_counts(pair.now).transactions.sum();
    assert_eq!(ends(&pair).all, 0, "an answer may still be on its way");
    pair.run(Duration::from_secs(1));
    assert_eq!((ends(&pair).all, ends(&pair).open, ends(&pair).succeeded), (1, 1, 0));
    assert_eq!(pair.caller.meter().silent(MethodId::Invite), 1);
    pair.run(Duration::from_secs(40));
    assert_eq!((ends(&pair).all, ends(&pair).open), (1, 0), "given up");

    let mut ringing =
        Pair::new(&CallTimes { ring: Some(Law::constant(Duration::from_secs(60))), hold: None, reaction: None });
    ringing.call();
    ringing.run(Duration::from_secs(10));
    assert_eq!(ends(&ringing).all, 0, "who rings has answered");
}
