//! Rare cases of one end, in virtual time: cancelled calls, closed connections, vanished callers, credentials.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use strowger_auth::{Algorithm, Authenticator, Challenge, Ha1, NonceWindows, Policy, Qop, Verdict};
use strowger_foundation::{KeyRing, TagKey, Timestamp, Transport};
use strowger_message::{Head, HeaderName, Message, ResponseBuilder, Status};

use super::{ConnectionLifetime, Driver, Outbox, Setup};
use crate::law::Law;
use crate::population::Users;
use crate::script::{Extract, Failure, MethodId, Pattern, Script, ScriptBuilder, SessionResult};
use crate::workload::{CallTimes, callee, caller, registering};

/// Records what is sent, on which link and to which peer; connections are numbers.
#[derive(Default)]
pub(super) struct Recorder {
    slot: Vec<u8>,
    pub(super) sent: VecDeque<(u32, SocketAddr, String)>,
    connections: u32,
    closed: Vec<u32>,
}

impl Recorder {
    pub(super) fn next(&mut self) -> (u32, SocketAddr, String) {
        self.sent.pop_front().expect("a message")
    }

    /// Returns the first lines of everything that was sent.
    pub(super) fn lines(&mut self) -> Vec<String> {
        let first = |text: &str| text.lines().next().unwrap_or_default().to_owned();
        self.sent.drain(..).map(|(_, _, text)| first(&text)).collect()
    }
}

impl Outbox for Recorder {
    fn slot(&mut self, _: u32) -> &mut Vec<u8> {
        self.slot.clear();
        &mut self.slot
    }

    fn commit(&mut self, link: u32, peer: SocketAddr, _: u64) {
        assert!(Head::scan(&self.slot).is_ok());
        self.sent.push_back((link, peer, String::from_utf8_lossy(&self.slot).into_owned()));
    }

    fn connect(&mut self, _: SocketAddr, _: bool) -> Option<u32> {
        self.connections += 1;
        Some(self.connections - 1)
    }

    fn close(&mut self, link: u32) {
        self.closed.push(link);
    }
}

pub(super) const T0: Timestamp = Timestamp::from_millis(1_000);

pub(super) fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

pub(super) fn seconds(seconds: u64) -> Law {
    Law::constant(Duration::from_secs(seconds))
}

pub(super) fn setup(scripts: Vec<Script>) -> Setup {
    let users = Arc::new(Users::generated("u%", "p%", "example.com", 100));
    Setup::new(scripts.into(), users, address("127.0.0.1:5070"), address("127.0.0.1:4000"))
}

pub(super) fn callee_of(times: &CallTimes) -> Driver {
    let mut setup = setup(vec![callee(times).expect("built in")]);
    setup.answers = vec![(MethodId::Invite, 0)];
    setup.max_wait = Duration::from_secs(600);
    Driver::new(setup)
}

/// Advances time to `seconds` after the beginning.
pub(super) fn pass(driver: &mut Driver, seconds: u64, out: &mut Recorder) {
    let end = T0 + Duration::from_secs(seconds);
    while let Some(at) = driver.poll_timeout().filter(|at| *at <= end) {
        driver.handle_timeout(at, out);
    }
}

/// Returns a request of a call, behind a proxy.
pub(super) fn request(method: &str, number: u32, vias: &[&str], to_tag: &str) -> String {
    let vias: String = vias.iter().map(|via| format!("Via: SIP/2.0/UDP {via}\r\n")).collect();
    format!(
        "{method} sip:u1@127.0.0.1 SIP/2.0\r\n{vias}Max-Forwards: 70\r\nFrom: <sip:a@a>;tag=f\r\nTo: <sip:u1@b>{to_tag}\r\n\
         Call-ID: c1\r\nCSeq: {number} {method}\r\nContent-Length: 0\r\n\r\n"
    )
}

pub(super) const PROXY: &str = "127.0.0.1:9;branch=z9hG4bKp";
pub(super) const PHONE: &str = "10.0.0.9:1;branch=z9hG4bKq";

