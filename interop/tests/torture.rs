//! The torture messages of RFC 4475 and RFC 5118, sent through a real socket to a running server.
//!
//! Responses go to the source address and the port of the Via (5060 by default). Every message is therefore sent from
//! a separate loopback address on which these ports are bound. An OPTIONS after each message is the fence: once it is
//! answered, the server has sent everything in response to the message.

use std::collections::{BTreeSet, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use std::{env, fs, io};

use serde_json::Value;
use strowger_interop::{Config, PATIENCE, Route, Server, poll};

/// Time allowed for a message if none has arrived before the fence.
const GRACE: Duration = Duration::from_millis(100);
const SIP_PORT: u16 = 5060;

#[test]
fn rfc4475_as_a_proxy() {
    let Some(corpus) = Corpus::read() else { return };
    let mut rig = Rig::new(proxy);
    let mut table = Table::default();
    for message in &corpus.messages {
        rig.make_ready_for(&message.bytes);
        let seen = rig.play(&message.bytes);
        check_details(message, &seen, &mut table);
        table.row(&message.name, &seen, &message.proxy_accept);
    }
    table.finish("RFC 4475 as a proxy", 49);
}

#[test]
fn rfc4475_as_a_registrar() {
    let Some(corpus) = Corpus::read() else { return };
    let mut rig = Rig::new(registrar);
    let mut table = Table::default();
    for message in &corpus.messages {
        rig.make_ready_for(&message.bytes);
        let before = rig.server.registrations();
        let seen = rig.play(&message.bytes);
        check_details(message, &seen, &mut table);
        table.row(&message.name, &seen, &message.registrar_accept);
        let (bound, contacts) = (rig.server.registrations() - before, contacts_of(&message.name));
        if bound != contacts.len() as u64 {
            table.wrong(&message.name, &format!("{bound} contacts were bound, not {}", contacts.len()));
        }
        for contact in contacts {
            if !seen.replies.iter().any(|reply| contains(reply, format!("<{contact}>").as_bytes())) {
                table.wrong(&message.name, &format!("<{contact}> is not among the contacts"));
            }
        }
    }
    table.finish("RFC 4475 as a registrar", 49);
}

#[test]
fn rfc4475_registrations_with_passwords() {
    let Some(corpus) = Corpus::read() else { return };
    let mut rig = Rig::new(|target| Config { require: vec!["REGISTER"], ..registrar(target) });
    let mut table = Table::default();
    for message in corpus.messages.iter().filter(|message| message.bytes.starts_with(b"REGISTER ")) {
        rig.make_ready_for(&message.bytes);
        let seen = rig.play(&message.bytes);
        // A message too broken to belong to any user is refused without a challenge.
        let refused = message.registrar_accept.first().is_some_and(|first| first == "400");
        let wanted: &[&str] = if refused { &["400", "401"] } else { &["401"] };
        table.row(&message.name, &seen, &wanted.iter().map(ToString::to_string).collect::<Vec<_>>());
        if rig.server.registrations() != 0 {
            table.wrong(&message.name, "something was bound");
        }
    }
    table.finish("RFC 4475's registrations with passwords", 9);
}

#[test]
fn rfc5118_over_ipv6() {
    if let Err(error) = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)) {
        eprintln!("SKIPPED: this machine has no IPv6 ({error})");
        return;
    }
    let mut rig = Rig::new(|target| Config { host: Ipv6Addr::LOCALHOST.into(), ..proxy(target) });
    let mut table = Table::default();
    for (name, text) in rfc5118() {
        rig.make_ready_for(text.as_bytes());
        let wanted = if name == "ipv6-bad" { "400" } else { "FWD" };
        let seen = rig.play(text.as_bytes());
        table.row(name, &seen, &[wanted.to_owned()]);
    }
    table.finish("RFC 5118", 12);
}

