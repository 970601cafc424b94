//! The SIP messages of a capture.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read, Seek as _};
use std::net::SocketAddr;
use std::path::Path;

use serde::Deserialize;
use strowger_foundation::Transport;
use strowger_message::{Head, HeaderName};

use super::CaptureError;
use super::file::read_frames;
use super::frame::{FrameReader, Payload};
use super::skipped::{Reason, SkipCounts};
use super::stream::Streams;

/// Maximum number of messages of a capture that are held, about 1 GB.
pub const MAX_MESSAGES: usize = 1_000_000;
/// Maximum length of a line of a trace, in bytes.
const MAX_LINE: u64 = 1 << 20;

/// A message in a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedMessage {
    /// When the whole message was captured: ns since 1970; in a trace, since its server started.
    pub at: u64,
    /// The sender.
    pub source: SocketAddr,
    /// The receiver.
    pub destination: SocketAddr,
    /// The transport.
    pub transport: Transport,
    /// The message.
    pub bytes: Vec<u8>,
}

/// The SIP messages of a capture.
#[derive(Clone, Debug, Default)]
pub struct Capture {
    /// The messages, ordered by time.
    pub messages: Vec<CapturedMessage>,
    /// Counts of what was left out.
    pub skipped: SkipCounts,
}

impl Capture {
    /// Reads a pcap or pcapng file, or the output of `strowger ctl trace --json --messages`.
    ///
    /// # Errors
    /// If the file cannot be read or has another format. Unusable parts of a file, however damaged, are counted and
    /// skipped.
    pub fn read(path: &Path) -> Result<Self, CaptureError> {
        let name = path.display().to_string();
        let wrong = |error: std::io::Error| CaptureError(format!("{name} cannot be read: {error}"));
        let mut file = File::open(path).map_err(wrong)?;
        let mut first = [0];
        let is_trace = file.read(&mut first).map_err(wrong)? == 1 && first == *b"{";
        file.rewind().map_err(wrong)?;
        if is_trace { Self::read_trace(&name, file) } else { Self::read_packets(&name, file) }
    }

    /// Reads the bytes of a file named `name`, as [`read`](Self::read) does.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn parse(name: &str, bytes: &[u8]) -> Result<Self, CaptureError> {
        if bytes.first() == Some(&b'{') { Self::read_trace(name, bytes) } else { Self::read_packets(name, bytes) }
    }

    fn read_packets(name: &str, file: impl Read + Send) -> Result<Self, CaptureError> {
        let mut capture = Self::default();
        let mut skipped = SkipCounts::default();
        let (mut frames, mut streams, mut last) = (FrameReader::default(), Streams::default(), 0);
        read_frames(name, file, &mut skipped, |frame, skipped| {
            last = frame.at;
            frames.read(frame, skipped, |carried, skipped| match carried {
                Payload::Datagram(source, destination, bytes) => {
                    capture.push(frame.at, Transport::Udp, (source, destination), bytes);
                }
                Payload::Segment(segment) => {
                    let between = (segment.source, segment.destination);
                    streams.handle(segment, skipped, |bytes| capture.push(frame.at, Transport::Tcp, between, bytes));
                }
            });
        })?;
        frames.finish(&mut skipped);
        streams.finish(&mut skipped, |between, bytes| capture.push(last, Transport::Tcp, between, bytes));
        capture.skipped.merge(&skipped);
        Ok(capture.sorted())
    }

    fn read_trace(name: &str, file: impl Read) -> Result<Self, CaptureError> {
        let mut capture = Self::default();
        let mut file = BufReader::new(file);
        let mut line = Vec::new();
        loop {
            line.clear();
            let length = file
                .by_ref()
                .take(MAX_LINE)
                .read_until(b'\n', &mut line)
                .map_err(|error| CaptureError(format!("{name} cannot be read: {error}")))?;
            if length == 0 {
                return Ok(capture.sorted());
            }
            if line.trim_ascii().is_empty() {
                continue;
            }
            match serde_json::from_slice::<TraceLine>(&line) {
                Ok(traced) => traced.put(&mut capture),
                // A line that reports lost messages, or a truncated line.
                Err(_) => capture.skipped.add(Reason::Malformed),
            }
        }
    }

    /// Adds a payload if it is SIP.
    fn push(&mut self, at: u64, transport: Transport, (source, destination): (SocketAddr, SocketAddr), bytes: &[u8]) {
        if bytes.iter().all(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
            // Keep-alives and frame padding.
            return;
        }
        let head = Head::scan(bytes).ok();
        let is_sip = head.as_ref().is_some_and(|head| {
            head.is_sip_2_0() && head.first(HeaderName::CallId).is_some() && head.first(HeaderName::CSeq).is_some()
        });
        if !is_sip {
            return self.skipped.add(Reason::NoSip);
        }
        if self.messages.len() >= MAX_MESSAGES {
            return self.skipped.add(Reason::Messages);
        }
        self.messages.push(CapturedMessage { at, source, destination, transport, bytes: bytes.to_vec() });
    }

    /// Sorts by time: the interfaces of a file have separate buffers, so times may go back a little.
    fn sorted(mut self) -> Self {
        self.messages.sort_by_key(|message| message.at);
        self
    }
}

/// A line of a trace.
#[derive(Debug, Deserialize)]
struct TraceLine {
    at_us: u64,
    sent: bool,
    transport: String,
    local: String,
    peer: SocketAddr,
    length: usize,
    lines: Option<Vec<String>>,
}

impl TraceLine {
    fn put(self, capture: &mut Capture) {
        let transport = match self.transport.to_ascii_lowercase().as_str() {
            "udp" => Transport::Udp,
            "tcp" => Transport::Tcp,
            _ => return capture.skipped.add(Reason::Protocol),
        };
        let local = self.local.split_once(':').map_or("", |(_, address)| address);
        let local = local.parse().or_else(|_| self.local.parse());
        let (Some(lines), Ok(local)) = (self.lines, local) else { return capture.skipped.add(Reason::NoLines) };
        let mut bytes = lines.join("\r\n").into_bytes();
        // The list of lines does not show how the last line ends.
        while bytes.len() < self.length && !bytes.ends_with(b"\r\n\r\n") {
            bytes.extend_from_slice(b"\r\n");
        }
        if bytes.len() < self.length || lines.last().is_some_and(|line| line.starts_with('…')) {
            return capture.skipped.add(Reason::NoLines);
        }
        let between = if self.sent { (local, self.peer) } else { (self.peer, local) };
        // A worker stamps a message that it sends for another worker with its last clock reading, which may be
        // earlier than the message that caused it. The lines are in the order of events, and no stamp is too late.
        let before = capture.messages.last().map_or(0, |last| last.at);
        capture.push(self.at_us.saturating_mul(1_000).max(before), transport, between, &bytes);
    }
}
