//! The registrar as a phone sees it (RFC 3261 §10).

mod support;

use std::time::Duration;

use strowger_directory::DirectoryChange;
use strowger_registrar::{LocalContacts, Nat};
use strowger_shard::{Event, Input, Snapshot};
use support::{ALICE, BOB, SERVER, SentMessage, World, destinations, finals, find, request, summary};

/// Bob's phone; each REGISTER has a Via branch, a Call-ID and a CSeq.
struct Phone {
    to: &'static str,
    uri: &'static str,
    call_id: &'static str,
    cseq: u32,
}

impl Default for Phone {
    fn default() -> Self {
        Self { to: "<sip:bob@example.com>", uri: "sip:example.com", call_id: "one", cseq: 0 }
    }
}

impl Phone {
    /// Registers with `lines` as header lines.
    fn register(&mut self, world: &mut World, lines: &[&str]) -> SentMessage {
        self.cseq += 1;
        self.repeat(world, lines)
    }

    /// Repeats it with the previous CSeq.
    fn repeat(&self, world: &mut World, lines: &[&str]) -> SentMessage {
        let mut sent = world.input(BOB, &self.text(world, lines));
        assert_eq!(sent.len(), 1, "{:?}", summary(&sent));
        sent.remove(0)
    }

    fn text(&self, world: &World, lines: &[&str]) -> String {
        let Self { to, uri, call_id, cseq } = self;
        let branch = format!("{call_id}{cseq}{}", world.now.as_nanos());
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        format!(
            "REGISTER {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {BOB};branch=z9hG4bK{branch}\r\nMax-Forwards: 70\r\n\
             From: {to};tag=r\r\nTo: {to}\r\nCall-ID: {call_id}\r\nCSeq: {cseq} REGISTER\r\n{lines}Content-Length: 0\r\n\r\n"
        )
    }
}

fn contacts(answer: &SentMessage) -> Vec<String> {
    assert_eq!(answer.status(), 200, "{}", answer.start());
    let mut contacts: Vec<_> = answer.headers("Contact").map(str::to_owned).collect();
    contacts.sort();
    contacts
}

const DESK: &str = "Contact: <sip:desk@192.0.2.20:5060>";

//= rfc3261#10.3:lists-bindings
//= rfc3261#10.3:expires-of-each
#[test]
fn contacts_are_echoed_with_their_remaining_expiry() {
    let (mut world, mut phone) = (World::new(|_| {}), Phone::default());
    let both = "Contact: <sip:desk@192.0.2.20:5060>;q=0.5, <sip:soft@192.0.2.20:5080;line=1>;expires=120";
    let answer = phone.register(&mut world, &[both, "Expires: 600"]);
    assert_eq!(
        contacts(&answer),
        ["<sip:desk@192.0.2.20:5060>;expires=600;q=0.5", "<sip:soft@192.0.2.20:5080;line=1>;expires=120"]
    );
    assert!(answer.header("To").is_some_and(|to| to.contains(";tag=")), "the answer has a To tag");
    world.wait(Duration::from_secs(20));
    let fetched = phone.register(&mut world, &[]);
    assert_eq!(
        contacts(&fetched),
        ["<sip:desk@192.0.2.20:5060>;expires=580;q=0.5", "<sip:soft@192.0.2.20:5080;line=1>;expires=100"]
    );
    let refreshed = phone.register(&mut world, &["Contact: <sip:soft@192.0.2.20:5080;line=1>;expires=300"]);
    assert_eq!(
        contacts(&refreshed),
        ["<sip:desk@192.0.2.20:5060>;expires=580;q=0.5", "<sip:soft@192.0.2.20:5080;line=1>;expires=300"]
    );
}

#[test]
fn expiry_defaults_and_is_capped_at_the_maximum() {
    let (mut world, mut phone) = (World::new(|_| {}), Phone::default());
    assert_eq!(contacts(&phone.register(&mut world, &[DESK])), ["<sip:desk@192.0.2.20:5060>;expires=3600"]);
    let long = phone.register(&mut world, &[DESK, "Expires: 4000000000"]);
    assert_eq!(contacts(&long), ["<sip:desk@192.0.2.20:5060>;expires=7200"]);
}

