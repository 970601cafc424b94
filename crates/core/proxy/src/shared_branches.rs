//! Client transactions whose branches do not name them: if members share keys, the branch is a function of the
//! request.

use strowger_foundation::map::{SeededMap, seeded};
use strowger_transaction::ClientId;

/// Below this size the table is never cleaned.
const SMALL: usize = 1024;

/// Client transactions by the number in their branches. Ended ones are removed whenever the table has doubled since
/// the last cleanup. The amortized cost is negligible, and the table never exceeds twice the number of transactions
/// plus a few.
#[derive(Debug)]
pub(crate) struct SharedBranches {
    clients: SeededMap<u64, ClientId>,
    full_at: usize,
}

impl SharedBranches {
    pub(crate) fn new(seed: u64) -> Self {
        Self { clients: SeededMap::with_hasher(seeded(seed)), full_at: SMALL }
    }

    /// Maps `place`, the number in the branch, to `client`. `is_live` tells which transactions have not ended.
    pub(crate) fn insert(&mut self, place: u64, client: ClientId, is_live: impl Fn(ClientId) -> bool) {
        if self.clients.len() >= self.full_at {
            self.clients.retain(|_, client| is_live(*client));
            self.full_at = self.clients.len().saturating_mul(2).max(SMALL);
            self.clients.shrink_to(self.full_at);
        }
        self.clients.insert(place, client);
    }

    /// Returns the current or former transaction of the branch `place`.
    pub(crate) fn find(&self, place: u64) -> Option<ClientId> {
        self.clients.get(&place).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_clients_are_soon_removed() {
        let mut shared = SharedBranches::new(1);
        let client = |number: u32| ClientId::from_parts(number, 0);
        for number in 0..100_000_u32 {
            // The last hundred are live.
            shared.insert(u64::from(number), client(number), |other| other.index() + 100 > number);
            assert!(shared.clients.len() <= SMALL.max(2 * 100));
        }
        assert!((99_901..100_000_u32).all(|number| shared.find(u64::from(number)) == Some(client(number))));
    }
}
