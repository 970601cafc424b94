//! Which shard owns a message.

use std::sync::Arc;

use strowger_foundation::{KeyRing, ShardId, TagKey};
use strowger_message::{Aor, Head, Kind, Method, PartialPeek, Peek, Uri, Via};
use strowger_proxy::branch::{ANY_SHARD, BRANCH_LEN, BranchId, BranchOwner};
use strowger_registrar::Locations;
use strowger_transaction::ServerKey;

use crate::snapshot::Snapshot;

/// What was found out about a message while its owner was looked for, so that the owner need not find it out again.
#[derive(Clone, Debug, Default)]
pub struct SteeringResult {
    /// The branch of a response, which is one of ours.
    pub(crate) branch: Option<BranchId>,
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

    /// The owner, and what was found out about the message; `None` for a response that is not ours, which is dropped.
    #[must_use]
    pub fn steer(&self, peek: &Peek<'_>, snapshot: &Snapshot) -> Option<(ShardId, SteeringResult)> {
        let mut found = self.owner(&peek.to_partial(), snapshot)?;
        self.complete(peek, &mut found.1);
        Some(found)
    }

    /// The owner, and what was proved on the way to it, as [`steer`](Self::steer) says it, for those who have not read all of
    /// the message.
    #[must_use]
    #[inline(always)]
    pub fn owner(&self, glance: &PartialPeek<'_>, snapshot: &Snapshot) -> Option<(ShardId, SteeringResult)> {
        match glance.kind {
            Kind::Response(_) => {
                let branch = BranchId::decode(&self.branches, glance.branch?)?;
                let steered = SteeringResult { branch: Some(branch), ..SteeringResult::default() };
                let shard = if branch.shard == ANY_SHARD { self.by_call_id(glance) } else { branch.shard };
                (shard.0 < self.shards).then_some((shard, steered))
            }
            Kind::Request(Method::Register) => {
                let claimed = claimed_aor(glance, snapshot);
                let shard = match &claimed {
                    Some(aor) => self.locations.shard_of(snapshot.directory.resolve(aor.as_bytes())),
                    None => self.by_call_id(glance),
                };
                Some((shard, SteeringResult { claimed, ..SteeringResult::default() }))
            }
            Kind::Request(_) => Some((self.by_call_id(glance), SteeringResult::default())),
        }
    }

    /// Adds what the owner has to know besides.
    #[inline(always)]
    pub fn complete(&self, peek: &Peek<'_>, steered: &mut SteeringResult) {
        if let (Kind::Request(method), Some(via)) = (peek.kind, &peek.via) {
            steered.key = Some(server_key(&self.branches, &self.match_key, peek.head(), via, method));
        }
    }

    fn by_call_id(&self, glance: &PartialPeek<'_>) -> ShardId {
        let hash = self.call_ids.table64(&[glance.call_id]);
        let shard = hash % u64::from(self.shards);
        ShardId(u16::try_from(shard).unwrap_or(0))
    }
}

/// The key of a request's transaction. `branches` is the ring of the branches that servers with our keys write: one of a request that was
/// forwarded without state is the same whichever of them has forwarded it, so their addresses do not count.
#[inline]
pub(crate) fn server_key(
    branches: &KeyRing,
    secret: &TagKey,
    head: &Head<'_>,
    via: &Via<'_>,
    method: Method<'_>,
) -> ServerKey {
    if let Some(branch) = via.branch
        && branch.len() == BRANCH_LEN
        && is_shared_stateless(branches, branch)
    {
        return ServerKey::of_branch_alone(secret, branch, method);
    }
    ServerKey::of(secret, head, via, method)
}

/// Whether a branch is one that a server with our keys has written without state.
// Never inlined: phones write others.
#[inline(never)]
fn is_shared_stateless(branches: &KeyRing, branch: &[u8]) -> bool {
    BranchId::decode(branches, branch).is_some_and(|branch| matches!(branch.owner, BranchOwner::Stateless(_)))
}

/// What keys of transactions are made with.
pub(crate) fn match_key(ring: &KeyRing) -> TagKey {
    ring.current().derive("match")
}

/// Whom a REGISTER claims to register.
fn claimed_aor(glance: &PartialPeek<'_>, snapshot: &Snapshot) -> Option<Aor> {
    let to = Uri::parse(glance.to?)?;
    snapshot.identity(to.sip()?)
}
