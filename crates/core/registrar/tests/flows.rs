//! Flows (RFC 5626), paths (RFC 3327) and the devices of a user (RFC 5627).

mod common;

use common::{AOR, Table, at_s, over, read, register, register_through, source};
use strowger_foundation::{ConnId, Flow, ShardId};
use strowger_message::Status;
use strowger_registrar::{ContactTarget, GruuKey, GruuText, Nat, Refusal};

const DESK: &str = "+sip.instance=\"<urn:uuid:0000-DE5C>\"";
const SOFT: &str = "+sip.instance=\"<urn:uuid:0000-50F7>\"";
const OUTBOUND: &str = "Supported: outbound, path, gruu";

fn flow_of(instance: &str, uri: &str, reg_id: u32) -> String {
    format!("Contact: <{uri}>;{instance};reg-id={reg_id}|{OUTBOUND}")
}

fn conn(slot: u32) -> ConnId {
    ConnId::new(0, slot, 1)
}

/// A table whose requests come over a connection.
fn table(slot: u32) -> Table {
    Table { source: over(conn(slot), "198.51.100.7:33000"), ..Table::new() }
}

//= rfc5626#6:flow-updated
//= rfc5626#6:time-updated
#[test]
fn a_flow_has_one_binding_whatever_its_uri() {
    let mut table = table(1);
    table.register(at_s(0), "a", 1, &flow_of(DESK, "sip:a@10.0.0.1:1000;transport=tcp", 1)).expect("a flow");
    table.register(at_s(1), "b", 1, &flow_of(DESK, "sip:a@10.0.0.1:1001;transport=tcp", 2)).expect("another");
    assert_eq!(table.uris(at_s(1)), ["sip:a@10.0.0.1:1001;transport=tcp", "sip:a@10.0.0.1:1000;transport=tcp"]);
    table.source = over(conn(2), "198.51.100.7:34000");
    table
        .register(at_s(2), "c", 1, &flow_of("+sip.instance=\"<URN:UUID:0000-de5c>\"", "sip:a@10.0.0.9", 1))
        .expect("moved");
    let targets = table.lookup(at_s(2));
    let uris: Vec<_> = targets.iter().map(|target| target.uri.to_vec()).collect();
    assert_eq!(
        uris,
        [&b"sip:a@10.0.0.9"[..], b"sip:a@10.0.0.1:1001;transport=tcp"],
        "the newest first, then the other flow"
    );
    assert!(targets[0].instance != 0 && targets[0].instance == targets[1].instance, "both are one device");
    assert_eq!(targets[0].flow, table.source.flow, "a refresh over a new connection moves it there");
    assert_eq!(
        table.echo(at_s(2)),
        [
            "<sip:a@10.0.0.9>;expires=3600;+sip.instance=\"<URN:UUID:0000-de5c>\";reg-id=1",
            "<sip:a@10.0.0.1:1001;transport=tcp>;expires=3599;+sip.instance=\"<urn:uuid:0000-DE5C>\";reg-id=2",
        ]
    );
    let other = flow_of(SOFT, "sip:a@10.0.0.9", 1);
    table.register(at_s(3), "d", 1, &other).expect("another device");
    assert_ne!(table.lookup(at_s(3))[0].instance, targets[0].instance);
    assert_eq!(table.locations.len(), 3);
    table.register(at_s(4), "d", 2, &format!("Contact: <sip:x@y>;{SOFT};reg-id=1;expires=0")).expect("the flow goes");
    assert_eq!(table.locations.len(), 2);
}

#[test]
fn flows_are_ordered_within_their_call_id() {
    let table = table(1);
    table.register(at_s(0), "a", 5, &flow_of(DESK, "sip:a@10.0.0.1", 1)).expect("a flow");
    assert_eq!(table.register(at_s(0), "a", 5, &flow_of(DESK, "sip:b@10.0.0.1", 1)), Err(Refusal::OutOfOrder));
    table.register(at_s(0), "a", 5, &flow_of(DESK, "sip:b@10.0.0.1", 2)).expect("another flow has its own order");
}

//= rfc5626#6:both-kinds
#[test]
fn other_contacts_coexist_with_flows() {
    let table = table(1);
    table.register(at_s(0), "a", 1, &flow_of(DESK, "sip:a@10.0.0.1", 1)).expect("a flow");
    table.register(at_s(0), "b", 1, "Contact: <sip:a@10.0.0.1>").expect("the same URI");
    table.register(at_s(0), "b", 2, &format!("Contact: <sip:b@10.0.0.1>;{DESK}")).expect("an instance without a flow");
    assert_eq!(table.locations.len(), 3);
    table.register(at_s(0), "b", 3, &format!("Contact: <sip:b@10.0.0.1>;{SOFT}")).expect("the same URI");
    assert_eq!(table.locations.len(), 3);
    table.register(at_s(0), "b", 4, "Contact: *|Expires: 0").expect("all");
    assert!(table.locations.is_empty());
}