/// RFC 4475 §3.3.10 from the other side: a request that claims to come from a broadcast address, through a stateless
/// proxy, which routes responses by the Via alone.
#[test]
fn responses_go_only_to_the_source() {
    let mut rig = Rig::new(|target| {
        let route = "[[route]]\nmatch = { domain = \"*\" }\naction = \"proxy\"\nstateless = \"always\"";
        let more = format!("\n{route}\ntargets = [\"sip:{target}\"]\n");
        Config { routes: Vec::new(), more, ..proxy(target) }
    });
    let mut table = Table::default();
    for via in ["255.255.255.255", "192.0.2.1;received=255.255.255.255", "224.0.0.1;received=192.0.2.1", "0.0.0.0"] {
        let message = request("OPTIONS", "sip:a@example.com", "sip:a@example.com", via, "CSeq: 1 OPTIONS\r\n", "");
        rig.make_ready_for(message.as_bytes());
        let seen = rig.play(message.as_bytes());
        table.row(via, &seen, &["FWD".to_owned()]);
    }
    table.finish("Claims to be everybody", 4);
}

/// Returns the configuration of a proxy that forwards everything to `target`.
fn proxy(target: SocketAddr) -> Config {
    let everything = Route { domain: "*", action: "proxy", targets: vec![format!("sip:{target}")] };
    Config { domains: vec!["served.test"], users: Vec::new(), routes: vec![everything], ..Config::open() }
}

/// Returns the configuration of a registrar that serves the messages' domains and only registers.
fn registrar(_target: SocketAddr) -> Config {
    let domains = vec![
        "example.com",
        "example.org",
        "example.net",
        "company.com",
        "registrar.example.com",
        "chair-dnrc.example.com",
    ];
    let refuse =
        |domain: &&str| format!("\n[[route]]\nmatch = {{ domain = {domain:?} }}\naction = \"reject\"\nstatus = 405\n");
    let more = domains.iter().map(refuse).collect();
    Config { domains, users: Vec::new(), more, ..Config::open() }
}

/// Returns the contacts that a registrar without passwords binds.
fn contacts_of(name: &str) -> &'static [&'static str] {
    match name {
        "escnull" => &["sip:%00@host5.example.com", "sip:%00%00@host5.example.com"],
        "dblreq" => &["sip:j.user@host.example.com"],
        // Without angle brackets the parameter belongs to the header field, within them to the URI.
        "cparam01" => &["sip:+19725552222@gw1.example.net"],
        "cparam02" => &["sip:+19725552222@gw1.example.net;unknownparam"],
        "regescrt" => &["sip:user@example.com?Route=%3Csip:sip.example.com%3E"],
        _ => &[],
    }
}

/// Checks what a message tests besides its status.
fn check_details(message: &Torture, seen: &Seen, table: &mut Table) {
    let replied = |text: &str| seen.replies.iter().any(|reply| contains(reply, text.as_bytes()));
    match message.name.as_str() {
        // Only what a proxy must understand, not what the callee must.
        "bext01" if !replied("\r\nUnsupported: noProxiesSupportThis, norDoAnyProxiesSupportThis\r\n") => {
            table.wrong("bext01", "Unsupported does not list the two tags of Proxy-Require");
        }
        _ if seen.reaction == "405" && !replied("\r\nAllow: ") => {
            table.wrong(&message.name, "a 405 without Allow");
        }
        _ => {}
    }
}

/// RFC 4475's messages with their correct treatment.
struct Corpus {
    messages: Vec<Torture>,
}

struct Torture {
    name: String,
    bytes: Vec<u8>,
    proxy_accept: Vec<String>,
    registrar_accept: Vec<String>,
}

impl Corpus {
    /// Reads the folder named by `STROWGER_CORPUS`. Without it, prints a note and returns `None`.
    fn read() -> Option<Corpus> {
        let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpus");
        let folder = env::var_os("STROWGER_CORPUS").map_or(default, PathBuf::from);
        let Ok(index) = fs::read(folder.join("rfc4475/index.json")) else {
            eprintln!("SKIPPED: the messages of RFC 4475 are not in {} (STROWGER_CORPUS)", folder.display());
            return None;
        };
        let index: Value = serde_json::from_slice(&index).expect("the index is JSON");
        let entries = index["rfc4475"].as_array().expect("the index lists the messages");
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let texts = |value: &Value| value.as_array().expect("a list").iter().map(text).collect();
        let messages = entries.iter().map(|entry| Torture {
            name: text(&entry["name"]),
            bytes: fs::read(folder.join(text(&entry["file"]))).expect("a listed message is there"),
            proxy_accept: texts(&entry["proxy_accept"]),
            registrar_accept: texts(&entry["registrar_accept"]),
        });
        Some(Corpus { messages: messages.collect() })
    }
}

