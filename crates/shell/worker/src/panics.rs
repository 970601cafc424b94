//! Record of contained panics, and detection of too many.

use std::any::Any;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use strowger_foundation::{ShardId, Timestamp};

/// Number of panics within [`PANIC_WINDOW`] at which the process aborts: state is then lost faster than peers can
/// restore it, and a new process is better.
pub const PANIC_LIMIT: usize = 3;

/// Time window of [`PANIC_LIMIT`].
pub const PANIC_WINDOW: Duration = Duration::from_secs(60);

/// Bytes kept of the message being handled.
const KEPT_INPUT: usize = 4 * 1024;

/// A contained panic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PanicReport {
    /// The shard whose state was lost; `None` if the message had not reached one.
    pub shard: Option<ShardId>,
    /// Time of the panic.
    pub at: Timestamp,
    /// Panic message.
    pub what: String,
    /// The message being handled, without credentials, truncated to 4 KiB; empty for a timer.
    pub input: Vec<u8>,
}

impl PanicReport {
    pub(crate) fn new(shard: Option<ShardId>, at: Timestamp, payload: &(dyn Any + Send), input: &[u8]) -> Self {
        let what = payload.downcast_ref::<&str>().map(ToString::to_string);
        let what = what.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
        Self { shard, at, what, input: without_credentials(input.get(..KEPT_INPUT).unwrap_or(input)) }
    }
}

/// One line, with all input from the peer escaped.
impl fmt::Display for PanicReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shard {
            Some(shard) => write!(f, "{shard} panicked and starts afresh: ")?,
            None => f.write_str("reading a message panicked: ")?,
        }
        write!(f, "{}; input: \"{}\"", self.what.escape_debug(), self.input.escape_ascii())
    }
}

/// Returns `message` without the values of Authorization and Proxy-Authorization, including folded lines.
fn without_credentials(message: &[u8]) -> Vec<u8> {
    const SECRET: [&[u8]; 2] = [b"authorization", b"proxy-authorization"];
    let mut kept = Vec::with_capacity(message.len());
    let mut in_secret = false;
    for line in message.split_inclusive(|byte| *byte == b'\n') {
        let is_folded = matches!(line.first(), Some(b' ' | b'\t'));
        if is_folded && in_secret {
            continue;
        }
        let name = line.split(|byte| *byte == b':').next().unwrap_or(line).trim_ascii();
        in_secret = SECRET.iter().any(|secret| secret.eq_ignore_ascii_case(name));
        if in_secret {
            kept.extend_from_slice(name);
            kept.extend_from_slice(b": (removed)\r\n");
        } else {
            kept.extend_from_slice(line);
        }
    }
    kept
}

/// Panics of all workers.
#[derive(Debug, Default)]
pub(crate) struct PanicLog {
    state: Mutex<LogState>,
}

#[derive(Debug, Default)]
struct LogState {
    /// Times of the latest panics, newest first.
    recent: [Option<Timestamp>; PANIC_LIMIT],
    last: Option<PanicReport>,
}

impl PanicLog {
    /// Records a panic; returns whether the limit is exceeded.
    #[must_use]
    pub(crate) fn record(&self, report: PanicReport) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let at = report.at;
        state.recent.rotate_right(1);
        if let Some(first) = state.recent.first_mut() {
            *first = Some(at);
        }
        state.last = Some(report);
        state.recent.last().copied().flatten().is_some_and(|oldest| at - oldest < PANIC_WINDOW)
    }

    /// Returns the latest panic.
    pub(crate) fn last(&self) -> Option<PanicReport> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).last.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(seconds: u64) -> PanicReport {
        PanicReport::new(Some(ShardId(3)), Timestamp::from_millis(seconds * 1_000), &"index out of bounds", b"INVITE")
    }

    #[test]
    fn three_panics_a_minute_are_too_many() {
        let log = PanicLog::default();
        assert!(!log.record(report(0)));
        assert!(!log.record(report(30)));
        assert!(!log.record(report(60)), "the first is a minute old");
        assert!(log.record(report(89)), "30, 60, 89");
        assert_eq!(log.last(), Some(report(89)));
    }

    #[test]
    fn a_report_is_one_line_without_credentials() {
        let input = b"REGISTER sip:a SIP/2.0\r\nAuthorization: Digest response=\"1\",\r\n nonce=\"2\"\r\nproxy-authorization : \
                      Digest 3\r\nTo: <sip:b>\r\n\r\n\xff";
        let report = PanicReport::new(None, Timestamp::ZERO, &String::from("a\nb"), input);
        let line = report.to_string();
        assert_eq!(
            line,
            "reading a message panicked: a\\nb; input: \"REGISTER sip:a SIP/2.0\\r\\nAuthorization: (removed)\\r\\n\
             proxy-authorization: (removed)\\r\\nTo: <sip:b>\\r\\n\\r\\n\\xff\""
        );
    }

    #[test]
    fn a_long_input_is_cut() {
        let report = PanicReport::new(None, Timestamp::ZERO, &"", &[b'x'; 70_000]);
        assert_eq!(report.input.len(), KEPT_INPUT);
    }
}
