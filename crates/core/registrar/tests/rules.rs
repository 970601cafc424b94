//! The rules of RFC 3261 §10.3, as a phone sees them.

mod common;

use common::{AOR, Table, at_s, read, register, source};
use strowger_message::Status;
use strowger_registrar::{MAX_CONTACTS_IN_REGISTER, Nat, Refusal, UpdateCounts, UpdateKind};

fn refusal(headers: &str) -> Refusal {
    read(&register("a", 1, headers), |update| update.expect_err(headers))
}

/// Returns the expiry and q that a REGISTER with one Contact requests.
fn asked(headers: &str) -> (Option<u32>, Option<u16>) {
    read(&register("a", 1, headers), |update| match update.expect(headers).kind {
        UpdateKind::Contacts(contacts) => (contacts[0].expires_s, contacts[0].q),
        other => panic!("{other:?}"),
    })
}

fn added(added: u16) -> Result<UpdateCounts, Refusal> {
    Ok(UpdateCounts { added, ..UpdateCounts::default() })
}

//= rfc3261#10.3:no-6xx
#[test]
fn no_refusal_is_a_6xx_response() {
    use Refusal::{BadRequest, FirstHopLacksOutbound, Forbidden, IntervalTooBrief, OutOfOrder, TooManyContacts};
    let brief = IntervalTooBrief { min_s: 60 };
    for refusal in [BadRequest("x"), brief, Forbidden("x"), FirstHopLacksOutbound, TooManyContacts, OutOfOrder] {
        assert!(matches!(refusal.status().class(), 4 | 5), "{refusal:?}");
    }
}

#[test]
fn all_contact_forms_are_parsed() {
    let table = Table::new();
    let headers =
        "m: \"A, B\" <sip:a@192.0.2.1>;q=0.5, <sip:b@192.0.2.1>;expires=100|Contact: sip:c@192.0.2.1;q=1|Expires: 200";
    assert_eq!(table.register(at_s(0), "a", 1, headers), added(3));
    assert_eq!(
        table.echo(at_s(0)),
        ["<sip:c@192.0.2.1>;expires=200;q=1", "<sip:b@192.0.2.1>;expires=100", "<sip:a@192.0.2.1>;expires=200;q=0.5"],
        "by falling q, the newest first"
    );
    assert_eq!((table.locations.len(), table.locations.addresses()), (3, 1));
    assert_eq!(table.register(at_s(0), "b", 1, ""), Ok(UpdateCounts::default()), "a fetch");
}

//= rfc3261#10.3:expires-parameter
//= rfc3261#10.3:expires-header
//= rfc3261#10.3:expires-default
#[test]
fn expiry_comes_from_the_parameter_then_the_header_then_the_policy() {
    for (headers, expected) in [
        ("Contact: <sip:a@b>;expires=5|Expires: 9", Some(5)),
        ("Contact: <sip:a@b>|Expires: 9", Some(9)),
        ("Contact: <sip:a@b>", None),
        ("Contact: <sip:a@b>;expires=soon|Expires: 9", None),
        ("Contact: <sip:a@b>;expires|Expires: 9", None),
        ("Contact: <sip:a@b>;expires=-1", None),
        ("Contact: <sip:a@b>|Expires: Thu, 01 Dec 1994 16:00:00 GMT", None),
        ("Contact: <sip:a@b>;expires=4294967295", Some(u32::MAX)),
        ("Contact: <sip:a@b>;expires=4294967296", Some(u32::MAX)),
        ("Contact: <sip:a@b>;expires=99999999999999999999999999", Some(u32::MAX)),
    ] {
        assert_eq!(asked(headers).0, expected, "{headers}");
    }
    let table = Table::new();
    table.register(at_s(0), "a", 1, "Contact: <sip:a@b>").expect("default");
    assert_eq!(table.echo(at_s(0)), ["<sip:a@b>;expires=3600"]);
    table.register(at_s(0), "a", 2, "Contact: <sip:a@b>;expires=4294967295").expect("shortened");
    assert_eq!(table.echo(at_s(0)), ["<sip:a@b>;expires=7200"]);
}

