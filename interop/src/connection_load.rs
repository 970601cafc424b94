//! Large numbers of connections, and a probe that measures whether other clients suffer from them.
//!
//! This file depends on nothing else in this crate, so the benchmarks can include it.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// Time after which an answer counts as missing.
const PATIENCE: Duration = Duration::from_secs(5);

/// Connections per source address: 127.0.1.0, 127.0.1.1, and so on.
const A_SOURCE: usize = 500;

/// Opens a connection from `source`. `window` is the receive buffer size, or `None` for the default.
///
/// # Errors
/// If the connection cannot be opened.
pub fn connect(server: SocketAddr, source: Ipv4Addr, window: Option<usize>) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    if let Some(window) = window {
        socket.set_recv_buffer_size(window)?;
    }
    socket.bind(&SockAddr::from(SocketAddr::from((source, 0))))?;
    socket.connect_timeout(&server.into(), PATIENCE)?;
    let line = TcpStream::from(socket);
    line.set_nodelay(true)?;
    line.set_read_timeout(Some(PATIENCE))?;
    Ok(line)
}

/// Returns the source address of connection number `index`.
#[must_use]
pub fn source(index: usize) -> Ipv4Addr {
    let host = u8::try_from(index / A_SOURCE).unwrap_or(u8::MAX);
    Ipv4Addr::new(127, 0, 1, host)
}

/// Builds a request to `example.com` from `user` at `local`. `number` makes it unique.
#[must_use]
pub fn request(method: &str, transport: &str, user: &str, local: SocketAddr, number: u64) -> String {
    let to = if method == "REGISTER" { format!("sip:{user}@example.com") } else { "sip:example.com".to_owned() };
    format!(
        "{method} sip:example.com SIP/2.0\r\nVia: SIP/2.0/{transport} {local};branch=z9hG4bK-{user}-{number};rport\r\n\
         Max-Forwards: 70\r\nFrom: <sip:{user}@example.com>;tag={user}\r\nTo: <{to}>\r\nCall-ID: {user}@{local}\r\n\
         CSeq: {number} {method}\r\nContact: <sip:{user}@{local};transport={transport}>\r\nExpires: 3600\r\n\
         Content-Length: 0\r\n\r\n"
    )
}

/// Reads one message without a body from a connection and returns the status of the response.
///
/// # Errors
/// If nothing arrives, or something that is not a response.
pub fn status(line: &mut TcpStream) -> io::Result<u16> {
    let mut bytes: Vec<u8> = Vec::new();
    let mut some = [0; 2048];
    while !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
        match line.read(&mut some)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            count => bytes.extend_from_slice(&some[..count]),
        }
    }
    status_of(&bytes).ok_or_else(|| ErrorKind::InvalidData.into())
}

fn status_of(bytes: &[u8]) -> Option<u16> {
    let code = bytes.strip_prefix(b"SIP/2.0 ")?.get(..3)?;
    str::from_utf8(code).ok()?.parse().ok()
}

/// Sends a request on a connection and returns the status of the response.
///
/// # Errors
/// If there is none.
pub fn ask(line: &mut TcpStream, method: &str, user: &str, number: u64) -> io::Result<u16> {
    let local = line.local_addr()?;
    line.write_all(request(method, "TCP", user, local, number).as_bytes())?;
    status(line)
}

