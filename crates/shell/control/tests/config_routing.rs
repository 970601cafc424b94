//! Trunks and routes in the configuration.

use std::net::IpAddr;
use std::time::Duration;

use strowger_control::config::Config;
use strowger_control::targets::TargetSets;
use strowger_directory::Directory;
use strowger_foundation::Transport;
use strowger_message::Uri;
use strowger_overload::Class;
use strowger_shard::{Action, Listeners, Snapshot, TargetAddress};

fn parse(text: &str) -> Config {
    Config::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

fn snapshot(config: &Config) -> Snapshot {
    config.snapshot(Listeners::new(Vec::new()), Directory::empty(1), &TargetSets::default())
}

#[test]
fn calls_are_recorded_when_a_cdr_file_is_set() {
    assert!(!snapshot(&parse("")).record_calls);
    assert!(snapshot(&parse("[cdr]\nfile = \"cdr.json\"\n")).record_calls);
}

const TRUNK: &str = "[[trunk]]\nname = \"carrier\"\ntargets = [\"sip:sip.carrier.example\"]\n";

//= rfc3261#10.2:sip-address
#[test]
fn each_trunk_error_is_reported() {
    for (lines, expected) in [
        ("expire = \"1h\"", r#"trunk[0].expire: unknown key "expire"; did you mean "expires"?"#),
        ("username = \"a\"", "trunk[0].username: the password is missing; add password_file, password_env or password"),
        ("password = \"hush\"", "trunk[0].password: the user name is missing; add username"),
        ("password = 12345", "trunk[0].password: a password is a text; write it in quotes"),
        (
            "username = \"a\"\npassword = \" hush\"",
            "trunk[0].password: this is not a valid password; write one line of text",
        ),
        (
            "username = \"a\"\npassword = \"hush\"\npassword_env = \"X\"",
            "trunk[0].password_env: password already gives the password; remove one",
        ),
        (
            "username = \"a\\nb\"\npassword = \"hush\"",
            r#"trunk[0].username: "a\nb" is not a valid user name; write it as given by the carrier"#,
        ),
        ("realm = \"x\"", "trunk[0].realm: it has no effect without username and password; add them, or remove it"),
        (
            "register = true",
            "trunk[0].register: the address of record is missing; add username, or from = \"sip:NUMBER@DOMAIN\"",
        ),
        (
            "register = true\nfrom = \"sip:carrier.example\"",
            r#"trunk[0].from: "sip:carrier.example" cannot be registered; write sip:NUMBER@DOMAIN"#,
        ),
        (
            "register = true\nfrom = \"tel:+4930123\"",
            r#"trunk[0].from: "tel:+4930123" is not a SIP URI; write sip:HOST or sip:HOST:PORT, such as sip:192.0.2.1:5060"#,
        ),
        (
            "from = \"sip:a@b\"",
            "trunk[0].from: it has no effect without registration; add register = true, or remove it",
        ),
        ("expires = \"5s\"", "trunk[0].expires: 5s is not from 1m to 30d; choose a value in this range"),
        (
            "expires = \"60.5s\"",
            "trunk[0].expires: 1m500ms is not a whole number of seconds, as SIP requires; round it",
        ),
        (
            "sources = [\"carrier.example\"]",
            "trunk[0].sources[0]: \"carrier.example\" is not an address or network; write one, such as 192.0.2.7 or 192.0.2.0/24",
        ),
        (
            "contact = \"a b\"\nregister = true",
            r#"trunk[0].contact: "a b" is not a user part of a SIP URI; write a number or a name, such as 4930123"#,
        ),
        ("password = hush", "this is not valid TOML: string values must be quoted, expected literal string"),
        (
            "[[trunk]]\nname = \"carrier\"\ntargets = [\"sip:a\"]",
            r#"trunk[1].name: "carrier" is the name of another trunk; choose another"#,
        ),
        (
            "[[trunk]]\nname = \"other\"",
            r#"trunk[1].targets: the list is empty; list the targets, such as ["sip:carrier.example"]"#,
        ),
        ("[[trunk]]", r#"trunk[1].name: "" is not a valid name; write letters and digits, such as name = "carrier""#),
        (
            "[[trunk]]\nname = \"b\"\ntargets = [{ uri = \"sip:a\", weigth = 3 }]",
            r#"trunk[1].targets[0].weigth: unknown key "weigth"; did you mean "weight"?"#,
        ),
        (
            "[[trunk]]\nname = \"b\"\ntargets = [\"sip:a\", \"sip:a\"]",
            "trunk[1].targets[1]: sip:a is listed twice; remove one (weight gives it a greater share)",
        ),
        (
            "[[trunk]]\nname = \"b\"\ntargets = [\"sip:a;transport=ws\"]",
            "trunk[1].targets[0]: \"sip:a;transport=ws\" asks for a transport that is not supported yet, only udp, tcp and tls are; leave it out",
        ),
    ] {
        let error = Config::parse(&format!("{TRUNK}{lines}")).expect_err(lines);
        assert!(error.line.is_some_and(|line| line > 3 || lines.contains("register")), "{lines}: {:?}", error.line);
        assert_eq!(error.to_string(), expected, "{lines}");
        assert!(!error.to_string().contains("hush") && !error.to_string().contains("12345"), "{lines}");
    }
}

#[test]
fn each_route_error_is_reported() {
    for (lines, expected) in [
        ("trunk = \"carier\"", r#"trunk: there is no trunk "carier"; did you mean "carrier"?"#),
        ("trunk = \"pstn\"", r#"trunk: there is no trunk "pstn"; add a [[trunk]] with name = "pstn""#),
        (
            "match = { source = \"trunk:pstn\" }",
            r#"match.source: there is no trunk "pstn"; add a [[trunk]] with name = "pstn""#,
        ),
        (
            "match = { source = \"trunk:carrier\" }",
            r#"match.source: the trunk "carrier" has no sources; add its addresses there"#,
        ),
        (
            "match = { source = [\"192.0.2.1\", \"here\"] }",
            r#"match.source[1]: "here" is not a source; write an address, a network or trunk:NAME, such as 192.0.2.0/24"#,
        ),
        ("match = { prefix = \"\" }", r#"match.prefix: "" is not a number prefix; write digits, such as +4930 or 0"#),
        (
            "match = { prefix = 49 }",
            "match.prefix: invalid type: integer `49`, expected the beginning of a number or a list of them, such as \"+49\" or \
             [\"+49\", \"0\"]",
        ),
        (
            "trunk = \"carrier\"\ntargets = [\"sip:192.0.2.1\"]",
            "targets: the trunk has its own targets; remove these, or trunk",
        ),
        (
            "trunk = \"carrier\"\nstateless = \"always\"",
            "stateless: a trunk needs state, to answer its challenges; remove it",
        ),
        ("action = \"redirect\"\ntrunk = \"carrier\"", "trunk: only action = \"proxy\" forwards; remove it"),
        ("action = \"reject\"\nstatus = 403\ntimeout = \"9s\"", "timeout: only action = \"proxy\" forwards; remove it"),
        ("reason = \"No\"", "reason: only action = \"reject\" has a reason; remove it"),
        (
            "action = \"reject\"\nstatus = 403\nreason = \"a\\r\\nb\"",
            r#"reason: "a\r\nb" is not one line of 1 to 256 bytes; shorten it"#,
        ),
        ("timeout = \"0s\"", "timeout: 0s is not from 1s to 30d; choose a value in this range"),
        ("rewrite = {}", "rewrite: it rewrites nothing; add strip, prefix or e164, or remove it"),
        (
            "rewrite = { prefix = \"tel\" }",
            r#"rewrite.prefix: "tel" is not a dialling prefix; write digits, such as 00 or +49"#,
        ),
        ("rewrite = { e164 = \"DE\" }", r#"rewrite.e164: "DE" is not a country's code; write its digits, such as 49"#),
        (
            "rewrite = { e164 = { country = \"49\", nationl_prefix = \"0\" } }",
            r#"rewrite.e164.nationl_prefix: unknown key "nationl_prefix"; did you mean "national_prefix"?"#,
        ),
        ("rewrite = { strip = 300 }", "rewrite.strip: invalid value: integer `300`, expected u8"),
        (
            "add_headers = { \"Via\" = \"x\" }",
            "add_headers.Via: Via is essential to the message and cannot be changed; remove it",
        ),
        (
            "add_headers = { X-Y = \"a\\r\\nVia: b\" }",
            r#"add_headers.X-Y: "a\r\nVia: b" is not one line of 1 to 256 bytes; shorten it"#,
        ),
        (
            "remove_headers = [\"X-A\", \"X B\"]",
            r#"remove_headers[1]: "X B" is not a header name; write one such as X-Account"#,
        ),
        (
            "remove_headers = [\"m\"]",
            "remove_headers[0]: m is essential to the message and cannot be changed; remove it",
        ),
        (
            "class = \"urgent\"",
            r#"class: unknown value "urgent"; known values are "emergency", "refresh", "trunk-call", "call", "contact", "other""#,
        ),
        ("class = \"emergancy\"", r#"class: unknown value "emergancy"; did you mean "emergency"?"#),
        (
            "class = 1",
            r#"class: a string in quotes is required; known values are "emergency", "refresh", "trunk-call", "call", "contact", "other""#,
        ),
    ] {
        let error = Config::parse(&format!("{TRUNK}[[route]]\n{lines}")).expect_err(lines);
        assert!(error.line.is_some_and(|line| line > 4), "{lines}: {:?}", error.line);
        assert_eq!(error.to_string(), format!("route[0].{expected}"), "{lines}");
    }
}

//= rfc5626#5.4:grace
#[test]
fn errors_in_other_sections_are_reported() {
    for (text, expected) in [
        ("[proxy]\nunrouted_status = 200", "2: proxy.unrouted_status: 200 is not 403, 404 or 603; choose one of them"),
        ("[proxy]\nmtu = 100", "2: proxy.mtu: 100 is not from 500 to 65000; choose a value in this range"),
        ("[tcp]\nper_source = 0", "2: tcp.per_source: 0 is not from 1 to 1000000; choose a value in this range"),
        (
            "[tcp]\nuser_timeout = \"0s\"",
            "2: tcp.user_timeout: 0s is not from 100ms to 30d; choose a value in this range",
        ),
        (
            "[tcp]\nidle = \"1m\"",
            "registrar.flow_timer: 2m is not shorter than tcp.idle, 1m, so silent connections would end first; lower it",
        ),
        (
            "[dns]\nservers = [\"ns.example.com\"]",
            "2: dns.servers[0]: \"ns.example.com\" is not a name server: write its address, such as 192.0.2.53 or [2001:db8::53]:53",
        ),
        ("[dns]\ntimeout = \"0s\"", "2: dns.timeout: 0s is not from 100ms to 30d; choose a value in this range"),
        (
            "[registrar]\nservice_route = [\"sip:edge.example.com\"]",
            "2: registrar.service_route[0]: \"sip:edge.example.com\" has no lr; write sip:edge.example.com;lr",
        ),
    ] {
        let error = Config::parse(text).expect_err(text);
        let line = error.line.map_or_else(String::new, |line| format!("{line}: "));
        assert_eq!(format!("{line}{error}"), expected, "{text}");
    }
}

const WHOLE: &str = r#"
    [[trunk]]
    name = "carrier"
    targets = ["sip:SIP.carrier.example", { uri = "sip:192.0.2.1:5070;transport=tcp", priority = 1, weight = 3 }]
    username = "acct 7"
    password = "hush"
    realm = "Carrier"
    register = true
    expires = "10m"
    sources = ["192.0.2.0/28", "2001:db8::/32"]
    [[trunk]]
    name = "office"
    targets = ["sip:me@198.51.100.1"]
    register = true
    registrar = "sip:me@registrar.example:5080;transport=tcp"
    from = "sip:+4930123@office.example"
    contact = "main"
    [[route]]
    match = { domain = "localhost", method = "INVITE", prefix = ["0", "+"], source = ["10.0.0.0/8", "trunk:carrier"] }
    trunk = "carrier"
    rewrite = { strip = 1, prefix = "0", e164 = { country = "+49", international_prefix = "011", plus = false } }
    add_headers = { X-Account = "12", "X-b" = "c d" }
    remove_headers = ["X-Internal"]
    timeout = "40s"
    [[route]]
    action = "reject"
    status = 403
    reason = "Not From Here"
"#;

//= rfc3261#10.2:no-userinfo
#[test]
fn trunks_reach_the_shards() {
    let snapshot = snapshot(&parse(WHOLE));
    let [carrier, office] = snapshot.trunks.as_slice() else { panic!("two trunks") };
    assert_eq!(&*carrier.name, "carrier");
    assert!(["192.0.2.9", "2001:db8::7"].iter().all(|ip| carrier.is_from(ip.parse().expect("an address"))));
    assert!(["192.0.2.16", "10.0.0.1"].iter().all(|ip| !carrier.is_from(ip.parse().expect("an address"))));
    let credentials = carrier.credentials.as_ref().expect("credentials");
    assert_eq!((&*credentials.username, credentials.realm.as_deref()), (&b"acct 7"[..], Some(&b"Carrier"[..])));
    assert_eq!(credentials.password, strowger_trunk::Secret::new(*b"hush"));
    let account = carrier.account.as_ref().expect("an account");
    assert_eq!((&*account.from, &*account.contact_user), (&b"sip:acct%207@SIP.carrier.example"[..], &b"acct%207"[..]));
    assert_eq!((&*account.registrar, account.expires.as_secs()), (&b"sip:SIP.carrier.example"[..], 600));
    let strowger_trunk::NextHop::Name(question) = &account.next_hop else { panic!("{account:?}") };
    assert_eq!((&question.host[..], question.port, question.transport), (&b"sip.carrier.example"[..], None, None));
    assert_eq!(office.credentials, None);
    let account = office.account.as_ref().expect("an account");
    assert_eq!((&*account.from, &*account.contact_user), (&b"sip:+4930123@office.example"[..], &b"main"[..]));
    assert_eq!(&*account.registrar, b"sip:registrar.example:5080;transport=tcp");
}

#[test]
fn routes_reach_the_shards() {
    let snapshot = snapshot(&parse(WHOLE));
    let [out, reject] = snapshot.routes.as_slice() else { panic!("two routes") };
    let takes = |uri: &str, source: &str| {
        let uri = Uri::parse(uri.as_bytes()).expect("a URI");
        out.matches.fits(b"localhost", b"INVITE", &uri, source.parse::<IpAddr>().expect("an address"))
    };
    assert!(takes("sip:030@localhost", "10.1.2.3") && takes("sip:+49@localhost", "192.0.2.9"));
    assert!(takes("tel:0-30;phone-context=x", "10.1.2.3"));
    assert!(!takes("sip:130@localhost", "10.1.2.3") && !takes("sip:030@localhost", "11.0.0.1"));
    let Action::Proxy { targets, trunk: Some(trunk), .. } = &out.action else { panic!("{out:?}") };
    assert_eq!(*trunk, strowger_trunk::Trunk::id_of("carrier"), "whatever other trunks there are");
    let shown: Vec<_> = targets.iter().map(|target| (target.priority, target.weight)).collect();
    assert_eq!(shown, [(0, 1), (1, 3)]);
    assert!(
        matches!(&targets[0].address, TargetAddress::Name(question) if question.host[..] == b"sip.carrier.example"[..])
    );
    assert!(matches!(targets[1].address, TargetAddress::Literal { transport: Some(Transport::Tcp), .. }));
    let mut number = Vec::new();
    let rewrite = out.rewrite.as_ref().expect("a rewriting");
    assert!(rewrite.apply(b"930123456", &mut number));
    assert_eq!(number, b"4930123456");
    let changes = out.changes.as_ref().expect("changes");
    let added: Vec<_> = changes.add.iter().map(|(name, value)| (&**name, &**value)).collect();
    assert_eq!(added, [(&b"X-Account"[..], &b"12"[..]), (b"X-b", b"c d")]);
    assert_eq!(changes.remove, [(*b"X-Internal").into()]);
    assert_eq!(out.ring_timeout, Some(Duration::from_secs(40)));
    let Action::Reject { status, reason } = &reject.action else { panic!("{reject:?}") };
    assert_eq!((status.code(), reason.as_deref()), (403, Some("Not From Here")));
    assert!(reject.changes.is_none() && reject.rewrite.is_none() && reject.ring_timeout.is_none());
}

#[test]
fn route_classes_reach_the_shards() {
    let route = |class: &str| format!("[[route]]\nclass = \"{class}\"\n");
    let text: String = Class::ALL.map(|class| route(class.as_str())).concat();
    let config = parse(&format!("{text}[[route]]\n"));
    let classes: Vec<_> = snapshot(&config).routes.iter().map(|route| route.class).collect();
    let expected: Vec<_> = Class::ALL.into_iter().map(Some).chain([None]).collect();
    assert_eq!(classes, expected, "each by its name, and none where none is given");
    assert_eq!(parse(&toml::to_string(&config).expect("TOML")), config);
}

#[test]
fn load_feedback_is_independent_of_overload_control() {
    for (lines, control, has_feedback) in [
        ("", true, true),
        ("control = false", false, true),
        ("feedback = false", true, false),
        ("control = false\nfeedback = false", false, false),
    ] {
        let config = parse(&format!("[overload]\n{lines}\n"));
        let found = (config.overload.control, snapshot(&config).proxy.overload_control);
        assert_eq!(found, (control, has_feedback), "{lines}");
    }
}

#[test]
fn passwords_are_never_shown() {
    let config = parse(WHOLE);
    let json = serde_json::to_string(&config).expect("JSON");
    for shown in
        [format!("{config:?}"), toml::to_string(&config).expect("TOML"), json, format!("{:?}", snapshot(&config))]
    {
        assert!(shown.contains("carrier") && !shown.contains("hush"), "{shown}");
    }
}

#[test]
fn shown_trunks_and_routes_parse_back() {
    let mut config = parse(&WHOLE.replace("password = ", "password_env = "));
    assert_eq!(parse(&toml::to_string(&config).expect("TOML")), config);
    config.trunks.clear();
    assert!(Config::parse(&toml::to_string(&config).expect("TOML")).is_err(), "a route names a trunk");
}

#[test]
fn a_password_is_read_from_its_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, secret) = (folder.path().join("strowger.toml"), folder.path().join("secret"));
    let trunk = format!("\n{TRUNK}username = \"a\"\npassword_file = {secret:?}\n");
    std::fs::write(&file, &trunk).expect("written");
    let error = Config::load_with_secrets(Some(&file)).expect_err("no secret").to_string();
    let place = format!("{}:6: trunk[0].password_file: {} cannot be read: ", file.display(), secret.display());
    assert!(error.starts_with(&place), "{error}");
    assert!(Config::load(Some(&file)).is_ok(), "commands that need no password run");
    for (content, fits) in [("hush\n", true), ("hush", true), ("hush\r\nmore\n", true), ("", false), ("\nhush", false)]
    {
        std::fs::write(&secret, content).expect("written");
        let read = Config::load_with_secrets(Some(&file));
        assert_eq!(read.is_ok(), fits, "{content:?}");
        assert!(Config::load_for_check(Some(&file)).is_ok() == fits);
        if let Ok((config, _)) = read {
            let trunks = snapshot(&config).trunks;
            let credentials = trunks[0].credentials.as_ref().expect("credentials");
            assert_eq!(credentials.password, strowger_trunk::Secret::new(*b"hush"));
        }
    }
    let variable = "STROWGER_TEST_NO_SUCH_VARIABLE";
    std::fs::write(&file, format!("{TRUNK}username = \"a\"\npassword_env = {variable:?}\n")).expect("written");
    let error = Config::load_with_secrets(Some(&file)).expect_err("no variable").to_string();
    let expected = "is not set in the server's environment; set it to the password";
    assert_eq!(error, format!("{}:5: trunk[0].password_env: {variable} {expected}", file.display()));
    assert!(Config::load_for_check(Some(&file)).is_ok(), "it may be set for the server only");
    std::fs::write(&file, format!("{TRUNK}username = \"a\"\npassword_env = \"CARGO_MANIFEST_DIR\"\n"))
        .expect("written");
    let (config, _) = Config::load_with_secrets(Some(&file)).expect("it is set for every test");
    assert!(snapshot(&config).trunks[0].credentials.is_some());
}
