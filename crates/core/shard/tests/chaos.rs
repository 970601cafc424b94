//! Random inputs in any order: each INVITE is answered once, and no state remains.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use strowger_balancer::{Member, Partition, Set, SetConfig, SlotLoads, Target};
use strowger_foundation::{ConnId, Flow, KeyRing, ListenerId, TagKey, Transport};
use strowger_locate::{Candidate, CandidateList, Hop, LocateError, LocateQuery, LocateResult, SplitMix64};
use strowger_message::Message;
use strowger_proxy::Stateless;
use strowger_proxy::cluster_request::{self, ClusterRequestKind, Subject};
use strowger_shard::{
    Action, Clusters, Counters, Event, Input, Route, RouteMatch, RouteTarget, Snapshot, TargetAddress,
};
use strowger_trunk::{Credentials, Secret, Trunk};
use support::{ALICE, BOB, BOB2, RING_KEY, SentMessage, World, request};

const URIS: [&str; 8] = [
    "sip:0049@example.com",
    "sip:bob@example.com",
    "sip:00123@example.com",
    "sip:x@name.example",
    "sip:x@two.example",
    "sip:carol@example.com",
    "sip:nobody@example.com",
    "sip:dave@example.com",
];
const STATUSES: [u16; 18] = [100, 180, 183, 200, 302, 302, 401, 407, 401, 407, 404, 430, 486, 487, 500, 503, 603, 408];
const CONTACTS: [&str; 6] = [
    "<sip:carol@example.com>;q=0.4, <sip:bob@example.com>;q=0.9",
    "<sip:a@192.0.2.77>, <sip:b@192.0.2.78;transport=tcp>;q=0.5",
    "<sip:x@other.example>",
    "<sip:x@name.example;transport=sctp>, <tel:+1>, *",
    "<sip:00123@example.com>",
    "<sip:nobody@example.com>",
];
const CHALLENGE: &str = "WWW-Authenticate: Digest realm=\"r\", nonce=\"n\", qop=\"auth\"\r\n\
    Proxy-Authenticate: Digest realm=\"r\", nonce=\"n\", qop=\"auth\"\r\n";

fn configure(snapshot: &mut Snapshot) {
    let at = |address: &str, priority| RouteTarget {
        priority,
        ..RouteTarget::at(format!("sip:{address}").as_bytes(), address.parse().expect("an address"))
    };
    let named = |priority| RouteTarget {
        uri: (*b"sip:carrier.example").into(),
        address: TargetAddress::Name(LocateQuery::new(b"carrier.example", None, None, false)),
        priority,
        weight: 1,
    };
    let trunk = Credentials { username: (*b"a").into(), password: Secret::new(&b"p"[..]), realm: None };
    snapshot.trunks = vec![Arc::new(Trunk {
        name: "t".into(),
        credentials: Some(trunk),
        sources: Vec::new(),
        domains: Vec::new(),
        account: None,
    })];
    let stateless = Stateless::Never;
    let numbers = Action::Proxy {
        targets: vec![at("203.0.113.1:5060", 1), named(2)],
        stateless,
        trunk: Some(Trunk::id_of("t")),
        balance: None,
    };
    let prefixes = vec![(*b"00").into()];
    snapshot.routes = vec![
        Route::new(RouteMatch { prefixes, ..RouteMatch::default() }, numbers),
        Route::of_domain(b"name.example", Action::proxy(vec![named(1)], stateless)),
        Route::of_domain(
            b"two.example",
            Action::proxy(vec![at("203.0.113.2:5060", 1), at("203.0.113.3:5060", 2)], stateless),
        ),
    ];
    snapshot.proxy.recurse = true;
    snapshot.proxy.ring_timeout = Duration::from_secs(40);
    snapshot.track_calls = true;
}

