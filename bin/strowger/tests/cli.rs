//! Commands without a server.

mod common;

use std::net::{Ipv4Addr, UdpSocket};

use common::Folder;
use serde_json::json;

#[test]
fn users_are_added_listed_changed_and_removed() {
    let folder = Folder::new("");
    let added = folder.run(&["user", "add", "sip:Alice@Example.COM", "--password", "one"]).ok();
    assert_eq!(added, "Alice@example.com added (realm example.com)\n");
    for short in ["carol", "dave@127.0.0.1"] {
        let added = folder.run(&["user", "add", short, "--password", "one"]).ok();
        let name = short.split('@').next().unwrap_or(short);
        assert_eq!(added, format!("{name}@localhost added (realm localhost)\n"));
        folder.run(&["user", "rm", short]).ok();
    }
    let piped = folder.run_with(&["user", "add", "bob@example.com"], "secret of bob\n").ok();
    assert_eq!(piped, "bob@example.com added (realm example.com)\n");
    assert_eq!(
        folder.run(&["user", "add", "bob@example.com", "--password", "two"]).refused(1),
        "bob@example.com already exists; `strowger user passwd` changes the password"
    );
    assert_eq!(folder.run(&["user", "disable", "bob@example.com"]).ok(), "bob@example.com disabled\n");
    let listed = folder.run(&["user", "list"]).ok();
    let rows: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().take(3).collect()).collect();
    assert_eq!(
        rows,
        [
            ["USER", "REALM", "STATE"],
            ["Alice@example.com", "example.com", "enabled"],
            ["bob@example.com", "example.com", "disabled"],
        ]
    );
    assert_eq!(folder.run(&["user", "enable", "bob@example.com"]).ok(), "bob@example.com enabled\n");
    let changed = folder.run(&["user", "passwd", "bob@example.com", "--password", "x", "--json"]).json();
    assert_eq!(changed, json!({ "result": "changed", "aor": "bob@example.com", "realm": "example.com" }));
    assert_eq!(folder.run(&["user", "rm", "Alice@example.com"]).ok(), "Alice@example.com removed\n");
    let listed = folder.run(&["user", "list", "--json"]).json();
    assert_eq!(listed["users"].as_array().expect("a list").len(), 1);
    assert_eq!(listed["users"][0]["aor"], "bob@example.com");
    assert!(
        folder.run(&["user", "rm", "Alice@example.com"]).refused(1).starts_with("there is no user Alice@example.com")
    );
}

#[test]
fn no_password_reaches_the_disk_or_the_screen() {
    let folder = Folder::new("");
    let ran = folder.run(&["user", "add", "alice@example.com", "--password", "very-secret-7"]);
    assert!(!ran.out.contains("very-secret-7") && !ran.err.contains("very-secret-7"));
    for entry in std::fs::read_dir(folder.path().join("data")).expect("the data folder") {
        let bytes = std::fs::read(entry.expect("an entry").path()).expect("readable");
        assert!(!bytes.windows(13).any(|window| window == b"very-secret-7"));
    }
}

#[test]
fn passwords_belong_to_the_configured_realm() {
    let folder = Folder::new("[auth]\nrealm = \"Office\"\n[server]\ndomains = [\"example.com\"]\n");
    let ran = folder.run(&["user", "add", "alice@example.org", "--password", "x"]);
    assert!(ran.err.contains("note: example.org is not in server.domains"), "{ran:?}");
    assert_eq!(ran.ok(), "alice@example.org added (realm Office)\n");
}

