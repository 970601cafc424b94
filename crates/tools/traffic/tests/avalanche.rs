//! Phones after a power cut, in virtual time: drivers and their schedule against a registrar of limited capacity.

mod wire;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use strowger_foundation::Timestamp;
use strowger_traffic::driver::{Driver, Outbox, Setup};
use strowger_traffic::engine::Phones;
use strowger_traffic::population::Users;
use strowger_traffic::workload::Workload;
use wire::Wire;

const PHONES: u32 = 2_000;
const AT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 5060);
const BEGIN: Timestamp = Timestamp::from_millis(10_000);

/// How the registrar treats REGISTERs beyond its capacity.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OverloadBehavior {
    Silence,
    /// 503 with Retry-After, in seconds.
    Refuses(u64),
}

/// A registrar that answers a limited number of REGISTERs per 100 ms and requires credentials.
struct World {
    now: Timestamp,
    driver: Driver,
    phones: Phones,
    wire: Wire,
    a_tenth: u32,
    beyond: OverloadBehavior,
    slot: u64,
    done: u32,
    /// The time until which each Call-ID was told to wait.
    put_off: HashMap<String, Timestamp>,
    too_soon: u32,
}

impl World {
    fn new(set: &[(&str, &str)], a_tenth: u32, beyond: OverloadBehavior) -> Self {
        let set: Vec<_> = set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let workload = Workload::parse("avalanche", &set, 1.0).expect("known");
        let users = Arc::new(Users::generated("u%", "p", "example.com", PHONES));
        let mut driver = Driver::new(Setup::new(workload.callers.into(), users, AT, AT));
        driver.watch_ends();
        let how = workload.avalanche.expect("phones");
        Self {
            now: BEGIN,
            driver,
            phones: Phones::new(&how, &(0..PHONES), 5, (0, 1)).beginning(BEGIN),
            wire: Wire::default(),
            a_tenth,
            beyond,
            slot: 0,
            done: 0,
            put_off: HashMap::new(),
            too_soon: 0,
        }
    }

    fn run(&mut self, end: Duration) {
        let end = BEGIN + end;
        while !self.phones.is_recovered() {
            let next = [self.phones.next_at(), self.driver.poll_timeout()].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            while let Some(due) = self.phones.poll_due(self.now) {
                let user = (due.user, due.cseq);
                self.driver.begin_again((self.now, due.at), 0, user, &mut self.wire).expect("room");
            }
            self.driver.handle_timeout(self.now, &mut self.wire);
            while let Some(request) = self.wire.next() {
                let request = String::from_utf8(request).expect("text");
                if let Some(answer) = self.serve(&request) {
                    self.driver.handle_message(self.now, self.now, (0, AT), answer.as_bytes(), &mut self.wire);
                }
            }
            while let Some(ended) = self.driver.take_ended() {
                self.phones.on_end(&ended, self.now);
            }
        }
    }

    fn serve(&mut self, request: &str) -> Option<String> {
        let slot = self.now.as_nanos() / 100_000_000;
        if slot != self.slot {
            (self.slot, self.done) = (slot, 0);
        }
        self.done += 1;
        let call_id = request.lines().find(|line| line.starts_with("Call-ID")).expect("a Call-ID").to_owned();
        if self.put_off.get(&call_id).is_some_and(|until| self.now < *until) {
            self.too_soon += 1;
        }
        let (status, more) = match self.beyond {
            _ if self.done <= self.a_tenth && request.contains("Authorization") => (200, "Expires: 60\r\n".to_owned()),
            _ if self.done <= self.a_tenth => {
                (401, "WWW-Authenticate: Digest realm=\"r\", nonce=\"n\", qop=\"auth\"\r\n".to_owned())
            }
            OverloadBehavior::Silence => return None,
            OverloadBehavior::Refuses(seconds) => {
                self.put_off.insert(call_id, self.now + Duration::from_secs(seconds));
                (503, format!("Retry-After: {seconds}\r\n"))
            }
        };
        let copied = ["Via:", "From:", "To:", "Call-ID:", "CSeq:"];
        let copied = request.lines().filter(|line| copied.iter().any(|name| line.starts_with(name)));
        let copied: String = copied.map(|line| format!("{line}\r\n")).collect();
        Some(format!("SIP/2.0 {status} x\r\n{copied}{more}Content-Length: 0\r\n\r\n"))
    }
}

#[test]
fn phones_of_a_fast_registrar_are_back_as_soon_as_they_start() {
    let mut world = World::new(&[("spread", "2s")], u32::MAX, OverloadBehavior::Silence);
    world.run(Duration::from_secs(60));
    let recovery = world.phones.recovery();
    assert_eq!((recovery.phones(), recovery.registered()), (2_000, 2_000));
    let at = |share| recovery.time_of(share).expect("registered").as_secs_f64();
    assert!((at(0.5) - 1.0).abs() < 0.1 && (1.9..=2.0).contains(&at(1.0)), "{} {}", at(0.5), at(1.0));
    assert_eq!((recovery.attempts().max(), recovery.requests().mean()), (1, 2.0), "each is challenged once");
    assert!(world.driver.meter().began.add_up());
}

#[test]
fn unanswered_phones_retransmit_for_64_t1_then_wait_and_retry() {
    // 100 REGISTERs per second, from 2,000 phones that need two each.
    let mut world = World::new(&[], 10, OverloadBehavior::Silence);
    world.run(Duration::from_secs(4 * 3_600));
    let recovery = world.phones.recovery();
    assert_eq!(recovery.registered(), 2_000);
    assert!(recovery.time_of(1.0).expect("all") > Duration::from_secs(40), "{:?}", recovery.time_of(1.0));
    assert!(recovery.attempts().max() >= 2 && recovery.requests().max() > 11, "{:?}", recovery.requests().max());
    let course = recovery.time_series();
    assert!(course.windows(2).all(|pair| pair[0].1 <= pair[1].1));
    assert_eq!(course.last().map(|last| last.1), Some(2_000));
    assert!(world.driver.meter().began.add_up());
}

#[test]
fn the_retry_after_of_a_503_overrides_a_shorter_own_wait() {
    let set = [("base-time", "1s"), ("max-time", "4s")];
    let mut world = World::new(&set, 10, OverloadBehavior::Refuses(20));
    world.run(Duration::from_secs(4 * 3_600));
    let recovery = world.phones.recovery();
    assert_eq!((recovery.registered(), world.too_soon), (2_000, 0));
    assert!(world.put_off.len() > 1_000 && recovery.attempts().max() > 2);
    assert_eq!(world.driver.meter().repeats_sent, 0, "each was answered");
}

#[test]
fn one_seed_gives_the_same_times_with_any_number_of_threads() {
    let workload = Workload::parse("avalanche", &[], 1.0).expect("known").avalanche.expect("phones");
    let of = |thread, threads| {
        let mut phones = Phones::new(&workload, &(0..100), 9, (thread, threads));
        std::iter::from_fn(move || phones.poll_due(Timestamp::MAX)).map(|due| (due.at, due.user)).collect::<Vec<_>>()
    };
    let mut three: Vec<_> = (0..3).flat_map(|thread| of(thread, 3)).collect();
    three.sort_unstable();
    assert_eq!(of(0, 1), three);
}
