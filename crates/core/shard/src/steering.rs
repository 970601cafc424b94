//! Which shard owns a message.

use std::sync::Arc;

use strowger_foundation::{KeyRing, ShardId, TagKey};
use strowger_message::{Kind, Method, Peek};
use strowger_proxy::branch::Branch;
use strowger_registrar::Locations;

use crate::snapshot::Snapshot;

/// The rule by which messages find their shard: a response by our Via branch, a REGISTER by its address of record (so that
/// a stripe of the location table has one writer), everything else by its Call-ID.
#[derive(Clone, Debug)]
pub struct Steering {
    branches: KeyRing,
    call_ids: TagKey,
    locations: Arc<Locations>,
    shards: u16,
}

impl Steering {
    /// A rule for `shards` shards, as many as `locations` has stripes.
    #[must_use]
    pub fn new(ring: &KeyRing, locations: Arc<Locations>, shards: u16) -> Self {
        Self {
            branches: ring.derive("branch"),
            call_ids: ring.current().derive("call-id"),
            locations,
            shards: shards.max(1),
        }
    }

    /// The owner; `None` for a response that is not ours, which is dropped.
    #[must_use]
    pub fn shard_of(&self, peek: &Peek<'_>, snapshot: &Snapshot) -> Option<ShardId> {
        match peek.kind {
            Kind::Response(_) => {
                let branch = Branch::decode(&self.branches, peek.via?.branch?)?;
                (branch.shard.0 < self.shards).then_some(branch.shard)
            }
            Kind::Request(Method::Register) => {
                Some(self.by_address(peek, snapshot).unwrap_or_else(|| self.by_call_id(peek)))
            }
            Kind::Request(_) => Some(self.by_call_id(peek)),
        }
    }

    fn by_address(&self, peek: &Peek<'_>, snapshot: &Snapshot) -> Option<ShardId> {
        let to = peek.to()?.parse_uri()?;
        let aor = snapshot.identity(to.sip()?)?;
        Some(self.locations.shard_of(snapshot.directory.resolve(aor.as_bytes())))
    }

    fn by_call_id(&self, peek: &Peek<'_>) -> ShardId {
        let hash = self.call_ids.table64(&[peek.call_id]);
        let shard = hash % u64::from(self.shards);
        ShardId(u16::try_from(shard).unwrap_or(0))
    }
}
