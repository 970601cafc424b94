//! Instruction counts of a shard for each unit of work, measured by callgrind. They are the same on every machine, so
//! limits can be set.
//!
//! `cargo bench -p strowger-shard --bench instructions` needs valgrind, and gungraun-runner in the version of
//! Cargo.lock (`cargo install --locked gungraun-runner`); `scripts/test.sh` installs both. Each benchmark does its
//! work [`TIMES`] times, so its count and its limit are that many times the cost of one unit. A change that makes the
//! work cheaper lowers the limit.

#![expect(
    missing_docs,
    unused_qualifications,
    clippy::disallowed_macros,
    clippy::disallowed_types,
    reason = "what the macros of gungraun write"
)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::hint::black_box;
use std::time::Duration;

use gungraun::prelude::*;
use gungraun::{Callgrind, EventKind, LibraryBenchmarkConfig};
use strowger_auth::{Algorithm, Ha1};
use strowger_directory::{Directory, DirectoryChange, Ha1s, User};
use strowger_foundation::{Flow, ListenerId, Transport};
use strowger_message::{Message, Peek};
use strowger_proxy::Stateless;
use strowger_shard::{Action, Input, Route, RouteTarget, Snapshot, Verdict};
use support::{ALICE, Account, BOB, SentMessage, World};

/// Repetitions of the work in a benchmark.
const TIMES: u64 = 100;
/// Repetitions before the measurement, until as many transactions end as begin.
const WARM_UP: u64 = 100;
/// Time between two units of work. Transactions last 32 s, which is 64 of these.
const GAP: Duration = Duration::from_millis(500);

/// One input to the shard.
enum Step {
    Datagram(Flow, String),
    Gap,
}

/// The inputs of a unit of work. They are recorded once, because what an end sends depends on what it received; the
/// same inputs make the same shard do the same again.
struct Recording {
    world: World,
    steps: Vec<Step>,
}

impl Recording {
    fn give(&mut self, from: &str, text: String) -> Vec<SentMessage> {
        let flow = Flow::new(ListenerId(0), Transport::Udp, from.parse().expect("an address"));
        let sent = self.world.input_by(flow, &text);
        self.steps.push(Step::Datagram(flow, text));
        sent
    }

    fn pass(&mut self) {
        self.world.wait(GAP);
        self.steps.push(Step::Gap);
    }
}

/// A warmed-up world and the recorded inputs.
struct PreparedShard {
    world: World,
    buffer: Vec<u8>,
    steps: Vec<Step>,
}

impl PreparedShard {
    /// Creates one; `unit` does one unit of work and gets its number.
    fn new(edit: fn(&mut Snapshot), unit: fn(&mut Recording, u64)) -> Self {
        Self::after(register_both, edit, unit)
    }

    /// Like `new`, with `begin` run first.
    fn after(begin: fn(&mut Recording), edit: fn(&mut Snapshot), unit: fn(&mut Recording, u64)) -> Self {
        let world = || {
            let mut world = World::new(edit);
            world.is_checked = false;
            world
        };
        let mut recording = Recording { world: world(), steps: Vec::new() };
        begin(&mut recording);
        let mut measured_from = 0;
        for number in 1..=WARM_UP + TIMES {
            if number == WARM_UP + 1 {
                measured_from = recording.steps.len();
            }
            unit(&mut recording, number);
            recording.pass();
        }
        let mut prepared = Self { world: world(), buffer: Vec::new(), steps: Vec::new() };
        let mut steps = recording.steps;
        let measured = steps.split_off(measured_from);
        prepared.steps = steps;
        prepared.run();
        prepared.steps = measured;
        prepared
    }

    /// Feeds the shard all recorded inputs and drains its outputs.
    fn run(&mut self) -> usize {
        let World { shard, steering, snapshot, now, .. } = &mut self.world;
        let buffer = &mut self.buffer;
        let mut left = 0;
        for step in &self.steps {
            match step {
                Step::Datagram(flow, text) => {
                    let mut peek = Peek::default();
                    peek.fill(text.as_bytes()).expect("has a head");
                    let peek = &peek;
                    let (_, steered) = &steering.steer(peek, snapshot).expect("is ours");
                    let arrival = *now;
                    shard.prefetch(peek, steered);
                    shard.handle_input(
                        arrival,
                        Input::Message { arrival, flow: *flow, peek, steering: steered, verdict: Verdict::Admit },
                    );
                    while shard.poll_output(buffer).is_some() {
                        left += buffer.len();
                    }
                }
                Step::Gap => {
                    let end = *now + GAP;
                    while let Some(wakeup) = shard.poll_timeout().filter(|wakeup| wakeup.at <= end) {
                        *now = (*now).max(wakeup.at);
                        shard.handle_timeout(*now);
                        while shard.poll_output(buffer).is_some() {
                            left += buffer.len();
                        }
                    }
                    *now = end;
                }
            }
        }
        left
    }
}

