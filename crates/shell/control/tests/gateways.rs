//! Routes to gateway sets.

use strowger_control::config::Config;
use strowger_control::targets::TargetSets;
use strowger_directory::{Directory, DirectoryChange, Gateway};
use strowger_shard::{Action, Listeners, RouteTarget};

fn parse(text: &str) -> Config {
    Config::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

/// A gateway set: URI, priority, weight and enabled flag of each gateway.
fn set(name: &str, gateways: &[(&str, u16, u16, bool)]) -> DirectoryChange {
    let row = |&(uri, priority, weight, enabled): &(&str, u16, u16, bool)| {
        let uri = uri.as_bytes().into();
        Gateway { uri, priority, weight, capacity: None, enabled }
    };
    DirectoryChange::PutGateways { set: name.as_bytes().into(), gateways: gateways.iter().map(row).collect() }
}

fn directory(sets: impl IntoIterator<Item = DirectoryChange>) -> Directory {
    Directory::empty(1).with_changes(sets)
}

fn action(config: &Config, directory: &Directory) -> Action {
    let snapshot = config.snapshot(Listeners::new(Vec::new()), directory.clone(), &TargetSets::default());
    snapshot.routes.first().expect("a route").action.clone()
}

fn shown(targets: &[RouteTarget]) -> Vec<(&str, u16, u16)> {
    let text = |target: &RouteTarget| std::str::from_utf8(Box::leak(target.uri.clone())).expect("text");
    targets.iter().map(|target| (text(target), target.priority, target.weight)).collect()
}

#[test]
fn each_set_error_is_reported() {
    let names = "has no valid set name; write set: and a name of letters, digits, -, _ and ., such as set:pstn";
    let long = "x".repeat(65);
    for (lines, expected) in [
        ("targets = [\"set:\"]", format!("1: route[0].targets[0]: \"set:\" {names}")),
        ("targets = [\"set:p stn\"]", format!("1: route[0].targets[0]: \"set:p stn\" {names}")),
        (&format!("targets = [\"set:{long}\"]"), format!("1: route[0].targets[0]: \"set:{long}\" {names}")),
        (
            "targets = [{ uri = \"set:pstn\", weight = 2 }]",
            "1: route[0].targets[0].uri: \"set:pstn\": a set stands alone among a route's targets, such as targets = \
             [\"set:pstn\"]"
                .to_owned(),
        ),
        (
            "targets = [\"set:a\", \"sip:b\", \"set:a\"]",
            "1: route[0].targets[2]: set:a is listed twice; remove one (weight gives it a greater share)".to_owned(),
        ),
        (
            "targets = [\"set:a\", \"set:b\", \"sip:x\", \"set:c\", \"set:d\", \"set:e\"]",
            "1: route[0].targets[5]: a route has 4 sets at most; remove one".to_owned(),
        ),
        (
            "action = \"reject\"\nstatus = 403\ntargets = [\"set:a\"]",
            "3: route[0].targets: action = \"reject\" has no targets; remove them".to_owned(),
        ),
    ] {
        let error = Config::parse(&format!("[[route]]\n{lines}")).expect_err(lines);
        let line = expected.split(':').next().and_then(|line| line.parse::<usize>().ok()).map(|line| line + 1);
        assert_eq!(error.line, line, "{lines}: {error}");
        assert_eq!(Some(error.to_string().as_str()), expected.split_once(": ").map(|(_, text)| text), "{lines}");
    }
    let error = Config::parse("[[trunk]]\nname = \"a\"\ntargets = [\"set:pstn\"]").expect_err("a trunk has none");
    assert!(
        error.to_string().ends_with("a set stands alone among a route's targets, such as targets = [\"set:pstn\"]")
    );
    let error = Config::parse("store.url = \"memory:\"\n[[route]]\ntargets = [\"sip:a\", \"set:pstn\"]");
    let error = error.expect_err("no database").to_string();
    assert!(error.starts_with("route[0].targets[1]: set:pstn is read from the database, but store.url is"), "{error}");
}

#[test]
fn a_set_round_trips() {
    let config = parse("[[route]]\ntargets = [\"set:pstn\", \"sip:192.0.2.1\"]");
    let value = serde_json::to_value(&config.routes[0].targets).expect("JSON");
    assert_eq!(value, serde_json::json!(["set:pstn", "sip:192.0.2.1"]));
}

#[test]
fn enabled_gateways_join_other_targets() {
    let sets = directory([
        set("pstn", &[("sip:192.0.2.2", 5, 3, true), ("sip:gw.example", 1, 0, true), ("sip:192.0.2.3", 0, 1, false)]),
        set("other", &[("sip:192.0.2.9", 0, 1, true)]),
    ]);
    let config = parse("[[route]]\ntargets = [\"set:pstn\"]");
    assert_eq!(config.route_warnings(sets.gateways()), Ok(Vec::new()));
    let Action::Proxy { targets, trunk: None, .. } = action(&config, &sets) else { panic!("a proxy") };
    assert_eq!(shown(&targets), [("sip:gw.example", 1, 0), ("sip:192.0.2.2", 5, 3)]);

    let mixed = parse(
        "[[route]]\naction = \"redirect\"\n\
         targets = [{ uri = \"sip:192.0.2.9\", priority = 9 }, \"set:pstn\", \"set:other\"]",
    );
    let Action::Redirect { targets } = action(&mixed, &sets) else { panic!("a redirection") };
    let expected = [("sip:192.0.2.9", 9, 1), ("sip:gw.example", 1, 0), ("sip:192.0.2.2", 5, 3)];
    assert_eq!(shown(&targets), expected, "what is listed twice is one target, as listed first");
}

#[test]
fn an_empty_set_is_out_of_service_with_a_warning() {
    let disabled = directory([set("pstn", &[("sip:192.0.2.1", 0, 1, false)])]);
    let config = parse("[[route]]\ntargets = [\"set:pstn\"]");
    for (known, expected) in [
        (
            Directory::empty(1),
            "route[0].targets[0]: the set pstn has no gateways: its calls get 500 with Retry-After; `strowger \
             gateway add pstn sip:HOST` adds one",
        ),
        (
            directory([set("pstm", &[("sip:192.0.2.1", 0, 1, true)])]),
            "route[0].targets[0]: the set pstn has no gateways: its calls get 500 with Retry-After; did you mean \
             set:pstm?",
        ),
        (
            disabled.clone(),
            "route[0].targets[0]: every gateway of the set pstn is disabled: its calls get 500 with Retry-After; \
             `strowger gateway enable pstn URI` enables one",
        ),
    ] {
        assert!(matches!(action(&config, &known), Action::OutOfService));
        assert_eq!(config.route_warnings(known.gateways()), Ok(vec![expected.to_owned()]));
    }
    let redirect = parse("[[route]]\naction = \"redirect\"\ntargets = [\"set:pstn\"]");
    assert!(matches!(action(&redirect, &disabled), Action::OutOfService), "not the user's contacts");
    let with_other = parse("[[route]]\ntargets = [\"set:pstn\", \"sip:192.0.2.9\"]");
    let Action::Proxy { targets, .. } = action(&with_other, &disabled) else { panic!("a proxy") };
    assert_eq!(shown(&targets), [("sip:192.0.2.9", 0, 1)]);
    assert!(with_other.route_warnings(disabled.gateways()).expect("sound")[0].contains("go to the other targets"));
    let contacts = parse("[[route]]\nmatch = { domain = \"localhost\" }");
    assert!(matches!(action(&contacts, &disabled), Action::Proxy { targets, .. } if targets.is_empty()));
}

#[test]
fn a_set_with_an_invalid_target_is_not_used() {
    let rows = [("sip:192.0.2.1", 0, 1, true), ("sip:192.0.2.2;transport=sctp", 1, 1, true)];
    let config = parse("[[route]]\ntargets = [\"set:pstn\"]");
    let sets = directory([set("pstn", &rows)]);
    assert!(matches!(action(&config, &sets), Action::OutOfService));
    let error = config.route_warnings(sets.gateways()).expect_err("no target");
    assert!(
        error.starts_with("a gateway of the set pstn is not a valid target: \"sip:192.0.2.2;transport=sctp\" asks"),
        "{error}"
    );
    assert!(error.ends_with("`strowger gateway rm pstn 'sip:192.0.2.2;transport=sctp'`"), "{error}");
    let unused = directory([set("other", &rows), set("pstn", &rows[..1])]);
    assert_eq!(config.route_warnings(unused.gateways()), Ok(Vec::new()), "nobody goes there");
}

#[test]
fn the_502_warning_appears_only_if_no_target_is_reachable() {
    let told = |text: &str, rows: &[(&str, u16, u16, bool)]| {
        let config = parse(&format!("server.listen = [\"udp:127.0.0.1:5060\"]\n{text}"));
        config.route_warnings(directory([set("pstn", rows)]).gateways()).expect("sound")
    };
    let (tcp, udp) = (("sip:192.0.2.1;transport=tcp", 0, 1, true), ("sip:192.0.2.2", 1, 1, true));
    for (text, rows, expected) in [
        ("[[route]]\ntargets = [\"set:pstn\"]", &[tcp][..], "requests to it get 502"),
        ("[[route]]\ntargets = [\"set:pstn\"]", &[tcp, udp], "it is never tried"),
        ("[[route]]\ntargets = [\"set:pstn\", \"sip:192.0.2.3\"]", &[tcp], "it is never tried"),
        ("[[route]]\ntargets = [\"set:pstn\", \"sip:192.0.2.3;transport=tcp\"]", &[udp], "it is never tried"),
        ("[[trunk]]\nname = \"a\"\ntargets = [\"sip:192.0.2.3;transport=tcp\"]", &[], "requests to it get 502"),
        (
            "[[trunk]]\nname = \"a\"\ntargets = [\"sip:192.0.2.3;transport=tcp\", \"sip:192.0.2.3\"]",
            &[],
            "it is never tried",
        ),
    ] {
        let warnings = told(text, rows);
        let [warning] = &warnings[..] else { panic!("{text}: {warnings:?}") };
        let expected =
            format!("needs TCP, but server.listen has no such listener: {expected}; add \"tcp:0.0.0.0:5060\"");
        assert!(warning.contains(&expected), "{text}: {warning}");
    }
}
