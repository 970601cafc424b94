//! Digest authentication as a client sees it (RFC 3261 §22, RFC 7616, RFC 8760).

mod support;

use std::time::Duration;

use strowger_auth::client;
use strowger_auth::{Algorithm, Ha1, Network, Qop};
use strowger_directory::{Directory, DirectoryChange, Ha1s, User};
use strowger_foundation::{ConnId, Flow, ListenerId, Timestamp, Transport};
use strowger_message::AuthParams;
use strowger_proxy::Stateless;
use strowger_shard::{Action, Event, Route, RouteTarget};
use support::{ALICE, Account, BOB, SentMessage, World, request, summary};

const WRONG: &str = "not the secret";

fn password(user: &str) -> String {
    format!("secret of {user}")
}

fn user(name: &str) -> User {
    let ha1 = |algorithm| Ha1::compute(algorithm, name.as_bytes(), b"example.com", password(name).as_bytes());
    let raw = |algorithm| ha1(algorithm).as_bytes().to_vec();
    User {
        aor: format!("{name}@example.com").into_bytes().into(),
        ha1: Ha1s {
            md5: raw(Algorithm::Md5).try_into().ok(),
            sha256: raw(Algorithm::Sha256).try_into().ok(),
            sha512_256: raw(Algorithm::Sha512_256).try_into().ok(),
        },
        enabled: true,
    }
}

fn directory() -> Directory {
    Directory::empty(1).with_changes(["alice", "bob"].map(|name| DirectoryChange::PutUser(user(name))))
}

/// A server that knows Alice and Bob and requires credentials.
fn world() -> World {
    World::new(|snapshot| {
        snapshot.auth.require = vec![(*b"REGISTER").into(), (*b"INVITE").into()];
        snapshot.directory = directory();
    })
}

/// A client that answers challenges, and its variations.
struct Client {
    name: &'static str,
    password: String,
    nc: u32,
    cover_body: bool,
}

impl Client {
    fn new(name: &'static str) -> Self {
        Self { name, password: password(name), nc: 1, cover_body: false }
    }

    /// Returns the request with the answer to challenge `number` of `refusal`, as a new transaction.
    fn answer_to(&self, refusal: &SentMessage, number: usize, text: &str) -> String {
        let account = Account { nc: self.nc, cover_body: self.cover_body, ..Account::new(self.name, &self.password) };
        let line = account.authorization(refusal, number, text);
        again(text, &self.nc.to_string()).replacen("Content-Length", &format!("{line}Content-Length"), 1)
    }

    fn answer(&self, refusal: &SentMessage, text: &str) -> String {
        self.answer_to(refusal, 0, text)
    }
}

/// Returns the same request in another transaction.
fn again(text: &str, suffix: &str) -> String {
    text.replacen("branch=z9hG4bK", &format!("branch=z9hG4bKagain{suffix}"), 1)
}

fn register(user: &str, branch: &str) -> String {
    format!(
        "REGISTER sip:example.com SIP/2.0\r\nVia: SIP/2.0/UDP {BOB};branch=z9hG4bK{branch}\r\nMax-Forwards: 70\r\n\
         From: <sip:{user}@example.com>;tag=r\r\nTo: <sip:{user}@example.com>\r\nCall-ID: {branch}\r\n\
         CSeq: 1 REGISTER\r\nContact: <sip:{user}@{BOB}>\r\nContent-Length: 0\r\n\r\n"
    )
}

fn only(mut sent: Vec<SentMessage>) -> SentMessage {
    assert_eq!(sent.len(), 1, "{:?}", summary(&sent));
    sent.remove(0)
}

/// A server with Bob registered.
fn with_bob() -> World {
    let mut world = world();
    let text = register("bob", "bob");
    let refusal = only(world.input(BOB, &text));
    assert_eq!(only(world.input(BOB, &Client::new("bob").answer(&refusal, &text))).status(), 200);
    world
}

fn invite(branch: &str) -> String {
    request("INVITE", "sip:bob@example.com", branch, "")
}

/// The client's ACK to a refusal, with the To of the refusal.
fn ack(text: &str, refusal: &SentMessage) -> String {
    let to = text.lines().find(|line| line.starts_with("To: ")).expect("has a To");
    let acked = format!("To: {}", refusal.header("To").expect("has a To"));
    text.replace("INVITE sip", "ACK sip").replace("1 INVITE", "1 ACK").replace(to, &acked)
}

