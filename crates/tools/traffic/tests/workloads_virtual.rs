//! Workloads with both ends in one process in virtual time, without sockets or sleeping.

mod wire;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _};
use strowger_foundation::Timestamp;
use strowger_traffic::driver::{Driver, Outbox, Setup};
use strowger_traffic::law::Rng;
use strowger_traffic::meter::{Meter, OutcomeCounts};
use strowger_traffic::population::Users;
use strowger_traffic::script::{Kind, MethodId};
use strowger_traffic::workload::{Fault, Faults, Workload};
use wire::Wire;

fn caller_at() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 40_000))
}

fn callee_at() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 5070))
}

/// Both ends of a workload, and a network between them with delay and loss.
struct Pair {
    now: Timestamp,
    workload: Workload,
    caller: Driver,
    callee: Driver,
    /// Messages in flight, by arrival time: whether to the callee, and the bytes.
    flying: BTreeMap<(Timestamp, u64), (bool, Vec<u8>)>,
    sent: u64,
    begun: u64,
    rng: Rng,
    /// Share of messages that are lost, and the delays of the others.
    loss: f64,
    delay: (Duration, Duration),
    trace: Vec<String>,
    messages: Vec<String>,
    keeps_trace: bool,
}

impl Pair {
    fn new(text: &str, set: &[(&str, &str)]) -> Self {
        let set: Vec<_> = set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let workload = Workload::parse(text, &set, 1.0).unwrap_or_else(|error| panic!("{error}"));
        let users = Arc::new(Users::generated("u%", "p", "example.com", 100));
        let caller = Setup::new(workload.callers.clone().into(), users.clone(), callee_at(), caller_at());
        let mut callee = Setup::new(workload.callees.clone().into(), users, caller_at(), callee_at());
        (callee.answers, callee.seed) = (workload.answers.clone(), 2);
        Self {
            now: Timestamp::from_millis(1_000),
            workload,
            caller: Driver::new(caller),
            callee: Driver::new(callee),
            flying: BTreeMap::new(),
            sent: 0,
            begun: 0,
            rng: Rng::seed_from_u64(7),
            loss: 0.0,
            delay: (Duration::from_millis(1), Duration::from_millis(1)),
            trace: Vec::new(),
            messages: Vec::new(),
            keeps_trace: true,
        }
    }

    fn begin(&mut self) {
        let script = self.workload.mix.pick(42, self.begun);
        self.begun += 1;
        let mut out = Wire::default();
        self.caller.begin(self.now, script, (3, 7), &mut out).expect("no limit");
        self.fly(true, out);
    }

    fn fly(&mut self, up: bool, mut out: Wire) {
        while let Some(bytes) = out.next() {
            let text = String::from_utf8_lossy(&bytes);
            let is_message = strowger_message::Message::parse(&bytes).is_ok();
            let lost = self.loss > 0.0 && self.rng.random::<f64>() < self.loss;
            if self.keeps_trace {
                let mut words = text.split_whitespace();
                let first = words.next().unwrap_or_default();
                let word = if first == "SIP/2.0" { words.next().unwrap_or_default() } else { first };
                let word = if is_message { word } else { "garbage" };
                self.trace.push(format!("{}{word}{}", if up { '>' } else { '<' }, if lost { "!" } else { "" }));
                self.messages.push(text.into_owned());
            }
            self.sent += 1;
            if !lost {
                let spread = self.delay.1.saturating_sub(self.delay.0).mul_f64(self.rng.random::<f64>());
                self.flying.insert((self.now + self.delay.0 + spread, self.sent), (up, bytes));
            }
        }
    }

