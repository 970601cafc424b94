//! One frame (RFC 6455 §5.2): its head, its mask, and what may be wrong with it.

use std::fmt;

use super::close_code::CloseCode;

/// Maximum payload of a control frame, in bytes (RFC 6455 §5.5).
pub const MAX_CONTROL_PAYLOAD: usize = 125;
/// Maximum length of a frame's head, in bytes.
pub const MAX_FRAME_HEAD: usize = 14;

/// Key that a client's frame is masked with. Each frame needs a new one that nobody can predict (RFC 6455 §5.3).
pub type MaskKey = [u8; 4];

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opcode {
    Continuation,
    Text,
    Binary,
    Close,
    Ping,
    Pong,
}

impl Opcode {
    fn new(bits: u8) -> Result<Self, ProtocolError> {
        Ok(match bits {
            0 => Self::Continuation,
            1 => Self::Text,
            2 => Self::Binary,
            8 => Self::Close,
            9 => Self::Ping,
            10 => Self::Pong,
            //= rfc6455#5.2:opcodes
            _ => return Err(ProtocolError::UnknownOpcode(bits)),
        })
    }

    fn bits(self) -> u8 {
        match self {
            Self::Continuation => 0,
            Self::Text => 1,
            Self::Binary => 2,
            Self::Close => 8,
            Self::Ping => 9,
            Self::Pong => 10,
        }
    }

    pub(super) fn is_control(self) -> bool {
        matches!(self, Self::Close | Self::Ping | Self::Pong)
    }
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHead {
    pub(super) is_final: bool,
    pub(super) opcode: Opcode,
    pub(super) mask: Option<MaskKey>,
    /// Length of the payload, in bytes.
    pub(super) payload: u64,
    /// Length of the head itself, in bytes.
    pub(super) length: usize,
}

impl FrameHead {
    /// Reads the head of a frame at the start of `bytes`; `None` if it is incomplete.
    pub(super) fn parse(bytes: &[u8]) -> Result<Option<Self>, ProtocolError> {
        let Some((&[first, second], rest)) = bytes.split_first_chunk() else { return Ok(None) };
        //= rfc6455#5.2:reserved-bits
        if first & 0x70 != 0 {
            return Err(ProtocolError::ReservedBits);
        }
        let opcode = Opcode::new(first & 0x0F)?;
        let is_final = first & 0x80 != 0;
        let short = second & 0x7F;
        //= rfc6455#5.5:control-length
        if opcode.is_control() {
            if !is_final {
                return Err(ProtocolError::FragmentedControl);
            }
            if usize::from(short) > MAX_CONTROL_PAYLOAD {
                return Err(ProtocolError::LongControl);
            }
        }
        let Some((payload, rest)) = read_length(short, rest)? else { return Ok(None) };
        let mask = if second & 0x80 == 0 {
            None
        } else {
            let Some(key) = rest.first_chunk() else { return Ok(None) };
            Some(*key)
        };
        let length = bytes.len().saturating_sub(rest.len()).saturating_add(mask.map_or(0, |key| key.len()));
        Ok(Some(Self { is_final, opcode, mask, payload, length }))
    }

    /// Appends the head of a frame to `out`.
    pub(super) fn write(opcode: Opcode, payload: usize, mask: Option<MaskKey>, out: &mut Vec<u8>) {
        out.push(0x80 | opcode.bits());
        let mask_bit = if mask.is_some() { 0x80 } else { 0 };
        match (u8::try_from(payload), u16::try_from(payload)) {
            (Ok(short @ 0..=125), _) => out.push(mask_bit | short),
            (_, Ok(medium)) => {
                out.push(mask_bit | 126);
                out.extend(medium.to_be_bytes());
            }
            _ => {
                out.push(mask_bit | 127);
                out.extend((payload as u64).to_be_bytes());
            }
        }
        out.extend(mask.unwrap_or_default().iter().take(if mask.is_some() { 4 } else { 0 }));
    }
}

//= rfc6455#5.2:minimal-length
/// Reads the length after the second byte; returns it and what follows.
fn read_length(short: u8, rest: &[u8]) -> Result<Option<(u64, &[u8])>, ProtocolError> {
    match short {
        126 => {
            let Some((length, rest)) = rest.split_first_chunk() else { return Ok(None) };
            let length = u16::from_be_bytes(*length);
            if length < 126 { Err(ProtocolError::LengthNotMinimal) } else { Ok(Some((length.into(), rest))) }
        }
        127 => {
            let Some((length, rest)) = rest.split_first_chunk() else { return Ok(None) };
            let length = u64::from_be_bytes(*length);
            if length <= u16::MAX.into() { Err(ProtocolError::LengthNotMinimal) } else { Ok(Some((length, rest))) }
        }
        _ => Ok(Some((short.into(), rest))),
    }
}

/// Masks or unmasks a payload in place, eight bytes at a time.
pub(super) fn apply_mask(payload: &mut [u8], key: MaskKey) {
    let [a, b, c, d] = key;
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (chunks, rest) = payload.as_chunks_mut::<8>();
    for chunk in chunks {
        *chunk = (u64::from_ne_bytes(*chunk) ^ wide).to_ne_bytes();
    }
    for (byte, key) in rest.iter_mut().zip(key.iter().cycle()) {
        *byte ^= key;
    }
}

/// How a peer broke the protocol after the upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// A reserved bit is set, but no extension was negotiated.
    ReservedBits,
    /// The opcode is reserved.
    UnknownOpcode(u8),
    /// A client's frame is not masked.
    NotMasked,
    /// A server's frame is masked.
    Masked,
    /// A length is written in more bytes than needed.
    LengthNotMinimal,
    /// A control frame is fragmented.
    FragmentedControl,
    /// A control frame is longer than [`MAX_CONTROL_PAYLOAD`].
    LongControl,
    /// A fragment belongs to no message.
    UnexpectedContinuation,
    /// A message begins within another one.
    InterruptedMessage,
    /// A message is longer than the limit.
    TooLong,
    /// A message consists of too many short fragments.
    TooFragmented,
    /// A text message is not UTF-8.
    NotUtf8,
    /// The payload of a closing frame is malformed.
    MalformedClose,
}

impl ProtocolError {
    /// Returns the code to close the connection with.
    #[must_use]
    pub fn close_code(self) -> CloseCode {
        match self {
            Self::TooLong => CloseCode::MESSAGE_TOO_BIG,
            Self::TooFragmented => CloseCode::POLICY_VIOLATION,
            Self::NotUtf8 => CloseCode::INVALID_PAYLOAD,
            _ => CloseCode::PROTOCOL_ERROR,
        }
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ReservedBits => "a reserved bit is set without an extension",
            Self::UnknownOpcode(opcode) => return write!(f, "opcode {opcode} is reserved"),
            Self::NotMasked => "a frame of a client is not masked",
            Self::Masked => "a frame of a server is masked",
            Self::LengthNotMinimal => "a length is written in more bytes than needed",
            Self::FragmentedControl => "a control frame is fragmented",
            Self::LongControl => "a control frame is longer than 125 bytes",
            Self::UnexpectedContinuation => "a fragment belongs to no message",
            Self::InterruptedMessage => "a message begins before the last one ends",
            Self::TooLong => "a message is too long",
            Self::TooFragmented => "a message is in too many short fragments",
            Self::NotUtf8 => "a text message is not UTF-8",
            Self::MalformedClose => "a closing frame is malformed",
        })
    }
}

impl std::error::Error for ProtocolError {}
