//! Phones that register, all from one thread: with a fixed number in flight (throughput) or at a fixed rate (response
//! times).

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU64;
use std::thread;
use std::time::Duration;

use hdrhistogram::Histogram;
use mio::{Events, Interest, Poll, Token};
use rustix::thread::set_current_timer_slack;
use strowger_net::{BufferSizes, Clock, OrderingKey, RecvBatch, SendBatch, UdpSocket};

use super::message::{Answer, FIRST_CSEQ, Template};

/// Retransmission intervals of an unanswered REGISTER. After the last one it counts as lost.
const WAITS: [Duration; 4] =
    [Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2), Duration::from_millis(500)];
/// Sum of these intervals.
pub const PATIENCE: Duration = Duration::from_secs(4);
/// Sleep time of phones that share their core while they poll: the maximum delay of a REGISTER.
const NAP: Duration = Duration::from_micros(50);
/// Datagrams that may wait in a client socket before losses occur.
const PER_LINE: usize = 400;

/// Arrival process of REGISTERs.
#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// Saturation: this many in flight over all sockets; a new one begins when one ends.
    Window(usize),
    /// This many per second, independent of responses.
    Rate(u32),
    /// No new REGISTERs.
    Stop,
}

/// Results of REGISTERs over a period.
#[derive(Debug)]
pub struct Tally {
    /// Length of the period.
    pub time: Duration,
    /// Answered with 200.
    pub taken: u64,
    /// Answered with 503.
    pub unavailable: u64,
    /// Answered with another status.
    pub others: u64,
    /// Never answered.
    pub lost: u64,
    /// Retransmissions.
    pub again: u64,
    /// Times from the scheduled start of a REGISTER to the arrival of its 200, in nanoseconds.
    pub latency: Histogram<u64>,
}

impl Tally {
    fn new() -> Tally {
        let latency = Histogram::new_with_bounds(1_000, 60_000_000_000, 3).expect("the bounds are valid");
        Tally { time: Duration::ZERO, taken: 0, unavailable: 0, others: 0, lost: 0, again: 0, latency }
    }

    /// Returns the 200s per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.taken as f64 / self.time.as_secs_f64().max(1e-9)
    }

    /// Returns the quantile of the latency at `share`, in milliseconds.
    #[must_use]
    pub fn milliseconds(&self, share: f64) -> f64 {
        self.latency.value_at_quantile(share) as f64 / 1e6
    }
}

#[derive(Clone, Copy, Debug)]
struct User {
    /// Scheduled start of the REGISTER in flight, in nanoseconds.
    due: u64,
    cseq: u32,
    under_way: bool,
    registered: bool,
}

/// A socket and its users: those whose number modulo the number of sockets is the socket's index.
#[derive(Debug)]
struct SocketUsers {
    socket: UdpSocket,
    out: SendBatch,
    template: Template,
    members: u32,
    /// Position in the walk over its users. The walk takes large steps, so that neighbours in a table are not
    /// neighbours in time.
    at: u32,
    leap: u32,
    under_way: usize,
}

/// All phones of a server.
#[derive(Debug)]
pub struct Phones {
    server: SocketAddr,
    clock: Clock,
    poll: Poll,
    events: Events,
    lines: Vec<SocketUsers>,
    users: Vec<User>,
    /// For each of [`WAITS`], the requests to check and when, in order of time.
    timers: [VecDeque<(u64, u32, u32)>; 4],
    inbox: RecvBatch,
    under_way: usize,
    naps: bool,
    tally: Tally,
}

impl Phones {
    /// Opens the sockets without sending anything.
    ///
    /// # Panics
    /// If no sockets are available.
    #[must_use]
    pub fn new(server: SocketAddr, users: u32, sockets: u32) -> Phones {
        let poll = Poll::new().expect("the kernel has an epoll");
        let lines = (0..sockets).map(|index| {
            let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let mut socket = UdpSocket::bind(any, BufferSizes::DEFAULT).expect("a free port");
            let token = Token(index as usize);
            poll.registry().register(&mut socket, token, Interest::READABLE).expect("a socket can be polled");
            let template = Template::register(socket.local_addr());
            let members = (users + sockets - 1 - index) / sockets;
            SocketUsers { socket, out: SendBatch::new(), template, members, at: 0, leap: leap(members), under_way: 0 }
        });
        let lines = lines.collect();
        let user = User { due: 0, cseq: FIRST_CSEQ, under_way: false, registered: false };
        Phones {
            server,
            clock: Clock::start(),
            events: Events::with_capacity(sockets as usize),
            lines,
            users: vec![user; users as usize],
            timers: Default::default(),
            inbox: RecvBatch::new(),
            under_way: 0,
            naps: false,
            tally: Tally::new(),
            poll,
        }
    }

