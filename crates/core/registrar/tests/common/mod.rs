//! REGISTERs as text, through the real parser.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part")]

use core::time::Duration;

use strowger_foundation::{ConnId, Flow, ListenerId, ShardId, Timestamp, Transport};
use strowger_message::Message;
use strowger_registrar::{
    ContactTarget, GruuKey, GruuText, KeepAlive, Locations, Policy, Refusal, Source, Update, UpdateCounts,
};

pub const AOR: &[u8] = b"alice@example.com";

pub fn at_s(seconds: u64) -> Timestamp {
    Timestamp::from_millis(seconds * 1000)
}

pub fn source(peer: &str) -> Source {
    let flow = Flow::new(ListenerId(0), Transport::Udp, peer.parse().expect("an address"));
    Source { flow, via_sent_by_matches: true }
}

/// The source of a REGISTER over a connection.
pub fn over(connection: ConnId, peer: &str) -> Source {
    let flow = Flow::on_connection(ListenerId(1), Transport::Tcp, peer.parse().expect("an address"), connection);
    Source { flow, via_sent_by_matches: true }
}

/// Like [`register`], through another proxy.
pub fn register_through(call_id: &str, cseq: u32, headers: &str) -> Vec<u8> {
    register(call_id, cseq, &format!("Via: SIP/2.0/UDP 10.0.0.1;branch=z9hG4bKb|{headers}"))
}

/// Returns a REGISTER; `headers` are whole lines separated by a bar.
pub fn register(call_id: &str, cseq: u32, headers: &str) -> Vec<u8> {
    let headers: String =
        headers.split('|').filter(|line| !line.is_empty()).map(|line| format!("{line}\r\n")).collect();
    format!(
        "REGISTER sip:example.com SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bKa\r\nFrom: <sip:alice@example.com>;tag=1\r\n\
         To: <sip:alice@example.com>\r\nCall-ID: {call_id}\r\nCSeq: {cseq} REGISTER\r\n{headers}Content-Length: 0\r\n\r\n"
    )
    .into_bytes()
}

pub fn read<T>(bytes: &[u8], then: impl FnOnce(Result<Update<'_>, Refusal>) -> T) -> T {
    then(Update::read(&Message::parse(bytes).expect("a valid message")))
}

/// A table of one stripe and a policy.
pub struct Table {
    pub locations: Locations,
    pub policy: Policy,
    pub source: Source,
}

impl Table {
    pub fn new() -> Self {
        let policy =
            Policy { keep_alive: KeepAlive::Crlf, keep_alive_interval: Duration::from_secs(30), ..Policy::default() };
        Self { locations: Locations::new(1, 7), policy, source: source("192.0.2.1:5060") }
    }

    pub fn register(&self, now: Timestamp, call_id: &str, cseq: u32, headers: &str) -> Result<UpdateCounts, Refusal> {
        let applied = read(&register(call_id, cseq, headers), |update| {
            self.locations.apply(now, AOR, &self.policy, &self.source, &update?)
        });
        self.locations.check_invariants();
        applied
    }

    pub fn lookup(&self, now: Timestamp) -> Vec<ContactTarget> {
        let mut targets = Vec::new();
        self.locations.lookup(now, AOR, &mut targets);
        targets
    }

    pub fn uris(&self, now: Timestamp) -> Vec<String> {
        self.lookup(now).iter().map(|target| String::from_utf8(target.uri.to_vec()).expect("ASCII")).collect()
    }

    /// Returns the Contact values of a 200.
    pub fn echo(&self, now: Timestamp) -> Vec<String> {
        self.echo_with(now, None)
    }

    /// The same for a client that supports GRUUs.
    pub fn echo_with(&self, now: Timestamp, gruu: Option<&dyn Fn(&GruuKey) -> GruuText>) -> Vec<String> {
        let mut lines = Vec::new();
        self.locations.write_contacts(now, AOR, gruu, &mut lines);
        let text = String::from_utf8(lines).expect("ASCII");
        text.lines().filter_map(|line| line.strip_prefix("Contact: ")).map(str::to_owned).collect()
    }

    pub fn shard(&self) -> ShardId {
        ShardId(0)
    }
}