    /// Runs for a time.
    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let timer = [self.caller.poll_timeout(), self.callee.poll_timeout()].into_iter().flatten().min();
            let arrival = self.flying.first_key_value().map(|((at, _), _)| *at);
            let Some(next) = [timer, arrival].into_iter().flatten().min().filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            let (mut up, mut down) = (Wire::default(), Wire::default());
            if arrival.is_some_and(|at| at <= self.now) {
                let ((_, _), (to_callee, bytes)) = self.flying.pop_first().expect("there is one");
                if to_callee {
                    self.callee.handle_message(self.now, self.now, (0, caller_at()), &bytes, &mut down);
                } else {
                    self.caller.handle_message(self.now, self.now, (0, callee_at()), &bytes, &mut up);
                }
            } else {
                self.caller.handle_timeout(self.now, &mut up);
                self.callee.handle_timeout(self.now, &mut down);
            }
            self.fly(true, up);
            self.fly(false, down);
            assert!(self.caller.meter().began.add_up(), "{:?}", self.caller.meter().began);
        }
        self.now = end;
    }

    /// Runs a single session and returns the messages sent in it.
    fn once(text: &str, set: &[(&str, &str)]) -> (String, Self) {
        let mut pair = Self::new(text, set);
        pair.begin();
        pair.run(Duration::from_secs(3_600));
        (pair.trace.join(" "), pair)
    }

    /// Runs `count` sessions, one every 10 ms, over a network that loses and reorders messages.
    fn many(text: &str, set: &[(&str, &str)], count: u64, loss: f64) -> Self {
        let mut pair = Self::new(text, set);
        (pair.loss, pair.delay) = (loss, (Duration::from_millis(1), Duration::from_millis(40)));
        pair.keeps_trace = false;
        for _ in 0..count {
            pair.begin();
            pair.run(Duration::from_millis(10));
        }
        pair.run(Duration::from_secs(3_600));
        pair
    }

    fn callers(&self) -> &Meter {
        self.caller.meter()
    }

    /// Returns the outcomes of the caller's script with this name.
    fn of(&self, name: &str) -> OutcomeCounts {
        let place = self.workload.callers.iter().position(|script| script.name == name).expect(name);
        self.callers().scripts.get(place).copied().unwrap_or_default()
    }

    fn message(&self, first: &str, number: usize) -> &str {
        let mut found = self.messages.iter().filter(|message| message.starts_with(first));
        found.nth(number).unwrap_or_else(|| panic!("no {first} {number} in {:?}", self.trace))
    }

    #[track_caller]
    fn assert_all_carried(&self) {
        let (began, answered) = (self.callers().began, self.callee.meter().answered);
        assert_eq!(began.carried, self.begun, "{began:?} {:?} {:?}", self.callers().failures, self.trace);
        assert_eq!((began.offered, began.unfinished), (self.begun, 0));
        let failures = &self.callee.meter().failures;
        assert_eq!(answered.carried, answered.sent, "{answered:?} {failures:?} {:?}", self.trace);
        assert_eq!((self.caller.session_count(), self.callee.session_count()), (0, 0));
        assert_eq!((self.callers().unexpected, self.callee.meter().unexpected), (0, 0), "{:?}", self.trace);
    }
}

#[test]
fn a_message_is_answered() {
    let (trace, pair) = Pair::once("message", &[("sizes", "250")]);
    assert_eq!(trace, ">MESSAGE <200");
    pair.assert_all_carried();
    let message = pair.message("MESSAGE sip:u7@example.com", 0);
    let body = message.split_once("\r\n\r\n").expect("a body").1;
    assert!(body.len() == 250 && message.contains("Content-Length: 250\r\n"), "{message}");
}

#[test]
fn message_sizes_are_equally_likely() {
    let mut pair = Pair::new("message", &[("sizes", "10+20+30")]);
    for _ in 0..3_000 {
        pair.begin();
    }
    pair.run(Duration::from_secs(1));
    for size in ["10", "20", "30"] {
        let line = format!("Content-Length: {size}\r\n");
        let count = pair.messages.iter().filter(|message| message.contains(&line)).count();
        assert!(count.abs_diff(1_000) < 130, "{size}: {count}, five sigmas are 129");
    }
    pair.assert_all_carried();
}

