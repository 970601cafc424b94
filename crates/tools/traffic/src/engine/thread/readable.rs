//! Readable sockets of an end.

use strowger_foundation::Timestamp;

use super::sockets::LISTENER;

/// Sockets that are known to be readable, each once. They take turns: a socket with more to read than it may at once
/// waits until the others were read.
#[derive(Debug, Default)]
pub(super) struct Readable {
    waiting: Vec<u32>,
    /// Sockets of the current turn; the memory is reused.
    reading: Vec<u32>,
    /// Whether the turn has begun.
    is_in_turn: bool,
    /// For each socket, since when it is in one of the lists.
    since: Vec<Option<Timestamp>>,
}

impl Readable {
    /// Returns whether no socket is readable.
    pub(super) const fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.reading.is_empty()
    }

    /// Adds a socket that is readable since the given time; does nothing for one that is in a list.
    pub(super) fn push(&mut self, link: u32, since: Timestamp) {
        let place = place(link);
        if self.since.len() <= place {
            self.since.resize(place + 1, None);
        }
        let Some(known) = self.since.get_mut(place).filter(|known| known.is_none()) else { return };
        *known = Some(since);
        self.waiting.push(link);
    }

    /// Returns the next socket and since when it waits; `None` when each has had its turn.
    pub(super) fn pop(&mut self) -> Option<(u32, Timestamp)> {
        if !std::mem::replace(&mut self.is_in_turn, true) {
            std::mem::swap(&mut self.waiting, &mut self.reading);
        }
        let next = self.reading.pop();
        self.is_in_turn = next.is_some();
        let link = next?;
        let since = self.since.get_mut(place(link)).and_then(Option::take);
        Some((link, since.unwrap_or(Timestamp::ZERO)))
    }
}

/// The listener has the highest number and gets the first index.
const fn place(link: u32) -> usize {
    if link == LISTENER { 0 } else { link as usize + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_with_several_events_is_read_once_per_turn() {
        let (mut readable, first, later) = (Readable::default(), Timestamp::from_millis(1), Timestamp::from_millis(2));
        for link in [7, LISTENER, 7, 0, LISTENER] {
            readable.push(link, first);
        }
        readable.push(0, later);
        let mut turn = Vec::new();
        while let Some((link, since)) = readable.pop() {
            // More arrived while it was read.
            readable.push(link, later);
            turn.push((link, since));
        }
        turn.sort_unstable();
        assert_eq!(turn, [(0, first), (7, first), (LISTENER, first)], "the time is that of the first word");
        assert!(!readable.is_empty());
        let mut turn: Vec<_> = std::iter::from_fn(|| readable.pop()).collect();
        turn.sort_unstable();
        assert_eq!(turn, [(0, later), (7, later), (LISTENER, later)], "the next turn");
        assert!(readable.is_empty() && readable.pop().is_none());
    }
}
