//! Loading and checking of the configuration.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use strowger_control::config::Config;
use strowger_control::config::values::{Affinity, StoreUrl};
use strowger_control::dns::SendableTransports;
use strowger_control::targets::TargetSets;
use strowger_directory::Directory;
use strowger_foundation::Transport;
use strowger_message::{Status, Uri};
use strowger_registrar::{Durability, Policy};
use strowger_shard::{Action, Listeners, TargetAddress};

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/operating");

fn read(name: &str) -> String {
    std::fs::read_to_string(Path::new(DOCS).join(name)).expect("it is published")
}

fn parse(text: &str) -> Config {
    Config::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

/// A client can find a running server while the file is being edited.
#[test]
fn the_socket_path_is_read_despite_other_errors() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("strowger.toml");
    let sound = "[server]\ndata = \"/var/lib/lb\"\ndomains = [\"example.com\"]\n";
    for (more, expected) in [
        ("[[balancer]]\nname = \"pool\"\ntargets = [{ uri = \"sip:a\", weight = 0 }]\n", "/var/lib/lb/control.sock"),
        ("[control]\nsocket = \"/run/lb\"\n[auth\n", "/run/lb"),
        ("[control]\nsocket = \"/run/lb\"\nhalf a line", "/run/lb"),
        ("frobnicate = 1\nlisen = [\"udp:0.0.0.0:5060\"]\n", "/var/lib/lb/control.sock"),
        ("listen = [\"udp:0.0.0.0\"]\ndatta = \"/tmp\"\n", "/var/lib/lb/control.sock"),
        ("datta = \"/tmp\"\n[control]\nsocket = \"/run/lb\"\n", "/run/lb"),
        ("[proxy]\nfrobnicate = 1\n[[route]]\nbalance = 7\n", "/var/lib/lb/control.sock"),
    ] {
        std::fs::write(&file, format!("{sound}{more}")).expect("written");
        let fault = Config::load(Some(&file)).expect_err(more);
        let (config, told) = Config::load_leniently(Some(&file)).expect("it can be read");
        assert_eq!((config.control_socket().as_path(), told), (Path::new(expected), Some(fault)), "{more}");
        assert_eq!(config.server.domains[0].0, "example.com", "{more}");
    }
    // If unreadable text may name the socket, no server is contacted: it could be the wrong one.
    for unknown in [
        "[server]\nlisten = [\n\"udp:1\",\n\"udp:2\"\ndata = \"/var/lib/lb2\"\n",
        "[server]\ndata = \"/var/lib/lb2\n",
        "[server\ndata = \"/var/lib/lb2\"\n",
        "[server]\ndata = \"/var/lib/lb2\"\nthis is not a line\n[control]\nsocket = \"/run/lb\"\n",
        "[control]\nsocket = 7\n",
        "[control]\nsoket = \"/run/lb\"\n",
        "[server]\ndata = [\n",
        "[server]\ndatta = \"/var/lib/lb2\"\n",
        "[server]\ndata = 7\n",
    ] {
        std::fs::write(&file, unknown).expect("written");
        let fault = Config::load(Some(&file)).expect_err(unknown);
        assert_eq!(Config::load_leniently(Some(&file)), Err(fault), "{unknown}");
    }
    std::fs::write(&file, sound).expect("written");
    assert_eq!(Config::load_leniently(Some(&file)).map(|(_, told)| told), Ok(None));
    assert!(Config::load_leniently(Some(&folder.path().join("none.toml"))).is_err());
}