#[test]
fn a_publication_is_refreshed_by_its_tag_and_removed() {
    let (trace, pair) = Pair::once("publish", &[("refreshes", "2")]);
    assert_eq!(trace, ">PUBLISH <200 >PUBLISH <200 >PUBLISH <200 >PUBLISH <200");
    pair.assert_all_carried();
    let first = pair.message("PUBLISH", 0);
    assert!(first.contains("application/pidf+xml") && !first.contains("SIP-If-Match"), "{first}");
    for number in 0..3 {
        let line = |message: &str, name: &str| {
            let line = message.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
            line.unwrap_or_else(|| panic!("{name} in {message}"))
        };
        let tag = line(pair.message("SIP/2.0 200", number), "SIP-ETag: ");
        let next = pair.message("PUBLISH", number + 1);
        assert_eq!(line(next, "SIP-If-Match: "), tag);
        assert!(next.contains("Content-Length: 0\r\n") && !tag.is_empty());
        assert_eq!(line(next, "Expires: "), if number == 2 { "0" } else { "3600" });
    }
}

#[test]
fn a_subscription_is_notified_refreshed_and_ended() {
    let set =
        [("resubscriptions", "1"), ("resubscribe-every", "1s"), ("change-every", "700ms"), ("notified-size", "300")];
    let (trace, pair) = Pair::once("subscribe", &set);
    let notify = "<NOTIFY >200";
    let begin = ">SUBSCRIBE <200 <NOTIFY >200";
    assert_eq!(trace, format!("{begin} {notify} {begin} {notify} {begin}"));
    pair.assert_all_carried();
    let (first, last) = (pair.message("NOTIFY", 0), pair.message("NOTIFY", 4));
    assert!(first.contains("Subscription-State: active;expires=") && first.contains("Event: presence"), "{first}");
    assert!(
        last.contains("Subscription-State: terminated;reason=timeout") && last.contains("CSeq: 5 NOTIFY"),
        "{last}"
    );
    assert!(
        last.starts_with("NOTIFY sip:u3@127.0.0.1:40000;transport=UDP SIP/2.0"),
        "the subscriber's contact: {last}"
    );
    let size = first.split_once("\r\n\r\n").expect("a document").1.len();
    assert!(size.abs_diff(300) < 40, "{size}");
    let refresh = pair.message("SUBSCRIBE", 1);
    assert!(refresh.contains(";tag=") && refresh.contains("CSeq: 2 SUBSCRIBE"), "{refresh}");
}

#[test]
fn messaging_survives_packet_loss() {
    for workload in ["message", "publish", "subscribe", "presence"] {
        let pair = Pair::many(workload, &[], 400, 0.05);
        let repeats = pair.callers().repeats_sent;
        assert!(repeats > 10, "{workload}: {repeats}");
        let began = pair.callers().began;
        assert_eq!(began.carried, 400, "{workload}: {began:?} {:?}", pair.callers().failures);
    }
}

#[test]
fn presence_is_all_three() {
    let pair =
        Pair::many("presence", &[("messages", "50"), ("publications", "30"), ("subscriptions", "20")], 2_000, 0.0);
    pair.assert_all_carried();
    for (name, share) in [("message", 0.5), ("publish", 0.3), ("subscribe", 0.2)] {
        assert_share(name, pair.of(name).carried, 2_000, share);
    }
}

#[test]
fn mid_call_requests_come_from_the_caller() {
    let (trace, pair) = Pair::once("mid-call", &[("from-callee", "0"), ("every", "1s"), ("hold", "2s")]);
    let hold = ">INVITE <200 >ACK >INVITE <200 >ACK";
    let others = ">UPDATE <200 >INFO <200 >UPDATE <200";
    assert_eq!(trace, format!(">INVITE <180 <200 >ACK {hold} {others} >BYE <200"));
    pair.assert_all_carried();
    let direction = |message: &str| message.lines().find_map(|line| line.strip_prefix("a=send").map(str::to_owned));
    assert_eq!(direction(pair.message("INVITE", 1)).as_deref(), Some("only"));
    assert_eq!(direction(pair.message("INVITE", 2)).as_deref(), Some("recv"));
    let held = pair.messages.iter().find(|message| message.contains("a=recvonly")).expect("an answer");
    assert!(held.contains("CSeq: 2 INVITE") && held.contains(" 2353687638 IN"), "{held}");
    let refresh = pair.message("UPDATE", 1);
    assert!(
        refresh.contains("Session-Expires: 1800;refresher=uac") && refresh.contains("Supported: timer"),
        "{refresh}"
    );
    let answer = pair.messages.iter().find(|message| message.contains("Require: timer")).expect("an answer");
    assert!(answer.contains("Session-Expires: 1800;refresher=uac") && answer.starts_with("SIP/2.0 200"), "{answer}");
    assert!(pair.message("BYE", 0).contains("CSeq: 7 BYE"));
}

