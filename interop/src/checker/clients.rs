//! Many concurrent clients that register, refresh and unregister at the members in turn.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::history::{AcknowledgedChange, History, preference};
use crate::caller::accept;
use crate::machine::Machine;
use crate::{wait_until, wire};

/// Number of sockets, each with a thread and a share of the users.
const SOCKETS: usize = 4;
/// Time allowed for a final response, and the retransmission interval.
const PATIENCE: Duration = Duration::from_millis(1_500);
const RETRANSMIT: Duration = Duration::from_millis(400);
/// Lifetimes of contacts that outlive a trial.
pub(super) const LONG: Lifetimes = Lifetimes { usual: Duration::from_secs(3_600), short: Duration::from_secs(60) };
/// One in this many users has contacts with the short lifetime.
const SHORT_ONE_OF: usize = 16;

/// Lifetimes of contacts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lifetimes {
    pub(super) usual: Duration,
    /// Lifetime for users who return only after it has expired.
    pub(super) short: Duration,
}

/// State shared by all clients.
#[derive(Debug)]
struct Shared {
    members: Vec<SocketAddr>,
    histories: Vec<Mutex<History>>,
    acknowledged: AtomicU64,
    in_flight: AtomicUsize,
    is_paused: AtomicBool,
    is_over: AtomicBool,
    /// Average pause of a user between requests.
    pause: Duration,
    lifetimes: Lifetimes,
}

/// Running clients.
#[derive(Debug)]
pub(super) struct Clients {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Clients {
    /// Starts this many users, who send `rate` requests per second if all are answered at once.
    pub(super) fn start(
        machine: &Machine,
        members: Vec<SocketAddr>,
        (users, rate): (usize, u32),
        lifetimes: Lifetimes,
    ) -> Clients {
        let pause = Duration::from_secs_f64(users as f64 / f64::from(rate));
        let shared = Arc::new(Shared {
            members,
            histories: (0..users).map(|_| Mutex::default()).collect(),
            acknowledged: AtomicU64::new(0),
            in_flight: AtomicUsize::new(0),
            is_paused: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            pause,
            lifetimes,
        });
        let thread = |first: usize| {
            let (shared, socket) = (Arc::clone(&shared), machine.socket());
            let users = (first..users).step_by(SOCKETS).map(User::new).collect();
            thread::spawn(move || Client { socket, users, shared }.run())
        };
        let threads = (0..SOCKETS).map(thread).collect();
        Clients { shared, threads }
    }

    /// Returns the number of acknowledged registrations and removals.
    pub(super) fn acknowledged(&self) -> u64 {
        self.shared.acknowledged.load(Ordering::Relaxed)
    }

    /// Returns what is known of a user. It is stable only [while the clients pause](Self::pause).
    pub(super) fn history(&self, user: usize) -> MutexGuard<'_, History> {
        lock(&self.shared.histories[user])
    }

    pub(super) fn users(&self) -> usize {
        self.shared.histories.len()
    }

    /// Stops new requests and waits until none is pending.
    pub(super) fn pause(&self) {
        self.shared.is_paused.store(true, Ordering::SeqCst);
        wait_until("no request is on its way", || self.shared.in_flight.load(Ordering::SeqCst) == 0);
    }

