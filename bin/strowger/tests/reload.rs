//! Reload of the whole configuration.

mod common;

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use common::api::Client;
use common::server::Server;
use common::{CommandResult, PATIENCE, free_address};
use serde_json::{Value, json};

/// A server whose configuration is replaced.
struct Subject {
    server: Server,
    first: String,
}

impl Subject {
    fn start(more: &str) -> Self {
        let server = Server::start(more);
        let first = server.folder.read("strowger.toml");
        Self { server, first }
    }

    /// Reloads the first configuration with `listen` added to its listeners and `more` at its end.
    fn reload(&self, listen: &[String], more: &str) -> CommandResult {
        self.write(listen, more);
        self.server.folder.run(&["ctl", "reload"])
    }

    fn write(&self, listen: &[String], more: &str) {
        let own = format!("\"udp:{}\"", self.server.address);
        let all: Vec<String> =
            std::iter::once(own.clone()).chain(listen.iter().map(|one| format!("{one:?}"))).collect();
        self.server.folder.write("strowger.toml", &format!("{}{more}", self.first.replace(&own, &all.join(", "))));
    }

    /// Returns the changes that are printed, without the summary.
    fn changes(&self, listen: &[String], more: &str) -> Vec<String> {
        let printed = self.reload(listen, more).ok();
        let mut lines: Vec<_> = printed.lines().map(str::to_owned).collect();
        let summary = lines.pop().unwrap_or_default();
        assert!(summary.starts_with("reloaded strowger.toml: "), "{printed}");
        lines
    }

    fn listeners(&self) -> Vec<String> {
        let status = self.server.status();
        status["listeners"].as_array().into_iter().flatten().filter_map(|one| Some(one.as_str()?.to_owned())).collect()
    }
}

fn options(to: SocketAddr, transport: &str, call_id: &str) -> String {
    format!(
        "OPTIONS sip:{to} SIP/2.0\r\nVia: SIP/2.0/{transport} 127.0.0.1:9;rport;branch=z9hG4bK{call_id}\r\n\
         From: <sip:a@b>;tag=1\r\nTo: <sip:x@y>\r\nCall-ID: {call_id}\r\nCSeq: 1 OPTIONS\r\nMax-Forwards: 70\r\n\
         Content-Length: 0\r\n\r\n"
    )
}

/// Sends an OPTIONS as a datagram; returns the first line of the answer.
fn ask(to: SocketAddr, call_id: &str) -> String {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    socket.set_read_timeout(Some(PATIENCE)).expect("settable");
    socket.send_to(options(to, "UDP", call_id).as_bytes(), to).expect("sent");
    let mut buffer = [0; 4096];
    let (length, from) = socket.recv_from(&mut buffer).expect("an answer");
    assert_eq!(from, to, "from the address that was asked");
    first_line(&buffer[..length])
}

/// The same on a connection.
fn ask_on(mut stream: &TcpStream, call_id: &str) -> String {
    stream.set_read_timeout(Some(PATIENCE)).expect("settable");
    let to = stream.peer_addr().expect("connected");
    stream.write_all(options(to, "TCP", call_id).as_bytes()).expect("sent");
    let mut buffer = [0; 4096];
    let length = stream.read(&mut buffer).expect("an answer");
    first_line(&buffer[..length])
}

fn first_line(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).lines().next().unwrap_or_default().to_owned()
}

#[test]
fn the_audit_log_is_written_at_every_level() {
    let subject = Subject::start("log.level = \"error\"\n");
    let folder = &subject.server.folder;
    let written = |line: &str| subject.server.log().lines().filter(|one| one.contains(line)).count();
    folder.run(&["ctl", "reload"]).ok();
    assert_eq!(written("INFO audit by="), 1, "{}", subject.server.log());
    for (level, all) in [("warn", 2), ("error", 3), ("info", 4)] {
        let config = subject.first.replace("log.level = \"error\"", &format!("log.level = \"{level}\""));
        folder.write("strowger.toml", &config);
        folder.run(&["ctl", "reload"]).ok();
        assert_eq!(written("action=\"reload\" object=\"\" result=\"done\""), all, "{}", subject.server.log());
    }
    folder.run(&["ctl", "drain", "nobody"]).refused(1);
    assert_eq!(written("action=\"drain\""), 1, "{}", subject.server.log());
}

