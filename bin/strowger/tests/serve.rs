//! The server as a process: it answers, reports its status, reloads and ends.

mod common;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};

use common::server::Server;
use serde_json::Value;

#[test]
fn it_answers_registers_and_reports_status() {
    let server = Server::start("server.domains = [\"example.com\"]\n");
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let options = format!(
        "OPTIONS sip:{} SIP/2.0\nFrom: <sip:a@b>;tag=1\nTo: <sip:x@y>\nCall-ID: 1\nCSeq: 1 OPTIONS",
        server.address
    );
    assert!(server.ask(&socket, &options).starts_with("SIP/2.0 200 "));

    server.folder.run(&["user", "add", "alice@example.com", "--password", "x"]).ok();
    assert_eq!(server.status()["users"], 1, "the server knows what the command has done");
    let local = socket.local_addr().expect("bound");
    let register = format!(
        "REGISTER sip:example.com SIP/2.0\nFrom: <sip:alice@example.com>;tag=2\nTo: <sip:alice@example.com>\n\
         Call-ID: 2\nCSeq: 1 REGISTER\nContact: <sip:alice@{local}>;q=0.5\nExpires: 600"
    );
    let response = server.ask(&socket, &register);
    assert!(response.starts_with("SIP/2.0 200 "), "{response}");

    server.until("the counters are posted", || server.status()["counters"]["sockets"]["received"].as_u64() >= Some(2));
    let status = server.status();
    assert_eq!((&status["registrations"], &status["addresses"], &status["workers"]), (&1.into(), &1.into(), &2.into()));
    assert_eq!(status["listeners"][0], format!("udp:{}", server.address));
    assert!(status["uptime_s"].as_f64() > Some(0.0) && status["transactions"].is_u64());
    let listed = server.folder.run(&["ctl", "registrations", "--json"]).json();
    let row = &listed["registrations"][0];
    assert_eq!(row["aor"], "alice@example.com");
    assert_eq!(row["contact"], format!("sip:alice@{local}"));
    assert_eq!((row["source"].as_str(), row["q"].as_f64()), (Some(local.to_string().as_str()), Some(0.5)));
    assert!(row["expires_s"].as_u64().is_some_and(|left| (500..=600).contains(&left)), "{row}");
    let table = server.folder.run(&["ctl", "registrations", "--user", "sip:alice@EXAMPLE.com"]).ok();
    assert_eq!(table.lines().count(), 2, "{table}");
    let nobody = server.folder.run(&["ctl", "registrations", "--user", "bob@example.com"]).ok();
    assert_eq!(nobody.lines().count(), 1, "{nobody}");
    assert!(!server.log().contains("WARN") && !server.log().contains("ERROR"), "{}", server.log());

    let unregister = |contact: &str| server.folder.run(&["ctl", "unregister", "alice@example.com", contact]);
    let none = "there is no such registration; `strowger ctl registrations` lists all of them";
    assert_eq!(unregister("sip:alice@192.0.2.1").refused(1), none);
    assert_eq!(
        unregister(&format!("sip:alice@{local}")).ok(),
        format!("alice@example.com: sip:alice@{local} unregistered\n")
    );
    server.until("it is gone", || server.status()["registrations"] == 0);
    assert_eq!(unregister("--all").refused(1), none);
}

