//! Users called by another name than their own: aliases and GRUUs.

use strowger_directory::DirectoryChange;

use crate::network::{A, B, C, Network, Plan, ReceivedMessage, S1, S2, Weights, user};
use crate::phone::{Access, Dialog, Phone, only, requests, response, statuses, summary};

const EVEN: Weights = [100, 100, 0];
const MORE: Weights = [100, 100, 100];
const GRUU: &str = "Supported: gruu\r\n";

/// Aliases of `user` that hash to each of the clusters.
fn aliases(network: &mut Network, user: &str) -> Vec<String> {
    let names: Vec<String> = (0..6).map(|number| format!("+4930{number}")).collect();
    for server in A..=C {
        let alias = |name: &String| DirectoryChange::PutAlias {
            alias: format!("{name}@example.com").into_bytes().into(),
            aor: format!("{user}@example.com").into_bytes().into(),
        };
        network.servers[server].configure(|snapshot| {
            snapshot.directory = snapshot.directory.with_changes(names.iter().map(alias));
        });
    }
    names
}

#[test]
fn an_alias_reaches_its_user_in_another_cluster() {
    let mut network = Network::new(Plan::settled(EVEN), |_, _| ());
    let mut alice = Phone::new(&user(EVEN, A, EVEN, A), 10);
    let mut bob = Phone::new(&user(EVEN, B, EVEN, B), 20);
    let names = aliases(&mut network, &bob.user);
    let mut passed = 0;
    for name in names {
        let text = bob.registration(&format!("<{}>", bob.contact()), "");
        let text = text.replace(&format!("{}@example.com", bob.user), &format!("{name}@example.com"));
        assert_eq!(statuses(&bob.send(&mut network, S1, &text), &bob), [200]);
        let before = network.servers[A].shard.counters().requests;
        let arrived = alice.call(&mut network, S1, &format!("sip:{name}@example.com"));
        passed += network.servers[A].shard.counters().requests - before;
        let invite = only(&arrived, "INVITE", &bob);
        assert_eq!(invite.by, B);
        assert_eq!(statuses(&network.answer(&invite, 486, ""), &alice), [486]);
    }
    assert!((1..6).contains(&passed), "some names are of another cluster: {passed}");
    assert_eq!(network.servers[A].shard.counters().registered, 0, "all of a user is at one cluster");
}

fn gruu(answer: &ReceivedMessage, name: &str) -> String {
    let contact = answer.sent.header("Contact").expect("a Contact");
    let value = contact.split(&format!(";{name}=\"")).nth(1).expect("a GRUU");
    value.split('"').next().expect("its end").to_owned()
}

fn device(user: &str, number: u8) -> Phone {
    let mut phone = Phone::new(user, number);
    phone.params = format!(";+sip.instance=\"<urn:uuid:{number}>\"");
    phone.lines = GRUU.to_owned();
    phone
}

#[test]
fn a_gruu_rings_its_device_from_everywhere_and_after_a_move() {
    let mut network = Network::new(Plan::settled(EVEN), |_, _| ());
    let mut alice = Phone::new(&user(EVEN, A, MORE, A), 10);
    let name = user(EVEN, B, MORE, C);
    let (mut desk_phone, mut soft_phone) = (device(&name, 20), device(&name, 21));
    soft_phone.is_registered(&mut network, S2);
    let answer = desk_phone.is_registered(&mut network, S1);
    let names = ["pub-gruu", "temp-gruu"].map(|name| gruu(&answer, name));
    let ring = |network: &mut Network, alice: &mut Phone, desk_phone: &Phone, soft_phone: &Phone| {
        for (name, through) in names.iter().flat_map(|name| [S1, A, B, C].map(|through| (name, through))) {
            let arrived = alice.call(network, through, name);
            let invite = only(&arrived, "INVITE", desk_phone);
            assert_eq!(requests(&arrived, "INVITE", soft_phone).len(), 0, "{name} {through}");
            assert_eq!(statuses(&network.answer(&invite, 486, ""), alice), [486]);
        }
    };
    ring(&mut network, &mut alice, &desk_phone, &soft_phone);
    network.replan(&[S1, S2, A, B, C], Plan::moving(EVEN, MORE));
    ring(&mut network, &mut alice, &desk_phone, &soft_phone);
    soft_phone.is_registered(&mut network, S1);
    ring(&mut network, &mut alice, &desk_phone, &soft_phone);
    let forged = names[1].replacen("sip:", "sip:A", 1);
    let arrived = alice.call(&mut network, S1, &forged);
    assert_eq!(statuses(&arrived, &alice), [404], "{}", summary(&arrived));
}

/// A device on a connection with its GRUU in its Contact: later requests of the dialog go over its connection.
#[test]
fn a_dialog_with_a_gruu_goes_by_the_connection() {
    let mut network = Network::new(Plan::settled(EVEN), |_, _| ());
    let mut alice = Phone::new(&user(EVEN, A, EVEN, A), 10);
    let mut bob = Phone::by(Access::Connected, &user(EVEN, B, EVEN, B), 20);
    (bob.params, bob.lines) = (";+sip.instance=\"<urn:uuid:1>\"".to_owned(), GRUU.to_owned());
    let answer = bob.is_registered(&mut network, S2);
    let name = gruu(&answer, "pub-gruu");
    let arrived = alice.call(&mut network, S1, &format!("sip:{}@example.com", bob.user));
    let invite = only(&arrived, "INVITE", &bob);
    let contact = format!("Contact: <{name}>\r\n");
    let arrived = network.answer(&invite, 200, &contact);
    let dialog = Dialog::of_caller(&response(&arrived, 200, &alice));
    assert_eq!(requests(&alice.in_dialog(&mut network, &dialog, "ACK"), "ACK", &bob).len(), 1);
    for method in ["INVITE", "BYE"] {
        let arrived = alice.in_dialog(&mut network, &dialog, method);
        let request = only(&arrived, method, &bob);
        assert_eq!(statuses(&network.answer(&request, 200, &contact), &alice), [200]);
    }
    network.settle();
}
