//! Phones that are reachable only through the server that they registered through: on a connection or behind NAT.
//! Calls reach them through that server.

use std::collections::BTreeSet;

use crate::network::{A, B, Network, Plan, S1, S2, server_of, user};
use crate::phone::{Access, Dialog, Phone, only, requests, response, statuses, summary};

const EVEN: [u16; 3] = [100, 100, 0];

fn two(caller: Access, callee: Access) -> (Network, Phone, Phone) {
    let mut network = Network::new(Plan::settled(EVEN), |_, _| ());
    let mut alice = Phone::by(caller, &user(EVEN, A, EVEN, A), 10);
    let mut bob = Phone::by(callee, &user(EVEN, B, EVEN, B), 20);
    alice.is_registered(&mut network, S1);
    bob.is_registered(&mut network, S2);
    (network, alice, bob)
}

/// A whole call: requests of each end reach the other through the only servers that can reach it.
fn call(caller: Access, callee: Access, through: usize) {
    let (mut network, mut alice, mut bob) = two(caller, callee);
    let arrived = alice.call(&mut network, through, &format!("sip:{}@example.com", bob.user));
    let invite = only(&arrived, "INVITE", &bob);
    let reaches_bob = if callee == Access::Plain { B } else { S2 };
    assert_eq!(invite.by, reaches_bob, "{caller:?} {callee:?}");
    let recorded: BTreeSet<usize> = invite.sent.headers("Record-Route").filter_map(server_of).collect();
    let near = (through >= A || caller != Access::Plain).then_some(through);
    let far = (callee != Access::Plain).then_some(S2);
    assert_eq!(recorded, [Some(B), near, far].into_iter().flatten().collect(), "{caller:?} {callee:?} {through}");
    let arrived = network.answer(&invite, 200, &format!("Contact: <{}>\r\n", bob.contact()));
    let answer = response(&arrived, 200, &alice);
    let (near, far) = (Dialog::of_caller(&answer), Dialog::of_callee(&invite));
    let arrived = alice.in_dialog(&mut network, &near, "ACK");
    assert_eq!(only(&arrived, "ACK", &bob).by, reaches_bob);
    for method in ["INVITE", "INFO"] {
        let arrived = alice.in_dialog(&mut network, &near, method);
        let request = only(&arrived, method, &bob);
        let arrived = network.answer(&request, 200, &format!("Contact: <{}>\r\n", bob.contact()));
        assert_eq!(statuses(&arrived, &alice), [200], "{caller:?} {callee:?} {method}: {}", summary(&arrived));
        if method == "INVITE" {
            assert_eq!(requests(&alice.in_dialog(&mut network, &near, "ACK"), "ACK", &bob).len(), 1);
        }
    }
    let arrived = bob.in_dialog(&mut network, &far, "BYE");
    let bye = only(&arrived, "BYE", &alice);
    assert_eq!(statuses(&network.answer(&bye, 200, ""), &bob), [200]);
    network.settle();
}

#[test]
fn a_whole_call_between_phones_of_every_kind() {
    for caller in [Access::Plain, Access::Translated, Access::Connected] {
        for callee in [Access::Plain, Access::Translated, Access::Connected] {
            for through in [S1, S2, A, B] {
                call(caller, callee, through);
            }
        }
    }
}

#[test]
fn a_path_is_added_only_if_needed() {
    for (access, has_path) in [(Access::Plain, false), (Access::Translated, true), (Access::Connected, true)] {
        for through in [S1, B] {
            let mut network = Network::new(Plan::settled(EVEN), |_, _| ());
            let mut alice = Phone::by(access, &user(EVEN, A, EVEN, A), 10);
            alice.lines = "Supported: path\r\n".to_owned();
            let answer = alice.is_registered(&mut network, through);
            assert_eq!(answer.sent.header("Path").is_some(), has_path, "{access:?} through {through}");
            let again = alice.is_registered(&mut network, through);
            assert_eq!(again.sent.headers("Contact").count(), 1);
        }
    }
}

/// Its Via is correct, as after STUN, but its Contact is not.
#[test]
fn an_unreachable_contact_gets_a_path() {
    let mut network = Network::new(Plan::settled(EVEN), |_, _| ());
    let mut alice = Phone::new(&user(EVEN, A, EVEN, A), 10);
    let mut bob = Phone::new(&user(EVEN, B, EVEN, B), 20);
    let contact = format!("<sip:{}@10.0.0.7:5060>", bob.user);
    let text = bob.registration(&contact, "");
    assert_eq!(statuses(&bob.send(&mut network, S2, &text), &bob), [200]);
    let arrived = alice.call(&mut network, S1, &format!("sip:{}@example.com", bob.user));
    assert_eq!(only(&arrived, "INVITE", &bob).by, S2);
}

#[test]
fn a_closed_connection_is_reported_with_430() {
    let (mut network, mut alice, bob) = two(Access::Plain, Access::Connected);
    let connection = strowger_foundation::ConnId::new(0, 2, 1);
    let peer = bob.address.parse().expect("an address");
    let sent = network.servers[S2].give(strowger_shard::Input::Closed { connection, peer });
    assert!(sent.is_empty());
    let arrived = alice.call(&mut network, S1, &format!("sip:{}@example.com", bob.user));
    // Messages for it cannot be delivered.
    let invite = only(&arrived, "INVITE", &bob);
    let sent = network.servers[S2].give(strowger_shard::Input::ConnectFailed { flow: invite.sent.flow });
    assert!(sent.iter().any(|sent| sent.status() == 430), "{:?}", crate::support::summary(&sent));
}
