//! Memory that is about to be needed. Half a minute's transactions lie all over the memory, and each that is begun or forgotten is far from
//! the one before: a processor that meets them one by one waits for each. What is looked at beforehand, several together, it waits for
//! once. Nothing here changes anything.

use core::hint::black_box;

use smallvec::SmallVec;
use strowger_foundation::Timestamp;

use crate::key::ServerKey;
use crate::layer::Transactions;
use crate::server::{hash_of, part_of};
use crate::timer_queues::Side;

/// So many are looked at together.
pub(crate) const AHEAD: usize = 8;
/// Places of the index that lie together in memory, half of what a processor fetches at once.
const NEIGHBOURS: usize = 4;

impl Transactions {
    /// [`find_server`](Self::find_server) will be asked for this one, and where there is none, [`open_server`](Self::open_server).
    pub fn prefetch_server(&self, key: ServerKey) {
        self.prefetch_known(key);
        // Where it is put is next to where it would be.
        let last = self.index.num_buckets().saturating_sub(1);
        let at = hash_of(part_of(key)) as usize & last;
        let near = (at..at.saturating_add(NEIGHBOURS)).find_map(|place| self.index.get_bucket(place & last));
        // Its bytes, and not only where they are.
        black_box(near.map(|place| place.key_part));
    }

    fn prefetch_known(&self, key: ServerKey) {
        let key_part = part_of(key);
        black_box(self.index.find(hash_of(key_part), |place| place.key_part == key_part));
    }

    /// A request that is not INVITE will be answered for good.
    pub fn prefetch_cached_response(&self) {
        self.response_cache.prefetch();
    }

    /// The next last waits that are over will be ended.
    pub(crate) fn prefetch_wait_ends(&self, now: Timestamp) {
        // To foresee one is to look for it twice.
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

    /// The next answers whose time is over will be forgotten.
    pub(crate) fn prefetch_expired_responses(&self, now: Timestamp) {
        if self.response_cache.due(now).nth(1).is_none() {
            return;
        }
        self.response_cache.due(now).take(AHEAD).for_each(|answer| self.prefetch_known(answer.key));
    }
}
