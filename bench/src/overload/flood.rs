//! Attack traffic: five kinds of floods at a fixed rate, and the responses to them.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::raw::{RawSocket, spoofed};
use super::{DOMAIN, FLOOD_PORT, SERVER, USERS};
use crate::mutate::Random;

/// Interval between sends.
const TICK: Duration = Duration::from_millis(1);
/// Maximum datagrams per tick: a delayed flood does not catch up all at once.
const MOST_AT_ONCE: u64 = 200;
/// Number of sources of the distributed flood.
const SOURCES: u64 = 100;
/// Receive buffer size in bytes.
const RECEIVE_BYTES: usize = 8 << 20;

/// Kind of flood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
pub enum Kind {
    /// Malformed datagrams, or requests without mandatory fields, from one source
    Malformed,
    /// INVITEs without credentials, each from another source
    Invites,
    /// OPTIONS to the server, from one source
    Options,
    /// REGISTERs with wrong passwords from one source
    Passwords,
    /// REGISTERs with wrong passwords from a hundred sources
    SpreadPasswords,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "malformed datagrams",
            Self::Invites => "INVITEs, spoofed sources",
            Self::Options => "OPTIONS, one source",
            Self::Passwords => "REGISTERs, wrong passwords, one source",
            Self::SpreadPasswords => "REGISTERs, wrong passwords, 100 sources",
        })
    }
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Malformed, Self::Invites, Self::Options, Self::Passwords, Self::SpreadPasswords];

    /// Returns its source port, which receives all responses.
    #[must_use]
    pub const fn port(self) -> u16 {
        FLOOD_PORT + self as u16
    }

    const fn is_register(self) -> bool {
        matches!(self, Self::Passwords | Self::SpreadPasswords)
    }

    /// Returns the source of a request.
    fn source(self, number: u64, random: u64) -> SocketAddrV4 {
        let last = |host: u64| Ipv4Addr::new(127, 9, 0, u8::try_from(host % 250).unwrap_or(0) + 1);
        match self {
            Self::Invites => spoofed(random, self.port()),
            Self::SpreadPasswords => SocketAddrV4::new(last(number % SOURCES), self.port()),
            Self::Malformed | Self::Options | Self::Passwords => SocketAddrV4::new(last(240), self.port()),
        }
    }
}

/// Datagrams sent and received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// Datagrams sent.
    pub sent: u64,
    /// Their bytes, without UDP and IP headers.
    pub sent_bytes: u64,
    /// Datagrams received.
    pub answers: u64,
    /// Their bytes.
    pub answer_bytes: u64,
}

impl Tally {
    /// Returns the bytes received per byte sent.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    pub fn amplification(&self) -> f64 {
        self.answer_bytes as f64 / self.sent_bytes.max(1) as f64
    }
}

/// A flood that runs until it is stopped.
#[derive(Debug)]
pub struct Flood {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<Tally>>,
}

impl Flood {
    /// Starts sending `rate` datagrams per second, at most `count` in total.
    ///
    /// # Errors
    /// If this user may not open a raw socket.
    pub fn start(kind: Kind, rate: f64, count: u64, seed: u64) -> io::Result<Self> {
        let mut sender = Sender::new(kind, seed)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new().name("flood".to_owned()).spawn(move || {
            let begun = Instant::now();
            while !stopped.load(Ordering::Relaxed) {
                sender.send_due(begun.elapsed().as_secs_f64() * rate, count)?;
                sender.receive();
                thread::sleep(TICK);
            }
            sender.receive();
            Ok(sender.tally)
        })?;
        Ok(Self { stop, thread })
    }

    /// Stops the flood and returns its counts.
    ///
    /// # Errors
    /// If a datagram could not be sent.
    pub fn stop(self) -> Result<Tally, String> {
        self.stop.store(true, Ordering::Relaxed);
        let tally = self.thread.join().map_err(|_| "the flood has panicked".to_owned())?;
        tally.map_err(|error| format!("the flood cannot be sent: {error}"))
    }
}

struct Sender {
    kind: Kind,
    raw: RawSocket,
    /// Receives all responses, whatever their destination address.
    answers: UdpSocket,
    random: Random,
    /// The server's challenge, after the first one arrives.
    challenge: Option<Challenge>,
    /// Datagrams that were due but skipped because of the limit per tick.
    given_up: u64,
    tally: Tally,
    text: Vec<u8>,
    buffer: Box<[u8; 4_096]>,
}