#[test]
fn q_is_a_number_of_three_decimals_up_to_one() {
    for (q, expected) in
        [("0", 0), ("1", 1000), ("0.", 0), ("0.5", 500), ("0.05", 50), ("0.123", 123), ("1.0", 1000), ("1.000", 1000)]
    {
        assert_eq!(asked(&format!("Contact: <sip:a@b>;q={q}")).1, Some(expected), "{q}");
    }
    for bad in ["q=2", "q=1.1", "q=1.0000", "q=0.1234", "q=.5", "q=-1", "q=\"0.5\"", "q", "q=x"] {
        assert_eq!(refusal(&format!("Contact: <sip:a@b>;{bad}")).status(), Status::BAD_REQUEST, "{bad}");
    }
    let table = Table::new();
    table.register(at_s(0), "a", 1, "Contact: <sip:a@b>;q=0.050,<sip:b@b>;q=0.0").expect("valid");
    assert_eq!(table.echo(at_s(0)), ["<sip:a@b>;expires=3600;q=0.05", "<sip:b@b>;expires=3600;q=0"]);
}

//= rfc3261#10.3:star-of-another-call
//= rfc3261#10.3:star-with-higher-cseq
//= rfc3261#10.3:star-with-lower-cseq
#[test]
fn a_star_must_be_alone_with_expires_0() {
    for bad in [
        "Contact: *",
        "Contact: *|Expires: 1",
        "Contact: *|Expires: x",
        "Contact: *|Contact: <sip:a@b>|Expires: 0",
        "Contact: <sip:a@b>|Contact: *|Expires: 0",
        "Contact: *|Contact: *|Expires: 0",
        "Contact: <sip:a@b>|Contact: <sip:a@b|Expires: 5",
        "Contact: <sip:a@b>|Expires: 5|Expires: 6",
        "Contact: <sip:a@b c>",
    ] {
        let bytes = register("a", 1, bad);
        // A message that fails its own check never gets here.
        if strowger_message::Message::parse(&bytes).is_ok() {
            assert_eq!(refusal(bad).status(), Status::BAD_REQUEST, "{bad}");
        }
    }
    let table = Table::new();
    table.register(at_s(0), "a", 5, "Contact: <sip:a@b>, <sip:c@d>").expect("valid");
    assert_eq!(table.register(at_s(0), "a", 5, "Contact: *|Expires: 0"), Err(Refusal::OutOfOrder));
    assert_eq!(table.uris(at_s(0)).len(), 2);
    let all = UpdateCounts { removed: 2, ..UpdateCounts::default() };
    assert_eq!(table.register(at_s(0), "a", 6, "Contact: *|Expires: 0"), Ok(all));
    assert!(table.locations.is_empty() && table.echo(at_s(0)).is_empty());
    table.register(at_s(0), "a", 7, "Contact: <sip:a@b>").expect("valid");
    table.register(at_s(0), "b", 1, "Contact: *|Expires: 0").expect("another Call-ID needs no order");
    assert!(table.locations.is_empty());
}

