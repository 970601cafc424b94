//! The clients of the echo server: requests at regular intervals, over connections with one lifetime.

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

/// Maximum wait for the last responses.
const PATIENCE: Duration = Duration::from_secs(3);
/// Waits below this are spent polling, so that requests leave on time.
const AWAKE: Duration = Duration::from_micros(1500);
/// Maximum recorded time in nanoseconds.
const LONGEST: u64 = 60_000_000_000;
/// Token of the datagram socket.
const DATAGRAMS: Token = Token(usize::MAX - 1);

/// Requests of a client process.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    /// Address of the server.
    pub server: SocketAddr,
    /// Connection lifetime.
    pub lifetime: ConnectionLifetime,
    /// Requests per second.
    pub rate: u32,
    /// Number of requests.
    pub requests: usize,
    /// Number of connections used in rotation if they are opened in advance.
    pub connections: usize,
}

/// Results of a client process.
#[derive(Debug)]
pub struct Outcome {
    /// Times from the first segment to an established connection, in nanoseconds.
    pub handshake: Histogram<u64>,
    /// Times from a request to its complete response, in nanoseconds.
    pub answer: Histogram<u64>,
    /// Times from a request's scheduled start to its response, including handshake and waiting, in nanoseconds.
    pub total: Histogram<u64>,
    /// Requests without a response, and failed connections.
    pub lost: usize,
    /// Requests made per second.
    pub rate: f64,
}

impl Outcome {
    /// Returns the results for the parent process.
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

/// State of a connection.
#[derive(Clone, Copy, Debug)]
enum State {
    /// Opening, for a request scheduled at this time.
    Opening {
        since: Instant,
        due: Option<Instant>,
    },
    /// A request is in flight.
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

/// All clients of one process.
pub struct Phones {
    task: Task,
    poll: Poll,
    connections: slab::Slab<Connection>,
    datagrams: Option<UdpSocket>,
    /// Reference time of datagram timestamps.
    began: Instant,
    outcome: Outcome,
    pending: usize,
    buffer: Vec<u8>,
}

impl Phones {
    /// Creates the clients; opens the connections if the lifetime needs them in advance.
    ///
    /// # Errors
    /// If a socket is not available.
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

    /// Sends all requests of the task on schedule.
    ///
    /// # Errors
    /// If a socket fails.
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

    /// Handles events until `due`, at least once those that are already pending.
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

    /// Sends on the next open connection. Skips and counts one that still waits for a response.
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
    // Fits into the socket's send buffer. If it fails, the connection ends and counts as lost.
    let _ = connection.stream.write_all(message);
    connection.state = State::Asked { since, due, received: 0 };
}

fn record(histogram: &mut Histogram<u64>, since: Instant) {
    histogram.saturating_record(u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX));
}
