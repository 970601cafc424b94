//! Requests to engines in virtual time.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use strowger_foundation::{ShardId, Timestamp};
use strowger_media::{
    Client, Command, Dialog, EngineChange, Engines, MediaPolicy, Outcome, Profile, Request, RequestKind, Transmit,
    shard_of,
};

const SDP: &[u8] = b"v=0\r\n";
const DIALOG: Dialog<'_> = Dialog { call_id: b"call", from_tag: b"a", to_tag: None, branch: None };

struct World {
    now: Timestamp,
    client: Client,
    policy: Arc<MediaPolicy>,
}

impl World {
    /// `probes` is false if the client probes no engine.
    fn new(engines: u16, probes: bool) -> Self {
        let addresses: Vec<_> = (0..engines).map(|number| SocketAddr::from(([192, 0, 2, 1], 2223 + number))).collect();
        let policy = Arc::new(MediaPolicy { engines: Engines::new(&addresses, None), ..MediaPolicy::default() });
        let now = Timestamp::from_millis(1000);
        let mut client = Client::new(ShardId(3), 99);
        client.handle_policy(now, &policy, if probes { 1 } else { 7 });
        Self { now, client, policy }
    }

    fn offer(&mut self, user: u64) -> Option<Transmit> {
        let command = Command::Offer(DIALOG, Profile::default(), SDP);
        let request = Request { user, kind: RequestKind::Offer, call: user, engine: None, command };
        self.client.start(self.now, &request);
        self.client.poll_transmit()
    }

    fn answer_with(&mut self, to: &Transmit, text: &[u8]) {
        let cookie = to.bytes.split(|byte| *byte == b' ').next().expect("a cookie");
        self.client.handle_message(self.now, to.engine.address(), &[cookie, b" ", text].concat());
    }

    /// Waits, and returns what was sent and when, in milliseconds from here.
    fn wait(&mut self, time: Duration) -> Vec<(u64, Transmit)> {
        let (begin, end) = (self.now, self.now + time);
        let mut sent = Vec::new();
        while let Some(at) = self.client.poll_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.client.handle_timeout(self.now);
            while let Some(transmit) = self.client.poll_transmit() {
                sent.push((self.now.saturating_since(begin).as_millis() as u64, transmit));
            }
        }
        self.now = end;
        sent
    }
}

#[test]
fn an_answer_ends_its_request() {
    let mut world = World::new(1, false);
    let sent = world.offer(7).expect("a datagram");
    assert_eq!(shard_of(&sent.bytes), Some(ShardId(3)));
    world.answer_with(&sent, b"d3:sdp5:v=1\r\n6:result2:oke");
    let Some((7, Outcome::Sdp(sdp, engine))) = world.client.poll_outcome() else { panic!("an outcome") };
    assert_eq!((&sdp[..], engine.address()), (&b"v=1\r\n"[..], sent.engine.address()));
    assert_eq!(world.client.pending(), 0);
    world.answer_with(&sent, b"d3:sdp5:v=1\r\n6:result2:oke");
    assert!(world.client.poll_outcome().is_none(), "a repeated answer changes nothing");
    assert_eq!(world.client.counters().strays, 1);
    assert!(world.wait(Duration::from_secs(60)).is_empty(), "nothing is repeated");
}

#[test]
fn a_lost_request_is_repeated_with_the_same_cookie() {
    let mut world = World::new(1, false);
    let first = world.offer(1).expect("a datagram");
    let sent = world.wait(Duration::from_millis(700));
    assert_eq!(sent.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [200, 600]);
    assert!(sent.iter().all(|(_, again)| again.bytes == first.bytes));
    world.answer_with(&first, b"d3:sdp5:v=1\r\n6:result2:oke");
    assert!(matches!(world.client.poll_outcome(), Some((1, Outcome::Sdp(..)))));
    assert_eq!(world.client.counters().retransmissions, 2);
}

#[test]
fn a_silent_engine_is_left_and_the_next_one_asked() {
    let mut world = World::new(2, false);
    let first = world.offer(1).expect("a datagram");
    let sent = world.wait(Duration::from_millis(1100));
    let (at, second) = sent.last().expect("a datagram to the other");
    assert_eq!((*at, second.engine.address() != first.engine.address()), (1000, true));
    assert_eq!(world.client.poll_change(), Some((first.engine.address(), EngineChange::Out)));
    world.answer_with(second, b"d3:sdp5:v=1\r\n6:result2:oke");
    assert!(
        matches!(world.client.poll_outcome(), Some((1, Outcome::Sdp(_, engine))) if engine.address() == second.engine.address())
    );
    for call in 2..40 {
        let next = world.offer(call).expect("a datagram");
        assert_eq!(next.engine.address(), second.engine.address(), "new calls leave the silent engine aside");
    }
}