/// Two clusters whose users have moved recently; `own` is this server's.
fn with_clusters(snapshot: &mut Snapshot, own: Option<usize>) {
    let cluster = |name: &str, address: &str| {
        let uri = format!("sip:{address}");
        let target = Member::new(Target::new(name, uri.as_bytes()));
        let set = Set::new(SetConfig { name: name.into(), ..SetConfig::default() }, vec![target]).expect("a sound set");
        let place = RouteTarget::at(uri.as_bytes(), address.parse().expect("an address"));
        Route::of_domain(b"*", Action::balance(Arc::new(set), vec![place], Stateless::Never))
    };
    snapshot.clusters = Some(Arc::new(Clusters {
        own,
        stage: own.map_or("first", |own| ["a", "b"][own]).into(),
        partition: Partition::new([("a", 100), ("b", 100)]),
        previous: Some(Partition::new([("a", 1), ("b", 100)])),
        routes: vec![cluster("a", "203.0.113.11:5060"), cluster("b", "203.0.113.12:5060")],
        loads: Arc::new(SlotLoads::default()),
        registrar: snapshot.registrar.clone(),
    }));
    snapshot.siblings = ["203.0.113.11:5060", "203.0.113.12:5060"].map(|address| address.parse().expect("one")).into();
    // Servers with shared keys forward responses that other members may wait for; here a target answers one request
    // twice, and differently.
    snapshot.has_shared_keys = own.is_none();
    snapshot.proxy.outbound = true;
    snapshot.proxy.only_where_needed = own.is_none();
}

/// Number of runs, each with another seed.
const SEEDS: u64 = 150;
/// Number of runs with clusters.
const CLUSTER_SEEDS: u64 = 40;

struct Chaos {
    world: World,
    draw: SplitMix64,
    calls: Vec<(String, &'static str, &'static str)>,
    requests: Vec<SentMessage>,
    finals: BTreeMap<(String, String), Vec<u16>>,
    has_clusters: bool,
}

impl Chaos {
    fn new(seed: u64) -> Self {
        Self::with(seed, configure)
    }

    fn with(seed: u64, edit: impl FnOnce(&mut Snapshot)) -> Self {
        let mut world = World::listening(&["UDP", "TCP"], edit);
        let has_clusters = world.snapshot.clusters.is_some();
        // A user of another cluster registers there.
        let is_done = |status| status == 200 || has_clusters;
        for (user, address, contact) in [
            ("bob", BOB, format!("<sip:bob@{BOB}>;q=0.9")),
            ("bob", BOB2, format!("<sip:bob@{BOB2}>;q=0.9")),
            ("bob", "192.0.2.22:5060", "<sip:bob@192.0.2.22:5060>;q=0.2".to_owned()),
            ("carol", "192.0.2.23:5060", "<sip:carol@192.0.2.23:5060>".to_owned()),
        ] {
            assert!(is_done(world.register(user, address, &contact).status()));
        }
        let flow = Flow::on_connection(
            ListenerId(1),
            Transport::Tcp,
            "198.51.100.7:33000".parse().expect("an address"),
            ConnId::new(0, 3, 1),
        );
        let register = "REGISTER sip:example.com SIP/2.0\r\nVia: SIP/2.0/TCP 10.0.0.9;branch=z9hG4bKd\r\nMax-Forwards: 70\r\n\
            From: <sip:dave@example.com>;tag=r\r\nTo: <sip:dave@example.com>\r\nCall-ID: d\r\nCSeq: 1 REGISTER\r\n\
            Contact: <sip:dave@10.0.0.9;transport=tcp>\r\nContent-Length: 0\r\n\r\n";
        assert!(is_done(world.input_by(flow, register)[0].status()));
        let (calls, requests, finals) = (Vec::new(), Vec::new(), BTreeMap::new());
        Self { world, draw: SplitMix64(seed), calls, requests, finals, has_clusters }
    }

