//! Which shard owns a message.

use std::sync::Arc;

use strowger_foundation::{KeyRing, ShardId, TagKey};
use strowger_message::{Aor, Kind, Method, Peek};
use strowger_proxy::branch::{ANY_SHARD, Branch};
use strowger_registrar::Locations;
use strowger_transaction::ServerKey;

use crate::snapshot::Snapshot;

/// What was found out about a message while its owner was looked for, so that the owner need not find it out again.
#[derive(Clone, Debug, Default)]
pub struct Steered {
    /// The branch of a response, which is one of ours.
    pub(crate) branch: Option<Branch>,
    /// Whom a REGISTER claims to register, where its domain is ours.
    pub(crate) claimed: Option<Aor>,
    /// The key of a request's transaction, where its topmost Via can be read.
    pub(crate) key: Option<ServerKey>,
}

/// The rule by which messages find their shard: a response by our Via branch, a REGISTER by its address of record (so that
/// a stripe of the location table has one writer), everything else by its Call-ID.
#[derive(Clone, Debug)]
pub struct Steering {
    branches: KeyRing,
    call_ids: TagKey,
    match_key: TagKey,
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
            match_key: match_key(ring),
            locations,
            shards: shards.max(1),
        }
    }

    /// The owner, and what was proved on the way to it; `None` for a response that is not ours, which is dropped.
    #[must_use]
    pub fn steer(&self, peek: &Peek<'_>, snapshot: &Snapshot) -> Option<(ShardId, Steered)> {
        match peek.kind {
            Kind::Response(_) => {
                let branch = Branch::decode(&self.branches, peek.via.as_ref()?.branch?)?;
                let steered = Steered { branch: Some(branch), ..Steered::default() };
                let shard = if branch.shard == ANY_SHARD { self.by_call_id(peek) } else { branch.shard };
                (shard.0 < self.shards).then_some((shard, steered))
            }
            Kind::Request(Method::Register) => {
                let claimed = claimed(peek, snapshot);
                let shard = match &claimed {
                    Some(aor) => self.locations.shard_of(snapshot.directory.resolve(aor.as_bytes())),
                    None => self.by_call_id(peek),
                };
                Some((shard, Steered { claimed, key: self.key_of(peek, Method::Register), ..Steered::default() }))
            }
            Kind::Request(method) => {
                Some((self.by_call_id(peek), Steered { key: self.key_of(peek, method), ..Steered::default() }))
            }
        }
    }

    fn key_of(&self, peek: &Peek<'_>, method: Method<'_>) -> Option<ServerKey> {
        let via = peek.via.as_ref()?;
        Some(ServerKey::of(&self.match_key, peek.head(), via, method))
    }

    fn by_call_id(&self, peek: &Peek<'_>) -> ShardId {
        let hash = self.call_ids.table64(&[peek.call_id]);
        let shard = hash % u64::from(self.shards);
        ShardId(u16::try_from(shard).unwrap_or(0))
    }
}

/// What keys of transactions are made with.
pub(crate) fn match_key(ring: &KeyRing) -> TagKey {
    ring.current().derive("match")
}

/// Whom a REGISTER claims to register.
fn claimed(peek: &Peek<'_>, snapshot: &Snapshot) -> Option<Aor> {
    let to = peek.to()?.parse_uri()?;
    snapshot.identity(to.sip()?)
}