/// Results of the messages so far.
#[derive(Default)]
struct Table {
    rows: Vec<String>,
    wrong: Vec<String>,
}

impl Table {
    fn row(&mut self, name: &str, seen: &Seen, wanted: &[String]) {
        let right = wanted.iter().any(|wanted| match (wanted.as_str(), seen.reaction.as_str()) {
            ("DROP" | "ABSORB", "silence") => true,
            ("LOCAL", reaction) => reaction == "200",
            (wanted, reaction) => wanted == reaction,
        });
        self.rows.push(format!("{name:<30} {:<10} {}", seen.reaction, wanted.join(" or ")));
        if !right {
            self.wrong(name, &format!("{}, wanted {}", seen.reaction, wanted.join(" or ")));
        }
        for complaint in &seen.complaints {
            self.wrong(name, complaint);
        }
    }

    fn wrong(&mut self, name: &str, complaint: &str) {
        self.wrong.push(format!("{name}: {complaint}"));
    }

    fn finish(self, title: &str, count: usize) {
        let right = self.rows.len() - self.wrong.iter().map(|w| w.split(':').next()).collect::<HashSet<_>>().len();
        println!("{title}: {right} of {count}\n{}\n", self.rows.join("\n"));
        assert!(self.wrong.is_empty(), "{title}:\n{}", self.wrong.join("\n"));
        assert_eq!(self.rows.len(), count);
    }
}

/// What one message led to.
struct Seen {
    /// `FWD`, a status, `silence`, or a description of a fault.
    reaction: String,
    /// Responses that arrived at the source before the target answered.
    replies: Vec<Vec<u8>>,
    /// Faults that do not depend on the reaction.
    complaints: Vec<String>,
}

/// A server and the target to which it forwards.
struct Rig {
    configure: fn(SocketAddr) -> Config,
    target: UdpSocket,
    fence: UdpSocket,
    fences: u32,
    server: Server,
    /// Transactions that the server has seen: some of the messages share a branch and a sent-by.
    played: HashSet<Vec<u8>>,
}

impl Rig {
    fn new(configure: fn(SocketAddr) -> Config) -> Rig {
        let host = configure(SocketAddr::from((Ipv4Addr::LOCALHOST, SIP_PORT))).host;
        let [target, fence] = [(), ()].map(|()| bind(host, 0).expect("a socket"));
        let server = configure(local(&target)).start();
        Rig { configure, target, fence, fences: 0, server, played: HashSet::new() }
    }

    /// Ensures that the server does not take the message for a retransmission of an earlier one.
    fn make_ready_for(&mut self, message: &[u8]) {
        let method = message.split(|byte| *byte == b' ').next().unwrap_or_default();
        let via = field(message, &["via", "v"]).map(|at| &message[at]).unwrap_or_default();
        let transaction = [method, via].concat();
        if !self.played.insert(transaction.clone()) {
            self.server = (self.configure)(local(&self.target)).start();
            self.played = HashSet::from([transaction]);
            drain(&self.target);
        }
    }

