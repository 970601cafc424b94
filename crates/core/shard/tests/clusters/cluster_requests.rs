//! Cluster requests are accepted from members only: a forged one bypasses no challenge and reaches no other user.

use strowger_auth::{Algorithm, Ha1};
use strowger_directory::{Directory, DirectoryChange, Ha1s, User};
use strowger_foundation::{KeyRing, TagKey};
use strowger_message::Message;
use strowger_proxy::Stateless;
use strowger_proxy::cluster_request::{self, ClusterRequestKind, Subject};
use strowger_shard::{Action, Route, Snapshot};

use crate::network::{A, B, C, Network, Plan, ReceivedMessage, S1, S2, user};
use crate::phone::{Phone, only, requests, response, statuses, summary};
use crate::support::{Account, RING_KEY};

const EVEN: [u16; 3] = [100, 100, 0];
const MORE: [u16; 3] = [100, 100, 100];

/// Members require credentials and know each user's password.
fn strict(number: usize, snapshot: &mut Snapshot) {
    if number < A {
        return;
    }
    snapshot.auth.require = vec![(*b"REGISTER").into(), (*b"INVITE").into()];
    let user = |name: String| {
        let ha1 = Ha1::compute(Algorithm::Md5, name.as_bytes(), b"example.com", password(&name).as_bytes());
        let md5 = ha1.as_bytes().to_vec().try_into().ok();
        let aor = format!("{name}@example.com").into_bytes().into();
        DirectoryChange::PutUser(User { aor, ha1: Ha1s { md5, sha256: None, sha512_256: None }, enabled: true })
    };
    snapshot.directory = Directory::empty(1).with_changes((0..64).map(|number| user(format!("u{number}"))));
}

fn password(user: &str) -> String {
    format!("secret of {user}")
}

/// Returns the request with the answer to a challenge.
fn answer(phone: &Phone, challenge: &ReceivedMessage, text: &str) -> String {
    let secret = password(&phone.user);
    let line = Account::new(&phone.user, &secret).authorization(&challenge.sent, 0, text);
    text.replacen("z9hG4bK", "z9hG4bKagain", 1).replacen("Content-Length", &format!("{line}Content-Length"), 1)
}