#[test]
fn a_table_is_imported_whole_or_not_at_all() {
    let folder = Folder::new("server.domains = [\"example.com\", \"example.net\"]\n");
    folder.write("users.csv", "aor,password\nalice@example.com,a\nbob@example.com,b\n");
    assert_eq!(
        folder.run(&["user", "import", "users.csv"]).refused(2),
        "an import needs a realm; give one with --realm, or set auth.realm"
    );
    let done = folder.run(&["user", "import", "users.csv", "--realm", "example.com"]).ok();
    assert_eq!(done, "2 users imported (realm example.com)\n");
    let table = "aor,password\ncarol@example.com,c\nalice@example.com,x\n";
    let error = folder.run_with(&["user", "import", "-", "--realm", "example.com"], table).refused(1);
    assert!(error.starts_with("-: line 3: ") && error.ends_with("nothing was imported"), "{error}");
    assert_eq!(folder.run(&["user", "list"]).ok().lines().count(), 3);
    // A name alone is in the first domain, as in `user add`.
    let done = folder.run_with(&["user", "import", "-", "--realm", "example.com"], "name,password\ndave,d\n").ok();
    assert_eq!(done, "1 user imported (realm example.com)\n");
    assert!(folder.run(&["user", "list"]).ok().contains("dave@example.com"));
    let error = folder.run_with(&["user", "import", "-", "--realm", "x"], "aor,password\ndave,d\n").refused(1);
    assert!(error.contains("dave@example.com"), "{error}");
}

#[test]
fn a_ban_is_of_a_single_address() {
    let folder = Folder::new("");
    for wrong in ["10.0.0.0/8", "192.0.2.7:5060", "example.com"] {
        let ran = folder.run(&["ctl", "ban", "add", wrong]);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.err.contains("single addresses") && ran.err.contains("firewall"), "{ran:?}");
    }
}

#[test]
fn imported_users_of_unserved_domains_are_noted_like_single_ones() {
    let folder = Folder::new("server.domains = [\"example.com\", \"example.net\"]\n");
    folder.write(
        "users.csv",
        "password,aor\na,alice@example.com\n\"b,b\",bob@example.org\nc,carol@example.net\nd,dave@example.net\n",
    );
    let ran = folder.run(&["user", "import", "users.csv", "--realm", "example.com"]);
    assert!(
        ran.err.contains("note: example.org is not in server.domains, so the server does not serve its 1 user\n"),
        "{ran:?}"
    );
    assert!(
        ran.err.contains("note: the server challenges the 2 users of example.net with realm example.net")
            && ran.err.contains("--realm example.net\n")
            && !ran.err.contains("users of example.com"),
        "{ran:?}"
    );
    assert_eq!(ran.ok(), "4 users imported (realm example.com)\n");
}

#[test]
fn check_reports_all_errors() {
    let folder = Folder::new("");
    folder.write(
        "bad.toml",
        "[server]\nlisten = []\nspin = \"2ms\"\n[proxy]\nmtu = 1\n[[route]]\naction = \"reject\"\nstatus = 200\n\
         [[route]]\naction = \"reject\"\nstatus = 199\n",
    );
    let ran = folder.run(&["check", "-c", "bad.toml"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""));
    let error = ran.err.strip_prefix("strowger: ").expect("who says so");
    let lines: Vec<&str> = error.lines().map(|line| line.split(": ").take(2).last().unwrap_or_default()).collect();
    assert_eq!(lines, ["server.listen", "server.spin", "proxy.mtu", "route[0].status", "route[1].status"], "{error}");
    assert!(error.lines().all(|line| line.starts_with("bad.toml:")), "{error}");
}

