//! Writing frames.
//!
//! `mask` is `None` for a server and a fresh unpredictable key for a client.

use super::close_code::CloseCode;
use super::frame::{FrameHead, MAX_CONTROL_PAYLOAD, MaskKey, Opcode, apply_mask};

/// Maximum length of a closing frame's reason, in bytes.
const MAX_REASON: usize = MAX_CONTROL_PAYLOAD - 2;

/// Appends a SIP message to `out` in one frame: text if it is UTF-8, else binary (RFC 7118 §4.2).
pub fn write_message(out: &mut Vec<u8>, message: &[u8], mask: Option<MaskKey>) {
    //= rfc7118#4.2:not-utf8
    let opcode = if std::str::from_utf8(message).is_ok() { Opcode::Text } else { Opcode::Binary };
    write_frame(out, opcode, &[message], mask);
}

/// Appends a ping. Its payload is cut at [`MAX_CONTROL_PAYLOAD`].
pub fn write_ping(out: &mut Vec<u8>, payload: &[u8], mask: Option<MaskKey>) {
    write_frame(out, Opcode::Ping, &[payload.get(..MAX_CONTROL_PAYLOAD).unwrap_or(payload)], mask);
}

/// Appends the response to a ping with the same payload (RFC 6455 §5.5.3).
pub(super) fn write_pong(out: &mut Vec<u8>, payload: &[u8], mask: Option<MaskKey>) {
    write_frame(out, Opcode::Pong, &[payload.get(..MAX_CONTROL_PAYLOAD).unwrap_or(payload)], mask);
}

/// Appends a closing frame. The reason is for people and is cut at 123 bytes; without a code there is none.
pub fn write_close(out: &mut Vec<u8>, code: Option<CloseCode>, reason: &str, mask: Option<MaskKey>) {
    let Some(code) = code else { return write_frame(out, Opcode::Close, &[], mask) };
    let reason = reason.get(..reason.floor_char_boundary(MAX_REASON)).unwrap_or_default();
    write_frame(out, Opcode::Close, &[&code.as_u16().to_be_bytes(), reason.as_bytes()], mask);
}

fn write_frame(out: &mut Vec<u8>, opcode: Opcode, parts: &[&[u8]], mask: Option<MaskKey>) {
    FrameHead::write(opcode, parts.iter().map(|part| part.len()).sum(), mask, out);
    let start = out.len();
    for part in parts {
        out.extend_from_slice(part);
    }
    //= rfc6455#5.1:client-masks
    if let (Some(key), Some(payload)) = (mask, out.get_mut(start..)) {
        apply_mask(payload, key);
    }
}
