//! From bytes to messages and control frames.

use std::ops::Range;

use super::close_code::CloseCode;
use super::event::MessageKind;
use super::frame::{FrameHead, Opcode, ProtocolError, apply_mask};

/// Maximum length of the frame heads and control frames within one fragmented message, in bytes. A buffer never holds
/// more than the longest message, this, and two frames' heads.
pub const MAX_FRAGMENT_OVERHEAD: usize = 4096;

/// What the buffer of a connection contains. Ranges are positions in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// Nothing complete: the number of bytes, from the start of the buffer, that are needed.
    Incomplete(usize),
    Message(MessageKind, Range<usize>),
    Ping(Range<usize>),
    Pong,
    Close(Option<CloseCode>),
}

/// Decodes the frames that one end sends.
///
/// While a fragmented message is incomplete, the buffer starts with the payloads so far, `assembled` bytes. The bytes
/// from there to `scanned` are used up, and the next frame starts at `scanned`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameDecoder {
    /// Longest message, in bytes.
    limit: u32,
    assembled: u32,
    scanned: u32,
    /// The kind of the incomplete fragmented message.
    fragmented: Option<MessageKind>,
    /// Whether the sender is a client, which masks its frames.
    is_masked: bool,
}

impl FrameDecoder {
    /// Creates a decoder of messages up to `limit` bytes.
    pub(super) fn new(is_masked: bool, limit: u32) -> Self {
        Self { limit, assembled: 0, scanned: 0, fragmented: None, is_masked }
    }

    /// Decodes the next message or control frame. Returns it with the number of bytes at the start of the buffer to
    /// drop after it is handled. After an error nothing that follows can be decoded.
    ///
    /// A control frame within a fragmented message is not dropped before the message is complete, but it is also not
    /// returned again.
    pub(super) fn decode(&mut self, buffer: &mut [u8]) -> Result<(usize, Frame), ProtocolError> {
        loop {
            let start = self.scanned as usize;
            let unread = buffer.get(start..).unwrap_or_default();
            let Some(head) = FrameHead::parse(unread)? else {
                return Ok((0, Frame::Incomplete(start.saturating_add(unread.len().saturating_add(1).max(2)))));
            };
            let end = self.check(&head)?;
            let payload = start.saturating_add(head.length)..end as usize;
            let Some(bytes) = buffer.get_mut(payload.clone()) else {
                return Ok((0, Frame::Incomplete(payload.end)));
            };
            if let Some(key) = head.mask {
                apply_mask(bytes, key);
            }
            let kind = match head.opcode {
                Opcode::Close => return Ok((payload.end, Frame::Close(read_close(bytes)?))),
                //= rfc6455#5.4:control-between-fragments
                Opcode::Ping => return Ok((self.skip_control(end)?, Frame::Ping(payload))),
                Opcode::Pong => return Ok((self.skip_control(end)?, Frame::Pong)),
                //= rfc7118#4.2:text-and-binary
                Opcode::Text => MessageKind::Text,
                Opcode::Binary => MessageKind::Binary,
                Opcode::Continuation => self.fragmented.unwrap_or(MessageKind::Binary),
            };
            if head.is_final && self.fragmented.is_none() {
                return Ok((payload.end, Frame::Message(kind, check_text(kind, buffer, payload)?)));
            }
            //= rfc6455#5.4:fragments
            self.append(kind, buffer, payload, end)?;
            if head.is_final {
                let message = check_text(kind, buffer, 0..self.assembled as usize)?;
                *self = Self::new(self.is_masked, self.limit);
                return Ok((end as usize, Frame::Message(kind, message)));
            }
        }
    }

    /// Checks whether the frame may come now; returns its end in the buffer.
    fn check(&self, head: &FrameHead) -> Result<u32, ProtocolError> {
        match (self.is_masked, head.mask) {
            //= rfc6455#5.1:not-masked
            (true, None) => return Err(ProtocolError::NotMasked),
            //= rfc6455#5.1:masked
            (false, Some(_)) => return Err(ProtocolError::Masked),
            _ => {}
        }
        match (head.opcode, self.fragmented) {
            (Opcode::Continuation, None) => return Err(ProtocolError::UnexpectedContinuation),
            //= rfc6455#5.4:no-interleaving
            (Opcode::Text | Opcode::Binary, Some(_)) => return Err(ProtocolError::InterruptedMessage),
            _ => {}
        }
        let message = u64::from(self.assembled).saturating_add(head.payload);
        if !head.opcode.is_control() && message > self.limit.into() {
            return Err(ProtocolError::TooLong);
        }
        let end = u64::from(self.scanned).saturating_add(head.length as u64).saturating_add(head.payload);
        u32::try_from(end).map_err(|_| ProtocolError::TooLong)
    }

    /// Moves the payload of a fragment behind those before it.
    fn append(
        &mut self,
        kind: MessageKind,
        buffer: &mut [u8],
        payload: Range<usize>,
        end: u32,
    ) -> Result<(), ProtocolError> {
        self.fragmented = Some(kind);
        // The payload ends at `end`, so its length fits.
        #[expect(clippy::cast_possible_truncation, reason = "at most `end`, a u32")]
        let length = payload.len() as u32;
        buffer.copy_within(payload, self.assembled as usize);
        self.assembled = self.assembled.saturating_add(length);
        self.scan_to(end)
    }

    /// Returns the number of bytes to drop with a control frame.
    fn skip_control(&mut self, end: u32) -> Result<usize, ProtocolError> {
        if self.fragmented.is_none() {
            return Ok(end as usize);
        }
        self.scan_to(end)?;
        Ok(0)
    }

    fn scan_to(&mut self, end: u32) -> Result<(), ProtocolError> {
        debug_assert!(self.assembled <= end && self.scanned <= end);
        self.scanned = end;
        let overhead = self.scanned.saturating_sub(self.assembled) as usize;
        if overhead > MAX_FRAGMENT_OVERHEAD { Err(ProtocolError::TooFragmented) } else { Ok(()) }
    }
}

fn check_text(kind: MessageKind, buffer: &[u8], message: Range<usize>) -> Result<Range<usize>, ProtocolError> {
    let bytes = buffer.get(message.clone()).unwrap_or_default();
    //= rfc6455#8.1:utf8
    if kind == MessageKind::Text && std::str::from_utf8(bytes).is_err() {
        return Err(ProtocolError::NotUtf8);
    }
    Ok(message)
}

/// Reads the payload of a closing frame (RFC 6455 §5.5.1).
fn read_close(payload: &[u8]) -> Result<Option<CloseCode>, ProtocolError> {
    if payload.is_empty() {
        return Ok(None);
    }
    let (code, reason) = payload.split_first_chunk().ok_or(ProtocolError::MalformedClose)?;
    let code = CloseCode::new(u16::from_be_bytes(*code)).ok_or(ProtocolError::MalformedClose)?;
    std::str::from_utf8(reason).map_err(|_| ProtocolError::NotUtf8)?;
    Ok(Some(code))
}