#[test]
fn check_warns_when_the_machine_lacks_what_workers_need() {
    let folder = Folder::new("");
    folder.write(
        "many.toml",
        "server.workers = 200\nserver.min_workers = 3\nserver.affinity = [0, 1000]\nserver.steering = \"packets\"\n\
         server.spin = \"50us\"\n",
    );
    let ran = folder.run(&["check", "-c", "many.toml"]);
    for warning in [
        "warning: many.toml:1: server.workers: 200 workers on ",
        "warning: many.toml:3: server.affinity[1]: this process may not use core 1000, so the scheduler places worker 1;",
        "warning: many.toml:3: server.affinity: 2 cores for 200 workers: the scheduler places the other workers",
    ] {
        assert!(ran.err.contains(warning), "{warning}: {ran:?}");
    }
    let out = ran.ok();
    assert!(
        out.contains("workers        200\n               at least 3 of them active, pinned to the cores 0, 1000\n")
            && out.contains(
                "datagrams of a peer are spread over all workers; each busy-polls for up to 50us before it sleeps\n"
            ),
        "{out}"
    );
    let ran = folder.run(&["check", "-c", "many.toml", "--json"]);
    assert_eq!(ran.json()["warnings"].as_array().map(Vec::len), Some(3));
    folder.write("awake.toml", "server.workers = 200\nserver.spin = \"always\"\n");
    let ran = folder.run(&["check", "-c", "awake.toml"]);
    assert!(ran.err.contains("warning: awake.toml:2: server.spin: always, with 200 workers on "), "{ran:?}");
    assert!(ran.ok().contains("; each worker with shards busy-polls all the time\n"));
}

