//! Replay window: rejects messages of a process that have been accepted before.

/// Number of 64-bit words in the window.
const WORDS: usize = 16;
/// Width of the window: how far below the highest number others can be checked.
pub(super) const WINDOW: u64 = 64 * WORDS as u64;

/// Result of checking a message number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WindowCheck {
    /// New; recorded by the check.
    New,
    /// Seen before.
    Duplicate,
    /// Below the window.
    TooOld,
}

/// Numbers seen: bit `number % WINDOW` for each number from `highest` down.
#[derive(Clone, Debug, Default)]
pub(super) struct ReplayWindow {
    highest: u64,
    taken: [u64; WORDS],
}

impl ReplayWindow {
    /// Checks a number, from 1, and records it.
    pub(super) fn check(&mut self, number: u64) -> WindowCheck {
        if number.saturating_add(WINDOW) <= self.highest {
            return WindowCheck::TooOld;
        }
        if number > self.highest {
            let from = self.highest.max(number.saturating_sub(WINDOW));
            (from..number).for_each(|below| {
                self.set(below + 1, false);
            });
            self.highest = number;
        }
        if self.set(number, true) { WindowCheck::Duplicate } else { WindowCheck::New }
    }

    /// Sets a bit and returns its previous value.
    fn set(&mut self, number: u64, is_taken: bool) -> bool {
        let bit = 1u64 << (number % 64);
        let at = usize::try_from(number / 64 % WORDS as u64).unwrap_or(0);
        let Some(word) = self.taken.get_mut(at) else { return true };
        let was_taken = *word & bit != 0;
        *word = if is_taken { *word | bit } else { *word & !bit };
        was_taken
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn duplicates_are_rejected_and_only_old_numbers_are_lost(
            steps in prop::collection::vec((0u64..40, 0u64..1_500), 1..400)
        ) {
            let (mut window, mut taken, mut top) = (ReplayWindow::default(), BTreeSet::new(), 1u64);
            for (ahead, back) in steps {
                let number = (top + ahead).saturating_sub(back).max(1);
                let expected = match number {
                    old if old + WINDOW <= top && !taken.is_empty() => WindowCheck::TooOld,
                    known if taken.contains(&known) => WindowCheck::Duplicate,
                    _ => WindowCheck::New,
                };
                prop_assert_eq!(window.check(number), expected);
                if expected == WindowCheck::New {
                    taken.insert(number);
                    top = if taken.len() == 1 { number } else { top.max(number) };
                }
            }
        }
    }

    #[test]
    fn a_jump_ahead_forgets_all_below() {
        let mut window = ReplayWindow::default();
        assert_eq!(window.check(5), WindowCheck::New);
        assert_eq!(window.check(5 + 10 * WINDOW), WindowCheck::New);
        assert_eq!(window.check(5), WindowCheck::TooOld);
        assert_eq!(window.check(5 + 9 * WINDOW + 1), WindowCheck::New);
        assert_eq!(window.check(u64::MAX), WindowCheck::New);
    }
}
