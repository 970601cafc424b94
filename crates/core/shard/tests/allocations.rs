//! Allocations of a warm shard for each unit of work: none, or the number that the test names. Beyond that, tables
//! grow now and then.
//!
//! The shard is driven as by a worker, with prefetching and timers, and configured as by a server: calls are tracked
//! and go to the registered contact of their callee. Allocations of the tests themselves are not counted.

mod support;

use std::time::Duration;

use strowger_allocations::{CountingAllocator, allocations_of};
use strowger_auth::{Algorithm, Ha1};
use strowger_directory::{Directory, DirectoryChange, Ha1s, User};
use strowger_foundation::{Flow, ListenerId, Transport};
use strowger_message::Peek;
use strowger_proxy::Stateless;
use strowger_registrar::Durability;
use strowger_shard::{Action, Input, Output, Route, RouteTarget, Snapshot, Verdict};
use support::{ALICE, Account, BOB, SentMessage, World};

/// Units of work before counting starts, until as many transactions end as begin, several times over.
const WARM_UP: usize = 400;
/// Number of counted units.
const COUNTED: usize = 200;
/// Number of counted units that may find a table full; 95 of 100 do not.
const SELDOM: usize = COUNTED / 20;
/// Time between two units. Transactions last 32 s, which is 160 of these.
const GAP: Duration = Duration::from_millis(200);

const BODY: &str = "v=0\r\no=alice 53655765 2353687637 IN IP4 192.0.2.10\r\ns=-\r\nc=IN IP4 192.0.2.10\r\nt=0 0\r\n\
                    m=audio 6000 RTP/AVP 0\r\na=rtpmap:0 PCMU/8000\r\n";

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// A shard and its allocations.
struct CountedShard {
    world: World,
    /// The buffer for its outputs, like a worker's.
    out: Vec<u8>,
    allocated: usize,
}

impl CountedShard {
    /// Creates a shard that tracks calls without call records, as in every server. Alice and Bob are registered.
    fn new(edit: impl FnOnce(&mut Snapshot)) -> Self {
        let world = World::new(|snapshot| {
            (snapshot.track_calls, snapshot.record_calls) = (true, false);
            edit(snapshot);
        });
        let mut counted = Self { world, out: Vec::new(), allocated: 0 };
        if counted.world.snapshot.clusters.is_none() {
            counted.register("alice", ALICE, 0);
            counted.register("bob", BOB, 0);
        }
        counted
    }

    /// Sends the shard a datagram and returns its outputs.
    fn give(&mut self, from: &str, text: &str) -> Vec<SentMessage> {
        let flow = Flow::new(ListenerId(0), Transport::Udp, from.parse().expect("an address"));
        let World { shard, steering, snapshot, now, .. } = &mut self.world;
        let ((), count) = allocations_of(|| {
            let mut peek = Peek::default();
            peek.fill(text.as_bytes()).expect("has a head");
            let peek = &peek;
            let (_, steered) = &steering.steer(peek, snapshot).expect("is ours");
            shard.prefetch(peek, steered);
            shard.handle_input(
                *now,
                Input::Message { arrival: *now, flow, peek, steering: steered, verdict: Verdict::Admit },
            );
        });
        self.allocated += count;
        self.drain()
    }

    /// Drains the outputs and reports each record as stored at once.
    fn drain(&mut self) -> Vec<SentMessage> {
        let mut sent = Vec::new();
        loop {
            let (output, count) = allocations_of(|| self.world.shard.poll_output(&mut self.out));
            self.allocated += count;
            match output {
                Some(Output::Send { flow }) => {
                    sent.push(SentMessage {
                        to: flow.peer,
                        flow,
                        text: String::from_utf8_lossy(&self.out).into_owned(),
                    });
                }
                Some(Output::Store { ticket: Some(ticket), record }) => {
                    let stored = Input::Stored { ticket, record, is_durable: true };
                    let ((), count) = allocations_of(|| self.world.shard.handle_input(self.world.now, stored));
                    self.allocated += count;
                }
                Some(_) => {}
                None => return sent,
            }
        }
    }