    /// Resumes after [`pause`](Self::pause).
    pub(super) fn go_on(&self) {
        self.shared.is_paused.store(false, Ordering::SeqCst);
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Returns the user part of an address of record.
pub(super) fn name(user: usize) -> String {
    format!("user{user}")
}

fn lock(history: &Mutex<History>) -> MutexGuard<'_, History> {
    history.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A REGISTER that awaits its answer.
#[derive(Debug)]
struct Pending {
    cseq: u32,
    lasts: Option<Duration>,
    member: SocketAddr,
    text: String,
    sent: Instant,
    again: Instant,
}

#[derive(Debug)]
struct User {
    number: usize,
    random: u64,
    pending: Vec<Pending>,
    next: Instant,
}

/// A socket and its users.
#[derive(Debug)]
struct Client {
    socket: UdpSocket,
    users: Vec<User>,
    shared: Arc<Shared>,
}

impl Client {
    fn run(mut self) {
        self.socket.set_read_timeout(Some(Duration::from_millis(5))).expect("a sound socket");
        let mut answer = [0; 2_048];
        while !self.shared.is_over.load(Ordering::SeqCst) {
            let now = Instant::now();
            for number in 0..self.users.len() {
                self.drive(number, now);
            }
            loop {
                match self.socket.recv_from(&mut answer) {
                    Ok((length, from)) => {
                        let text = String::from_utf8_lossy(&answer[..length]);
                        match wire::method(&text) {
                            // The phone is called.
                            "OPTIONS" => drop(self.socket.send_to(accept(&text).as_bytes(), from)),
                            _ => self.take(&text),
                        }
                    }
                    // A dead member refuses the datagram.
                    Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                    Err(_) => break,
                }
            }
        }
    }

    /// Sends what is due for a user.
    fn drive(&mut self, number: usize, now: Instant) {
        let user = &mut self.users[number];
        let waited = user.pending.len();
        user.pending.retain(|pending| now < pending.sent + PATIENCE);
        if waited > 0 && user.pending.is_empty() {
            user.rest(&self.shared, now);
        }
        if user.pending.is_empty() && now >= user.next && self.shared.begins() {
            let own = self.socket.local_addr().expect("bound");
            user.begin(&self.shared, own, now);
        }
        for pending in user.pending.iter_mut().filter(|pending| now >= pending.again) {
            // Sending fails if a member is isolated, which is no reason to give up.
            let _ = self.socket.send_to(pending.text.as_bytes(), pending.member);
            pending.again = now + RETRANSMIT;
        }
    }

    /// Handles a response.
    fn take(&mut self, text: &str) {
        let Some(status) = wire::status(text).filter(|status| *status >= 200) else { return };
        let cseq = wire::value(text, "CSeq").split(' ').next().and_then(|cseq| cseq.parse::<u32>().ok());
        let to = wire::value(text, "To");
        let number = to.split("user").nth(1).and_then(|rest| rest.split('@').next()?.parse::<usize>().ok());
        let (Some(cseq), Some(number)) = (cseq, number) else { return };
        let now = Instant::now();
        let Some(user) = self.users.iter_mut().find(|user| user.number == number) else { return };
        let Some(at) = user.pending.iter().position(|pending| pending.cseq == cseq) else { return };
        let Pending { lasts, sent, .. } = user.pending.swap_remove(at);
        if status == 200 {
            self.shared.acknowledged.fetch_add(1, Ordering::Relaxed);
            let mut history = lock(&self.shared.histories[number]);
            if history.acknowledged.is_none_or(|known| known.cseq < cseq) {
                history.acknowledged = Some(AcknowledgedChange { cseq, bound: lasts.map(|lasts| (sent, now, lasts)) });
            }
        }
        if user.pending.is_empty() {
            user.rest(&self.shared, now);
        }
    }
}

impl Shared {
    /// Returns whether a new request may begin, and if so counts it as pending.
    fn begins(&self) -> bool {
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        let begins = !self.is_paused.load(Ordering::SeqCst);
        if !begins {
            self.in_flight.fetch_sub(1, Ordering::SeqCst);
        }
        begins
    }
}

impl User {
    fn new(number: usize) -> User {
        User { number, random: number as u64 * 7_919 + 1, pending: Vec::new(), next: Instant::now() }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % below
    }

    /// Ends the pending request and schedules the next one.
    fn rest(&mut self, shared: &Shared, now: Instant) {
        shared.in_flight.fetch_sub(1, Ordering::SeqCst);
        let thousandths = u32::try_from(self.draw(2_000)).expect("few");
        let pause = shared.pause * thousandths / 1_000;
        let short = shared.lifetimes.short;
        self.next = now + if self.is_short() { short + short / 4 + pause } else { pause };
    }

    fn is_short(&self) -> bool {
        self.number.is_multiple_of(SHORT_ONE_OF)
    }

    /// Begins one REGISTER, or two at once at different members, of which the one with the higher CSeq counts.
    fn begin(&mut self, shared: &Shared, own: SocketAddr, now: Instant) {
        let requests = if self.draw(8) == 0 { 2 } else { 1 };
        let first = self.draw(shared.members.len() as u64) as usize;
        for request in 0..requests {
            let cseq = {
                let mut history = lock(&shared.histories[self.number]);
                history.used += 1;
                history.used
            };
            let Lifetimes { usual, short } = shared.lifetimes;
            let lasts = (self.draw(4) > 0).then_some(if self.is_short() { short } else { usual });
            let member = shared.members[(first + request) % shared.members.len()];
            let text = self.request(own, cseq, lasts);
            self.pending.push(Pending { cseq, lasts, member, text, sent: now, again: now });
        }
    }

    fn request(&self, own: SocketAddr, cseq: u32, lasts: Option<Duration>) -> String {
        let (user, expires, q) = (name(self.number), lasts.unwrap_or_default().as_secs(), preference(cseq));
        format!(
            "REGISTER sip:example.com SIP/2.0\r\nVia: SIP/2.0/UDP {own};branch=z9hG4bK-{user}-{cseq}\r\nMax-Forwards: 70\r\n\
             From: <sip:{user}@example.com>;tag=1\r\nTo: <sip:{user}@example.com>\r\nCall-ID: {user}@{own}\r\n\
             CSeq: {cseq} REGISTER\r\nContact: <sip:{user}@{own}>;expires={expires};q=0.{q:03}\r\nContent-Length: 0\r\n\r\n"
        )
    }
}
