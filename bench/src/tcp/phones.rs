//! The clients of the echo server: requests at regular times, over connections of one lifetime.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use mio::net::{TcpStream, UdpSocket};
use mio::{Events, Interest, Poll, Token};
use serde_json::{Value, json};
use socket2::{Domain, Protocol, Socket, Type};

use super::echo::shared;
use super::{ConnectionLifetime, MESSAGE_BYTES, gap};

/// How long the last answers are waited for.
const PATIENCE: Duration = Duration::from_secs(3);
/// Shorter waits are spent awake, so that requests leave in time.
const AWAKE: Duration = Duration::from_micros(1500);
/// The longest time that is told from longer ones, in nanoseconds.
const LONGEST: u64 = 60_000_000_000;
/// The token of the datagram socket.
const DATAGRAMS: Token = Token(usize::MAX - 1);

/// What is asked, and how.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    /// The server.
    pub server: SocketAddr,
    /// How connections are used.
    pub lifetime: ConnectionLifetime,
    /// Requests a second.
    pub rate: u32,
    /// How many.
    pub requests: usize,
    /// Connections that they take turns on, where these are opened before.
    pub connections: usize,
}

/// What a process of clients has found out.
#[derive(Debug)]
pub struct Outcome {
    /// From the first segment to an established connection, in nanoseconds.
    pub handshake: Histogram<u64>,
    /// From a request to its whole answer, in nanoseconds.
    pub answer: Histogram<u64>,
    /// From the time at which a request was due to its answer: the handshake and waiting included.
    pub total: Histogram<u64>,
    /// Requests without an answer, connections that failed.
    pub lost: usize,
    /// Requests a second that were made.
    pub rate: f64,
}

impl Outcome {
    /// For the process that asked.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let times = |histogram: &Histogram<u64>| {
            let us = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
            json!({ "count": histogram.len(), "p50_us": us(0.5), "p99_us": us(0.99) })
        };
        json!({
            "handshake": times(&self.handshake), "answer": times(&self.answer), "total": times(&self.total),
            "lost": self.lost, "rate": self.rate,
        })
    }
}

/// Where a connection stands.
#[derive(Clone, Copy, Debug)]
enum State {
    /// It is being opened, by a request that was due then.
    Opening {
        since: Instant,
        due: Option<Instant>,
    },
    /// A request is on the way.
    Asked {
        since: Instant,
        due: Instant,
        received: usize,
    },
    Idle,
}

struct Connection {
    stream: TcpStream,
    state: State,
}

/// All of one process.
pub struct Phones {
    task: Task,
    poll: Poll,
    connections: slab::Slab<Connection>,
    datagrams: Option<UdpSocket>,
    /// What datagrams' times are counted from.
    began: Instant,
    outcome: Outcome,
    pending: usize,
    buffer: Vec<u8>,
}