/// Sends an INVITE that is challenged, acknowledges the challenge and returns it.
fn challenged(world: &mut World, text: &str) -> SentMessage {
    let refusal = only(world.input(ALICE, text));
    assert_eq!(refusal.status(), 407, "{}", refusal.start());
    assert!(world.input(ALICE, &ack(text, &refusal)).is_empty(), "the ACK is absorbed and not challenged");
    refusal
}

//= rfc7616#5.2:realm
//= rfc3261#10.3:authenticates
#[test]
fn a_phone_registers_with_its_password() {
    let mut world = world();
    let text = register("bob", "one");
    let refusal = only(world.input(BOB, &text));
    assert_eq!(refusal.start(), "SIP/2.0 401 Unauthorized");
    let challenge = refusal.header("WWW-Authenticate").expect("a challenge");
    assert!(challenge.contains("realm=\"example.com\"") && challenge.contains("qop=\"auth\""), "{challenge}");
    assert!(!challenge.contains("stale"), "{challenge}");
    let answer = only(world.input(BOB, &Client::new("bob").answer(&refusal, &text)));
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers("Contact").count(), 1);
    assert_eq!(world.events, []);
    assert_eq!(world.shard.counters().challenged, 1);
}

//= rfc3261#8.2.7:no-provisional
//= rfc3261#8.2.7:no-retransmission
//= rfc3261#8.2.7:ignores-ack
//= rfc3261#8.2.7:same-to-tag
/// For any kind of branch and transport.
#[test]
fn a_challenge_keeps_no_state() {
    let tcp =
        Flow::on_connection(ListenerId(1), Transport::Tcp, ALICE.parse().expect("an address"), ConnId::new(0, 9, 1));
    let udp = Flow::new(ListenerId(0), Transport::Udp, ALICE.parse().expect("an address"));
    for (flow, branch) in [(udp, "z9hG4bKcall"), (udp, "1"), (tcp, "z9hG4bKcall")] {
        let mut world = World::listening(&["UDP", "TCP"], |snapshot| {
            snapshot.auth.require = vec![(*b"REGISTER").into(), (*b"INVITE").into()];
            snapshot.directory = directory();
        });
        world.now = Timestamp::from_millis(8_192 * 10);
        for text in [invite("call"), register("alice", "call").replace(BOB, ALICE)] {
            let is_invite = text.starts_with("INVITE");
            let token = flow.transport.as_str();
            let text = text.replace("z9hG4bKcall", branch).replace("SIP/2.0/UDP", &format!("SIP/2.0/{token}"));
            let before = world.shard.counters();
            let first = only(world.input_by(flow, &text));
            assert_eq!(first.status(), if is_invite { 407 } else { 401 });
            assert_eq!(first.flow.connection, flow.connection);
            assert_eq!((world.shard.transactions(), world.shard.poll_timeout()), (0, None), "nothing is kept");
            assert!(world.wait(Duration::from_secs(8)).is_empty(), "nothing is sent again");
            let again = only(world.input_by(flow, &text));
            assert_eq!((&again.text, again.flow), (&first.text, first.flow), "asked again, it says the same");
            for _ in 0..2 {
                if is_invite {
                    assert!(world.input_by(flow, &ack(&text, &first)).is_empty(), "the ACK goes nowhere");
                }
            }
            let counters = world.shard.counters();
            assert_eq!(counters.challenged - before.challenged, 2);
            assert_eq!((counters.refused, counters.malformed, counters.wrong_credentials), (0, 0, 0));
            assert_eq!((counters.forwarded_stateless, &world.events[..]), (0, &[][..]));
            // Later only the nonce differs.
            world.wait(Duration::from_millis(192));
            let later = only(world.input_by(flow, &text));
            assert_ne!(later.text, first.text);
            let rest =
                |sent: &SentMessage| sent.text.lines().filter(|line| !line.contains("nonce=")).collect::<String>();
            assert_eq!(rest(&later), rest(&first));
        }
    }
}