#[test]
fn each_error_gives_line_key_and_hint() {
    for (text, expected) in [
        ("[server]\nlisen = []", r#"2: server.lisen: unknown key "lisen"; did you mean "listen"?"#),
        ("[sever]", r#"1: sever: unknown key "sever"; did you mean "server"?"#),
        ("\n[control]\nzzz = 1", r#"3: control.zzz: unknown key "zzz"; known values are "socket""#),
        (
            "[server]\nlisten = []",
            r#"2: server.listen: the list is empty; give an address, such as "udp:0.0.0.0:5060""#,
        ),
        (
            "[server]\nlisten = [\n  \"udp:127.0.0.1:5060\",\n  \"sctp:0.0.0.0:5061\",\n]",
            "4: server.listen[1]: \"sctp\" is not a transport; write udp, tcp, tls, ws or wss, then :ADDRESS:PORT, such as \
             udp:0.0.0.0:5060",
        ),
        (
            "server.listen = [\"192.0.2.1\"]",
            "1: server.listen[0]: \"192.0.2.1\" names no transport and address; write udp, tcp, tls, ws or \
             wss, then :ADDRESS:PORT, such as udp:0.0.0.0:5060",
        ),
        ("server.listen = [\"tcp:[::1]\"]", r#"1: server.listen[0]: "tcp:[::1]" has no port; write tcp:[::1]:5060"#),
        (
            "server.listen = [\"udp:0.0.0.0\"]",
            r#"1: server.listen[0]: "udp:0.0.0.0" has no port; write udp:0.0.0.0:5060"#,
        ),
        (
            "server.listen = [\"udp:sip.example.com:5060\"]",
            "1: server.listen[0]: \"sip.example.com:5060\" is not a literal address with a port; write one, such as \
             192.0.2.1:5060 or [2001:db8::1]:5060",
        ),
        (
            "server.listen = [\"udp:127.0.0.1:1\", \"udp:127.0.0.1:1\"]",
            "1: server.listen[1]: udp:127.0.0.1:1 is listed twice; remove one",
        ),
        (
            "[media]\nwhen = \"nat\"",
            "2: media.when: no engine is given in media.engines; give one, such as \"udp:192.0.2.50:2223\"",
        ),
        (
            "[media]\nengines = [\"tcp:192.0.2.50:2223\"]",
            "2: media.engines[0]: \"tcp:192.0.2.50:2223\" is not an engine; write udp:ADDRESS:PORT, such as \
             udp:192.0.2.50:2223",
        ),
        (
            "[media]\nengines = [\"udp:192.0.2.50:1\", \"udp:192.0.2.50:1\"]",
            "2: media.engines[1]: udp:192.0.2.50:1 is listed twice; remove one",
        ),
        ("[media]\ntimeout = \"11s\"", "2: media.timeout: 11s is longer than 10s; shorten it"),
        (
            "[trace.hep]\nsample = 0.5",
            "1: trace.hep.to: the section has no collector; give its address, such as \"udp:192.0.2.60:9060\"",
        ),
        (
            "[trace.hep]\nto = \"tls:homer:9061\"",
            "2: trace.hep.to: \"tls:homer:9061\" is not supported: run a collector on this machine that forwards over TLS; \
             write udp:HOST:PORT or tcp:HOST:PORT, such as udp:192.0.2.60:9060",
        ),
        (
            "[trace.hep]\nto = \"udp:homer:9060\"\nsample = 10",
            "3: trace.hep.sample: 10 is not a share from 0 to 1; write 0.1 for every tenth call",
        ),
        (
            "[trace.hep]\nto = \"udp:homer:9060\"\nauth_key = \"a\"\nauth_key_file = \"b\"",
            "4: trace.hep.auth_key_file: auth_key is also given; remove one of them",
        ),
        (
            "[trace.otlp]\nto = \"https://tempo\"",
            "2: trace.otlp.to: \"https://tempo\" is not supported: run a collector on this machine, which sends over TLS; \
             write a URL such as \"http://127.0.0.1:4318\"",
        ),
        (
            "[trace.otlp]\nto = \"http://tempo\"\nheaders = { Host = \"a\" }",
            "3: trace.otlp.headers: Host is set by the server itself; remove it",
        ),
        (
            "[trace.otlp]\nto = \"http://tempo\"\nheaders = { Authorization = \"se\\ncret\" }",
            "3: trace.otlp.headers: \"Authorization\" is not a header field with one line of 1 to 4096 ASCII characters; \
             correct it",
        ),
        (
            "[server]\ndomains = [\"sip:example.com\"]",
            "2: server.domains[0]: \"sip:example.com\" is not a domain; write a name or an address without scheme and port, \
             such as example.com",
        ),
        (
            "[server]\nspin = \"often\"",
            "2: server.spin: \"often\" is not a busy-polling time; write a duration up to 1ms, such as 10us, 0s for never, or always",
        ),
        (
            "[server]\nsegmentation = true",
            r#"2: server.segmentation: a string in quotes is required; known values are "never", "auto", "always""#,
        ),
        (
            "[store]\nmode = 1",
            r#"2: store.mode: a string in quotes is required; known values are "write-through", "write-behind", "memory""#,
        ),
        (
            "[[route]]\naction = false",
            r#"2: route[0].action: a string in quotes is required; known values are "proxy", "redirect", "reject""#,
        ),
        (
            "[server]\nspin = \"2ms\"",
            "2: server.spin: 2ms is more than 1ms; lower it, or write 0s for never, or always",
        ),
        (
            "[server]\naffinity = \"some\"",
            "2: server.affinity: \"some\" is not an affinity; write \"none\", \"auto\" or the cores of the workers, such as [2, 3]",
        ),
        (
            "[server]\naffinity = [1, 2, 1]",
            "2: server.affinity[2]: 1 is listed twice or above 1023; correct the list, or write \"auto\"",
        ),
        ("[server]\nworkers = 2\nmin_workers = 3", "3: server.min_workers: 3 is more than server.workers, 2; lower it"),
        ("[server]\nmin_workers = 0", "2: server.min_workers: 0 is not from 1 to 256; omit it for 1"),
        ("[server]\nworkers = 0", "2: server.workers: 0 is not from 1 to 256; omit it for one per core"),
        (
            "[server]\nworkers = -1",
            "2: server.workers: invalid value: integer `-1`, expected a whole number from 0 to 65535",
        ),
        (
            "[store]\nurl = \"mysql://root:hidden@db/x\"",
            "2: store.url: mysql: is not supported yet; write sqlite:PATH or memory:",
        ),
        (
            "[store]\nmode = \"write-trough\"",
            r#"2: store.mode: unknown value "write-trough"; did you mean "write-through"?"#,
        ),
        (
            "[store]\nmode = \"write-behind\"\nurl = \"memory:\"",
            "2: store.mode: write-behind needs a file, but store.url is memory:; give one there, such as sqlite:data/strowger.db, \
             or write mode = \"memory\"",
        ),
        (
            "[registrar]\n\nexpires = { default = \"1h\", min = \"2m\", max = 7200 }",
            "3: registrar.expires.max: invalid type: integer `7200`, expected a duration with its unit in quotes, such as \"30s\"",
        ),
        (
            "[registrar.expires]\nmin = \"90\"",
            "2: registrar.expires.min: \"90\" is not a duration: the unit is missing; write a number and a unit, such as 30s, \
             500ms or 1h",
        ),
        (
            "[registrar]\nexpires = { min = \"3h\" }",
            "2: registrar.expires.min: 3h is longer than registrar.expires.max, 2h; lower it",
        ),
        (
            "[registrar]\nexpires = { default = \"10s\" }",
            "2: registrar.expires.default: 10s is not from 1m to 2h (min and max); choose a value in this range",
        ),
        ("[registrar]\nnat = \"alwys\"", r#"2: registrar.nat: unknown value "alwys"; did you mean "always"?"#),
        (
            "[registrar]\nnat = \"yes\"",
            r#"2: registrar.nat: unknown value "yes"; known values are "auto", "always", "never""#,
        ),
        (
            "[registrar]\nmax_contacts = 33",
            "2: registrar.max_contacts: 33 is not from 1 to 32; choose a value in this range",
        ),
        (
            "[auth]\nalgorithms = [\"SHA-1\"]",
            "2: auth.algorithms[0]: \"SHA-1\" is not a digest algorithm; write MD5, SHA-256 or SHA-512-256",
        ),
        (
            "[auth]\nrequire = [\"INVITE\", \"ACK\"]",
            "2: auth.require[1]: ACK cannot be challenged (RFC 3261 §22.1); remove it",
        ),
        (
            "[auth]\ntrusted = [\"10.0.0.0/33\"]",
            "2: auth.trusted[0]: \"10.0.0.0/33\" is not an address or network; write one, such as 192.0.2.7 or 192.0.2.0/24",
        ),
        (
            "[proxy]\nring_timeout = \"0s\"",
            "2: proxy.ring_timeout: 0s is not from 1s to 30d; choose a value in this range",
        ),
        ("[timers]\nt1 = \"5s\"", "2: timers.t1: 5s is longer than timers.t2, 4s; lower it"),
        (
            "[[route]]\n[[route]]\naction = \"reject\"",
            "3: route[1].action: reject needs a status; add one, such as status = 403",
        ),
        ("[[route]]\nstatus = 403", "2: route[0].status: only action = \"reject\" has a status; remove it"),
        (
            "[[route]]\naction = \"reject\"\nstatus = 200",
            "3: route[0].status: 200 is not from 300 to 699; choose a value in this range, such as 403",
        ),
        (
            "[[route]]\ntargets = [\"sip:192.0.2.1\", \"192.0.2.1\"]",
            "2: route[0].targets[1]: \"192.0.2.1\" is not a SIP URI; write sip:HOST or sip:HOST:PORT, such as sip:192.0.2.1:5060",
        ),
        (
            "[[route]]\ntargets = [\"sip:192.0.2.1;transport=ws\"]",
            "2: route[0].targets[0]: \"sip:192.0.2.1;transport=ws\" asks for a transport that is not supported yet, only \
             udp, tcp and tls are; leave it out",
        ),
        (
            "[server]\nlisten = [\"tls:0.0.0.0:5061\"]\n[tls]\nca = \"ca.pem\"",
            "3: tls.certificates: server.listen has a tls address, but there is no certificate; name one: certificates = \
             [{ certificate = \"FILE.pem\", key = \"KEY.pem\" }]",
        ),
        (
            "[server]\nlisten = [\"wss:0.0.0.0:443\"]\n[websocket]\norigins = []",
            "tls.certificates: server.listen has a wss address, but there is no certificate; name one: certificates = \
             [{ certificate = \"FILE.pem\", key = \"KEY.pem\" }]",
        ),
        (
            "[server]\nlisten = [\"ws:127.0.0.1:8080\"]",
            "websocket.origins: server.listen has a ws address, but it is not said which web pages may connect; name \
             their origins, such as [\"https://phone.example.com\"]; [] lets in programs only, [\"*\"] every page",
        ),
        (
            "[websocket]\norigins = [\"https://a.example\", \"phone.example.com\"]",
            "2: websocket.origins[1]: origin \"phone.example.com\" has no scheme: write it as https://phone.example.com",
        ),
        (
            "[tcp]\nproxy_protocol_from = [\"10.0.0.0/8\", \"0.0.0.0/0\"]",
            "2: tcp.proxy_protocol_from[1]: everybody could claim any address; name only the balancers in front of this \
             server",
        ),
        ("[websocket]\nping = \"10ms\"", "2: websocket.ping: 10ms is not from 1s to 30d; choose a value in this range"),
        (
            "[tls]\nclient_certificates = \"optional\"",
            "1: tls.ca: clients are asked for certificates, but any authority of the system could sign them; name the file \
             of those you trust",
        ),
        (
            "[[route]]\nmatch = { domain = \"*.\" }",
            "2: route[0].match.domain: \"*.\" is not a pattern of domains; write example.com, *.example.com, or * for any",
        ),
        (
            "[cluster]\nmember = 1",
            "1: cluster.store: is missing; give an engine, such as \"redis://192.0.2.10:6379\", or the other members in cluster.peers",
        ),
        (
            "[cluster]\nmember = 1\nstore = \"redis://a:1\"\npeers = [\"192.0.2.2:5064\"]",
            "4: cluster.peers: cluster.store is set too; remove one of the two",
        ),
        (
            "[cluster]\nmember = 1\npeers = [\"192.0.2.2:5064\"]",
            "1: cluster.listen: is missing; give the address on which this member listens for the others, such as \"192.0.2.1:5064\"",
        ),
        (
            "[cluster]\nmember = 1\npeers = [\"192.0.2.2:5064\"]\nlisten = \"0.0.0.0:5064\"",
            "4: cluster.listen: 0.0.0.0:5064 cannot be reached by others; give an address of this machine, such as 192.0.2.1:5064",
        ),
        (
            "[cluster]\nmember = 1\npeers = [\"192.0.2.1:5064\"]\nlisten = \"192.0.2.1:5064\"",
            "3: cluster.peers: lists only this member; add the others",
        ),
        (
            "[cluster]\nmember = 1\npeers = [\"192.0.2.2:5064\"]\nlisten = \"192.0.2.1:5064\"
durability = \"engine\"",
            "5: cluster.durability: with cluster.peers there is no engine; remove it, or write \"disk\"",
        ),
        (
            "watch = { server = \"192.0.2.53\", zone = \"example.com\", key_file = \"k\", record = [] }",
            "1: watch.record: the list is empty; add a [[watch.record]] with name, target and address",
        ),
        (
            "watch = { server = \"192.0.2.53\", zone = \"example.com\", key_file = \"k\", record = [{ name = \"_sip._udp.example.net\", \
             target = \"s1.example.net\", address = \"192.0.2.1\" }] }",
            "1: watch.record[0].name: _sip._udp.example.net is not in the zone example.com; correct one of them",
        ),
        (
            "watch = { server = \"192.0.2.53\", zone = \"example.com\", key_file = \"k\", record = [{ name = \"_sip._udp.example.com\", \
             address = \"192.0.2.1\" }] }",
            "1: watch.record[0].target: is missing, but an SRV record needs it; give its host, such as s1.example.com",
        ),
        (
            "watch = { server = \"192.0.2.53\", zone = \"example.com\", key_file = \"k\", record = [{ name = \"_sip._udp.example.com\", \
             target = \"s1.example.com\" }] }",
            "1: watch.record[0].address: is missing; set it, or the probed address in probe",
        ),
        (
            "watch = { server = \"192.0.2.53\", zone = \"example.com\", key_file = \"k\", record = [{ name = \"example.com\", address = \
             \"192.0.2.1\" }, { name = \"EXAMPLE.com.\", address = \"192.0.2.1\" }] }",
            "1: watch.record[1].name: the same server is listed twice under this name; remove one",
        ),
        ("[log]\nlevel = \"warning\"", r#"2: log.level: unknown value "warning"; did you mean "warn"?"#),
        ("\n[server", "2: this is not valid TOML: unclosed table, expected `]`"),
        ("a = 1\na = 2", "2: this is not valid TOML: duplicate key"),
    ] {
        let error = Config::parse(text).expect_err(text);
        let line = error.line.map_or_else(String::new, |line| format!("{line}: "));
        assert_eq!(format!("{line}{error}"), expected, "{text}");
    }
}

#[test]
fn errors_name_the_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("bad.toml");
    std::fs::write(&file, "[log]\nformat = 1\n").expect("written");
    let error = Config::load(Some(&file)).expect_err("a number is not a format").to_string();
    assert!(error.starts_with(&format!("{}:2: log.format: ", file.display())), "{error}");
    let missing = folder.path().join("missing.toml");
    let error = Config::load(Some(&missing)).expect_err("no file").to_string();
    assert_eq!(error, format!("{}: the file does not exist; give an existing one with -c", missing.display()));
    std::fs::write(&file, b"\xff\xfe").expect("written");
    assert!(
        Config::load(Some(&file))
            .expect_err("no text")
            .to_string()
            .ends_with("this is not valid TOML: it is not UTF-8")
    );
}

#[test]
fn the_example_file_equals_the_defaults() {
    assert_eq!(parse(&read("strowger.example.toml")), Config::default());
    assert_eq!(parse(""), Config::default());
}

#[test]
fn commented_settings_in_the_example_are_valid() {
    let uncommented = |line: &str| match line.strip_prefix("# ") {
        Some(rest)
            if rest.starts_with('[') || rest.split_once(" = ").is_some_and(|(key, _)| !key.trim().contains(' ')) =>
        {
            rest.to_owned()
        }
        _ => line.to_owned(),
    };
    let text: Vec<String> = read("strowger.example.toml").lines().map(uncommented).collect();
    let config = parse(&text.join("\n"));
    assert_eq!((config.trunks.len(), config.balancers.len(), config.routes.len()), (1, 1, 4));
    assert_eq!(config.key_file(), Config::default().key_file());
    let cluster = config.cluster.as_ref().expect("the example has one");
    assert_eq!(
        (cluster.member, cluster.durability(), cluster.replicas),
        (1, strowger_control::config::Durability::Engine, 0)
    );
    let kamailio = config.kamailio.as_ref().expect("the example has one");
    assert_eq!(kamailio.database.to_string(), "mysql://strowger@192.0.2.10:3306/kamailio", "no password is shown");
    let shown = (kamailio.flavor, kamailio.follow.len(), &*kamailio.set_prefix, kamailio.any_version);
    let usual = "database = \"sqlite:x\"";
    let usual = parse(&format!("[kamailio]\n{usual}")).kamailio.expect("it is there");
    assert_eq!(
        shown,
        (usual.flavor, usual.follow.len(), &*usual.set_prefix, usual.any_version),
        "it shows the default"
    );
    let watch = config.watch.as_ref().expect("the example has one");
    assert_eq!(watch.probe, strowger_control::config::Probe::default(), "the example shows the default");
    assert_eq!(watch.records[0].probed_at(), watch.records[0].probe, "the example shows the default");
    let probe = config.balancers[0].probe.0.as_ref();
    assert_eq!(probe, Some(&strowger_control::config::Probe::default()), "the example shows the default");
    assert_eq!(Some(config.store_url()), config.store.url, "the example shows the default");
    assert_eq!(config.store_url(), Config::default().store_url());
    assert_eq!(config.control_socket(), Config::default().control_socket());
    assert_eq!(config.store.mode, Some(config.store_mode()), "the example shows the default");
    assert_eq!(config.store_mode(), Config::default().store_mode());
}

#[test]
fn the_published_schema_is_up_to_date() {
    let path = Path::new(DOCS).join("strowger.schema.json");
    if std::env::var_os("STROWGER_BLESS").is_some() {
        std::fs::write(&path, Config::schema()).expect("written");
    }
    assert!(read("strowger.schema.json") == Config::schema(), "run `strowger check --schema > {}`", path.display());
}

#[test]
fn the_reference_names_every_key() {
    let reference = read("configuration.md");
    let schema: Value = serde_json::from_str(&Config::schema()).expect("JSON");
    let definitions = schema["$defs"].as_object().expect("definitions");
    for (name, definition) in definitions {
        for key in definition["properties"].as_object().into_iter().flatten().map(|(key, _)| key) {
            let is_table = matches!(key.as_str(), "expires" | "match" | "rewrite");
            let found = [format!("| `{key}` |"), format!(".{key}` |")].iter().any(|row| reference.contains(row));
            assert!(is_table || found, "configuration.md has no row for {key} of {name}");
        }
    }
}

#[test]
fn a_wildcard_becomes_every_address_of_its_family() {
    let local: Vec<IpAddr> =
        ["127.0.0.1", "192.0.2.5", "::1"].iter().map(|ip| ip.parse().expect("an address")).collect();
    let of = |listen: &str| {
        let addresses = parse(&format!("server.listen = {listen}")).addresses(&local);
        addresses.iter().map(|(transport, address)| format!("{transport}:{address}")).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(of(r#"["udp:0.0.0.0:5060"]"#), "UDP:127.0.0.1:5060 UDP:192.0.2.5:5060");
    assert_eq!(of(r#"["udp:[::]:5060"]"#), "UDP:[::1]:5060");
    assert_eq!(of(r#"["udp:127.0.0.1:5060", "udp:0.0.0.0:5060"]"#), "UDP:127.0.0.1:5060 UDP:192.0.2.5:5060");
    assert_eq!(
        of(r#"["tcp:127.0.0.1:5060", "udp:0.0.0.0:5060"]"#),
        "TCP:127.0.0.1:5060 UDP:127.0.0.1:5060 UDP:192.0.2.5:5060"
    );
    assert_eq!(
        of(r#"["udp:127.0.0.1:5060", "udp:0.0.0.0:5070"]"#),
        "UDP:127.0.0.1:5060 UDP:127.0.0.1:5070 UDP:192.0.2.5:5070"
    );
}

//= rfc3261#18.2.1:default-ports
#[test]
fn the_default_is_port_5060_over_udp_and_tcp() {
    let local = ["192.0.2.5".parse().expect("an address")];
    let addresses = Config::default().addresses(&local);
    let text: Vec<_> = addresses.iter().map(|(transport, address)| format!("{transport}:{address}")).collect();
    assert_eq!(text, ["UDP:192.0.2.5:5060", "TCP:192.0.2.5:5060"]);
}

#[test]
fn domains_are_lower_cased_and_default_to_localhost() {
    let domains = |config: Config| {
        config.snapshot(Listeners::new(Vec::new()), Directory::empty(1), &TargetSets::default()).domains
    };
    assert_eq!(domains(Config::default()), [(*b"localhost").into()]);
    assert_eq!(domains(parse("server.domains = [\"Example.COM.\"]")), [(*b"example.com").into()]);
}

#[test]
fn all_settings_reach_the_shards() {
    let config = parse(
        r#"
        [registrar]
        expires = { default = "10m", min = "2m", max = "20m" }
        max_contacts = 3
        nat = "always"
        keepalive = "options"
        keepalive_interval = "15s"
        gruu = false
        flow_timer = "1m"
        service_route = ["sip:edge.example.com;lr"]
        [auth]
        realm = "Example"
        algorithms = ["SHA-256", "md5"]
        require = ["register"]
        trusted = ["192.0.2.0/24", "::1"]
        nonce_age = "1m"
        qop = "auth,auth-int"
        [proxy]
        ring_timeout = "90s"
        fork_timeout = "10s"
        failover_timeout = "2s"
        avoid_for = "0s"
        recurse = true
        mtu = 1400
        record_route = false
        outbound = true
        unrouted_status = 603
        [dns]
        servers = ["192.0.2.53", "[2001:db8::53]:5353"]
        timeout = "1s"
        cache = false
        serve_stale = "1h"
        [timers]
        t1 = "100ms"
        t2 = "1s"
        t4 = "2s"
        [[route]]
        match = { domain = "*.Example.com", method = "invite" }
        stateless = "when-possible"
        targets = ["sip:192.0.2.9", "sip:[2001:db8::1]:5080;lr;transport=TCP"]
        [[route]]
        match = { method = ["MESSAGE", "INFO"] }
        action = "redirect"
        [[route]]
        action = "reject"
        status = 603
        "#,
    );
    let snapshot = config.snapshot(Listeners::new(Vec::new()), Directory::empty(1), &TargetSets::default());
    let registrar = &snapshot.registrar;
    assert_eq!(
        [registrar.expires_default, registrar.expires_min, registrar.expires_max].map(|expires| expires.as_secs()),
        [600, 120, 1200]
    );
    assert_eq!((registrar.max_contacts, registrar.keep_alive_interval.as_secs()), (3, 15));
    assert_eq!(registrar.nat, strowger_registrar::Nat::Always);
    assert_eq!(registrar.keep_alive, strowger_registrar::KeepAlive::Options);
    let auth = &snapshot.auth;
    assert_eq!(auth.realm.as_deref(), Some(&b"Example"[..]));
    assert_eq!(auth.algorithms, [strowger_auth::Algorithm::Sha256, strowger_auth::Algorithm::Md5]);
    assert!(auth.requires(b"REGISTER") && !auth.requires(b"INVITE"));
    assert!(["192.0.2.77", "::1"].iter().all(|ip| auth.trusts(ip.parse().expect("an address"))));
    assert!(["192.0.3.1", "::2"].iter().all(|ip| !auth.trusts(ip.parse().expect("an address"))));
    assert_eq!((auth.nonce_age.as_secs(), auth.qop), (60, strowger_auth::Qop::AuthOrAuthInt));
    assert_eq!((registrar.gruu, registrar.flow_timer.as_secs()), (false, 60));
    assert_eq!(registrar.service_route, [(*b"<sip:edge.example.com;lr>").into()]);
    let proxy = &snapshot.proxy;
    let seconds =
        [proxy.ring_timeout, proxy.fork_timeout, proxy.failover_timeout, proxy.avoid_for].map(|t| t.as_secs());
    assert_eq!(seconds, [90, 10, 2, 0]);
    assert_eq!((proxy.recurse, proxy.mtu, proxy.record_route, proxy.outbound), (true, 1400, false, true));
    assert_eq!(snapshot.unrouted_status.code(), 603);
    let dns = config.dns_config(SendableTransports::default());
    let servers: Vec<String> = dns.servers.iter().map(ToString::to_string).collect();
    assert_eq!((servers.join(" "), dns.timeout.as_secs()), ("192.0.2.53:53 [2001:db8::53]:5353".to_owned(), 1));
    let cache = config.cache_policy();
    assert_eq!((cache.enabled, cache.serve_stale.as_secs()), (false, 3600));
    assert_eq!(snapshot.timing.timeout(), Duration::from_millis(6400));
    let [proxy, redirect, reject] = snapshot.routes.as_slice() else { panic!("three routes") };
    let takes = |route: &strowger_shard::Route, domain: &[u8], method: &[u8]| {
        let uri = Uri::parse(b"sip:bob@example.com").expect("a URI");
        route.matches.fits(domain, method, &uri, IpAddr::from([192, 0, 2, 1]))
    };
    assert!(takes(proxy, b"a.example.com", b"INVITE") && !takes(proxy, b"example.com", b"INVITE"));
    let Action::Proxy { targets, stateless, trunk: None, balance: None } = &proxy.action else { panic!("{proxy:?}") };
    assert_eq!(*stateless, strowger_proxy::Stateless::WhenPossible);
    let addresses = targets.iter().map(|target| match &target.address {
        TargetAddress::Literal { address, transport } => (address.to_string(), *transport),
        TargetAddress::Name(question) => panic!("{question:?}"),
    });
    let tcp = Some(Transport::Tcp);
    let expected = [("192.0.2.9:5060".to_owned(), None), ("[2001:db8::1]:5080".to_owned(), tcp)];
    assert_eq!(addresses.collect::<Vec<_>>(), expected);
    assert!(takes(redirect, b"x", b"INFO") && !takes(redirect, b"x", b"INVITE"));
    assert!(matches!(&redirect.action, Action::Redirect { targets } if targets.is_empty()));
    assert!(matches!(reject.action, Action::Reject { status, reason: None } if status.code() == 603));
}

#[test]
fn a_reload_keeps_the_health_of_media_engines() {
    let config = |engines: &str, more: &str| parse(&format!("[media]\nengines = {engines}\nwhen = \"nat\"\n{more}"));
    assert!(Config::default().media_policy(None).is_none());
    let before = config("[\"udp:192.0.2.50:2223\"]", "").media_policy(None).expect("a policy");
    let defaults = strowger_media::MediaPolicy::default();
    assert_eq!((before.timeout, before.probe_interval), (defaults.timeout, defaults.probe_interval));
    before.engines.iter().for_each(|engine| assert!(engine.handle_silence().is_some()));
    let more = "on_failure = \"forward\"\ntimeout = \"2s\"\nprobe_interval = \"1s\"";
    let after = config("[\"udp:[2001:db8::1]:2223\", \"udp:192.0.2.50:2223\"]", more);
    let after = after.media_policy(Some(&before)).expect("a policy");
    let out: Vec<_> = after.engines.iter().map(|engine| engine.is_out()).collect();
    assert_eq!(out, [false, true]);
    assert_eq!((after.when, after.on_failure), (strowger_media::When::Nat, strowger_media::FailurePolicy::Forward));
    assert_eq!((after.timeout, after.probe_interval), (Duration::from_secs(2), Duration::from_secs(1)));
}

#[test]
fn defaults_match_the_core() {
    let snapshot = Config::default().snapshot(Listeners::new(Vec::new()), Directory::empty(1), &TargetSets::default());
    assert_eq!(format!("{:?}", snapshot.auth), format!("{:?}", strowger_auth::Policy::default()));
    // The core stores nothing itself.
    let durable = Policy { durability: Durability::WriteThrough, ..Policy::default() };
    assert_eq!(format!("{:?}", snapshot.registrar), format!("{durable:?}"));
    assert_eq!(format!("{:?}", snapshot.proxy), format!("{:?}", strowger_proxy::Policy::default()));
    assert_eq!(snapshot.timing, strowger_transaction::Timing::default());
    assert_eq!(snapshot.unrouted_status, Status::NOT_FOUND);
    assert_eq!(Config::default().cache_policy(), strowger_locate::CachePolicy::default());
}

#[test]
fn a_shown_config_parses_back() {
    let config =
        parse("[[route]]\nmatch = { method = \"INVITE\" }\ntargets = [\"sip:192.0.2.1\"]\n[timers]\nt1 = \"133.4ms\"");
    assert_eq!(parse(&toml::to_string(&config).expect("TOML")), config);
}

#[test]
fn secrets_of_collectors_are_read_from_files_and_never_shown() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, secret) = (folder.path().join("strowger.toml"), folder.path().join("secret"));
    let text = format!(
        "[trace.hep]\nto = \"udp:homer:9060\"\nauth_key_file = {secret:?}\n[trace.otlp]\nto = \"http://tempo\"\n\
         headers = {{ Authorization = \"Bearer hush\" }}\n"
    );
    std::fs::write(&file, &text).expect("written");
    let error = Config::load_with_secrets(Some(&file)).expect_err("no file").to_string();
    assert!(error.contains(":3: trace.hep.auth_key_file: ") && error.contains("cannot be read"), "{error}");
    std::fs::write(&secret, "hush\n").expect("written");
    let (config, _) = Config::load_with_secrets(Some(&file)).expect("valid");
    assert_eq!(
        config.trace.hep.auth_key.as_ref().map(strowger_control::config::values::Password::expose),
        Some("hush")
    );
    let shown = format!("{:?} {}", config.trace, toml::to_string(&config).expect("TOML"));
    assert!(!shown.contains("hush"), "{shown}");
    let old = parse(&text);
    assert_eq!(old.trace.otlp.headers["Authorization"].expose(), "Bearer hush");
}

#[test]
fn registrations_are_durable_unless_disabled_or_in_memory() {
    let durability = |text: &str| {
        let config = parse(text);
        let snapshot = config.snapshot(Listeners::new(Vec::new()), Directory::empty(1), &TargetSets::default());
        (config.store_mode().as_str(), snapshot.registrar.durability)
    };
    assert_eq!(durability(""), ("write-through", Durability::WriteThrough));
    assert_eq!(durability("store.mode = \"write-through\""), ("write-through", Durability::WriteThrough));
    assert_eq!(durability("store.mode = \"write-behind\""), ("write-behind", Durability::WriteBehind));
    assert_eq!(durability("store.mode = \"memory\""), ("memory", Durability::Memory));
    assert_eq!(durability("store.url = \"memory:\""), ("memory", Durability::Memory));
    assert_eq!(durability("store = { url = \"memory:\", mode = \"memory\" }"), ("memory", Durability::Memory));
}

#[test]
fn files_follow_the_data_folder() {
    let config = parse("server.data = \"/var/lib/strowger\"");
    assert_eq!(config.store_url(), StoreUrl::Sqlite("/var/lib/strowger/strowger.db".into()));
    assert_eq!(config.control_socket(), Path::new("/var/lib/strowger/control.sock"));
    assert_eq!(config.journal_folder(), Path::new("/var/lib/strowger/journal"));
    assert_eq!(parse("store.url = \"memory:\"").store_url(), StoreUrl::Memory);
    assert_eq!(Config::default().workers(6), 6);
    assert_eq!((Config::default().min_workers(6), parse("server.min_workers = 9").min_workers(6)), (1, 6));
    let affinity = |text: &str| parse(text).server.affinity;
    assert_eq!(affinity(""), Affinity::None);
    assert_eq!(affinity("server.affinity = \"auto\""), Affinity::Auto);
    assert_eq!(affinity("server.affinity = [3, 1]"), Affinity::Cores(vec![3, 1]));
    assert_eq!(parse("server.workers = 2").workers(6), 2);
}

#[test]
fn cores_beyond_the_last_worker_are_not_checked() {
    let told = |text: &str| parse(text).machine_warnings(4, &[0, 1, 2, 3]);
    let found = told("server.workers = 1\nserver.affinity = [0, 99]");
    let [(key, what)] = &found[..] else { panic!("{found:?}") };
    assert_eq!(key, "server.affinity");
    assert!(what.starts_with("2 cores for 1 worker: the extra cores are unused"), "{what}");
    let found = told("server.workers = 2\nserver.affinity = [0, 99]");
    assert_eq!(found.iter().map(|(key, _)| &**key).collect::<Vec<_>>(), ["server.affinity[1]"]);
}

#[test]
fn web_pages_stay_reachable_without_record_route() {
    let policy = |text: &str| {
        let config = parse(&format!("[proxy]\nrecord_route = false\n{text}"));
        let snapshot = config.snapshot(Listeners::new(Vec::new()), Directory::empty(1), &TargetSets::default());
        (snapshot.proxy.record_route, snapshot.proxy.only_where_needed)
    };
    assert!(!policy("").0);
    let with_web_sockets = "[server]\nlisten = [\"ws:127.0.0.1:8080\"]\n[websocket]\norigins = []\n";
    assert_eq!(policy(with_web_sockets), (true, true));
}
