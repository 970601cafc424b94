//! Clients that call and register at a steady rate and know several servers. They use the first server, and the next
//! one if it does not answer, refuses the datagram, or responds with 503 (RFC 3263 §4.3).

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::request::{self, Key, Kind};
use super::series::Attempt;
use crate::machine::Machine;
use crate::wire::{status, value};

/// T1, followed by T2 (RFC 3261 §17).
const T1: Duration = Duration::from_millis(500);
const T2: Duration = Duration::from_secs(4);
/// Time for which a failed server is used only after the others.
const AVOIDED: Duration = Duration::from_secs(30);
/// Maximum time for which a BYE is retransmitted.
const HANGING_UP: Duration = Duration::from_secs(4);
const TICK: Duration = Duration::from_millis(2);
/// First number of registrations that are not made by the load's clients.
const FIRST_OF_THOSE_BEFORE: u64 = 1 << 32;

/// Parameters of the clients.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Servers in order of preference.
    pub servers: Vec<SocketAddr>,
    /// Time without an answer after which the next server is tried.
    pub retry: Duration,
    /// Time after which an unanswered call or registration has failed.
    pub patience: Duration,
    /// Calls per second, to each of `callees` in turn.
    pub calls: f64,
    /// Registrations per second, each of a new user.
    pub registrations: f64,
    /// Callees.
    pub callees: Vec<String>,
    /// Contact address of the registered users.
    pub contact: SocketAddr,
}

/// Outcome of all attempts.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Calls in the order in which they began.
    pub calls: Vec<Attempt>,
    /// Registrations in the order in which they began.
    pub registrations: Vec<Attempt>,
    /// Users whose REGISTER was answered with 200.
    pub acknowledged: Vec<String>,
    /// Number of refused requests by status.
    pub refused: BTreeMap<u16, u64>,
}

/// Running clients, in a separate thread.
#[derive(Debug)]
pub struct Clients {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<History>>,
}

impl Clients {
    /// Starts clients on a machine.
    ///
    /// # Panics
    /// If no socket can be opened.
    #[must_use]
    pub fn start(machine: &Machine, plan: Plan) -> Clients {
        let is_over = Arc::new(AtomicBool::new(false));
        let sockets = plan.servers.iter().map(|server| {
            let socket = machine.socket();
            machine.inside(|| socket.connect(server).expect("a way to the server"));
            socket.set_read_timeout(Some(TICK * 10)).expect("a sound socket");
            socket
        });
        let sockets = sockets.collect();
        let over = Arc::clone(&is_over);
        let thread = Some(thread::spawn(move || Run::new(plan, sockets).run(&over)));
        Clients { is_over, thread }
    }

    /// Stops new attempts, waits until all have ended, and returns their outcome.
    ///
    /// # Panics
    /// If the client thread has panicked.
    #[must_use]
    pub fn finish(mut self) -> History {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().expect("it ends once").join().expect("clients do not panic")
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread's panic has already been printed. A second one here would abort the test run.
            let _ = thread.join();
        }
    }
}

/// Event on a socket: a message, or an ICMP error because the port is closed.
enum SocketEvent {
    Message(String),
    Refused,
}

/// A request that awaits its final response.
#[derive(Debug)]
struct Pending {
    user: String,
    began: Instant,
    server: usize,
    /// Number of servers tried before this one.
    attempt: usize,
    text: String,
    /// Time of the first transmission to this server.
    asked: Instant,
    /// Time of the next retransmission. `None` after a provisional response.
    again: Option<Instant>,
    pause: Duration,
}

#[derive(Debug)]
struct Run {
    plan: Plan,
    sockets: Vec<UdpSocket>,
    own: Vec<SocketAddr>,
    pending: BTreeMap<Key, Pending>,
    /// Time until which each server is used only after the others.
    avoided: Vec<Instant>,
    history: History,
}

impl Run {
    fn new(plan: Plan, sockets: Vec<UdpSocket>) -> Run {
        let own = sockets.iter().map(|socket| socket.local_addr().expect("a bound socket has an address")).collect();
        let avoided = vec![Instant::now(); sockets.len()];
        Run { plan, sockets, own, pending: BTreeMap::new(), avoided, history: History::default() }
    }

    fn run(mut self, is_over: &Arc<AtomicBool>) -> History {
        let (sender, receiver) = channel();
        let is_done = Arc::new(AtomicBool::new(false));
        let listen = |(server, socket): (usize, &UdpSocket)| {
            let (socket, sender) = (socket.try_clone().expect("a socket can be cloned"), sender.clone());
            let is_done = Arc::clone(&is_done);
            thread::spawn(move || listen(server, &socket, &sender, &is_done))
        };
        let listeners: Vec<_> = self.sockets.iter().enumerate().map(listen).collect();
        self.drive(&receiver, is_over);
        is_done.store(true, Ordering::Relaxed);
        for listener in listeners {
            let _ = listener.join();
        }
        self.history
    }