#[test]
fn a_binding_ends_at_its_time_and_not_before() {
    let (mut world, mut phone) = (World::new(|_| {}), Phone::default());
    phone.register(&mut world, &[DESK, "Expires: 60"]);
    let call = |branch: &str| request("INVITE", "sip:bob@example.com", branch, "");
    world.wait(Duration::from_millis(59_900));
    assert_eq!(world.input(ALICE, &call("in-time")).len(), 2, "100 and the INVITE");
    world.wait(Duration::from_millis(100));
    let sent = world.input(ALICE, &call("late"));
    assert_eq!(summary(&sent), [format!("404 {ALICE}")]);
    assert!(contacts(&phone.register(&mut world, &[])).is_empty());
    world.wait(Duration::from_secs(1));
    assert_eq!(world.locations.len(), 0, "nothing is left of it");
}

//= rfc3261#10.2.2:star
//= rfc3261#10.3:star-alone
#[test]
fn a_star_removes_everything_and_only_with_expires_zero() {
    let (mut world, mut phone) = (World::new(|_| {}), Phone::default());
    phone.register(&mut world, &[DESK, "Contact: <sip:soft@192.0.2.20:5080>"]);
    for bad in [&["Contact: *"][..], &["Contact: *", "Expires: 60"], &["Contact: *", DESK, "Expires: 0"]] {
        assert_eq!(phone.register(&mut world, bad).status(), 400, "{bad:?}");
    }
    assert_eq!(contacts(&phone.register(&mut world, &[])).len(), 2);
    assert!(contacts(&phone.register(&mut world, &["Contact: *", "Expires: 0"])).is_empty());
}

#[test]
fn one_contact_is_removed_by_expires_zero() {
    let (mut world, mut phone) = (World::new(|_| {}), Phone::default());
    phone.register(&mut world, &[DESK, "Contact: <sip:soft@192.0.2.20:5080>"]);
    let left = phone.register(&mut world, &["Contact: <sip:desk@192.0.2.20:5060>;expires=0"]);
    assert_eq!(contacts(&left), ["<sip:soft@192.0.2.20:5080>;expires=3600"]);
}

//= rfc3261#10.3:min-expires
#[test]
fn a_too_brief_interval_is_refused_with_min_expires() {
    let (mut world, mut phone) = (World::new(|_| {}), Phone::default());
    let answer = phone.register(&mut world, &[DESK, "Expires: 59"]);
    assert_eq!((answer.status(), answer.header("Min-Expires")), (423, Some("60")));
    assert_eq!(answer.start(), "SIP/2.0 423 Interval Too Brief");
    assert!(contacts(&phone.register(&mut world, &[])).is_empty());
}

#[test]
fn contacts_of_a_user_are_limited() {
    let (mut world, mut phone) = (World::new(|s| s.registrar.max_contacts = 2), Phone::default());
    phone.register(&mut world, &[DESK, "Contact: <sip:soft@192.0.2.20:5080>"]);
    let answer = phone.register(&mut world, &["Contact: <sip:third@192.0.2.20:5090>"]);
    assert_eq!(answer.start(), "SIP/2.0 403 Too Many Contacts");
    let warning = "399 strowger \"an address may have 2 contacts (registrar.max_contacts)\"";
    assert_eq!(answer.header("Warning"), Some(warning));
    assert_eq!(world.shard.counters().too_many_contacts, 1);
    let [Event::TooManyContacts { aor, limit: 2, .. }] = &world.events[..] else { panic!("{:?}", world.events) };
    assert!(aor.ends_with("@example.com"), "{aor}");
    let exchanged =
        phone.register(&mut world, &["Contact: <sip:third@192.0.2.20:5090>, <sip:desk@192.0.2.20:5060>;expires=0"]);
    assert_eq!(contacts(&exchanged).len(), 2);
}

#[test]
fn out_of_order_registers_are_refused() {
    let (mut world, mut phone) = (World::new(|_| {}), Phone::default());
    phone.register(&mut world, &[DESK]);
    phone.cseq = 9;
    phone.register(&mut world, &[DESK, "Expires: 600"]);
    world.wait(Duration::from_secs(1));
    let same = phone.repeat(&mut world, &["Contact: <sip:desk@192.0.2.20:5060>;expires=0"]);
    assert_eq!(same.start(), "SIP/2.0 500 REGISTER Out Of Order");
    phone.cseq = 4;
    assert_eq!(phone.register(&mut world, &["Contact: *", "Expires: 0"]).status(), 500);
    let mut restarted = Phone { call_id: "two", ..Phone::default() };
    let answer = restarted.register(&mut world, &[DESK, "Expires: 700"]);
    assert_eq!(contacts(&answer), ["<sip:desk@192.0.2.20:5060>;expires=700"], "another Call-ID has its own order");
}