//= rfc5626#6:one-flow
//= rfc5626#10:reg-id
#[test]
fn a_reg_id_needs_an_instance_and_a_valid_value() {
    let table = table(1);
    table.register(at_s(0), "a", 1, "Contact: <sip:a@10.0.0.1>;reg-id=1|Supported: outbound").expect("no instance");
    assert_eq!(table.echo(at_s(0)), ["<sip:a@10.0.0.1>;expires=3600"]);
    for bad in ["0", "x", "2147483648", "-1"] {
        let headers = format!("Contact: <sip:a@10.0.0.1>;{DESK};reg-id={bad}|{OUTBOUND}");
        assert_eq!(
            table.register(at_s(0), "a", 2, &headers).map_err(|r| r.status()),
            Err(Status::BAD_REQUEST),
            "{bad}"
        );
    }
    let two = format!("Contact: <sip:b@10.0.0.1>|{}", flow_of(DESK, "sip:a@10.0.0.1", 1));
    assert_eq!(table.register(at_s(0), "a", 3, &two), Err(Refusal::BadRequest("reg-id Beside Others")));
    let instead = format!("Contact: <sip:a@10.0.0.1>;expires=0|{}", flow_of(DESK, "sip:a@10.0.0.1", 1));
    table.register(at_s(0), "a", 4, &instead).expect("one flow, and one that goes");
    assert_eq!(table.locations.len(), 1);
}

//= rfc5626#6:path-examined
//= rfc5626#6:no-outbound
//= rfc5626#6:reg-id-ignored
#[test]
fn proxied_flows_need_an_ob_path() {
    let outbound = "Path: <sip:edge.example.net;lr>, <sip:token@198.51.100.9;lr;ob>";
    let contact = flow_of(DESK, "sip:a@10.0.0.1", 1);
    let apply = |headers: &str| {
        let table = Table::new();
        let applied = read(&register_through("a", 1, headers), |update| {
            let update = update?;
            let uses = update.uses_outbound();
            table.locations.apply(at_s(0), AOR, &table.policy, &table.source, &update).map(|_| uses)
        });
        applied.map(|uses| (uses, table.lookup(at_s(0))[0].clone(), table.echo(at_s(0)).remove(0)))
    };
    assert_eq!(apply(&contact).expect_err("no path"), Refusal::FirstHopLacksOutbound);
    let wrong = "Path: <sip:edge.example.net;lr;ob>, <sip:198.51.100.9;lr>";
    let refused = apply(&format!("{contact}|{wrong}")).expect_err("the proxy next to the phone does not know it");
    assert_eq!(refused.status().code(), 439);

    let (uses, target, echo) = apply(&format!("{contact}|{outbound}")).expect("taken");
    assert!(uses && echo.ends_with("reg-id=1"), "{echo}");
    assert_eq!(target.path.as_slice(), outbound.strip_prefix("Path: ").expect("it is").as_bytes());
    assert!(!target.is_translated, "the path leads there");

    let ignored = format!("Contact: <sip:a@10.0.0.1>;{DESK};reg-id=1|{wrong}");
    let (uses, _, echo) = apply(&ignored).expect("without `Supported: outbound` reg-id is passed over");
    assert!(!uses && !echo.contains("reg-id"), "{echo}");
}