impl Sender {
    fn new(kind: Kind, seed: u64) -> io::Result<Self> {
        let SocketAddr::V4(to) = SERVER else { return Err(io::ErrorKind::Unsupported.into()) };
        let answers = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, kind.port()))?;
        answers.set_nonblocking(true)?;
        // As large as the system allows.
        let _ = socket2::SockRef::from(&answers).set_recv_buffer_size(RECEIVE_BYTES);
        Ok(Self {
            kind,
            raw: RawSocket::new(to)?,
            answers,
            random: Random(seed),
            challenge: None,
            given_up: 0,
            tally: Tally::default(),
            text: Vec::new(),
            buffer: Box::new([0; 4_096]),
        })
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
    fn send_due(&mut self, due: f64, count: u64) -> io::Result<()> {
        let due = (due as u64).min(count).saturating_sub(self.given_up + self.tally.sent);
        self.given_up += due.saturating_sub(MOST_AT_ONCE);
        for _ in 0..due.min(MOST_AT_ONCE) {
            let (number, random) = (self.tally.sent, self.random.next());
            let source = self.kind.source(number, random);
            write_request(&mut self.text, self.kind, (number, random), source, self.challenge.as_ref());
            self.raw.send(source, &self.text)?;
            self.tally.sent += 1;
            self.tally.sent_bytes += self.text.len() as u64;
        }
        Ok(())
    }

    fn receive(&mut self) {
        while let Ok(length) = self.answers.recv(&mut self.buffer[..]) {
            self.tally.answers += 1;
            self.tally.answer_bytes += length as u64;
            if self.kind.is_register()
                && let Some(challenge) = self.buffer.get(..length).and_then(Challenge::read)
            {
                self.challenge = Some(challenge);
            }
        }
    }
}

/// A server's challenge.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Challenge {
    realm: String,
    nonce: String,
    algorithm: Option<String>,
    has_qop: bool,
}

impl Challenge {
    /// Parses the first challenge of a 401.
    fn read(response: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(response).ok().filter(|text| text.starts_with("SIP/2.0 401 "))?;
        let line = text.lines().find_map(|line| line.strip_prefix("WWW-Authenticate: Digest "))?;
        let parameter = |name: &str| {
            let found = line.split(',').find_map(|part| part.trim().strip_prefix(name)?.strip_prefix('='))?;
            Some(found.trim_matches('"').to_owned())
        };
        Some(Self {
            realm: parameter("realm")?,
            nonce: parameter("nonce")?,
            algorithm: parameter("algorithm"),
            has_qop: line.contains("qop="),
        })
    }

    /// Returns credentials with a wrong response.
    fn answer(&self, user: u64, number: u64, random: u64) -> String {
        let is_sha = self.algorithm.as_deref().is_some_and(|name| name.starts_with("SHA-256"));
        let response = format!("{random:016x}").repeat(if is_sha { 4 } else { 2 });
        let algorithm = self.algorithm.as_ref().map(|name| format!(", algorithm={name}")).unwrap_or_default();
        let qop = if self.has_qop {
            format!(", qop=auth, nc={:08x}, cnonce=\"{random:08x}\"", number + 1)
        } else {
            String::new()
        };
        let Self { realm, nonce, .. } = self;
        format!(
            "Authorization: Digest username=\"user{user}\", realm=\"{realm}\", nonce=\"{nonce}\", uri=\"sip:{DOMAIN}\", \
             response=\"{response}\"{algorithm}{qop}\r\n"
        )
    }
}

/// Writes the request with this number.
fn write_request(
    text: &mut Vec<u8>,
    kind: Kind,
    (number, random): (u64, u64),
    source: SocketAddrV4,
    challenge: Option<&Challenge>,
) {
    let user = random % u64::from(2 * USERS);
    let head = |method: &str, uri: &str, to: &str, more: &str| {
        format!(
            "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {source};branch=z9hG4bK{random:016x}{number:x};rport\r\n\
             Max-Forwards: 70\r\nFrom: <{to}>;tag={random:x}\r\nTo: <{to}>\r\nCall-ID: {random:016x}{number:x}@{}\r\n\
             CSeq: {} {method}\r\nContact: <sip:flood@{source}>\r\n{more}Content-Length: 0\r\n\r\n",
            source.ip(),
            number % 1_000_000 + 1,
        )
    };
    let callee = u64::from(USERS) + random % u64::from(USERS);
    let request = match kind {
        Kind::Malformed => malformed(number, random, source),
        Kind::Invites => {
            let uri = format!("sip:user{callee}@{DOMAIN}");
            head("INVITE", &uri, &uri, "")
        }
        Kind::Options => {
            head("OPTIONS", &format!("sip:{SERVER}"), &format!("sip:scan@{DOMAIN}"), "Accept: application/sdp\r\n")
        }
        Kind::Passwords | Kind::SpreadPasswords => {
            let credentials = challenge.map(|challenge| challenge.answer(user, number, random)).unwrap_or_default();
            head("REGISTER", &format!("sip:{DOMAIN}"), &format!("sip:user{user}@{DOMAIN}"), &credentials)
        }
    };
    text.clear();
    text.extend_from_slice(request.as_bytes());
}

