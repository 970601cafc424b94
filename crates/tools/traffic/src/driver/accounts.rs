//! The accounts are exact at every moment: with several threads, an overloaded server, losses, limits, and a restart
//! of the counting in the middle.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _};
use strowger_foundation::Timestamp;

use super::wire::Wire;
use super::{Driver, Setup};
use crate::law::{Law, Rng};
use crate::meter::Meter;
use crate::population::Users;
use crate::service::{AppliesTo, Service, ServiceLaw};
use crate::workload::{CallTimes, callee, caller};

const THREADS: usize = 2;

/// Arrival time, number, whether it goes to the callee, and the message.
type Flying = (Timestamp, u64, bool, Vec<u8>);

/// Both ends of one thread, with a slow server at the callee and a lossy wire.
struct Thread {
    caller: Driver,
    callee: Driver,
    service: Service,
    wire: Wire,
    /// Messages in flight.
    flying: BinaryHeap<Reverse<Flying>>,
    number: u64,
    lost: f64,
}

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

impl Thread {
    fn new(number: u16, rng: &mut Rng) -> Self {
        let law = |ms: u64| Some(Law::exponential(Duration::from_millis(ms)));
        let times =
            CallTimes { ring: law(rng.random_range(1..200)), hold: law(rng.random_range(1..2_000)), reaction: None };
        let users = Arc::new(Users::generated("u%", "p", "example.com", 100));
        let scripts = vec![caller(&times).expect("built in")];
        let mut first = Setup::new(scripts.into(), users.clone(), address(2), address(1));
        (first.number, first.max_sessions) = (number * 2, rng.random_range(20..400));
        let mut second = Setup::new(vec![callee(&times).expect("built in")].into(), users, address(1), address(2));
        (second.number, second.max_sessions) = (number * 2 + 1, rng.random_range(20..400));
        second.answers = vec![(crate::script::MethodId::Invite, 0)];
        second.max_wait = Duration::from_secs(60);
        (first.retransmits, second.retransmits) = (rng.random_bool(0.7), rng.random_bool(0.7));
        let law = Law::exponential(Duration::from_millis(rng.random_range(2..20)));
        let applies = if rng.random_bool(0.5) { AppliesTo::New } else { AppliesTo::All };
        let service =
            ServiceLaw { times: law.into(), servers: rng.random_range(1..3), queue: rng.random_range(0..20), applies };
        Self {
            caller: Driver::new(first),
            callee: Driver::new(second),
            service: Service::new(service, 3),
            wire: Wire::default(),
            flying: BinaryHeap::new(),
            number: 0,
            lost: if rng.random_bool(0.5) { 0.0 } else { 0.2 },
        }
    }

    fn next(&self) -> Option<Timestamp> {
        let flying = self.flying.peek().map(|Reverse((at, ..))| *at);
        [flying, self.caller.poll_timeout(), self.callee.poll_timeout(), self.service.poll_timeout()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Puts the sent messages in flight.
    fn fly(&mut self, now: Timestamp, to_callee: bool, rng: &mut Rng) {
        while let Some(bytes) = self.wire.next() {
            self.number += 1;
            if !rng.random_bool(self.lost) {
                let at = now + Duration::from_micros(rng.random_range(10..500));
                self.flying.push(Reverse((at, self.number, to_callee, bytes)));
            }
        }
    }

    fn turn(&mut self, now: Timestamp, rng: &mut Rng) {
        while let Some(job) = self.service.poll_done(now) {
            self.callee.handle_message(now, now, (0, address(1)), &job.bytes, &mut self.wire);
            self.service.recycle(job);
            self.fly(now, false, rng);
        }
        while self.flying.peek().is_some_and(|Reverse((at, ..))| *at <= now) {
            let Some(Reverse((_, _, at_callee, bytes))) = self.flying.pop() else { return };
            if !at_callee {
                self.caller.handle_message(now, now, (0, address(2)), &bytes, &mut self.wire);
            } else if self.service.applies(&bytes) {
                self.service.handle_message(now, (0, address(1)), &bytes);
            } else {
                self.callee.handle_message(now, now, (0, address(1)), &bytes, &mut self.wire);
            }
            self.fly(now, !at_callee, rng);
        }
        self.caller.handle_timeout(now, &mut self.wire);
        self.fly(now, true, rng);
        self.callee.handle_timeout(now, &mut self.wire);
        self.fly(now, false, rng);
    }

    /// Checks that the accounts match the running sessions.
    fn check(&self) {
        for (driver, ours) in [(&self.caller, true), (&self.callee, false)] {
            let Meter { began, answered, .. } = driver.meter();
            assert!(began.add_up(), "{began:?}");
            assert_eq!(answered.sent, answered.carried + answered.lost + answered.failed + answered.unfinished);
            let unfinished = if ours { began.unfinished } else { answered.unfinished };
            assert!(unfinished <= driver.session_count() as u64, "{unfinished} of {}", driver.session_count());
        }
    }
}

#[test]
fn overload_losses_and_limits_leave_the_accounts_exact() {
    let mut seen = [0_u64; 5];
    for seed in 0..60 {
        let mut rng = Rng::seed_from_u64(seed);
        let mut threads: Vec<_> = (0..THREADS).map(|number| Thread::new(number as u16, &mut rng)).collect();
        let (calls, gap) = (rng.random_range(50..400_u64), rng.random_range(1..20));
        let counts_anew = rng.random_bool(0.5).then(|| rng.random_range(0..calls));
        let (mut now, mut offered) = (Timestamp::from_millis(1_000), 0);
        let mut before = Meter::default();
        for call in 0..calls {
            now += Duration::from_millis(rng.random_range(0..gap));
            let thread = &mut threads[call as usize % THREADS];
            thread.turn(now, &mut rng);
            let _ = thread.caller.begin(now, 0, (call as u32, 1), &mut thread.wire);
            thread.fly(now, true, &mut rng);
            thread.check();
            offered += 1;
            if counts_anew == Some(call) {
                threads.iter_mut().for_each(|thread| before.merge(&thread.caller.restart_meter()));
                threads.iter_mut().for_each(|thread| drop(thread.callee.restart_meter()));
            }
        }
        let end = now + Duration::from_secs(rng.random_range(0..200));
        for thread in &mut threads {
            while let Some(at) = thread.next().filter(|at| *at <= end) {
                thread.turn(at, &mut rng);
                thread.check();
            }
        }
        let mut sum = Meter::default();
        threads.iter().for_each(|thread| sum.merge(thread.caller.meter()));
        let began = sum.began;
        assert!(began.add_up() && before.began.add_up(), "{seed}: {began:?} {:?}", before.began);
        assert_eq!(began.offered + before.began.offered, offered, "{seed}");
        assert_eq!(sum.failures.values().sum::<u64>(), began.lost + began.failed, "{seed}");
        let counts = [began.refused, began.carried, began.lost, began.unfinished, before.began.unfinished];
        seen.iter_mut().zip(counts).for_each(|(seen, count)| *seen += count);
    }
    assert!(seen.iter().all(|count| *count > 0), "each case was met: {seen:?}");
}
