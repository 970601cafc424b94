//! Input of WebSockets: from their bytes to messages.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use strowger_foundation::Timestamp;
use strowger_net::WebSocketInput;

use crate::ingress::Ingress;
use crate::shard_factory::ShardFactory;
use crate::stream_reader::Piece;
use crate::streams::CloseReason;

impl<M: ShardFactory> Ingress<M> {
    /// Finds the next piece of a WebSocket's input, and answers what concerns only the WebSocket. Returns `None` if
    /// that failed.
    pub(crate) fn next_of_web_socket(&mut self, now: Timestamp, slot: u32, bytes: &mut [u8]) -> Option<Piece> {
        let mut replies = std::mem::take(&mut self.replies);
        let web_socket = self.host.io.streams.get(slot)?.channel.web_socket_mut()?;
        let next = match catch_unwind(AssertUnwindSafe(|| web_socket.next(bytes, &mut replies))) {
            Ok(next) => next,
            Err(payload) => return self.host.catch_panic(now, bytes, || resume_unwind(payload)),
        };
        let streams = &mut self.host.io.streams;
        if !replies.is_empty() {
            streams.queue(slot, &replies);
            replies.clear();
        }
        self.replies = replies;
        Some(match next {
            WebSocketInput::More(needed) => Piece::More(needed),
            WebSocketInput::Opened(length) => {
                streams.on_upgraded(slot);
                Piece::Control(length)
            }
            WebSocketInput::Message(place, length) => {
                let message = bytes.get(place.clone()).unwrap_or_default();
                if message.iter().all(|byte| matches!(byte, b'\r' | b'\n')) {
                    let is_ping = message.windows(4).any(|line_ends| line_ends == b"\r\n\r\n");
                    streams.take_message(slot);
                    return Some(Piece::Blank { length, is_ping });
                }
                Piece::Message(place, length)
            }
            WebSocketInput::Ping(length) => {
                self.host.io.counters.keep_alives += 1;
                streams.counters.pings += 1;
                Piece::Control(length)
            }
            WebSocketInput::Other(length) => Piece::Control(length),
            WebSocketInput::Closed => self.end_web_socket(now, slot, CloseReason::Ended),
            WebSocketInput::Refused(refusal) => {
                if let Some(others) = streams.failure_log.begin(now) {
                    let peer = streams.peer(slot).map(tracing::field::display);
                    tracing::info!(
                        peer,
                        others,
                        "a request for a WebSocket was refused with {}: {refusal}",
                        refusal.status()
                    );
                }
                self.end_web_socket(now, slot, CloseReason::UpgradeRefused)
            }
            WebSocketInput::Failed(failure) => {
                tracing::debug!(connection = %streams.id(slot), "{failure}");
                self.end_web_socket(now, slot, CloseReason::Malformed)
            }
        })
    }

    /// Sends the last reply and closes the connection.
    fn end_web_socket(&mut self, now: Timestamp, slot: u32, reason: CloseReason) -> Piece {
        let streams = &mut self.host.io.streams;
        streams.end(now, slot, reason);
        streams.list(slot);
        Piece::Ended
    }
}