//= rfc3261#8.2:all-or-nothing
//= rfc3261#10.3:atomic
#[test]
fn one_bad_contact_changes_nothing() {
    let (mut world, mut phone) = (World::new(|_| {}), Phone::default());
    phone.register(&mut world, &[DESK]);
    for (bad, status) in [
        ("Contact: <sip:new@192.0.2.20:5070>, <sip:desk@192.0.2.20:5060>;expires=0, <sip:x@192.0.2.20>;expires=5", 423),
        ("Contact: <sip:new@192.0.2.20:5070>, <sip:x@192.0.2.20>;q=7", 400),
        ("Contact: <sip:new@192.0.2.20:5070>, <>", 400),
    ] {
        assert_eq!(phone.register(&mut world, &[bad]).status(), status, "{bad}");
        assert_eq!(contacts(&phone.register(&mut world, &[])), ["<sip:desk@192.0.2.20:5060>;expires=3600"]);
    }
}

#[test]
fn a_retransmitted_register_gets_the_same_answer_and_runs_once() {
    let (mut world, phone) = (World::new(|_| {}), Phone { cseq: 1, ..Phone::default() });
    let text = phone.text(&world, &[DESK]);
    let first = world.input(BOB, &text).remove(0);
    world.wait(Duration::from_secs(2));
    let again = world.input(BOB, &text).remove(0);
    assert_eq!(again.text, first.text);
    assert_eq!(world.shard.counters().registered, 1);
}

fn two_domains(snapshot: &mut Snapshot) {
    snapshot.domains = vec![(*b"example.com").into(), (*b"example.org").into()];
}

#[test]
fn each_domain_has_its_own_bob() {
    let mut world = World::new(two_domains);
    Phone::default().register(&mut world, &[DESK]);
    let mut other = Phone { to: "<sip:bob@EXAMPLE.org>", uri: "sip:example.org", call_id: "org", ..Phone::default() };
    let answer = other.register(&mut world, &["Contact: <sip:other@192.0.2.20:5070>"]);
    assert_eq!(contacts(&answer), ["<sip:other@192.0.2.20:5070>;expires=3600"]);
    let start = |world: &mut World, uri: &str, branch: &str| {
        let sent = world.input(ALICE, &request("INVITE", uri, branch, ""));
        sent.last().map(|s| s.start().to_owned())
    };
    let com = start(&mut world, "sip:bob@example.com", "com");
    assert_eq!(com.as_deref(), Some("INVITE sip:desk@192.0.2.20:5060 SIP/2.0"));
    let org = start(&mut world, "sip:bob@Example.Org", "org");
    assert_eq!(org.as_deref(), Some("INVITE sip:other@192.0.2.20:5070 SIP/2.0"));
}

#[test]
fn the_servers_address_means_its_first_domain() {
    let mut world = World::new(two_domains);
    let mut phone = Phone { to: "<sip:bob@192.0.2.1>", uri: "sip:192.0.2.1", ..Phone::default() };
    assert_eq!(contacts(&phone.register(&mut world, &[DESK])).len(), 1);
    for (uri, branch) in
        [("sip:bob@example.com", "name"), ("sip:bob@192.0.2.1", "ip"), (&format!("sip:bob@{SERVER}"), "port")]
    {
        let sent = world.input(ALICE, &request("INVITE", uri, branch, ""));
        assert_eq!(summary(&sent), [format!("100 {ALICE}"), format!("INVITE {BOB}")], "{uri}");
    }
    let sent = world.input(ALICE, &request("INVITE", "sip:bob@example.org", "org", ""));
    assert_eq!(summary(&sent), [format!("404 {ALICE}")]);
}

#[test]
fn an_alias_rings_its_user_and_registers_for_it() {
    let alias = |alias: &[u8]| DirectoryChange::PutAlias { alias: alias.into(), aor: (*b"bob@example.com").into() };
    let mut world =
        World::new(|s| s.directory = s.directory.with_changes([alias(b"200@example.com"), alias(b"desk@example.com")]));
    Phone::default().register(&mut world, &[DESK]);
    let sent = world.input(ALICE, &request("INVITE", "sip:200@example.com", "alias", ""));
    assert_eq!(summary(&sent), [format!("100 {ALICE}"), format!("INVITE {BOB}")]);
    let mut as_alias = Phone { to: "<sip:desk@example.com>", call_id: "alias", ..Phone::default() };
    let answer = as_alias.register(&mut world, &["Contact: <sip:soft@192.0.2.20:5080>"]);
    assert_eq!(contacts(&answer).len(), 2, "the bindings are the user's");
    let sent = world.input(ALICE, &request("INVITE", "sip:bob@example.com", "bob", ""));
    assert_eq!(sent.iter().filter(|s| s.method() == "INVITE").count(), 2);
}

