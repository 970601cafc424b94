//! What members ask each other is believed of members only: nobody gets past a challenge, or to another user, by a mark.

use strowger_auth::client::{self, Secret};
use strowger_auth::{Algorithm, Ha1};
use strowger_directory::{Change, Directory, Ha1s, User};
use strowger_foundation::{KeyRing, TagKey};
use strowger_message::AuthParams;
use strowger_proxy::asked::{self, Ask};
use strowger_shard::Snapshot;

use crate::network::{A, Arrived, B, C, Network, Plan, S1, S2, user};
use crate::phone::{Phone, only, requests, response, statuses, summary};
use crate::support::RING_KEY;

const EVEN: [u16; 3] = [100, 100, 0];
const MORE: [u16; 3] = [100, 100, 100];

/// Members ask for credentials, and know the password of each user.
fn strict(number: usize, snapshot: &mut Snapshot) {
    if number < A {
        return;
    }
    snapshot.auth.require = vec![(*b"REGISTER").into(), (*b"INVITE").into()];
    let user = |name: String| {
        let ha1 = Ha1::compute(Algorithm::Md5, name.as_bytes(), b"example.com", password(&name).as_bytes());
        let md5 = ha1.as_bytes().to_vec().try_into().ok();
        let aor = format!("{name}@example.com").into_bytes().into();
        Change::PutUser(User { aor, ha1: Ha1s { md5, sha256: None, sha512_256: None }, enabled: true })
    };
    snapshot.directory = Directory::empty(1).with_changes((0..64).map(|number| user(format!("u{number}"))));
}

fn password(user: &str) -> String {
    format!("secret of {user}")
}

/// The request again with the answer to a challenge.
fn answer(phone: &Phone, challenge: &Arrived, text: &str) -> String {
    let (header, field) = match challenge.sent.status() {
        401 => ("WWW-Authenticate", "Authorization"),
        407 => ("Proxy-Authenticate", "Proxy-Authorization"),
        status => panic!("{status} is no challenge"),
    };
    let given = challenge.sent.header(header).expect("a challenge");
    let given = AuthParams::parse(given.as_bytes()).expect("well-formed");
    let mut words = text.split(' ');
    let secret = password(&phone.user);
    let request = client::Request {
        username: phone.user.as_bytes(),
        secret: Secret::Password(secret.as_bytes()),
        method: words.next().expect("a method").as_bytes(),
        uri: words.next().expect("a URI").as_bytes(),
        body: b"",
        cnonce: b"0a4f113b",
        nc: 1,
        cover_body: false,
    };
    let mut value = Vec::new();
    client::respond(&mut value, &given, &request).expect("can be answered");
    let value = String::from_utf8(value).expect("ASCII");
    text.replacen("z9hG4bK", "z9hG4bKagain", 1).replacen(
        "Content-Length",
        &format!("{field}: {value}\r\nContent-Length"),
        1,
    )
}

/// Sends a request, and answers the one challenge that there is; what comes to phones then.
fn proven(network: &mut Network, phone: &Phone, through: usize, text: &str) -> Vec<Arrived> {
    let arrived = phone.send(network, through, text);
    let [status] = statuses(&arrived, phone)[..] else { panic!("one answer: {}", summary(&arrived)) };
    let challenge = response(&arrived, status, phone);
    let arrived = phone.send(network, through, &answer(phone, &challenge, text));
    let challenges = [401, 407].map(|status| statuses(&arrived, phone).contains(&status));
    assert_eq!(challenges, [false, false], "asked once: {}", summary(&arrived));
    arrived
}

fn register(network: &mut Network, phone: &mut Phone, through: usize) {
    let text = phone.registration(&format!("<{}>", phone.contact()), "");
    let arrived = proven(network, phone, through, &text);
    assert_eq!(statuses(&arrived, phone), [200], "{}", summary(&arrived));
}

#[test]
fn who_calls_and_who_registers_is_asked_once() {
    let plan = Plan::settled(EVEN);
    for through in [S1, S2, A, B] {
        let mut network = Network::new(plan, strict);
        let mut alice = Phone::new(&user(EVEN, A, EVEN, A), 10);
        let mut bob = Phone::new(&user(EVEN, B, EVEN, B), 20);
        register(&mut network, &mut bob, through);
        let text = alice.request("INVITE", &format!("sip:{}@example.com", bob.user), "");
        let arrived = proven(&mut network, &alice, through, &text);
        let invite = only(&arrived, "INVITE", &bob);
        assert!(!invite.sent.text.contains("Proxy-Authorization"), "the password's proof stays here");
    }
}