    /// Advances the time by [`GAP`].
    fn pass(&mut self) {
        let end = self.world.now + GAP;
        while let Some(wakeup) = self.world.shard.poll_timeout().filter(|wakeup| wakeup.at <= end) {
            self.world.now = self.world.now.max(wakeup.at);
            let ((), count) = allocations_of(|| self.world.shard.handle_timeout(self.world.now));
            self.allocated += count;
            self.drain();
        }
        self.world.now = end;
    }

    /// Returns the allocations of each counted unit of work and of the time after it. `unit` gets its number.
    fn count(&mut self, mut unit: impl FnMut(&mut Self, usize)) -> Vec<usize> {
        let each = (1..=WARM_UP + COUNTED).map(|number| {
            self.allocated = 0;
            unit(self, number);
            self.pass();
            self.allocated
        });
        each.collect::<Vec<_>>().split_off(WARM_UP)
    }

    /// Refreshes a user's registration, with credentials if challenged.
    fn register(&mut self, user: &str, address: &str, number: usize) {
        let request = |part: usize, credentials: &str| {
            format!(
                "REGISTER sip:example.com SIP/2.0\r\nVia: SIP/2.0/UDP {address};branch=z9hG4bK-{user}-{number}-{part};rport\r\n\
                 Max-Forwards: 70\r\nFrom: <sip:{user}@example.com>;tag=a{number}\r\nTo: <sip:{user}@example.com>\r\n\
                 Call-ID: reg-{user}@{address}\r\nCSeq: {} REGISTER\r\nContact: <sip:{user}@{address};transport=udp>\r\n\
                 Expires: 3600\r\n{credentials}Content-Length: 0\r\n\r\n",
                2 * number + part + 1
            )
        };
        let mut answer = self.give(address, &request(0, "")).remove(0);
        if answer.status() == 401 {
            let credentials = Account::new(user, "secret").authorization(&answer, 0, &request(0, ""));
            answer = self.give(address, &request(1, &credentials)).remove(0);
        }
        assert_eq!(answer.status(), 200, "{}", answer.text);
    }

    /// All that a first stage sees of a call: INVITE, 180, 200. The cluster is emulated.
    fn call_through(&mut self, number: usize) {
        let sent = self.give(ALICE, &request("INVITE", number, "sip:bob@example.com", None));
        let invite = support::find(&sent, "INVITE");
        for status in [180, 200] {
            let answer = invite.response(status, "Reason", &format!(";tag=b{number}"), "");
            assert_eq!(self.give(&invite.to.to_string(), &answer).len(), 1);
        }
    }

    /// One call from Alice: INVITE, 180, 200, ACK, BYE and 200.
    fn call(&mut self, number: usize, callee: &str) {
        let (tag, contact) = (format!(";tag=b{number}"), format!("Contact: <sip:bob@{BOB};transport=udp>\r\n"));
        let sent = self.give(ALICE, &request("INVITE", number, callee, None));
        let invite = support::find(&sent, "INVITE");
        self.give(BOB, &invite.response(180, "Ringing", &tag, &contact));
        let sent = self.give(BOB, &invite.response(200, "OK", &tag, &contact));
        let answer = sent.iter().find(|sent| sent.status() == 200).expect("the answer");
        let routes: String = answer.headers("Record-Route").map(|route| format!("Route: {route}\r\n")).collect();
        let sent = self.give(ALICE, &request("ACK", number, callee, Some(&routes)));
        assert_eq!(support::destinations(&sent, "ACK"), [BOB]);
        let sent = self.give(ALICE, &request("BYE", number, callee, Some(&routes)));
        let bye = support::find(&sent, "BYE");
        let sent = self.give(BOB, &bye.response(200, "OK", "", ""));
        assert_eq!(support::finals(&sent), [200], "the BYE is answered");
    }
}

/// A request of Alice, with its Routes once the call is answered.
fn request(method: &str, number: usize, callee: &str, routes: Option<&str>) -> String {
    let contact = format!("sip:bob@{BOB};transport=udp");
    let (uri, tag) = routes.map_or((callee, String::new()), |_| (&contact, format!(";tag=b{number}")));
    let (routes, cseq) = (routes.unwrap_or(""), if method == "BYE" { 2 } else { 1 });
    format!(
        "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {ALICE};branch=z9hG4bK-{method}-{number};rport\r\n{routes}\
         Max-Forwards: 70\r\nFrom: <sip:alice@example.com>;tag=a{number}\r\nTo: <{callee}>{tag}\r\n\
         Call-ID: call-{number:06}@192.0.2.10\r\nCSeq: {cseq} {method}\r\n\
         Contact: <sip:alice@{ALICE};transport=udp>\r\nContent-Type: application/sdp\r\n\
         Content-Length: {}\r\n\r\n{BODY}",
        BODY.len()
    )
}

