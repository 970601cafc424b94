//! Phones reachable at their own address: the first stage forwards initial requests and then leaves the path.

use strowger_shard::Snapshot;

use crate::network::{A, B, Network, Plan, ReceivedMessage, S1, S2, user};
use crate::phone::{Dialog, Phone, only, requests, response, statuses, summary};

const EVEN: [u16; 3] = [100, 100, 0];

fn network() -> Network {
    Network::new(Plan::settled(EVEN), |_, _| ())
}

/// A network with a user of A and one of B, both registered.
fn with_two() -> (Network, Phone, Phone) {
    let mut network = network();
    let mut alice = Phone::new(&user(EVEN, A, EVEN, A), 10);
    let mut bob = Phone::new(&user(EVEN, B, EVEN, B), 20);
    alice.is_registered(&mut network, S1);
    bob.is_registered(&mut network, S2);
    (network, alice, bob)
}

fn uri(phone: &Phone) -> String {
    format!("sip:{}@example.com", phone.user)
}

fn registered(network: &Network) -> Vec<u64> {
    network.servers.iter().map(|world| world.shard.counters().registered).collect()
}

/// Answers an INVITE; returns the response as the caller receives it.
fn pick_up(network: &mut Network, invite: &ReceivedMessage, caller: &Phone, callee: &Phone) -> ReceivedMessage {
    let arrived = network.answer(invite, 200, &format!("Contact: <{}>\r\n", callee.contact()));
    response(&arrived, 200, caller)
}

#[test]
fn a_user_registers_at_one_cluster_through_any_server() {
    let (mut network, mut alice, _) = with_two();
    assert_eq!(registered(&network), [0, 0, 1, 1, 0]);
    let answer = alice.is_registered(&mut network, S2);
    assert_eq!(registered(&network), [0, 0, 2, 1, 0]);
    assert_eq!(answer.sent.header("Path"), None, "everybody reaches it");
    assert_eq!(answer.sent.headers("Contact").count(), 1, "it is one phone");
    alice.is_registered(&mut network, B);
    assert_eq!(registered(&network), [0, 0, 3, 1, 0], "a member passes it on");
}

#[test]
fn an_established_call_bypasses_the_first_stage() {
    let (mut network, mut alice, mut bob) = with_two();
    let arrived = alice.call(&mut network, S1, &uri(&bob));
    let invite = only(&arrived, "INVITE", &bob);
    assert_eq!(invite.by, B, "straight from the cluster");
    assert_eq!(invite.sent.headers("Record-Route").count(), 1, "{}", invite.sent.text);
    let answer = pick_up(&mut network, &invite, &alice, &bob);
    let (caller, callee) = (Dialog::of_caller(&answer), Dialog::of_callee(&invite));
    network.kill(S1);
    network.kill(S2);
    assert_eq!(requests(&alice.in_dialog(&mut network, &caller, "ACK"), "ACK", &bob).len(), 1);
    let arrived = alice.in_dialog(&mut network, &caller, "INVITE");
    let again = only(&arrived, "INVITE", &bob);
    pick_up(&mut network, &again, &alice, &bob);
    alice.in_dialog(&mut network, &caller, "ACK");
    let arrived = bob.in_dialog(&mut network, &callee, "BYE");
    let bye = only(&arrived, "BYE", &alice);
    assert_eq!(statuses(&network.answer(&bye, 200, ""), &bob), [200]);
    network.settle();
}

#[test]
fn a_call_through_first_stages_continues_through_any_of_them() {
    let (mut network, mut alice, mut bob) = with_two();
    let invite = only(&alice.call(&mut network, S1, &uri(&bob)), "INVITE", &bob);
    let answer = pick_up(&mut network, &invite, &alice, &bob);
    let (caller, callee) = (Dialog::of_caller(&answer), Dialog::of_callee(&invite));
    network.kill(S1);
    assert_eq!(requests(&alice.in_dialog_by(&mut network, S2, &caller, "ACK"), "ACK", &bob).len(), 1);
    let again = only(&alice.in_dialog_by(&mut network, S2, &caller, "INVITE"), "INVITE", &bob);
    assert_eq!(again.by, B, "the member that has the call is still on its way");
    pick_up(&mut network, &again, &alice, &bob);
    alice.in_dialog_by(&mut network, S2, &caller, "ACK");
    let bye = only(&bob.in_dialog_by(&mut network, S2, &callee, "BYE"), "BYE", &alice);
    assert_eq!(statuses(&network.answer(&bye, 200, ""), &bob), [200]);
    network.settle();
}

#[test]
fn a_call_is_refused_and_acknowledged_through_the_first_stage() {
    let (mut network, mut alice, bob) = with_two();
    let text = alice.request("INVITE", &uri(&bob), "");
    let arrived = alice.send(&mut network, S1, &text);
    let invite = only(&arrived, "INVITE", &bob);
    let arrived = network.answer(&invite, 486, "");
    let refusal = response(&arrived, 486, &alice);
    assert_eq!(requests(&arrived, "ACK", &bob).len(), 1);
    let tag = refusal.sent.header("To").and_then(|to| to.split(";tag=").nth(1)).expect("a tag");
    let arrived = alice.send(&mut network, S1, &alice.follow_up("ACK", &text, &format!(";tag={tag}")));
    assert!(arrived.is_empty(), "{}", summary(&arrived));
    let arrived = network.wait(std::time::Duration::from_secs(10));
    assert!(arrived.is_empty(), "nothing is sent again: {}", summary(&arrived));
    network.settle();
}

