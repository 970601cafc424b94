//! `kill -9` at random moments under load. After the restart every acknowledged registration is present and every
//! acknowledged removal is not.
//!
//! `STROWGER_KILLS` is the number of kills (12 by default) and `STROWGER_SEED` selects their moments.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use strowger_interop::{Config, PATIENCE, Server, poll};

const USERS: usize = 600;
/// Maximum number of unanswered requests.
const WINDOW: usize = 100;

type Contacts = BTreeSet<String>;

/// What the client of a user knows.
#[derive(Default)]
struct User {
    cseq: u32,
    /// Contacts of the last 200.
    promised: Contacts,
    /// Contacts of the pending request, and when it was sent.
    asked: Option<(Contacts, Instant)>,
}

struct Load {
    socket: UdpSocket,
    server: SocketAddr,
    users: Vec<User>,
    random: u64,
    /// Number of responses by status.
    answers: BTreeMap<u16, u64>,
}

impl Load {
    fn new(server: SocketAddr, seed: u64) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback has a free port");
        let users = (0..USERS).map(|_| User::default()).collect();
        Self { socket, server, users, random: seed, answers: BTreeMap::new() }
    }

    /// Returns the next SplitMix64 number below the limit.
    fn random(&mut self, below: usize) -> usize {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % below as u64).expect("small")
    }

    fn send(&mut self, number: usize, headers: &str) {
        let user = &mut self.users[number];
        user.cseq += 1;
        let cseq = user.cseq;
        let local = self.socket.local_addr().expect("bound");
        let text = format!(
            "REGISTER sip:example.com SIP/2.0\r\nVia: SIP/2.0/UDP {local};branch=z9hG4bK{number}n{cseq}\r\n\
             Max-Forwards: 70\r\nFrom: <sip:u{number}@example.com>;tag=1\r\nTo: <sip:u{number}@example.com>\r\n\
             Call-ID: u{number}\r\nCSeq: {cseq} REGISTER\r\n{headers}Content-Length: 0\r\n\r\n"
        );
        // Fails with an ICMP error while the server is down.
        let _ = self.socket.send_to(text.as_bytes(), self.server);
    }

    /// Registers, refreshes or removes a contact of a user without a pending request.
    fn ask(&mut self, number: usize) {
        let (action, contact) = (self.random(10), format!("<sip:u{number}@127.0.0.1:{}>", 6000 + self.random(3)));
        let mut contacts = self.users[number].promised.clone();
        let headers = match action {
            0 => {
                contacts.clear();
                "Contact: *\r\nExpires: 0\r\n".to_owned()
            }
            1 | 2 => {
                contacts.remove(&contact);
                format!("Contact: {contact};expires=0\r\n")
            }
            _ => {
                contacts.insert(contact.clone());
                format!("Contact: {contact};expires=3600\r\n")
            }
        };
        self.users[number].asked = Some((contacts, Instant::now()));
        self.send(number, &headers);
    }

    /// Keeps the window full for `time`.
    fn run(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            let busy = self.users.iter().filter(|user| user.asked.is_some()).count();
            for _ in busy..WINDOW {
                let number = self.random(USERS);
                if self.users[number].asked.is_none() {
                    self.ask(number);
                }
            }
            self.receive(end);
        }
    }

    /// Receives what has arrived, and waits briefly if nothing has.
    fn receive(&mut self, end: Instant) {
        let left =
            end.saturating_duration_since(Instant::now()).clamp(Duration::from_millis(1), Duration::from_millis(5));
        self.socket.set_read_timeout(Some(left)).expect("a time-out can be set");
        let mut buffer = [0; 4096];
        while let Ok(length) = self.socket.recv(&mut buffer) {
            self.handle(&String::from_utf8_lossy(&buffer[..length]));
        }
    }

    fn handle(&mut self, answer: &str) {
        let Some((status, number, cseq, contacts)) = read(answer) else { return };
        *self.answers.entry(status).or_default() += 1;
        let user = &mut self.users[number];
        if cseq != user.cseq {
            return;
        }
        let Some((asked, _)) = user.asked.take() else { return };
        if status == 200 {
            assert_eq!(contacts, asked, "u{number}: the 200 lists what was asked for");
            user.promised = asked;
        }
    }

    /// Compares every user's bindings with the last 200. Returns the number of users with a pending request.
    fn check(&mut self) -> usize {
        let mut doubts = 0;
        for number in 0..USERS {
            let found = self.fetch(number);
            let user = &mut self.users[number];
            let in_doubt = user.asked.take();
            let is_asked = in_doubt.as_ref().is_some_and(|(asked, _)| *asked == found);
            assert!(
                found == user.promised || is_asked,
                "u{number} has {found:?}; promised was {:?}, on its way was {in_doubt:?}",
                user.promised
            );
            doubts += usize::from(in_doubt.is_some());
            user.promised = found;
        }
        doubts
    }

    fn fetch(&mut self, number: usize) -> Contacts {
        self.socket.set_read_timeout(Some(Duration::from_millis(500))).expect("a time-out can be set");
        let mut buffer = [0; 4096];
        let contacts = poll(PATIENCE, || {
            self.send(number, "");
            while let Ok(length) = self.socket.recv(&mut buffer) {
                match read(&String::from_utf8_lossy(&buffer[..length])) {
                    Some((200, of, cseq, contacts)) if (of, cseq) == (number, self.users[number].cseq) => {
                        return Some(contacts);
                    }
                    // The server is still loading registrations.
                    Some((503, of, ..)) if of == number => return None,
                    _ => {}
                }
            }
            None
        });
        contacts.unwrap_or_else(|| panic!("u{number} hears nothing"))
    }
}