    /// A cluster request, or nothing.
    fn mark(&mut self, text: &str) -> String {
        let ask = self.one_of(&[
            None,
            None,
            Some(ClusterRequestKind::ServeAsOwner),
            Some(ClusterRequestKind::ServeLocally),
            Some(ClusterRequestKind::RemoveBindings),
        ]);
        let Some(ask) = ask.filter(|_| self.has_clusters) else { return String::new() };
        let ring = KeyRing::new(TagKey::new(RING_KEY)).derive("branch");
        let message = Message::parse(text.as_bytes()).expect("a message");
        let known = [0, self.draw.0 as u32].into_iter().take(self.below(3));
        let route =
            cluster_request::route(&ring, b"example.com", &Subject::of(&message, message.request_uri()), ask, known);
        format!("Route: {}\r\n", String::from_utf8_lossy(&route))
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.draw.below(bound as u64)).expect("small")
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn take(&mut self, sent: Vec<SentMessage>) {
        for sent in sent {
            if sent.status() == 0 {
                self.requests.push(sent);
            } else if sent.status() >= 200 {
                let branch = sent.header("Via").expect("a Via").split("branch=").nth(1).expect("a branch").to_owned();
                let method = sent.header("CSeq").and_then(|cseq| cseq.split(' ').nth(1)).expect("a CSeq").to_owned();
                self.finals.entry((branch, method)).or_default().push(sent.status());
            }
        }
    }

    fn step(&mut self) {
        let sent = match self.below(16) {
            0..=2 => self.call(),
            3 => self.cancel(),
            4..=9 => self.respond(),
            10 => self.fail(),
            11..=12 => self.resolve(),
            _ => {
                let wait = self.one_of(&[10, 600, 4100, 9000, 21_000, 33_000]);
                self.world.wait(Duration::from_millis(wait)).into_iter().map(|(_, sent)| sent).collect()
            }
        };
        self.take(sent);
    }

    fn call(&mut self) -> Vec<SentMessage> {
        let (method, uri) = (self.one_of(&["INVITE", "INVITE", "MESSAGE"]), self.one_of(&URIS));
        let name = format!("c{}", self.calls.len());
        let size = self.one_of(&[0, 0, 1400]);
        let text = request(method, uri, &name, &format!("Subject: {}\r\n", "x".repeat(size)));
        let text = text.replace("call-1@alice", &name);
        let mark = self.mark(&text);
        let text = text.replacen("Subject: ", &format!("{mark}Subject: "), 1);
        self.calls.push((name, method, uri));
        self.world.input(ALICE, &text)
    }

    fn cancel(&mut self) -> Vec<SentMessage> {
        if self.calls.is_empty() {
            return Vec::new();
        }
        let at = self.below(self.calls.len());
        let (name, method, uri) = self.calls[at].clone();
        if method != "INVITE" {
            return Vec::new();
        }
        self.world.input(ALICE, &request("CANCEL", uri, &name, "").replace("call-1@alice", &name))
    }

    fn respond(&mut self) -> Vec<SentMessage> {
        if self.requests.is_empty() {
            return Vec::new();
        }
        let newest = self.requests.len().saturating_sub(6);
        let at = newest + self.below(self.requests.len() - newest);
        let sent = self.requests[at].clone();
        if sent.method() == "ACK" {
            return Vec::new();
        }
        let status = self.one_of(&STATUSES);
        let extra = match status {
            302 => format!("Contact: {}\r\n", self.one_of(&CONTACTS)),
            401 | 407 => CHALLENGE.to_owned(),
            _ => String::new(),
        };
        let tag = self.one_of(&["t1", "t2"]);
        self.world.respond(&sent, status, tag, &extra)
    }

    fn fail(&mut self) -> Vec<SentMessage> {
        let Some(last) = self.requests.last().cloned() else { return Vec::new() };
        match (last.flow.transport, last.flow.connection) {
            (Transport::Udp, _) => self.world.give(Input::Unreachable { peer: last.to }),
            (_, Some(connection)) => self.world.give(Input::Closed { connection, peer: last.to }),
            _ => self.world.give(Input::ConnectFailed { flow: last.flow }),
        }
    }

    fn resolve(&mut self) -> Vec<SentMessage> {
        if self.world.questions.is_empty() {
            return Vec::new();
        }
        let hop = |address: &str, transport| Hop::new(transport, address.parse().expect("an address"));
        let hops = [hop("203.0.113.7:5060", Transport::Udp), hop("203.0.113.8:5061", Transport::Tcp)];
        let both = Candidate { rank: 1, priority: 1, weight: 1, hops: hops.into_iter().collect() };
        let nowhere = hop("203.0.113.8:5061", Transport::Tls);
        let unreached = Candidate { hops: [nowhere].into_iter().collect(), ..both.clone() };
        let located = |candidate| Ok(Arc::new(CandidateList::new(vec![candidate])));
        let answers: [LocateResult; 4] =
            [Err(LocateError::NoSuchName), Err(LocateError::NoAnswer), located(both), located(unreached)];
        let answer = answers[self.below(4)].clone();
        if self.below(2) == 0 {
            self.world.names.clear();
        }
        self.world.resolve(answer)
    }