//= rfc3261#10.3:other-call-id
//= rfc3261#10.3:higher-cseq
//= rfc3261#10.3:lower-cseq
#[test]
fn updates_of_one_call_id_are_ordered_and_atomic() {
    let table = Table::new();
    table.register(at_s(0), "a", 5, "Contact: <sip:a@b>;expires=100").expect("first");
    for late in [4, 5] {
        let headers = "Contact: <sip:new@b>, <sip:a@b>;expires=0";
        let refused = table.register(at_s(0), "a", late, headers).expect_err("not higher");
        assert_eq!((refused, refused.status()), (Refusal::OutOfOrder, Status::SERVER_ERROR));
        assert_eq!(table.echo(at_s(0)), ["<sip:a@b>;expires=100"], "all or nothing");
    }
    let one = UpdateCounts { refreshed: 1, ..UpdateCounts::default() };
    assert_eq!(table.register(at_s(0), "a", 6, "Contact: <sip:a@b>;expires=200"), Ok(one));
    assert_eq!(table.register(at_s(0), "b", 1, "Contact: <sip:a@b>;expires=300"), Ok(one), "another Call-ID replaces");
    assert_eq!(table.echo(at_s(0)), ["<sip:a@b>;expires=300"]);
    assert_eq!(table.register(at_s(0), "b", 1, "Contact: <sip:c@d>"), added(1), "order is kept a binding");
    let gone = UpdateCounts { removed: 1, ..UpdateCounts::default() };
    assert_eq!(table.register(at_s(0), "b", 2, "Contact: <sip:a@b>;expires=0"), Ok(gone));
    assert_eq!(
        table.register(at_s(0), "b", 3, "Contact: <sip:a@b>;expires=0"),
        Ok(UpdateCounts::default()),
        "twice is as good"
    );
    assert_eq!(table.uris(at_s(0)), ["sip:c@d"]);
}

#[test]
fn a_cseq_is_forgotten_with_its_binding() {
    let table = Table::new();
    table.register(at_s(0), "a", 5, "Contact: <sip:a@b>;expires=60").expect("first");
    assert_eq!(table.register(at_s(60), "a", 5, "Contact: <sip:a@b>;expires=60"), added(1), "it had expired unseen");
    assert_eq!((table.locations.len(), table.uris(at_s(60)).len()), (1, 1));
}

#[test]
fn short_expiry_is_refused_and_long_is_capped() {
    let table = Table::new();
    for headers in ["Contact: <sip:a@b>;expires=59", "Contact: <sip:ok@b>, <sip:a@b>;expires=1"] {
        let refused = table.register(at_s(0), "a", 1, headers).expect_err("too brief");
        assert_eq!((refused, refused.status()), (Refusal::IntervalTooBrief { min_s: 60 }, Status::INTERVAL_TOO_BRIEF));
    }
    assert!(table.locations.is_empty());
    table.register(at_s(0), "a", 1, "Contact: <sip:a@b>;expires=60").expect("the minimum itself");
    table.register(at_s(0), "a", 2, "Contact: <sip:a@b>;expires=7201").expect("long");
    assert_eq!(table.echo(at_s(0)), ["<sip:a@b>;expires=7200"]);
    let mut table = Table::new();
    table.policy.expires_min = core::time::Duration::from_secs(7200);
    assert!(table.register(at_s(0), "a", 1, "Contact: <sip:a@b>;expires=3599").is_err());
    table.register(at_s(0), "a", 1, "Contact: <sip:a@b>;expires=3600").expect("an hour is never too brief");
}

#[test]
fn contacts_are_limited_after_the_update() {
    let mut table = Table::new();
    table.policy.max_contacts = 2;
    table.register(at_s(0), "a", 1, "Contact: <sip:a@b>, <sip:c@d>").expect("two");
    let refused = table.register(at_s(0), "b", 1, "Contact: <sip:e@f>").expect_err("a third");
    assert_eq!((refused, refused.status()), (Refusal::TooManyContacts, Status::FORBIDDEN));
    table.register(at_s(0), "b", 1, "Contact: <sip:e@f>, <sip:a@b>;expires=0").expect("one for another");
    assert_eq!(table.uris(at_s(0)), ["sip:e@f", "sip:c@d"]);
    table.policy.max_contacts = 1;
    table.register(at_s(0), "b", 2, "Contact: <sip:e@f>").expect("who is there stays, though the limit was lowered");
    let many: String = (0..=MAX_CONTACTS_IN_REGISTER).map(|n| format!("Contact: <sip:{n}@b>|")).collect();
    assert_eq!(refusal(&many), Refusal::TooManyContacts);
}

