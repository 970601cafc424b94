//! The messages of a world as text, one line each.

use core::net::SocketAddr;

use strowger_foundation::{ConnId, Timestamp};
use strowger_message::{HeaderName, Peek, lossy};

use crate::world::seconds;

/// All messages so far.
#[derive(Debug, Default)]
pub struct Ladder(String);

impl Ladder {
    /// A message left.
    pub fn sent(&mut self, at: Timestamp, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        self.line(at, from, "──", to, bytes);
    }

    /// A message arrived.
    pub fn arrived(&mut self, at: Timestamp, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        self.line(at, from, "─▶", to, bytes);
    }

    /// A connection was cut.
    pub fn cut(&mut self, at: Timestamp, peer: SocketAddr, connection: ConnId) {
        self.0 += &format!("{} {peer:>20} ─✕ {connection}\n", seconds(at));
    }

    /// Something about the server itself.
    pub fn note(&mut self, at: Timestamp, text: &str) {
        self.0 += &format!("{} {text}\n", seconds(at));
    }

    /// The lines.
    #[must_use]
    pub fn into_text(self) -> String {
        self.0
    }

    fn line(&mut self, at: Timestamp, from: SocketAddr, arrow: &str, to: SocketAddr, bytes: &[u8]) {
        self.0 += &format!("{} {from:>20} {arrow} {to:<20} {}\n", seconds(at), summary(bytes));
    }
}

/// The first line, and what tells one transaction from another.
#[must_use]
pub fn summary(bytes: &[u8]) -> String {
    let Ok(peek) = Peek::read(bytes) else { return format!("({} bytes)", bytes.len()) };
    let first = bytes.split(|byte| *byte == b'\r').next().unwrap_or(&[]);
    let cseq = peek.head().first(HeaderName::CSeq).unwrap_or(&[]);
    let branch = peek.via.and_then(|via| via.branch).unwrap_or(&[]);
    let tail = branch.get(branch.len().saturating_sub(12)..).unwrap_or(branch);
    format!("{:<52} [{} · {} · …{}]", lossy(first), lossy(cseq), lossy(peek.call_id), lossy(tail))
}
