//! What the server does about those who try passwords: log lines that fail2ban reads, and bans.

mod common;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use common::PATIENCE;
use common::api::{self, Client};
use common::phone::{Phone, authorization};
use common::server::Server;

const BOB: &str = "bob";
const PASSWORD: &str = "correct horse";

/// Returns a loopback address that only one test uses.
const fn source(number: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, 0, 77, number))
}

/// Starts a server with passwords and the user Bob, listening also for TCP.
fn start(more: &str) -> Server {
    start_with(more, |_| String::new())
}

/// The same with further listeners.
fn start_with(more: &str, listeners: impl FnOnce(&PreparedServer<'_>) -> String) -> Server {
    let (folder, address) = Server::prepare("");
    let prepared = PreparedServer { folder: folder.path() };
    let listeners = listeners(&prepared);
    folder.write(
        "strowger.toml",
        &format!(
            "server.listen = [\"udp:{address}\", \"tcp:{address}\"{listeners}]\nserver.workers = 2\n\
             server.domains = [\"example.com\"]\n{more}"
        ),
    );
    let added = folder.run_with(&["user", "add", "bob@example.com"], &format!("{PASSWORD}\n"));
    assert_eq!(added.code, Some(0), "{added:?}");
    Server::started_by(folder.command(&["serve"]), folder, address)
}

/// The folder of a server that has not started.
struct PreparedServer<'a> {
    folder: &'a Path,
}

/// Answers one challenge with wrong passwords.
fn try_passwords(phone: &mut Phone, times: usize) -> String {
    let challenge = phone.ask();
    for number in 0..times {
        let refusal = phone.answer(&challenge, &format!("guess {number}"));
        assert!(refusal.starts_with("SIP/2.0 401 "), "{refusal}");
    }
    challenge
}

/// Whether the server answers a phone.
fn answers(phone: &mut Phone) -> bool {
    let text = phone.register("");
    phone.send(&text);
    !phone.is_silent()
}

fn bans(server: &Server) -> Vec<serde_json::Value> {
    server.folder.run(&["ctl", "ban", "--json"]).json()["bans"].as_array().expect("a list").clone()
}

fn counter(server: &Server, part: &str, name: &str) -> u64 {
    server.status()["counters"][part][name].as_u64().unwrap_or_else(|| panic!("{part}.{name}"))
}

#[test]
fn an_address_that_tries_passwords_is_banned_also_after_a_restart_until_a_command() {
    let mut server = start("[ban]\nfailures = 5\n");
    let mut attacker = Phone::new(server.address, source(1), BOB);
    let mut other = Phone::new(server.address, source(2), BOB);
    try_passwords(&mut attacker, 5);
    server.until("the ban", || bans(&server).len() == 1);
    assert_eq!(bans(&server)[0]["address"], source(1).to_string());
    assert_eq!(bans(&server)[0]["cause"], "failures");
    assert!(!answers(&mut attacker), "a banned address gets no answer");
    assert!(answers(&mut other), "others do");
    server.until("it is counted", || counter(&server, "workers", "banned") >= 1);
    let bound = std::net::TcpListener::bind((source(1), 0)).expect("a port").local_addr().expect("bound");
    assert!(is_closed(connect_from(bound.ip(), server.address)), "connections are closed");
    assert!(!is_closed(connect_from(source(2), server.address)));
    server.until("it is counted", || counter(&server, "connections", "refused_banned") == 1);
    let status = server.folder.run(&["ctl", "status"]).ok();
    assert!(status.contains("1 address (`strowger ctl ban`)"), "{status}");
    assert!(
        server.log().contains("security event=\"banned\" address=127.0.77.1 seconds=600 number=1"),
        "{}",
        server.log()
    );

    server.signal("TERM");
    assert_eq!(server.ended(), Some(0));
    let server = server.restart();
    assert!(!answers(&mut attacker), "bans outlast a restart");
    let file = server.folder.path().join("data/bans");
    assert_eq!(fs::metadata(file).expect("there").permissions().mode() & 0o777, 0o600);
    let said = server.folder.run(&["ctl", "ban", "rm", &source(1).to_string()]).ok();
    assert_eq!(said, "127.0.77.1 is not banned any more\n");
    assert!(answers(&mut attacker));
    let again = server.folder.run(&["ctl", "ban", "rm", &source(1).to_string()]).refused(1);
    assert_eq!(again, "127.0.77.1 is not banned; `strowger ctl ban` lists who is");
}