#[test]
fn uris_compare_as_uris_and_keep_their_bytes() {
    let table = Table::new();
    table.register(at_s(0), "a", 1, "Contact: <sip:%61lice@Host.example.com;Transport=TCP>;expires=100").expect("one");
    let headers = "Contact: <sip:alice@hOST.example.com;transport=tcp;x=1>;expires=100";
    let one = UpdateCounts { refreshed: 1, ..UpdateCounts::default() };
    assert_eq!(table.register(at_s(0), "a", 2, headers), Ok(one));
    assert_eq!(
        table.echo(at_s(0)),
        ["<sip:alice@hOST.example.com;transport=tcp;x=1>;expires=100"],
        "as the client last wrote it"
    );
    for different in
        ["sip:alice@host.example.com", "sip:Alice@host.example.com;transport=tcp", "sips:alice@host.example.com"]
    {
        assert_eq!(table.register(at_s(0), "c", 1, &format!("Contact: <{different}>")), added(1), "{different}");
    }
}

/// RFC 4475 §3.1.2.13 and the null characters of §3.1.1.4, and other schemes.
#[test]
fn unusual_contacts_are_echoed_byte_for_byte() {
    for uri in [
        "sip:user@example.com?Route=%3Csip:sip.example.com%3E",
        "sip:%00@host5.example.com",
        "sip:%00%00@host5.example.com",
        "sip:+1(212)555@gw.example.com;user=phone",
        "tel:+1-201-555-0123",
        "sips:a@[2001:db8::1]:5061;lr",
        "mailto:alice@example.com",
    ] {
        let table = Table::new();
        assert_eq!(table.register(at_s(0), "a", 1, &format!("Contact: <{uri}>;expires=60")), added(1));
        assert_eq!(table.echo(at_s(0)), [format!("<{uri}>;expires=60")]);
        assert_eq!(table.uris(at_s(0)), [uri]);
    }
    let table = Table::new();
    table.register(at_s(0), "a", 1, "Contact: <sip:%00@b>, <sip:%00%00@b>").expect("valid");
    assert_eq!(table.locations.len(), 2, "the two are different");
}

#[test]
fn a_contact_equal_to_several_replaces_them() {
    let table = Table::new();
    table.register(at_s(0), "a", 1, "Contact: <sip:c@b;security=on>, <sip:c@b;security=off>").expect("two");
    let applied = UpdateCounts { added: 0, refreshed: 1, removed: 1 };
    assert_eq!(table.register(at_s(0), "a", 2, "Contact: <sip:c@b>"), Ok(applied));
    assert_eq!(table.uris(at_s(0)), ["sip:c@b"]);
    table.register(at_s(0), "a", 3, "Contact: <sip:x@b>;q=0.1, <sip:x@b>;q=0.2").expect("the last counts");
    assert_eq!(table.echo(at_s(0)), ["<sip:c@b>;expires=3600", "<sip:x@b>;expires=3600;q=0.2"]);
}

#[test]
fn expiry_is_exact_to_the_tick_and_seconds_are_rounded_up() {
    let table = Table::new();
    let ms = strowger_foundation::Timestamp::from_millis;
    table.register(ms(250), "a", 1, "Contact: <sip:a@b>;expires=60").expect("valid");
    assert_eq!(table.echo(ms(250)), ["<sip:a@b>;expires=60"]);
    assert_eq!(table.echo(ms(1251)), ["<sip:a@b>;expires=59"]);
    assert_eq!(table.echo(ms(60_249)), ["<sip:a@b>;expires=1"]);
    assert_eq!(table.locations.expire(ms(60_249), table.shard(), 100), 0);
    assert!(table.locations.next_deadline(table.shard()).is_some_and(|at| at <= ms(60_250)));
    assert!(table.lookup(ms(60_250)).is_empty() && table.echo(ms(60_250)).is_empty());
    assert_eq!(table.locations.expire(ms(60_250), table.shard(), 100), 1);
    assert!(table.locations.is_empty());
    assert_eq!(table.locations.next_deadline(table.shard()), None);
}