pub(super) fn receive(driver: &mut Driver, at: Timestamp, text: &str, out: &mut Recorder) {
    driver.handle_message(at, at, (0, address("127.0.0.1:9")), text.as_bytes(), out);
}

pub(super) fn ringing(times: &CallTimes) -> (Driver, Recorder) {
    let (mut driver, mut out) = (callee_of(times), Recorder::default());
    receive(&mut driver, T0, &request("INVITE", 1, &[PROXY, PHONE], ""), &mut out);
    (driver, out)
}

#[test]
fn a_cancelled_call_repeats_487_until_its_ack() {
    let rings = CallTimes { ring: Some(seconds(60)), hold: None, reaction: None };
    let (mut driver, mut out) = ringing(&rings);
    assert_eq!(out.lines(), ["SIP/2.0 180 Ringing"]);
    let cancel = request("CANCEL", 1, &[PROXY], "");
    receive(&mut driver, T0 + Duration::from_secs(1), &cancel, &mut out);
    let (_, _, ok) = out.next();
    assert!(ok.starts_with("SIP/2.0 200 OK") && ok.contains("CSeq: 1 CANCEL"), "{ok}");
    let (_, _, gone) = out.next();
    assert!(gone.starts_with("SIP/2.0 487 ") && gone.contains("CSeq: 1 INVITE"), "{gone}");
    let vias: Vec<_> = gone.lines().filter(|line| line.starts_with("Via: ")).collect();
    assert_eq!(vias, [format!("Via: SIP/2.0/UDP {PROXY}"), format!("Via: SIP/2.0/UDP {PHONE}")]);
    // Both may have been lost.
    receive(&mut driver, T0 + Duration::from_millis(1_100), &cancel, &mut out);
    assert_eq!(out.lines(), ["SIP/2.0 200 OK"]);
    pass(&mut driver, 3, &mut out);
    assert_eq!(out.lines(), vec!["SIP/2.0 487 Request Terminated"; 2], "after 0.5 and 1.5 s");
    receive(&mut driver, T0 + Duration::from_secs(3), &request("ACK", 1, &[PROXY], ";tag=x"), &mut out);
    pass(&mut driver, 100, &mut out);
    assert!(out.sent.is_empty());
    assert_eq!((driver.session_count(), driver.meter().answered.failed), (0, 1));
    assert_eq!(driver.meter().failures.get(&SessionResult::Refused(487)), Some(&1));
    // The INVITE has ended.
    receive(&mut driver, T0 + Duration::from_secs(101), &cancel, &mut out);
    assert_eq!(out.lines(), ["SIP/2.0 481 Call/Transaction Does Not Exist"]);
    assert_eq!(driver.meter().unexpected, 0);
}

#[test]
fn a_cancelled_call_without_ack_is_lost() {
    let (mut driver, mut out) = ringing(&CallTimes { ring: Some(seconds(60)), hold: None, reaction: None });
    receive(&mut driver, T0, &request("CANCEL", 1, &[PROXY], ""), &mut out);
    pass(&mut driver, 31, &mut out);
    assert_eq!(driver.session_count(), 1);
    pass(&mut driver, 33, &mut out);
    assert_eq!((driver.session_count(), driver.meter().answered.lost), (0, 1));
}

#[test]
fn a_cancel_after_the_answer_changes_nothing() {
    let (mut driver, mut out) = ringing(&CallTimes { ring: None, hold: Some(seconds(5)), reaction: None });
    receive(&mut driver, T0, &request("CANCEL", 1, &[PROXY], ""), &mut out);
    assert_eq!(out.lines(), ["SIP/2.0 180 Ringing", "SIP/2.0 200 OK", "SIP/2.0 200 OK"]);
    receive(&mut driver, T0, &request("ACK", 1, &[PROXY], ";tag=x"), &mut out);
    receive(&mut driver, T0, &request("BYE", 2, &[PROXY], ";tag=x"), &mut out);
    assert_eq!((driver.session_count(), driver.meter().answered.carried), (0, 1));
}