/// Returns the status, user, CSeq and contacts of a response.
fn read(answer: &str) -> Option<(u16, usize, u32, Contacts)> {
    let field = |name: &str| answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let status = answer.strip_prefix("SIP/2.0 ")?.get(..3)?.parse().ok()?;
    let number = field("Call-ID")?.strip_prefix('u')?.parse().ok()?;
    let cseq = field("CSeq")?.split(' ').next()?.parse().ok()?;
    let contacts = answer.lines().filter_map(|line| line.strip_prefix("Contact: "));
    Some((status, number, cseq, contacts.filter_map(|value| Some(format!("{}>", value.split('>').next()?))).collect()))
}

fn server(mode: &'static str) -> Server {
    Config { store: mode, ..Config::open() }.start()
}

fn number(name: &str, otherwise: u64) -> u64 {
    env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn nothing_acknowledged_is_lost() {
    let (kills, seed) = (number("STROWGER_KILLS", 12), number("STROWGER_SEED", 1));
    let mut server = server("write-through");
    let mut load = Load::new(server.address(), seed);
    let mut doubts = 0;
    for kill in 0..kills {
        let time = Duration::from_micros(500 + load.random(250_000) as u64);
        let pid = server.pid().to_string();
        let killer = std::thread::spawn(move || {
            std::thread::sleep(time);
            Command::new("kill").args(["-KILL", &pid]).status()
        });
        // The load continues while the server is killed.
        load.run(time + Duration::from_millis(20));
        assert!(killer.join().is_ok_and(|told| told.is_ok_and(|status| status.success())), "it was killed");
        server.kill();
        // Every fifth time the server is killed again during its start.
        if kill % 5 == 4 {
            server.begin();
            std::thread::sleep(Duration::from_micros(load.random(60_000) as u64));
            server.kill();
        }
        server.restart();
        doubts += load.check();
    }
    let acknowledged = load.answers.get(&200).copied().unwrap_or(0);
    println!("{kills} kills, {acknowledged} acknowledged, {doubts} in doubt; answers {:?}", load.answers);
    assert!(acknowledged > kills * 20 && doubts > 0, "there was load: {:?}", load.answers);
}

/// Shows that the test above can fail.
#[test]
fn memory_loses_data() {
    let mut server = server("memory");
    let mut load = Load::new(server.address(), 1);
    load.run(Duration::from_millis(300));
    server.kill();
    server.restart();
    let promised = load.users.iter().filter(|user| !user.promised.is_empty()).count();
    assert!(promised > 10);
    assert!((0..USERS).all(|number| load.fetch(number).is_empty()));
}
