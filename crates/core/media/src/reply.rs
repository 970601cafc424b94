//! Answers of an engine.

use core::fmt;

use crate::bencode::{self, Value};

/// Largest answer in bytes that is accepted.
pub const MAX_REPLY: usize = 65_535;

/// The answer to a command, without its cookie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// `ok` with the session description to send on.
    Sdp(&'a [u8]),
    /// `ok` without a description, as to a `delete`.
    Done,
    /// `pong`.
    Pong,
    /// `load limit`: the engine takes no further call.
    Busy,
    /// `error` and the reason.
    Refused(&'a [u8]),
}

/// Why an answer was not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyFault {
    /// It is no bencode.
    Bencode(bencode::Fault),
    /// It has no `result`, or an unknown one.
    Result,
}

impl fmt::Display for ReplyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bencode(fault) => write!(f, "not bencode: {fault}"),
            Self::Result => f.write_str("no known result"),
        }
    }
}

impl<'a> Reply<'a> {
    /// Parses what follows the cookie.
    ///
    /// # Errors
    /// Returns why it is no answer.
    pub fn parse(text: &'a [u8]) -> Result<Self, ReplyFault> {
        let value = Value::parse(text).map_err(ReplyFault::Bencode)?;
        let string = |key| value.get(key).and_then(Value::as_bytes);
        match string("result").ok_or(ReplyFault::Result)? {
            b"ok" => Ok(string("sdp").map_or(Self::Done, Self::Sdp)),
            b"pong" => Ok(Self::Pong),
            b"load limit" => Ok(Self::Busy),
            b"error" => Ok(Self::Refused(string("error-reason").unwrap_or(b"no reason given"))),
            _ => Err(ReplyFault::Result),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_apart() {
        for (text, reply) in [
            (&b"d6:result4:ponge"[..], Ok(Reply::Pong)),
            (b"d6:result2:oke", Ok(Reply::Done)),
            (b"d3:sdp4:v=0\n6:result2:oke", Ok(Reply::Sdp(b"v=0\n"))),
            (b"d12:error-reason15:Unknown call-id6:result5:errore", Ok(Reply::Refused(b"Unknown call-id"))),
            (b"d6:result5:errore", Ok(Reply::Refused(b"no reason given"))),
            (b"d7:message4:full6:result10:load limite", Ok(Reply::Busy)),
            (b"d6:resulti1ee", Err(ReplyFault::Result)),
            (b"d6:result5:maybee", Err(ReplyFault::Result)),
            (b"i1e", Err(ReplyFault::Result)),
            (b"d", Err(ReplyFault::Bencode(bencode::Fault::Truncated))),
        ] {
            assert_eq!(Reply::parse(text), reply, "{}", String::from_utf8_lossy(text));
        }
    }
}
