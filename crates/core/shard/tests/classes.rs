//! Overload classification of requests: class, kind, and whether the source is proven.

mod support;

use std::time::Duration;

use strowger_auth::Network;
use strowger_directory::{Directory, DirectoryChange, Ha1s, User};
use strowger_foundation::{Flow, ListenerId, Timestamp, Transport};
use strowger_message::{Kind, Method, Peek};
use strowger_overload::{Class, FilteredKind};
use strowger_shard::{
    Action, Classification, Classifier, ProvenSources, Route, RouteMatch, Snapshot, begins_work, may_begin_work,
};
use strowger_trunk::Trunk;
use support::{World, request};

/// Unproven.
const STRANGER: &str = "198.51.100.66:5060";
/// Has proven its address.
const PROVEN: &str = "198.51.100.7:5060";
/// One of the addresses of a trunk.
const TRUNK: &str = "203.0.113.9:5060";
/// In a network that needs no password.
const TRUSTED: &str = "2001:db8:7::9";
/// Another server of ours that forwards phones' requests.
const SIBLING: &str = "192.0.2.99:5060";
/// All sources, with the classifier's verdict: whether they are unlimited, and whether they are proven.
const SOURCES: [(&str, bool, bool); 5] = [
    (STRANGER, false, false),
    (PROVEN, false, true),
    (TRUNK, true, true),
    (TRUSTED, true, true),
    (SIBLING, true, true),
];

const SOMEBODY: &str = "sip:carol@elsewhere.example";
const PRIORITY: &str = "Resource-Priority: esnet.0\r\n";

/// Source, method, Request-URI, header lines, and the resulting class and kind.
type Row = (&'static str, &'static str, &'static str, &'static str, Class, FilteredKind);

/// A world with a registrar, a trunk and a trusted network, and its workers' knowledge of sources.
struct Fixture {
    world: World,
    proven: ProvenSources,
}

impl Fixture {
    fn new(edit: impl FnOnce(&mut Snapshot)) -> Self {
        let world = World::new(|snapshot| {
            let network = |ip: &str, prefix| Network { address: ip.parse().expect("an address"), prefix };
            snapshot.auth.trusted = vec![network("2001:db8:7::", 48)];
            snapshot.trunks = vec![
                Trunk {
                    name: "carrier".into(),
                    credentials: None,
                    sources: vec![network("203.0.113.0", 28)],
                    domains: Vec::new(),
                    account: None,
                }
                .into(),
            ];
            let user = User { aor: (*b"bob@example.com").into(), ha1: Ha1s::default(), enabled: true };
            let alias = DirectoryChange::PutAlias { alias: (*b"boss@example.com").into(), aor: user.aor.clone() };
            snapshot.directory = Directory::empty(1).with_changes([DirectoryChange::PutUser(user), alias]);
            snapshot.siblings = vec![SIBLING.parse().expect("an address")];
            edit(snapshot);
        });
        let proven = ProvenSources::new(1);
        proven.insert(world.now, flow(PROVEN).peer.ip());
        Self { world, proven }
    }

    /// Creates a world in which these prefixes and methods lead to these classes; an empty one matches everything.
    fn routed(routes: &[(&str, &str, Option<Class>)]) -> Self {
        let list = |text: &str| if text.is_empty() { Vec::new() } else { vec![text.as_bytes().into()] };
        let route = |&(prefix, method, class): &(&str, &str, Option<Class>)| {
            let matches = RouteMatch { prefixes: list(prefix), methods: list(method), ..RouteMatch::default() };
            Route { class, ..Route::new(matches, Action::OutOfService) }
        };
        Self::new(|snapshot| snapshot.routes = routes.iter().map(route).collect())
    }

    fn classify(&self, from: &str, text: &str) -> Classification {
        let World { steering, snapshot, locations, now, .. } = &self.world;
        let peek = Peek::read(text.as_bytes()).expect("has a head");
        let (_, steered) = steering.steer(&peek, snapshot).expect("has an owner");
        Classifier { snapshot, locations, proven: &self.proven }.classify(*now, &peek, &steered, &flow(from))
    }

    /// Returns the class of a request from this address.
    fn class(&self, from: &str, method: &str, uri: &str) -> Class {
        self.classify(from, &request(method, uri, "1", "")).class
    }