#[test]
fn a_bye_before_the_answer_ends_the_invite_too() {
    let (mut driver, mut out) = ringing(&CallTimes { ring: Some(seconds(60)), hold: None, reaction: None });
    receive(&mut driver, T0, &request("BYE", 2, &[PROXY], ";tag=x"), &mut out);
    assert_eq!(out.lines(), ["SIP/2.0 180 Ringing", "SIP/2.0 200 OK", "SIP/2.0 487 Request Terminated"]);
    receive(&mut driver, T0, &request("ACK", 1, &[PROXY], ";tag=x"), &mut out);
    assert_eq!((driver.session_count(), driver.meter().answered.failed, driver.meter().unexpected), (0, 1, 1));
}

#[test]
fn an_invite_unanswered_by_the_script_can_be_cancelled() {
    let mut script = ScriptBuilder::new("silent");
    let (asked, over) = (script.label(), script.label());
    script.wait(&[(Pattern::Request(MethodId::Invite), Extract::NOTHING, Some(asked))]);
    script.place_label(asked).wait(&[(Pattern::Request(MethodId::Bye), Extract::NOTHING, Some(over))]);
    script.place_label(over).end(SessionResult::Carried);
    let mut setup = setup(vec![script.build().expect("a script")]);
    setup.answers = vec![(MethodId::Invite, 0)];
    let (mut driver, mut out) = (Driver::new(setup), Recorder::default());
    receive(&mut driver, T0, &request("INVITE", 1, &[PROXY, PHONE], ""), &mut out);
    assert!(out.sent.is_empty());
    receive(&mut driver, T0, &request("CANCEL", 1, &[PROXY], ""), &mut out);
    assert_eq!(out.lines(), ["SIP/2.0 200 OK", "SIP/2.0 487 Request Terminated"]);
}

#[test]
fn a_callee_ends_when_its_caller_is_gone() {
    let (mut driver, mut out) = ringing(&CallTimes { ring: None, hold: Some(seconds(5)), reaction: None });
    receive(&mut driver, T0, &request("ACK", 1, &[PROXY], ";tag=x"), &mut out);
    pass(&mut driver, 599, &mut out);
    assert_eq!(driver.session_count(), 1);
    pass(&mut driver, 601, &mut out);
    assert_eq!((driver.session_count(), driver.meter().answered.lost), (0, 1));
}

#[test]
fn responses_go_to_the_requests_source() {
    let (mut driver, mut out) = (callee_of(&CallTimes::default()), Recorder::default());
    let invite = request("INVITE", 1, &["10.0.0.9:7;rport;branch=z9hG4bKa"], "");
    receive(&mut driver, T0, &invite, &mut out);
    let (_, to, ringing) = out.next();
    assert_eq!(to, address("127.0.0.1:9"));
    assert!(
        ringing.contains("Via: SIP/2.0/UDP 10.0.0.9:7;rport=9;branch=z9hG4bKa;received=127.0.0.1\r\n"),
        "{ringing}"
    );
    // The response is repeated to the same address.
    out.sent.clear();
    pass(&mut driver, 1, &mut out);
    assert_eq!(out.next().1, address("127.0.0.1:9"));
    // Without rport, responses go to the port of the Via; so do those to requests outside a call.
    receive(&mut driver, T0, &invite.replace("c1", "c2").replace(";rport", ""), &mut out);
    assert_eq!(out.next().1, address("127.0.0.1:7"));
    out.sent.clear();
    let options = request("OPTIONS", 1, &["host:8;branch=z9hG4bKa"], "").replace("c1", "c3");
    receive(&mut driver, T0, &options, &mut out);
    let (_, to, answer) = out.next();
    assert_eq!(to, address("127.0.0.1:8"));
    assert!(answer.contains(";received=127.0.0.1\r\n"), "{answer}");
}

