//! Bodies for the formats around SIP messages, as [`bodies`](crate::bodies) are for the messages.

use std::net::SocketAddr;

use strowger_wire::proxy_header::{MAX_HEADER, ProxyHeader, read_proxy_header};
use strowger_wire::stun::{MAX_RESPONSE, Outcome, handle_datagram, is_stun};
use strowger_wire::websocket::{
    AllowedOrigins, ClientRequest, CloseCode, Event, Failure, Input, MessageKind, WebSocketClient, WebSocketServer,
};

/// Function that a target runs on its input.
pub type Body = fn(&[u8]);

/// All bodies with the names of their targets. The corpus folders have the same names.
pub const ALL: &[(&str, Body)] = &[("websocket", websocket), ("stun", stun), ("proxy_header", proxy_header)];

/// Longest message that the ends accept, in bytes.
pub const LIMIT: u32 = 70_000;
/// A request that opens a WebSocket, and the response to it.
pub const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: sip\r\nSec-WebSocket-Version: 13\r\n\r\n";
pub const RESPONSE: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Protocol: sip\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// Checks a WebSocket: what it contains does not depend on how it is cut. The first byte of the input chooses the end,
/// whether the upgrade is part of the input, and the cuts.
pub fn websocket(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    let (is_client, is_open, cut) = (choice & 1 != 0, choice & 2 != 0, usize::from(choice >> 2) + 1);
    let opening = if is_client { RESPONSE } else { REQUEST };
    let bytes = if is_open { [opening, data].concat() } else { data.to_vec() };
    if is_client {
        is_read_alike(Receiver::client, &bytes, cut);
    } else {
        is_read_alike(Receiver::server, &bytes, cut);
    }
}

fn is_read_alike<E: End>(new: fn() -> Receiver<E>, bytes: &[u8], cut: usize) {
    let (mut whole, mut pieces) = (new(), new());
    whole.receive(bytes);
    bytes.chunks(cut).for_each(|piece| pieces.receive(piece));
    assert_eq!(whole.seen, pieces.seen);
    assert_eq!(whole.out, pieces.out);
}

/// An end of a connection.
pub trait End {
    /// Handles input; an end of a client masks with a constant key.
    fn handle(&mut self, buffer: &mut [u8], out: &mut Vec<u8>) -> Input;
}

impl End for WebSocketServer {
    fn handle(&mut self, buffer: &mut [u8], out: &mut Vec<u8>) -> Input {
        self.handle_input(buffer, &AllowedOrigins::any(), out)
    }
}

impl End for WebSocketClient {
    fn handle(&mut self, buffer: &mut [u8], out: &mut Vec<u8>) -> Input {
        self.handle_input(buffer, *b"mask", out)
    }
}

/// An event with the bytes that it refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The upgrade.
    Opened,
    /// A message.
    Message(MessageKind, Vec<u8>),
    /// A ping.
    Ping,
    /// A pong.
    Pong,
    /// A closing frame.
    Closed(Option<CloseCode>),
    /// A failure.
    Failed(Failure),
}

/// An end with the buffers that its owner keeps.
#[derive(Debug)]
pub struct Receiver<E> {
    end: E,
    kept: Vec<u8>,
    needed: usize,
    /// What has arrived.
    pub seen: Vec<Seen>,
    /// What is to be sent.
    pub out: Vec<u8>,
}

impl Receiver<WebSocketServer> {
    /// Returns a server before the upgrade.
    pub fn server() -> Self {
        Self { end: WebSocketServer::new(LIMIT), kept: Vec::new(), needed: 0, seen: Vec::new(), out: Vec::new() }
    }
}

impl Receiver<WebSocketClient> {
    /// Returns a client that has sent its request; the request is removed from its output.
    pub fn client() -> Self {
        let mut this = Self::client_with_request();
        this.out.clear();
        this
    }

    /// Returns a client whose request is in its output.
    pub fn client_with_request() -> Self {
        let (request, mut out) = (ClientRequest { host: "h", target: "/", origin: None }, Vec::new());
        let end = WebSocketClient::start(&request, *b"the sample nonce", LIMIT, &mut out);
        Self { end, kept: Vec::new(), needed: 0, seen: Vec::new(), out }
    }
}

impl<E: End> Receiver<E> {
    /// Receives bytes as the owner of a connection does.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.kept.extend_from_slice(bytes);
        let mut at = 0;
        while self.kept.len() - at >= self.needed {
            self.needed = 0;
            let buffer = &mut self.kept[at..];
            let Input { consumed, event } = self.end.handle(buffer, &mut self.out);
            assert!(consumed <= buffer.len());
            match event {
                Event::Incomplete { needed } => {
                    assert!(consumed == 0 && needed > buffer.len(), "{needed}");
                    self.needed = needed;
                }
                Event::Opened => self.seen.push(Seen::Opened),
                Event::Message { kind, payload } => {
                    assert!(payload.end <= consumed);
                    self.seen.push(Seen::Message(kind, buffer[payload].to_vec()));
                }
                Event::Ping => self.seen.push(Seen::Ping),
                Event::Pong => self.seen.push(Seen::Pong),
                Event::Closed { code } => self.seen.push(Seen::Closed(code)),
                Event::Failed(failure) => {
                    assert!(!failure.to_string().is_empty());
                    self.seen.push(Seen::Failed(failure));
                }
                Event::Discarded => {}
            }
            at += consumed;
        }
        self.kept.drain(..at);
    }
}

/// Checks a datagram on the port of SIP.
pub fn stun(data: &[u8]) {
    for source in ["192.0.2.1:5060", "[2001:db8::1]:5060"] {
        let source: SocketAddr = source.parse().expect("an address");
        let mut out = [0; MAX_RESPONSE];
        let outcome = handle_datagram(data, source, &mut out);
        assert_eq!(is_stun(data), outcome != Outcome::NotStun);
        let (Outcome::Success(length) | Outcome::UnknownAttributes(length)) = outcome else { continue };
        let response = &out[..length];
        assert!(is_stun(response) && response[4..20] == data[4..20], "same transaction");
        let headers = if source.is_ipv4() { 0 } else { 48 };
        assert!(length + headers <= 2 * (data.len() + headers), "the response is too long");
        let again = handle_datagram(response, source, &mut [0; MAX_RESPONSE]);
        assert_eq!(again, Outcome::Ignored, "a response gets no response");
    }
}

/// Checks the start of a connection from a balancer.
pub fn proxy_header(data: &[u8]) {
    match read_proxy_header(data) {
        Ok(ProxyHeader::Incomplete(needed)) => assert!(data.len() < needed && needed <= MAX_HEADER),
        Ok(complete @ ProxyHeader::Complete { length, .. }) => {
            assert!(length <= data.len() && length <= MAX_HEADER);
            assert_eq!(read_proxy_header(&data[..length]), Ok(complete), "the end does not depend on what follows");
            for cut in 0..length {
                assert!(matches!(read_proxy_header(&data[..cut]), Ok(ProxyHeader::Incomplete(_))));
            }
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert_eq!(read_proxy_header(&[data, b"\r\n"].concat()), Err(error), "more bytes mend nothing");
        }
    }
}