    /// Lets this thread yield its core between REGISTERs at a [rate](Pace::Rate) instead of polling.
    #[must_use]
    pub fn napping(mut self) -> Phones {
        // Without this a sleep takes twice as long.
        let _ = set_current_timer_slack(NonZeroU64::new(1_000));
        self.naps = true;
        self
    }

    /// Returns the number of users that have received a 200.
    #[must_use]
    pub fn registered(&self) -> usize {
        self.users.iter().filter(|user| user.registered).count()
    }

    /// Returns the last CSeq of a user and the address from which it registers.
    #[must_use]
    pub fn who(&self, user: u32) -> (u32, SocketAddr) {
        let line = user as usize % self.lines.len();
        (self.users[user as usize].cseq, self.lines[line].socket.local_addr())
    }

    /// Returns the address of the server.
    #[must_use]
    pub fn server(&self) -> SocketAddr {
        self.server
    }

    /// Registers users that are not registered yet, `window` at a time, until all are or `within` is over.
    pub fn fill(&mut self, window: usize, within: Duration) -> Tally {
        self.tally = Tally::new();
        let began = self.now();
        let end = began + nanos(within);
        // Two passes: the second is for those that were lost or refused in the first.
        for _ in 0..2 {
            if self.users.iter().all(|user| user.registered) {
                break;
            }
            let mut left: Vec<u32> = self.lines.iter().map(|line| line.members).collect();
            while self.now() < end && (self.under_way > 0 || left.iter().any(|left| *left > 0)) {
                for (line, left) in left.iter_mut().enumerate() {
                    while *left > 0 && self.has_room(line, window) {
                        let user = self.step(line);
                        *left -= 1;
                        let User { registered, under_way, .. } = self.users[user as usize];
                        if !registered && !under_way {
                            let now = self.now();
                            self.begin(line, user, now);
                        }
                    }
                }
                if self.under_way > 0 {
                    self.turn(end, false);
                }
            }
        }
        self.finish_tally(began)
    }

    /// Refreshes the [registered](Self::registered) users repeatedly. Requests in flight at the end continue in the
    /// next call.
    pub fn run(&mut self, pace: Pace, time: Duration) -> Tally {
        self.tally = Tally::new();
        let began = self.now();
        let end = began + nanos(time);
        let mut begun = 0;
        loop {
            let now = self.now();
            if now >= end {
                return self.finish_tally(began);
            }
            match pace {
                Pace::Window(window) => (0..self.lines.len()).for_each(|line| self.top_up(line, window)),
                Pace::Rate(rate) => self.keep_up(rate, began, now, &mut begun),
                Pace::Stop if self.under_way == 0 => return self.finish_tally(began),
                Pace::Stop => {}
            }
            self.turn(end, matches!(pace, Pace::Rate(_)));
        }
    }

    fn top_up(&mut self, line: usize, window: usize) {
        // If few users are registered, a full walk may find none.
        for _ in 0..self.lines[line].members {
            if !self.has_room(line, window) {
                return;
            }
            let user = self.step(line);
            if self.is_idle(user) {
                let now = self.now();
                self.begin(line, user, now);
            }
        }
    }

    /// Starts the REGISTERs that are due. The latency of a late one counts from its scheduled start.
    fn keep_up(&mut self, rate: u32, began: u64, now: u64, begun: &mut u64) {
        let due = u64::try_from(u128::from(now - began) * u128::from(rate) / 1_000_000_000).unwrap_or(u64::MAX);
        while *begun < due {
            let line = (*begun % self.lines.len() as u64) as usize;
            if self.lines[line].out.len() >= PER_LINE {
                return;
            }
            let at = began + *begun * 1_000_000_000 / u64::from(rate);
            *begun += 1;
            let found =
                (0..self.lines[line].members).find_map(|_| Some(self.step(line)).filter(|user| self.is_idle(*user)));
            if let Some(user) = found {
                self.begin(line, user, at);
            }
        }
    }

    fn has_room(&self, line: usize, window: usize) -> bool {
        let share = window / self.lines.len() + usize::from(line < window % self.lines.len());
        self.lines[line].under_way < share.min(PER_LINE)
    }

    fn is_idle(&self, user: u32) -> bool {
        let user = self.users[user as usize];
        user.registered && !user.under_way
    }