    /// Sends the message and returns what it led to.
    fn play(&mut self, message: &[u8]) -> Seen {
        let source = Source::new(self.server.address().ip(), message);
        source.send(message, self.server.address());
        self.pass_fence();
        let (mut replies, mut forwarded) = (Vec::new(), Vec::new());
        poll(GRACE, || {
            replies.extend(source.drain());
            forwarded.extend(drain(&self.target).into_iter().filter(|request| !request.starts_with(b"ACK ")));
            (!replies.is_empty() || !forwarded.is_empty()).then_some(())
        });
        let mut complaints = Vec::new();
        let finals: Vec<_> = replies.iter().filter(|reply| !reply.starts_with(b"SIP/2.0 100 ")).collect();
        let reaction = match (finals.as_slice(), forwarded.as_slice()) {
            ([], []) if replies.is_empty() => "silence".to_owned(),
            ([reply], []) => String::from_utf8_lossy(&reply[8..11]).into_owned(),
            ([], [request]) => {
                complaints.extend(self.find_changes(message, request, &source));
                complaints.extend(self.decline(message, request, &source));
                "FWD".to_owned()
            }
            (finals, forwarded) => format!("{} answers, {} forwarded", finals.len(), forwarded.len()),
        };
        if replies.iter().any(|reply| !is_answer_to(message, reply)) {
            complaints.push("an answer that does not repeat Via, From, Call-ID and CSeq".to_owned());
        }
        Seen { reaction, replies, complaints }
    }

    /// Waits for the answer to an OPTIONS, which shows that the server is alive and has handled everything before.
    fn pass_fence(&mut self) {
        self.fences += 1;
        let (number, server, local) = (self.fences, self.server.address(), local(&self.fence));
        let request = format!(
            "OPTIONS sip:{server} SIP/2.0\r\nVia: SIP/2.0/UDP {local};branch=z9hG4bK-fence-{number}\r\n\
             Max-Forwards: 70\r\nFrom: <sip:fence@{local}>;tag=fence\r\nTo: <sip:{server}>\r\n\
             Call-ID: fence-{number}@{local}\r\nCSeq: {number} OPTIONS\r\nContent-Length: 0\r\n\r\n"
        );
        self.fence.send_to(request.as_bytes(), server).expect("sent");
        let answered = poll(PATIENCE, || drain(&self.fence).into_iter().next());
        let answered = answered.is_some_and(|answer| answer.starts_with(b"SIP/2.0 200 "));
        assert!(answered, "the server answers no OPTIONS any more:\n{}", self.server.log());
    }

    /// Compares what a proxy must not change: everything but the topmost Via, Max-Forwards, and what it adds.
    fn find_changes(&self, message: &[u8], request: &[u8], source: &Source) -> Option<String> {
        let server = self.server.address();
        let via = format!("Via: SIP/2.0/UDP {server};branch=z9hG4bK");
        let record_route = format!("Record-Route: <sip:{server};lr;");
        let mut additions = vec![via.as_str(), record_route.as_str(), "Max-Breadth: 60\r\n"];
        let mut expected = message[..end_of(message)].to_vec();
        match field(message, &["max-forwards"]) {
            Some(at) => {
                let hops: u8 = String::from_utf8_lossy(&message[at.clone()]).parse().expect("it was forwarded");
                expected.splice(at, (hops - 1).to_string().into_bytes());
            }
            None => additions.push("Max-Forwards: 70\r\n"),
        }
        // The route's target is put before the message's own Routes, so these stay unchanged (§16.6 step 6).
        complete_via(&mut expected, source);

        let start = line_end(request, 0);
        let mut added = start;
        while let Some(addition) = additions.iter().position(|text| request[added..].starts_with(text.as_bytes())) {
            additions.remove(addition);
            added = line_end(request, added);
        }
        let left = [&request[..start], &request[added..]].concat();
        if additions.first() == Some(&via.as_str()) {
            return Some("it was forwarded without a Via of the server's".to_owned());
        }
        (left != expected).then(|| {
            let (left, expected) = (left.escape_ascii(), expected.escape_ascii());
            format!("it was forwarded with changes:\n   {left}\n   instead of\n   {expected}")
        })
    }

    /// Makes the target decline the forwarded request. The source must get the response with its own Vias unchanged.
    fn decline(&self, message: &[u8], request: &[u8], source: &Source) -> Option<String> {
        let head = &request[line_end(request, 0)..head_end(request) - 2];
        let copied = lines(head).filter(|line| {
            let name = name_of(line);
            ["via", "v", "from", "f", "to", "t", "call-id", "i", "cseq"].contains(&name.as_str())
        });
        let copied: Vec<u8> = copied.flatten().copied().collect();
        let response = [b"SIP/2.0 480 Not Now\r\n", copied.as_slice(), b"Content-Length: 0\r\n\r\n"].concat();
        self.target.send_to(&response, self.server.address()).expect("sent");
        let answer =
            poll(PATIENCE, || source.drain().into_iter().find(|answer| answer.starts_with(b"SIP/2.0 480 Not Now\r\n")));
        let Some(answer) = answer else { return Some("the target's answer does not reach the source".to_owned()) };
        (!is_answer_to(message, &answer)).then(|| "the target's answer comes back changed".to_owned())
    }
}

