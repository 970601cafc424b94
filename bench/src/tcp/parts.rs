//! Cost of one REGISTER and its response by step, over UDP and over TCP: socket, framing, parsing, SIP.

use std::fmt::Write as _;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use strowger_message::{FrameResult, Message, Peek, frame_stream};

use crate::connection_load;
use crate::message_target::WholeShard;

/// Users that refresh in rotation.
const USERS: usize = 1_000;

/// Time per step, summed over all messages.
#[derive(Clone, Copy, Debug, Default)]
struct Parts {
    receive: Duration,
    frame: Duration,
    /// Finding the lines and their values.
    peek: Duration,
    /// Validating the rest of the message.
    check: Duration,
    /// All work of the shard, which validates the message itself.
    shard: Duration,
    send: Duration,
}

/// A pair of connected endpoints, the peer's and the server's.
trait Link {
    fn ask(&mut self, bytes: &[u8]) -> io::Result<()>;
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize>;
    fn answer(&mut self, bytes: &[u8]) -> io::Result<()>;
    fn take(&mut self, buffer: &mut [u8]) -> io::Result<usize>;
    /// Returns the length of the message at the start of the buffer, if framing is needed.
    fn frame(&self, buffer: &[u8]) -> usize;
}

struct Datagrams {
    peer: UdpSocket,
    server: UdpSocket,
}

struct Stream {
    peer: TcpStream,
    server: TcpStream,
}

impl Link for Datagrams {
    fn ask(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.peer.send(bytes).map(drop)
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.server.recv(buffer)
    }

    fn answer(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.server.send(bytes).map(drop)
    }

    fn take(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.peer.recv(buffer)
    }

    fn frame(&self, buffer: &[u8]) -> usize {
        buffer.len()
    }
}

impl Link for Stream {
    fn ask(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.peer.write_all(bytes)
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.server.read(buffer)
    }

    fn answer(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.server.write_all(bytes)
    }

    fn take(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.peer.read(buffer)
    }

    fn frame(&self, buffer: &[u8]) -> usize {
        match frame_stream(buffer) {
            FrameResult::Message(length) => length,
            other => panic!("a message was sent in one piece: {other:?}"),
        }
    }
}

fn datagrams() -> io::Result<Datagrams> {
    let bind = || UdpSocket::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let (peer, server) = (bind()?, bind()?);
    peer.connect(server.local_addr()?)?;
    server.connect(peer.local_addr()?)?;
    Ok(Datagrams { peer, server })
}

fn stream() -> io::Result<Stream> {
    let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let peer = TcpStream::connect(listener.local_addr()?)?;
    let (server, _) = listener.accept()?;
    peer.set_nodelay(true)?;
    server.set_nodelay(true)?;
    Ok(Stream { peer, server })
}

/// Returns the cost of two clock readings.
fn clock_cost() -> Duration {
    const TIMES: u32 = 100_000;
    let began = Instant::now();
    for _ in 0..TIMES {
        std::hint::black_box(Instant::now());
    }
    began.elapsed() / TIMES
}

fn time(line: &mut impl Link, transport: &str, messages: u32) -> io::Result<Parts> {
    let (mut shard, mut parts) = (WholeShard::default(), Parts::default());
    let (mut buffer, mut taken) = (vec![0; 4096], vec![0; 4096]);
    let local = SocketAddr::from(([192, 0, 2, 10], 5_060));
    for number in 0..messages {
        let user = format!("u{}", number as usize % USERS);
        let text = connection_load::request("REGISTER", transport, &user, local, u64::from(number) + 1);
        let text = text.replace("example.com", "example.org");
        line.ask(text.as_bytes())?;
        let began = Instant::now();
        let count = line.receive(&mut buffer)?;
        let received = Instant::now();
        let length = line.frame(&buffer[..count]);
        let framed = Instant::now();
        let bytes = &buffer[..length];
        let peek = Peek::read(bytes).map_err(|fault| io::Error::other(fault.to_string()))?;
        let peeked = Instant::now();
        std::hint::black_box(Message::from_peek(&peek).is_ok());
        let checked = Instant::now();
        let answer = shard.exchange(&peek);
        let done = Instant::now();
        assert!(answer.starts_with(b"SIP/2.0 200 "), "{}", answer.escape_ascii());
        let answered = Instant::now();
        line.answer(answer)?;
        let sent = Instant::now();
        line.take(&mut taken)?;
        parts.receive += received - began;
        parts.frame += framed - received;
        parts.peek += peeked - framed;
        parts.check += checked - peeked;
        parts.shard += done - checked;
        parts.send += sent - answered;
    }
    Ok(parts)
}

/// Returns a table of both transports.
///
/// # Errors
/// If the loopback interface cannot be used.
pub fn measure(messages: u32) -> io::Result<String> {
    let clock = clock_cost();
    let mut text = format!(
        "\nThe clock itself takes {} ns, which are taken off each part.\n\n| over | receive µs | framing µs | parsing µs | SIP µs | send µs | \
         together µs |\n|---|---:|---:|---:|---:|---:|---:|\n",
        clock.as_nanos()
    );
    let rows = [("UDP", time(&mut datagrams()?, "UDP", messages)?), ("TCP", time(&mut stream()?, "TCP", messages)?)];
    for (name, parts) in rows {
        let each = |whole: Duration| (whole / messages).saturating_sub(clock).as_secs_f64() * 1e6;
        let Parts { receive, frame, peek, check, shard, send } = parts;
        let frame = if name == "UDP" { 0.0 } else { each(frame) };
        let parse = each(peek) + each(check);
        let sip = (each(shard) - each(check)).max(0.0);
        let all = each(receive) + frame + parse + sip + each(send);
        let _ = writeln!(
            text,
            "| {name} | {:.2} | {frame:.2} | {parse:.2} | {sip:.2} | {:.2} | {all:.2} |",
            each(receive),
            each(send)
        );
    }
    Ok(text)
}