#[test]
fn without_an_answer_of_any_engine_the_request_fails_within_their_time_outs() {
    let mut world = World::new(2, false);
    world.offer(1).expect("a datagram");
    world.wait(Duration::from_millis(1999));
    assert!(world.client.poll_outcome().is_none());
    world.wait(Duration::from_millis(1));
    assert!(matches!(world.client.poll_outcome(), Some((1, Outcome::Silent))));
    assert_eq!(world.client.counters().timeouts, 2);
    assert!(world.offer(2).is_none(), "both are out");
    assert!(matches!(world.client.poll_outcome(), Some((2, Outcome::Unavailable))));
}

#[test]
fn an_answer_is_for_the_engine_of_the_offer_only() {
    let mut world = World::new(2, false);
    let engine = world.policy.engines.iter().next().map(Arc::clone);
    let command = Command::Answer(Dialog { to_tag: Some(b"b"), ..DIALOG }, Profile::default(), SDP);
    let request = Request { user: 5, kind: RequestKind::Answer, call: 5, engine: engine.clone(), command };
    world.client.start(world.now, &request);
    world.wait(Duration::from_secs(1));
    assert!(matches!(world.client.poll_outcome(), Some((5, Outcome::Silent))));
    // An offer in the dialog moves on.
    let request =
        Request { kind: RequestKind::Offer, command: Command::Offer(DIALOG, Profile::default(), SDP), ..request };
    world.client.start(world.now, &request);
    let sent = world.client.poll_transmit().expect("a datagram");
    assert_ne!(Some(sent.engine.address()), engine.map(|engine| engine.address()));
    assert_eq!(world.client.counters().failovers, 1);
}

#[test]
fn a_busy_engine_passes_a_call_on_and_stays_in_service() {
    let mut world = World::new(2, false);
    let first = world.offer(1).expect("a datagram");
    world.answer_with(&first, b"d6:result10:load limite");
    let second = world.client.poll_transmit().expect("another engine is asked");
    assert_ne!(second.engine.address(), first.engine.address());
    world.answer_with(&second, b"d6:result10:load limite");
    let Some((1, Outcome::Refused(reason, _))) = world.client.poll_outcome() else { panic!("all are busy") };
    assert_eq!(reason, "it takes no more calls");
    assert_eq!(world.client.poll_change(), None);
}

#[test]
fn a_refusal_has_the_engines_reason() {
    let mut world = World::new(2, false);
    let sent = world.offer(1).expect("a datagram");
    world.answer_with(&sent, b"d12:error-reason9:bad\x1b[1m s6:result5:errore");
    let Some((1, Outcome::Refused(reason, _))) = world.client.poll_outcome() else { panic!("refused") };
    assert_eq!(reason, "bad\\u{1b}[1m s", "escaped for the log");
    assert_eq!(world.client.counters().refused, 1);
}

#[test]
fn only_the_engine_that_was_asked_can_answer() {
    let mut world = World::new(2, false);
    let sent = world.offer(1).expect("a datagram");
    let ok = b"d3:sdp5:v=1\r\n6:result2:oke";
    let other = world.policy.engines.iter().find(|one| one.address() != sent.engine.address()).map(Arc::clone);
    world.answer_with(&Transmit { engine: other.expect("two"), bytes: sent.bytes.clone() }, ok);
    let mut forged = sent.bytes.clone();
    forged[10] ^= 1;
    world.answer_with(&Transmit { bytes: forged, ..sent.clone() }, ok);
    world.answer_with(&sent, b"nonsense");
    assert!(world.client.poll_outcome().is_none());
    assert_eq!(world.client.counters().strays, 3);
    world.answer_with(&sent, ok);
    assert!(world.client.poll_outcome().is_some());
}

#[test]
fn an_engine_that_is_out_is_probed_until_it_answers() {
    let mut world = World::new(1, true);
    let (policy, shard) = (Arc::clone(&world.policy), ShardId(0));
    world.client = Client::new(shard, 1);
    world.client.handle_policy(world.now, &policy, 16);
    let (_, ping) = world.wait(Duration::from_millis(10)).pop().expect("a probe at once");
    assert!(ping.bytes.ends_with(b" d7:command4:pinge"));
    world.answer_with(&ping, b"d6:result4:ponge");
    // It falls silent.
    world.wait(Duration::from_secs(7));
    assert_eq!(world.client.poll_change(), Some((ping.engine.address(), EngineChange::Out)));
    assert!(world.offer(1).is_none());
    let (_, ping) = world.wait(Duration::from_secs(2)).pop().expect("a probe within two seconds");
    world.answer_with(&ping, b"d6:result4:ponge");
    assert_eq!(world.client.poll_change(), Some((ping.engine.address(), EngineChange::Back)));
    assert!(world.offer(2).is_some());
}

#[test]
fn the_table_of_requests_is_bounded() {
    let mut world = World::new(1, false);
    for user in 0..strowger_media::MAX_REQUESTS as u64 {
        assert!(world.offer(user).is_some());
    }
    assert!(world.offer(9999).is_none());
    assert!(matches!(world.client.poll_outcome(), Some((9999, Outcome::Unavailable))));
    assert_eq!(world.client.counters().table_full, 1);
}