    /// Returns the next user of a socket.
    fn step(&mut self, line: usize) -> u32 {
        let count = self.lines.len();
        let line_ = &mut self.lines[line];
        line_.at = ((u64::from(line_.at) + u64::from(line_.leap)) % u64::from(line_.members)) as u32;
        line_.at * count as u32 + line as u32
    }

    fn begin(&mut self, line: usize, number: u32, due: u64) {
        let user = &mut self.users[number as usize];
        user.cseq += 1;
        user.due = due;
        user.under_way = true;
        let cseq = user.cseq;
        self.under_way += 1;
        self.lines[line].under_way += 1;
        self.send(line, number, cseq, 0);
    }

    fn send(&mut self, line: usize, user: u32, cseq: u32, time: usize) {
        let line = &mut self.lines[line];
        line.template.write(user, cseq, line.out.next_slot());
        line.out.commit(self.server, OrderingKey::ALL);
        self.timers[time].push_back((self.clock.now().as_nanos() + nanos(WAITS[time]), user, cseq));
    }

    /// Sends queued requests, waits for and handles responses, and checks timers.
    fn turn(&mut self, end: u64, at_once: bool) {
        for line in &mut self.lines {
            if !line.out.is_empty() {
                // What the kernel does not accept yet leaves in the next turn; a rejected datagram counts as lost.
                let _ = line.socket.send(&mut line.out, |_| {});
            }
        }
        let waits = self.timers.iter().filter_map(|timers| Some(timers.front()?.0)).fold(end, u64::min);
        let blocked = self.lines.iter().any(|line| !line.out.is_empty());
        let pause = if at_once || blocked { 0 } else { waits.saturating_sub(self.now()) };
        if at_once && self.naps && !blocked {
            thread::sleep(NAP);
        }
        match self.poll.poll(&mut self.events, Some(Duration::from_nanos(pause))) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => return,
            Err(error) => panic!("cannot wait for responses: {error}"),
        }
        let ready: Vec<(usize, bool)> = self.events.iter().map(|event| (event.token().0, event.is_error())).collect();
        for (line, has_errors) in ready {
            if has_errors {
                while self.lines[line].socket.poll_error().is_some() {}
            }
            self.receive(line);
        }
        self.look_at_timers();
    }

    fn receive(&mut self, line: usize) {
        loop {
            self.lines[line].socket.recv(&mut self.inbox).expect("the socket is there");
            let pair = self.clock.pair();
            for datagram in self.inbox.iter() {
                let Some(answer) = Answer::read(datagram.bytes).filter(|answer| answer.status >= 200) else { continue };
                let Some(user) = self.users.get_mut(answer.user as usize) else { continue };
                if !user.under_way || user.cseq != answer.cseq {
                    continue;
                }
                user.under_way = false;
                self.under_way -= 1;
                self.lines[line].under_way -= 1;
                match answer.status {
                    200 => {
                        user.registered = true;
                        self.tally.taken += 1;
                        let waited = pair.arrival(datagram.arrival).as_nanos().saturating_sub(user.due);
                        self.tally.latency.saturating_record(waited);
                    }
                    503 => self.tally.unavailable += 1,
                    _ => self.tally.others += 1,
                }
            }
            if !self.inbox.is_full() {
                return;
            }
        }
    }

    fn look_at_timers(&mut self) {
        let now = self.now();
        for time in 0..WAITS.len() {
            while let Some((_, number, cseq)) = self.timers[time].front().copied().filter(|(due, _, _)| *due <= now) {
                self.timers[time].pop_front();
                let user = &mut self.users[number as usize];
                if !user.under_way || user.cseq != cseq {
                    continue;
                }
                let line = number as usize % self.lines.len();
                if time + 1 < WAITS.len() {
                    self.tally.again += 1;
                    self.send(line, number, cseq, time + 1);
                } else {
                    user.under_way = false;
                    self.under_way -= 1;
                    self.lines[line].under_way -= 1;
                    self.tally.lost += 1;
                }
            }
        }
    }

    fn now(&self) -> u64 {
        self.clock.now().as_nanos()
    }

    fn finish_tally(&mut self, began: u64) -> Tally {
        let time = Duration::from_nanos(self.now() - began);
        Tally { time, ..std::mem::replace(&mut self.tally, Tally::new()) }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns a step size that visits all `members` before it repeats.
fn leap(members: u32) -> u32 {
    let greatest = |mut a: u32, mut b: u32| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let desired = (f64::from(members) * 0.618) as u32;
    (desired.max(1)..).find(|step| greatest(*step, members.max(1)) == 1).unwrap_or(1)
}