//= rfc5626#6:stored
#[test]
fn paths_keep_order_and_ignore_the_proxys_connection() {
    let mut table = table(1);
    table
        .register(at_s(0), "a", 1, "Contact: <sip:a@10.0.0.1>|Path: <sip:p1;lr>;x=1|Path: <sip:p2;lr>,<sip:p3;lr>")
        .expect("taken");
    let target = &table.lookup(at_s(0))[0];
    assert_eq!(target.path.as_slice(), b"<sip:p1;lr>;x=1, <sip:p2;lr>, <sip:p3;lr>");
    assert_eq!(
        (target.flow.connection, target.is_translated),
        (None, false),
        "a proxy's connection is not the phone's"
    );
    assert_eq!(table.locations.disconnect(at_s(0), table.shard(), conn(1), |_| {}), 0);
    table.register(at_s(1), "a", 2, "Contact: <sip:a@10.0.0.1>").expect("without a path");
    assert!(table.lookup(at_s(1))[0].path.is_empty());
    for bad in ["Path: sip:p1", "Path: <tel:1>", "Path: <sip:p1", "Path: <>"] {
        assert_eq!(
            table.register(at_s(2), "a", 3, &format!("Contact: <sip:a@b>|{bad}")).map_err(|r| r.status()),
            Err(Status::BAD_REQUEST),
            "{bad}"
        );
    }
    let long = format!("Contact: <sip:a@b>|Path: <sip:{}>", "p".repeat(2048));
    assert_eq!(table.register(at_s(2), "a", 3, &long), Err(Refusal::BadRequest("Path Too Long")));
    table.policy.nat = Nat::Always;
    table.register(at_s(3), "a", 4, "Contact: <sip:a@10.0.0.1>|Path: <sip:p1;lr>").expect("taken");
    assert!(!table.lookup(at_s(3))[0].is_translated);
}

/// Returns the target of a phone on a stream.
fn reached(nat: Nat, peer: &str, via_matches: bool, contact: &str) -> ContactTarget {
    let mut table = Table { source: over(conn(1), peer), ..Table::new() };
    table.policy.nat = nat;
    table.source.via_sent_by_matches = via_matches;
    table.register(at_s(0), "a", 1, &format!("Contact: {contact}|{OUTBOUND}")).expect("taken");
    let target = table.lookup(at_s(0)).remove(0);
    let bound = target.flow.connection.is_some() && !target.flow.reopen;
    assert_eq!(table.locations.disconnect(at_s(1), table.shard(), conn(2), |_| {}), 0, "another connection");
    assert_eq!(table.locations.disconnect(at_s(1), table.shard(), conn(1), |_| {}), usize::from(bound));
    assert_eq!(table.locations.len(), usize::from(!bound));
    table.locations.check_invariants();
    target
}

#[test]
fn a_stream_binding_ends_with_its_connection_or_reopens_one() {
    let peer = "192.0.2.7:40000";
    let flow = over(conn(1), peer).flow;
    let again = |to: &str| Flow { reopen: true, peer: to.parse().expect("an address"), ..flow };
    for (nat, via_matches, contact, expected, translated) in [
        (Nat::Auto, true, "<sip:a@192.0.2.7;transport=tcp>", again("192.0.2.7:5060"), false),
        (Nat::Auto, true, "<sip:a@192.0.2.7:5070;transport=tcp>", again("192.0.2.7:5070"), false),
        (Nat::Auto, true, "<sips:a@192.0.2.7>", again("192.0.2.7:5061"), false),
        (Nat::Auto, false, "<sip:a@192.0.2.7:5070>", flow, true),
        (Nat::Auto, true, "<sip:a@10.0.0.7:5070>", flow, true),
        (Nat::Auto, true, "<sip:a@phone.invalid>", flow, true),
        (Nat::Always, true, "<sip:a@192.0.2.7:5070>", flow, true),
        (Nat::Never, false, "<sip:a@10.0.0.7>", again("10.0.0.7:5060"), false),
        (Nat::Never, true, "<sip:a@name;maddr=192.0.2.8>", again("192.0.2.8:5060"), false),
        (Nat::Never, true, "<sip:a@name>", again(peer), false),
    ] {
        let target = reached(nat, peer, via_matches, contact);
        assert_eq!((target.flow, target.is_translated), (expected, translated), "{nat:?} {contact}");
        let target = reached(nat, peer, via_matches, &format!("{contact};{DESK};reg-id=3"));
        assert_eq!((target.flow, target.is_translated), (flow, true), "a registered flow: {nat:?} {contact}");
    }
    let target = reached(Nat::Auto, "[2001:db8::7]:40000", true, "<sip:a@[2001:db8::7]>");
    assert_eq!(target.flow.peer, "[2001:db8::7]:5060".parse().expect("an address"));
}

#[test]
fn closing_a_proxys_connection_removes_no_bindings() {
    let table = table(1);
    read(&register_through("a", 1, "Contact: <sip:a@10.0.0.1:5070>"), |update| {
        table.locations.apply(at_s(0), AOR, &table.policy, &table.source, &update.expect("valid")).expect("taken");
    });
    assert_eq!(table.locations.disconnect(at_s(0), table.shard(), conn(1), |_| {}), 0);
    let target = &table.lookup(at_s(0))[0];
    assert!(target.is_translated && target.flow.reopen && target.flow.connection == Some(conn(1)));
}