    #[track_caller]
    fn assert_rows(&self, rows: &[Row]) {
        for &(from, method, uri, extra, class, kind) in rows {
            let found = self.classify(from, &request(method, uri, "1", extra));
            assert_eq!(found, of_source(from, class, kind), "{method} {uri} from {from} with {extra:?}");
        }
    }
}

/// An address without a port is an IPv6 address.
fn flow(from: &str) -> Flow {
    let peer = from.parse().or_else(|_| format!("[{from}]:5060").parse()).expect("an address");
    Flow::new(ListenerId(0), Transport::Udp, peer)
}

/// The expected classification for one of [`SOURCES`]; any other address is a stranger's.
fn of_source(from: &str, class: Class, kind: FilteredKind) -> Classification {
    let known = SOURCES.iter().find(|(source, ..)| *source == from);
    let (is_unlimited, is_proven) = known.map_or((false, false), |known| (known.1, known.2));
    Classification { class, kind, is_unlimited, is_proven }
}

/// Returns the same request with a To tag, as inside a dialog.
fn tagged(text: &str) -> String {
    text.replace("To: <sip:bob@example.com>", "To: <sip:bob@example.com>;tag=b")
}

#[test]
fn emergency_calls_are_recognized_from_any_source() {
    let context = Fixture::new(|_| {});
    for (uri, is_emergency) in [
        ("urn:service:sos", true),
        ("URN:Service:SOS", true),
        ("urn:service:sos.fire", true),
        ("urn:service:SOS.Police", true),
        ("urn:service:sos.animal-control", true),
        ("urn:service:sosx", false),
        ("urn:service:so", false),
        ("urn:service:counseling.sos", false),
        ("sip:sos@elsewhere.example", false),
        ("sip:urn:service:sos@elsewhere.example", false),
        ("tel:112", false),
    ] {
        for (from, usual, kind) in [
            (STRANGER, Class::Other, FilteredKind::Call),
            (PROVEN, Class::Call, FilteredKind::ProvenCall),
            (TRUNK, Class::TrunkCall, FilteredKind::TrunkCall),
            (TRUSTED, Class::TrunkCall, FilteredKind::TrunkCall),
        ] {
            let class = if is_emergency { Class::Emergency } else { usual };
            context.assert_rows(&[(from, "INVITE", uri, "", class, kind)]);
        }
    }
    let stranger = context.classify(STRANGER, &request("INVITE", "urn:service:sos", "1", ""));
    assert!(
        !stranger.is_proven && !stranger.is_unlimited,
        "so that strangers have no more than a share of the first class"
    );
}

#[test]
fn only_calls_are_emergencies() {
    let context = Fixture::new(|_| {});
    for method in ["OPTIONS", "MESSAGE", "SUBSCRIBE", "REGISTER", "invite"] {
        let (class, kind) = match method {
            "REGISTER" => (Class::Contact, FilteredKind::Register),
            _ => (Class::Other, FilteredKind::Other),
        };
        context.assert_rows(&SOURCES.map(|(from, ..)| (from, method, "urn:service:sos", PRIORITY, class, kind)));
    }
}

#[test]
fn a_priority_counts_only_from_a_known_source() {
    let context = Fixture::new(|_| {});
    context.assert_rows(&[
        (STRANGER, "INVITE", SOMEBODY, PRIORITY, Class::Other, FilteredKind::Call),
        (PROVEN, "INVITE", SOMEBODY, PRIORITY, Class::Emergency, FilteredKind::ProvenCall),
        (PROVEN, "INVITE", SOMEBODY, "resource-priority: ets.0, wps.3\r\n", Class::Emergency, FilteredKind::ProvenCall),
        (PROVEN, "INVITE", SOMEBODY, "Priority: emergency\r\n", Class::Call, FilteredKind::ProvenCall),
        (TRUNK, "INVITE", SOMEBODY, PRIORITY, Class::Emergency, FilteredKind::TrunkCall),
        (TRUSTED, "INVITE", SOMEBODY, PRIORITY, Class::Emergency, FilteredKind::TrunkCall),
    ]);
}