/// Returns a malformed request: alternately an unterminated line, missing mandatory header fields, an invalid length,
/// and noise.
fn malformed(number: u64, random: u64, source: SocketAddrV4) -> String {
    match number % 4 {
        0 => format!("INVITE sip:{random:x}@{DOMAIN} SIP/2.0 {}", "x".repeat(300)),
        1 => format!(
            "INVITE sip:user1@{DOMAIN} SIP/2.0\r\nVia: SIP/2.0/UDP {source};branch=z9hG4bK{random:x}\r\n\
             To: <sip:user1@{DOMAIN}>\r\nSubject: {}\r\n\r\n",
            "y".repeat(200)
        ),
        2 => format!(
            "REGISTER sip:{DOMAIN} SIP/2.0\r\nVia: SIP/2.0/UDP {source};branch=z9hG4bK{random:x}\r\nMax-Forwards: 70\r\n\
             From: <sip:u@{DOMAIN}>;tag=1\r\nTo: <sip:u@{DOMAIN}>\r\nCall-ID: {random:x}\r\nCSeq: one REGISTER\r\n\
             Content-Length: -7\r\n\r\n"
        ),
        _ => format!("{random:016x}").repeat(20),
    }
}

#[cfg(test)]
mod tests {
    use strowger_message::Peek;

    use super::*;

    fn request(kind: Kind, challenge: Option<&Challenge>) -> String {
        let (mut text, random) = (Vec::new(), 0x1234_5678_9abc_def0);
        write_request(&mut text, kind, (7, random), kind.source(7, random), challenge);
        String::from_utf8(text).expect("text")
    }

    #[test]
    fn all_but_malformed_requests_are_well_formed() {
        for kind in [Kind::Invites, Kind::Options, Kind::Passwords, Kind::SpreadPasswords] {
            let text = request(kind, None);
            assert!(Peek::read(text.as_bytes()).is_ok(), "{kind}: {text}");
        }
        let source = Kind::Malformed.source(0, 0);
        for number in [0, 3] {
            assert!(Peek::read(malformed(number, 9, source).as_bytes()).is_err(), "{number}");
        }
    }

    #[test]
    fn a_challenge_is_answered_with_its_own_nonce() {
        let response = "SIP/2.0 401 Unauthorized\r\nWWW-Authenticate: Digest realm=\"ex\", nonce=\"abc\", algorithm=SHA-256, \
                        qop=\"auth\"\r\nWWW-Authenticate: Digest realm=\"ex\", nonce=\"def\"\r\n\r\n";
        let challenge = Challenge::read(response.as_bytes()).expect("a challenge");
        let text = request(Kind::Passwords, Some(&challenge));
        assert!(text.contains("nonce=\"abc\"") && text.contains("nc=00000008") && text.contains("algorithm=SHA-256"));
        assert!(Peek::read(text.as_bytes()).is_ok());
        assert_eq!(Challenge::read(b"SIP/2.0 200 OK\r\n\r\n"), None);
    }

    #[test]
    fn the_kind_sets_the_number_of_sources() {
        let sources = |kind: Kind| {
            let mut all: Vec<_> = (0..500).map(|number| kind.source(number, number * 7_919)).collect();
            all.sort_unstable();
            all.dedup();
            all.len()
        };
        assert_eq!(Kind::ALL.map(sources), [1, 500, 1, 1, 100]);
    }

    #[test]
    fn amplification_is_a_ratio_of_bytes() {
        let tally = Tally { sent: 2, sent_bytes: 1_000, answers: 4, answer_bytes: 1_500 };
        assert!((tally.amplification() - 1.5).abs() < 1e-9);
        assert_eq!(Tally::default().amplification(), 0.0);
    }
}
