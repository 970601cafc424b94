//! Busy-polling time of workers.

use std::fmt;
use std::str::FromStr;

use crate::config::duration::Span;

/// How a worker waits for the next message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spin {
    /// Polls for at most this time, if messages usually follow that soon, then sleeps. Zero: never polls.
    UpTo(Span),
    /// Polls while the worker has shards. Messages need no wake-up, at the price of a core.
    Always,
}

impl Spin {
    /// Maximum polling time, long compared with a wake-up.
    pub const MOST: Span = Span::from_millis(1);
}

impl FromStr for Spin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "always" => Ok(Self::Always),
            time => time.parse().map(Self::UpTo).map_err(|_| {
                let most = Self::MOST;
                format!(
                    "{time:?} is not a busy-polling time; write a duration up to {most}, such as 10us, 0s for never, or always"
                )
            }),
        }
    }
}

impl fmt::Display for Spin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UpTo(span) => span.fmt(f),
            Self::Always => f.write_str("always"),
        }
    }
}
