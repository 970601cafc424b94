//! One shard in virtual time, driven by message texts.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use strowger_auth::NonceWindows;
use strowger_auth::client::{self, Secret};
use strowger_balancer::{self as balancer, SetConfig};
use strowger_directory::Directory;
use strowger_foundation::{Flow, KeyRing, ListenerId, ShardId, TagKey, Timestamp, Transport};
use strowger_locate::{CachePolicy, LocateQuery, LocateResult, NameCache, Outages, QueryId};
use strowger_message::{AuthParams, Peek};
use strowger_proxy::Stateless;
use strowger_registrar::Locations;
use strowger_shard::{
    Action, Clusters, Event, Input, Inquiry, Listener, Neighbours, Output, ProvenSources, Route, RouteTarget, Shard,
    ShardConfig, Shedding, Snapshot, Steering, Verdict,
};

pub const SERVER: &str = "192.0.2.1:5060";
pub const SERVER6: &str = "[2001:db8::1]:5060";
/// The secret from which all keys are derived.
pub const RING_KEY: [u8; 16] = [7; 16];
pub const ALICE: &str = "192.0.2.10:5060";
pub const BOB: &str = "192.0.2.20:5060";
pub const BOB2: &str = "192.0.2.21:5060";

/// A message sent by the shard.
#[derive(Clone, Debug)]
pub struct SentMessage {
    pub to: SocketAddr,
    pub flow: Flow,
    pub text: String,
}

impl SentMessage {
    /// Returns the status code of a response, 0 for a request.
    pub fn status(&self) -> u16 {
        self.text.strip_prefix("SIP/2.0 ").and_then(|rest| rest[..3].parse().ok()).unwrap_or(0)
    }

    pub fn method(&self) -> &str {
        if self.status() > 0 { "" } else { self.text.split(' ').next().unwrap_or("") }
    }

    pub fn start(&self) -> &str {
        self.text.lines().next().unwrap_or("")
    }

    /// Returns the value of the first header called `name`.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers(name).next()
    }

    pub fn headers<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        let name = name.to_owned();
        let head = self.text.split("\r\n\r\n").next().unwrap_or("");
        head.split("\r\n")
            .skip(1)
            .filter_map(|line| line.split_once(": "))
            .filter(move |(n, _)| *n == name)
            .map(|(_, v)| v)
    }

    /// Returns a user agent's response to this request.
    pub fn response(&self, status: u16, reason: &str, to_tag: &str, extra: &str) -> String {
        let mut text = format!("SIP/2.0 {status} {reason}\r\n");
        for name in ["Via", "Record-Route", "From", "To", "Call-ID", "CSeq"] {
            for value in self.headers(name) {
                let tag = if name == "To" && !value.contains(";tag=") && status > 100 { to_tag } else { "" };
                text += &format!("{name}: {value}{tag}\r\n");
            }
        }
        text + extra + "Content-Length: 0\r\n\r\n"
    }
}

/// A client's account, and how it answers challenges.
#[derive(Clone, Copy, Debug)]
pub struct Account<'a> {
    pub name: &'a str,
    pub password: &'a str,
    /// The nonce count.
    pub nc: u32,
    /// Whether the body is protected too (`auth-int`).
    pub cover_body: bool,
}

impl<'a> Account<'a> {
    /// An account that answers its first challenge.
    pub const fn new(name: &'a str, password: &'a str) -> Self {
        Self { name, password, nc: 1, cover_body: false }
    }

    /// Returns the header line that answers challenge `number` of `refusal`, for the refused `request`.
    pub fn authorization(&self, refusal: &SentMessage, number: usize, request: &str) -> String {
        let (challenge, header) = match refusal.status() {
            401 => ("WWW-Authenticate", "Authorization"),
            407 => ("Proxy-Authenticate", "Proxy-Authorization"),
            _ => panic!("no challenge: {}", refusal.start()),
        };
        let challenge = refusal.headers(challenge).nth(number).expect("a challenge");
        let challenge = AuthParams::parse(challenge.as_bytes()).expect("well-formed");
        let mut words = request.split(' ');
        let request = client::Request {
            username: self.name.as_bytes(),
            secret: Secret::Password(self.password.as_bytes()),
            method: words.next().expect("a method").as_bytes(),
            uri: words.next().expect("a URI").as_bytes(),
            body: request.split("\r\n\r\n").nth(1).expect("a body").as_bytes(),
            cnonce: b"0a4f113b",
            nc: self.nc,
            cover_body: self.cover_body,
        };
        let mut value = Vec::new();
        client::respond(&mut value, &challenge, &request).expect("can be answered");
        format!("{header}: {}\r\n", String::from_utf8(value).expect("ASCII"))
    }
}