#[test]
fn the_callee_sends_and_hangs_up() {
    let (trace, pair) = Pair::once("mid-call", &[("from-callee", "100%"), ("every", "1s"), ("requests", "hold+info")]);
    assert_eq!(trace, ">INVITE <180 <200 >ACK <INVITE >200 <ACK <INVITE >200 <ACK <INFO >200 <BYE >200");
    pair.assert_all_carried();
    let (invite, bye) = (pair.message("INVITE sip:u7", 0), pair.message("BYE", 0));
    let line = |message: &str, name: &str| {
        message
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap_or_else(|| panic!("{name}: {message}"))
            .to_owned()
    };
    assert_eq!(line(bye, "Call-ID: "), line(invite, "Call-ID: "));
    assert_eq!(line(bye, "To: "), line(invite, "From: "));
    assert!(line(bye, "From: ").starts_with("<sip:u7@example.com>;tag="), "{bye}");
    assert!(bye.contains("CSeq: 4 BYE"), "its own numbers: {bye}");
}

#[test]
fn mid_call_requests_survive_packet_loss() {
    let set = [("every", "exp(mean=500ms)"), ("rounds", "2"), ("ring", "100ms")];
    let pair = Pair::many("mid-call", &set, 400, 0.03);
    let (began, failures) = (pair.callers().began, &pair.callers().failures);
    assert_eq!(began.carried, 400, "{began:?} {failures:?}");
    assert_share("callee sends", pair.of("callee sends").carried, 400, 0.5);
}

/// Asserts a share within five standard deviations of the binomial distribution.
#[track_caller]
fn assert_share(name: &str, count: u64, of: u64, share: f64) {
    let (count, of) = (count as f64, of as f64);
    let (mean, sigma) = (of * share, (of * share * (1.0 - share)).sqrt());
    assert!((count - mean).abs() <= 5.0 * sigma, "{name}: {count} of {of}, not {mean} ± {}", 5.0 * sigma);
}

const FAULTS: [(Fault, f64); 5] = [
    (Fault::LostAck, 0.04),
    (Fault::LateCancel, 0.05),
    (Fault::NoAnswer, 0.03),
    (Fault::Garbage, 0.02),
    (Fault::NoBye, 0.01),
];

#[test]
fn faults_have_their_shares_and_expected_outcomes() {
    let text = FAULTS.map(|(fault, share)| format!("{}={}%", fault.name(), share * 100.0)).join(",");
    for (workload, ring) in [("proxy-200", "none"), ("proxy-200", "uniform(min=0s,max=100ms)"), ("mid-call", "50ms")] {
        let pair = Pair::many(workload, &[("faults", &text), ("ring", ring)], 4_000, 0.0);
        let meter = pair.callers();
        assert_eq!((meter.began.offered, meter.began.carried), (4_000, 4_000), "{:?}", meter.failures);
        for (fault, share) in FAULTS {
            let accounts = pair.of(fault.name());
            assert_eq!(accounts.sent, accounts.carried, "{}", fault.name());
            assert_share(fault.name(), accounts.carried, 4_000, share);
        }
        let by_script: u64 = meter.scripts.iter().map(|accounts| accounts.sent).sum();
        assert_eq!(by_script, 4_000, "each call is of one script");
        assert_eq!(meter.sent.garbage, pair.of("garbage").sent, "garbage is no call, and counted as what it is");
        assert_eq!(pair.callee.meter().received.requests(MethodId::Bye) + meter.received.requests(MethodId::Bye), {
            let sent = |meter: &Meter| meter.sent.requests(MethodId::Bye);
            sent(meter) + sent(pair.callee.meter())
        });
        let callee = pair.callee.meter();
        assert_eq!(callee.answered.sent, 4_000, "each call came, and no garbage was taken for one");
        assert_eq!(callee.answered.unfinished, 0);
        assert_eq!(
            callee.received.iter().find(|(kind, _)| *kind == Kind::Garbage).map(|(_, count)| count),
            Some(meter.sent.garbage)
        );
    }
}