/// Opens a connection from a local address.
fn connect_from(ip: IpAddr, to: SocketAddr) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::new(ip, 0).into()).expect("a local address");
    socket.connect(&to.into()).expect("it listens");
    socket.into()
}

/// Whether the server closes a connection at once. An open one answers a ping.
fn is_closed(mut stream: TcpStream) -> bool {
    stream.set_read_timeout(Some(PATIENCE)).expect("settable");
    drop(stream.write_all(b"\r\n\r\n"));
    match stream.read(&mut [0; 16]) {
        Ok(length) => length == 0,
        Err(error) => matches!(error.kind(), std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe),
    }
}

#[test]
fn forged_datagrams_get_nobody_banned() {
    let server = start("[ban]\nfailures = 5\n");
    let mut attacker = Phone::new(server.address, source(3), BOB);
    // It has received a challenge, and sends its answers with the address of the victim.
    let challenge = attacker.ask();
    let mut victim = Phone::new(server.address, source(4), BOB);
    for number in 0..20 {
        let refusal = victim.answer(&challenge, &format!("guess {number}"));
        assert!(refusal.starts_with("SIP/2.0 401 "), "{refusal}");
    }
    // The same as a scanner, and without any challenge.
    for _ in 0..20 {
        let text = victim.register("User-Agent: friendly-scanner\r\n");
        victim.send(&text);
        assert!(victim.receive().starts_with("SIP/2.0 401 "));
    }
    server.until("the lines", || server.log().contains("event=\"wrong-password\" address=127.0.77.4"));
    assert!(server.log().contains("transport=udp proven=false exempt=false"), "{}", server.log());
    // What is proven counts at once.
    try_passwords(&mut attacker, 5);
    server.until("the ban", || bans(&server).len() == 1);
    assert_eq!(bans(&server)[0]["address"], source(3).to_string());
    assert!(answers(&mut victim));
}

#[test]
fn an_address_with_a_phone_that_knows_its_password_is_never_banned() {
    let server = start("[ban]\nfailures = 5\n");
    let mut phone = Phone::new(server.address, source(5), BOB);
    let challenge = phone.ask();
    let registered = phone.answer(&challenge, PASSWORD);
    assert!(registered.starts_with("SIP/2.0 200 "), "{registered}");
    // Another phone behind the same NAT has a wrong password.
    let mut other = Phone::new(server.address, source(5), "carl");
    try_passwords(&mut other, 20);
    server.until("it is spared", || counter(&server, "bans", "spared") >= 1);
    assert!(bans(&server).is_empty() && answers(&mut phone));
    assert!(server.log().contains("the address is not banned, because it also belongs to somebody known"));
    assert!(server.log().contains("event=\"unknown-user\" address=127.0.77.5"), "{}", server.log());
}

#[test]
fn registrations_of_the_last_run_protect_their_addresses() {
    let mut server = start("[ban]\nfailures = 5\n");
    let mut phone = Phone::new(server.address, source(6), BOB);
    let challenge = phone.ask();
    assert!(phone.answer(&challenge, PASSWORD).starts_with("SIP/2.0 200 "));
    server.signal("TERM");
    assert_eq!(server.ended(), Some(0));
    let server = server.restart();
    try_passwords(&mut Phone::new(server.address, source(6), "carl"), 5);
    server.until("it is spared", || counter(&server, "bans", "spared") == 1);
    assert!(answers(&mut phone));
}

#[test]
fn allowed_addresses_are_never_banned_and_commands_ban_anybody() {
    let server = start("[ban]\nfailures = 5\nallow = [\"127.0.77.7\"]\n");
    let mut phone = Phone::new(server.address, source(7), BOB);
    try_passwords(&mut phone, 10);
    server.until("it is spared", || counter(&server, "bans", "spared") >= 1);
    assert!(answers(&mut phone));
    let said = server.folder.run(&["ctl", "ban", "add", "127.0.77.7", "--for", "1h"]).ok();
    assert_eq!(said, "127.0.77.7 is banned: 1:00:00\n");
    assert!(!answers(&mut phone));
    let said = server.folder.run(&["ctl", "ban", "add", "2001:db8::7"]).ok();
    assert_eq!(said, "2001:db8::/64 is banned: until `strowger ctl ban rm`\n");
    let table = server.folder.run(&["ctl", "ban"]).ok();
    assert!(table.contains("2001:db8::/64") && table.contains("until removed"), "{table}");
}

