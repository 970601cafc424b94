//! A phone behind a router with NAT, made from namespaces, `nftables` and `baresip`. Skipped if namespaces cannot be
//! created or a program is missing.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use strowger_interop::{Config, Event, Nat, PATIENCE, Phone, Program, Server, poll, poll_every};

const ALICE: &str = "sip:alice@example.com";
const BOB: &str = "sip:bob@example.com";

/// Time without traffic after which the router drops a UDP mapping, in seconds.
const UDP_TIMEOUT_S: u32 = 3;
/// TCP with keepalives as in RFC 5626.
const OUTBOUND: &str = "outbound";
const KEEP_ALIVES: &str = "keepalive_interval = \"1s\"";

/// Limit for "at once": above delays of a busy machine and below the shortest protocol timeout, which is 4 s.
const AT_ONCE: Duration = Duration::from_secs(2);

#[test]
fn udp_phone_is_kept_reachable() {
    let Some(mut home) = Home::new("udp", KEEP_ALIVES, "") else { return };
    home.call_in();
    home.call_out();
    home.watch_mapping(Duration::from_secs(4 * u64::from(UDP_TIMEOUT_S)));
    home.call_in();
}

#[test]
fn udp_phone_without_keep_alives_is_lost() {
    let Some(mut home) = Home::new("udp", "keepalive = \"off\"", "") else { return };
    home.call_in();
    let forgotten = poll(PATIENCE, || home.mappings().is_empty().then_some(()));
    assert!(forgotten.is_some(), "the router keeps {:?}", home.mappings());
    home.call_fails_at_once();
    home.register_again();
    home.call_in();
}

#[test]
fn udp_phone_with_a_lost_mapping() {
    let Some(mut home) = Home::new("udp", KEEP_ALIVES, "") else { return };
    home.call_in();
    home.nat.forget();
    home.call_fails_at_once();
    home.register_again();
    home.call_in();
}

#[test]
fn tcp_phone_is_kept_reachable() {
    let Some(mut home) = Home::new("tcp", KEEP_ALIVES, "") else { return };
    home.call_in();
    home.call_out();
    home.watch_mapping(Duration::from_secs(6));
    home.call_in();
}

#[test]
fn tcp_phone_is_switched_off() {
    let Some(mut home) = Home::new("tcp", KEEP_ALIVES, "") else { return };
    home.call_in();
    home.switch_off();
    home.assert_registrations(1, AT_ONCE);
    home.call_fails_at_once();
    home.switch_on();
    home.call_in();
}

#[test]
fn tcp_connection_is_reset() {
    // No keepalive intervenes: the call itself detects the failure.
    let Some(mut home) = Home::new("tcp", "keepalive = \"off\"", "") else { return };
    home.call_in();
    home.nat.reset_connections();
    home.call_fails_at_once();
    home.assert_registrations(1, AT_ONCE);
    home.call_fails_at_once();
    home.nat.heal();
    home.register_again();
    home.call_in();
}

#[test]
fn tcp_connection_is_blackholed() {
    let Some(mut home) = Home::new("tcp", KEEP_ALIVES, "[tcp]\nuser_timeout = \"2s\"\n") else { return };
    home.call_in();
    home.nat.swallow();
    // A keepalive is not acknowledged, so the server detects the failure without a call.
    home.assert_registrations(1, Duration::from_secs(10));
    home.call_fails_at_once();
    home.nat.heal();
    // The phone's side of the connection does not notice and would wait for its own retransmissions.
    home.switch_off();
    home.switch_on();
    home.call_in();
}

#[test]
fn outbound_phone_keeps_its_flow_alive() {
    let Some(mut home) = Home::new(OUTBOUND, "keepalive = \"off\"\nflow_timer = \"10s\"", "") else { return };
    home.call_in();
    // The phone would register again if its keepalives were not answered.
    home.watch_mapping(Duration::from_secs(12));
    home.call_in();
    let has_moved = ["REGISTER_OK", "REGISTER_FAIL"].map(|kind| home.alice().has_seen(kind));
    assert_eq!(has_moved, [false, false]);
    home.nat.reset_connections();
    home.call_fails_at_once();
    home.nat.heal();
    // On its own the phone would retry after half a minute.
    home.switch_off();
    home.switch_on();
    home.call_in();
}

/// Alice's phone behind the router, and Bob's in the server's network.
struct Home {
    /// `udp`, `tcp` or [`OUTBOUND`].
    transport: &'static str,
    alice: Option<Phone>,
    bob: Phone,
    server: Server,
    nat: Nat,
}

