//! Which body a client transaction has sent.

use strowger_foundation::map::{SeededMap, seeded};
use strowger_transaction::ClientId;

/// Number of entries at which those of ended transactions are first removed.
const FIRST_PRUNE: usize = 64;

/// The numbers of the bodies sent by client transactions. Few requests have such bodies, so the transactions do not
/// store them.
#[derive(Debug)]
pub(crate) struct BodyNumbers {
    numbers: SeededMap<ClientId, u8>,
    prune_at: usize,
}

impl BodyNumbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self { numbers: SeededMap::with_hasher(seeded(seed)), prune_at: FIRST_PRUNE }
    }

    /// Records a number; `is_alive` tells whether a transaction still exists.
    pub(crate) fn insert(&mut self, client: ClientId, number: u8, is_alive: impl Fn(ClientId) -> bool) {
        if self.numbers.len() >= self.prune_at {
            self.numbers.retain(|client, _| is_alive(*client));
            self.prune_at = self.numbers.len().saturating_mul(2).max(FIRST_PRUNE);
        }
        self.numbers.insert(client, number);
    }

    pub(crate) fn find(&self, client: ClientId) -> u8 {
        self.numbers.get(&client).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_ended_transactions_are_soon_removed() {
        let mut numbers = BodyNumbers::new(1);
        let client = |number: u32| ClientId::from_parts(number, 3);
        for number in 0..10_000_u32 {
            let body = u8::try_from(number % 32).unwrap();
            // The last hundred are alive.
            numbers.insert(client(number), body, |other| other.index() + 100 > number);
            assert!(numbers.numbers.len() <= 2 * 100 + FIRST_PRUNE);
            assert_eq!(numbers.find(client(number)), body);
        }
        assert!((9_901..10_000_u32).all(|number| u32::from(numbers.find(client(number))) == number % 32));
        assert_eq!(numbers.find(ClientId::from_parts(9_999, 4)), 0);
    }
}