/// An ACK with the callee's tag or another foreign one is forwarded or dropped like any other.
#[test]
fn an_ack_matches_a_challenge_only_by_its_to_tag() {
    let mut world = with_bob();
    let text = invite("call");
    let refusal = only(world.input(ALICE, &text));
    let ack = ack(&text, &refusal);
    let tag = refusal.header("To").and_then(|to| to.split_once(";tag=")).expect("has a tag").1;
    let other = tag.replacen(|letter: char| letter != 'b', "b", 1);
    assert_eq!(summary(&world.input(ALICE, &ack.replace(tag, &other))), [format!("ACK {BOB}")]);
    assert_eq!(summary(&world.input(ALICE, &again(&ack, "2"))), [format!("ACK {BOB}")], "of another transaction");
    assert!(world.input(ALICE, &ack).is_empty());
}

//= rfc7616#3.8:407
//= rfc3261#16.3:credentials
#[test]
fn a_caller_answers_407_and_credentials_are_removed() {
    let mut world = with_bob();
    let refusal = challenged(&mut world, &invite("call"));
    let foreign = "Proxy-Authorization: Digest username=\"a\", realm=\"elsewhere.example\", nonce=\"n\", uri=\"sip:x\", \
                   response=\"00000000000000000000000000000000\"";
    let text = Client::new("alice").answer(&refusal, &invite("call"));
    let text = text.replacen("Content-Length", &format!("{foreign}\r\nContent-Length"), 1);
    let sent = world.input(ALICE, &text);
    assert_eq!(summary(&sent), [format!("100 {ALICE}"), format!("INVITE {BOB}")]);
    let left: Vec<_> = sent[1].headers("Proxy-Authorization").collect();
    assert_eq!(left.len(), 1, "ours goes, another proxy's stays: {left:?}");
    assert!(left[0].contains("elsewhere.example"));
}

//= rfc7616#3.7:other-algorithm
//= rfc7616#3.7:order
#[test]
fn challenges_follow_the_configured_algorithm_order() {
    let order = [Algorithm::Sha512_256, Algorithm::Sha256, Algorithm::Md5];
    let mut world = world();
    world.configure(|s| s.auth.algorithms = order.to_vec());
    for (number, algorithm) in order.iter().enumerate() {
        // As long as a phone's REGISTER, so that all challenges fit.
        let text = register("bob", &format!("algorithm{number}"));
        let text = text.replacen("Content-Length", "User-Agent: Phone\r\nExpires: 3600\r\nContent-Length", 1);
        let refusal = only(world.input(BOB, &text));
        let named: Vec<_> = refusal
            .headers("WWW-Authenticate")
            .map(|challenge| client::algorithm(&AuthParams::parse(challenge.as_bytes()).expect("valid")))
            .collect();
        assert_eq!(named, order.map(Some));
        let answer = only(world.input(BOB, &Client::new("bob").answer_to(&refusal, number, &text)));
        assert_eq!(answer.status(), 200, "{algorithm:?}");
    }
}

//= rfc7616#3.4:logged
//= rfc7616#3.4:log-careful
#[test]
fn a_wrong_password_is_challenged_again_and_reported() {
    let mut world = world();
    let text = register("bob", "wrong");
    let refusal = only(world.input(BOB, &text));
    let wrong = Client { password: WRONG.to_owned(), ..Client::new("bob") };
    let again = only(world.input(BOB, &wrong.answer(&refusal, &text)));
    assert_eq!(again.status(), 401);
    assert!(!again.header("WWW-Authenticate").expect("a challenge").contains("stale=true"));
    let peer = BOB.parse().expect("an address");
    let failure = |is_proven| Event::WrongCredentials {
        peer,
        transport: Transport::Udp,
        identity: "sip:bob@example.com".to_owned(),
        user: Some("bob@example.com".to_owned()),
        is_known_user: true,
        is_proven,
    };
    assert_eq!(world.events, [failure(true)]);
    // Whoever sends the same from another address has not received the challenge there.
    let forged = Flow::new(ListenerId(0), Transport::Udp, "203.0.113.9:5060".parse().expect("an address"));
    world.events.clear();
    world.input_by(forged, &wrong.answer(&refusal, &text).replace("branch=z9hG4bK", "branch=z9hG4bKother"));
    let Some(Event::WrongCredentials { is_proven: false, is_known_user: true, .. }) = world.events.first() else {
        panic!("{:?}", world.events)
    };
    assert_eq!(world.shard.counters().wrong_credentials, 2);
    assert_eq!(world.locations.len(), 0);
}

