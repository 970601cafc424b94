//! Forwarding and registering allocate nothing once their buffers are warm.

use std::sync::Arc;
use std::time::Duration;

use strowger_allocations::{Counting, allocations};
use strowger_auth::client::{self, Secret};
use strowger_auth::{Algorithm, Ha1, NonceWindows};
use strowger_directory::{Change, Directory, Ha1s, User};
use strowger_foundation::{Flow, KeyRing, ListenerId, ShardId, TagKey, Timestamp, Transport};
use strowger_locate::{CachePolicy, Names, Outages};
use strowger_message::{AuthParams, Peek};
use strowger_proxy::Stateless;
use strowger_registrar::Locations;
use strowger_shard::{Action, Route, RouteTarget};
use strowger_shard::{Input, Listener, Output, Shard, ShardConfig, Snapshot, Steering};

const ALICE: &str = "192.0.2.10:5060";
const BOB: &str = "192.0.2.20:5060";

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A shard that sends everything to Bob, and the buffer that its outputs go through.
struct Relay {
    shard: Shard,
    steering: Steering,
    snapshot: Arc<Snapshot>,
    now: Timestamp,
    out: Vec<u8>,
}

impl Relay {
    fn new(stateless: Stateless) -> Self {
        let target = RouteTarget::at(b"sip:192.0.2.20", BOB.parse().expect("an address"));
        let action = Action::proxy(vec![target], stateless);
        Self::with(|snapshot| snapshot.routes = vec![Route::of_domain(b"*", action)])
    }

    fn with(edit: impl FnOnce(&mut Snapshot)) -> Self {
        let listeners = vec![Listener::new(Transport::Udp, "192.0.2.1:5060".parse().expect("an address"))];
        let mut snapshot = Snapshot::new(listeners, vec![(*b"example.com").into()], Directory::empty(1));
        snapshot.auth.require = Vec::new();
        edit(&mut snapshot);
        let (ring, snapshot) = (KeyRing::new(TagKey::new([7; 16])), Arc::new(snapshot));
        let locations = Arc::new(Locations::new(1, 1));
        let steering = Steering::new(&ring, Arc::clone(&locations), 1);
        let shard = Shard::new(ShardConfig {
            id: ShardId(0),
            seed: 1,
            ring,
            locations,
            nonces: Arc::new(NonceWindows::new(1, 1)),
            names: Arc::new(Names::new(CachePolicy::default(), 1)),
            outages: Arc::new(Outages::new(1)),
            snapshot: Arc::clone(&snapshot),
        });
        Self { shard, steering, snapshot, now: Timestamp::from_millis(1000), out: Vec::new() }
    }

    /// Gives the shard a datagram and takes what leaves; the allocations and the messages of it.
    fn input(&mut self, from: &str, text: &[u8]) -> (usize, usize) {
        let flow = Flow::new(ListenerId(0), Transport::Udp, from.parse().expect("an address"));
        let before = allocations();
        let peek = &Peek::read(text).expect("has a head");
        let (_, steered) = &self.steering.steer(peek, &self.snapshot).expect("is ours");
        self.shard.handle_input(self.now, Input::Message { arrival: self.now, flow, peek, steered });
        let mut messages = 0;
        while let Some(Output::Send { .. }) = self.shard.poll_output(&mut self.out) {
            messages += 1;
        }
        (allocations() - before, messages)
    }