#[test]
fn a_call_is_cancelled_through_the_first_stage() {
    let (mut network, mut alice, bob) = with_two();
    let text = alice.request("INVITE", &uri(&bob), "");
    let arrived = alice.send(&mut network, S1, &text);
    let invite = only(&arrived, "INVITE", &bob);
    network.answer(&invite, 180, "");
    let arrived = alice.send(&mut network, S1, &alice.follow_up("CANCEL", &text, ""));
    assert_eq!(statuses(&arrived, &alice), [200], "{}", summary(&arrived));
    let cancel = only(&arrived, "CANCEL", &bob);
    network.answer(&cancel, 200, "");
    assert_eq!(statuses(&network.answer(&invite, 487, ""), &alice), [487]);
    network.settle();
}

#[test]
fn a_retransmission_via_another_server_rings_once() {
    let (mut network, mut alice, bob) = with_two();
    let text = alice.request("INVITE", &uri(&bob), "");
    let invite = only(&alice.send(&mut network, S1, &text), "INVITE", &bob);
    network.kill(S1);
    let arrived = alice.send(&mut network, S2, &text);
    assert_eq!(requests(&arrived, "INVITE", &bob).len(), 0, "it rings once: {}", summary(&arrived));
    assert_eq!(response(&arrived, 100, &alice).by, S2);
    assert_eq!(pick_up(&mut network, &invite, &alice, &bob).by, S2, "who is there has the answer");
    network.settle();
}

#[test]
fn foreign_destinations_go_to_the_callers_cluster() {
    let (mut network, mut alice, _) = with_two();
    for uri in ["sip:bob@elsewhere.example", "tel:+4912345"] {
        let before = network.servers[A].shard.counters().requests;
        let arrived = alice.call(&mut network, S1, uri);
        assert_eq!(statuses(&arrived, &alice), [404], "{}", summary(&arrived));
        assert_eq!(network.servers[A].shard.counters().requests, before + 1, "the caller's cluster has refused it");
    }
}

#[test]
fn a_server_answers_requests_to_itself() {
    let (mut network, mut alice, _) = with_two();
    for uri in ["sip:198.51.100.1:5060", "sip:example.com"] {
        let text = alice.request("OPTIONS", uri, "");
        let arrived = alice.send(&mut network, S1, &text);
        assert_eq!(statuses(&arrived, &alice), [200]);
        assert_eq!(network.servers[S1].shard.counters().forwarded_stateless, 1, "Alice's REGISTER");
    }
}

#[test]
fn any_servers_address_means_the_domain() {
    let (mut network, mut alice, bob) = with_two();
    for (through, host) in [(S1, "198.51.100.1"), (S2, "198.51.100.1"), (S1, "198.51.100.12:5060"), (A, "198.51.100.2")]
    {
        let arrived = alice.call(&mut network, through, &format!("sip:{}@{host}", bob.user));
        let invite = only(&arrived, "INVITE", &bob);
        assert_eq!(statuses(&network.answer(&invite, 486, ""), &alice), [486]);
    }
    let text = alice.registration(&format!("<{}>", alice.contact()), "").replace("@example.com", "@198.51.100.1");
    let arrived = alice.send(&mut network, S2, &text);
    assert_eq!(statuses(&arrived, &alice), [200]);
    assert_eq!(registered(&network), [0, 0, 2, 1, 0]);
}

#[test]
fn a_member_forwards_a_call_to_the_callees_cluster() {
    let (mut network, mut alice, bob) = with_two();
    let arrived = alice.call(&mut network, A, &uri(&bob));
    let invite = only(&arrived, "INVITE", &bob);
    assert_eq!(invite.by, B);
    assert!(!invite.sent.text.contains("asked="), "phones see no marks: {}", invite.sent.text);
    let answer = pick_up(&mut network, &invite, &alice, &bob);
    let arrived = alice.in_dialog(&mut network, &Dialog::of_caller(&answer), "BYE");
    let bye = only(&arrived, "BYE", &bob);
    assert_eq!(statuses(&network.answer(&bye, 200, ""), &alice), [200]);
    network.settle();
}

fn redirecting(number: usize, snapshot: &mut Snapshot) {
    if number >= A {
        let redirect = strowger_shard::Action::Redirect { targets: Vec::new() };
        snapshot.routes = vec![strowger_shard::Route::of_domain(b"example.com", redirect)];
    }
}

#[test]
fn a_redirection_lists_contacts_of_any_cluster() {
    let mut network = Network::new(Plan::settled(EVEN), redirecting);
    let mut alice = Phone::new(&user(EVEN, A, EVEN, A), 10);
    let mut bob = Phone::new(&user(EVEN, B, EVEN, B), 20);
    bob.is_registered(&mut network, S1);
    for through in [S1, A, B] {
        let arrived = alice.call(&mut network, through, &uri(&bob));
        let answer = response(&arrived, 302, &alice);
        assert_eq!(answer.sent.header("Contact"), Some(&*format!("<{}>", bob.contact())), "through {through}");
    }
}