//= rfc5626#7:invalidated
//= rfc5626#7:closed
#[test]
fn disconnect_drops_only_own_bindings() {
    let locations = strowger_registrar::Locations::new(1, 7);
    let table = Table::new();
    for user in 0..600u32 {
        let aor = format!("{user}@example.com");
        let source = over(conn(user % 3), "198.51.100.7:33000");
        // Every second one also moves from its connection to another by a refresh.
        for (cseq, source) in
            [source, over(conn(3 + user % 2), "198.51.100.7:34000")].iter().enumerate().take(1 + user as usize % 2)
        {
            let headers = flow_of(DESK, "sip:a@10.0.0.1", 1);
            read(&register("a", u32::try_from(cseq).expect("small") + 1, &headers), |update| {
                locations
                    .apply(at_s(0), aor.as_bytes(), &table.policy, source, &update.expect("valid"))
                    .expect("taken");
            });
        }
    }
    locations.check_invariants();
    for (slot, gone) in [(1, 100), (4, 300), (3, 0), (0, 100), (0, 0), (2, 100)] {
        assert_eq!(locations.disconnect(at_s(1), ShardId(0), conn(slot), |_| {}), gone, "connection {slot}");
        locations.check_invariants();
    }
    assert!(locations.is_empty());
    assert_eq!(locations.next_deadline(ShardId(0)), None);
}

#[test]
fn outbound_flows_get_no_keep_alives() {
    let mut table = table(1);
    let turns = |table: &Table, from: u64| {
        (from..from + 100).filter(|s| table.locations.poll_keep_alive(at_s(*s), table.shard()).is_some()).count()
    };
    table.register(at_s(0), "a", 1, &flow_of(DESK, "sip:a@10.0.0.1", 1)).expect("a flow");
    assert_eq!(turns(&table, 0), 0);
    table.register(at_s(100), "a", 2, "Contact: <sip:b@10.0.0.1>").expect("behind a translation");
    assert!(turns(&table, 100) > 1);
    table.source = source("198.51.100.7:33000");
    table.register(at_s(200), "a", 3, "Contact: *|Expires: 0").expect("none");
    table.register(at_s(200), "a", 4, &flow_of(DESK, "sip:a@10.0.0.1", 1)).expect("a flow of datagrams");
    assert!(turns(&table, 200) > 1);
}

/// Returns the Contact values of a 200 with GRUUs, and the keys of the temporary ones.
fn gruus(table: &Table, now: u64) -> (Vec<String>, Vec<GruuKey>) {
    let keys = core::cell::RefCell::new(Vec::new());
    let seal = |key: &GruuKey| {
        keys.borrow_mut().push(*key);
        GruuText::from_slice(b"SEALED")
    };
    let echo = table.echo_with(at_s(now), Some(&seal));
    (echo, keys.into_inner())
}

fn by_temporary(table: &Table, now: u64, key: &GruuKey) -> Option<Vec<String>> {
    let mut targets: Vec<ContactTarget> = Vec::new();
    let aor = table.locations.lookup_temporary(at_s(now), key, &mut targets)?;
    assert_eq!(&aor[..], AOR);
    Some(targets.iter().map(|target| String::from_utf8_lossy(&target.uri).into_owned()).collect())
}

fn by_public(table: &Table, now: u64, gr: &str) -> Vec<String> {
    let mut targets: Vec<ContactTarget> = Vec::new();
    table.locations.lookup_instance(at_s(now), AOR, gr.as_bytes(), &mut targets);
    targets.iter().map(|target| String::from_utf8_lossy(&target.uri).into_owned()).collect()
}