    fn drive(&mut self, receiver: &Receiver<(usize, SocketEvent)>, is_over: &AtomicBool) {
        let start = Instant::now();
        loop {
            let now = Instant::now();
            let goes_on = !is_over.load(Ordering::Relaxed);
            if goes_on {
                self.begin_what_is_due(now - start, now);
            } else if self.pending.is_empty() {
                return;
            }
            self.on_time(now);
            let Ok(first) = receiver.recv_timeout(TICK) else { continue };
            for (server, came) in [first].into_iter().chain(receiver.try_iter()) {
                match came {
                    SocketEvent::Message(text) => self.handle(server, &text),
                    SocketEvent::Refused => self.handle_refusal(server),
                }
            }
        }
    }

    fn begin_what_is_due(&mut self, elapsed: Duration, now: Instant) {
        let due = |rate: f64| (elapsed.as_secs_f64() * rate) as usize;
        while self.history.calls.len() < due(self.plan.calls) {
            let number = self.history.calls.len();
            let user = self.plan.callees[number % self.plan.callees.len()].clone();
            self.history.calls.push(Attempt { began: now, took: None });
            self.begin((Kind::Call, number as u64), user, now);
        }
        while self.history.registrations.len() < due(self.plan.registrations) {
            let number = self.history.registrations.len();
            self.history.registrations.push(Attempt { began: now, took: None });
            self.begin((Kind::Registration, number as u64), format!("new{number}"), now);
        }
    }

    fn begin(&mut self, key: Key, user: String, now: Instant) {
        let server = self.avoided.iter().position(|until| *until <= now).unwrap_or(0);
        let pending = Pending {
            user,
            began: now,
            server,
            attempt: 0,
            text: String::new(),
            asked: now,
            again: Some(now),
            pause: T1,
        };
        self.pending.insert(key, pending);
        self.ask(key, server, now);
    }

    /// Sends the request to this server.
    fn ask(&mut self, key: Key, server: usize, now: Instant) {
        let (own, contact) = (self.own[server], self.plan.contact);
        let Some(pending) = self.pending.get_mut(&key) else { return };
        pending.text = request::first(key, pending.attempt, &pending.user, own, contact);
        (pending.server, pending.asked, pending.again, pending.pause) = (server, now, Some(now + T1), T1);
        let text = pending.text.clone();
        self.send(server, &text);
    }

    fn send(&mut self, server: usize, text: &str) {
        if let Err(error) = self.sockets[server].send(text.as_bytes())
            && error.kind() == ErrorKind::ConnectionRefused
        {
            // The error belongs to an earlier datagram; this one was not sent.
            let _ = self.sockets[server].send(text.as_bytes());
            self.avoid(server);
        }
    }

    /// Retransmits, tries the next server, or gives up.
    fn on_time(&mut self, now: Instant) {
        let keys: Vec<Key> = self.pending.keys().copied().collect();
        for key in keys {
            let pending = &self.pending[&key];
            let (patience, is_silent) = match key.0 {
                Kind::HangUp => (HANGING_UP, false),
                _ => (self.plan.patience, pending.again.is_some() && now >= pending.asked + self.plan.retry),
            };
            let server = pending.server;
            if now >= pending.began + patience {
                self.pending.remove(&key);
            } else if is_silent && self.has_another(key) {
                self.avoid(server);
                self.ask_the_next(key, now);
            } else if pending.again.is_some_and(|again| now >= again) {
                let text = pending.text.clone();
                self.repeat(key, now);
                self.send(server, &text);
            }
        }
    }

    fn repeat(&mut self, key: Key, now: Instant) {
        let Some(pending) = self.pending.get_mut(&key) else { return };
        let most = if key.0 == Kind::Call { Duration::MAX } else { T2 };
        pending.pause = (pending.pause * 2).min(most);
        pending.again = Some(now + pending.pause);
    }

    fn has_another(&self, key: Key) -> bool {
        key.0 != Kind::HangUp && self.pending[&key].attempt + 1 < self.sockets.len()
    }

    fn ask_the_next(&mut self, key: Key, now: Instant) {
        let servers = self.sockets.len();
        let Some(pending) = self.pending.get_mut(&key) else { return };
        pending.attempt += 1;
        let next = (pending.server + 1) % servers;
        self.ask(key, next, now);
    }

    fn avoid(&mut self, server: usize) {
        self.avoided[server] = Instant::now() + AVOIDED;
    }