#[test]
fn a_caller_answers_a_bye_to_its_source() {
    let times = CallTimes { ring: None, hold: Some(seconds(60)), reaction: None };
    let (mut driver, mut out) = (Driver::new(setup(vec![caller(&times).expect("built in")])), Recorder::default());
    driver.begin(T0, 0, (1, 2), &mut out).expect("room");
    let (_, _, invite) = out.next();
    receive(&mut driver, T0, &response(&invite, 200, ""), &mut out);
    assert!(out.next().2.starts_with("ACK "));
    let call_id = invite.lines().find_map(|line| line.strip_prefix("Call-ID: ")).expect("a Call-ID");
    let bye = request("BYE", 9, &["127.0.0.1:77;branch=z9hG4bKz"], ";tag=y").replace("c1", call_id);
    receive(&mut driver, T0, &bye, &mut out);
    let (_, to, ok) = out.next();
    assert!(ok.starts_with("SIP/2.0 200 OK"));
    assert_eq!(to, address("127.0.0.1:77"));
}

/// Returns a response that copies what RFC 3261 requires.
pub(super) fn response(request: &str, status: u16, more: &str) -> String {
    let copied = ["Via", "From", "Call-ID", "CSeq"].map(|name| {
        let line = request.lines().find(|line| line.starts_with(name) && line[name.len()..].starts_with(':'));
        format!("{}\r\n", line.expect("a line"))
    });
    format!(
        "SIP/2.0 {status} x\r\n{}To: <sip:u1@b>;tag=x\r\nContact: <sip:u1@127.0.0.1:5070>\r\n{more}Content-Length: 0\r\n\r\n",
        copied.concat()
    )
}

#[test]
fn a_closed_connection_fails_only_waiting_calls() {
    let times = CallTimes { ring: None, hold: Some(seconds(10)), reaction: None };
    let mut setup = setup(vec![caller(&times).expect("built in")]);
    (setup.transport, setup.connection_lifetime) = (Transport::Tcp, ConnectionLifetime::Dialog);
    let (mut driver, mut out) = (Driver::new(setup), Recorder::default());
    for _ in 0..3 {
        driver.begin(T0, 0, (1, 2), &mut out).expect("room");
    }
    let invites: Vec<_> = out.sent.drain(..).collect();
    assert_eq!(invites.iter().map(|(link, _, _)| *link).collect::<Vec<_>>(), [0, 1, 2]);
    // The first call is answered, the second still waits; the third one's connection stays open.
    driver.handle_message(
        T0,
        T0,
        (0, address("127.0.0.1:5070")),
        response(&invites[0].2, 200, "").as_bytes(),
        &mut out,
    );
    assert!(out.next().2.starts_with("ACK "));
    driver.handle_closed(T0, 0, &mut out);
    driver.handle_closed(T0, 1, &mut out);
    driver.handle_closed(T0, 77, &mut out);
    assert_eq!((driver.session_count(), driver.meter().began.failed), (2, 1));
    assert_eq!(driver.meter().failures.get(&SessionResult::Failed(Failure::Connection)), Some(&1));
    assert!(out.closed.is_empty(), "what is closed is not closed again");
    pass(&mut driver, 11, &mut out);
    let (link, _, bye) = out.next();
    assert!(bye.starts_with("BYE "), "{bye}");
    assert_eq!((link, out.connections), (3, 4), "another connection");
    driver.handle_message(T0, T0, (3, address("127.0.0.1:5070")), response(&bye, 200, "").as_bytes(), &mut out);
    assert_eq!((driver.meter().began.carried, out.closed.as_slice()), (1, &[3][..]));
    assert!(driver.meter().began.add_up());
}

/// A registrar that challenges requests without credentials, with our server's own code.
struct Registrar {
    authenticator: Authenticator,
    policy: Policy,
    now: Timestamp,
    /// Requests that were challenged.
    challenged: u64,
}