#[test]
fn who_calls_somebody_who_has_moved_is_asked_once() {
    for registers_again in [false, true] {
        for through in [S1, A, C] {
            let mut network = Network::new(Plan::settled(EVEN), strict);
            let mut alice = Phone::new(&user(EVEN, A, MORE, A), 10);
            let mut bob = Phone::new(&user(EVEN, B, MORE, C), 20);
            register(&mut network, &mut bob, S1);
            network.replan(&[S1, S2, A, B, C], Plan::moving(EVEN, MORE));
            if registers_again {
                register(&mut network, &mut bob, through);
            }
            let text = alice.request("INVITE", &format!("sip:{}@example.com", bob.user), "");
            let arrived = proven(&mut network, &alice, through, &text);
            assert_eq!(requests(&arrived, "INVITE", &bob).len(), 1, "{}", summary(&arrived));
        }
    }
}

/// Marks as somebody may come by them, and what they are good for: nothing.
#[test]
fn a_mark_that_no_member_wrote_for_the_request_is_none() {
    let mut network = Network::new(Plan::settled(EVEN), strict);
    let mut alice = Phone::new(&user(EVEN, A, EVEN, A), 10);
    let mut bob = Phone::new(&user(EVEN, B, EVEN, B), 20);
    register(&mut network, &mut bob, S1);
    let ring = |key| KeyRing::new(TagKey::new(key)).derive("branch");
    let mark = |key, call_id: &str, ask| {
        let route = asked::route(&ring(key), b"example.com", call_id.as_bytes(), ask, []);
        String::from_utf8(route.to_vec()).expect("text")
    };
    let uri = format!("sip:{}@example.com", bob.user);
    for ask in [Ask::Own, Ask::Serve, Ask::Remove] {
        for through in [S1, A, B] {
            let text = alice.request("INVITE", &uri, "");
            let call_id = text.split("Call-ID: ").nth(1).and_then(|rest| rest.split("\r\n").next()).expect("has one");
            let good = mark(RING_KEY, call_id, ask);
            let forged = [
                mark([8; 16], call_id, ask),
                mark(RING_KEY, "another", ask),
                good.replace(">", ";except=00000001>"),
                good.replacen("asked=s", "asked=o", 1).replacen("asked=r", "asked=s", 1),
                "<sip:example.com;lr;asked=s>".to_owned(),
            ];
            for (number, route) in forged.iter().filter(|route| **route != good).enumerate() {
                let text = text.replacen("z9hG4bK", &format!("z9hG4bK{number}"), 1);
                let text = text.replacen("Max-Forwards", &format!("Route: {route}\r\nMax-Forwards"), 1);
                let arrived = alice.send(&mut network, through, &text);
                assert_eq!(statuses(&arrived, &alice), [407], "{route} through {through}: {}", summary(&arrived));
            }
        }
    }
}

#[test]
fn a_removal_that_no_member_asks_for_removes_nothing() {
    let mut network = Network::new(Plan::settled(EVEN), strict);
    let mut bob = Phone::new(&user(EVEN, B, EVEN, B), 20);
    register(&mut network, &mut bob, S1);
    let mut mallory = Phone::new(&bob.user, 66);
    let ring = KeyRing::new(TagKey::new([8; 16])).derive("branch");
    for route in [
        "<sip:example.com;lr;asked=r>".to_owned(),
        String::from_utf8(
            asked::route(&ring, b"example.com", b"registration-192.0.2.66:5060", Ask::Remove, []).to_vec(),
        )
        .expect("text"),
    ] {
        let text = mallory.registration("*", "Expires: 0\r\n");
        let text = text.replacen("Max-Forwards", &format!("Route: {route}\r\nMax-Forwards"), 1);
        for through in [S1, B] {
            let text = text.replacen("z9hG4bK", &format!("z9hG4bK{through}"), 1);
            let arrived = mallory.send(&mut network, through, &text);
            assert_eq!(statuses(&arrived, &mallory), [401], "{}", summary(&arrived));
        }
    }
}
