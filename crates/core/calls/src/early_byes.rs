//! BYEs that are here before their calls, which another process still has to send.

use core::time::Duration;
use std::collections::VecDeque;

use strowger_foundation::Timestamp;

use crate::record::Reason;

/// Maximum number of BYEs that are remembered because their call may still be on its way here.
pub const MAX_EARLY_BYES: usize = 1024;
/// How long they are.
pub const EARLY_BYE_LIFETIME: Duration = Duration::from_secs(32);

/// A BYE of a call that is not known here yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EarlyBye {
    pub(crate) at: Timestamp,
    /// Keys of the call if its sender, or the other party, is the caller.
    pub(crate) keys: [u64; 2],
    /// Hashes of the tags of both.
    pub(crate) tags: [u32; 2],
}

/// BYEs that have overtaken their calls on the way from another process.
#[derive(Debug, Default)]
pub(crate) struct EarlyByes(VecDeque<EarlyBye>);

impl EarlyByes {
    pub(crate) fn push(&mut self, bye: EarlyBye) {
        let is_old = |known: &EarlyBye| bye.at.saturating_since(known.at) > EARLY_BYE_LIFETIME;
        while self.0.len() >= MAX_EARLY_BYES || self.0.front().is_some_and(is_old) {
            self.0.pop_front();
        }
        self.0.push_back(bye);
    }

    /// Removes and returns the BYE of an answered call: when it came, and who sent it.
    pub(crate) fn take(&mut self, key: u64, callee_tag: u32) -> Option<(Timestamp, Reason)> {
        let sender = |bye: &EarlyBye| match (bye.keys, bye.tags) {
            ([of_sender, _], [_, other]) if (of_sender, other) == (key, callee_tag) => Some(Reason::CallerHungUp),
            ([_, of_other], [sender, _]) if (of_other, sender) == (key, callee_tag) => Some(Reason::CalleeHungUp),
            _ => None,
        };
        let (place, by) = self.0.iter().enumerate().find_map(|(place, bye)| Some((place, sender(bye)?)))?;
        self.0.remove(place).map(|bye| (bye.at, by))
    }
}