/// Source of a message: the ports at which it expects responses, on a separate loopback address.
struct Source {
    sockets: Vec<UdpSocket>,
}

impl Source {
    fn new(server: IpAddr, message: &[u8]) -> Source {
        static NEXT: AtomicU8 = AtomicU8::new(1);
        let [process, _, ..] = std::process::id().to_le_bytes();
        // The second byte avoids 127.0, the third distinguishes test runs.
        let ip = match server {
            IpAddr::V4(_) => Ipv4Addr::new(127, 75, process, NEXT.fetch_add(1, Ordering::Relaxed)).into(),
            IpAddr::V6(_) => server,
        };
        let head = String::from_utf8_lossy(&message[..head_end(message)]).into_owned();
        let vias = head.split("\r\n").filter(|line| ["via", "v"].contains(&name_of(line.as_bytes()).as_str()));
        let named = vias.filter_map(|via| {
            let sent_by = via.split(';').next()?;
            sent_by.rsplit(':').next()?.trim().parse::<u16>().ok().filter(|port| *port > 1024)
        });
        let ports: BTreeSet<u16> = named.chain([SIP_PORT]).collect();
        let open = |port| {
            // With only one address available, another test run may hold it for a moment.
            let socket = poll(PATIENCE, || bind(ip, port).ok());
            socket.unwrap_or_else(|| panic!("{} is taken", SocketAddr::new(ip, port)))
        };
        Source { sockets: ports.into_iter().map(open).collect() }
    }

    fn send(&self, message: &[u8], server: SocketAddr) {
        self.first().send_to(message, server).expect("sent");
    }

    fn address(&self) -> SocketAddr {
        local(self.first())
    }

    fn drain(&self) -> Vec<Vec<u8>> {
        self.sockets.iter().flat_map(drain).collect()
    }

    fn first(&self) -> &UdpSocket {
        self.sockets.first().expect("a source has a socket")
    }
}

/// Writes the source of the message into the topmost Via, as the server must.
fn complete_via(message: &mut Vec<u8>, source: &Source) {
    let at = field(message, &["via", "v"]).expect("it was forwarded");
    let all = String::from_utf8(message[at.clone()].to_vec()).expect("it was forwarded");
    let (top, others) = match all.split_once(',') {
        Some((top, others)) => (top.to_owned(), format!(",{others}")),
        None => (all, String::new()),
    };
    let address = source.address();
    let top = match top.split_once("received=") {
        Some((before, behind)) => {
            let rest = behind.find(';').map_or("", |end| &behind[end..]);
            format!("{before}received={}{rest}", address.ip())
        }
        None => format!("{top};received={}", address.ip()),
    };
    let top = top.replace(";rport;", &format!(";rport={};", address.port()));
    message.splice(at, (top + &others).into_bytes());
}

/// Returns whether a response repeats what it must of the request: all Vias (the first may have additions), From,
/// Call-ID, CSeq.
fn is_answer_to(message: &[u8], response: &[u8]) -> bool {
    let values = |bytes: &[u8], names: &[&str]| -> Vec<Vec<u8>> {
        let head = &bytes[..head_end(bytes)];
        let lines = lines(&head[line_end(head, 0)..]).filter(|line| names.contains(&name_of(line).as_str()));
        lines
            .map(|line| line[line.iter().position(|byte| *byte == b':').unwrap_or(0) + 1..].trim_ascii().to_vec())
            .collect()
    };
    let same = |names: &[&str]| values(message, names) == values(response, names);
    let (asked, told) = (values(message, &["via", "v"]), values(response, &["via", "v"]));
    let host = |via: &Vec<u8>| via.split(|byte| *byte == b';').next().map(<[u8]>::to_vec);
    same(&["from", "f"])
        && same(&["call-id", "i"])
        && same(&["cseq"])
        && asked.first().and_then(host) == told.first().and_then(host)
        && asked.get(1..) == told.get(1..)
}