#[test]
fn a_registration_on_a_connection_is_listed_with_the_connections_far_end() {
    let address = common::free_address();
    let folder = common::Folder::new(&format!(
        "server.listen = [\"udp:{address}\", \"tcp:{address}\"]\nserver.domains = [\"example.com\"]\nserver.workers = 2\n\
         auth.require = []\n"
    ));
    let server = Server::started_by(folder.command(&["serve"]), folder, address);
    server.folder.run(&["user", "add", "alice@example.com", "--password", "x"]).ok();
    assert_eq!(server.status()["users"], 1);
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(common::PATIENCE)).expect("settable");
    let local = stream.local_addr().expect("bound");
    // It listens elsewhere: requests go there once this connection is closed.
    let register = "REGISTER sip:example.com SIP/2.0\nVia: SIP/2.0/TCP 127.0.0.1:9;branch=z9hG4bKr\nMax-Forwards: 70\n\
         From: <sip:alice@example.com>;tag=2\nTo: <sip:alice@example.com>\nCall-ID: 2\nCSeq: 1 REGISTER\n\
         Contact: <sip:alice@127.0.0.1:9;transport=tcp>\nExpires: 600\nContent-Length: 0\n\n";
    stream.write_all(register.replace('\n', "\r\n").as_bytes()).expect("it is open");
    let mut response = [0; 4096];
    let length = stream.read(&mut response).expect("a response");
    assert!(response[..length].starts_with(b"SIP/2.0 200 "));
    let row = server.folder.run(&["ctl", "registrations", "--json"]).json()["registrations"][0].clone();
    assert_eq!((&row["transport"], &row["source"]), (&"TCP".into(), &local.to_string().into()), "{row}");
    let table = server.folder.run(&["ctl", "registrations"]).ok();
    assert!(table.contains(&format!("tcp:{local}")), "{table}");
    drop(stream);
    server.until("it shows where a connection will be opened", || {
        server.folder.run(&["ctl", "registrations", "--json"]).json()["registrations"][0]["source"] == "127.0.0.1:9"
    });
}

#[test]
fn a_pipe_in_place_of_the_configuration_does_not_stop_a_running_server() {
    let server = Server::start("");
    let (file, aside) = (server.folder.path().join("strowger.toml"), server.folder.path().join("aside.toml"));
    std::fs::rename(&file, &aside).expect("moved");
    rustix::fs::mkfifoat(rustix::fs::CWD, &file, 0o600.into()).expect("a pipe");
    server.signal("HUP");
    server.until("it refuses", || server.log().contains("is a pipe, which a running server does not read"));
    std::fs::rename(&aside, &file).expect("moved back");
    assert_eq!(server.folder.run(&["ctl", "reload"]).ok(), "reloaded strowger.toml: 0 users, 0 routes\n");
}

#[test]
fn a_reload_applies_all_or_nothing() {
    let server = Server::start("");
    let file = server.folder.path().join("strowger.toml");
    let first = std::fs::read_to_string(&file).expect("the configuration");
    server.folder.write("strowger.toml", &format!("{first}server.domains = [\"example.net\"]\n"));
    let told = server.folder.run(&["ctl", "reload"]).ok();
    let change = "server.domains: added example.net; removed localhost\n";
    assert_eq!(told, format!("{change}reloaded strowger.toml: 0 users, 0 routes\n"));
    assert_eq!(server.status()["domains"][0], "example.net");

    server
        .folder
        .write("strowger.toml", &first.replace("workers = 2", "workers = 3\nserver.domains = [\"example.org\"]"));
    let error = server.folder.run(&["ctl", "reload"]).refused(1);
    assert_eq!(
        error,
        "server.workers (registrations and calls are divided by the number of workers) cannot change while the server \
         runs; set it back, or restart the server; nothing was changed"
    );
    server.folder.write("strowger.toml", &format!("{first}server.colour = 1\n"));
    // The command reads the file too, to find the socket, so it gets another file.
    server.folder.write("good.toml", &first);
    let error = server.folder.run(&["ctl", "reload", "-c", "good.toml"]).refused(1);
    assert!(error.starts_with("strowger.toml:5: server.colour: unknown key \"colour\""), "{error}");
    server.folder.write("strowger.toml", &first);
    assert_eq!(server.status()["domains"][0], "example.net", "all is as it was");
    server.signal("HUP");
    server.until("SIGHUP reloads", || server.status()["domains"][0] == "localhost");
}

#[test]
fn sigterm_stops_it() {
    let mut server = Server::start("");
    let socket = server.folder.path().join("data/control.sock");
    assert!(socket.exists());
    server.signal("TERM");
    assert_eq!(server.ended(), Some(0));
    assert!(!socket.exists() && server.log().contains("ended"), "{}", server.log());
}