fn register_both(recording: &mut Recording) {
    for (user, address) in [("alice", ALICE), ("bob", BOB)] {
        let registered = register(recording, user, address, 0);
        assert_eq!(registered.status(), 200, "{}", registered.text);
    }
}

/// Sends a refresh as a phone does, with credentials after a challenge. Returns the final response.
fn register(recording: &mut Recording, user: &str, address: &str, number: u64) -> SentMessage {
    let text = |part: u32, credentials: &str| {
        format!(
            "REGISTER sip:example.com SIP/2.0\r\nVia: SIP/2.0/UDP {address};branch=z9hG4bK-{user}-{number}-{part}\r\n\
             Max-Forwards: 70\r\nFrom: <sip:{user}@example.com>;tag=a73kszlfl\r\nTo: <sip:{user}@example.com>\r\n\
             Call-ID: 1j9FpLxk3uxtm8tn-{user}@{address}\r\nCSeq: {} REGISTER\r\n\
             Contact: <sip:{user}@{address};transport=udp>\r\nExpires: 3600\r\n{credentials}Content-Length: 0\r\n\r\n",
            2 * number + u64::from(part) + 1
        )
    };
    let first = recording.give(address, text(0, "")).remove(0);
    if first.status() != 401 {
        return first;
    }
    let credentials = Account::new(user, "secret").authorization(&first, 0, &text(0, ""));
    recording.give(address, text(1, &credentials)).remove(0)
}

const BODY: &str = "v=0\r\no=alice 53655765 2353687637 IN IP4 192.0.2.10\r\ns=-\r\nc=IN IP4 192.0.2.10\r\nt=0 0\r\n\
                    m=audio 6000 RTP/AVP 0\r\na=rtpmap:0 PCMU/8000\r\n";

/// INVITE, 180, 200, ACK, BYE, 200: Proxy-200.
fn call(recording: &mut Recording, number: u64) {
    call_to(recording, number, "sip:bob@example.com");
}