/// Returns the end of a message: after the body of the length given by Content-Length.
fn end_of(message: &[u8]) -> usize {
    let length = field(message, &["content-length", "l"]).map(|at| String::from_utf8_lossy(&message[at]).into_owned());
    length.map_or(message.len(), |length| head_end(message) + length.parse::<usize>().expect("it was forwarded"))
}

/// Returns the range of the value of the first field with one of these names.
fn field(message: &[u8], names: &[&str]) -> Option<Range<usize>> {
    let mut at = line_end(message, 0);
    while at + 2 < head_end(message) {
        let end = line_end(message, at);
        let line = &message[at..end];
        if names.contains(&name_of(line).as_str()) {
            let colon = line.iter().position(|byte| *byte == b':')?;
            let value = &line[colon + 1..];
            let start = at + colon + 1 + (value.len() - value.trim_ascii_start().len());
            return Some(start..start + value.trim_ascii().len());
        }
        at = end;
    }
    None
}

/// Returns a field's name in lower case.
fn name_of(line: &[u8]) -> String {
    let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
    String::from_utf8_lossy(name).trim().to_ascii_lowercase()
}

/// Returns the lines of a head with their line ends. Folded lines are returned whole.
fn lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = head;
    std::iter::from_fn(move || {
        let (line, tail) = rest.split_at(line_end(rest, 0));
        rest = tail;
        (!line.is_empty()).then_some(line)
    })
}

/// Returns the end of the line at `from`, including folds and CRLF.
fn line_end(message: &[u8], from: usize) -> usize {
    let mut at = from;
    while let Some(found) = message[at..].windows(2).position(|pair| pair == b"\r\n") {
        at += found + 2;
        if !matches!(message.get(at), Some(b' ' | b'\t')) {
            return at;
        }
    }
    message.len()
}