impl Registrar {
    fn new(algorithm: Algorithm, qop: Qop) -> Self {
        let windows = Arc::new(NonceWindows::new(4, 9));
        let authenticator = Authenticator::new(&KeyRing::new(TagKey::new([7; 16])), windows);
        let policy = Policy { algorithms: vec![algorithm], qop, ..Policy::default() };
        Self { authenticator, policy, now: Timestamp::from_millis(9_000_000), challenged: 0 }
    }

    /// Returns the response to a request, and whether the request was accepted.
    fn answer(&mut self, request: &str, edit: impl Fn(&str) -> String) -> (String, bool) {
        let message = Message::parse(request.as_bytes()).expect("a request");
        let ha1 = |name: &[u8], algorithm| {
            let number = name.strip_prefix(b"u")?;
            Some(Ha1::compute(algorithm, name, b"example.com", &[b"p", number].concat()))
        };
        let header = HeaderName::Authorization;
        let verdict = self.authenticator.check(self.now, &self.policy, &message, header, b"example.com", ha1);
        let stale = match verdict {
            Verdict::Accepted { .. } => return (response(request, 200, ""), true),
            Verdict::Challenge { stale } => stale,
            Verdict::Malformed => panic!("{request}"),
        };
        let head = Head::scan(request.as_bytes()).expect("a request");
        let mut out = Vec::new();
        let reply = ResponseBuilder::begin(&mut out, &head, Status::UNAUTHORIZED, "Unauthorized", b"t", None);
        self.challenged += 1;
        let header = HeaderName::WwwAuthenticate;
        let challenge =
            Challenge { header, realm: b"example.com", stale, request: self.challenged, source: [192, 0, 2, 7].into() };
        self.authenticator.challenge(self.now, &self.policy, reply, &challenge).finish();
        (edit(&String::from_utf8(out).expect("ASCII")), false)
    }
}

/// Registers a user and returns the nonce count of each request; `None` for a request without credentials.
fn register(driver: &mut Driver, registrar: &mut Registrar, user: u32, out: &mut Recorder) -> Vec<Option<u32>> {
    driver.begin(T0, 0, (user, user), out).expect("room");
    let mut counts = Vec::new();
    while let Some((_, _, request)) = out.sent.pop_front() {
        let count = request.split("nc=").nth(1).and_then(|rest| u32::from_str_radix(rest.get(..8)?, 16).ok());
        counts.push(count);
        let (answer, _) = registrar.answer(&request, str::to_owned);
        receive(driver, T0, &answer, out);
    }
    counts
}

fn registering_driver(reuses: bool) -> Driver {
    let mut setup = setup(vec![registering().expect("built in")]);
    setup.reuses_nonces = reuses;
    Driver::new(setup)
}

#[test]
fn each_session_is_challenged_unless_nonces_are_reused() {
    let mut registrar = Registrar::new(Algorithm::Sha256, Qop::Auth);
    let (mut driver, mut out) = (registering_driver(false), Recorder::default());
    for _ in 0..3 {
        assert_eq!(register(&mut driver, &mut registrar, 1, &mut out), [None, Some(1)]);
    }
    let mut driver = registering_driver(true);
    assert_eq!(register(&mut driver, &mut registrar, 1, &mut out), [None, Some(1)]);
    assert_eq!(register(&mut driver, &mut registrar, 1, &mut out), [Some(2)]);
    assert_eq!(register(&mut driver, &mut registrar, 2, &mut out), [None, Some(1)], "another user");
    assert_eq!(register(&mut driver, &mut registrar, 1, &mut out), [Some(3)]);
    // An hour later the nonce has expired.
    registrar.now += Duration::from_secs(7_200);
    assert_eq!(register(&mut driver, &mut registrar, 1, &mut out), [Some(4), Some(1)]);
    assert_eq!(register(&mut driver, &mut registrar, 1, &mut out), [Some(2)]);
    let began = driver.meter().began;
    assert_eq!((began.offered, began.carried), (6, 6));
}