#[test]
fn calls_are_classed_by_source() {
    let context = Fixture::new(|_| {});
    for uri in [SOMEBODY, "sip:bob@example.com", "tel:+4930123"] {
        context.assert_rows(&[
            (STRANGER, "INVITE", uri, "", Class::Other, FilteredKind::Call),
            (PROVEN, "INVITE", uri, "", Class::Call, FilteredKind::ProvenCall),
            (TRUNK, "INVITE", uri, "", Class::TrunkCall, FilteredKind::TrunkCall),
            (TRUSTED, "INVITE", uri, "", Class::TrunkCall, FilteredKind::TrunkCall),
            // Just outside the trunk's network of sixteen addresses.
            ("203.0.113.16:5060", "INVITE", uri, "", Class::Other, FilteredKind::Call),
            ("2001:db8:8::9", "INVITE", uri, "", Class::Other, FilteredKind::Call),
        ]);
    }
    // Another port of the same address is the same source.
    assert_eq!(context.class("198.51.100.7:40000", "INVITE", SOMEBODY), Class::Call);
    assert_eq!(context.class("203.0.113.1:40000", "INVITE", SOMEBODY), Class::TrunkCall);
}

#[test]
fn other_methods_are_in_class_other() {
    let context = Fixture::new(|_| {});
    for method in ["OPTIONS", "SUBSCRIBE", "MESSAGE", "PUBLISH", "NOTIFY", "REFER", "INFO", "UPDATE", "X", "invite"] {
        for uri in [SOMEBODY, "sip:example.com"] {
            let is_probe = |from| from == SIBLING && method == "OPTIONS" && uri != SOMEBODY;
            for (from, ..) in SOURCES.into_iter().filter(|(from, ..)| !is_probe(*from)) {
                context.assert_rows(&[(from, method, uri, "", Class::Other, FilteredKind::Other)]);
            }
        }
    }
}

#[test]
fn a_register_from_the_registered_address_is_a_refresh() {
    const DEVICE: &str = "198.51.100.80:5060";
    let mut context = Fixture::new(|_| {});
    let register = request("REGISTER", "sip:example.com", "1", "");
    let classes = |context: &Fixture, text: &str| {
        [DEVICE, "198.51.100.80:61000", STRANGER, PROVEN, TRUNK].map(|from| {
            let found = context.classify(from, text);
            assert_eq!(found, of_source(from, found.class, FilteredKind::Register), "from {from}");
            found.class
        })
    };
    let nobody = [Class::Contact; 5];
    assert_eq!(classes(&context, &register), nobody, "nobody is registered yet");

    let answer = context.world.register("bob", DEVICE, "<sip:bob@198.51.100.80:5060>");
    assert_eq!(answer.status(), 200);
    let device_only = [Class::Refresh, Class::Refresh, Class::Contact, Class::Contact, Class::Contact];
    assert_eq!(classes(&context, &register), device_only);
    let to = |who: &str| register.replace("To: <sip:bob@example.com>", &format!("To: {who}"));
    for who in ["<sip:bob@192.0.2.1>", "Bob <sip:%62ob@EXAMPLE.com:5070;x=y>", "<sip:boss@example.com>"] {
        assert_eq!(classes(&context, &to(who)), device_only, "{who} is the same address of record");
    }
    for who in ["<sip:alice@example.com>", "<sip:bob@elsewhere.example>", "<tel:+1>", "none"] {
        assert_eq!(classes(&context, &to(who)), nobody, "{who} is another");
    }

    let answer = context.world.register("bob", TRUNK, "<sip:bob@203.0.113.9:5060>");
    assert_eq!(answer.status(), 200);
    let both = [Class::Refresh, Class::Refresh, Class::Contact, Class::Contact, Class::Refresh];
    assert_eq!(classes(&context, &register), both, "any of several bindings will do");
    context.world.wait(Duration::from_secs(3 * 3_600));
    assert_eq!(classes(&context, &register), nobody, "both have expired");
}

