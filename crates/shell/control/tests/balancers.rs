//! Balancers in the configuration, and the sets built from them.

use std::path::Path;
use std::time::{Duration, Instant};

use strowger_balancer::{Candidates, Key, MethodClass, Policy, Registry, TargetState, Weights};
use strowger_control::config::Config;
use strowger_control::dns::Server;
use strowger_control::targets::{Changes, Lists, ServiceNames, Sources, TargetError, TargetSet, TargetSets};
use strowger_directory::{Directory, DirectoryChange, Gateway, Gateways};
use strowger_foundation::{Timestamp, Transport};
use strowger_locate::LocateError;
use strowger_shard::{Action, Listeners, TargetAddress};

fn parse(text: &str) -> Config {
    Config::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

/// A configuration with a balancer of these lines and a route to it.
fn with(lines: &str) -> Config {
    parse(&format!("[[balancer]]\nname = \"pool\"\n{lines}\n[[route]]\nbalance = \"pool\"\n"))
}

fn pool(targets: &str) -> Config {
    with(&format!("targets = {targets}"))
}

/// Sources of targets besides the configuration.
#[derive(Default)]
struct TargetSources {
    gateways: Gateways,
    changes: Changes,
    services: ServiceNames,
    registry: Registry,
}

impl TargetSources {
    fn sets(&self, config: &Config) -> Result<TargetSets, TargetError> {
        let (lists, Self { gateways, changes, services, .. }) = (Lists::read(config), self);
        TargetSets::build(config, &Sources { gateways, lists: &lists, services, changes }, &self.registry)
    }

    fn warnings(&self, config: &Config) -> Vec<String> {
        let (lists, Self { gateways, changes, services, .. }) = (Lists::read(config), self);
        Sources { gateways, lists: &lists, services, changes }.warnings(config)
    }

    /// Returns URI, priority, weight, capacity and enabled flag of each member of the pool.
    fn members(&self, config: &Config) -> Vec<(String, u16, u16, Option<u32>, bool)> {
        let sets = self.sets(config).unwrap_or_else(|why| panic!("{why}"));
        let shown = |member: &strowger_balancer::Member| {
            let uri = String::from_utf8_lossy(member.target.uri()).into_owned();
            (uri, member.priority, member.weight, member.capacity, member.enabled)
        };
        sets.of("pool").map_or_else(Vec::new, |set| set.set().members().iter().map(shown).collect())
    }

    fn uris(&self, config: &Config) -> Vec<String> {
        self.members(config).into_iter().map(|(uri, ..)| uri).collect()
    }
}

#[test]
fn each_balancer_error_names_its_line() {
    for (lines, expected) in [
        ("polcy = \"hash\"", r#"3: balancer[0].polcy: unknown key "polcy"; did you mean "policy"?"#),
        ("policy = \"least-wrk\"", r#"3: balancer[0].policy: unknown value "least-wrk"; did you mean "least-work"?"#),
        ("key = \"callid\"", r#"3: balancer[0].key: unknown value "callid"; did you mean "call-id"?"#),
        (
            "policy = \"random\"\nkey = \"from\"",
            "4: balancer[0].key: random does not use it, only hash, fnv, bernstein, sha1, openser and range do; remove it, \
             or choose another policy",
        ),
        (
            "transaction_cost = \"2\"",
            "3: balancer[0].transaction_cost: hash does not use it, only least-work does; remove it, or choose another policy",
        ),
        (
            "candidates = \"two\"",
            "3: balancer[0].candidates: hash does not use it, only least-calls, least-transactions, least-work and \
             response-time do; remove it, or choose another policy",
        ),
        (
            "policy = \"least-work\"\ntransaction_cost = \"3\"",
            "4: balancer[0].transaction_cost: \"3\" is not a transaction cost; write \"1.75\", \"2\", \"adaptive\", or a table of methods, \
             such as { INVITE = 1.75, BYE = 1 }",
        ),
        (
            "policy = \"least-work\"\ntransaction_cost = { INVIT = 2 }",
            r#"4: balancer[0].transaction_cost: "INVIT" is not a method with a transaction cost; did you mean INVITE?"#,
        ),
        (
            "policy = \"least-work\"\ntransaction_cost = { INVITE = 0 }",
            "4: balancer[0].transaction_cost.INVITE: 0 is not from 0.001 to 65; choose a value in this range",
        ),
        (
            "probe = { intervall = \"5s\" }",
            r#"3: balancer[0].probe.intervall: unknown key "intervall"; did you mean "interval"?"#,
        ),
        (
            "probe = { timeout = \"6s\" }",
            "3: balancer[0].probe.timeout: 6s is longer than probe.interval, 5s; lower it",
        ),
        ("probe = { down = 0 }", "3: balancer[0].probe.down: 0 is not from 1 to 255; choose a value in this range"),
        (
            "probe = { accept = [] }",
            "3: balancer[0].probe.accept: the list is empty, so no response would be accepted; list some, such as [\"2xx\", \"404\"], or \
             omit it",
        ),
        (
            "probe = { accept = [\"ok\"] }",
            "3: balancer[0].probe.accept[0]: \"ok\" is not a final status; write a code, a class or a range, such as \"200\", \"4xx\" or \
             \"200-299\"",
        ),
        ("slow_start = \"31d\"", "3: balancer[0].slow_start: 31d is not from 0s to 30d; choose a value in this range"),
        (
            "failover_timeout = \"0s\"",
            "3: balancer[0].failover_timeout: 0s is not from 100ms to 30d; choose a value in this range",
        ),
        (
            "[[balancer]]\nname = \"pool\"\ntargets = [\"sip:b\"]",
            r#"4: balancer[1].name: "pool" is the name of another balancer; choose another"#,
        ),
        (
            "[[balancer]]\ntargets = [\"sip:b\"]",
            r#"3: balancer[1].name: "" is not a valid name; write up to 64 letters and digits, such as name = "pool""#,
        ),
    ] {
        let text = format!("[[balancer]]\nname = \"pool\"\n{lines}\n");
        // Other balancers have their targets appended.
        let text = if lines.starts_with('[') {
            text.replacen("\"pool\"\n", "\"pool\"\ntargets=[\"sip:a\"]\n", 1)
        } else {
            text + "targets = [\"sip:a\"]"
        };
        let error = Config::parse(&text).expect_err(lines);
        let more = usize::from(lines.starts_with('['));
        let (line, message) = expected.split_once(": ").expect("a line");
        assert_eq!(error.to_string(), message, "{lines}");
        assert_eq!(error.line.map(|at| (at - more).to_string()).as_deref(), Some(line), "{lines}");
    }
}

#[test]
fn each_target_error_names_its_line() {
    let twice = "is listed twice; remove one (weight gives it a greater share)";
    for (targets, expected) in [
        ("[]", "targets: the list is empty; list the targets, such as [\"sip:192.0.2.1\", \"sip:192.0.2.2\"]".to_owned()),
        (
            "[\"192.0.2.1\"]",
            "targets[0]: \"192.0.2.1\" is not a SIP URI; write sip:HOST or sip:HOST:PORT, such as sip:192.0.2.1:5060"
                .to_owned(),
        ),
        (
            "[\"sip:\"]",
            "targets[0]: \"sip:\" is not a SIP URI; write sip:HOST or sip:HOST:PORT, such as sip:192.0.2.1:5060".to_owned(),
        ),
        ("[\"sips:a;transport=udp\"]", "targets[0]: \"sips:a;transport=udp\" asks for UDP, which is never secure; leave the transport out".to_owned()),
        (
            "[\"sip:a\", { uri = \"sip:b\", weight = 0 }]",
            "targets[1].weight: a target with weight 0 would never get a call; choose 1 to 65535, or remove the target".to_owned(),
        ),
        (
            "[{ uri = \"sip:b\", weight = -1 }]",
            "targets[0].weight: invalid value: integer `-1`, expected a whole number from 0 to 65535".to_owned(),
        ),
        (
            "[{ uri = \"sip:b\", weight = 1.5 }]",
            "targets[0].weight: invalid type: floating point `1.5`, expected a whole number from 0 to 65535".to_owned(),
        ),
        (
            "[{ uri = \"sip:b\", weight = 70000 }]",
            "targets[0].weight: invalid value: integer `70000`, expected a whole number from 0 to 65535".to_owned(),
        ),
        (
            "[{ uri = \"sip:b\", capacity = 0 }]",
            "targets[0].capacity: 0 is not from 1 to 1000000 calls; omit it for no limit".to_owned(),
        ),
        (
            "[{ uri = \"sip:b\", wieght = 2 }]",
            "targets[0].wieght: unknown key \"wieght\"; did you mean \"weight\"?".to_owned(),
        ),
        ("[\"sip:192.0.2.1\", \"sip:192.0.2.1:5060\"]", format!("targets[1]: sip:192.0.2.1:5060 {twice}")),
        ("[\"set:a\", \"sip:x\", \"set:a\"]", format!("targets[2]: set:a {twice}")),
        ("[\"list:/x#1\", \"list:/x#2\", \"list:/x#1\"]", format!("targets[2]: list:/x#1 {twice}")),
        ("[\"srv:a.example\", \"srv:A.example.\"]", format!("targets[1]: srv:a.example {twice}")),
        (
            "[\"list:/etc/kamailio/dispatcher.list\"]",
            "targets[0]: \"list:/etc/kamailio/dispatcher.list\" has no set of the file; write list:FILE#SETID, such as \
             list:/etc/kamailio/dispatcher.list#1"
                .to_owned(),
        ),
        ("[\"dns:a.example:5060\", \"dns:A.example.:5060\"]", format!("targets[1]: dns:a.example:5060 {twice}")),
        (
            "[\"dns:192.0.2.1\"]",
            "targets[0]: \"dns:192.0.2.1\" is an address, which is written as sip:ADDRESS; write dns:HOST or \
             dns:HOST:PORT, such as dns:sip.default.svc.cluster.local:5060"
                .to_owned(),
        ),
        (
            "[\"srv:192.0.2.1\"]",
            "targets[0]: \"srv:192.0.2.1\" is an address, which has no SRV records; write srv: and a domain, such as \
             srv:example.com or srv:_sip._tcp.example.com"
                .to_owned(),
        ),
    ] {
        let text = format!("[[balancer]]\nname = \"pool\"\ntargets = {targets}");
        let error = Config::parse(&text).expect_err(targets);
        assert_eq!(error.to_string(), format!("balancer[0].{expected}"), "{targets}");
        assert_eq!(error.line, Some(3), "{targets}");
    }
    let error = Config::parse("store.url = \"memory:\"\n[[balancer]]\nname = \"pool\"\ntargets = [\"set:pstn\"]");
    let error = error.expect_err("no database").to_string();
    assert!(error.starts_with("balancer[0].targets[0]: set:pstn is read from the database, but store.url is memory:"));
}

#[test]
fn all_balancer_errors_are_reported_at_once() {
    let text = "[[balancer]]\nname = \"pool\"\nkey = \"to\"\npolicy = \"random\"\nslow_start = \"31d\"\ntargets = [\n\
                { uri = \"sip:a\", weight = 0 },\n{ uri = \"sip:b\", capacity = 0 },\n\"sip:c\", \"sip:c\"]\n";
    let told = Config::parse(text).expect_err("five mistakes").to_string();
    let keys: Vec<&str> = told.lines().filter_map(|line| line.split(": ").next()).collect();
    let expected = ["key", "slow_start", "targets[0].weight", "targets[1].capacity", "targets[3]"]
        .map(|key| format!("balancer[0].{key}"));
    assert_eq!(keys, expected, "{told}");
}

#[test]
fn each_error_in_a_balancer_route_is_reported() {
    for (lines, policy, expected) in [
        ("balance = \"pol\"", "hash", r#"balance: there is no balancer "pol"; did you mean "pool"?"#),
        (
            "balance = \"pstn\"",
            "hash",
            r#"balance: there is no balancer "pstn"; add a [[balancer]] with name = "pstn""#,
        ),
        (
            "balance = \"pool\"\ntargets = [\"sip:192.0.2.1\"]",
            "hash",
            "targets: the balancer has its own targets; remove these, or balance",
        ),
        ("balance = \"pool\"\naction = \"redirect\"", "hash", "balance: only action = \"proxy\" forwards; remove it"),
        (
            "balance = \"pool\"\nstateless = \"always\"",
            "least-calls",
            "stateless: the balancer \"pool\" uses least-calls, and a stateless proxy would send a retransmission to \
             another target; remove it, or choose a policy such as hash there",
        ),
        (
            "balance = \"pool\"\nstateless = \"always\"",
            "round-robin",
            "stateless: the balancer \"pool\" uses round-robin, and a stateless proxy would send a retransmission to \
             another target; remove it, or choose a policy such as hash there",
        ),
    ] {
        let text =
            format!("[[balancer]]\nname = \"pool\"\npolicy = \"{policy}\"\ntargets = [\"sip:a\"]\n[[route]]\n{lines}");
        let error = Config::parse(&text).expect_err(lines);
        assert_eq!(error.to_string(), format!("route[0].{expected}"), "{lines}");
        assert!(error.line.is_some_and(|line| line > 5), "{lines}: {:?}", error.line);
    }
    let trunk =
        "[[trunk]]\nname = \"c\"\ntargets = [\"sip:b\"]\n[[balancer]]\nname = \"pool\"\ntargets = [\"sip:a\"]\n";
    let error = Config::parse(&format!("{trunk}[[route]]\nbalance = \"pool\"\ntrunk = \"c\"")).expect_err("two ways");
    assert_eq!(error.to_string(), "route[0].trunk: the balancer has its own targets; remove this, or balance");
    let stateless = "policy = \"hash\"\ntargets = [\"sip:a\"]\n[[route]]\nstateless = \"always\"\nbalance = \"pool\"";
    with(stateless);
}

#[test]
fn defaults_are_as_documented() {
    let config = pool("[\"sip:192.0.2.1\"]");
    let sets = TargetSources::default().sets(&config).expect("sound");
    let set = sets.of("pool").expect("a set").set();
    let told = set.config();
    assert_eq!((told.policy, told.key, told.candidates), (Policy::Hash, Key::CallId, Candidates::All));
    assert_eq!((told.slow_start, told.failover_timeout()), (Duration::from_secs(30), Duration::from_secs(2)));
    assert!(told.probe.is_none());
    let ranges = with("policy = \"range\"\ntargets = [\"sip:a\"]");
    assert_eq!(
        TargetSources::default().sets(&ranges).expect("sound").of("pool").expect("a set").set().config().key,
        Key::User
    );
    let probed = with("probe = true\ntargets = [\"sip:a\"]");
    let sets = TargetSources::default().sets(&probed).expect("sound");
    let probe = sets.of("pool").expect("a set").set().config().probe.clone().expect("asked");
    assert_eq!(
        (probe.interval, probe.timeout, probe.down, probe.up),
        (Duration::from_secs(5), Duration::from_secs(1), 2, 2)
    );
    let good = [200, 302, 404, 405, 407, 483, 501, 603].iter().all(|status| probe.accepts(*status));
    assert!(good && ![500, 502, 503, 504].iter().any(|status| probe.accepts(*status)));
}

#[test]
fn all_settings_reach_the_shards() {
    let config = with(
        "policy = \"least-work\"\ntransaction_cost = { INVITE = 2.5, bye = 1, \"*\" = 0.5 }\ncandidates = \"two\"\nslow_start = \"10s\"\n\
         failover_timeout = \"1s\"\nprobe = { interval = \"2s\", timeout = \"500ms\", down = 3, up = 1, accept = [\"200\", \"4xx\"] }\n\
         targets = [\"sip:192.0.2.1\", { uri = \"sip:b.example:5070;transport=tcp\", weight = 3, priority = 1, capacity = 500 }]",
    );
    let around = TargetSources::default();
    let sets = around.sets(&config).expect("sound");
    let snapshot = config.snapshot(Listeners::new(Vec::new()), Directory::empty(1), &sets);
    assert!(!snapshot.has_shared_keys);
    let Action::Proxy { targets, balance: Some(set), trunk: None, .. } = &snapshot.routes[0].action else { panic!() };
    let told = set.config();
    assert_eq!((&*told.name, told.policy, told.candidates), ("pool", Policy::LeastWork, Candidates::Two));
    let Weights::Fixed(weights) = told.weights else { panic!("{:?}", told.weights) };
    let cost =
        [MethodClass::Invite, MethodClass::Bye, MethodClass::Other, MethodClass::Info].map(|class| weights.of(class));
    assert_eq!(cost, [2500, 1000, 500, 1000]);
    let probe = told.probe.as_ref().expect("asked");
    assert_eq!(
        (probe.interval, probe.timeout, probe.down, probe.up),
        (Duration::from_secs(2), Duration::from_millis(500), 3, 1)
    );
    assert!(probe.accepts(200) && probe.accepts(499) && !probe.accepts(202));
    let uri = |at: usize| String::from_utf8_lossy(&targets[at].uri).into_owned();
    assert_eq!((uri(0), uri(1)), ("sip:192.0.2.1".to_owned(), "sip:b.example:5070;transport=tcp".to_owned()));
    assert!(
        matches!(&targets[0].address, TargetAddress::Literal { .. })
            && matches!(&targets[1].address, TargetAddress::Name(_))
    );
    let member = &set.members()[1];
    assert_eq!((member.priority, member.weight, member.capacity, member.enabled), (1, 3, Some(500), true));
    let shared = parse("server.key_file = \"/etc/strowger.key\"");
    assert!(shared.snapshot(Listeners::new(Vec::new()), Directory::empty(1), &TargetSets::default()).has_shared_keys);
}

#[test]
fn each_dns_address_of_a_host_is_a_target() {
    let config = pool("[\"dns:pods.example:5070\", \"sip:192.0.2.9\"]");
    let (mut around, now) = (TargetSources::default(), Instant::now());
    around.services.follow_config(&config, now);
    let name = around.services.due(now).remove(0);
    assert_eq!(around.uris(&config), ["sip:192.0.2.9"], "the others are not known yet");
    let at =
        |host: &str| Server { host: host.to_owned(), port: 5070, transport: Transport::Udp, priority: 0, weight: 1 };
    let ttl = Duration::from_secs(5);
    around.services.handle_answer(now, &name, Ok(vec![at("192.0.2.2"), at("192.0.2.1"), at("[2001:db8::1]")]), ttl);
    let targets = ["sip:192.0.2.1:5070", "sip:192.0.2.2:5070", "sip:[2001:db8::1]:5070", "sip:192.0.2.9"];
    assert_eq!(around.uris(&config), targets);
    let origins = around.sets(&config).expect("sound");
    let origins: Vec<String> = origins.iter().flat_map(TargetSet::origins).map(ToString::to_string).collect();
    assert_eq!(origins, ["dns:pods.example:5070", "dns:pods.example:5070", "dns:pods.example:5070", "configuration"]);
    // A server that is gone leaves nothing behind. An answer without servers is ignored.
    around.services.handle_answer(now, &name, Ok(vec![at("192.0.2.2")]), ttl);
    assert_eq!(around.uris(&config), ["sip:192.0.2.2:5070", "sip:192.0.2.9"]);
    around.services.handle_answer(now, &name, Err(LocateError::NoSuchName), ttl);
    assert_eq!(around.uris(&config), ["sip:192.0.2.2:5070", "sip:192.0.2.9"]);
}

#[test]
fn a_balancer_config_round_trips() {
    for lines in [
        "targets = [\"sip:a\"]",
        "policy = \"least-work\"\ntransaction_cost = { INVITE = 1.75 }\nprobe = true\ntargets = [\"set:a\", \"list:/x#1\", \"srv:b.example\", \"dns:c.example:5070\"]",
        "policy = \"range\"\nkey = \"from\"\nprobe = { accept = [\"2xx\"] }\ntargets = [{ uri = \"sip:a\", capacity = 5 }]",
        "policy = \"response-time\"\ncandidates = \"two\"\ntargets = [{ uri = \"sip:a\", weight = 5, priority = 2 }]",
    ] {
        let config = with(lines);
        assert_eq!(parse(&toml::to_string(&config).expect("TOML")), config, "{lines}");
    }
}

fn gateway(uri: &str, priority: u16, capacity: Option<u32>, enabled: bool) -> Gateway {
    Gateway { uri: uri.as_bytes().into(), priority, weight: 2, capacity, enabled }
}

fn in_database(gateways: &[Gateway]) -> Gateways {
    let change = DirectoryChange::PutGateways { set: (*b"pstn").into(), gateways: gateways.to_vec() };
    Directory::empty(1).with_changes([change]).gateways().clone()
}

#[test]
fn database_gateways_become_targets() {
    let config = pool("[\"set:pstn\", { uri = \"sip:192.0.2.1\", weight = 9 }, \"sip:192.0.2.9\"]");
    let gateways =
        in_database(&[gateway("sip:192.0.2.1", 0, Some(30), true), gateway("sip:192.0.2.2", 1, None, false)]);
    let mut around = TargetSources { gateways, ..TargetSources::default() };
    let expected = [
        ("sip:192.0.2.1".to_owned(), 0, 2, Some(30), true),
        ("sip:192.0.2.2".to_owned(), 1, 2, None, false),
        ("sip:192.0.2.9".to_owned(), 0, 1, None, true),
    ];
    assert_eq!(around.members(&config), expected, "what is listed first goes");
    around.gateways = in_database(&[gateway("sip:192.0.2.1;transport=sctp", 0, None, true)]);
    let refused = around.sets(&config).expect_err("no such transport");
    assert_eq!(refused.key, "balancer[0].targets[0]");
    assert!(
        refused.message.ends_with("remove it with `strowger gateway rm pstn 'sip:192.0.2.1;transport=sctp'`"),
        "{refused}"
    );

    let only = pool("[\"set:pstn\"]");
    around.gateways = Gateways::default();
    let sets = around.sets(&only).expect("an empty set is none that is wrong");
    assert!(matches!(
        only.snapshot(Listeners::new(Vec::new()), Directory::empty(1), &sets).routes[0].action,
        Action::NoTarget
    ));
    let empty = sets.empty(&only);
    assert_eq!(
        empty.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [
            "balancer[0].targets: set:pstn has no targets: calls would get 503; `strowger gateway add pstn sip:HOST` adds one"
        ]
    );
    around.gateways = in_database(&[gateway("sip:192.0.2.2", 1, None, false)]);
    assert!(around.sets(&only).expect("sound").empty(&only).is_empty());
    assert!(around.warnings(&only)[0].contains("every target is disabled"), "{:?}", around.warnings(&only));
}

/// A dispatcher list in a temporary folder, with the configuration text for its set 1.
fn list(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("dispatcher.list");
    std::fs::write(&file, text).expect("written");
    let source = format!("[\"list:{}#1\"]", file.display());
    (folder, source)
}

const DISPATCHER: &str = "\
# gateways
1 sip:192.0.2.1:5060 0 10 duid=a;maxload=30;weight=50
1 sip:192.0.2.2:5060 0 5 duid=b;socket=udp:192.0.2.9:5060
1 sip:192.0.2.3:5060 4
2 sip:192.0.2.4:5060
";

#[test]
fn dispatcher_lists_give_targets() {
    let (_folder, source) = list(DISPATCHER);
    let around = TargetSources::default();
    let member = |last: u8, priority, weight, capacity, enabled| {
        (format!("sip:192.0.2.{last}:5060"), priority, weight, capacity, enabled)
    };
    let alike = [member(1, 0, 50, Some(30), true), member(2, 0, 1, None, true), member(3, 0, 1, None, false)];
    assert_eq!(around.members(&pool(&source)), alike, "priorities are for the policy of that name");
    let by_priority = with(&format!("policy = \"priority\"\ntargets = {source}"));
    let ranked = [member(1, 0, 50, Some(30), true), member(2, 5, 1, None, true), member(3, 10, 1, None, false)];
    assert_eq!(around.members(&by_priority), ranked, "the highest of theirs is the first");
    let warnings = around.warnings(&pool(&source));
    assert!(warnings.iter().any(|text| text.contains("dispatcher.list:3: socket is ignored")), "{warnings:?}");
}

#[test]
fn an_invalid_dispatcher_list_is_rejected_with_the_line() {
    let around = TargetSources::default();
    for (text, expected) in [
        (
            "1 sip:192.0.2.1\n\n1 sip:192.0.2.2;transport=ws\n",
            ":3: \"sip:192.0.2.2;transport=ws\" asks for a transport that is not supported yet, only udp, tcp and tls are; leave it out",
        ),
        ("1 sip:192.0.2.1 0 0 weight=0\n", ":1: \"weight=0\" is not a valid share"),
        ("1 sip:192.0.2.1\n1 192.0.2.1\n", ":2: sip:192.0.2.1 is already in line 1; remove one"),
        ("2 sip:192.0.2.1\n3 sip:192.0.2.1\n", ": there is no destination of set 1 in it; sets: there are 2, 3"),
    ] {
        let (_folder, source) = list(text);
        let refused = around.sets(&pool(&source)).expect_err(text);
        assert!(refused.message.contains(&format!("dispatcher.list{expected}")), "{refused}");
        assert_eq!(refused.key, "balancer[0].targets[0]");
        let (sets, refused) = {
            let config = pool(&source);
            let (lists, gateways) = (Lists::read(&config), Gateways::default());
            let TargetSources { services, changes, registry, .. } = TargetSources::default();
            TargetSets::build_all(
                &config,
                &Sources { gateways: &gateways, lists: &lists, services: &services, changes: &changes },
                &registry,
            )
        };
        assert!(sets.of("pool").is_none() && refused.len() == 1, "never a half of it");
    }
    let (_folder, source) = list("1 sip:192.0.2.1:5060\n1 sip:192.0.2.1\n");
    let refused = around.sets(&pool(&source)).expect_err("one place");
    assert_eq!(
        refused.to_string(),
        "balancer[0].targets[0]: sip:192.0.2.1 is the same destination as sip:192.0.2.1:5060; remove one, or write both alike"
    );
    let refused = around.sets(&pool("[\"list:/no/such/file#1\"]")).expect_err("there is none");
    assert!(refused.message.starts_with("/no/such/file cannot be read: "), "{refused}");
}

#[test]
fn targets_keep_their_counts_over_a_reload() {
    let around = TargetSources::default();
    let before = around.sets(&pool("[\"sip:192.0.2.1\", \"sip:192.0.2.2\"]")).expect("sound");
    let first = before.of("pool").expect("a set").set().members()[0].target.clone();
    let (call_guard, now) = (first.begin_call(), Timestamp::from_millis(1));
    first.drain();
    let after = around.sets(&pool("[\"sip:192.0.2.3\", { uri = \"sip:192.0.2.1\", weight = 5 }]")).expect("sound");
    let set = after.of("pool").expect("a set").set();
    let again = set.view(1, now).expect("the second");
    assert_eq!(
        (again.uri.as_str(), again.calls, again.weight, again.state),
        ("sip:192.0.2.1", 1, 5, TargetState::Draining)
    );
    drop((before, after, first));
    // No set has the target, but a call is in progress.
    let without = around.sets(&pool("[\"sip:192.0.2.3\"]")).expect("sound");
    assert_eq!(around.registry.all().len(), 2);
    let back = around.sets(&pool("[\"sip:192.0.2.1\"]")).expect("sound");
    assert_eq!(back.of("pool").expect("a set").set().members()[0].target.calls(), 1);
    drop((call_guard, without));
    assert_eq!(back.of("pool").expect("a set").set().members()[0].target.calls(), 0);
    drop(back);
    assert!(around.registry.all().is_empty());
}

#[test]
fn an_operator_adds_and_removes_targets() {
    let config = pool("[\"sip:192.0.2.1\", \"sip:192.0.2.2\"]");
    let mut around = TargetSources::default();
    let share = |uri: &str| strowger_control::config::values::WeightedTarget::of(uri.parse().expect("a target"));
    around.changes.add("pool", share("sip:192.0.2.3"));
    around.changes.remove("pool", "sip:192.0.2.1");
    around.changes.add("other", share("sip:192.0.2.4"));
    assert_eq!(around.uris(&config), ["sip:192.0.2.2", "sip:192.0.2.3"]);
    assert_eq!(around.changes.count(), 3);
    around.changes.add("pool", share("sip:192.0.2.1"));
    around.changes.remove("pool", "sip:192.0.2.3");
    assert_eq!(around.uris(&config), ["sip:192.0.2.1", "sip:192.0.2.2"], "it is as before");
}

#[test]
fn a_balancer_without_a_route_gives_a_warning() {
    let config = parse("[[balancer]]\nname = \"pool\"\ntargets = [\"sip:192.0.2.1\"]");
    assert_eq!(
        TargetSources::default().warnings(&config),
        ["balancer[0]: no route uses pool; add one with balance = \"pool\""]
    );
    let by_tcp = parse(
        "server.listen = [\"udp:192.0.2.9:5060\"]\n[[balancer]]\nname = \"pool\"\n\
         targets = [\"sip:192.0.2.1\", \"sip:192.0.2.2;transport=tcp\"]\n[[route]]\nbalance = \"pool\"",
    );
    let warnings = TargetSources::default().warnings(&by_tcp);
    assert!(
        warnings[0].contains("needs TCP, but server.listen has no such listener: it is never tried"),
        "{warnings:?}"
    );
}

#[test]
fn ignored_weights_give_a_warning() {
    let look = |policy: &str, weights: [u16; 2]| {
        let [one, two] = weights;
        let targets =
            format!("[{{ uri = \"sip:192.0.2.1\", weight = {one} }}, {{ uri = \"sip:192.0.2.2\", weight = {two} }}]");
        TargetSources::default().warnings(&with(&format!("policy = \"{policy}\"\ntargets = {targets}")))
    };
    assert_eq!(
        look("round-robin", [1, 2]),
        [
            "balancer[0].targets: round-robin ignores weights, but targets have different ones, such as 1 and 2; choose \"weighted\", \
          which uses them"
        ]
    );
    assert!(look("openser", [5, 2])[0].ends_with("as 5 and 2; choose \"hash\", which uses them"));
    assert!(look("priority", [5, 2])[0].ends_with("omit them, or choose another policy"));
    for (policy, weights) in [("round-robin", [2, 2]), ("weighted", [1, 2]), ("least-work", [1, 2]), ("hash", [1, 2])] {
        assert_eq!(look(policy, weights), [""; 0], "{policy}");
    }
    let ranks = "{ uri = \"sip:192.0.2.1\", priority = 1 }, { uri = \"sip:192.0.2.2\", priority = 2, weight = 3 }";
    let ranked = with(&format!("policy = \"round-robin\"\ntargets = [{ranks}]"));
    assert_eq!(TargetSources::default().warnings(&ranked), [""; 0], "they never stand beside each other");
}

#[test]
fn a_relative_list_path_is_shown_as_written() {
    let refused = TargetSources::default().sets(&pool("[\"list:no.list#1\"]")).expect_err("there is none");
    assert!(refused.message.starts_with(&format!("{} cannot be read", Path::new("no.list").display())));
}