    fn finish(mut self, seed: u64) -> Counters {
        while !self.world.questions.is_empty() {
            let sent = self.world.resolve(Err(LocateError::NoAnswer));
            self.take(sent);
        }
        // A redirection may send another query while time passes.
        for _ in 0..20 {
            let sent = self.world.wait(Duration::from_secs(50)).into_iter().map(|(_, sent)| sent).collect();
            self.take(sent);
            while !self.world.questions.is_empty() {
                let sent = self.world.resolve(Err(LocateError::NoAnswer));
                self.take(sent);
            }
        }
        let sent = self.world.settle();
        self.take(sent);
        for (name, method, uri) in &self.calls {
            let ends = self.finals.get(&(format!("z9hG4bK{name}"), (*method).to_owned())).cloned().unwrap_or_default();
            let mut failures: Vec<u16> = ends.iter().copied().filter(|status| *status >= 300).collect();
            failures.dedup();
            let successes = ends.iter().filter(|status| **status < 300).count();
            let told = (failures.len(), successes);
            let once = match *method {
                "INVITE" => told == (1, 0) || told.0 == 0 && told.1 > 0,
                _ => told.0 + told.1 <= 1,
            };
            assert!(once, "seed {seed}: {name} {method} {uri} was answered {ends:?}");
        }
        let mut recorded = Vec::new();
        for event in &self.world.events {
            if let Event::Call(record) = event {
                assert!(!recorded.contains(&record.call_id()), "seed {seed}: a call has one record");
                recorded.push(record.call_id());
            }
        }
        let mut running = 0;
        self.world.shard.for_each_call(|_| running += 1);
        let begun = self.calls.iter().filter(|(_, method, _)| *method == "INVITE").count();
        assert_eq!(recorded.len() + running, begun, "seed {seed}: each call is recorded once it is over");
        self.world.shard.counters()
    }
}

#[test]
fn every_call_ends_once_and_leaves_nothing() {
    let mut total = Counters::default();
    for seed in 0..SEEDS {
        let mut chaos = Chaos::new(seed);
        for _ in 0..120 {
            chaos.step();
        }
        total.add(&chaos.finish(seed));
    }
    for (name, count) in [
        ("failovers", total.failovers),
        ("redirections", total.redirections_followed),
        ("challenges", total.challenges_answered),
        ("ring timeouts", total.ring_timeouts),
    ] {
        assert!(count > SEEDS / 10, "{name} were hardly tried: {count}");
    }
}

#[test]
fn a_cluster_member_answers_every_call_once() {
    let mut total = Counters::default();
    for seed in 0..CLUSTER_SEEDS {
        let own = usize::try_from(seed % 2).expect("small");
        let mut chaos = Chaos::with(seed, |snapshot| {
            configure(snapshot);
            with_clusters(snapshot, Some(own));
        });
        for _ in 0..120 {
            chaos.step();
        }
        total.add(&chaos.finish(seed));
    }
    assert!(total.forwarded > CLUSTER_SEEDS && total.failovers > 0, "{total:?}");
}

/// It keeps no state for requests over UDP.
#[test]
fn first_stages_are_stateless() {
    let mut total = Counters::default();
    for seed in 0..CLUSTER_SEEDS {
        let mut chaos = Chaos::with(seed, |snapshot| {
            configure(snapshot);
            with_clusters(snapshot, None);
        });
        for _ in 0..120 {
            chaos.step();
        }
        chaos.world.settle();
        total.add(&chaos.world.shard.counters());
    }
    assert!(total.forwarded_stateless > CLUSTER_SEEDS, "{total:?}");
}
