//! The WebSocket of an accepted connection: what lies between its bytes and its messages.

use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};

use strowger_foundation::Timestamp;
use strowger_wire::websocket::{self, Event, Failure, Refusal, WebSocketServer};

pub use strowger_wire::websocket::AllowedOrigins;

/// What WebSockets need: who may connect, and how long messages may be. Shared by all workers.
#[derive(Debug)]
pub struct WebSocketContext {
    origins: RwLock<Arc<AllowedOrigins>>,
    /// Longest message, in bytes.
    limit: u32,
}

impl WebSocketContext {
    /// Lets pages of `origins` connect and send messages of up to `limit` bytes.
    #[must_use]
    pub fn new(origins: AllowedOrigins, limit: u32) -> Self {
        Self { origins: RwLock::new(Arc::new(origins)), limit }
    }

    /// Changes which pages may connect. Connections that exist stay.
    pub fn allow(&self, origins: AllowedOrigins) {
        *self.origins.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(origins);
    }

    /// Begins the WebSocket of an accepted connection.
    pub(super) fn accept(&self) -> WebSocket {
        let origins = Arc::clone(&self.origins.read().unwrap_or_else(PoisonError::into_inner));
        WebSocket { server: WebSocketServer::new(self.limit), origins: Some(origins), held: None, pinged: None }
    }
}

/// The next thing on a WebSocket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebSocketInput {
    /// Incomplete: at least this many bytes, counted from the start of the input, are needed.
    More(usize),
    /// The upgrade is complete; messages may be sent from now on. The number of bytes to drop.
    Opened(usize),
    /// A message: its place in the input, unmasked, and the number of bytes to drop. It is returned again until it is
    /// [taken](WebSocket::take).
    Message(Range<usize>, usize),
    /// A ping, which is answered; the number of bytes to drop, which may be zero.
    Ping(usize),
    /// A pong, or bytes after the end; the number of bytes to drop, which may be zero.
    Other(usize),
    /// The peer closes; the connection is to be ended.
    Closed,
    /// The server has refused the upgrade; the connection is to be ended.
    Refused(Refusal),
    /// The peer broke the protocol; the connection is to be ended.
    Failed(Failure),
}

/// The WebSocket of one connection. An idle one has no buffers.
#[derive(Debug)]
pub struct WebSocket {
    server: WebSocketServer,
    /// Until it is open.
    origins: Option<Arc<AllowedOrigins>>,
    /// A message that was returned but not taken: its payload, and the number of bytes to drop.
    held: Option<(Range<u32>, u32)>,
    /// When it was last pinged.
    pinged: Option<Timestamp>,
}

impl WebSocket {
    /// Returns whether messages may be sent.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.server.is_open()
    }

    /// Returns the next thing in `input`, which has all bytes not dropped so far. Appends what is to be sent to
    /// `replies`.
    pub fn next(&mut self, input: &mut [u8], replies: &mut Vec<u8>) -> WebSocketInput {
        if let Some((Range { start, end }, consumed)) = &self.held {
            return WebSocketInput::Message(*start as usize..*end as usize, *consumed as usize);
        }
        let none;
        let origins = match &self.origins {
            Some(origins) => origins,
            None => {
                none = AllowedOrigins::any();
                &none
            }
        };
        let step = self.server.handle_input(input, origins, replies);
        match step.event {
            Event::Incomplete { needed } => WebSocketInput::More(needed),
            Event::Opened => {
                self.origins = None;
                WebSocketInput::Opened(step.consumed)
            }
            Event::Message { payload, .. } => {
                let short = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
                self.held = Some((short(payload.start)..short(payload.end), short(step.consumed)));
                WebSocketInput::Message(payload, step.consumed)
            }
            Event::Ping => WebSocketInput::Ping(step.consumed),
            Event::Pong | Event::Discarded => WebSocketInput::Other(step.consumed),
            Event::Closed { .. } => WebSocketInput::Closed,
            Event::Failed(Failure::Refused(refusal)) => WebSocketInput::Refused(refusal),
            Event::Failed(failure) => WebSocketInput::Failed(failure),
        }
    }

    /// Confirms that the message was handled and its bytes are dropped.
    pub fn take(&mut self) {
        self.held = None;
    }

    /// Appends a message to what is to be sent.
    pub fn write_message(out: &mut Vec<u8>, message: &[u8]) {
        websocket::write_message(out, message, None);
    }

    /// Returns when it was last pinged.
    #[must_use]
    pub const fn pinged(&self) -> Option<Timestamp> {
        self.pinged
    }

    /// Records that a ping is sent.
    pub const fn note_ping(&mut self, now: Timestamp) {
        self.pinged = Some(now);
    }
}