pub struct World {
    pub shard: Shard,
    pub steering: Steering,
    pub now: Timestamp,
    pub events: Vec<Event>,
    pub locations: Arc<Locations>,
    pub snapshot: Snapshot,
    pub names: Arc<NameCache>,
    /// The load that the process reports as shed.
    pub shedding: Arc<Shedding>,
    /// Pending DNS queries.
    pub questions: Vec<(QueryId, LocateQuery)>,
    /// Datagrams for media engines.
    pub commands: Vec<(SocketAddr, Vec<u8>)>,
    /// Records given to the store.
    pub records: Vec<(Option<u64>, Vec<u8>)>,
    /// Whether invariants are checked after each step; a world with thousands of calls checks them itself.
    pub is_checked: bool,
}

impl World {
    /// Creates a shard with one UDP listener and no authentication, changed by `edit`.
    pub fn new(edit: impl FnOnce(&mut Snapshot)) -> Self {
        Self::listening(&["UDP"], edit)
    }

    /// The same with its own keys, like a server outside the cluster.
    pub fn with_key(key: [u8; 16], edit: impl FnOnce(&mut Snapshot)) -> Self {
        Self::with_locations(key, SERVER, &["UDP"], edit, |locations| locations)
    }

    /// The same while stored registrations are being loaded.
    pub fn loading(edit: impl FnOnce(&mut Snapshot)) -> Self {
        Self::with_locations(RING_KEY, SERVER, &["UDP"], edit, Locations::with_pending_source)
    }

    /// The same with a listener for each of `transports`, all at [`SERVER`]; `UDP6` and `TCP6` are at [`SERVER6`].
    pub fn listening(transports: &[&str], edit: impl FnOnce(&mut Snapshot)) -> Self {
        Self::with_locations(RING_KEY, SERVER, transports, edit, |locations| locations)
    }

    /// The same at another address.
    pub fn at(address: &str, transports: &[&str], edit: impl FnOnce(&mut Snapshot)) -> Self {
        Self::with_locations(RING_KEY, address, transports, edit, |locations| locations)
    }

    fn with_locations(
        key: [u8; 16],
        address: &str,
        transports: &[&str],
        edit: impl FnOnce(&mut Snapshot),
        prepare: impl FnOnce(Locations) -> Locations,
    ) -> Self {
        let listener = |name: &&str| {
            let (name, address) = name.strip_suffix('6').map_or((*name, address), |name| (name, SERVER6));
            let transport = Transport::from_token(name.as_bytes()).expect("a transport");
            Listener::new(transport, address.parse().expect("an address"))
        };
        let listeners = transports.iter().map(listener).collect();
        let mut snapshot = Snapshot::new(listeners, vec![(*b"example.com").into()], Directory::empty(1));
        snapshot.auth.require = Vec::new();
        edit(&mut snapshot);
        let addresses = snapshot.listeners.iter().map(|listener| (listener.transport, listener.address));
        let locations = Arc::new(prepare(Locations::new(1, 1).with_listeners(addresses)));
        let names = Arc::new(NameCache::new(CachePolicy::default(), 1));
        let ring = KeyRing::new(TagKey::new(key));
        let steering = Steering::new(&ring, Arc::clone(&locations), 1);
        let shedding = Arc::<Shedding>::default();
        let shard = Shard::new(ShardConfig {
            id: ShardId(0),
            now: Timestamp::ZERO,
            seed: 1,
            ring,
            locations: Arc::clone(&locations),
            nonces: Arc::new(NonceWindows::new(1, 1)),
            names: Arc::clone(&names),
            outages: Arc::new(Outages::new(1)),
            proven: Arc::new(ProvenSources::new(1)),
            shedding: Arc::clone(&shedding),
            neighbours: Arc::new(Neighbours::new(1)),
            snapshot: Arc::new(snapshot.clone()),
        });
        let (now, questions, records) = (Timestamp::from_millis(1000), Vec::new(), Vec::new());
        let (events, commands, is_checked) = (Vec::new(), Vec::new(), true);
        Self {
            shard,
            steering,
            now,
            events,
            locations,
            snapshot,
            names,
            shedding,
            questions,
            commands,
            records,
            is_checked,
        }
    }

