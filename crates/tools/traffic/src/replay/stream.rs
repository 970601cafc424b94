//! Reassembly of TCP streams: segments are put in order, retransmissions dropped, and gaps skipped and counted.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use strowger_message::{FrameResult, frame_stream};

use super::frame::Segment;
use super::skipped::{Reason, SkipCounts};

/// Maximum number of connection directions that are tracked at once.
const MAX_STREAMS: usize = 65_536;
/// Maximum number of bytes that wait in a direction for missing ones before these are given up.
const MAX_WAITING: usize = 1 << 20;
/// Maximum number of segments that wait.
const MAX_SEGMENTS: usize = 1_024;

/// One direction of a connection.
#[derive(Debug, Default)]
struct Stream {
    /// The sequence number of the next byte; `None` before the first segment.
    next: Option<u32>,
    /// Bytes of an incomplete message.
    buffer: Vec<u8>,
    /// Segments received out of order, by sequence number.
    waiting: BTreeMap<u32, Vec<u8>>,
    waiting_bytes: usize,
    /// Set after bytes that are not SIP: the start of each segment is then checked for the beginning of a message.
    is_lost: bool,
}

/// Both directions of all connections.
#[derive(Debug)]
pub(super) struct Streams {
    streams: HashMap<(SocketAddr, SocketAddr), Stream, FixedState>,
}

impl Default for Streams {
    fn default() -> Self {
        Self { streams: HashMap::with_hasher(FixedState::with_seed(2)) }
    }
}

impl Streams {
    /// Handles a segment and passes the messages that it completes to `each`.
    pub(super) fn handle(&mut self, segment: Segment<'_>, skipped: &mut SkipCounts, mut each: impl FnMut(&[u8])) {
        let key = (segment.source, segment.destination);
        if self.streams.len() >= MAX_STREAMS && !self.streams.contains_key(&key) {
            if !segment.bytes.is_empty() {
                skipped.add(Reason::Messages);
            }
            return;
        }
        let stream = self.streams.entry(key).or_default();
        if segment.is_syn {
            // The ports may be reused.
            stream.flush(skipped, &mut each);
            *stream = Stream { next: Some(segment.sequence.wrapping_add(1)), ..Stream::default() };
            return;
        }
        stream.take(segment, skipped, &mut each);
        if segment.is_last {
            stream.flush(skipped, &mut each);
            self.streams.remove(&key);
        }
    }

    /// Ends the capture: segments that wait for missing bytes are read without them.
    pub(super) fn finish(mut self, skipped: &mut SkipCounts, mut each: impl FnMut((SocketAddr, SocketAddr), &[u8])) {
        let mut all: Vec<_> = self.streams.drain().collect();
        all.sort_by_key(|(key, _)| *key);
        for (key, mut stream) in all {
            stream.flush(skipped, &mut |bytes| each(key, bytes));
        }
    }
}

impl Stream {
    fn take(&mut self, segment: Segment<'_>, skipped: &mut SkipCounts, each: &mut impl FnMut(&[u8])) {
        if segment.bytes.is_empty() {
            return;
        }
        let next = *self.next.get_or_insert(segment.sequence);
        let ahead = segment.sequence.wrapping_sub(next);
        // More than half of the sequence space ahead means behind.
        if ahead < 1 << 31 {
            if ahead == 0 {
                self.append(segment.bytes, skipped, each);
            } else {
                self.waiting_bytes += segment.bytes.len();
                let twin = self.waiting.insert(segment.sequence, segment.bytes.to_vec());
                self.waiting_bytes -= twin.map_or(0, |twin| twin.len());
            }
        } else {
            let known = next.wrapping_sub(segment.sequence) as usize;
            match segment.bytes.get(known..).filter(|fresh| !fresh.is_empty()) {
                Some(fresh) => self.append(fresh, skipped, each),
                None => skipped.add(Reason::Retransmitted),
            }
        }
        self.catch_up(skipped, each);
        if self.waiting_bytes > MAX_WAITING || self.waiting.len() > MAX_SEGMENTS {
            self.jump(skipped, each);
        }
    }