#[test]
fn listeners_come_and_go() {
    let subject = Subject::start("");
    let (udp, tcp) = (free_address(), free_address());
    let both = [format!("udp:{udp}"), format!("tcp:{tcp}")];
    assert_eq!(subject.changes(&both, ""), [format!("server.listen: added udp:{udp}, tcp:{tcp}")]);
    assert_eq!(subject.listeners(), [format!("udp:{}", subject.server.address), both[0].clone(), both[1].clone()]);
    assert_eq!(ask(udp, "1"), "SIP/2.0 200 OK");
    let stream = TcpStream::connect(tcp).expect("it listens");
    assert_eq!(ask_on(&stream, "2"), "SIP/2.0 200 OK");
    let before = subject.server.status();

    assert_eq!(subject.changes(&[], ""), [format!("server.listen: removed udp:{udp}, tcp:{tcp}")]);
    let left = [format!("udp:{}", subject.server.address), format!("udp:{udp} (removed, closing)")];
    assert_eq!(subject.listeners(), left);
    assert!(ask(udp, "3").starts_with("SIP/2.0 503 "), "nothing new");
    assert_eq!(TcpStream::connect(tcp).expect_err("closed").kind(), ErrorKind::ConnectionRefused);
    assert_eq!(ask_on(&stream, "4"), "SIP/2.0 200 OK", "connections stay");
    assert_eq!(ask(subject.server.address, "5"), "SIP/2.0 200 OK");

    // They keep their places.
    assert_eq!(subject.changes(&both, ""), [format!("server.listen: added udp:{udp}, tcp:{tcp}")]);
    assert_eq!((ask(udp, "6"), subject.listeners().len()), ("SIP/2.0 200 OK".to_owned(), 3));
    let again = TcpStream::connect(tcp).expect("it listens");
    assert_eq!((ask_on(&stream, "7"), ask_on(&again, "8")), ("SIP/2.0 200 OK".to_owned(), "SIP/2.0 200 OK".to_owned()));
    let received = |status: &Value| status["counters"]["sockets"]["received"].as_u64();
    subject.server.until("counters go on", || received(&subject.server.status()) > received(&before));
}

#[test]
fn a_removed_listener_for_datagrams_closes_when_calls_have_been_answered() {
    let timers = "[proxy]\nring_timeout = \"1s\"\nfork_timeout = \"1s\"\n[timers]\nt1 = \"20ms\"\nt2 = \"40ms\"\nt4 = \"40ms\"\n";
    let subject = Subject::start(timers);
    let udp = free_address();
    subject.changes(&[format!("udp:{udp}")], "");
    assert_eq!(ask(udp, "1"), "SIP/2.0 200 OK");
    subject.changes(&[], "");
    subject.server.until("it closes", || subject.listeners().len() == 1);
    let bound = UdpSocket::bind(udp).expect("it is free");
    // Now another program has it.
    let refused = subject.reload(&[format!("udp:{udp}")], "").refused(1);
    assert!(refused.contains("in use") && refused.ends_with("; nothing was changed"), "{refused}");
    drop(bound);
    assert_eq!(subject.changes(&[format!("udp:{udp}")], ""), [format!("server.listen: added udp:{udp}")]);
    assert_eq!(ask(udp, "2"), "SIP/2.0 200 OK");
}