/// Sends a request and answers its only challenge; returns what phones receive then.
fn proven(network: &mut Network, phone: &Phone, through: usize, text: &str) -> Vec<ReceivedMessage> {
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
fn calls_and_registers_are_challenged_once() {
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
fn a_call_to_a_moved_user_is_challenged_once() {
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

/// The cluster request that a member with this key would add to a request.
fn mark(key: [u8; 16], text: &str, ask: ClusterRequestKind) -> String {
    let message = Message::parse(text.as_bytes()).expect("a message");
    let ring = KeyRing::new(TagKey::new(key)).derive("branch");
    let route = cluster_request::route(&ring, b"example.com", &Subject::of(&message, message.request_uri()), ask, []);
    String::from_utf8(route.to_vec()).expect("text")
}

#[test]
fn a_cluster_request_to_remove_cannot_add_bindings() {
    let mut network = Network::new(Plan::settled(EVEN), strict);
    let mut bob = Phone::new(&user(EVEN, B, EVEN, B), 20);
    register(&mut network, &mut bob, B);
    for (contact, status) in
        [("<sip:bob@192.0.2.66:5060>;expires=3600".to_owned(), 401), (format!("<{}>;expires=0", bob.contact()), 200)]
    {
        let text = bob.registration(&contact, "");
        let route = mark(RING_KEY, &text, ClusterRequestKind::RemoveBindings);
        let text = text.replacen("Max-Forwards", &format!("Route: {route}\r\nMax-Forwards"), 1);
        let arrived = bob.send(&mut network, B, &text);
        assert_eq!(statuses(&arrived, &bob), [status], "{contact}: {}", summary(&arrived));
    }
}

/// A local To gives no access to others: neither along an operator's route nor by a literal address.
#[test]
fn a_register_for_elsewhere_is_challenged_like_other_requests() {
    let mut network = Network::new(Plan::settled(EVEN), |number, snapshot| {
        strict(number, snapshot);
        snapshot.routes = vec![Route::of_domain(b"*", Action::proxy(Vec::new(), Stateless::Never))];
    });
    let mut mallory = Phone::new(&user(EVEN, B, EVEN, B), 66);
    for through in [A, B] {
        let text = mallory.registration(&format!("<{}>", mallory.contact()), "");
        let text = text.replacen("REGISTER sip:example.com", "REGISTER sip:203.0.113.5", 1);
        let arrived = mallory.send(&mut network, through, &text);
        assert_eq!(statuses(&arrived, &mallory), [407], "{}", summary(&arrived));
    }
}

/// Escaped names stay as written: an escape could stand for anything, even a line end.
#[test]
fn removals_elsewhere_keep_the_name_as_written() {
    for number in 0..200 {
        let mut network = Network::new(Plan::settled(EVEN), |_, _| {});
        let name = format!("u{number}%0d%0aX-Injected:%20y");
        let (mut phone, mut alice) = (Phone::new(&name, 20), Phone::new("u1", 10));
        let mut reached = |network: &mut Network, phone: &Phone| {
            let arrived = alice.call(network, S1, &format!("sip:{name}@example.com"));
            requests(&arrived, "INVITE", phone).len()
        };
        phone.is_registered(&mut network, S1);
        network.replan(&[S1, S2, A, B, C], Plan::moving(EVEN, MORE));
        assert_eq!(reached(&mut network, &phone), 1);
        phone.unregister(&mut network, S1);
        if network.servers[C].shard.counters().registered == 1 {
            assert_eq!(reached(&mut network, &phone), 0, "it is known where it was");
            return;
        }
    }
    panic!("nobody moves");
}

/// Cluster requests that an attacker could obtain have no effect.
#[test]
fn a_forged_or_replayed_cluster_request_is_ignored() {
    let mut network = Network::new(Plan::settled(EVEN), strict);
    let mut alice = Phone::new(&user(EVEN, A, EVEN, A), 10);
    let mut bob = Phone::new(&user(EVEN, B, EVEN, B), 20);
    register(&mut network, &mut bob, S1);
    let uri = format!("sip:{}@example.com", bob.user);
    for ask in [ClusterRequestKind::ServeAsOwner, ClusterRequestKind::ServeLocally, ClusterRequestKind::RemoveBindings]
    {
        for through in [S1, A, B] {
            let text = alice.request("INVITE", &uri, "");
            let good = mark(RING_KEY, &text, ask);
            let others = [("Call-ID: ", "Call-ID: x"), ("INVITE", "MESSAGE"), ("INVITE sip:", "INVITE sip:x")];
            let forged = [
                mark([8; 16], &text, ask),
                mark(RING_KEY, &text.replacen(others[0].0, others[0].1, 1), ask),
                mark(RING_KEY, &text.replace(others[1].0, others[1].1), ask),
                mark(RING_KEY, &text.replacen(others[2].0, others[2].1, 1), ask),
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
fn a_forged_removal_removes_nothing() {
    let mut network = Network::new(Plan::settled(EVEN), strict);
    let mut bob = Phone::new(&user(EVEN, B, EVEN, B), 20);
    register(&mut network, &mut bob, S1);
    let mut mallory = Phone::new(&bob.user, 66);
    for key in [None, Some([8; 16])] {
        let text = mallory.registration("*", "Expires: 0\r\n");
        let unsigned = "<sip:example.com;lr;asked=r>".to_owned();
        let route = key.map_or(unsigned, |key| mark(key, &text, ClusterRequestKind::RemoveBindings));
        let text = text.replacen("Max-Forwards", &format!("Route: {route}\r\nMax-Forwards"), 1);
        for through in [S1, B] {
            let text = text.replacen("z9hG4bK", &format!("z9hG4bK{through}"), 1);
            let arrived = mallory.send(&mut network, through, &text);
            assert_eq!(statuses(&arrived, &mallory), [401], "{}", summary(&arrived));
        }
    }
}