#[test]
fn expiry_respects_its_limit() {
    let table = Table::new();
    table.register(at_s(0), "a", 1, "Contact: <sip:a@b>, <sip:c@d>, <sip:e@f>").expect("three");
    for left in [2, 1, 0] {
        assert!(table.locations.next_deadline(table.shard()).is_some_and(|at| at <= at_s(4000)));
        assert_eq!(table.locations.expire(at_s(4000), table.shard(), 1), 1);
        table.locations.check_invariants();
        assert_eq!(table.locations.len(), left);
    }
}

#[test]
fn nat_is_detected() {
    // Contact host, whether the Via matches, and the destinations under Never, Always and Auto.
    for (uri, via_matches, auto) in [
        ("sip:a@192.0.2.1:5060", true, false),
        ("sip:a@192.0.2.1:9", true, false),
        ("sip:a@192.0.2.1:5060", false, true),
        ("sip:a@10.0.0.1:5060", true, true),
        ("sip:a@phone.example.com", true, true),
        ("sip:a@[2001:db8::1]", true, true),
        ("tel:+1", true, true),
        ("mailto:a@example.com", false, false),
    ] {
        for (nat, expected) in [(Nat::Never, false), (Nat::Always, true), (Nat::Auto, auto)] {
            let mut table = Table::new();
            table.policy.nat = nat;
            table.source.via_sent_by_matches = via_matches;
            table.register(at_s(0), "a", 1, &format!("Contact: <{uri}>")).expect("valid");
            let targets = table.lookup(at_s(0));
            assert_eq!(targets[0].is_translated, expected, "{uri} {via_matches} {nat:?}");
            assert_eq!(targets[0].flow, table.source.flow);
        }
    }
    let mut table = Table::new();
    table.register(at_s(0), "a", 1, "Contact: <sip:a@10.0.0.1>").expect("valid");
    table.source = source("192.0.2.1:6000");
    table.register(at_s(0), "a", 2, "Contact: <sip:a@10.0.0.1>").expect("valid");
    assert_eq!(table.lookup(at_s(0))[0].flow.peer.port(), 6000, "a refresh from elsewhere moves the flow");
}

#[test]
fn the_view_shows_a_stripe() {
    let table = Table::new();
    table.register(at_s(0), "a", 1, "Contact: <sip:a@10.0.0.1>;q=0.25;expires=60").expect("valid");
    let mut seen = Vec::new();
    table.locations.for_each_in_stripe(at_s(1), 0, |view| {
        seen.push((view.aor.to_vec(), view.uri.to_vec(), view.q, view.expires_in_s, view.flow, view.is_translated));
    });
    assert_eq!(seen, [(AOR.to_vec(), b"sip:a@10.0.0.1".to_vec(), Some(250), 59, table.source.flow, true)]);
    table.locations.for_each_in_stripe(at_s(60), 0, |view| panic!("{view:?} has expired"));
    table.locations.for_each_in_stripe(at_s(1), 9, |view| panic!("{view:?} of no stripe"));
}

#[test]
fn a_barred_user_is_removed_and_nobody_else() {
    let table = Table::new();
    table.register(at_s(0), "a", 1, "Contact: <sip:a@192.0.2.1>, <sip:a@192.0.2.2>").expect("valid");
    assert_eq!(table.locations.remove_address(at_s(1), b"bob@example.com", &mut Vec::new()), 0);
    assert_eq!(table.uris(at_s(1)).len(), 2);
    assert_eq!(table.locations.remove_address(at_s(1), AOR, &mut Vec::new()), 2);
    assert!(table.uris(at_s(1)).is_empty() && table.locations.is_empty());
    table.locations.check_invariants();
    table.register(at_s(2), "a", 1, "Contact: <sip:a@192.0.2.1>").expect("no order is left of what was forgotten");
}