    /// Lets `time` pass.
    fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(wakeup) = self.shard.poll_timeout().filter(|wakeup| wakeup.at <= end) {
            self.now = self.now.max(wakeup.at);
            self.shard.handle_timeout(self.now);
            while self.shard.poll_output(&mut self.out).is_some() {}
        }
        self.now = end;
    }

    /// Alice's phone registers once more, with credentials where it is challenged; the allocations of it.
    fn register(&mut self, number: usize) -> usize {
        let request = |cseq: usize, credentials: &str| {
            format!(
                "REGISTER sip:example.com SIP/2.0\r\nVia: SIP/2.0/UDP {ALICE};branch=z9hG4bKreg{cseq:06};rport\r\n\
                 Max-Forwards: 70\r\nFrom: \"Alice\" <sip:alice@example.com>;tag=a{number}\r\n\
                 To: <sip:alice@example.com>\r\nCall-ID: reg@192.0.2.10\r\nCSeq: {cseq} REGISTER\r\n\
                 Contact: <sip:alice@{ALICE};transport=udp>\r\nExpires: 3600\r\n{credentials}Content-Length: 0\r\n\r\n"
            )
        };
        let (mut allocations, _) = self.input(ALICE, request(2 * number + 1, "").as_bytes());
        let mut answer = String::from_utf8(self.out.clone()).expect("text");
        if let Some(challenge) = answer.split("WWW-Authenticate: ").nth(1) {
            let challenge = AuthParams::parse(challenge.lines().next().unwrap_or("").as_bytes()).expect("a challenge");
            let credentials = client::Request {
                username: b"alice",
                secret: Secret::Password(b"secret"),
                method: b"REGISTER",
                uri: b"sip:example.com",
                body: b"",
                cnonce: b"0a4f113b",
                nc: 1,
                cover_body: false,
            };
            let mut value = b"Authorization: ".to_vec();
            client::respond(&mut value, &challenge, &credentials).expect("can be answered");
            value.extend_from_slice(b"\r\n");
            let credentials = String::from_utf8(value).expect("ASCII");
            allocations += self.input(ALICE, request(2 * number + 2, &credentials).as_bytes()).0;
            answer = String::from_utf8(self.out.clone()).expect("text");
        }
        assert!(answer.starts_with("SIP/2.0 200 OK\r\n"), "{answer}");
        allocations
    }

    /// One call: INVITE, 100, 180, 200, ACK, BYE and 200; the allocations of each.
    fn call(&mut self, number: usize) -> Vec<usize> {
        let mut counts = Vec::new();
        let body =
            "v=0\r\no=alice 1 1 IN IP4 192.0.2.10\r\ns=-\r\nc=IN IP4 192.0.2.10\r\nt=0 0\r\nm=audio 6000 RTP/AVP 0\r\n";
        let request = |method: &str, cseq: u32| {
            format!(
                "{method} sip:+15551234567@gateway.elsewhere.example;user=phone SIP/2.0\r\n\
                 Via: SIP/2.0/UDP {ALICE};branch=z9hG4bK{method}{number:06};rport\r\nMax-Forwards: 70\r\n\
                 From: \"Alice\" <sip:alice@elsewhere.example>;tag=a{number}\r\n\
                 To: <sip:+15551234567@gateway.elsewhere.example>\r\nCall-ID: call-{number:06}@192.0.2.10\r\n\
                 CSeq: {cseq} {method}\r\nContact: <sip:alice@{ALICE}>\r\nUser-Agent: a phone\r\n\
                 Content-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            )
        };
        for (method, cseq, answers) in [("INVITE", 1, &[100, 180, 200][..]), ("ACK", 1, &[]), ("BYE", 2, &[200])] {
            let (allocations, messages) = self.input(ALICE, request(method, cseq).as_bytes());
            assert!(messages >= 1, "{method} is forwarded");
            counts.push(allocations);
            let sent = String::from_utf8(self.out.clone()).expect("text");
            assert!(sent.starts_with(method), "{sent}");
            for status in answers {
                let fields = sent.split("\r\n\r\n").next().expect("a head").lines().skip(1).filter(|line| {
                    ["Via", "Record-Route", "From", "To", "Call-ID", "CSeq"]
                        .contains(&line.split(':').next().unwrap_or(""))
                });
                let fields: String = fields.map(|line| format!("{line}\r\n")).collect();
                let text = format!("SIP/2.0 {status} Whatever\r\n{fields}Content-Length: 0\r\n\r\n");
                counts.push(self.input(BOB, text.as_bytes()).0);
            }
        }
        counts
    }
}

#[test]
fn a_stateless_forward_allocates_nothing() {
    let mut relay = Relay::new(Stateless::WhenPossible);
    assert!(
        relay.call(0).iter().sum::<usize>() > 0,
        "the first call fills the pool, which shows that the counter counts"
    );
    for number in 1..8 {
        relay.call(number);
    }
    for number in 8..64 {
        assert_eq!(relay.call(number), [0; 7], "INVITE, 100, 180, 200, ACK, BYE, 200");
    }
    assert_eq!(relay.shard.transactions(), 0);
}

/// Tables grow now and then, so this looks at the usual call.
#[test]
fn a_stateful_call_usually_allocates_nothing() {
    let mut relay = Relay::new(Stateless::Never);
    let mut totals = Vec::new();
    for number in 0..600 {
        totals.push(relay.call(number).iter().sum::<usize>());
        // Five calls a second: transactions end while others begin.
        relay.wait(Duration::from_millis(200));
    }
    assert_eq!(usual(totals), 0, "allocations of the usual call");
}

#[test]
fn a_refresh_usually_allocates_nothing() {
    let mut relay = Relay::with(|_| ());
    let mut totals = Vec::new();
    for number in 0..600 {
        totals.push(relay.register(number));
        relay.wait(Duration::from_millis(200));
    }
    assert_eq!(usual(totals), 0, "allocations of the usual refresh");
}

#[test]
fn a_refresh_with_a_challenge_usually_allocates_nothing() {
    let mut relay = Relay::with(|snapshot| {
        snapshot.auth.require = vec![(*b"REGISTER").into()];
        let ha1 = Ha1::compute(Algorithm::Md5, b"alice", b"example.com", b"secret");
        let ha1 = Ha1s { md5: ha1.as_bytes().try_into().ok(), ..Ha1s::default() };
        let user = User { aor: (*b"alice@example.com").into(), ha1, enabled: true };
        snapshot.directory = Directory::empty(1).with_changes([Change::PutUser(user)]);
    });
    let mut totals = Vec::new();
    for number in 0..600 {
        totals.push(relay.register(number));
        relay.wait(Duration::from_millis(200));
    }
    assert_eq!(usual(totals), 0, "allocations of the usual refresh with a challenge");
}

/// The median of all but the first 400.
fn usual(mut totals: Vec<usize>) -> usize {
    let mut settled = totals.split_off(400);
    settled.sort_unstable();
    settled[settled.len() / 2]
}