#[test]
fn check_shows_whether_segmentation_is_used() {
    let folder = Folder::new("");
    for (value, told) in [
        ("never", "each message is sent as a separate packet"),
        (
            "auto",
            "messages of equal length to one peer are sent as one segmented packet, except during a packet capture",
        ),
        (
            "always",
            "messages of equal length to one peer are sent as one segmented packet, also during a packet capture",
        ),
    ] {
        folder.write("joined.toml", &format!("server.segmentation = \"{value}\"\n"));
        let out = folder.run(&["check", "-c", "joined.toml"]).ok();
        assert!(out.contains(&format!("\nsending        {told}\n")), "{value}: {out}");
    }
    folder.write("joined.toml", "server.segmentation = true\n");
    let error = folder.run(&["check", "-c", "joined.toml"]).refused(2);
    assert!(error.ends_with(r#"known values are "never", "auto", "always""#), "{error}");
}

#[test]
fn an_unreachable_gateway_gets_a_warning_everywhere() {
    let folder = Folder::new("server.listen = [\"udp:127.0.0.1:5060\"]\n[[route]]\ntargets = [\"set:pstn\"]\n");
    let told = |consequence: &str| {
        format!(
            "needs TCP, but server.listen has no such listener: {consequence}; add \"tcp:0.0.0.0:5060\" to server.listen"
        )
    };
    let why = told("it is never tried, and requests without another target get 502");
    let added = folder.run(&["gateway", "add", "pstn", "sip:192.0.2.1;transport=tcp"]);
    assert!(added.err.contains(&format!("warning: sip:192.0.2.1;transport=tcp {why}")), "{added:?}");
    let checked = folder.run(&["check"]);
    let expected = |consequence: &str| {
        format!("warning: route[0].targets[0]: gateway sip:192.0.2.1;transport=tcp {}", told(consequence))
    };
    assert!(checked.code == Some(0) && checked.err.contains(&expected("requests to it get 502")), "{checked:?}");
    folder.run(&["gateway", "add", "pstn", "sip:[2001:db8::1]"]).ok();
    let checked = folder.run(&["check"]);
    assert!(checked.err.contains("sip:[2001:db8::1] needs UDP over IPv6"), "{checked:?}");
    folder.run(&["gateway", "add", "pstn", "sip:192.0.2.2"]).ok();
    let checked = folder.run(&["check"]);
    assert!(checked.err.contains(&expected("it is never tried")), "there is another: {checked:?}");
    assert!(!checked.err.contains("502"), "{checked:?}");
}

#[test]
fn aliases_lead_to_users() {
    let folder = Folder::new("");
    folder.run(&["user", "add", "alice@example.com", "--password", "x"]).ok();
    let added = folder.run(&["user", "alias", "add", "100@example.com", "alice@example.com"]).ok();
    assert_eq!(added, "100@example.com is an alias of alice@example.com\n");
    let listed = folder.run(&["user", "alias", "list", "--json"]).json();
    assert_eq!(listed, json!({ "aliases": [{ "alias": "100@example.com", "aor": "alice@example.com" }] }));
    assert_eq!(folder.run(&["user", "alias", "rm", "100@example.com"]).ok(), "100@example.com removed\n");
    assert_eq!(folder.run(&["user", "alias", "rm", "100@example.com"]).refused(1), "there is no alias 100@example.com");
}

#[test]
fn invalid_input_is_bad_usage() {
    let folder = Folder::new("");
    let error = folder.run(&["user", "add", "al ice", "--password", "x"]).refused(2);
    assert!(error.contains("is not a valid address"), "{error}");
    let error = folder.run_with(&["user", "add", "alice@example.com"], "").refused(2);
    assert!(error.starts_with("this is not a valid password"), "{error}");
    assert_eq!(folder.run(&["user"]).code, Some(2));
    assert_eq!(folder.run(&["ctl", "registrations", "--limit", "0"]).code, Some(2));
    let memory = Folder::new("[store]\nurl = \"memory:\"\n");
    let error = memory.run(&["user", "list"]).refused(2);
    assert!(error.starts_with("store.url is memory:, so users cannot be stored"), "{error}");
}

#[test]
fn check_describes_the_config() {
    let folder = Folder::new("");
    let out = folder.run(&["check"]).ok();
    assert!(
        out.starts_with(
            "configuration  the defaults (there is no strowger.toml here, and no /etc/strowger/strowger.toml)\n"
        ),
        "{out}"
    );
    assert!(out.contains("udp:127.0.0.1:5060") && out.contains("sqlite:data/strowger.db"), "{out}");
    assert!(
        out.contains("registrations  write-through: on disk before the phone gets its 200, in data/journal and"),
        "{out}"
    );
    assert!(!folder.path().join("data").exists(), "a check changes nothing");
    folder.write("data", "no folder");
    let out = folder.run(&["check"]).ok();
    assert!(out.contains("\n               (data is not a folder)\n"), "{out}");
    std::fs::remove_file(folder.path().join("data")).expect("removed");
    folder.write("memory.toml", "store.mode = \"memory\"\n");
    let out = folder.run(&["check", "-c", "memory.toml"]).ok();
    assert!(out.contains("registrations  memory: lost when the server stops\n"), "{out}");
    folder.write(
        "other.toml",
        "server.listen = [\"udp:127.0.0.1:5070\"]\nserver.workers = 3\n[[route]]\naction = \"reject\"\nstatus = 603\n",
    );
    let out = folder.run(&["check", "-c", "other.toml"]).ok();
    assert!(out.contains("*, any method: rejected with 603") && out.contains("workers        3\n"), "{out}");
    let value = folder.run(&["check", "--json", "-c", "other.toml"]).json();
    assert_eq!(value["listeners"], json!(["udp:127.0.0.1:5070"]));
    assert_eq!((&value["domains"], &value["mode"]), (&json!(["localhost"]), &json!("write-through")));
    assert_eq!((&value["workers"], &value["file"]), (&json!(3), &json!("other.toml")));
    assert_eq!(value["configuration"]["registrar"]["expires"]["max"], "2h");
}

#[test]
fn every_command_refuses_a_bad_configuration() {
    let folder = Folder::new("[server]\nlisen = []\n");
    for arguments in
        [&["check"][..], &["serve"], &["user", "list"], &["ctl", "reload"], &["backup", "x"], &["restore", "x"]]
    {
        let error = folder.run(arguments).refused(2);
        assert_eq!(error, "strowger.toml:2: server.lisen: unknown key \"lisen\"; did you mean \"listen\"?");
    }
    // A client looks for the server nevertheless, unless the fault hides where it is.
    let ran = folder.run(&["ctl", "status"]);
    let said =
        "strowger: warning: strowger.toml:2: server.lisen: unknown key \"lisen\"; did you mean \"listen\"?\nstrowger: ";
    assert!(ran.code == Some(1) && ran.err.starts_with(&format!("{said}no server is running: ")), "{ran:?}");
    folder.write("strowger.toml", "[server]\nlisen = []\ndatta = \"elsewhere\"\n");
    let error = folder.run(&["ctl", "status"]).refused(2);
    assert!(error.ends_with("with --socket)"), "{error}");
    let error = folder.run(&["check", "-c", "nowhere.toml"]).refused(2);
    assert_eq!(error, "nowhere.toml: the file does not exist; give an existing one with -c");
}

#[test]
fn ctl_reports_a_missing_server() {
    let folder = Folder::new("");
    for command in ["status", "registrations", "reload"] {
        let error = folder.run(&["ctl", command]).refused(1);
        assert!(error.contains("/data/control.sock; start one"), "{error}");
    }
}

#[test]
fn help_has_examples() {
    let folder = Folder::new("");
    for command in [
        &["--help"][..],
        &["serve", "--help"],
        &["check", "--help"],
        &["backup", "--help"],
        &["restore", "--help"],
        &["user", "--help"],
        &["user", "add", "--help"],
        &["user", "passwd", "--help"],
        &["user", "rm", "--help"],
        &["user", "enable", "--help"],
        &["user", "disable", "--help"],
        &["user", "list", "--help"],
        &["user", "import", "--help"],
        &["user", "alias", "add", "--help"],
        &["user", "alias", "rm", "--help"],
        &["user", "alias", "list", "--help"],
        &["ctl", "status", "--help"],
        &["ctl", "registrations", "--help"],
        &["ctl", "reload", "--help"],
    ] {
        let help = folder.run(command).ok();
        assert!(help.contains("Example"), "{command:?}: {help}");
    }
}

#[test]
fn check_reads_the_certificates_that_a_server_would_load() {
    let folder = Folder::new(
        "server.listen = [\"tls:127.0.0.1:5061\"]\n[tls]\ncertificates = [{ certificate = \"c.pem\", key = \"k.pem\" }]\n",
    );
    let missing = folder.run(&["check"]).refused(2);
    assert!(missing.contains("tls: ") && missing.contains("c.pem"), "{missing}");
    folder.write("c.pem", "garbage");
    folder.write("k.pem", "garbage");
    let garbage = folder.run(&["check"]).refused(2);
    assert!(garbage.contains("c.pem"), "{garbage}");
    let unused = Folder::new("[tls]\ncertificates = [{ certificate = \"c.pem\", key = \"k.pem\" }]\n");
    assert_eq!(unused.run(&["check"]).code, Some(0), "no listener needs them");
}

#[test]
fn check_asks_the_media_engines_whether_they_are_there() {
    let engine = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = engine.local_addr().expect("bound");
    let folder =
        Folder::new(&format!("[media]\nengines = [\"udp:{address}\"]\nwhen = \"always\"\ntimeout = \"100ms\"\n"));
    let silent = folder.run(&["check", "--connect"]);
    assert_eq!(silent.code, Some(1));
    assert!(
        silent.out.contains(&format!("media.engines: udp:{address} is NOT USABLE: it does not answer")),
        "{}",
        silent.out
    );
    // The commands of the first attempt are still in its queue.
    let answers = std::thread::spawn(move || {
        let mut command = [0; 100];
        for _ in 0..4 {
            let (length, from) = engine.recv_from(&mut command).expect("a command");
            let command = String::from_utf8_lossy(&command[..length]);
            let (cookie, rest) = command.split_once(' ').expect("a cookie");
            assert_eq!(rest, "d7:command4:pinge");
            engine.send_to(format!("{cookie} d6:result4:ponge").as_bytes(), from).ok();
        }
    });
    let usable = folder.run(&["check", "--connect"]).ok();
    assert!(usable.contains(&format!("media.engines: udp:{address} is usable")), "{usable}");
    answers.join().expect("it was asked");
}