#[test]
fn the_count_of_suppressed_log_lines_is_logged_at_exit() {
    let (folder, address) = Server::prepare("server.domains = [\"example.com\"]\nban.automatic = false\n");
    let open = std::fs::read_to_string(folder.path().join("strowger.toml")).expect("the configuration");
    folder.write("strowger.toml", &open.replace("auth.require = []", "auth.require = [\"REGISTER\"]"));
    let mut server = Server::started_by(folder.command(&["serve"]), folder, address);
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let register = |more: &str| {
        let head = "REGISTER sip:example.com SIP/2.0\nFrom: <sip:alice@example.com>;tag=1\nTo: <sip:alice@example.com>\n\
                    Call-ID: flood\nCSeq: 1 REGISTER";
        server.ask(&socket, &format!("{head}{more}"))
    };
    let challenge = register("");
    let (_, nonce) = challenge.split_once("nonce=\"").expect("a challenge");
    let (nonce, _) = nonce.split_once('"').expect("a nonce");
    for number in 1..=50 {
        // Each request is longer than the last, because the branch depends on the length.
        let padding = "x".repeat(number);
        let refusal = register(&format!(
            "\nSubject: {padding}\nAuthorization: Digest username=\"alice\", realm=\"example.com\", nonce=\"{nonce}\", \
             uri=\"sip:example.com\", response=\"0123456789abcdef0123456789abcdef\", algorithm=MD5, cnonce=\"c\", qop=auth, \
             nc={number:08x}"
        ));
        assert!(refusal.starts_with("SIP/2.0 401 "), "{refusal}");
    }
    server.signal("TERM");
    assert_eq!(server.ended(), Some(0));
    let log = server.log();
    assert_eq!(log.matches("security event=\"unknown-user\" address=127.0.0.1").count(), 10, "{log}");
    assert!(log.contains("similar lines were suppressed kind=\"security\" count=40"), "{log}");
}

#[test]
fn two_servers_do_not_share_a_port_or_a_folder() {
    let server = Server::start("");
    let second = server.folder.run(&["serve"]);
    assert_eq!(second.code, Some(1));
    assert!(second.err.contains("is in use by another process"), "{second:?}");
    server.folder.write("second.toml", "server.listen = [\"udp:127.0.0.1:0\"]\n");
    let second = server.folder.run(&["serve", "-c", "second.toml"]);
    assert_eq!(second.code, Some(1));
    assert!(second.err.contains("another server is already running"), "{second:?}");
}

#[test]
fn the_log_can_be_json() {
    let server = Server::start("log.format = \"json\"\n");
    let log = server.log();
    assert!(log.lines().count() >= 3);
    for line in log.lines() {
        let line: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(line["level"], "INFO");
    }
}

#[test]
fn a_removed_or_disabled_user_is_no_longer_reached() {
    let server = Server::start("server.domains = [\"example.com\"]\n");
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let local = socket.local_addr().expect("bound");
    for (number, name, command) in [(1, "alice", "rm"), (2, "bob", "disable")] {
        server.folder.run(&["user", "add", name, "--password", "x"]).ok();
        server.until("the user is known", || server.status()["users"] == 1);
        let register = format!(
            "REGISTER sip:example.com SIP/2.0\nFrom: <sip:{name}@example.com>;tag=2\nTo: <sip:{name}@example.com>\n\
             Call-ID: reg-{name}\nCSeq: {number} REGISTER\nContact: <sip:{name}@{local}>\nExpires: 600"
        );
        assert!(server.ask(&socket, &register).starts_with("SIP/2.0 200 "));
        server.until("it is registered", || server.status()["registrations"] == 1);
        server.folder.run(&["user", command, name]).ok();
        server.until("the binding is gone", || server.status()["registrations"] == 0);
    }
}

#[test]
fn a_key_is_kept_over_a_restart() {
    let mut server = Server::start("");
    let key = std::fs::read(server.folder.path().join("data/key")).expect("made at the first start");
    server.signal("TERM");
    assert_eq!(server.ended(), Some(0));
    let server = server.restart();
    assert_eq!(std::fs::read(server.folder.path().join("data/key")).expect("there"), key);
}
