//! How long a worker waits awake.

use std::fmt;
use std::str::FromStr;

use crate::config::duration::Span;

/// How a worker waits for the next message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spin {
    /// Awake for so long at most, where messages usually follow one another that soon; then asleep. Zero: never awake.
    UpTo(Span),
    /// Awake as long as it has shards: nothing has to be woken when a message comes, at the price of a core.
    Always,
}

impl Spin {
    /// The longest time: long against what a wake-up takes.
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
                    "{time:?} is no time to wait awake; write a duration up to {most}, as 10us, 0s for never, or always"
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