#[test]
fn an_address_in_use_refuses_everything() {
    let subject = Subject::start("");
    let (free, taken) = (free_address(), TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port"));
    let taken_at = taken.local_addr().expect("bound");
    let listen = [format!("udp:{free}"), format!("tcp:{taken_at}")];
    let more = "[registrar.expires]\nmax = \"90m\"\n";
    let error = subject.reload(&listen, more).refused(1);
    assert!(error.contains(&taken_at.to_string()) && error.ends_with("; nothing was changed"), "{error}");
    assert_eq!(subject.listeners().len(), 1);
    UdpSocket::bind(free).expect("what was bound is free again");
    drop(taken);
    let changes = subject.changes(&listen, more);
    assert_eq!(
        changes,
        ["registrar.expires.max: 2h → 1h30m", &format!("server.listen: added udp:{free}, tcp:{taken_at}")]
    );
}

#[test]
fn secure_listeners_and_web_sockets_are_added_to_a_server_without() {
    let subject = Subject::start("");
    let key = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("a certificate");
    subject.server.folder.write("cert.pem", &key.cert.pem());
    subject.server.folder.write("key.pem", &key.signing_key.serialize_pem());
    let path = subject.server.folder.path().join("key.pem");
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("its owner");
    let (tls, ws) = (free_address(), free_address());
    let listen = [format!("tls:{tls}"), format!("ws:{ws}")];
    let more =
        "[tls]\ncertificates = [{ certificate = \"cert.pem\", key = \"key.pem\" }]\n[websocket]\norigins = [\"*\"]\n";
    let changes = subject.changes(&listen, more);
    assert_eq!(changes[0], format!("server.listen: added tls:{tls}, ws:{ws}"));
    assert_eq!(changes[1..], ["tls.certificates[0]: added", "websocket.origins: added *"]);
    let status = subject.server.status();
    assert_eq!(status["certificates"][0]["file"], "cert.pem");
    let mut stream = TcpStream::connect(ws).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("settable");
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
    let mut buffer = [0; 1024];
    let length = stream.read(&mut buffer).expect("an answer");
    assert!(first_line(&buffer[..length]).starts_with("HTTP/1.1 4"), "it speaks HTTP");
    // A handshake message that is none is answered by an alert.
    let mut stream = TcpStream::connect(tls).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("settable");
    stream.write_all(b"OPTIONS sip:x SIP/2.0\r\n\r\n").expect("sent");
    let length = stream.read(&mut buffer).unwrap_or(0);
    assert!(length == 0 || buffer[0] == 21, "an alert of TLS, or the end");
    assert_eq!(subject.changes(&[], "").len(), 3);
    assert_eq!(TcpStream::connect(tls).expect_err("closed").kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn a_port_is_not_exchanged_in_one_reload() {
    let subject = Subject::start("");
    let address = free_address();
    subject.changes(&[format!("tcp:{address}")], "");
    let error = subject.reload(&[format!("ws:{address}")], "[websocket]\norigins = []\n").refused(1);
    let expected = format!(
        "server.listen: ws:{address} needs the port of tcp:{address}; remove tcp:{address} and reload, then add \
         ws:{address} and reload again; nothing was changed"
    );
    assert_eq!(error, expected);
    subject.changes(&[], "[websocket]\norigins = []\n");
    let changes = subject.changes(&[format!("ws:{address}")], "[websocket]\norigins = []\n");
    assert_eq!(changes, [format!("server.listen: added ws:{address}")]);
}

#[test]
fn all_keys_that_need_a_restart_are_named() {
    let subject = Subject::start("");
    let more = "[overload]\ncontrol = false\n[store]\nmode = \"write-behind\"\n[proxy]\nmtu = 1400\n";
    let first = subject.first.replace("workers = 2", "workers = 3");
    subject.server.folder.write("strowger.toml", &format!("{first}{more}"));
    let error = subject.server.folder.run(&["ctl", "reload"]).refused(1);
    for key in ["server.workers (", "overload.control (", "store.mode ("] {
        assert!(error.contains(key), "{error}");
    }
    assert!(
        error.ends_with(
            " cannot change while the server runs; set them back, or restart the server; nothing was changed"
        )
    );
    assert!(!error.contains("proxy.mtu"), "{error}");
    let log = subject.server.log();
    assert!(log.contains("not reloaded, nothing was changed: "), "{log}");
}

#[test]
fn a_dry_run_changes_nothing() {
    let subject = Subject::start("");
    let udp = free_address();
    subject.write(&[format!("udp:{udp}")], "[registrar.expires]\nmax = \"1h\"\n");
    let told = subject.server.folder.run(&["ctl", "reload", "--dry-run"]).ok();
    let expected = format!(
        "registrar.expires.max: 2h → 1h\nserver.listen: added udp:{udp}\na reload of strowger.toml would apply 2 changes\n"
    );
    assert_eq!(told, expected);
    assert_eq!(subject.listeners().len(), 1);
    let told = subject.server.folder.run(&["ctl", "reload", "--dry-run", "--json"]).json();
    assert_eq!(
        told["changes"][0],
        json!({ "key": "registrar.expires.max", "change": "value", "before": "2h", "after": "1h" })
    );
    let told = subject.server.folder.run(&["ctl", "reload", "--json"]).json();
    assert_eq!(told["result"], "reloaded strowger.toml: 0 users, 0 routes");
    assert_eq!(
        told["changes"][1],
        json!({ "key": "server.listen", "change": "list", "added": [format!("udp:{udp}")], "removed": [] })
    );
    let told = subject.server.folder.run(&["ctl", "reload", "--dry-run"]).ok();
    assert_eq!(told, "a reload of strowger.toml would change no key\n");
    subject.server.folder.write("strowger.toml", &subject.first.replace("workers = 2", "workers = 1"));
    let error = subject.server.folder.run(&["ctl", "reload", "--dry-run"]).refused(1);
    assert!(error.starts_with("server.workers ("), "{error}");
}

#[test]
fn the_log_changes_its_level_and_format() {
    let subject = Subject::start("");
    subject.changes(&[], "[log]\nlevel = \"error\"\n");
    let lines = || -> Vec<String> {
        let log = subject.server.log();
        log.lines().filter(|line| !line.contains("audit")).map(str::to_owned).collect()
    };
    let before = lines();
    subject.changes(&[], "[log]\nlevel = \"error\"\n[proxy]\nmtu = 1400\n");
    assert_eq!(lines(), before, "nothing below errors");
    subject.changes(&[], "[log]\nformat = \"json\"\n");
    let log = lines();
    let last: Value = serde_json::from_str(log.last().expect("a line")).unwrap_or_else(|_| panic!("{log:?}"));
    assert!(last["message"].as_str().is_some_and(|text| text.starts_with("reloaded ")), "{last}");
}

#[test]
fn the_control_socket_moves() {
    let subject = Subject::start("");
    let old = subject.server.folder.path().join("data/control.sock");
    let more = "[control]\nsocket = \"other.sock\"\n";
    subject.write(&[], more);
    // The command reads the new file, so it has to be told where the server still is.
    let told = subject.server.folder.run(&["ctl", "--socket", "data/control.sock", "reload"]).ok();
    assert!(told.starts_with("control.socket: data/control.sock → other.sock\n"), "{told}");
    assert!(!old.exists());
    assert_eq!(subject.listeners().len(), 1, "it answers at the new one");
}

/// Values of keys that are applied live, other than their defaults; each in a reload of its section.
const VALUES: &[(&str, &str)] = &[
    (
        "[server]\ndomains = [\"example.net\"]\nmin_workers = 2\nsteering = \"packets\"\nsegmentation = \"never\"\nspin = \"0s\"\naffinity = \"auto\"",
        "server",
    ),
    (
        "[tcp]\nconnections = 100\nper_source = 10\nidle = \"10m\"\nmessage_timeout = \"10s\"\nconnect_timeout = \"2s\"\nuser_timeout = \"10s\"\nproxy_protocol_from = [\"192.0.2.1\"]",
        "tcp",
    ),
    ("[tls]\nconnections = 10\nmin_version = \"1.3\"\nciphers = [\"TLS_AES_128_GCM_SHA256\"]", "tls"),
    ("[websocket]\nconnections = 10\nping = \"10s\"\norigins = []", "websocket"),
    ("[dns]\nservers = [\"192.0.2.53\"]\ntimeout = \"1s\"\ncache = false\nserve_stale = \"1h\"", "dns"),
    (
        "[registrar]\nmax_contacts = 5\nnat = \"never\"\nkeepalive = \"options\"\nkeepalive_interval = \"20s\"\ngruu = false\nflow_timer = \"1m\"\nservice_route = [\"sip:192.0.2.1;lr\"]\n[registrar.expires]\ndefault = \"30m\"\nmin = \"2m\"\nmax = \"90m\"",
        "registrar",
    ),
    (
        "[proxy]\nring_timeout = \"2m\"\nfork_timeout = \"10s\"\nfailover_timeout = \"3s\"\navoid_for = \"10s\"\nrecurse = true\nmtu = 1400\nrecord_route = false\nstateless = \"when-possible\"\noutbound = true\nunrouted_status = 403",
        "proxy",
    ),
    ("[overload]\nfeedback = false", "overload"),
    (
        "[media]\nengines = [\"udp:127.0.0.1:9\"]\nwhen = \"nat\"\non_failure = \"forward\"\ntimeout = \"500ms\"\nprobe_interval = \"1s\"",
        "media",
    ),
    ("[timers]\nt1 = \"400ms\"\nt2 = \"3s\"\nt4 = \"4s\"", "timers"),
    ("[cdr]\nfile = \"calls.json\"\ndatabase = \"postgresql://u:secret@127.0.0.1:9/calls\"", "cdr"),
    ("[log]\nlevel = \"debug\"\nformat = \"json\"", "log"),
];

#[test]
fn every_live_key_is_applied() {
    let subject = Subject::start("");
    for (values, section) in VALUES {
        let values = match *section {
            // The first configuration has this table already.
            "server" => values.replace("[server]\n", "server.").replace('\n', "\nserver."),
            _ => (*values).to_owned(),
        };
        let changes = subject.changes(&[], &format!("{values}\n"));
        let keys =
            values.lines().filter_map(|line| line.split_once(" = ")).map(|(key, _)| key.trim_start_matches("server."));
        for key in keys {
            let is_it = |line: &&String| line.starts_with(section) && line.contains(&format!(".{key}: "));
            assert!(changes.iter().any(|line| is_it(&line)), "{section}.{key}: {changes:?}");
        }
        assert!(!changes.iter().any(|line| line.contains("secret")), "{changes:?}");
        assert_eq!(ask(subject.server.address, section), "SIP/2.0 200 OK");
    }
    // And back again.
    assert!(!subject.changes(&[], "").is_empty());
    assert_eq!(ask(subject.server.address, "last"), "SIP/2.0 200 OK");
}

#[test]
fn limits_of_connections_change() {
    let subject = Subject::start("");
    let tcp = free_address();
    let listen = [format!("tcp:{tcp}")];
    subject.changes(&listen, "");
    let first = TcpStream::connect(tcp).expect("it listens");
    assert_eq!(ask_on(&first, "1"), "SIP/2.0 200 OK");
    assert_eq!(subject.changes(&listen, "[tcp]\nper_source = 1\n"), ["tcp.per_source: 256 → 1"]);
    let mut second = TcpStream::connect(tcp).expect("the system accepts it");
    second.set_read_timeout(Some(PATIENCE)).expect("settable");
    let end = second.read(&mut [0; 16]);
    assert!(matches!(end, Ok(0)) || end.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset));
    assert_eq!(ask_on(&first, "2"), "SIP/2.0 200 OK");
    assert_eq!(subject.changes(&listen, ""), ["tcp.per_source: 1 → 256"]);
    let third = TcpStream::connect(tcp).expect("it listens");
    assert_eq!(ask_on(&third, "3"), "SIP/2.0 200 OK");
}

#[test]
fn call_records_go_to_another_file() {
    let subject = Subject::start("");
    assert_eq!(subject.changes(&[], "[cdr]\nfile = \"calls.json\"\n"), ["cdr.file: none → calls.json"]);
    let path: PathBuf = subject.server.folder.path().join("calls.json");
    subject.server.until("it is opened", || path.exists());
}

/// The first configuration with another `[admin]`.
fn with_admin(subject: &Subject, admin: &str) -> String {
    let (before, _) = subject.first.split_once("[admin]").expect("the last table");
    format!("{before}[admin]\n{admin}")
}

#[test]
fn the_http_listener_changes_while_tokens_stay_and_requests_finish() {
    let (old, new) = (free_address(), free_address());
    let subject = Subject::start(&format!("[admin]\nlisten = \"{old}\"\n"));
    let server = &subject.server;
    let reload = |admin: &str| {
        server.folder.write("strowger.toml", &with_admin(&subject, admin));
        server.folder.run(&["ctl", "reload"])
    };
    let client = Client::of(server, "operator");
    let moved = Client { server: new, ..client.clone() };
    client.get("/api/v1/status").expect(200);

    // Another program has the address: nothing changes.
    let taken = TcpListener::bind(new).expect("it is free");
    let refused = reload(&format!("listen = \"{new}\"\n")).refused(1);
    assert!(refused.contains("the HTTP listener") && refused.ends_with("; nothing was changed"), "{refused}");
    let refused =
        reload(&format!("listen = \"{old}\"\ntls = {{ certificate = \"no.pem\", key = \"no.key\" }}\n")).refused(1);
    assert!(refused.contains("admin.tls: no.pem cannot be read"), "{refused}");
    drop(taken);
    client.get("/api/v1/status").expect(200);

    // The request for the change is answered by the listener that it closes.
    server.folder.write("strowger.toml", &with_admin(&subject, &format!("listen = \"{new}\"\n")));
    let done = client.ask("POST", "/api/v1/configuration/reload").expect(200);
    assert_eq!(done["changes"][0]["key"], "admin.listen", "{done}");
    server.until("the old listener is closed", || TcpStream::connect(old).is_err());
    moved.get("/api/v1/status").expect(200);

    let host = |name: &str| moved.send("GET", "/api/v1/status", &format!("Host: {name}\r\n"), None).status;
    assert_eq!(host("pbx.example"), 403);
    reload(&format!("listen = \"{new}\"\nhosts = [\"pbx.example\"]\n")).ok();
    assert_eq!(host("pbx.example"), 200);

    reload(&format!("listen = \"{new}\"\nmetrics_only = true\n")).ok();
    assert_eq!((moved.get("/api/v1/status").status, moved.get("/metrics").status), (404, 200));
    reload(&format!("listen = \"{new}\"\nmetrics_from = []\n")).ok();
    assert_eq!((moved.get("/api/v1/status").status, moved.get("/metrics").status), (200, 403));

    reload("listen = \"off\"\n").ok();
    server.until("it is off", || TcpStream::connect(new).is_err());
    reload(&format!("listen = \"{old}\"\n")).ok();
    client.get("/api/v1/status").expect(200);
}

#[test]
fn the_http_listener_gets_a_certificate_while_the_server_runs() {
    let address = free_address();
    let subject = Subject::start(&format!("[admin]\nlisten = \"{address}\"\n"));
    let folder = &subject.server.folder;
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    folder.write("admin.pem", &made.cert.pem());
    folder.write("admin.key", &made.signing_key.serialize_pem());
    fs::set_permissions(folder.path().join("admin.key"), fs::Permissions::from_mode(0o600)).expect("our file");
    let client = Client::of(&subject.server, "viewer");
    // Kept open by its client.
    let mut idle = TcpStream::connect(address).expect("it listens");
    idle.set_read_timeout(Some(PATIENCE)).expect("settable");
    idle.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
    idle.read_exact(&mut [0; 12]).expect("an answer");
    client.get("/api/v1/status").expect(200);
    let tls = format!("listen = \"{address}\"\ntls = {{ certificate = \"admin.pem\", key = \"admin.key\" }}\n");
    folder.write("strowger.toml", &with_admin(&subject, &tls));
    folder.run(&["ctl", "reload"]).ok();
    idle.read_to_end(&mut Vec::new()).expect("it ends after its response");
    let mut plain = TcpStream::connect(address).expect("it listens");
    plain.set_read_timeout(Some(PATIENCE)).expect("settable");
    plain.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
    let mut answer = Vec::new();
    // An alert, or just the end.
    drop(plain.read_to_end(&mut answer));
    assert!(!answer.starts_with(b"HTTP/"), "it speaks HTTPS only");
    assert!(
        subject.server.log().contains(&format!("administration at https://{address}/")),
        "{}",
        subject.server.log()
    );
    folder.write("strowger.toml", &subject.first);
    folder.run(&["ctl", "reload"]).ok();
    client.get("/api/v1/status").expect(200);
}