/// Anyone can write a tag.
#[test]
fn a_to_tag_only_moves_strangers_requests_to_class_other() {
    let mut context = Fixture::routed(&[("00", "", Some(Class::Emergency))]);
    assert_eq!(context.world.register("bob", STRANGER, "<sip:bob@198.51.100.66:5060>").status(), 200);
    for (method, uri, kind) in [
        ("INVITE", SOMEBODY, FilteredKind::Call),
        ("INVITE", "sip:0049@example.com", FilteredKind::Call),
        ("REGISTER", "sip:example.com", FilteredKind::Register),
        ("OPTIONS", SOMEBODY, FilteredKind::Other),
        ("MESSAGE", "sip:0049@example.com", FilteredKind::Other),
    ] {
        let text = request(method, uri, "1", "");
        let found = context.classify(STRANGER, &tagged(&text));
        assert_eq!(found, of_source(STRANGER, Class::Other, kind), "{method} {uri}");
        for (from, ..) in SOURCES.iter().filter(|(from, ..)| *from != STRANGER) {
            assert_eq!(
                context.classify(from, &tagged(&text)),
                context.classify(from, &text),
                "{method} {uri} from {from}"
            );
        }
    }
    let refresh = context.classify(STRANGER, &request("REGISTER", "sip:example.com", "1", ""));
    assert_eq!(refresh.class, Class::Refresh, "without the tag");
    let found = context.classify(STRANGER, &tagged(&request("INVITE", "urn:service:sos", "1", "")));
    assert_eq!(found, of_source(STRANGER, Class::Emergency, FilteredKind::Call), "a tag takes no emergency away");
}

#[test]
fn a_routes_class_overrides_the_default_but_not_an_emergency() {
    for class in Class::ALL {
        let context = Fixture::routed(&[("", "", Some(class))]);
        for (from, ..) in SOURCES {
            let of_call = context.classify(from, &request("INVITE", SOMEBODY, "1", "")).kind;
            context.assert_rows(&[
                (from, "INVITE", SOMEBODY, "", class, of_call),
                (from, "REGISTER", "sip:example.com", "", class, FilteredKind::Register),
                (from, "OPTIONS", "sip:example.com", "", class, FilteredKind::Other),
                (from, "INVITE", "urn:service:sos", "", Class::Emergency, of_call),
            ]);
        }
        context.assert_rows(&[
            (STRANGER, "INVITE", SOMEBODY, PRIORITY, class, FilteredKind::Call),
            (PROVEN, "INVITE", SOMEBODY, PRIORITY, Class::Emergency, FilteredKind::ProvenCall),
            (TRUNK, "INVITE", SOMEBODY, PRIORITY, Class::Emergency, FilteredKind::TrunkCall),
        ]);
    }
}

#[test]
fn the_first_matching_route_with_a_class_decides() {
    let context = Fixture::routed(&[
        ("11", "", None),
        ("112", "INVITE", Some(Class::Emergency)),
        ("11", "", Some(Class::Contact)),
        ("", "PUBLISH", Some(Class::Refresh)),
    ]);
    for (method, uri, class) in [
        ("INVITE", "sip:112@example.com", Class::Emergency),
        ("INVITE", "sip:1-1.2@elsewhere.example", Class::Emergency),
        ("INVITE", "tel:112", Class::Emergency),
        ("INVITE", "sip:113@example.com", Class::Contact),
        ("MESSAGE", "sip:112@example.com", Class::Contact),
        ("PUBLISH", "sip:112@example.com", Class::Contact),
        ("PUBLISH", "sip:bob@example.com", Class::Refresh),
        ("INVITE", "sip:911@example.com", Class::Call),
        ("INVITE", "urn:service:counseling", Class::Call),
        ("MESSAGE", "sip:911@example.com", Class::Other),
        ("INVITE", "no-uri", Class::Call),
    ] {
        assert_eq!(context.class(PROVEN, method, uri), class, "{method} {uri}");
    }
}

#[test]
fn a_route_matches_by_domain_and_source_too() {
    let of_domain = |domain: &str, class| {
        let matches = RouteMatch { domain: domain.as_bytes().into(), ..RouteMatch::default() };
        Route { class: Some(class), ..Route::new(matches, Action::OutOfService) }
    };
    let partner = Network { address: flow(PROVEN).peer.ip(), prefix: 32 };
    let of_partner = Route {
        class: Some(Class::TrunkCall),
        ..Route::new(RouteMatch { sources: vec![partner], ..RouteMatch::default() }, Action::OutOfService)
    };
    let routes =
        vec![of_domain("example.com", Class::Contact), of_domain("*.partner.example", Class::Emergency), of_partner];
    let context = Fixture::new(|snapshot| snapshot.routes = routes);
    for (from, uri, class) in [
        (STRANGER, "sip:bob@example.com", Class::Contact),
        (STRANGER, "sip:bob@Example.COM", Class::Contact),
        // The listener's address stands for the first domain.
        (STRANGER, "sip:bob@192.0.2.1", Class::Contact),
        (STRANGER, "sip:bob@A.Partner.example:5070", Class::Emergency),
        (STRANGER, "sip:bob@partner.example", Class::Other),
        (STRANGER, "tel:+4930123", Class::Other),
        (PROVEN, "sip:bob@partner.example", Class::TrunkCall),
        (PROVEN, "tel:+4930123", Class::TrunkCall),
        (PROVEN, "sip:bob@example.com", Class::Contact),
    ] {
        assert_eq!(context.class(from, "INVITE", uri), class, "{uri} from {from}");
    }
}

