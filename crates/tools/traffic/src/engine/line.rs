//! The bytes of one connection: a channel, and on it a WebSocket if the transport has one.

use std::io;

use strowger_message::{FrameResult, frame_stream};
use strowger_net::{Channel, IoOutcome, Progress};
use strowger_wire::websocket::{
    AllowedOrigins, ClientRequest, CloseCode, Event, Input, MaskKey, WebSocketClient, WebSocketServer, write_close,
    write_message,
};

/// Maximum size of a SIP message in a WebSocket message, in bytes.
const MAX_MESSAGE: u32 = 256 * 1024;

/// A connection below its SIP messages.
#[derive(Debug)]
pub(super) struct Line {
    pub channel: Channel,
    websocket: Option<Box<WebSocket>>,
}

/// What a WebSocket adds to a connection.
#[derive(Debug)]
struct WebSocket {
    end: End,
    masks: Masks,
    /// Bytes of the upgrade that have not been sent.
    head: Vec<u8>,
}

#[derive(Debug)]
enum End {
    Client(WebSocketClient),
    Server(WebSocketServer),
}

/// Keys of masks. They guard intermediaries against hostile web pages, which this program does not run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Masks(u64);

impl Masks {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        crate::driver::mix(self.0)
    }

    fn key(&mut self) -> MaskKey {
        let [a, b, c, d, ..] = self.next().to_le_bytes();
        [a, b, c, d]
    }

    /// Returns the masks of another connection.
    pub(super) const fn fork(&mut self) -> Self {
        Self(self.next())
    }
}

impl Line {
    /// A connection without a WebSocket.
    pub(super) const fn plain(channel: Channel) -> Self {
        Self { channel, websocket: None }
    }

    /// A connection that was opened to a WebSocket server, which is called `host`.
    pub(super) fn websocket_to(channel: Channel, host: &str, mut masks: Masks) -> Self {
        let mut key = [0; 16];
        for half in key.chunks_exact_mut(8) {
            half.copy_from_slice(&masks.next().to_le_bytes());
        }
        let mut head = Vec::new();
        let request = ClientRequest { host, target: "/", origin: None };
        let end = End::Client(WebSocketClient::start(&request, key, MAX_MESSAGE, &mut head));
        Self { channel, websocket: Some(Box::new(WebSocket { end, masks, head })) }
    }

    /// A connection that was accepted from a WebSocket client.
    pub(super) fn websocket_from(channel: Channel, masks: Masks) -> Self {
        let end = End::Server(WebSocketServer::new(MAX_MESSAGE));
        Self { channel, websocket: Some(Box::new(WebSocket { end, masks, head: Vec::new() })) }
    }

    /// Continues to open the connection. Bytes that came after the upgrade are left in `input`.
    ///
    /// # Errors
    /// Why it could not be opened.
    pub(super) fn advance(&mut self, input: &mut Vec<u8>, buffer: &mut [u8]) -> io::Result<Progress> {
        if self.channel.advance()? == Progress::Opening {
            return Ok(Progress::Opening);
        }
        let Some(websocket) = &mut self.websocket else { return Ok(Progress::Open) };
        loop {
            let step = websocket.step(input);
            input.drain(..step.consumed.min(input.len()));
            websocket.flush(&mut self.channel)?;
            match step.event {
                Event::Opened => return Ok(Progress::Open),
                Event::Failed(failure) => return Err(io::Error::other(failure.to_string())),
                Event::Incomplete { .. } => {}
                _ => continue,
            }
            match self.channel.read(buffer)? {
                IoOutcome::Bytes(count) => input.extend_from_slice(buffer.get(..count).unwrap_or_default()),
                IoOutcome::Blocked => return Ok(Progress::Opening),
                IoOutcome::Eof => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
    }

    /// Tells the peer that nothing follows, as far as that can be sent at once.
    pub(super) fn end(&mut self) {
        if let Some(websocket) = &mut self.websocket {
            let mask = matches!(websocket.end, End::Client(_)).then(|| websocket.masks.key());
            let mut frame = Vec::new();
            write_close(&mut frame, Some(CloseCode::NORMAL), "", mask);
            // Whoever does not take it learns from the end of the connection.
            let _ = self.channel.write(&frame);
        }
        self.channel.say_end();
    }

    /// Appends `message` to `output`, as it leaves on the connection.
    pub(super) fn write(&mut self, message: &[u8], output: &mut Vec<u8>) {
        match &mut self.websocket {
            None => output.extend_from_slice(message),
            Some(websocket) => {
                let mask = matches!(websocket.end, End::Client(_)).then(|| websocket.masks.key());
                write_message(output, message, mask);
            }
        }
    }

    /// Calls `handle` with each message of `input`, and removes what is complete. Replies of the WebSocket are
    /// appended to `output`. Returns false if the connection is over.
    pub(super) fn messages(
        &mut self,
        input: &mut Vec<u8>,
        output: &mut Vec<u8>,
        mut handle: impl FnMut(&[u8]),
    ) -> bool {
        let (mut at, mut is_open) = (0, true);
        while is_open {
            let rest = input.get_mut(at..).unwrap_or_default();
            let taken = match &mut self.websocket {
                None => match frame_stream(rest) {
                    FrameResult::KeepAlive(count) => count,
                    FrameResult::Message(count) => {
                        handle(rest.get(..count).unwrap_or_default());
                        count
                    }
                    FrameResult::Incomplete => break,
                    FrameResult::Malformed(_) => {
                        is_open = false;
                        0
                    }
                },
                Some(websocket) => {
                    let step = websocket.decode(rest, output);
                    match step.event {
                        Event::Incomplete { .. } => break,
                        Event::Message { payload, .. } => {
                            let message = rest.get(payload).unwrap_or_default();
                            // Line ends alone are a keep-alive (RFC 7118 §6).
                            if message.iter().any(|byte| !byte.is_ascii_whitespace()) {
                                handle(message);
                            }
                        }
                        Event::Closed { .. } | Event::Failed(_) => is_open = false,
                        _ => {}
                    }
                    step.consumed
                }
            };
            at += taken;
        }
        input.drain(..at.min(input.len()));
        is_open
    }
}

impl WebSocket {
    /// Handles a part of the upgrade.
    fn step(&mut self, input: &mut [u8]) -> Input {
        let mut head = std::mem::take(&mut self.head);
        let step = self.decode(input, &mut head);
        self.head = head;
        step
    }

    fn decode(&mut self, input: &mut [u8], output: &mut Vec<u8>) -> Input {
        match &mut self.end {
            End::Client(client) => client.handle_input(input, self.masks.key(), output),
            End::Server(server) => server.handle_input(input, &AllowedOrigins::any(), output),
        }
    }

    /// Sends the bytes of the upgrade. They fit into the empty buffer of a new connection.
    fn flush(&mut self, channel: &mut Channel) -> io::Result<()> {
        while !self.head.is_empty() {
            match channel.write(&self.head)? {
                IoOutcome::Bytes(count) => drop(self.head.drain(..count)),
                IoOutcome::Blocked => return Ok(()),
                IoOutcome::Eof => return Err(io::ErrorKind::WriteZero.into()),
            }
        }
        channel.flush()
    }
}