/// Returns a refusal without random values and user names.
fn anonymous(refusal: &SentMessage, user: &str) -> String {
    let mut text = refusal.text.replace(user, "USER");
    for (begin, end) in [("nonce=\"", "\""), (">;tag=", "\r\n")] {
        let mut from = 0;
        while let Some(at) = text[from..].find(begin).map(|at| from + at + begin.len()) {
            let to = at + text[at..].find(end).expect("ends");
            text.replace_range(at..to, "X");
            from = at;
        }
    }
    text
}

#[test]
fn users_are_not_enumerable() {
    let mut world = world();
    world.configure(|s| {
        s.directory = s.directory.with_changes([DirectoryChange::PutUser(User { enabled: false, ..user("carl") })]);
    });
    let mut answers = |name: &'static str, text: String| {
        let first = only(world.input(BOB, &text));
        let wrong = Client { password: WRONG.to_owned(), ..Client::new(name) };
        let second = only(world.input(BOB, &wrong.answer(&first, &text)));
        [anonymous(&first, name), anonymous(&second, name)]
    };
    let known = answers("bob", register("bob", "bob"));
    assert_eq!(answers("eve", register("eve", "eve")), known, "unknown");
    assert_eq!(answers("carl", register("carl", "carl")), known, "disabled");
    let call = |name: &str| {
        request("INVITE", &format!("sip:{name}@example.com"), name, "")
            .replace(ALICE, BOB)
            .replace("bob@", &format!("{name}@"))
    };
    let to_known = answers("bob", call("bob"));
    assert_eq!(answers("eve", call("eve")), to_known, "a stranger who calls learns nothing either");
}

//= rfc3261#10.3:authorizes
//= rfc3261#10.3:forbidden
#[test]
fn a_user_registers_and_calls_only_as_itself() {
    let mut world = with_bob();
    let text = register("bob", "theft");
    let refusal = only(world.input(ALICE, &text));
    let stolen = only(world.input(ALICE, &Client::new("alice").answer(&refusal, &text)));
    assert_eq!(stolen.start(), "SIP/2.0 403 Not Your Identity");
    let mut wrong_identities = 1;
    for from in ["sip:bob@example.com", "sip:alice@elsewhere.example", "tel:+15550100"] {
        let text =
            invite(from.split(['@', ':', '.', '+']).nth(2).unwrap_or("x")).replace("sip:alice@example.com", from);
        let refusal = challenged(&mut world, &text);
        let sent = only(world.input(ALICE, &Client::new("alice").answer(&refusal, &text)));
        assert_eq!(sent.status(), 403, "{from}");
        wrong_identities += 1;
    }
    let events = world.events.iter().filter(|event| matches!(event, Event::WrongIdentity { .. })).count();
    assert_eq!(events, wrong_identities);
}

#[test]
fn an_alias_calls_with_its_users_password() {
    let mut world = with_bob();
    let alias = DirectoryChange::PutAlias { alias: (*b"100@example.com").into(), aor: (*b"alice@example.com").into() };
    world.configure(|s| s.directory = s.directory.with_changes([alias]));
    let text = invite("alias").replace("sip:alice@example.com", "sip:100@example.com");
    let refusal = challenged(&mut world, &text);
    let sent = world.input(ALICE, &Client::new("alice").answer(&refusal, &text));
    assert_eq!(summary(&sent), [format!("100 {ALICE}"), format!("INVITE {BOB}")]);
}

