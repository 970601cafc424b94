//! The torture messages of RFC 4475 and RFC 5118, sent through a real socket to a running server.
//!
//! Responses go to the source's address and the port that the Via names, 5060 where it names none, so every message is
//! sent from a loopback address of its own on which those ports are bound. An OPTIONS behind each message is the fence:
//! once it is answered, what the server had to say about the message has been said.

use std::collections::{BTreeSet, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use std::{env, fs, io};

use serde_json::Value;
use strowger_interop::{Config, PATIENCE, Route, Server, poll};

/// How long something may still come where nothing came before the fence.
const GRACE: Duration = Duration::from_millis(100);
const SIP_PORT: u16 = 5060;

#[test]
fn rfc4475_as_a_proxy() {
    let Some(corpus) = Corpus::read() else { return };
    let mut rig = Rig::new(proxy);
    let mut table = Table::default();
    for message in &corpus.messages {
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
        let before = rig.server_for(&message.bytes).registrations();
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
        let seen = rig.play(&message.bytes);
        // What is too broken to be anybody's is refused before anybody is asked who it is.
        let refused = message.registrar_accept.first().is_some_and(|first| first == "400");
        let wanted: &[&str] = if refused { &["400", "401"] } else { &["401"] };
        table.row(&message.name, &seen, &wanted.iter().map(ToString::to_string).collect::<Vec<_>>());
        if rig.server.registrations() != 0 {
            table.wrong(&message.name, "something was bound");
        }
    }
    table.finish("RFC 4475's registrations with passwords", 10);
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
        let wanted = if name == "ipv6-bad" { "400" } else { "FWD" };
        let seen = rig.play(text.as_bytes());
        table.row(name, &seen, &[wanted.to_owned()]);
    }
    table.finish("RFC 5118", 12);
}

/// Everything is for others, and goes to `target`.
fn proxy(target: SocketAddr) -> Config {
    let everything = Route { domain: "*", action: "proxy", targets: vec![format!("sip:{target}")] };
    Config { domains: vec!["served.test"], users: Vec::new(), routes: vec![everything], ..Config::open() }
}

/// The domains of the messages are its own, and it does nothing else for them than to register.
fn registrar(_target: SocketAddr) -> Config {
    let domains = vec![
        "example.com",
        "example.org",
        "example.net",
        "company.com",
        "registrar.example.com",
        "chair-dnrc.example.com",
    ];
    let refuse = |domain: &&str| {
        format!("\n[[route]]\nmatch = {{ domain = {domain:?} }}\naction = \"reject\"\nstatus = 405\n")
    };
    let more = domains.iter().map(refuse).collect();
    Config { domains, users: Vec::new(), more, ..Config::open() }
}

/// The contacts that a registrar without passwords binds.
fn contacts_of(name: &str) -> &'static [&'static str] {
    match name {
        "escnull" => &["sip:%00@host5.example.com", "sip:%00%00@host5.example.com"],
        "dblreq" => &["sip:j.user.dblreq@host.example.com"],
        // Without angle brackets the parameter is the header's; within them it is the URI's.
        "cparam01" => &["sip:+19725552222@gw1.example.net"],
        "cparam02" => &["sip:+19725552222@gw1.example.net;unknownparam"],
        "regescrt" => &["sip:user@example.com?Route=%3Csip:sip.example.com%3E"],
        _ => &[],
    }
}

/// What a message's trap is, besides its status.
fn check_details(message: &Torture, seen: &Seen, table: &mut Table) {
    let replied = |text: &str| seen.replies.iter().any(|reply| contains(reply, text.as_bytes()));
    match message.name.as_str() {
        // Only what a proxy must understand, not what the callee must.
        "bext01" if !replied("\r\nUnsupported: nothingSupportsThis, nothingSupportsThisEither\r\n") => {
            table.wrong("bext01", "Unsupported does not list the two tags of Proxy-Require");
        }
        _ if seen.reaction == "405" && !replied("\r\nAllow: ") => {
            table.wrong(&message.name, "a 405 without Allow");
        }
        _ => {}
    }
}

/// RFC 4475's messages with what is right to do with them.
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
    /// From the folder that `STROWGER_CORPUS` names; `None`, and a word about it, where there is none.
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

/// What came of the messages so far.
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
    /// `FWD`, a status, `silence`, or what should not be.
    reaction: String,
    /// The responses that came back to the source before the target answered.
    replies: Vec<Vec<u8>>,
    /// What is wrong, whatever the reaction.
    complaints: Vec<String>,
}

/// A server, and the place where it forwards to.
struct Rig {
    configure: fn(SocketAddr) -> Config,
    target: UdpSocket,
    fence: UdpSocket,
    fences: u32,
    server: Server,
    /// What the server has seen: transactions are told apart by these, and RFC 4475 uses some more than once.
    played: HashSet<Vec<u8>>,
}

impl Rig {
    fn new(configure: fn(SocketAddr) -> Config) -> Rig {
        let host = configure(SocketAddr::from((Ipv4Addr::LOCALHOST, 9))).host;
        let [target, fence] = [(), ()].map(|()| bind(SocketAddr::new(host, 0)).expect("a socket"));
        let server = configure(local(&target)).start();
        Rig { configure, target, fence, fences: 0, server, played: HashSet::new() }
    }

    /// A server that does not take the message for a retransmission of one before: another one, where it would.
    fn server_for(&mut self, message: &[u8]) -> &Server {
        let method = message.split(|byte| *byte == b' ').next().unwrap_or_default();
        let via = field(message, &["via", "v"]).map(|value| &message[value]).unwrap_or_default();
        let transaction = [method, via].concat();
        if self.played.contains(&transaction) {
            self.played.clear();
            self.server = (self.configure)(local(&self.target)).start();
            drain(&self.target);
        }
        self.played.insert(transaction);
        &self.server
    }

    /// Sends the message and sees what becomes of it.
    fn play(&mut self, message: &[u8]) -> Seen {
        if !self.played.contains(&[message.split(|byte| *byte == b' ').next().unwrap_or_default(), &[0]].concat()) {}
        self.server_for_once(message);
        let source = Source::new(self.server.address().ip(), message);
        source.sockets[0].send_to(message, self.server.address()).expect("sent");
        self.fence();
        let (mut replies, mut forwarded) = (Vec::new(), Vec::new());
        poll(GRACE, || {
            replies.extend(source.drain());
            forwarded.extend(drain(&self.target).into_iter().filter(|(bytes, _)| !bytes.starts_with(b"ACK ")));
            (!replies.is_empty() || !forwarded.is_empty()).then_some(())
        });
        let mut complaints = Vec::new();
        let finals: Vec<_> = replies.iter().filter(|reply| !reply.starts_with(b"SIP/2.0 100 ")).collect();
        let reaction = match (finals.as_slice(), forwarded.as_slice()) {
            ([], []) if replies.is_empty() => "silence".to_owned(),
            ([reply], []) => String::from_utf8_lossy(&reply[8..11]).into_owned(),
            ([], [(request, from)]) => {
                complaints.extend(self.complaint(message, request, &source));
                complaints.extend(self.decline(message, request, *from, &source));
                "FWD".to_owned()
            }
            (finals, forwarded) => format!("{} replies, {} forwarded", finals.len(), forwarded.len()),
        };
        for reply in &replies {
            complaints.extend(misplaced(message, reply));
        }
        Seen { reaction, replies, complaints }
    }
}