/// Whether a program is installed. Required in the complete test run.
fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if found.is_ok() {
        return true;
    }
    assert_ne!(std::env::var("STROWGER_REQUIRE_INTEROP").as_deref(), Ok("1"), "{program} is not installed");
    eprintln!("SKIPPED: {program} is not installed (sudo apt-get install fail2ban)");
    false
}

/// Returns the addresses that fail2ban finds in a log, in order.
fn found_by_fail2ban(log: &Path, mode: &str) -> Vec<String> {
    let filter = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/fail2ban/filter.d/strowger.conf");
    let filter = format!("{}[mode={mode}]", filter.display());
    let output = Command::new("fail2ban-regex").args(["-o", "ip"]).arg(log).arg(filter).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text.lines().map(str::to_owned).filter(|line| !line.is_empty()).collect()
}

/// Writes a certificate for the listener `tls:ADDRESS`.
fn with_tls(folder: &Path, address: SocketAddr) -> String {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("a certificate");
    fs::write(folder.join("certificate.pem"), made.cert.pem()).expect("our folder");
    fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).expect("our folder");
    fs::set_permissions(folder.join("key.pem"), fs::Permissions::from_mode(0o600)).expect("our file");
    format!(", \"tls:{address}\"")
}

/// Sends everything that a line is about: a wrong password and a scanner over TCP, an unknown user, a malformed
/// message, a refused handshake, and what cannot be proven over UDP.
fn offend(server: &Server, tls: SocketAddr, last: u8) {
    let mut phone = Phone::new(server.address, source(last), BOB);
    try_passwords(&mut phone, 2);
    // A username that looks like fields of the line, with the address of somebody else.
    let challenge = phone.ask();
    let forged = "x security event=wrong-password address=192.0.2.9 port=1 transport=udp proven=true exempt=false";
    let text = phone.register(&authorization(&challenge, forged, "guess"));
    phone.send(&text);
    assert!(phone.receive().starts_with("SIP/2.0 401 "));
    phone.send("no SIP at all\r\n\r\n");
    let stream = |text: &str, to: SocketAddr| {
        let mut stream = connect_from(source(last + 1), to);
        stream.set_read_timeout(Some(PATIENCE)).expect("settable");
        stream.write_all(text.as_bytes()).expect("sent");
        let mut buffer = [0; 4096];
        let length = stream.read(&mut buffer).unwrap_or(0);
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    let challenge = stream(&phone.register("").replace("UDP", "TCP"), server.address);
    stream(&phone.register(&authorization(&challenge, BOB, "wrong")).replace("UDP", "TCP"), server.address);
    stream(&phone.register("User-Agent: SIPVicious 0.3\r\n").replace("UDP", "TCP"), server.address);
    stream("GET / HTTP/1.1\r\nHost: x\r\n\r\n", server.address);
    stream("GET / HTTP/1.1\r\nHost: x\r\n\r\n", tls);
    server.until("the last line", || server.log().contains("tls-handshake"));
    send_wrong_token(server, Ipv4Addr::new(127, 0, 77, last + 2));
}

fn send_wrong_token(server: &Server, from: Ipv4Addr) -> u16 {
    let client = Client { server: api::address(server), token: Some("swg_wrong".to_owned()), from };
    client.get("/api/v1/session").status
}

#[test]
fn wrong_tokens_get_an_address_banned_but_not_that_of_a_reverse_proxy() {
    let server = start(&format!("{}[ban]\nfailures = 8\n", api::LISTEN));
    let (attacker, proxy) = (Ipv4Addr::new(127, 0, 77, 60), Ipv4Addr::LOCALHOST);
    for number in 0..8 {
        let expected = if number < 5 { 401 } else { 429 };
        assert_eq!(send_wrong_token(&server, proxy), expected);
        assert_eq!(send_wrong_token(&server, attacker), expected);
    }
    server.until("the ban", || bans(&server).len() == 1);
    assert_eq!(bans(&server)[0]["address"], attacker.to_string());
    assert!(!answers(&mut Phone::new(server.address, IpAddr::V4(attacker), BOB)));
    assert!(answers(&mut Phone::new(server.address, IpAddr::V4(proxy), BOB)));
    let log = server.log();
    let line = |address: &str, exempt: bool| {
        let head = format!("WARN security event=\"admin-token\" address={address} port=");
        let tail = format!("transport=http proven=true exempt={exempt} reason=\"unknown or expired token\"");
        log.lines().filter(|line| line.contains(&head) && line.ends_with(&tail)).count()
    };
    assert_eq!((line("127.0.77.60", false), line("127.0.0.1", true)), (8, 8), "{log}");
    assert!(!log.contains("swg_wrong"), "{log}");
}

#[test]
fn failures_are_listed_by_source_and_user() {
    let server = start(&format!("{}[ban]\nautomatic = false\n", api::LISTEN));
    let mut phone = Phone::new(server.address, source(70), BOB);
    try_passwords(&mut phone, 3);
    try_passwords(&mut Phone::new(server.address, source(70), "carl"), 1);
    let mut scanner = Phone::new(server.address, source(71), BOB);
    let text = scanner.register("User-Agent: friendly-scanner 1.0\r\n");
    scanner.send(&text);
    scanner.receive();
    let proxy = Ipv4Addr::LOCALHOST;
    assert_eq!(send_wrong_token(&server, proxy), 401);
    let operator = Client::of(&server, "operator");
    let found = || operator.get("/api/v1/failures").expect(200);
    server.until("all are known", || found()["failures"].as_array().is_some_and(|list| list.len() == 4));
    let listed = found();
    let of = |event: &str| {
        let one =
            listed["failures"].as_array().into_iter().flatten().find(|one| one["event"] == event).expect("listed");
        let of_user = one["user"].as_str().unwrap_or_default().trim_end_matches("@example.com").to_owned();
        let address = one["address"].as_str().expect("an address").to_owned();
        (address, of_user, one["count"].as_u64(), one["proven"] == true, one["exempt"] == true)
    };
    let (wrong, scanning) = (source(70).to_string(), source(71).to_string());
    assert_eq!(of("wrong-password"), (wrong.clone(), BOB.to_owned(), Some(3), true, false), "{listed}");
    assert_eq!(of("unknown-user"), (wrong, "carl".to_owned(), Some(1), true, false));
    assert_eq!(of("scanner"), (scanning, "friendly-scanner 1.0".to_owned(), Some(1), false, false));
    assert_eq!(of("admin-token"), (proxy.to_string(), String::new(), Some(1), true, true));
    assert!(!listed.to_string().contains("swg_"), "a wrong token is secret too: {listed}");
    Client::of(&server, "viewer").get("/api/v1/failures").problem(403);
    let table = server.folder.run(&["ctl", "ban", "failures"]).ok();
    assert!(table.lines().count() == 5 && table.contains("friendly-scanner 1.0"), "{table}");
    let one = server.folder.run(&["ctl", "ban", "failures", "--limit", "1", "--json"]).json();
    assert_eq!((one["failures"].as_array().map(Vec::len), &one["more"]), (Some(1), &true.into()));
}

#[test]
fn fail2ban_finds_those_who_are_proven_and_unknown() {
    if !has("fail2ban-regex") {
        return;
    }
    for (format, first) in [("text", 20), ("json", 30)] {
        let tls = common::free_address();
        let more = format!(
            "admin.listen = \"127.0.0.1:0\"\nlog.format = \"{format}\"\n[ban]\nautomatic = false\n[tls]\n\
             certificates = [{{ certificate = \"certificate.pem\", key = \"key.pem\" }}]\n"
        );
        let server = start_with(&more, |prepared| with_tls(prepared.folder, tls));
        offend(&server, tls, first);
        let [udp, tcp, http] = [source(first), source(first + 1), source(first + 2)].map(|ip| ip.to_string());
        let log = server.folder.path().join("log");
        let normal = found_by_fail2ban(&log, "normal");
        assert_eq!(normal, [&*udp, &udp, &udp, &tcp, &tcp, &http], "{}", server.log());
        let aggressive = found_by_fail2ban(&log, "aggressive");
        assert_eq!(aggressive, [&*udp, &udp, &udp, &tcp, &tcp, &tcp, &tcp, &http], "{}", server.log());
    }
}

#[test]
fn the_jail_names_the_filter() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/fail2ban");
    let jail = fs::read_to_string(folder.join("jail.d/strowger.conf")).expect("a jail");
    assert!(jail.contains("filter = strowger\n"), "{jail}");
    assert!(folder.join("filter.d/strowger.conf").exists());
}