    /// Appends waiting segments that are in order.
    fn catch_up(&mut self, skipped: &mut SkipCounts, each: &mut impl FnMut(&[u8])) {
        loop {
            let Some(next) = self.next else { return };
            let due = self
                .waiting
                .keys()
                .copied()
                .find(|sequence| sequence.wrapping_sub(next) == 0 || sequence.wrapping_sub(next) >= 1 << 31);
            let Some(bytes) = due.and_then(|sequence| self.waiting.remove(&sequence).map(|bytes| (sequence, bytes)))
            else {
                return;
            };
            let (sequence, bytes) = bytes;
            self.waiting_bytes -= bytes.len();
            let known = next.wrapping_sub(sequence) as usize;
            match bytes.get(known..).filter(|fresh| !fresh.is_empty()) {
                Some(fresh) => self.append(fresh, skipped, each),
                None => skipped.add(Reason::Retransmitted),
            }
        }
    }

    /// Skips a gap.
    fn jump(&mut self, skipped: &mut SkipCounts, each: &mut impl FnMut(&[u8])) {
        let Some(next) = self.next else { return };
        let Some(nearest) = self.waiting.keys().copied().min_by_key(|sequence| sequence.wrapping_sub(next)) else {
            return;
        };
        skipped.add(Reason::Gap);
        self.buffer.clear();
        self.is_lost = true;
        self.next = Some(nearest);
        self.catch_up(skipped, each);
    }

    /// Reads the waiting segments and drops an incomplete message, at the end of the stream.
    fn flush(&mut self, skipped: &mut SkipCounts, each: &mut impl FnMut(&[u8])) {
        while !self.waiting.is_empty() {
            self.jump(skipped, each);
        }
        if !self.buffer.is_empty() {
            skipped.add(Reason::Gap);
            self.buffer.clear();
        }
    }

    /// Appends the next bytes of the stream.
    fn append(&mut self, bytes: &[u8], skipped: &mut SkipCounts, each: &mut impl FnMut(&[u8])) {
        self.next = self.next.map(|next| next.wrapping_add(u32::try_from(bytes.len()).unwrap_or(0)));
        if self.is_lost {
            // Inside data that is not SIP, or inside a message whose beginning is missing.
            if !may_begin(bytes) {
                return;
            }
            self.is_lost = false;
        }
        self.buffer.extend_from_slice(bytes);
        let mut at = 0;
        loop {
            let rest = self.buffer.get(at..).unwrap_or(&[]);
            match frame_stream(rest) {
                FrameResult::KeepAlive(count) => at += count,
                FrameResult::Message(count) => {
                    each(rest.get(..count).unwrap_or(&[]));
                    at += count;
                }
                FrameResult::Incomplete if may_begin(rest) => break,
                FrameResult::Incomplete | FrameResult::Malformed(_) => {
                    skipped.add(Reason::NoSip);
                    self.is_lost = true;
                    self.buffer.clear();
                    return;
                }
            }
        }
        self.buffer.drain(..at);
    }
}

/// Returns whether a message may begin like this: with a token and a space, or with `SIP/2.0`.
fn may_begin(bytes: &[u8]) -> bool {
    let word = bytes.iter().take_while(|byte| byte.is_ascii_graphic()).count();
    let is_token = bytes.iter().take(word).all(|byte| byte.is_ascii_alphanumeric() || b"-.!%*_+`'~/".contains(byte));
    let follows = bytes.get(word).is_none_or(|byte| *byte == b' ');
    bytes.is_empty()
        || bytes.iter().all(|byte| matches!(byte, b'\r' | b'\n'))
        || (word > 0 && word <= 32 && is_token && follows)
}