//= rfc7616#5.5:replay
#[test]
fn aged_and_used_nonces_are_stale() {
    let mut world = world();
    let text = register("bob", "aged");
    let refusal = only(world.input(BOB, &text));
    let mut client = Client::new("bob");
    assert_eq!(only(world.input(BOB, &client.answer(&refusal, &text))).status(), 200);

    let replay = again(&client.answer(&refusal, &text), "replay");
    let replayed = only(world.input(BOB, &replay));
    assert_eq!(replayed.status(), 401);
    assert!(replayed.header("WWW-Authenticate").expect("a challenge").contains("stale=true"));

    client.nc = 2;
    let refresh = text.replace("CSeq: 1 ", "CSeq: 2 ");
    assert_eq!(only(world.input(BOB, &client.answer(&refusal, &refresh))).status(), 200, "the next count is good");

    client.nc = 3;
    // A nonce counts as issued up to eight seconds later.
    world.wait(Duration::from_secs(309));
    let aged = only(world.input(BOB, &client.answer(&refusal, &text.replace("CSeq: 1 ", "CSeq: 3 "))));
    assert_eq!(aged.status(), 401);
    assert!(aged.header("WWW-Authenticate").expect("a challenge").contains("stale=true"));
    client.nc = 1;
    let last = text.replace("CSeq: 1 ", "CSeq: 4 ");
    assert_eq!(only(world.input(BOB, &client.answer(&aged, &last))).status(), 200, "and can be answered at once");
    assert_eq!(world.events, [], "an old nonce is no attack");
}

#[test]
fn users_can_change_at_run_time() {
    let mut world = world();
    let attempt = |world: &mut World, branch: &str| {
        let text = register("bob", branch);
        let refusal = only(world.input(BOB, &text));
        only(world.input(BOB, &Client::new("bob").answer(&refusal, &text))).status()
    };
    assert_eq!(attempt(&mut world, "enabled"), 200);
    let disabled = DirectoryChange::PutUser(User { enabled: false, ..user("bob") });
    world.configure(|s| s.directory = s.directory.with_changes([disabled]));
    assert_eq!(attempt(&mut world, "disabled"), 401);
    world.configure(|s| s.directory = directory());
    assert_eq!(attempt(&mut world, "again"), 200);
    let removed = DirectoryChange::RemoveUser((*b"bob@example.com").into());
    world.configure(|s| s.directory = s.directory.with_changes([removed]));
    assert_eq!(attempt(&mut world, "removed"), 401);
    let other = User { ha1: user("alice").ha1, ..user("bob") };
    world.configure(|s| s.directory = s.directory.with_changes([DirectoryChange::PutUser(other)]));
    assert_eq!(attempt(&mut world, "password"), 401);
}

#[test]
fn a_trusted_address_is_not_challenged() {
    let mut world = with_bob();
    world.configure(|s| s.auth.trusted = vec![Network { address: "192.0.2.10".parse().expect("valid"), prefix: 32 }]);
    let sent = world.input(ALICE, &invite("trusted"));
    assert_eq!(summary(&sent), [format!("100 {ALICE}"), format!("INVITE {BOB}")]);
    let other = "192.0.2.11:5060";
    let sent = world.input(other, &invite("stranger").replace(ALICE, other));
    assert_eq!(summary(&sent), [format!("407 {other}")]);
}

/// Sets up a call from Alice and returns its Record-Route.
fn call(world: &mut World) -> String {
    let refusal = challenged(world, &invite("call"));
    let sent = world.input(ALICE, &Client::new("alice").answer(&refusal, &invite("call")));
    let answer = world.input(BOB, &sent[1].response(200, "OK", ";tag=b", "Contact: <sip:bob@192.0.2.20:5060>\r\n"));
    answer[0].header("Record-Route").expect("recorded").to_owned()
}

fn in_dialog(method: &str, branch: &str, route: &str) -> String {
    request(method, "sip:bob@192.0.2.20:5060", branch, &format!("Route: {route}\r\n"))
        .replace("To: <sip:bob@example.com>", "To: <sip:bob@example.com>;tag=b")
}

#[test]
fn requests_within_a_call_are_not_challenged() {
    let mut world = with_bob();
    world.configure(|s| s.auth.require.extend([(*b"BYE").into(), (*b"ACK").into(), (*b"CANCEL").into()]));
    let route = call(&mut world);
    let ack = world.input(ALICE, &in_dialog("ACK", "ack", &route));
    assert_eq!(summary(&ack), [format!("ACK {BOB}")]);
    let again = world.input(ALICE, &in_dialog("INVITE", "hold", &route).replace("CSeq: 1", "CSeq: 2"));
    assert_eq!(summary(&again), [format!("100 {ALICE}"), format!("INVITE {BOB}")]);
    let bye = world.input(ALICE, &in_dialog("BYE", "bye", &route).replace("CSeq: 1", "CSeq: 3"));
    assert_eq!(summary(&bye), [format!("BYE {BOB}")]);
}

