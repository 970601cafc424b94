//! Message trace of a world as text, one line per event.

use core::net::SocketAddr;
use core::time::Duration;

use strowger_foundation::{ConnId, Timestamp};
use strowger_message::{HeaderName, Peek, lossy};

/// All messages so far.
#[derive(Debug, Default)]
pub struct Ladder(String);

impl Ladder {
    /// Records a sent message.
    pub fn sent(&mut self, at: Timestamp, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        self.line(at, from, "──", to, bytes);
    }

    /// Records a received message.
    pub fn arrived(&mut self, at: Timestamp, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        self.line(at, from, "─▶", to, bytes);
    }

    /// Records a closed connection.
    pub fn cut(&mut self, at: Timestamp, peer: SocketAddr, connection: ConnId) {
        self.0 += &format!("{} {peer:>20} ─✕ {connection}\n", seconds(at));
    }

    /// Records an event of the server itself.
    pub fn note(&mut self, at: Timestamp, text: &str) {
        self.0 += &format!("{} {text}\n", seconds(at));
    }

    /// Returns the lines.
    #[must_use]
    pub fn into_text(self) -> String {
        self.0
    }

    fn line(&mut self, at: Timestamp, from: SocketAddr, arrow: &str, to: SocketAddr, bytes: &[u8]) {
        self.0 += &format!("{} {from:>20} {arrow} {to:<20} {}\n", seconds(at), summary(bytes));
    }
}

/// Returns the first line of a message, and what identifies its transaction.
#[must_use]
pub fn summary(bytes: &[u8]) -> String {
    let Ok(peek) = Peek::read(bytes) else { return format!("({} bytes)", bytes.len()) };
    let first = bytes.split(|byte| *byte == b'\r').next().unwrap_or(&[]);
    let cseq = peek.head().first(HeaderName::CSeq).unwrap_or(&[]);
    let branch = peek.via.and_then(|via| via.branch).unwrap_or(&[]);
    let tail = branch.get(branch.len().saturating_sub(12)..).unwrap_or(branch);
    format!("{:<52} [{} · {} · …{}]", lossy(first), lossy(cseq), lossy(peek.call_id), lossy(tail))
}

/// Formats a time for traces and violations.
#[must_use]
pub fn seconds(at: Timestamp) -> String {
    let since: Duration = at - Timestamp::ZERO;
    format!("{:9.3}s", since.as_secs_f64())
}