/// Whether a request of each method begins new work without a tag; with one it never does.
#[test]
fn method_and_tag_decide_what_is_new_work() {
    for (method, may_begin) in [
        ("INVITE", true),
        ("REGISTER", true),
        ("OPTIONS", true),
        ("SUBSCRIBE", true),
        ("MESSAGE", true),
        ("PUBLISH", true),
        ("NOTIFY", true),
        ("REFER", true),
        ("INFO", true),
        ("UPDATE", true),
        ("X", true),
        ("ack", true),
        ("ACK", false),
        ("CANCEL", false),
        ("BYE", false),
        ("PRACK", false),
    ] {
        assert_eq!(may_begin_work(Method::from_token(method.as_bytes())), may_begin, "{method}");
        for (to, has_tag) in [
            ("To: <sip:bob@example.com>", false),
            ("To: <sip:bob@example.com;tag=b>", false),
            ("To: \"x;tag=b\" <sip:bob@example.com>", false),
            ("To: <sip:bob@example.com>;tag=b", true),
            ("t: sip:bob@example.com;TAG=b", true),
            ("To: Bob <sip:bob@example.com> ; x=y ;\r\n tag=b", true),
        ] {
            let text = request(method, SOMEBODY, "1", "").replace("To: <sip:bob@example.com>", to);
            let peek = Peek::read(text.as_bytes()).expect("has a head");
            let Kind::Request(read) = peek.kind else { panic!("{method} is a request") };
            assert_eq!(begins_work(&peek, read), may_begin && !has_tag, "{method} with {to}");
        }
    }
}

#[test]
fn probes_of_our_servers_go_first() {
    let context = Fixture::new(|_| {});
    for (from, class) in [(SIBLING, Class::TrunkCall), (STRANGER, Class::Other), (PROVEN, Class::Other)] {
        context.assert_rows(&[(from, "OPTIONS", "sip:192.0.2.1:5060", "", class, FilteredKind::Other)]);
    }
}

#[test]
fn a_source_unproven_for_long_is_a_stranger_again() {
    let context = Fixture::new(|_| {});
    assert_eq!(context.class(PROVEN, "INVITE", SOMEBODY), Class::Call);
    // The two generations of the filter rotate when other sources are proven.
    let begin: Timestamp = context.world.now;
    for hours in [3, 6] {
        context.proven.insert(begin + Duration::from_secs(hours * 3_600), flow(STRANGER).peer.ip());
    }
    let found = context.classify(PROVEN, &request("INVITE", SOMEBODY, "1", PRIORITY));
    let expected =
        Classification { class: Class::Other, kind: FilteredKind::Call, is_unlimited: false, is_proven: false };
    assert_eq!(found, expected);
    assert_eq!(context.class(STRANGER, "INVITE", SOMEBODY), Class::Call);
}

//= rfc5922#7.4
#[test]
fn a_trunk_that_is_known_by_its_certificate_has_the_priority_of_one() {
    let fixture = Fixture::new(|_| {});
    let World { steering, snapshot, locations, now, names, .. } = &fixture.world;
    let text = request("INVITE", SOMEBODY, "1", "");
    let peek = Peek::read(text.as_bytes()).expect("has a head");
    let (_, steered) = steering.steer(&peek, snapshot).expect("has an owner");
    let classifier = Classifier { snapshot, locations, proven: &fixture.proven };
    let host = names.hosts().number(b"carrier.example").expect("room");
    let found = classifier.classify(*now, &peek, &steered, &Flow { host, ..flow(STRANGER) });
    let (class, kind) = (Class::TrunkCall, FilteredKind::TrunkCall);
    assert_eq!(found, Classification { class, kind, is_unlimited: true, is_proven: true });
}