/// A server that also authenticates within calls, and a call; returns the Route to the other side.
fn asking_in_dialogs() -> (World, String) {
    let mut world = with_bob();
    world.configure(|s| {
        s.auth.in_dialog = true;
        s.auth.require.extend([(*b"BYE").into(), (*b"ACK").into(), (*b"CANCEL").into()]);
    });
    let route = call(&mut world);
    (world, route)
}

#[test]
fn in_dialog_challenges_apply_when_configured() {
    let (mut world, route) = asking_in_dialogs();
    let ack = world.input(ALICE, &in_dialog("ACK", "ack", &route));
    assert_eq!(summary(&ack), [format!("ACK {BOB}")], "an ACK cannot be asked");
    for (method, cseq) in [("INVITE", 2), ("BYE", 4)] {
        let text = in_dialog(method, method, &route).replace("CSeq: 1", &format!("CSeq: {cseq}"));
        let refusal = only(world.input(ALICE, &text));
        assert_eq!(refusal.status(), 407, "{method}");
        let wrong = Client { password: WRONG.to_owned(), ..Client::new("alice") };
        assert_eq!(only(world.input(ALICE, &wrong.answer(&refusal, &text))).status(), 407, "{method}");
        let sent = world.input(ALICE, &Client { nc: 2, ..Client::new("alice") }.answer(&refusal, &text));
        let forwarded = support::find(&sent, method);
        assert_eq!((forwarded.to.to_string().as_str(), forwarded.header("Proxy-Authorization")), (BOB, None));
    }
    let info = in_dialog("INFO", "info", &route).replace("CSeq: 1", "CSeq: 6");
    assert_eq!(summary(&world.input(ALICE, &info)), [format!("INFO {BOB}")], "which is not required");
}

#[test]
fn an_authenticated_re_invite_is_cancelled_without_a_challenge() {
    let (mut world, route) = asking_in_dialogs();
    world.input(ALICE, &in_dialog("ACK", "ack", &route));
    let text = in_dialog("INVITE", "hold", &route).replace("CSeq: 1", "CSeq: 2");
    let refusal = only(world.input(ALICE, &text));
    let again = Client::new("alice").answer(&refusal, &text);
    let sent = world.input(ALICE, &again);
    world.respond(&support::find(&sent, "INVITE"), 180, "b", "");
    let cancel = again.replace("INVITE sip", "CANCEL sip").replace("2 INVITE", "2 CANCEL");
    let cancelled = world.input(ALICE, &cancel);
    assert_eq!(summary(&cancelled), [format!("200 {ALICE}"), format!("CANCEL {BOB}")]);
}

#[test]
fn a_cancel_of_an_unauthenticated_re_invite_is_refused() {
    let (mut world, route) = asking_in_dialogs();
    world.configure(|s| s.proxy.stateless = Stateless::Always);
    let cancel = |branch: &str| in_dialog("CANCEL", branch, &route).replace("CSeq: 1", "CSeq: 2");
    assert_eq!(summary(&world.input(ALICE, &cancel("hold"))), [format!("481 {ALICE}")]);
    // Without authentication, the re-INVITE was forwarded without state, and so is its CANCEL.
    world.configure(|s| s.auth.in_dialog = false);
    assert_eq!(summary(&world.input(ALICE, &cancel("again"))), [format!("CANCEL {BOB}")]);
}

