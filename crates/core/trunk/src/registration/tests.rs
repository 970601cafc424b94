//! Tests of a registration against a simulated registrar, in virtual time.

use super::*;
use crate::trunk::{Account, Credentials, NextHop, Secret};
use proptest::prelude::*;
use strowger_locate::Hop;

const ANSWER: &str = "Via: SIP/2.0/UDP 192.0.2.9:5060;branch=z9hG4bK1\r\nFrom: <sip:acct@carrier.example>;tag=a\r\n\
    To: <sip:acct@carrier.example>;tag=b\r\n";
const NONCE: &str = "WWW-Authenticate: Digest realm=\"carrier\", nonce=\"n1\", qop=\"auth\"\r\n";

fn trunk() -> Trunk {
    let place = NextHop::Address(Hop::new(Transport::Udp, ([192, 0, 2, 1], 5060).into()));
    Trunk {
        name: "carrier".into(),
        credentials: Some(Credentials { username: (*b"acct").into(), password: Secret::new(*b"hush"), realm: None }),
        sources: Vec::new(),
        domains: Vec::new(),
        account: Some(Account {
            from: (*b"sip:acct@carrier.example").into(),
            contact_user: (*b"4930123").into(),
            registrar: (*b"sip:carrier.example").into(),
            next_hop: place,
            expires: Duration::from_secs(3600),
        }),
    }
}

/// A registration with its clock and its last request.
struct Fixture {
    registration: Registration,
    now: Timestamp,
    sent: String,
    transport: Transport,
}

impl Fixture {
    fn of(trunk: Trunk, seed: u64) -> Self {
        let registration = Registration::new(Timestamp::ZERO, Arc::new(trunk), seed);
        Self { registration, now: Timestamp::from_millis(1000), sent: String::new(), transport: Transport::Udp }
    }

    fn new() -> Self {
        Self::of(trunk(), 7)
    }

    /// Advances to the next timeout and writes what is due.
    fn advance(&mut self) -> Duration {
        let at = self.registration.poll_timeout().expect("something is to come").max(self.now);
        let waited = at - self.now;
        self.now = at;
        self.registration.handle_timeout(at);
        waited
    }

    fn send(&mut self) -> &str {
        let mut out = Vec::new();
        let sending = RequestParams { sent_by: b"192.0.2.9:5060", transport: self.transport, branch: b"z9hG4bK1" };
        assert!(self.registration.wants_request());
        assert!(self.registration.poll_request(self.now, &sending, &mut out));
        assert!(!self.registration.wants_request());
        self.sent = String::from_utf8(out).expect("ASCII");
        let message = Message::parse(self.sent.as_bytes()).expect("a request");
        assert_eq!(message.method(), Method::Register);
        &self.sent
    }

    fn start() -> Self {
        let mut fixture = Self::new();
        fixture.advance();
        fixture.send();
        fixture
    }

    fn answer(&mut self, status: &str, headers: &str) -> bool {
        let line = |name: &str| self.sent.lines().find(|line| line.starts_with(name)).expect("it is there").to_owned();
        let (call_id, cseq) = (line("Call-ID"), line("CSeq"));
        let text = format!("SIP/2.0 {status}\r\n{ANSWER}{call_id}\r\n{cseq}\r\n{headers}Content-Length: 0\r\n\r\n");
        self.registration.handle_response(self.now, &Message::parse(text.as_bytes()).expect("a response"))
    }

    fn accept(&mut self, expires: u64) {
        let contact =
            format!("Contact: <sip:other@192.0.2.8>;expires=9, <sip:4930123@192.0.2.9:5060>;expires={expires}\r\n");
        assert!(self.answer("200 OK", &contact));
    }

