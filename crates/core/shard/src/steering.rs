//! The mapping of messages to shards.

use std::sync::Arc;

use strowger_foundation::{KeyRing, ShardId, TagKey};
use strowger_message::{Aor, Head, Kind, Method, PartialPeek, Peek, Uri, Via};
use strowger_proxy::branch::{ANY_SHARD, BRANCH_LEN, BranchId, BranchOwner};
use strowger_registrar::Locations;
use strowger_transaction::ServerKey;

use crate::snapshot::Snapshot;

/// Results of steering a message, so that its owner need not compute them again.
#[derive(Clone, Debug, Default)]
pub struct SteeringResult {
    /// The branch of a response to a request of ours.
    pub(crate) branch: Option<BranchId>,
    /// The address of record that a REGISTER claims, if its domain is local.
    pub(crate) claimed: Option<Aor>,
    /// The transaction key of a request, if its topmost Via can be parsed.
    pub(crate) key: Option<ServerKey>,
}

impl SteeringResult {
    /// Returns the number of the process whose client transaction a response is for; `None` if it is for none.
    #[must_use]
    pub fn client_process(&self) -> Option<u8> {
        self.branch.filter(|branch| matches!(branch.owner, BranchOwner::Client(_))).map(|branch| branch.process)
    }
}

/// The mapping of messages to shards: a response by our Via branch, a REGISTER by its address of record (so that each
/// stripe of the location table has one writer), everything else by Call-ID.
#[derive(Clone, Debug)]
pub struct Steering {
    branches: KeyRing,
    call_ids: TagKey,
    match_key: TagKey,
    locations: Arc<Locations>,
    shards: u16,
}

impl Steering {
    /// Creates a mapping for `shards` shards, which must equal the number of stripes of `locations`.
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

    /// Returns the owner and the results of steering; `None` for a response that is not ours, which is dropped.
    #[must_use]
    pub fn steer(&self, peek: &Peek<'_>, snapshot: &Snapshot) -> Option<(ShardId, SteeringResult)> {
        let mut found = self.owner(&peek.to_partial(), snapshot)?;
        self.complete(peek, &mut found.1);
        Some(found)
    }

    /// Returns the owner and the results so far, like [`steer`](Self::steer), for a message that is only partly
    /// parsed.
    #[must_use]
    #[inline(always)]
    pub fn owner(&self, partial: &PartialPeek<'_>, snapshot: &Snapshot) -> Option<(ShardId, SteeringResult)> {
        match partial.kind {
            Kind::Response(_) => {
                let branch = BranchId::decode(&self.branches, partial.branch?)?;
                let steered = SteeringResult { branch: Some(branch), ..SteeringResult::default() };
                let shard = if branch.shard == ANY_SHARD { self.by_call_id(partial) } else { branch.shard };
                (shard.0 < self.shards).then_some((shard, steered))
            }
            Kind::Request(Method::Register) => {
                let claimed = claimed_aor(partial, snapshot);
                let shard = match &claimed {
                    Some(aor) => self.locations.shard_of(snapshot.directory.resolve(aor.as_bytes())),
                    None => self.by_call_id(partial),
                };
                Some((shard, SteeringResult { claimed, ..SteeringResult::default() }))
            }
            Kind::Request(_) => Some((self.by_call_id(partial), SteeringResult::default())),
        }
    }

    /// Adds the results that the owner needs besides.
    #[inline(always)]
    pub fn complete(&self, peek: &Peek<'_>, steered: &mut SteeringResult) {
        if let (Kind::Request(method), Some(via)) = (peek.kind, &peek.via) {
            steered.key = Some(server_key(&self.branches, &self.match_key, peek.head(), via, method));
        }
    }

    /// Returns the key of the transaction that a request belongs to: that of a CANCEL is the INVITE's.
    #[must_use]
    pub fn transaction_of(&self, peek: &Peek<'_>, steered: &SteeringResult) -> Option<ServerKey> {
        match (peek.kind, &peek.via) {
            (Kind::Request(Method::Cancel), Some(via)) => {
                Some(server_key(&self.branches, &self.match_key, peek.head(), via, Method::Invite))
            }
            _ => steered.key,
        }
    }

    fn by_call_id(&self, partial: &PartialPeek<'_>) -> ShardId {
        let hash = self.call_ids.table64(&[partial.call_id]);
        let shard = hash % u64::from(self.shards);
        ShardId(u16::try_from(shard).unwrap_or(0))
    }
}

/// Returns the transaction key of a request. `branches` is the key ring of our branches: for a request forwarded
/// without state, all servers with our keys write the same branch, so the sender's address is not part of the key.
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

/// Returns whether a server with our keys has written this branch when forwarding without state.
// Never inlined: requests from phones have other branches.
#[inline(never)]
fn is_shared_stateless(branches: &KeyRing, branch: &[u8]) -> bool {
    BranchId::decode(branches, branch).is_some_and(|branch| matches!(branch.owner, BranchOwner::Stateless(_)))
}

/// Returns the key that transaction keys are derived with.
pub(crate) fn match_key(ring: &KeyRing) -> TagKey {
    ring.current().derive("match")
}

/// Returns the address of record that a REGISTER claims.
fn claimed_aor(partial: &PartialPeek<'_>, snapshot: &Snapshot) -> Option<Aor> {
    let to = Uri::parse(partial.to?)?;
    snapshot.identity(to.sip()?)
}