#[test]
fn a_retransmission_keeps_its_nonce_count() {
    let mut registrar = Registrar::new(Algorithm::Md5, Qop::Auth);
    let (mut driver, mut out) = (registering_driver(true), Recorder::default());
    register(&mut driver, &mut registrar, 1, &mut out);
    driver.begin(T0, 0, (1, 1), &mut out).expect("room");
    driver.begin(T0, 0, (1, 1), &mut out).expect("room");
    pass(&mut driver, 1, &mut out);
    let mut counts: Vec<_> =
        out.sent.drain(..).map(|(_, _, text)| text.split("nc=").nth(1).map(|rest| rest[..8].to_owned())).collect();
    counts.sort();
    let count = |text: &str| Some(text.to_owned());
    assert_eq!(counts, [count("00000002"), count("00000002"), count("00000003"), count("00000003")]);
}

#[test]
fn a_wrong_password_is_rejected_and_drops_the_nonce() {
    let users = Arc::new(Users::generated("u%", "wrong", "example.com", 100));
    let mut setup = Setup { users, ..setup(vec![registering().expect("built in")]) };
    setup.reuses_nonces = true;
    let (mut driver, mut out) = (Driver::new(setup), Recorder::default());
    let mut registrar = Registrar::new(Algorithm::Md5, Qop::Auth);
    for _ in 0..2 {
        assert_eq!(register(&mut driver, &mut registrar, 1, &mut out), [None, Some(1)]);
    }
    assert_eq!(driver.meter().failures.get(&SessionResult::Refused(401)), Some(&2));
}

#[test]
fn every_algorithm_and_qop_is_accepted_by_our_server() {
    let body = "MESSAGE sip:[callee]@[domain] SIP/2.0\nVia: SIP/2.0/UDP [local];branch=[branch]\nMax-Forwards: 70\n\
        From: <sip:[caller]@[domain]>;tag=[local_tag]\nTo: <sip:[callee]@[domain]>\nCall-ID: [call_id]\nCSeq: [cseq] MESSAGE\n\
        [authentication]\nContent-Type: text/plain\nContent-Length: [len]\n\nhello [caller]\n";
    let mut script = ScriptBuilder::new("message");
    let (again, done) = (script.label(), script.label());
    script.place_label(again).send(body).wait(&[
        (Pattern::SUCCESS, Extract::NOTHING, Some(done)),
        (Pattern::status(401), Extract::CHALLENGE, Some(again)),
    ]);
    script.place_label(done).end(SessionResult::Carried);
    let script = script.build().expect("a script");
    for algorithm in [Algorithm::Md5, Algorithm::Sha256, Algorithm::Sha512_256] {
        for protection in ["auth", "auth,auth-int", "auth-int"] {
            let qop = if protection == "auth" { Qop::Auth } else { Qop::AuthOrAuthInt };
            let mut registrar = Registrar::new(algorithm, qop);
            let (mut driver, mut out) = (Driver::new(setup(vec![script.clone()])), Recorder::default());
            driver.begin(T0, 0, (7, 8), &mut out).expect("room");
            let edit = |text: &str| text.replace("qop=\"auth,auth-int\"", &format!("qop=\"{protection}\""));
            let (challenge, _) = registrar.answer(&out.next().2, edit);
            receive(&mut driver, T0, &challenge, &mut out);
            let (_, _, request) = out.next();
            let wanted = if protection == "auth-int" { "qop=auth-int" } else { "qop=auth," };
            assert!(request.contains(wanted), "{request}");
            assert!(request.contains(&format!("algorithm={}", algorithm.as_str())), "{request}");
            let (answer, is_accepted) = registrar.answer(&request, edit);
            assert!(is_accepted, "{algorithm:?} {protection}: {request}");
            receive(&mut driver, T0, &answer, &mut out);
            assert_eq!(driver.meter().began.carried, 1);
        }
    }
}
