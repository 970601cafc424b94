//! Prefetching of memory. The transactions of half a minute are spread over memory, so each one opened or removed is
//! a cache miss. Touching several in advance overlaps their misses. Nothing here changes any state.

use core::hint::black_box;

use smallvec::SmallVec;
use strowger_foundation::Timestamp;

use crate::key::ServerKey;
use crate::layer::{AHEAD, Transactions};
use crate::server_slot::{hash_of, part_of};
use crate::timer_queues::Side;

/// Number of index entries in half a cache line.
const NEIGHBOURS: usize = 4;

impl Transactions {
    /// Prefetches for [`find_server`](Self::find_server) of this key and, if there is none, for
    /// [`open_server`](Self::open_server).
    pub fn prefetch_server(&self, key: ServerKey) {
        self.prefetch_known(key);
        // A new entry goes next to where the key would be.
        let last = self.index.num_buckets().saturating_sub(1);
        let at = hash_of(part_of(key)) as usize & last;
        let near = (at..at.saturating_add(NEIGHBOURS)).find_map(|place| self.index.get_bucket(place & last));
        // Reads the bytes, not only their address.
        black_box(near.map(|place| place.key_part));
    }

    fn prefetch_known(&self, key: ServerKey) {
        let key_part = part_of(key);
        black_box(self.index.find(hash_of(key_part), |place| place.key_part == key_part));
    }

    /// Prefetches for the final response to a non-INVITE request.
    pub fn prefetch_cached_response(&self) {
        self.response_cache.prefetch();
    }

    /// Prefetches the transactions whose last waits end next.
    pub(crate) fn prefetch_wait_ends(&self, now: Timestamp) {
        // Prefetching a single one would only do the lookup twice.
        if self.timer_queues.due(now).nth(1).is_none() {
            return;
        }
        let mut keys: SmallVec<[ServerKey; AHEAD]> = SmallVec::new();
        for end in self.timer_queues.due(now).take(AHEAD) {
            match end.owner.side() {
                Side::Server(index) => keys.extend(self.servers.get(index).map(|server| server.key)),
                Side::Client(index) => {
                    black_box(self.clients.get(index).map(|slot| slot.waits_for(end)));
                }
            }
        }
        keys.into_iter().for_each(|key| self.prefetch_known(key));
    }

    /// Prefetches for the removal of the next expired responses.
    pub(crate) fn prefetch_expired_responses(&self, now: Timestamp) {
        if self.response_cache.due(now).nth(1).is_none() {
            return;
        }
        self.response_cache.due(now).take(AHEAD).for_each(|answer| self.prefetch_known(answer.key));
    }
}
