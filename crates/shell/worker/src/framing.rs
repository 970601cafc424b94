//! Messages out of a stream's bytes, however these were cut on their way.

use strowger_message::{Fault, FrameResult, Head, HeaderName, frame_stream, parse_decimal};

/// What stands next in the bytes of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// A whole message of so many bytes.
    Message(usize),
    /// Line ends between messages, to be skipped; with `is_ping` the peer waits for a line end of ours.
    Blank {
        /// How many bytes.
        length: usize,
        /// Whether a double CRLF is among them.
        is_ping: bool,
    },
    /// Nothing can be said before so many bytes are there, counted from where the search began.
    More(usize),
    /// Nothing behind this can be trusted.
    Broken(Fault),
}

/// Cuts a stream into pieces. All that it remembers from one piece to the next is how much of a ping was seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StreamFramer {
    /// How many bytes of a double CRLF the stream ended with.
    ping: u8,
}

impl StreamFramer {
    /// Looks at what has not been dealt with. `More` changes nothing; behind any other piece the search goes on.
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

    /// Whether line ends hold a ping, or end one. However many they hold, one answer is enough.
    //= rfc5626#4.4.1
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

/// How many bytes an incomplete message needs before there is anything new to find out: all of it once its head is whole,
/// so that a body that comes in drops costs no more than one that comes at once.
fn needed(bytes: &[u8]) -> usize {
    let one_more = bytes.len().saturating_add(1);
    if memchr::memmem::find(bytes, b"\r\n\r\n").is_none() {
        return one_more;
    }
    let Ok(head) = Head::scan(bytes) else { return one_more };
    let body = head.only(HeaderName::ContentLength).ok().flatten().and_then(parse_decimal).unwrap_or(0);
    usize::try_from(body).map_or(one_more, |body| head.len().saturating_add(body)).max(one_more)
}