    /// Gives the shard a new configuration: the current one changed by `edit`.
    pub fn configure(&mut self, edit: impl FnOnce(&mut Snapshot)) {
        assert!(self.reconfigure(edit).is_empty());
    }

    /// Changes the configuration and returns what the shard sends because of it.
    pub fn reconfigure(&mut self, edit: impl FnOnce(&mut Snapshot)) -> Vec<SentMessage> {
        edit(&mut self.snapshot);
        self.shard.handle_input(self.now, Input::Config(Arc::new(self.snapshot.clone())));
        self.drain()
    }

    /// Sends the shard a datagram and returns its outputs.
    pub fn input(&mut self, from: &str, text: &str) -> Vec<SentMessage> {
        let peer = from.parse().expect("an address");
        self.input_by(Flow::new(ListenerId(0), Transport::Udp, peer), text)
    }

    /// Sends the shard a message by `flow` and returns its outputs.
    pub fn input_by(&mut self, flow: Flow, text: &str) -> Vec<SentMessage> {
        self.hand(flow, text);
        self.drain()
    }

    /// The same without draining the outputs. A response that no shard owns is passed in without steering results.
    pub fn hand(&mut self, flow: Flow, text: &str) {
        let peek = &Peek::read(text.as_bytes()).expect("has a head");
        let steered = self.steering.steer(peek, &self.snapshot).map(|(_, steered)| steered).unwrap_or_default();
        self.shard.prefetch(peek, &steered);
        let input = Input::Message { arrival: self.now, flow, peek, steering: &steered, verdict: Verdict::Admit };
        self.shard.handle_input(self.now, input);
    }

    /// Gives the shard any input and returns its outputs.
    pub fn give(&mut self, input: Input<'_>) -> Vec<SentMessage> {
        self.shard.handle_input(self.now, input);
        self.drain()
    }

    /// Answers the oldest DNS query and returns the outputs.
    pub fn resolve(&mut self, answer: LocateResult) -> Vec<SentMessage> {
        let (query, question) = self.questions.remove(0);
        self.names.insert(self.now, &question, answer.clone(), Duration::from_secs(60));
        self.give(Input::Resolved { query, answer })
    }

    /// Lets time pass; returns the outputs, each with the milliseconds since the start.
    pub fn wait(&mut self, duration: Duration) -> Vec<(u64, SentMessage)> {
        let (begin, end) = (self.now, self.now + duration);
        let mut sent = Vec::new();
        while let Some(wakeup) = self.shard.poll_timeout().filter(|wakeup| wakeup.at <= end) {
            self.now = self.now.max(wakeup.at);
            self.shard.handle_timeout(self.now);
            let at = self.now.saturating_since(begin).as_millis();
            sent.extend(self.drain().into_iter().map(|s| (u64::try_from(at).expect("small"), s)));
        }
        self.now = end;
        sent
    }

    /// Answers `request` as its receiver, on its flow; returns the outputs.
    pub fn respond(&mut self, request: &SentMessage, status: u16, tag: &str, extra: &str) -> Vec<SentMessage> {
        let tag = if tag.is_empty() { String::new() } else { format!(";tag={tag}") };
        self.input_by(request.flow, &request.response(status, "Reason", &tag, extra))
    }

    /// Lets all timers run out and checks that no state remains; returns the outputs.
    pub fn settle(&mut self) -> Vec<SentMessage> {
        let sent = self.wait(Duration::from_secs(300)).into_iter().map(|(_, sent)| sent).collect();
        assert_eq!(self.shard.transactions(), 0, "transactions are left");
        assert_eq!(self.shard.contexts(), 0, "contexts are left");
        assert_eq!(self.shard.unanswered(), 0, "requests without an answer are left");
        sent
    }

