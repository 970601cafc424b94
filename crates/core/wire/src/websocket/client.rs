//! The opening end of a connection.

use super::decoder::FrameDecoder;
use super::event::{Event, Failure, Input};
use super::frame::MaskKey;
use super::head::{HeadSearch, find_end};
use super::key::AcceptDigest;
use super::open::{discard, handle_frame};
use super::opening::{ClientRequest, UpgradeError, check_response};

/// The client's end of a WebSocket connection.
#[derive(Clone, Debug)]
pub struct WebSocketClient {
    phase: Phase,
    /// Longest message, in bytes.
    limit: u32,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Response {
        expected: AcceptDigest,
        /// Number of bytes without the end of the head.
        searched: u16,
    },
    Open(FrameDecoder),
    Over,
}

impl WebSocketClient {
    /// Appends the request for a WebSocket to `out`. `key` must be random. Messages longer than `limit` bytes are refused.
    pub fn start(request: &ClientRequest<'_>, key: [u8; 16], limit: u32, out: &mut Vec<u8>) -> Self {
        Self { phase: Phase::Response { expected: request.write(key, out), searched: 0 }, limit }
    }

    /// Returns whether messages may be sent.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open(_))
    }

    /// As [`WebSocketServer::handle_input`](super::WebSocketServer::handle_input). `mask` is a fresh random key; a reply
    /// is masked with it.
    pub fn handle_input(&mut self, buffer: &mut [u8], mask: MaskKey, out: &mut Vec<u8>) -> Input {
        let input = match &mut self.phase {
            Phase::Response { expected, searched } => handle_response(*expected, searched, buffer),
            Phase::Open(decoder) => handle_frame(decoder, buffer, Some(mask), out),
            Phase::Over => discard(buffer),
        };
        match input.event {
            Event::Opened => self.phase = Phase::Open(FrameDecoder::new(false, self.limit)),
            Event::Closed { .. } | Event::Failed(_) => self.phase = Phase::Over,
            _ => {}
        }
        input
    }
}

fn handle_response(expected: AcceptDigest, searched: &mut u16, buffer: &[u8]) -> Input {
    match find_response(searched, buffer).and_then(|head| match head {
        Some(head) => check_response(head, expected).map(|()| Some(head.len())),
        None => Ok(None),
    }) {
        Ok(Some(consumed)) => Input { consumed, event: Event::Opened },
        Ok(None) => Input { consumed: 0, event: Event::Incomplete { needed: buffer.len().saturating_add(1) } },
        Err(error) => Input { consumed: buffer.len(), event: Event::Failed(Failure::NotUpgraded(error)) },
    }
}

/// Returns the head if it is complete. A connection that is not HTTP fails without waiting for a head.
fn find_response<'a>(searched: &mut u16, buffer: &'a [u8]) -> Result<Option<&'a [u8]>, UpgradeError> {
    if buffer.iter().zip(b"HTTP/").any(|(byte, expected)| byte != expected) {
        return Err(UpgradeError::Malformed);
    }
    match find_end(buffer, searched) {
        HeadSearch::Found(length) => Ok(buffer.get(..length)),
        HeadSearch::Incomplete => Ok(None),
        HeadSearch::TooLong => Err(UpgradeError::HeadTooLong),
    }
}
