//! Random histories over a lossy network: no sequence of events violates the invariants, and all transactions end.
use strowger_foundation::Transport;
use strowger_message::{Message, Status};
use strowger_transaction::{ClientId, Event, NO_USER, Timing};

use crate::pair::{Pair, peer, request, response};

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).expect("small")
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

const STATUSES: [Status; 7] = [
    Status::TRYING,
    Status::RINGING,
    Status::OK,
    Status::MOVED_TEMPORARILY,
    Status::REQUEST_TIMEOUT,
    Status::BUSY_HERE,
    Status::DECLINE,
];

fn step(pair: &mut Pair, random: &mut Random, started: &mut Vec<ClientId>, reserved: &mut Vec<ClientId>) {
    let known = started.len();
    match random.below(12) {
        0..=2 => {
            let method = random.of(&["INVITE", "INVITE", "OPTIONS", "MESSAGE"]);
            let transport = random.of(&[Transport::Udp, Transport::Udp, Transport::Tcp]);
            started.push(pair.start(method, transport));
        }
        3..=5 if !pair.requests.is_empty() => {
            let nth = random.below(pair.requests.len());
            let status = random.of(&STATUSES);
            pair.respond(nth, status);
        }
        6 if known > 0 => {
            let id = started[random.below(known)];
            pair.cancel(id);
        }
        7 => reserved.push(pair.near.reserve_client().expect("room")),
        8 => pair.near.release_client(reserved.pop().unwrap_or(ClientId::from_parts(0, 0))),
        9 if random.below(8) == 0 => pair.near.handle_unreachable(pair.now, peer()),
        9 if random.below(8) == 0 => {
            let t1 = core::time::Duration::from_millis(random.of(&[100, 500, 700]));
            pair.far.set_timing(Timing { t1, ..Timing::default() });
        }
        10 if known > 0 => {
            // A stray response, possibly to an ended transaction and for another method.
            let id = started[random.below(known)];
            let method = random.of(&["INVITE", "OPTIONS", "CANCEL"]);
            let bytes = response(&request(method, id), random.of(&STATUSES));
            let _ = pair.near.handle_response(pair.now, id, &Message::parse(&bytes).expect("valid"));
        }
        11 if !pair.requests.is_empty() => {
            let (id, _) = pair.requests[random.below(pair.requests.len())];
            if random.below(2) == 0 {
                pair.far.handle_retransmission(pair.now, id);
            } else {
                let _ = pair.far.handle_ack(pair.now, id);
            }
        }
        _ => {
            let span = random.of(&[1, 100, 499, 500, 501, 5_000, 40_000]);
            let until = pair.now.as_millis() + span;
            pair.run_until(until);
        }
    }
    pair.settle();
}

#[test]
fn random_histories_keep_invariants_and_end() {
    for seed in 1..=60u64 {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut pair = Pair::new();
        if seed % 2 == 0 {
            pair.far_user = NO_USER;
        }
        let mut network = Random(seed.wrapping_mul(0xD134_2543_DE82_EF95));
        let loss = network.below(60);
        pair.loses = Box::new(move |_, _| network.below(100) < loss);
        let (mut started, mut reserved) = (Vec::new(), Vec::new());
        for _ in 0..150 {
            step(&mut pair, &mut random, &mut started, &mut reserved);
        }
        // The users finish: every request is answered, and an INVITE without a response is cancelled.
        for nth in 0..pair.requests.len() {
            pair.respond(nth, Status::BUSY_HERE);
        }
        let soon = pair.now.as_millis() + 40_000;
        pair.run_until(soon);
        for id in &started {
            pair.cancel(*id);
        }
        for id in reserved {
            pair.near.release_client(id);
        }
        let late = pair.now.as_millis() + 40_000;
        pair.run_until(late);
        for nth in 0..pair.requests.len() {
            pair.respond(nth, Status::BUSY_HERE);
        }
        pair.run_until(late + 200_000);
        assert_eq!((pair.near.clients(), pair.far.servers()), (0, 0), "seed {seed}");
        pair.assert_nothing_left();
        assert_every_client_ended_once(&pair, &started, seed);
    }
}

/// Each transaction with a user reports its end exactly once.
fn assert_every_client_ended_once(pair: &Pair, started: &[ClientId], seed: u64) {
    for id in started {
        let ends = pair.events.iter().filter(|(_, event)| match event {
            Event::ClientTimeout { id: ended, .. }
            | Event::ClientFailed { id: ended, .. }
            | Event::ClientEnded { id: ended, .. } => ended == id,
            _ => false,
        });
        assert_eq!(ends.count(), 1, "{id:?}, seed {seed}");
    }
    let servers =
        pair.events.iter().filter(|(_, e)| matches!(e, Event::ServerEnded { .. } | Event::ServerTimeout { .. }));
    let told = if pair.far_user == NO_USER { 0 } else { pair.requests.len() };
    assert_eq!(servers.count(), told, "seed {seed}");
}

/// The timers make up for losses: the user sees one failure, and the ACK arrives eventually.
#[test]
fn a_lossy_network_loses_no_failure() {
    for seed in 1..20 {
        let mut pair = Pair::new();
        let mut network = Random(seed * 77);
        pair.loses = Box::new(move |_, _| network.below(100) < 30);
        pair.start("INVITE", Transport::Udp);
        pair.run_until(8_000);
        pair.respond(0, Status::BUSY_HERE);
        pair.run_until(100_000);
        assert_eq!(pair.received, [486], "seed {seed}");
        assert!(pair.events.iter().all(|(_, e)| !matches!(e, Event::ServerTimeout { .. })), "seed {seed}");
        pair.assert_nothing_left();
    }
}