    /// Returns the outputs that are pending.
    pub fn drain(&mut self) -> Vec<SentMessage> {
        let mut sent = Vec::new();
        let mut buffer = Vec::new();
        while let Some(output) = self.shard.poll_output(&mut buffer) {
            match output {
                Output::Send { flow } => {
                    sent.push(SentMessage { to: flow.peer, flow, text: String::from_utf8_lossy(&buffer).into_owned() });
                }
                Output::Ask(Inquiry::Dns { query, question }) => self.questions.push((query, question)),
                Output::Store { ticket, record } => self.records.push((ticket, record)),
                Output::Ask(Inquiry::Media { engine, command }) => self.commands.push((engine.address(), command)),
                Output::Event(event) => self.events.push(event),
            }
        }
        if self.is_checked {
            self.shard.check_invariants();
        }
        sent
    }

    /// Registers `contact` for `user` from `from`.
    pub fn register(&mut self, user: &str, from: &str, contact: &str) -> SentMessage {
        let text = format!(
            "REGISTER sip:example.com SIP/2.0\r\nVia: SIP/2.0/UDP {from};branch=z9hG4bKreg{user}{}\r\n\
             Max-Forwards: 70\r\nFrom: <sip:{user}@example.com>;tag=r\r\nTo: <sip:{user}@example.com>\r\n\
             Call-ID: reg-{from}\r\nCSeq: 1 REGISTER\r\nContact: {contact}\r\nContent-Length: 0\r\n\r\n",
            from.replace([':', '.'], "")
        );
        self.input(from, &text).remove(0)
    }
}

/// Makes the server a first stage for three clusters with one member each.
pub fn first_stage(snapshot: &mut Snapshot) {
    let cluster = |number: u8| {
        let address = format!("198.51.100.{number}:5060");
        let uri = format!("sip:{address}");
        let config = SetConfig {
            name: format!("cluster-{number}"),
            policy: balancer::Policy::Hash,
            key: balancer::Key::Aor,
            ..SetConfig::default()
        };
        let member = balancer::Member::new(balancer::Target::new(&config.name, uri.as_bytes()));
        let set = balancer::Set::new(config, vec![member]).expect("a sound set");
        let place = RouteTarget::at(uri.as_bytes(), address.parse().expect("an address"));
        Route::of_domain(b"*", Action::balance(Arc::new(set), vec![place], Stateless::Never))
    };
    snapshot.clusters = Some(Arc::new(Clusters {
        own: None,
        stage: "first".into(),
        partition: balancer::Partition::new([("a", 100), ("b", 100), ("c", 100)]),
        previous: None,
        routes: (1..=3).map(cluster).collect(),
        loads: Arc::new(balancer::SlotLoads::default()),
        registrar: snapshot.registrar.clone(),
    }));
    snapshot.has_shared_keys = true;
    snapshot.proxy.only_where_needed = true;
}

/// A request from Alice; `extra` are header lines.
pub fn request(method: &str, uri: &str, branch: &str, extra: &str) -> String {
    format!(
        "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {ALICE};branch=z9hG4bK{branch}\r\nMax-Forwards: 70\r\n\
         From: <sip:alice@example.com>;tag=a\r\nTo: <sip:bob@example.com>\r\nCall-ID: call-1@alice\r\n\
         CSeq: 1 {method}\r\nContact: <sip:alice@{ALICE}>\r\n{extra}Content-Length: 4\r\n\r\nbody"
    )
}

/// Returns the statuses of responses and the methods of requests, with their destinations.
pub fn summary(sent: &[SentMessage]) -> Vec<String> {
    sent.iter()
        .map(|s| {
            format!("{}{} {}", s.method(), if s.status() > 0 { s.status().to_string() } else { String::new() }, s.to)
        })
        .collect()
}

/// Returns the first request of `method` in `sent`.
pub fn find(sent: &[SentMessage], method: &str) -> SentMessage {
    let found = sent.iter().find(|sent| sent.method() == method);
    found.unwrap_or_else(|| panic!("no {method} in {:?}", summary(sent))).clone()
}

/// Returns the statuses of the final responses to the caller in `sent`.
pub fn finals(sent: &[SentMessage]) -> Vec<u16> {
    let caller = ALICE.parse().expect("an address");
    sent.iter().filter(|sent| sent.to == caller).map(SentMessage::status).filter(|status| *status >= 200).collect()
}

/// Returns the destinations of the requests of `method` in `sent`.
pub fn destinations(sent: &[SentMessage], method: &str) -> Vec<String> {
    sent.iter().filter(|sent| sent.method() == method).map(|sent| sent.to.to_string()).collect()
}