    fn state(&self) -> State {
        self.registration.status(self.now).state
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.sent.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

//= rfc3581#3:empty
//= rfc3261#8.1.1.4:one-call-id
//= rfc3261#10.2:one-call-id
//= rfc3261#10.2:cseq
//= rfc3261#10.2:no-action
//= rfc3261#10.2.4:own-bindings
#[test]
fn a_register_follows_rfc_3261() {
    let mut fixture = Fixture::start();
    assert!(
        fixture.sent.starts_with("REGISTER sip:carrier.example SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.9:5060;branch=")
    );
    assert!(fixture.header("Via").is_some_and(|via| via.ends_with(";rport")), "without a value");
    assert_eq!(fixture.header("To"), Some("<sip:acct@carrier.example>"));
    assert_eq!(fixture.header("Contact"), Some("<sip:4930123@192.0.2.9:5060>"));
    assert_eq!((fixture.header("Expires"), fixture.header("CSeq")), (Some("3600"), Some("1 REGISTER")));
    let call_id = fixture.header("Call-ID").map(str::to_owned);
    fixture.accept(600);
    fixture.transport = Transport::Tcp;
    fixture.advance();
    fixture.send();
    assert_eq!(fixture.header("CSeq"), Some("2 REGISTER"));
    assert_eq!(fixture.header("Call-ID").map(str::to_owned), call_id);
    assert_eq!(fixture.header("Contact"), Some("<sip:4930123@192.0.2.9:5060;transport=tcp>"));
}

//= rfc3261#8.1.1:mandatory-fields
//= rfc3261#8.1.1.2:no-to-tag
//= rfc3261#8.1.1.3:from-tag
//= rfc3261#8.1.1.6:max-forwards
//= rfc3261#8.1.1.6:seventy
//= rfc3261#8.1.1.7:inserts-via
//= rfc3261#8.1.1.7:sip-2-0
//= rfc3261#8.1.1.9:supported
//= rfc3261#8.1.1.9:standard-tags
//= rfc3261#10.2:fields
#[test]
fn a_register_has_all_mandatory_headers() {
    let fixture = Fixture::start();
    assert_eq!(fixture.header("Via"), Some("SIP/2.0/UDP 192.0.2.9:5060;branch=z9hG4bK1;rport"));
    assert_eq!(fixture.header("Max-Forwards"), Some("70"));
    assert_eq!(fixture.header("To"), Some("<sip:acct@carrier.example>"), "without a tag");
    assert!(fixture.header("From").is_some_and(|from| from.starts_with("<sip:acct@carrier.example>;tag=")));
    assert!(fixture.header("Call-ID").is_some() && fixture.header("CSeq").is_some());
    assert_eq!(fixture.header("Supported"), Some("path"), "RFC 3327, and no other extension");
    let other = Fixture::of(Trunk { name: "other".into(), ..trunk() }, 7);
    assert_ne!(fixture.registration.call_id, other.registration.call_id);
}

//= rfc3261#8.1.1.5:cseq-below-2-31
#[test]
fn a_cseq_stays_below_2_to_the_31() {
    let mut fixture = Fixture::start();
    fixture.registration.cseq = (1 << 31) - 1;
    fixture.registration.retry_at_next_hop();
    fixture.send();
    assert_eq!(fixture.header("CSeq"), Some("0 REGISTER"));
}

//= rfc3261#8.1.3.2:unknown-final
#[test]
fn unknown_failures_count_as_x00() {
    for (status, state) in [
        ("400 Bad Request", State::Refused),
        ("499 New", State::Refused),
        ("600 Busy Everywhere", State::Refused),
        ("699 New", State::Refused),
        ("601 New", State::Refused),
        ("408 Request Timeout", State::Failing),
        ("480 Temporarily Unavailable", State::Failing),
        ("500 Server Internal Error", State::Failing),
        ("599 New", State::Failing),
        ("300 Multiple Choices", State::Failing),
        ("399 New", State::Failing),
    ] {
        let mut fixture = Fixture::start();
        assert!(fixture.answer(status, ""));
        assert_eq!(fixture.state(), state, "{status}");
    }
    let mut fixture = Fixture::start();
    fixture.answer("299 New", "Expires: 60\r\n");
    assert_eq!(fixture.state(), State::Registered);
}

//= rfc3261#8.1.3.5:same-call
#[test]
fn credentials_are_sent_in_the_same_call_with_the_next_cseq() {
    let mut fixture = Fixture::start();
    let fields = |fixture: &Fixture| ["Call-ID", "To", "From"].map(|name| fixture.header(name).map(str::to_owned));
    let before = fields(&fixture);
    fixture.answer("401 Unauthorized", NONCE);
    fixture.send();
    assert_eq!((fields(&fixture), fixture.header("CSeq")), (before, Some("2 REGISTER")));
}

//= rfc3261#10.2:ignores-record-route
//= rfc3261#10.2:no-route-set
#[test]
fn a_record_route_in_a_response_is_ignored() {
    let mut fixture = Fixture::start();
    assert!(fixture.answer("200 OK", "Record-Route: <sip:192.0.2.77;lr>\r\nExpires: 600\r\n"));
    fixture.advance();
    fixture.send();
    assert!(fixture.sent.starts_with("REGISTER sip:carrier.example SIP/2.0\r\n"));
    assert_eq!(fixture.header("Route"), None);
}

#[test]
fn it_is_renewed_before_it_expires() {
    for seed in 0..50 {
        let mut fixture = Fixture::of(trunk(), seed);
        fixture.advance();
        fixture.send();
        fixture.accept(600);
        let status = fixture.registration.status(fixture.now);
        assert_eq!((status.state, status.registered_until), (State::Registered, Some(fixture.now + secs(600))));
        assert_eq!(status.last_response, Some(200));
        let waited = fixture.advance();
        assert!((secs(300)..=secs(540)).contains(&waited), "{waited:?}");
    }
}

#[test]
fn the_granted_expiry_is_found_in_any_form() {
    for (headers, granted) in [
        ("Contact: <sip:4930123@192.0.2.9>;expires=1\r\nContact: <sip:4930123@192.0.2.9:5060>;expires=60\r\n", 60),
        ("Expires: 90\r\n", 90),
        ("Contact: <sip:4930123@198.51.100.7:1024>;expires=120\r\n", 120),
        ("Contact: <sip:a@192.0.2.7>;expires=9, <sip:b@192.0.2.7>;expires=9\r\nExpires: 100\r\n", 100),
        ("Contact: <sip:4930123@192.0.2.9:5060>\r\n", 3600),
    ] {
        let mut fixture = Fixture::start();
        assert!(fixture.answer("200 OK", headers));
        let until = fixture.registration.status(fixture.now).registered_until;
        assert_eq!(until, Some(fixture.now + secs(granted)), "{headers}");
    }
}

//= rfc7616#3.3:refused
//= rfc3261#8.1.3.5:answers-challenges
#[test]
fn a_challenge_is_answered_once() {
    let mut fixture = Fixture::start();
    assert_eq!(fixture.header("Authorization"), None);
    assert!(fixture.answer("401 Unauthorized", NONCE));
    fixture.send();
    let credentials = fixture.header("Authorization").expect("credentials").to_owned();
    assert!(
        credentials.contains("nonce=\"n1\"") && credentials.contains("nc=00000001") && !credentials.contains("hush")
    );
    assert!(fixture.answer("401 Unauthorized", &NONCE.replace("n1", "n2")));
    assert_eq!(fixture.state(), State::Refused);
    let waited = fixture.advance();
    assert!((SLOW_WAIT / 2..=SLOW_WAIT).contains(&waited), "{waited:?}");
    fixture.send();
    assert_eq!(fixture.header("Authorization"), None, "the nonce is not tried again");
}

//= rfc7616#3.4:count-rises
//= rfc7616#3.6:remembered
#[test]
fn a_nonce_is_reused_until_a_new_one_is_sent() {
    let mut fixture = Fixture::start();
    fixture.answer("401 Unauthorized", NONCE);
    fixture.send();
    fixture.accept(600);
    fixture.advance();
    fixture.send();
    assert!(fixture.header("Authorization").expect("credentials").contains("nc=00000002"));
    // A new nonce in a new attempt is answered, whether it is called stale or not.
    assert!(fixture.answer("401 Unauthorized", &NONCE.replace("n1", "n2")));
    fixture.send();
    let credentials = fixture.header("Authorization").expect("credentials");
    assert!(credentials.contains("nonce=\"n2\"") && credentials.contains("nc=00000001"), "{credentials}");
    fixture.accept(600);
    assert_eq!(fixture.state(), State::Registered);
}

#[test]
fn stale_nonces_are_answered_but_not_forever() {
    let mut fixture = Fixture::start();
    for attempt in 0..MAX_ANSWERS {
        let challenge = NONCE.replace("n1", &format!("n{attempt}")).replace("qop", "stale=TRUE, qop");
        assert!(fixture.answer("407 Proxy Authentication Required", &challenge.replace("WWW-", "Proxy-")));
        fixture.send();
        assert!(fixture.header("Proxy-Authorization").is_some());
    }
    fixture.answer(
        "407 Proxy Authentication Required",
        &NONCE.replace("WWW-", "Proxy-").replace("qop", "stale=true, qop"),
    );
    assert_eq!(fixture.state(), State::Refused);
}

#[test]
fn a_proxy_and_the_registrar_are_both_answered() {
    let mut fixture = Fixture::start();
    fixture.answer("407 Proxy Authentication Required", &NONCE.replace("WWW-", "Proxy-").replace("carrier", "edge"));
    fixture.send();
    fixture.answer("401 Unauthorized", NONCE);
    fixture.send();
    assert!(fixture.header("Proxy-Authorization").expect("the proxy's").contains("nc=00000002"));
    assert!(fixture.header("Authorization").expect("the registrar's").contains("realm=\"carrier\""));
    fixture.accept(600);
    assert_eq!(fixture.state(), State::Registered);
}

#[test]
fn min_expires_is_accepted_once() {
    let mut fixture = Fixture::start();
    fixture.answer("423 Interval Too Brief", "Min-Expires: 7200\r\n");
    fixture.send();
    assert_eq!(fixture.header("Expires"), Some("7200"));
    fixture.answer("423 Interval Too Brief", "Min-Expires: 9000\r\n");
    assert_eq!(fixture.state(), State::Refused);
    for answer in ["", "Min-Expires: 60\r\n", "Min-Expires: 99999999999\r\n", "Min-Expires: soon\r\n"] {
        let mut fixture = Fixture::start();
        fixture.answer("423 Interval Too Brief", answer);
        assert_eq!(fixture.state(), State::Refused, "{answer}");
    }
}

//= rfc3261#10.2.7:no-hurry
#[test]
fn retries_back_off_exponentially() {
    let mut fixture = Fixture::start();
    for most in [60, 120, 240, 480, 600, 600] {
        fixture.registration.handle_failure(fixture.now);
        assert_eq!(fixture.state(), State::Failing);
        let waited = fixture.advance();
        assert!((secs(most) / 2..=secs(most)).contains(&waited), "{waited:?} of {most}");
        fixture.send();
    }
    fixture.accept(600);
    fixture.advance();
    fixture.send();
    fixture.registration.handle_failure(fixture.now);
    assert!(fixture.advance() <= secs(60), "a success begins anew");
}

#[test]
fn retry_after_is_obeyed_within_reason() {
    for (value, least, most) in
        [("100 (full)", 100, 100), ("5;duration=9", 30, 60), ("99999999", 600, 600), ("x", 30, 60)]
    {
        let mut fixture = Fixture::start();
        fixture.answer("503 Service Unavailable", &format!("Retry-After: {value}\r\n"));
        let waited = fixture.advance();
        assert!((secs(least)..=secs(most)).contains(&waited), "{value}: {waited:?}");
    }
}

#[test]
fn a_failed_renewal_keeps_the_binding_until_expiry() {
    let mut fixture = Fixture::start();
    fixture.accept(600);
    let until = fixture.registration.status(fixture.now).registered_until.expect("registered");
    fixture.advance();
    fixture.send();
    fixture.registration.handle_failure(fixture.now);
    let status = fixture.registration.status(fixture.now);
    assert_eq!((status.state, status.registered_until, status.last_response), (State::Failing, Some(until), None));
    assert_eq!(fixture.registration.status(until).registered_until, None);
}

#[test]
fn a_missing_final_response_times_out() {
    let mut fixture = Fixture::start();
    assert!(fixture.answer("100 Trying", ""));
    assert_eq!(fixture.advance(), TRYING_LIMIT);
    assert_eq!(fixture.state(), State::Failing);
}

#[test]
fn the_registrars_next_hop_is_tried_at_once() {
    let mut fixture = Fixture::start();
    let before = fixture.sent.clone();
    fixture.registration.retry_at_next_hop();
    fixture.send();
    assert_eq!(fixture.header("CSeq"), Some("2 REGISTER"));
    let now = fixture.sent.clone();
    fixture.sent = before;
    assert!(!fixture.answer("200 OK", "Expires: 60\r\n"), "what the first place says late is not believed");
    fixture.sent = now;
    fixture.accept(60);
    assert_eq!(fixture.state(), State::Registered);
}

//= rfc3261#10.2.2:removal
#[test]
fn it_unregisters_with_expires_zero() {
    let mut fixture = Fixture::start();
    fixture.answer("401 Unauthorized", NONCE);
    fixture.send();
    fixture.accept(600);
    fixture.registration.unregister(fixture.now);
    assert_eq!(fixture.state(), State::Leaving);
    fixture.send();
    assert_eq!(fixture.header("Expires"), Some("0"));
    assert!(fixture.header("Authorization").expect("credentials").contains("nc=00000002"));
    assert!(fixture.answer("200 OK", ""));
    assert!(fixture.registration.is_stopped());
    assert_eq!(fixture.registration.poll_timeout(), None);
    assert_eq!(fixture.registration.status(fixture.now).registered_until, None);
}

//= rfc3261#10.2:one-at-a-time
#[test]
fn unregistering_waits_for_the_pending_response() {
    let mut fixture = Fixture::start();
    fixture.registration.unregister(fixture.now);
    assert!(!fixture.registration.wants_request(), "RFC 3261 §10.2 allows one at a time");
    fixture.accept(600);
    fixture.send();
    assert_eq!(fixture.header("Expires"), Some("0"));
    fixture.registration.handle_failure(fixture.now);
    assert!(fixture.registration.is_stopped());

    let mut fixture = Fixture::new();
    fixture.registration.unregister(fixture.now);
    assert!(fixture.registration.is_stopped(), "nothing was registered");
}

#[test]
fn a_trunk_without_an_account_or_without_credentials() {
    let fixture = Fixture::of(Trunk { account: None, ..trunk() }, 1);
    assert!(fixture.registration.is_stopped());
    let mut fixture = Fixture::of(Trunk { credentials: None, ..trunk() }, 1);
    fixture.advance();
    fixture.send();
    fixture.answer("401 Unauthorized", NONCE);
    assert_eq!(fixture.state(), State::Refused);
}

#[test]
fn the_password_is_never_shown() {
    let fixture = Fixture::start();
    assert!(!format!("{:?}", fixture.registration).contains("hush"));
    assert!(!format!("{:?}", trunk()).contains("hush"));
}

/// Events of a registration.
const EVENTS: [&str; 10] =
    ["timeout", "200", "200 zero", "401", "423", "403", "503", "failure", "elsewhere", "unregister"];

fn happen(fixture: &mut Fixture, event: &str) {
    match event {
        "timeout" => drop(fixture.registration.poll_timeout().is_some().then(|| fixture.advance())),
        "200" => drop(fixture.answer("200 OK", "Expires: 600\r\n")),
        "200 zero" => drop(fixture.answer("200 OK", "Expires: 0\r\n")),
        "401" => drop(fixture.answer("401 Unauthorized", NONCE)),
        "423" => drop(fixture.answer("423 Interval Too Brief", "Min-Expires: 7200\r\n")),
        "403" => drop(fixture.answer("403 Forbidden", "")),
        "503" => drop(fixture.answer("503 Service Unavailable", "")),
        "failure" => fixture.registration.handle_failure(fixture.now),
        "elsewhere" => fixture.registration.retry_at_next_hop(),
        _ => fixture.registration.unregister(fixture.now),
    }
}

/// Returns phase and state as a letter or two.
fn show(fixture: &Fixture) -> String {
    let phase = match fixture.registration.phase {
        Phase::Waiting(_) => "waits",
        Phase::Due => "due",
        Phase::Trying(_) => "tries",
        Phase::Stopped => "stopped",
    };
    format!("{phase} {:?}", fixture.state())
}

#[test]
fn every_event_in_every_state() {
    let due = || {
        let mut fixture = Fixture::start();
        fixture.registration.retry_at_next_hop();
        fixture
    };
    let registered = || {
        let mut fixture = Fixture::start();
        fixture.accept(600);
        fixture
    };
    let leaving = || {
        let mut fixture = registered();
        fixture.registration.unregister(fixture.now);
        fixture.send();
        fixture
    };
    let stopped = || {
        let mut fixture = leaving();
        fixture.registration.handle_failure(fixture.now);
        fixture
    };
    let same = |state: &'static str| [state; 10];
    let mut table: Vec<(Fixture, [&str; 10], usize)> = Vec::new();
    let mut row = |make: &dyn Fn() -> Fixture, expected: [&'static str; 10]| {
        (0..EVENTS.len()).for_each(|event| table.push((make(), expected, event)));
    };
    row(
        &Fixture::start,
        [
            "waits Failing",
            "waits Registered",
            "waits Failing",
            "due Registering",
            "due Registering",
            "waits Refused",
            "waits Failing",
            "waits Failing",
            "due Registering",
            "tries Leaving",
        ],
    );
    let mut expected = same("due Registering");
    (expected[7], expected[9]) = ("waits Failing", "stopped Stopped");
    row(&due, expected);
    let mut expected = same("waits Registered");
    (expected[0], expected[9]) = ("due Registered", "due Leaving");
    row(&registered, expected);
    let mut expected = same("stopped Stopped");
    (expected[3], expected[8], expected[9]) = ("due Leaving", "due Leaving", "tries Leaving");
    row(&leaving, expected);
    row(&stopped, same("stopped Stopped"));
    for (mut fixture, expected, event) in table {
        let before = show(&fixture);
        happen(&mut fixture, EVENTS[event]);
        assert_eq!(show(&fixture), expected[event], "{before}: {}", EVENTS[event]);
    }
}

proptest! {
    /// After any events it is stopped, waits for a time, or has a request due.
    #[test]
    fn it_is_never_stuck(seed in any::<u64>(), events in proptest::collection::vec(0..EVENTS.len(), 0..60)) {
        let mut fixture = Fixture::of(trunk(), seed);
        fixture.advance();
        fixture.send();
        for event in events {
            happen(&mut fixture, EVENTS[event]);
            if fixture.registration.wants_request() {
                fixture.send();
            }
            let registration = &fixture.registration;
            prop_assert!(registration.is_stopped() != registration.poll_timeout().is_some());
            prop_assert!(registration.cseq < 1 << 31);
        }
    }
}

/// Returns the same registration in another process, at the same time.
fn taken_over(fixture: &Fixture) -> Fixture {
    let mut bytes = Vec::new();
    assert!(fixture.registration.export(&mut bytes));
    let mut other = Fixture::of(trunk(), 99);
    other.now = fixture.now;
    assert!(other.registration.import(other.now, &bytes));
    assert_eq!(fixture.registration.status(fixture.now), other.registration.status(other.now));
    other
}

#[test]
fn another_process_renews_in_time_as_the_same_client() {
    let mut old = Fixture::start();
    assert!(old.answer("401 Unauthorized", NONCE));
    old.send();
    old.accept(600);
    let mut new = taken_over(&old);
    assert_eq!(old.advance(), new.advance(), "not before its time");
    for fixture in [&mut old, &mut new] {
        fixture.send();
        assert_eq!(fixture.header("CSeq"), Some("3 REGISTER"));
        let answer = fixture.header("Authorization").expect("the nonce is known");
        assert!(answer.contains("nonce=\"n1\"") && answer.contains("nc=00000002"), "{answer}");
    }
    for name in ["Call-ID", "From", "To", "Contact"] {
        assert_eq!(old.header(name), new.header(name));
    }
    new.accept(600);
    assert_eq!(new.state(), State::Registered);
}

#[test]
fn a_request_in_progress_is_sent_again_by_the_other_process() {
    let old = Fixture::start();
    let mut bytes = Vec::new();
    assert!(old.registration.export(&mut bytes));
    let mut new = Fixture::of(trunk(), 99);
    assert!(new.registration.import(new.now, &bytes));
    assert_eq!(new.advance(), Duration::ZERO);
    new.send();
    assert_eq!(new.header("CSeq"), Some("2 REGISTER"), "not confused with the first");
    assert_eq!(old.header("Call-ID"), new.header("Call-ID"));
}

#[test]
fn a_failing_registration_keeps_its_waits() {
    let mut old = Fixture::start();
    for _ in 0..3 {
        assert!(old.answer("500 Server Error", ""));
        old.advance();
        old.send();
    }
    assert!(old.answer("403 Forbidden", ""));
    let mut new = taken_over(&old);
    assert_eq!((new.state(), old.advance()), (State::Refused, new.advance()));
}

#[test]
fn a_registration_that_is_being_removed_stays_where_it_is() {
    let mut old = Fixture::start();
    old.accept(600);
    old.registration.unregister(old.now);
    let mut bytes = Vec::new();
    assert!(!old.registration.export(&mut bytes) && bytes.is_empty());
}

proptest! {
    #[test]
    fn no_bytes_panic_and_bad_ones_change_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..200), cut in 0_usize..100) {
        let mut old = Fixture::start();
        assert!(old.answer("401 Unauthorized", NONCE));
        let mut good = Vec::new();
        assert!(old.registration.export(&mut good));
        good.truncate(good.len() - 1 - cut % good.len());
        let mut new = Fixture::new();
        let before = format!("{:?}", new.registration);
        prop_assert!(!new.registration.import(new.now, &good));
        prop_assert_eq!(&before, &format!("{:?}", new.registration));
        if !new.registration.import(new.now, &bytes) {
            prop_assert_eq!(before, format!("{:?}", new.registration));
        }
    }
}