//= rfc3261#10.3:require
//= rfc3261#10.3:address-of-domain
#[test]
fn foreign_domains_are_refused() {
    let mut world = World::new(|_| {});
    let mut elsewhere = Phone { uri: "sip:elsewhere.example", to: "<sip:bob@elsewhere.example>", ..Phone::default() };
    assert_eq!(elsewhere.register(&mut world, &[DESK]).start(), "SIP/2.0 404 Domain Not Served Here");
    let mut stranger = Phone { to: "<sip:bob@elsewhere.example>", call_id: "stranger", ..Phone::default() };
    assert_eq!(stranger.register(&mut world, &[DESK]).start(), "SIP/2.0 404 Domain Not Served Here");
    let mut number = Phone { to: "<tel:+15550100>", call_id: "tel", ..Phone::default() };
    assert_eq!(number.register(&mut world, &[DESK]).start(), "SIP/2.0 400 To Is No SIP Address");
    let mut phone = Phone { call_id: "require", ..Phone::default() };
    let refused = phone.register(&mut world, &[DESK, "Require: path, sec-agree, x"]);
    assert_eq!((refused.status(), refused.header("Unsupported")), (420, Some("sec-agree, x")));
    assert_eq!(world.locations.len(), 0);
}

#[test]
fn max_forwards_zero_does_not_refuse_a_register() {
    let (mut world, phone) = (World::new(|_| {}), Phone { cseq: 1, ..Phone::default() });
    let text = phone.text(&world, &[DESK]).replace("Max-Forwards: 70", "Max-Forwards: 0");
    assert_eq!(world.input(BOB, &text)[0].status(), 200, "Max-Forwards limits forwarding, not arriving");
    let options = request("OPTIONS", "sip:example.com", "own", "").replace("Max-Forwards: 70", "Max-Forwards: 0");
    assert_eq!(world.input(ALICE, &options)[0].status(), 200);
}

#[test]
fn an_operator_removes_one_contact_of_several() {
    let mut world = World::new(|_| {});
    let mut phone = Phone::default();
    phone.register(&mut world, &[DESK, "Contact: <sip:soft@192.0.2.20:5080>"]);
    let unregister = |contact| Input::Unregister { aor: b"bob@example.com", contact: Some(contact) };
    world.give(unregister(b"sip:nobody@192.0.2.20"));
    assert_eq!(world.locations.len(), 2);
    world.give(unregister(b"sip:soft@192.0.2.20:5080"));
    assert_eq!(world.locations.len(), 1);
    let sent = world.input(ALICE, &request("INVITE", "sip:bob@example.com", "one", ""));
    assert_eq!(sent.iter().filter(|s| s.method() == "INVITE").count(), 1);
    assert_eq!(
        contacts(&phone.register(&mut world, &["Contact: <sip:soft@192.0.2.20:5080>"])).len(),
        2,
        "it may come back"
    );
}

#[test]
fn a_barred_user_may_register_again() {
    let mut world = World::new(|_| {});
    let mut phone = Phone::default();
    assert_eq!(contacts(&phone.register(&mut world, &[DESK])).len(), 1);
    for _ in 0..2 {
        world.give(Input::BarUser { aor: b"bob@example.com" });
        assert_eq!(world.locations.len(), 0);
        assert_eq!(contacts(&phone.register(&mut world, &[DESK])).len(), 1);
    }
}

/// Registers Bob at `contact` from `from`; returns the response.
fn register_at(world: &mut World, from: &str, contact: &str) -> SentMessage {
    world.register("bob", from, &format!("<{contact}>"))
}