#[test]
fn a_device_gets_gruus_and_is_found_by_them() {
    let table = table(1);
    let headers = format!(
        "Contact: <sip:a@10.0.0.1>;{DESK}, <sip:b@10.0.0.2>;+sip.instance=\"<urn:x:a;b%3b>\", <sip:c@10.0.0.3>"
    );
    table.register(at_s(0), "a", 1, &headers).expect("three");
    let (echo, keys) = gruus(&table, 0);
    assert_eq!(
        echo,
        [
            "<sip:c@10.0.0.3>;expires=3600",
            "<sip:b@10.0.0.2>;expires=3600;+sip.instance=\"<urn:x:a;b%3b>\";pub-gruu=\"sip:alice@example.com;gr=urn:x:a%3Bb%253b\";temp-gruu=\"sip:SEALED@example.com;gr\"",
            "<sip:a@10.0.0.1>;expires=3600;+sip.instance=\"<urn:uuid:0000-DE5C>\";pub-gruu=\"sip:alice@example.com;gr=urn:uuid:0000-DE5C\";temp-gruu=\"sip:SEALED@example.com;gr\"",
        ]
    );
    assert_eq!(by_public(&table, 0, "urn:uuid:0000-de5c"), ["sip:a@10.0.0.1"]);
    assert_eq!(by_public(&table, 0, "urn:x:a%3bb%253b"), ["sip:b@10.0.0.2"]);
    assert!(by_public(&table, 0, "").is_empty() && by_public(&table, 0, "urn:uuid:other").is_empty());
    assert_eq!(by_temporary(&table, 0, &keys[0]), Some(vec!["sip:b@10.0.0.2".to_owned()]));
    assert_eq!(GruuKey::from_bytes(keys[0].to_bytes()), keys[0]);
    assert_eq!(by_temporary(&table, 3600, &keys[0]), None, "with the last contact of the device it ends");
    assert!(by_public(&table, 3600, "urn:uuid:0000-de5c").is_empty());
}

#[test]
fn temporary_gruus_last_until_the_call_id_changes() {
    let table = table(1);
    table.register(at_s(0), "a", 1, &flow_of(DESK, "sip:one@10.0.0.1", 1)).expect("a flow");
    let first = gruus(&table, 0).1[0];
    table.register(at_s(1), "b", 1, &flow_of(DESK, "sip:two@10.0.0.1", 2)).expect("another flow has its own Call-ID");
    table.register(at_s(1), "a", 2, &flow_of(DESK, "sip:one@10.0.0.1", 1)).expect("a refresh");
    assert_eq!(by_temporary(&table, 1, &first).map(|uris| uris.len()), Some(2), "both flows of the device");
    table
        .register(at_s(2), "a", 3, &format!("Contact: <sip:x@y>;{DESK};reg-id=1;expires=0"))
        .expect("the first flow goes");
    assert_eq!(by_temporary(&table, 2, &first), Some(vec!["sip:two@10.0.0.1".to_owned()]), "the device is still there");
    table.register(at_s(3), "c", 1, &flow_of(DESK, "sip:two@10.0.0.1", 2)).expect("the device has started anew");
    assert_eq!(by_temporary(&table, 3, &first), None);
    let second = gruus(&table, 3).1[0];
    assert_eq!(by_temporary(&table, 3, &second), Some(vec!["sip:two@10.0.0.1".to_owned()]));
    table.locations.disconnect(at_s(4), table.shard(), conn(1), |_| {});
    assert_eq!(by_temporary(&table, 4, &second), None);
    table.register(at_s(5), "c", 2, &flow_of(DESK, "sip:two@10.0.0.1", 2)).expect("it is back");
    assert_eq!(by_temporary(&table, 5, &second), None, "what has ended stays so");
}

#[test]
fn a_contact_may_not_be_the_user_itself() {
    let table = table(1);
    for uri in [
        "sip:alice@example.com",
        "sip:%61lice@EXAMPLE.com;transport=tcp",
        "sip:alice@example.com;gr=urn:uuid:1",
        "sip:T@example.com;gr",
        "tel:+1",
    ] {
        let refused = table.register(at_s(0), "a", 1, &format!("Contact: <{uri}>;{DESK}")).expect_err(uri);
        assert_eq!(refused.status(), Status::FORBIDDEN, "{uri}");
        table.register(at_s(0), "a", 1, &format!("Contact: <{uri}>;{DESK};expires=0")).expect("nothing is registered");
    }
    table.register(at_s(0), "a", 1, &format!("Contact: <sip:bob@example.com>;{DESK}")).expect("somebody else");
}

#[test]
fn the_view_shows_flows() {
    let table = table(1);
    table.register(at_s(0), "a", 1, &flow_of(DESK, "sip:a@10.0.0.1", 4)).expect("a flow");
    table.register(at_s(0), "a", 2, "Contact: <sip:b@10.0.0.1>|Path: <sip:p;lr>").expect("behind a proxy");
    let mut seen = Vec::new();
    table.locations.for_each_in_stripe(at_s(1), 0, |view| {
        seen.push((view.instance.to_vec(), view.reg_id, view.path.to_vec(), view.flow.connection));
    });
    seen.sort();
    let flow = (b"urn:uuid:0000-DE5C".to_vec(), Some(4), Vec::new(), Some(conn(1)));
    assert_eq!(seen, [(Vec::new(), None, b"<sip:p;lr>".to_vec(), None), flow]);
}
