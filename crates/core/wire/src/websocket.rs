//! WebSocket as a transport of SIP (RFC 6455, RFC 7118).
//!
//! [`WebSocketServer`] and [`WebSocketClient`] are the two ends of a connection, from the HTTP upgrade to the last
//! frame. The caller owns the buffers. It passes all bytes that are not consumed yet, drops what an [`Input`] reports
//! as consumed, and passes the rest again together with later bytes. Replies (the HTTP response, pongs, closing
//! frames) are appended to the caller's send queue.
//!
//! Decisions:
//!
//! - **Payload stays in the caller's buffer.** It is unmasked there, and a message is a range of it. A message in one
//!   frame is never moved. An idle connection needs no buffer.
//! - **Fragmented messages are accepted** up to the limit of a message. RFC 6455 §5.4 requires it, browsers fragment
//!   long messages, and intermediaries may fragment any. The payloads are moved together in the buffer, at most once
//!   each. What lies between them is limited to [`MAX_FRAGMENT_OVERHEAD`], so very short fragments are refused (1008).
//! - **Longer messages are refused** (1009) as soon as the head of the frame shows their length.
//! - **Text is checked** to be UTF-8, as RFC 6455 §8.1 requires: once for a whole message, which takes nanoseconds for
//!   ASCII. A peer with other bytes sends binary messages (RFC 7118 §4.2).
//! - **Extensions are not negotiated**; compression would cost memory for each connection.
//! - **Every path is accepted.** It says nothing about SIP. Origins are checked: see [`AllowedOrigins`].
//! - **A line end is CRLF** in the HTTP head, too.

mod client;
mod close_code;
mod decoder;
mod encoder;
mod event;
mod frame;
mod head;
mod key;
mod open;
mod opening;
mod origin;
mod refusal;
mod server;

#[cfg(test)]
mod tests;

pub use client::WebSocketClient;
pub use close_code::CloseCode;
pub use decoder::MAX_FRAGMENT_OVERHEAD;
pub use encoder::{write_close, write_message, write_ping};
pub use event::{Event, Failure, Input, MessageKind};
pub use frame::{MAX_CONTROL_PAYLOAD, MAX_FRAME_HEAD, MaskKey, ProtocolError};
pub use head::MAX_HTTP_HEAD;
pub use opening::{ClientRequest, UpgradeError};
pub use origin::{AllowedOrigins, OriginError};
pub use refusal::Refusal;
pub use server::WebSocketServer;