impl Home {
    fn new(transport: &'static str, registrar: &'static str, more: &str) -> Option<Home> {
        if !Program::Baresip.available() || !Nat::available() {
            return None;
        }
        let nat = Nat::new(UDP_TIMEOUT_S);
        let config =
            Config { host: Nat::SERVER.into(), tcp: true, registrar, more: more.to_owned(), ..Config::default() };
        let server = config.start_in(Some(&*nat.outside));
        let mut bob = Phone::start_at("bob", Nat::SERVER, Some(&*nat.outside));
        assert_eq!(register(&mut bob, "udp", server.address()).kind, "REGISTER_OK");
        let mut home = Home { transport, alice: None, bob, server, nat };
        home.switch_on();
        Some(home)
    }

    fn alice(&mut self) -> &mut Phone {
        self.alice.as_mut().expect("alice's phone is on")
    }

    fn switch_on(&mut self) {
        let mut alice = Phone::start_at("alice", Nat::PHONE, Some(&self.nat.inside));
        let event = register(&mut alice, self.transport, self.server.address());
        assert_eq!((event.kind.as_str(), event.detail.as_str()), ("REGISTER_OK", "200 OK"));
        self.alice = Some(alice);
    }

    /// Kills the phone without unregistering. The system closes its sockets.
    fn switch_off(&mut self) {
        self.alice = None;
    }

    fn register_again(&mut self) {
        let (transport, address) = (self.transport, self.server.address());
        let registered = poll(PATIENCE, || {
            // The first attempt may find that the phone's own end is dead as well.
            self.alice().delete_account();
            (register(self.alice(), transport, address).kind == "REGISTER_OK").then_some(())
        });
        assert!(registered.is_some(), "alice's phone does not register again");
    }

    /// Bob calls Alice, who answers. Each puts the other on hold once, and the caller hangs up.
    fn call_in(&mut self) {
        self.bob.dial(ALICE);
        let alice = self.alice.as_mut().expect("alice's phone is on");
        assert_eq!(alice.expect("CALL_INCOMING").peer, BOB);
        alice.accept();
        Home::talk(&mut self.bob, alice);
    }

    /// Like [`call_in`](Self::call_in), but Alice calls Bob.
    fn call_out(&mut self) {
        let alice = self.alice.as_mut().expect("alice's phone is on");
        alice.dial(BOB);
        self.bob.expect("CALL_INCOMING");
        self.bob.accept();
        Home::talk(alice, &mut self.bob);
    }

    /// Sends the requests within a call, which must be routed as well.
    fn talk(caller: &mut Phone, callee: &mut Phone) {
        caller.expect("CALL_ESTABLISHED");
        callee.expect("CALL_ESTABLISHED");
        assert_eq!(callee.expect("CALL_REMOTE_SDP").detail, "offer");
        assert_eq!(caller.expect("CALL_REMOTE_SDP").detail, "answer");
        for callee_holds in [true, false] {
            let (holder, held) = if callee_holds { (&mut *callee, &mut *caller) } else { (&mut *caller, &mut *callee) };
            holder.hold();
            assert_eq!(held.expect("CALL_REMOTE_SDP").detail, "offer");
            assert_eq!(holder.expect("CALL_REMOTE_SDP").detail, "answer");
            holder.resume();
            assert_eq!(held.expect("CALL_REMOTE_SDP").detail, "offer");
            assert_eq!(holder.expect("CALL_REMOTE_SDP").detail, "answer");
        }
        caller.hang_up();
        assert_eq!(callee.expect_closed(), "Connection reset by peer");
        caller.expect_closed();
    }

    /// Bob calls Alice and learns at once that she is unreachable.
    fn call_fails_at_once(&mut self) {
        let start = Instant::now();
        self.bob.dial(ALICE);
        let reason = self.bob.expect_closed();
        assert!(reason.starts_with("480 "), "{reason}");
        assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
    }

    fn mappings(&self) -> Vec<u16> {
        let transport = if self.transport == OUTBOUND { "tcp" } else { self.transport };
        self.nat.mappings(transport, self.server.address().port())
    }

    fn assert_registrations(&self, count: u64, patience: Duration) {
        let reached = poll(patience, || (self.server.registrations() == count).then_some(()));
        assert!(reached.is_some(), "{} registrations", self.server.registrations());
    }

    /// Asserts that the router's mapping does not change for this time.
    fn watch_mapping(&self, time: Duration) {
        let before = self.mappings();
        assert_eq!(before.len(), 1, "{before:?}");
        // Each check starts two programs.
        let check = || Some(self.mappings()).filter(|mappings| *mappings != before);
        let changed = poll_every(Duration::from_millis(100), time, check);
        assert_eq!(changed, None, "instead of {before:?}");
    }
}

fn register(phone: &mut Phone, transport: &str, address: SocketAddr) -> Event {
    match transport {
        OUTBOUND => phone.register_outbound(address),
        _ => phone.register_over(transport, address),
    }
}