#[test]
fn a_lost_ack_repeats_the_200() {
    for _ in 0..2 {
        let (trace, pair) = Pair::once("proxy-200", &[("faults", "lost-ack=100%")]);
        assert!(trace.starts_with(">INVITE <180 <200 <200 >"), "{trace}");
        assert!(trace.ends_with(">BYE <200"), "{trace}");
        pair.assert_all_carried();
    }
    let pair = Pair::many("proxy-200", &[("faults", "lost-ack=100%")], 1_000, 0.0);
    assert_share("ACKs", pair.callers().sent.requests(MethodId::Ack), 1_000, 0.5);
}

#[test]
fn a_cancel_races_the_200() {
    let set = [("faults", "late-cancel=100%"), ("ring", "uniform(min=0s,max=300ms)")];
    let pair = Pair::many("proxy-200", &set, 1_000, 0.0);
    let meter = pair.callers();
    assert_eq!(meter.sent.requests(MethodId::Cancel), 1_000);
    assert_eq!(meter.began.carried, 1_000, "{:?}", meter.failures);
    let (refused, answered) = (meter.received.responses(487), meter.sent.requests(MethodId::Bye));
    assert_eq!(refused + answered, 1_000);
    assert!(refused > 200 && answered > 200, "{refused} {answered}");
}

#[test]
fn unanswered_callers_cancel() {
    let (trace, pair) = Pair::once("proxy-200", &[("faults", "no-answer=100%"), ("no-answer-ring", "2s")]);
    assert!(
        trace == ">INVITE <180 >CANCEL <200 <487 >ACK" || trace == ">INVITE <180 >CANCEL <487 <200 >ACK",
        "{trace}"
    );
    assert_eq!(pair.callers().began.carried, 1);
}

#[test]
fn nobody_hangs_up() {
    let (trace, pair) = Pair::once("proxy-200", &[("faults", "no-bye=100%"), ("hold", "5s")]);
    assert_eq!(trace, ">INVITE <180 <200 >ACK");
    pair.assert_all_carried();
}

#[test]
fn faults_survive_packet_loss() {
    let text = "lost-ack=20%,late-cancel=20%,no-answer=20%,garbage=20%";
    let pair = Pair::many("proxy-200", &[("faults", text), ("ring", "30ms"), ("hold", "1s")], 1_000, 0.03);
    let (began, failures) = (pair.callers().began, &pair.callers().failures);
    assert!(began.add_up() && began.carried >= 998, "{began:?} {failures:?}");
}

#[test]
fn invalid_faults_are_rejected() {
    for (text, what) in [
        ("lost-ack", "has no share"),
        ("lost-sock=1%", "is not a fault"),
        ("no-bye=101%", "has no share from 0"),
        ("no-bye=1%,no-bye=1%", "twice"),
        ("no-bye=60%,garbage=60%", "more than 100%"),
    ] {
        let error = Faults::parse(text).expect_err(text).to_string();
        assert!(error.contains(what), "{text}: {error}");
    }
    assert_eq!(Faults::parse("none"), Ok(Faults::default()));
    assert_eq!(Faults::parse(" no-bye = 0.5% ").expect("sound").shares(), [(Fault::NoBye, 0.005)]);
}