impl Phones {
    /// Ready to ask; where connections are opened before, they are open.
    ///
    /// # Errors
    /// When a socket cannot be had.
    pub fn new(task: Task) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut datagrams = None;
        if task.lifetime == ConnectionLifetime::Udp {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let mut socket = UdpSocket::from_std(shared(address, Type::DGRAM, Protocol::UDP)?.into());
            socket.connect(task.server)?;
            poll.registry().register(&mut socket, DATAGRAMS, Interest::READABLE)?;
            datagrams = Some(socket);
        }
        let histogram = || Histogram::new_with_max(LONGEST, 3).expect("three digits are a valid precision");
        let outcome = Outcome { handshake: histogram(), answer: histogram(), total: histogram(), lost: 0, rate: 0.0 };
        let connections = slab::Slab::with_capacity(task.connections);
        let buffer = vec![b'x'; MESSAGE_BYTES];
        let mut phones =
            Self { task, poll, connections, datagrams, began: Instant::now(), outcome, pending: 0, buffer };
        if task.lifetime == ConnectionLifetime::Persistent {
            phones.open_all()?;
        }
        Ok(phones)
    }

    fn open_all(&mut self) -> io::Result<()> {
        for number in 0..self.task.connections {
            self.open(None)?;
            if number % 64 == 63 {
                self.wait(Instant::now() + Duration::from_millis(1))?;
            }
        }
        let until = Instant::now() + PATIENCE;
        while self.pending > 0 && Instant::now() < until {
            self.wait(until)?;
        }
        self.outcome.handshake.reset();
        Ok(())
    }

    /// Asks all of the task's requests in their time.
    ///
    /// # Errors
    /// When a socket cannot be used.
    pub fn run(&mut self) -> io::Result<&Outcome> {
        let (began, gap) = (Instant::now(), gap(self.task.rate));
        for number in 0..self.task.requests {
            let due = began + gap * u32::try_from(number).unwrap_or(u32::MAX);
            self.wait(due)?;
            match self.task.lifetime {
                ConnectionLifetime::Udp => self.ask_by_datagram()?,
                ConnectionLifetime::Transaction | ConnectionLifetime::PersistentWithOpen => self.open(Some(due))?,
                ConnectionLifetime::Persistent => self.ask_next(number, due),
            }
        }
        self.outcome.rate = self.task.requests as f64 / began.elapsed().as_secs_f64();
        let until = Instant::now() + PATIENCE;
        while self.pending > 0 && Instant::now() < until {
            self.wait(until)?;
        }
        self.outcome.lost += self.pending;
        Ok(&self.outcome)
    }

    /// Takes what comes until `due`; at least once, what is there already.
    fn wait(&mut self, due: Instant) -> io::Result<()> {
        let mut events = Events::with_capacity(256);
        loop {
            let left = due.saturating_duration_since(Instant::now());
            let sleep = left.checked_sub(AWAKE).unwrap_or_default();
            self.poll.poll(&mut events, Some(sleep))?;
            for event in &events {
                match event.token() {
                    DATAGRAMS => self.take_datagrams()?,
                    Token(index) => self.on_ready(index),
                }
            }
            if left.is_zero() || (self.pending == 0 && due > Instant::now() + Duration::from_secs(1)) {
                return Ok(());
            }
        }
    }

    fn open(&mut self, due: Option<Instant>) -> io::Result<()> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        let since = Instant::now();
        match socket.connect(&self.task.server.into()) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
            Err(error) => return Err(error),
        }
        let mut stream = TcpStream::from_std(socket.into());
        let entry = self.connections.vacant_entry();
        self.poll.registry().register(&mut stream, Token(entry.key()), Interest::READABLE | Interest::WRITABLE)?;
        entry.insert(Connection { stream, state: State::Opening { since, due } });
        self.pending += 1;
        Ok(())
    }

    /// The next of the open connections; one that still waits for an answer is passed over and counted.
    fn ask_next(&mut self, number: usize, due: Instant) {
        let index = number % self.connections.len().max(1);
        match self.connections.get_mut(index) {
            Some(connection) if matches!(connection.state, State::Idle) => {
                ask(connection, due, &self.buffer);
                self.pending += 1;
            }
            _ => self.outcome.lost += 1,
        }
    }

    fn on_ready(&mut self, index: usize) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        if let State::Opening { since, due } = connection.state {
            if connection.stream.peer_addr().is_err() {
                if connection.stream.take_error().ok().flatten().is_some() {
                    self.lose(index);
                }
                return;
            }
            record(&mut self.outcome.handshake, since);
            match due {
                Some(due) => ask(connection, due, &self.buffer),
                None => {
                    connection.state = State::Idle;
                    self.pending -= 1;
                }
            }
        }
        self.read(index);
    }

    fn read(&mut self, index: usize) {
        let mut bytes = [0; 4096];
        while let Some(connection) = self.connections.get_mut(index) {
            match connection.stream.read(&mut bytes) {
                Ok(0) => return self.lose(index),
                Ok(count) => self.on_received(index, count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => return self.lose(index),
            }
        }
    }

    fn on_received(&mut self, index: usize, count: usize) {
        let Some(Connection { state, .. }) = self.connections.get_mut(index) else { return };
        let State::Asked { since, due, received } = state else { return };
        *received += count;
        if *received < MESSAGE_BYTES {
            return;
        }
        record(&mut self.outcome.answer, *since);
        record(&mut self.outcome.total, *due);
        *state = State::Idle;
        self.pending -= 1;
        if self.task.lifetime == ConnectionLifetime::Transaction {
            self.connections.remove(index);
        }
    }

    fn lose(&mut self, index: usize) {
        let connection = self.connections.remove(index);
        if !matches!(connection.state, State::Idle) {
            self.pending -= 1;
        }
        self.outcome.lost += 1;
    }

    fn ask_by_datagram(&mut self) -> io::Result<()> {
        let Some(socket) = &self.datagrams else { return Ok(()) };
        let sent = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let mut message = [b'x'; MESSAGE_BYTES];
        message[..8].copy_from_slice(&sent.to_be_bytes());
        socket.send(&message)?;
        self.pending += 1;
        Ok(())
    }

    fn take_datagrams(&mut self) -> io::Result<()> {
        let Some(socket) = &self.datagrams else { return Ok(()) };
        let mut bytes = [0; 2 * MESSAGE_BYTES];
        loop {
            match socket.recv(&mut bytes) {
                Ok(_) => {
                    let sent = bytes.first_chunk().map_or(0, |sent| u64::from_be_bytes(*sent));
                    let since = self.began + Duration::from_nanos(sent);
                    record(&mut self.outcome.answer, since);
                    record(&mut self.outcome.total, since);
                    self.pending = self.pending.saturating_sub(1);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

fn ask(connection: &mut Connection, due: Instant, message: &[u8]) {
    let since = Instant::now();
    // Less than a socket takes at once; where it fails the connection ends, and is counted then.
    let _ = connection.stream.write_all(message);
    connection.state = State::Asked { since, due, received: 0 };
}

fn record(histogram: &mut Histogram<u64>, since: Instant) {
    histogram.saturating_record(u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX));
}