/// From names the callee as the caller dialled it, which may be another user.
#[test]
fn a_callee_who_is_a_user_is_challenged_and_others_are_not() {
    let (mut world, route) = asking_in_dialogs();
    world.input(ALICE, &in_dialog("ACK", "ack", &route));
    let from_callee = |from: &str, branch: &str| {
        in_dialog("BYE", branch, &route)
            .replace("sip:bob@192.0.2.20:5060 SIP", "sip:alice@192.0.2.10:5060 SIP")
            .replace(&format!("Via: SIP/2.0/UDP {ALICE}"), &format!("Via: SIP/2.0/UDP {BOB}"))
            .replace("From: <sip:alice@example.com>;tag=a", &format!("From: <{from}>;tag=b"))
            .replace("To: <sip:bob@example.com>;tag=b", "To: <sip:alice@example.com>;tag=a")
    };
    let text = from_callee("sip:bob@example.com", "bob");
    let refusal = only(world.input(BOB, &text));
    assert_eq!(refusal.status(), 407);
    // Bob's calls may be forwarded to Alice's other phone, which has her password.
    let sent = world.input(BOB, &Client::new("alice").answer(&refusal, &text));
    assert_eq!(summary(&sent), [format!("BYE {ALICE}")]);
    let number = from_callee("sip:+4930123@example.com", "number");
    assert_eq!(summary(&world.input(BOB, &number)), [format!("BYE {ALICE}")], "a number is nobody's");
    world.configure(|s| {
        let gateway = RouteTarget::at(b"sip:192.0.2.20", BOB.parse().expect("an address"));
        s.routes = vec![Route::of_domain(b"elsewhere.example", Action::proxy(vec![gateway], Stateless::Never))];
    });
    let gateway = from_callee("sip:bob@example.com", "gateway");
    assert_eq!(summary(&world.input(BOB, &gateway)), [format!("BYE {ALICE}")], "a gateway has no password");
    world.configure(|s| {
        s.routes.clear();
        s.auth.trusted = vec![Network { address: "192.0.2.20".parse().expect("valid"), prefix: 32 }];
    });
    let trusted = from_callee("sip:bob@example.com", "trusted");
    assert_eq!(summary(&world.input(BOB, &trusted)), [format!("BYE {ALICE}")]);
}

#[test]
fn a_route_is_valid_for_one_call_only() {
    let mut world = with_bob();
    let route = call(&mut world);
    let line = format!("Route: {route}\r\n");
    let new = request("INVITE", "sip:bob@192.0.2.20:5060", "new", &line);
    let sent = only(world.input(ALICE, &new));
    assert_eq!(sent.status(), 407, "without a To tag it begins a call, whatever Route it carries");
    let other = in_dialog("INVITE", "other", &route).replace("Call-ID: call-1@alice", "Call-ID: call-2@alice");
    assert_eq!(only(world.input(ALICE, &other)).status(), 407);
}

#[test]
fn cancel_is_never_challenged() {
    let mut world = with_bob();
    world.configure(|s| s.auth.require.push((*b"CANCEL").into()));
    let refusal = challenged(&mut world, &invite("call"));
    let text = Client::new("alice").answer(&refusal, &invite("call"));
    let sent = world.input(ALICE, &text);
    assert_eq!(sent[1].method(), "INVITE");
    let cancel = again(&request("CANCEL", "sip:bob@example.com", "call", ""), "1");
    assert_eq!(summary(&world.input(ALICE, &cancel)), [format!("200 {ALICE}")]);
    let unknown = request("CANCEL", "sip:bob@example.com", "nothing", "");
    assert_eq!(summary(&world.input(ALICE, &unknown)), [format!("481 {ALICE}")]);
}

#[test]
fn auth_int_covers_the_body() {
    let mut world = with_bob();
    world.configure(|s| s.auth.qop = Qop::AuthOrAuthInt);
    let covering = Client { cover_body: true, ..Client::new("alice") };
    let refusal = challenged(&mut world, &invite("covered"));
    assert!(refusal.header("Proxy-Authenticate").expect("a challenge").contains("qop=\"auth,auth-int\""));
    let text = covering.answer(&refusal, &invite("covered"));
    assert!(text.contains("qop=auth-int"));
    let changed = again(&text, "changed").replace("\r\n\r\nbody", "\r\n\r\nBODY");
    assert_eq!(only(world.input(ALICE, &changed)).status(), 407);
    let sent = world.input(ALICE, &text);
    assert_eq!(summary(&sent), [format!("100 {ALICE}"), format!("INVITE {BOB}")]);
}

//= rfc7616#3.4.6:400
#[test]
fn credentials_for_another_uri_are_refused() {
    let mut world = world();
    let text = register("bob", "bound");
    let refusal = only(world.input(BOB, &text));
    let answer =
        Client::new("bob").answer(&refusal, &text).replace("uri=\"sip:example.com\"", "uri=\"sip:other.example\"");
    assert_eq!(only(world.input(BOB, &answer)).start(), "SIP/2.0 400 Bad Credentials");
}