/// Requires a password for REGISTER; the server has its MD5 hash.
fn strict(snapshot: &mut Snapshot) {
    snapshot.auth.require = vec![(*b"REGISTER").into()];
    let user = |name: &str| {
        let ha1 = Ha1::compute(Algorithm::Md5, name.as_bytes(), b"example.com", b"secret");
        let ha1 = Ha1s { md5: ha1.as_bytes().try_into().ok(), ..Ha1s::default() };
        DirectoryChange::PutUser(User { aor: format!("{name}@example.com").into_bytes().into(), ha1, enabled: true })
    };
    snapshot.directory = Directory::empty(1).with_changes(["alice", "bob"].map(user));
}

/// Checks that all but `others` of the units allocate exactly `usual` times, and that all together make at most
/// `others` further allocations. A change that makes a unit cheaper lowers `usual`.
#[track_caller]
fn assert_settled(each: &[usize], usual: usize, others: usize) {
    let found = each.iter().filter(|count| **count != usual).count();
    assert!(found <= others, "{found} of {} do not allocate {usual}: {each:?}", each.len());
    let all: usize = each.iter().sum();
    assert!(all <= usual * each.len() + others, "{all} allocations: {each:?}");
}

#[test]
fn a_stateless_call_allocates_nothing() {
    let mut counted = CountedShard::new(|snapshot| {
        let target = RouteTarget::at(b"sip:192.0.2.20", BOB.parse().expect("an address"));
        snapshot.routes = vec![Route::of_domain(b"*", Action::proxy(vec![target], Stateless::WhenPossible))];
        snapshot.proxy.stateless = Stateless::WhenPossible;
    });
    counted.allocated = 0;
    counted.call(0, "sip:+15551234567@elsewhere.example");
    assert!(counted.allocated > 0, "the first one fills the pool, which shows that the counter counts");
    let each = counted.count(|counted, number| counted.call(number, "sip:+15551234567@elsewhere.example"));
    assert_eq!(each, [0; COUNTED]);
    assert_eq!(counted.world.shard.transactions(), 0, "it keeps no state");
}

#[test]
fn a_call_through_a_first_stage_allocates_nothing() {
    let mut counted = CountedShard::new(|snapshot| {
        support::first_stage(snapshot);
        snapshot.track_calls = false;
    });
    let each = counted.count(CountedShard::call_through);
    assert_eq!(each, [0; COUNTED]);
    assert_eq!(counted.world.shard.transactions(), 0, "it keeps no state");
}

/// Two: caller and callee together with the Call-ID, for the operator's list of calls; and when it is answered, the same
/// with its dialog, so that the operator can end it.
#[test]
fn a_tracked_call_to_a_registered_user_allocates_twice() {
    let mut counted = CountedShard::new(|_| ());
    let each = counted.count(|counted, number| counted.call(number, "sip:bob@example.com"));
    assert_settled(&each, 2, SELDOM);
}

#[test]
fn a_refresh_allocates_nothing() {
    let mut counted = CountedShard::new(|_| ());
    let each = counted.count(|counted, number| counted.register("alice", ALICE, number));
    assert_settled(&each, 0, SELDOM);
}

/// One: the address of record, while the REGISTER waits for the disk.
#[test]
fn a_durable_refresh_allocates_once() {
    let mut counted = CountedShard::new(|snapshot| snapshot.registrar.durability = Durability::WriteThrough);
    let each = counted.count(|counted, number| counted.register("alice", ALICE, number));
    assert_settled(&each, 1, SELDOM);
}

/// The used nonce goes into a tree ordered by time of issue. Its nodes have 11 entries and are split in half, so
/// every sixth refresh creates a leaf, and every sixth of these a node above it.
#[test]
fn a_challenged_refresh_allocates_only_for_every_sixth_nonce() {
    let mut counted = CountedShard::new(strict);
    let each = counted.count(|counted, number| counted.register("alice", ALICE, number));
    assert_settled(&each, 0, SELDOM + COUNTED / 6);
}