fn call_to(recording: &mut Recording, number: u64, callee: &str) {
    let request = |method: &str, uri: &str, cseq: u32, to_tag: &str, routes: &str, body: &str| {
        format!(
            "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {ALICE};branch=z9hG4bK-{method}-{number}\r\n{routes}\
             Max-Forwards: 70\r\nFrom: <sip:alice@example.com>;tag=a{number}\r\nTo: <{callee}>{to_tag}\r\n\
             Call-ID: 843817637684230-{number}@192.0.2.10\r\nCSeq: {cseq} {method}\r\n\
             Contact: <sip:alice@{ALICE};transport=udp>\r\nContent-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let tag = format!(";tag=b{number}");
    let contact = format!("Contact: <sip:bob@{BOB};transport=udp>\r\n");
    let sent = recording.give(ALICE, request("INVITE", callee, 1, "", "", BODY));
    let invite = support::find(&sent, "INVITE");
    recording.give(BOB, invite.response(180, "Ringing", &tag, &contact));
    let sent = recording.give(BOB, invite.response(200, "OK", &tag, &contact));
    let answer = sent.iter().find(|sent| sent.status() == 200).expect("the answer");
    let mut routes: Vec<&str> = answer.headers("Record-Route").collect();
    routes.reverse();
    let routes: String = routes.iter().map(|route| format!("Route: {route}\r\n")).collect();
    let target = format!("sip:bob@{BOB};transport=udp");
    recording.give(ALICE, request("ACK", &target, 1, &tag, &routes, ""));
    let sent = recording.give(ALICE, request("BYE", &target, 2, &tag, &routes, ""));
    let sent = recording.give(BOB, support::find(&sent, "BYE").response(200, "OK", "", ""));
    assert_eq!(support::finals(&sent), [200], "the BYE is answered");
}

/// INVITE, 180, 200: all that a first stage sees of a call. The cluster is emulated.
fn call_through(recording: &mut Recording, number: u64) {
    let text = format!(
        "INVITE sip:bob@example.com SIP/2.0\r\nVia: SIP/2.0/UDP {ALICE};branch=z9hG4bK-INVITE-{number}\r\n\
         Max-Forwards: 70\r\nFrom: <sip:alice@example.com>;tag=a{number}\r\nTo: <sip:bob@example.com>\r\n\
         Call-ID: 843817637684230-{number}@192.0.2.10\r\nCSeq: 1 INVITE\r\nContact: <sip:alice@{ALICE};transport=udp>\r\n\
         Content-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{BODY}",
        BODY.len()
    );
    let sent = recording.give(ALICE, text);
    let invite = support::find(&sent, "INVITE");
    assert_eq!(invite.header("Record-Route"), None);
    let (member, contact) = (invite.to.to_string(), format!("Contact: <sip:bob@{BOB};transport=udp>\r\n"));
    for (status, reason) in [(180, "Ringing"), (200, "OK")] {
        recording.give(&member, invite.response(status, reason, &format!(";tag=b{number}"), &contact));
    }
}

fn open(_: &mut Snapshot) {}

/// Calls are tracked, as in every server, but without call records.
fn followed(snapshot: &mut Snapshot) {
    (snapshot.track_calls, snapshot.record_calls) = (true, false);
}

/// Routes everything to Bob, without state.
fn stateless(snapshot: &mut Snapshot) {
    let target = RouteTarget::at(b"sip:192.0.2.20", BOB.parse().expect("an address"));
    snapshot.routes = vec![Route::of_domain(b"*", Action::proxy(vec![target], Stateless::WhenPossible))];
    snapshot.proxy.stateless = Stateless::WhenPossible;
}

/// Requires a password for REGISTER; the server has its MD5 hash.
fn strict(snapshot: &mut Snapshot) {
    snapshot.auth.require = vec![(*b"REGISTER").into()];
    let user = |name: &str| {
        let ha1 = Ha1::compute(Algorithm::Md5, name.as_bytes(), b"example.com", b"secret");
        let md5 = ha1.as_bytes().to_vec().try_into().ok();
        let aor = format!("{name}@example.com").into_bytes().into();
        DirectoryChange::PutUser(User { aor, ha1: Ha1s { md5, sha256: None, sha512_256: None }, enabled: true })
    };
    snapshot.directory = Directory::empty(1).with_changes(["alice", "bob"].map(user));
}

fn stateful_call() -> PreparedShard {
    PreparedShard::new(open, call)
}

fn followed_call() -> PreparedShard {
    PreparedShard::new(followed, call)
}

fn stateless_call() -> PreparedShard {
    PreparedShard::new(stateless, |recording, number| call_to(recording, number, "sip:+15551234567@elsewhere.example"))
}

fn first_stage_call() -> PreparedShard {
    PreparedShard::after(|_| (), support::first_stage, call_through)
}

fn refresh() -> PreparedShard {
    PreparedShard::new(open, |recording, number| drop(register(recording, "alice", ALICE, number)))
}

fn challenged() -> PreparedShard {
    PreparedShard::new(strict, |recording, number| drop(register(recording, "alice", ALICE, number)))
}

/// Parsing only: an INVITE as it arrives.
fn invite() -> Vec<u8> {
    let prepared = stateful_call();
    let first = prepared.steps.into_iter().find_map(|step| match step {
        Step::Datagram(_, text) if text.starts_with("INVITE") => Some(text.into_bytes()),
        _ => None,
    });
    first.expect("a call begins with it")
}

/// The limit, in instructions for one unit of work.
fn at_most(instructions: u64) -> LibraryBenchmarkConfig {
    let mut callgrind = Callgrind::default();
    callgrind.hard_limits([(EventKind::Ir, TIMES * instructions)]);
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(callgrind);
    config
}

#[library_benchmark(config = at_most(2_780))]
#[bench::once(invite())]
fn parse(text: Vec<u8>) -> usize {
    let mut read = 0;
    for _ in 0..TIMES {
        let mut peek = Peek::default();
        peek.fill(black_box(&text)).expect("has a head");
        if let Ok(message) = &Message::from_peek(&peek) {
            read += black_box(message).bytes().len();
        }
    }
    read
}

#[library_benchmark]
#[bench::stateful_call(args = (stateful_call()), config = at_most(56_520))]
#[bench::followed_call(args = (followed_call()), config = at_most(59_420))]
#[bench::stateless_call(args = (stateless_call()), config = at_most(42_480))]
#[bench::first_stage_call(args = (first_stage_call()), config = at_most(18_630))]
#[bench::register(args = (refresh()), config = at_most(10_200))]
#[bench::challenge(args = (challenged()), config = at_most(24_430))]
fn shard(mut prepared: PreparedShard) -> (usize, PreparedShard) {
    (black_box(prepared.run()), prepared)
}

library_benchmark_group!(name = work, benchmarks = [parse, shard]);
main!(library_benchmark_groups = work);