    /// Handles a closed port. Requests with another server left move to it, the others keep retransmitting.
    fn handle_refusal(&mut self, server: usize) {
        let now = Instant::now();
        self.avoid(server);
        let is_at = |(_, pending): &(&Key, &Pending)| pending.server == server && pending.again.is_some();
        let keys: Vec<Key> = self.pending.iter().filter(is_at).map(|(key, _)| *key).collect();
        for key in keys {
            if self.has_another(key) {
                self.ask_the_next(key, now);
            }
        }
    }

    fn handle(&mut self, server: usize, text: &str) {
        let (Some(status), Some(key)) = (status(text), request::key_of(text)) else { return };
        if key.0 == Kind::Call && status >= 200 {
            self.acknowledge(server, key, text, status < 300);
        }
        let now = Instant::now();
        // Any response shows that the server is alive.
        self.avoided[server] = now;
        let Some(pending) = self.pending.get_mut(&key) else { return };
        match status {
            100..=199 => pending.again = None,
            503 if self.has_another(key) => {
                self.avoid(server);
                self.ask_the_next(key, now);
            }
            _ => self.end(server, key, text, status, now),
        }
    }

    fn acknowledge(&mut self, server: usize, key: Key, response: &str, is_success: bool) {
        let invite = self.pending.get(&key).map_or("", |pending| pending.text.as_str());
        let ack = request::acknowledge(invite, response, self.own[server], is_success);
        if is_success || !invite.is_empty() {
            self.send(server, &ack);
        }
    }

    fn end(&mut self, server: usize, key: Key, text: &str, status: u16, now: Instant) {
        let Some(pending) = self.pending.remove(&key) else { return };
        let (kind, number) = key;
        if status >= 300 {
            *self.history.refused.entry(status).or_default() += 1;
            return;
        }
        let took = Some(now - pending.began);
        match kind {
            Kind::Call => {
                self.history.calls[number as usize].took = took;
                self.hang_up(server, number, text, now);
            }
            Kind::Registration => {
                self.history.registrations[number as usize].took = took;
                self.history.acknowledged.push(pending.user);
            }
            Kind::HangUp => {}
        }
    }

    fn hang_up(&mut self, server: usize, number: u64, response: &str, now: Instant) {
        let text = request::hang_up(number, response, self.own[server]);
        self.send(server, &text);
        let user = value(response, "To").to_owned();
        let again = Some(now + T1);
        let pending = Pending { user, began: now, server, attempt: 0, text, asked: now, again, pause: T1 };
        self.pending.insert((Kind::HangUp, number), pending);
    }
}

fn listen(server: usize, socket: &UdpSocket, sender: &Sender<(usize, SocketEvent)>, is_done: &AtomicBool) {
    let mut buffer = [0; 8_192];
    while !is_done.load(Ordering::Relaxed) {
        let came = match socket.recv(&mut buffer) {
            Ok(length) => SocketEvent::Message(String::from_utf8_lossy(&buffer[..length]).into_owned()),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => SocketEvent::Refused,
            Err(_) => continue,
        };
        if sender.send((server, came)).is_err() {
            return;
        }
    }
}

/// Registers these users at one server, one after the other.
///
/// # Panics
/// If one is not answered in time.
pub(super) fn register(machine: &Machine, server: SocketAddr, users: &[String], contact: SocketAddr) {
    let socket = machine.socket();
    let own = socket.local_addr().expect("a bound socket has an address");
    users.iter().for_each(|user| register_from(&socket, server, user, own, contact));
}

/// Registers a user from this socket, with `own` as its address in the Via.
///
/// # Panics
/// If it is not answered with 200 in time.
pub(super) fn register_from(socket: &UdpSocket, server: SocketAddr, user: &str, own: SocketAddr, contact: SocketAddr) {
    static NUMBER: AtomicU64 = AtomicU64::new(FIRST_OF_THOSE_BEFORE);
    let key = (Kind::Registration, NUMBER.fetch_add(1, Ordering::Relaxed));
    socket.set_read_timeout(Some(TICK * 10)).expect("a sound socket");
    let request = request::first(key, 0, user, own, contact);
    let mut buffer = [0; 8_192];
    let taken = crate::poll(crate::PATIENCE, || {
        // The server may not have started yet.
        let _ = socket.send_to(request.as_bytes(), server);
        let length = socket.recv(&mut buffer).ok()?;
        let text = String::from_utf8_lossy(&buffer[..length]);
        (request::key_of(&text) == Some(key) && status(&text) == Some(200)).then_some(())
    });
    assert!(taken.is_some(), "{user} is not registered");
}