#[test]
fn nobody_elsewhere_registers_a_contact_on_this_machine() {
    let never = |snapshot: &mut Snapshot| snapshot.registrar.nat = Nat::Never;
    let listener = format!("sip:bob@{SERVER}");
    let local = [
        "sip:bob@127.0.0.1:5038",
        "sip:bob@127.8.8.8",
        "sip:bob@[::1]:6379",
        "sip:bob@[::ffff:127.0.0.1]:80",
        "sip:bob@localhost:8080",
        "sip:bob@a.LOCALHOST.",
        "sip:bob@192.0.2.20;maddr=127.0.0.1",
        &listener,
    ];
    for contact in local {
        let mut world = World::new(never);
        let response = register_at(&mut world, BOB, contact);
        assert_eq!(response.start(), "SIP/2.0 403 Contact Leads To This Server", "{contact}");
        assert!(
            matches!(&world.events[..], [Event::LocalContact { aor, .. }] if aor == "bob@example.com"),
            "{contact}"
        );
        assert_eq!(finals(&world.input(ALICE, &request("INVITE", "sip:bob@example.com", "a", ""))), [404], "{contact}");
        // Nothing keeps a phone from removing it.
        let mut world = World::new(never);
        assert_eq!(world.register("bob", BOB, &format!("<{contact}>;expires=0")).status(), 200, "{contact}");
        // The operator may allow it.
        let mut world = World::new(|snapshot| {
            never(snapshot);
            snapshot.registrar.local_contacts = LocalContacts::Accept;
        });
        assert_eq!(register_at(&mut world, BOB, contact).status(), 200, "{contact}");
    }
    let mut world = World::new(never);
    assert_eq!(register_at(&mut world, BOB, "sip:bob@192.0.2.20:5060").status(), 200);
}

#[test]
fn phones_on_this_machine_register_without_any_configuration() {
    let here = SERVER.rsplit_once(':').expect("a port").0;
    for (from, contact) in [
        ("127.0.0.1:5062".to_owned(), "sip:bob@127.0.0.1:5062"),
        (format!("{here}:5062"), "sip:bob@127.0.0.1:5062"),
        ("127.0.0.1:5062".to_owned(), "sip:bob@localhost:5062"),
    ] {
        let mut world = World::new(|snapshot| snapshot.registrar.nat = Nat::Never);
        assert_eq!(register_at(&mut world, &from, contact).status(), 200, "{contact} from {from}");
    }
}

#[test]
fn a_contact_that_nat_handling_replaces_leads_nowhere_else() {
    let mut world = World::new(|_| {});
    assert_eq!(register_at(&mut world, BOB, "sip:bob@127.0.0.1:5062").status(), 200, "many a phone says so");
    assert_eq!(destinations(&world.input(ALICE, &request("INVITE", "sip:bob@example.com", "a", "")), "INVITE"), [BOB]);
}

#[test]
fn a_path_from_elsewhere_does_not_lead_to_this_machine() {
    let mut world = World::new(|_| {});
    let text = format!(
        "REGISTER sip:example.com SIP/2.0\r\nVia: SIP/2.0/UDP {BOB};branch=z9hG4bKp\r\nMax-Forwards: 70\r\n\
         From: <sip:bob@example.com>;tag=r\r\nTo: <sip:bob@example.com>\r\nCall-ID: p\r\nCSeq: 1 REGISTER\r\n\
         Supported: path\r\nPath: <sip:127.0.0.1:5038;lr>\r\nContact: <sip:bob@{BOB}>\r\nContent-Length: 0\r\n\r\n"
    );
    assert_eq!(summary(&world.input(BOB, &text)), [format!("403 {BOB}")]);
}

#[test]
fn a_redirection_from_elsewhere_does_not_lead_to_this_machine() {
    for (contact, is_followed) in [("sip:x@127.0.0.1:5038", false), ("sip:x@198.51.100.7", true)] {
        for (local_contacts, is_guarded) in [(LocalContacts::Refuse, true), (LocalContacts::Accept, false)] {
            let mut world = World::new(|snapshot| {
                snapshot.proxy.recurse = true;
                snapshot.registrar.local_contacts = local_contacts;
            });
            register_at(&mut world, BOB, "sip:bob@192.0.2.20:5060");
            let invite = find(&world.input(ALICE, &request("INVITE", "sip:bob@example.com", "a", "")), "INVITE");
            let sent = world.respond(&invite, 302, "t", &format!("Contact: <{contact}>\r\n"));
            let expected = usize::from(is_followed || !is_guarded);
            assert_eq!(destinations(&sent, "INVITE").len(), expected, "{contact} {local_contacts:?}");
            if expected == 0 {
                assert_eq!(finals(&sent), [302], "the caller may follow it");
            }
        }
    }
}