/// Returns the offset after the empty line, or the length of the message if there is none.
fn head_end(message: &[u8]) -> usize {
    message.windows(4).position(|end| end == b"\r\n\r\n").map_or(message.len(), |at| at + 4)
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

fn bind(ip: IpAddr, port: u16) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((ip, port))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn local(socket: &UdpSocket) -> SocketAddr {
    socket.local_addr().expect("a bound socket has an address")
}

/// Returns all queued datagrams.
fn drain(socket: &UdpSocket) -> Vec<Vec<u8>> {
    let mut buffer = vec![0; 65_536];
    let mut datagrams = Vec::new();
    loop {
        match socket.recv(&mut buffer) {
            Ok(length) => datagrams.push(buffer[..length].to_vec()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return datagrams,
            // An ICMP error for an earlier datagram.
            Err(_) => {}
        }
    }
}

/// Returns the messages of RFC 5118 §4.1 to §4.10. Each has its own branch, since one server gets them all. The body
/// length is that of the lines as they are here.
fn rfc5118() -> Vec<(&'static str, String)> {
    let register = |uri: &str| {
        let rest = "Contact: \"Caller\" <sip:caller@[2001:db8::1]>\r\nCSeq: 98176 REGISTER\r\n";
        request("REGISTER", uri, "sip:user@example.com", "[2001:db8::9:1]", rest, "")
    };
    let invite = |uri: &str, via: &str, contact: &str, sdp: &[&str]| {
        let rest = format!("Contact: {contact}\r\nCSeq: 8612 INVITE\r\nContent-Type: application/sdp\r\n");
        request("INVITE", uri, uri, via, &rest, &(sdp.join("\r\n") + "\r\n"))
    };
    let received = |method: &str, to: &str, received: &str, contact: &str| {
        let (via, rest) = (format!("[2001:db8::9:1];received={received}"), format!("{contact}CSeq: 321 {method}\r\n"));
        request(method, "sip:[2001:db8::10]", to, &via, &rest, "")
    };
    let options = |uri: &str| request("OPTIONS", uri, uri, "lab1.east.example.com", "CSeq: 689 OPTIONS\r\n", "");
    let video = ["m=video 6024 RTP/AVP 107", "a=rtpmap:107 H263-1998/90000"];
    let session = |address: &str, subject: &str| {
        let origin = format!("o=assistant 971731711378798081 0 IN IP6 {address}");
        let media = "t=3338481189 3370017201\r\nm=audio 6000 RTP/AVP 2\r\na=rtpmap:2 G726-32/8000";
        ["v=0", &origin, subject, &format!("c=IN IP6 {address}"), media, video[0], video[1]].join("\r\n")
    };
    let two_families = [
        "v=0\r\no=bob 280744730 28977631 IN IP4 host.example.com\r\ns=\r\nt=0 0\r\nm=audio 22334 RTP/AVP 0",
        "c=IN IP4 192.0.2.1",
        video[0],
        "c=IN IP6 2001:db8::1",
        video[1],
    ];
    let caller = "\"Caller\" <sip:caller@[2001:db8::20]>";
    let messages = [
        ("ipv6-good", register("sip:[2001:db8::10]")),
        ("ipv6-bad", register("sip:2001:db8::10")),
        ("port-ambiguous", register("sip:[2001:db8::10:5070]")),
        ("port-unambiguous", register("sip:[2001:db8::10]:5070")),
        ("via-received-param-with-delim", received("BYE", "sip:user@example.com;tag=bd76ya", "[2001:db8::9:255]", "")),
        (
            "via-received-param-no-delim",
            received(
                "OPTIONS",
                "sip:user@example.com",
                "2001:db8::9:255",
                "Contact: \"Caller\" <sip:caller@[2001:db8::9:1]>\r\n",
            ),
        ),
        (
            "ipv6-in-sdp",
            invite(
                "sip:user@[2001:db8::10]",
                "[2001:db8::20]",
                caller,
                &[&session("2001:db8::20", "s=Live video feed for today's meeting")],
            ),
        ),
        (
            "mult-ip-in-header",
            request(
                "BYE",
                "sip:user@host.example.net",
                "sip:user@example.net;tag=9817--94",
                "[2001:db8::9:1]:6050",
                "Via: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bKjhja8781hjuaij65144\r\n\
                 Via: SIP/2.0/TCP [2001:db8::9:255];branch=z9hG4bK451jj;received=192.0.2.200\r\nCSeq: 89187 BYE\r\n",
                "",
            ),
        ),
        ("mult-ip-in-sdp", invite("sip:user@[2001:db8::10]", "[2001:db8::9:1]", caller, &two_families)),
        (
            "ipv4-mapped-ipv6",
            invite(
                "sip:user@example.com",
                "[::ffff:192.0.2.10]:19823",
                "\"T. desk phone\" <sip:ted@[::ffff:192.0.2.2]>\r\n\
                 Via: SIP/2.0/UDP [::ffff:192.0.2.2];branch=z9hG4bKas3-111",
                &[&session("::ffff:192.0.2.2", "s=Call me soon, please!")],
            ),
        ),
        ("ipv6-bug-abnf-3-colons", options("sip:user@[2001:db8:::192.0.2.1]")),
        ("ipv6-correct-abnf-2-colons", options("sip:user@[2001:db8::192.0.2.1]")),
    ];
    messages.map(|(name, text)| (name, text.replace("BRANCH", name))).to_vec()
}

/// Builds a request as in RFC 5118, with `BRANCH` in place of its own branch.
fn request(method: &str, uri: &str, to: &str, via: &str, rest: &str, body: &str) -> String {
    format!(
        "{method} {uri} SIP/2.0\r\nTo: {to}\r\nFrom: sip:user@example.com;tag=81x2\r\n\
         Via: SIP/2.0/UDP {via};branch=z9hG4bKas3-BRANCH\r\nCall-ID: SSG9559905523997077@hlau_4100\r\n\
         Max-Forwards: 70\r\n{rest}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}
