//! Framing of messages in a stream, independent of segment boundaries.

use strowger_message::{Fault, FrameResult, Head, HeaderName, frame_stream, parse_decimal};

/// The next element of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// A complete message of the given length.
    Message(usize),
    /// Line ends between messages, to be skipped. If `is_ping`, the peer expects a CRLF in response.
    Blank {
        /// Length in bytes.
        length: usize,
        /// Whether it contains a double CRLF.
        is_ping: bool,
    },
    /// Incomplete: at least this many bytes, counted from the start of the search, are needed.
    More(usize),
    /// Malformed: nothing after this can be trusted.
    Broken(Fault),
}

/// Splits a stream into frames. Its only state between frames is the part of a ping seen so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StreamFramer {
    /// Number of bytes of a double CRLF at the end of the stream.
    ping: u8,
}

impl StreamFramer {
    /// Returns the next frame of the unhandled bytes. `More` changes no state; after any other frame, the search
    /// continues behind it.
    pub(crate) fn next(&mut self, bytes: &[u8]) -> Frame {
        match frame_stream(bytes) {
            FrameResult::Incomplete => Frame::More(needed(bytes)),
            FrameResult::KeepAlive(length) => {
                let is_ping = self.see_line_ends(bytes.get(..length).unwrap_or(bytes));
                Frame::Blank { length, is_ping }
            }
            FrameResult::Message(length) => {
                self.ping = 0;
                Frame::Message(length)
            }
            FrameResult::Malformed(fault) => Frame::Broken(fault),
        }
    }

    /// Returns whether line ends contain or complete a ping. One response is enough for several.
    //= rfc5626#4.4.1
    //= rfc5626#5.4:crlf
    fn see_line_ends(&mut self, bytes: &[u8]) -> bool {
        let mut is_ping = false;
        for byte in bytes {
            self.ping = match (self.ping, byte) {
                (0 | 2, b'\r') | (1, b'\n') => self.ping + 1,
                (3, b'\n') => {
                    is_ping = true;
                    0
                }
                (_, b'\r') => 1,
                _ => 0,
            };
        }
        is_ping
    }
}

/// Returns how many bytes an incomplete message needs before it is worth parsing again: the full length once its head
/// is complete, so that a body in small segments costs no more than one that arrives at once.
fn needed(bytes: &[u8]) -> usize {
    let one_more = bytes.len().saturating_add(1);
    if memchr::memmem::find(bytes, b"\r\n\r\n").is_none() {
        return one_more;
    }
    let Ok(head) = Head::scan(bytes) else { return one_more };
    let body = head.only(HeaderName::ContentLength).ok().flatten().and_then(parse_decimal).unwrap_or(0);
    usize::try_from(body).map_or(one_more, |body| head.len().saturating_add(body)).max(one_more)
}