/// Returns the private memory of a process in bytes: what it has allocated and touched.
///
/// # Panics
/// If the process is gone.
#[must_use]
pub fn memory(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("Linux says so");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

/// Opens connections and sends nothing on them.
///
/// # Panics
/// If one cannot be opened.
#[must_use]
pub fn idle(server: SocketAddr, count: usize) -> Vec<TcpStream> {
    let open =
        |index| connect(server, source(index), None).unwrap_or_else(|error| panic!("connection {index}: {error}"));
    (0..count).map(open).collect()
}

/// Sends one request on each connection, as user `u0`, `u1` and so on.
///
/// # Panics
/// If a request is not answered with 200.
pub fn ask_all(lines: &mut [TcpStream], method: &str, number: u64) {
    for (index, line) in lines.iter_mut().enumerate() {
        let status = ask(line, method, &format!("u{index}"), number);
        assert!(matches!(status, Ok(200)), "{method} on connection {index}: {status:?}");
    }
}

/// Runs peers that send requests and never read. Each sends `requests` requests, or until the server closes the
/// connection. Returns the number of connections that the server closed.
#[must_use]
pub fn deaf(server: SocketAddr, count: usize, requests: u64) -> usize {
    let mut lines: Vec<TcpStream> =
        (0..count).filter_map(|index| connect(server, source(index), Some(4096)).ok()).collect();
    for line in &lines {
        line.set_nonblocking(true).expect("a socket can be set not to block");
    }
    let mut closed = 0;
    let mut texts: Vec<(u64, Vec<u8>)> = lines.iter().map(|_| (0, Vec::new())).collect();
    let deadline = Instant::now() + Duration::from_secs(30);
    while !lines.is_empty() && Instant::now() < deadline {
        let mut index = 0;
        let mut has_moved = false;
        while let Some(line) = lines.get_mut(index) {
            let (sent, rest) = &mut texts[index];
            if rest.is_empty() && *sent < requests {
                let local = line.local_addr().unwrap_or(server);
                for _ in 0..32 {
                    *sent += 1;
                    rest.extend_from_slice(request("OPTIONS", "TCP", "deaf", local, *sent).as_bytes());
                }
            }
            let outcome = if rest.is_empty() {
                line.take_error().map(|error| error.map_or(0, |_| usize::MAX))
            } else {
                line.write(rest)
            };
            match outcome {
                Ok(usize::MAX) => closed += 1,
                Ok(count) => {
                    rest.drain(..count);
                    has_moved |= count > 0;
                    index += 1;
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    index += 1;
                    continue;
                }
                Err(_) => closed += 1,
            }
            drop(lines.swap_remove(index));
            texts.swap_remove(index);
            has_moved = true;
        }
        if !has_moved {
            thread::sleep(Duration::from_millis(5));
        }
    }
    closed
}

/// Runs peers that send one byte every `pause`, for `time`. Returns the number of connections that the server closed.
#[must_use]
pub fn dripping(server: SocketAddr, count: usize, pause: Duration, time: Duration) -> usize {
    let mut lines = idle(server, count);
    for line in &lines {
        line.set_nonblocking(true).expect("a socket can be set not to block");
    }
    let text = request("OPTIONS", "TCP", "slow", server, 1);
    let began = Instant::now();
    for byte in text.bytes().cycle() {
        if began.elapsed() >= time {
            break;
        }
        let next = Instant::now() + pause;
        lines.retain_mut(|line| line.write_all(&[byte]).is_ok());
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    // A close by the peer while nothing is being sent is only noticed by reading.
    lines.retain_mut(|line| line.read(&mut [0; 16]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock));
    count - lines.len()
}

/// Runs peers that announce a body of 64 MiB and send as much as is accepted, at most 1 MB. Returns the number of
/// connections that the server closed, and the first status it answered.
#[must_use]
pub fn boasting(server: SocketAddr, count: usize) -> (usize, Option<u16>) {
    let chunk = vec![b'x'; 64 * 1024];
    let (mut closed, mut answer) = (0, None);
    let mut lines = idle(server, count);
    for line in &mut lines {
        let text = request("MESSAGE", "TCP", "big", server, 1).replace("Content-Length: 0", "Content-Length: 67108864");
        let taken = line.write_all(text.as_bytes()).and_then(|()| {
            for _ in 0..16 {
                line.write_all(&chunk)?;
            }
            Ok(())
        });
        let answered = status(line);
        answer = answer.or(answered.as_ref().ok().copied());
        let is_closed = taken.is_err() || line.shutdown(Shutdown::Write).is_err() || line.read(&mut [0; 16]).is_ok();
        closed += usize::from(is_closed || answered.is_err_and(|error| error.kind() != ErrorKind::WouldBlock));
    }
    (closed, answer)
}

/// Runs peers that begin a message of `bytes` and never finish it. The connections stay open until the returned value
/// is dropped.
#[must_use]
pub fn hoarding(server: SocketAddr, count: usize, bytes: usize) -> Vec<TcpStream> {
    let mut lines = idle(server, count);
    let header = format!("Content-Length: {bytes}");
    let text = request("MESSAGE", "TCP", "big", server, 1).replace("Content-Length: 0", &header);
    let body = vec![b'x'; bytes - 1];
    for line in &mut lines {
        line.set_write_timeout(Some(Duration::from_millis(200))).expect("a time-out can be set");
        // The server is expected to close some connections during the write.
        let _ = line.write_all(text.as_bytes()).and_then(|()| line.write_all(&body));
    }
    lines
}

/// Returns how many of these connections the peer has closed.
#[must_use]
pub fn closed(lines: &[TcpStream]) -> usize {
    let is_closed = |line: &&TcpStream| {
        line.set_nonblocking(true).expect("a socket can be set not to block");
        !line.peek(&mut [0; 16]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    };
    lines.iter().filter(is_closed).count()
}

/// An independent client that repeatedly registers over UDP, sends OPTIONS over TCP, and records the round-trip
/// times.
#[derive(Debug)]
pub struct Probe {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    is_over: AtomicBool,
    asked: AtomicU64,
    times: std::sync::Mutex<Times>,
}

/// Round-trip times of a [`Probe`].
#[derive(Clone, Debug, Default)]
pub struct Times {
    /// Round trips answered with 200.
    pub answered: Vec<Duration>,
    /// Number of requests without a 200.
    pub lost: usize,
}

impl Times {
    /// Returns the quantile `share` of the round-trip times.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Duration {
        let mut sorted = self.answered.clone();
        sorted.sort();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
        let index = (share * sorted.len() as f64) as usize;
        sorted.get(index.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
    }

    /// Returns the longest round trip.
    #[must_use]
    pub fn longest(&self) -> Duration {
        self.answered.iter().max().copied().unwrap_or_default()
    }
}

impl Probe {
    /// Starts the probe as the user `probe`, who must exist.
    ///
    /// # Panics
    /// If the server cannot be reached at all.
    #[must_use]
    pub fn start(server: SocketAddr) -> Probe {
        let shared = Arc::new(Shared::default());
        let line = connect(server, Ipv4Addr::LOCALHOST, None).expect("the server takes a connection");
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        socket.connect(server).expect("a datagram socket can be connected");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time-out can be set");
        let theirs = Arc::clone(&shared);
        let thread = thread::spawn(move || probe(&theirs, &socket, line));
        Probe { shared, thread: Some(thread) }
    }

    /// Returns the measurements since the last call, after waiting for at least a few round trips.
    ///
    /// # Panics
    /// If the probe itself has failed.
    #[must_use]
    pub fn take(&self) -> Times {
        let enough = self.shared.asked.load(Ordering::Relaxed) + 4;
        while self.shared.asked.load(Ordering::Relaxed) < enough {
            thread::sleep(Duration::from_millis(5));
        }
        std::mem::take(&mut *self.shared.times.lock().expect("nobody panics with it"))
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn probe(shared: &Shared, socket: &UdpSocket, mut line: TcpStream) {
    let local = socket.local_addr().expect("a bound socket has an address");
    for number in 1.. {
        if shared.is_over.load(Ordering::Relaxed) {
            return;
        }
        let began = Instant::now();
        let is_answered = if number % 2 == 0 {
            matches!(ask(&mut line, "OPTIONS", "probe", number), Ok(200))
        } else {
            let text = request("REGISTER", "UDP", "probe", local, number);
            let mut answer = [0; 2048];
            let received = socket.send(text.as_bytes()).and_then(|_| socket.recv(&mut answer));
            received.is_ok() && status_of(&answer) == Some(200)
        };
        let took = began.elapsed();
        let mut times = shared.times.lock().expect("nobody panics with it");
        if is_answered {
            times.answered.push(took);
        } else {
            times.lost += 1;
        }
        drop(times);
        shared.asked.fetch_add(1, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(4));
    }
}
