//! A connection after the upgrade, which is the same at both ends.

use super::decoder::{Frame, FrameDecoder};
use super::encoder::{write_close, write_pong};
use super::event::{Event, Failure, Input};
use super::frame::{MaskKey, ProtocolError};

/// Decodes the next frame and replies to it. The connection is over after `Closed` and `Failed`.
pub(super) fn handle_frame(
    decoder: &mut FrameDecoder,
    buffer: &mut [u8],
    mask: Option<MaskKey>,
    out: &mut Vec<u8>,
) -> Input {
    let (consumed, frame) = match decoder.decode(buffer) {
        Ok(decoded) => decoded,
        Err(error) => return fail(error, buffer.len(), mask, out),
    };
    let event = match frame {
        Frame::Incomplete(needed) => Event::Incomplete { needed },
        Frame::Message(kind, payload) => Event::Message { kind, payload },
        Frame::Ping(payload) => {
            //= rfc6455#5.5.2:pong
            //= rfc6455#5.5.3:same-data
            write_pong(out, buffer.get(payload).unwrap_or_default(), mask);
            Event::Ping
        }
        Frame::Pong => Event::Pong,
        Frame::Close(code) => {
            //= rfc6455#5.5.1:confirms
            write_close(out, code, "", mask);
            Event::Closed { code }
        }
    };
    Input { consumed, event }
}

fn fail(error: ProtocolError, consumed: usize, mask: Option<MaskKey>, out: &mut Vec<u8>) -> Input {
    write_close(out, Some(error.close_code()), &error.to_string(), mask);
    Input { consumed, event: Event::Failed(Failure::Protocol(error)) }
}

/// Handles bytes after the end.
pub(super) fn discard(buffer: &[u8]) -> Input {
    let event = if buffer.is_empty() { Event::Incomplete { needed: 1 } } else { Event::Discarded };
    Input { consumed: buffer.len(), event }
}
