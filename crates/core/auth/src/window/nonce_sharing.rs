//! Nonces shared by several servers ("members"): a client may respond to one member's challenge at another, and no
//! response is accepted twice.
//!
//! The seal of a nonce includes the incarnation of the issuing process, which follows from the common key, the member
//! and its start time, so each member can tell who issued a nonce. The issuer is authoritative: a member that accepts
//! another's nonce reports the use to it, and each member reports to all others which counts of its own nonces were
//! used. These reports are [numbered messages](NonceWindows::poll_uses), sent at least twice a second.
//!
//! A member accepts another's nonces only while it receives all messages of the issuer and the issuer confirms its
//! reports. It cannot know which nonces were used before the first message it received, or while it missed one. It
//! does not accept nonces of such a period; after a missed message this includes its own.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};

use strowger_foundation::{KeyRing, TagKey, Timestamp};

use super::{NonceWindows, is_aged};
use crate::nonce::NonceId;

/// Largest interval between messages of a member, even if there is nothing to report.
pub const USES_INTERVAL: Duration = Duration::from_millis(500);
/// After this time without a message or a confirmation, another member may know uses that this one does not.
const FRESH_FOR: Duration = Duration::from_secs(2);
/// Largest number of uses in a message.
const USES_AT_ONCE: usize = 256;
/// Largest number of uses waiting to be sent. Beyond it, the other members are made to notice a gap.
const MAX_USES: usize = 65_536;
/// Largest number of members whose nonces are accepted.
const MAX_OTHERS: usize = 32;
/// Number of groups by which a nonce may be ahead of its time: those of eight windows, about a minute.
const MAX_AHEAD: u64 = 64;
/// First byte of a message; no other [record](NonceWindows::handle_uses) starts with it.
const KIND: u8 = b'N';

/// A process that issues nonces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Issuer {
    /// The member.
    pub member: u16,
    /// Time at which its clock was [`Timestamp::ZERO`], in ms since 1970.
    pub clock_origin_ms: u64,
}

impl Issuer {
    /// Returns a value that distinguishes its nonces from those of other processes.
    fn incarnation(self, key: &TagKey) -> u64 {
        key.derive("nonce-life").hash64(&[&self.member.to_be_bytes(), &self.clock_origin_ms.to_be_bytes()])
    }
}

/// A used count of a nonce, or all counts if `nc` is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NonceUse {
    issuer: Issuer,
    id: NonceId,
    nc: Option<u32>,
}

/// Another process whose nonces are accepted.
struct PeerIssuer {
    issuer: Issuer,
    windows: NonceWindows,
    /// Number of its next message.
    next_number: u64,
    /// Last group of its nonces for which not all uses are known.
    unknown_until: Option<u64>,
    /// Time of its last message.
    last_received: Timestamp,
    /// Time of the last report that it has confirmed.
    last_confirmed: Option<Timestamp>,
}

#[derive(Default)]
struct PendingUses {
    uses: Vec<NonceUse>,
    has_lost_uses: bool,
    last_number: u64,
    last: Option<Timestamp>,
}

/// State that a process shares with other members.
pub(crate) struct NonceSharing {
    own: Issuer,
    key: TagKey,
    pending: Mutex<PendingUses>,
    peers: RwLock<Vec<PeerIssuer>>,
    /// First group of own nonces with all uses known. Other members may have accepted earlier ones without being able
    /// to report it.
    unknown_before: AtomicU64,
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl fmt::Debug for NonceSharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("own", &self.own).finish_non_exhaustive()
    }
}

impl NonceSharing {
    /// Whether all uses of an own nonce are known.
    pub(crate) fn is_known(&self, id: NonceId) -> bool {
        id.group() >= self.unknown_before.load(Ordering::Relaxed)
    }

    /// Issues a nonce from a group with all uses known; otherwise the client would be challenged repeatedly. The
    /// group is at most [`MAX_AHEAD`] ahead, so that constant losses do not extend the lifetime of nonces without
    /// limit.
    pub(crate) fn issue(&self, now: Timestamp, request: u64) -> NonceId {
        let new = NonceId::issue(now, request);
        let unknown_before = self.unknown_before.load(Ordering::Relaxed);
        new.not_before(unknown_before.min(new.group().saturating_add(MAX_AHEAD)))
    }

    /// Handles a missed message of another member: it may have reported the use of an own nonce.
    fn note_missing(&self, now: Timestamp) {
        let next = |before| Some(NonceId::issue(now, 0).not_before(before).group().saturating_add(1));
        let _ = self.unknown_before.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        // Inform the other members immediately.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).last = None;
        self.wake();
    }

    /// Records the use of a count of an own nonce.
    pub(crate) fn note_use(&self, id: NonceId, nc: Option<u32>) {
        self.push(NonceUse { issuer: self.own, id, nc });
    }

    fn push(&self, used: NonceUse) {
        let mut untold = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if untold.uses.len() < MAX_USES {
            untold.uses.push(used);
        } else {
            untold.has_lost_uses = true;
        }
        drop(untold);
        self.wake();
    }

    fn wake(&self) {
        if let Some(wake) = self.wake.get() {
            wake();
        }
    }
}

/// Converts a time to the clock of another process.
fn time_of(now: Timestamp, own: Issuer, other: Issuer) -> Timestamp {
    let wall_ms = own.clock_origin_ms.saturating_add(now.as_millis());
    Timestamp::from_millis(wall_ms.saturating_sub(other.clock_origin_ms))
}

/// Sharing with other members.
impl NonceWindows {
    /// Creates windows with `stripes` locks whose nonces are accepted by members with the same key. `issuer` must be
    /// unique among all processes.
    #[must_use]
    pub fn for_members(stripes: usize, key: [u8; 16], issuer: Issuer) -> Self {
        let key = TagKey::new(key);
        let windows = Self::new(stripes, issuer.incarnation(&key));
        let shared = NonceSharing {
            own: issuer,
            key,
            pending: Mutex::default(),
            peers: RwLock::default(),
            unknown_before: AtomicU64::new(0),
            wake: OnceLock::new(),
        };
        windows.with_sharing(shared)
    }

    /// Sets the callback for when there is something to send. May be set once.
    pub fn on_use(&self, wake: impl Fn() + Send + Sync + 'static) {
        if let Some(shared) = self.nonce_sharing() {
            drop(shared.wake.set(Box::new(wake)));
        }
    }

    /// Returns the next message for all other members, if one is due. They pass it to
    /// [`handle_uses`](Self::handle_uses), in this order.
    #[must_use]
    pub fn poll_uses(&self, now: Timestamp) -> Option<Vec<u8>> {
        let shared = self.nonce_sharing()?;
        let mut untold = shared.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = untold.last.is_none_or(|last| now.saturating_since(last) >= USES_INTERVAL);
        if untold.uses.is_empty() && !is_due {
            return None;
        }
        untold.last = Some(now);
        // The gap in the numbers tells the receivers that something is missing.
        let step = if core::mem::take(&mut untold.has_lost_uses) { 2 } else { 1 };
        untold.last_number = untold.last_number.saturating_add(step);
        let count = untold.uses.len().min(USES_AT_ONCE);
        let mut bytes = vec![KIND];
        write_issuer(&mut bytes, shared.own);
        bytes.extend_from_slice(&untold.last_number.to_be_bytes());
        bytes.extend_from_slice(&shared.issue(now, 0).group().to_be_bytes());
        bytes.extend_from_slice(&shared.unknown_before.load(Ordering::Relaxed).to_be_bytes());
        for NonceUse { issuer, id, nc } in untold.uses.drain(..count) {
            write_issuer(&mut bytes, issuer);
            bytes.extend_from_slice(&id.to_bits().to_be_bytes());
            bytes.extend_from_slice(&nc.map_or(u64::MAX, u64::from).to_be_bytes());
        }
        Some(bytes)
    }

    /// Handles a message of another member; `false` if it is a different kind of record.
    pub fn handle_uses(&self, now: Timestamp, bytes: &[u8]) -> bool {
        let Some((&KIND, message)) = bytes.split_first() else { return false };
        if let Some(shared) = self.nonce_sharing()
            && let Some(message) = UsesMessage::read(message).filter(|heard| heard.from.member != shared.own.member)
        {
            self.apply_message(now, shared, &message);
        }
        true
    }

    /// Records that a member, or every member if `None`, has confirmed what was [polled](Self::poll_uses) until
    /// `sent`.
    pub fn confirm_uses(&self, member: Option<u16>, sent: Timestamp) {
        let Some(shared) = self.nonce_sharing() else { return };
        let mut others = shared.peers.write().unwrap_or_else(PoisonError::into_inner);
        let is_meant = |other: &&mut PeerIssuer| member.is_none_or(|member| member == other.issuer.member);
        others
            .iter_mut()
            .filter(is_meant)
            .for_each(|other| other.last_confirmed = other.last_confirmed.max(Some(sent)));
    }

    fn apply_message(&self, now: Timestamp, shared: &NonceSharing, message: &UsesMessage) {
        let mut others = shared.peers.write().unwrap_or_else(PoisonError::into_inner);
        if !record_message(&mut others, now, shared, message) {
            return;
        }
        for used in &message.uses {
            if used.issuer == shared.own {
                // The issuer forwards it to the other members.
                if self.mark(used.id, used.nc) {
                    shared.push(*used);
                }
            } else if let Some(other) = others.iter().find(|other| other.issuer == used.issuer) {
                other.windows.mark(used.id, used.nc);
            }
        }
    }

    /// Uses a count of another member's nonce; `false` if it was used before or that cannot be excluded.
    pub(crate) fn use_foreign(
        &self,
        now: Timestamp,
        age: Duration,
        (text, ring): (&[u8], &KeyRing),
        nc: Option<u32>,
    ) -> bool {
        let Some(shared) = self.nonce_sharing() else { return false };
        let others = shared.peers.read().unwrap_or_else(PoisonError::into_inner);
        let found =
            others.iter().find_map(|other| NonceId::from_text(text, ring, other.windows.seed()).map(|id| (other, id)));
        let Some((other, id)) = found else { return false };
        let is_fresh = |at: Timestamp| now.saturating_since(at) < FRESH_FOR;
        let is_known = other.unknown_until.is_none_or(|until| id.group() > until);
        if !is_known || !is_fresh(other.last_received) || !other.last_confirmed.is_some_and(is_fresh) {
            return false;
        }
        let theirs = time_of(now, shared.own, other.issuer);
        let is_used = !is_aged(&id, theirs, age) && other.windows.use_count(theirs, age, id, nc);
        if is_used {
            shared.push(NonceUse { issuer: other.issuer, id, nc });
        }
        is_used
    }
}

/// Records a message; `false` if it is from a process that has been replaced.
fn record_message(others: &mut Vec<PeerIssuer>, now: Timestamp, shared: &NonceSharing, message: &UsesMessage) -> bool {
    let UsesMessage { from, number, group, unknown_before, .. } = *message;
    let unknown = unknown_before.checked_sub(1);
    let known = others.iter().position(|other| other.issuer.member == from.member);
    if let Some(known) = known.and_then(|at| others.get_mut(at)).filter(|known| known.issuer == from) {
        if number >= known.next_number {
            if number > known.next_number {
                known.unknown_until = Some(group);
                shared.note_missing(now);
            }
            known.unknown_until = known.unknown_until.max(unknown);
            (known.next_number, known.last_received) = (number.saturating_add(1), now);
        }
        return true;
    }
    if let Some(at) = known {
        if others.get(at).is_some_and(|known| known.issuer.clock_origin_ms > from.clock_origin_ms) {
            return false;
        }
        others.swap_remove(at);
        // The last messages of the replaced process may have been lost.
        shared.note_missing(now);
    }
    if others.len() >= MAX_OTHERS {
        return false;
    }
    others.push(PeerIssuer {
        issuer: from,
        windows: NonceWindows::new(STRIPES, from.incarnation(&shared.key)),
        next_number: number.saturating_add(1),
        // Nothing can be missing before the first message of a process.
        unknown_until: (number > 1).then_some(group).max(unknown),
        last_received: now,
        last_confirmed: None,
    });
    true
}

/// Number of stripes for the counts of another process's nonces.
const STRIPES: usize = 16;

/// A parsed message.
struct UsesMessage {
    from: Issuer,
    number: u64,
    /// Group of the sender's nonces at the time of writing.
    group: u64,
    /// First group of the sender's nonces with all uses known to it.
    unknown_before: u64,
    uses: Vec<NonceUse>,
}

impl UsesMessage {
    fn read(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let (from, number, group, unknown_before) =
            (reader.issuer()?, reader.number()?, reader.number()?, reader.number()?);
        let mut uses = Vec::new();
        while !reader.0.is_empty() {
            let (issuer, id, nc) = (reader.issuer()?, reader.number()?, reader.number()?);
            uses.push(NonceUse { issuer, id: NonceId::from_bits(id), nc: u32::try_from(nc).ok() });
        }
        Some(Self { from, number, group, unknown_before, uses })
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_be_bytes(*number))
    }

    fn issuer(&mut self) -> Option<Issuer> {
        let (member, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(Issuer { member: u16::from_be_bytes(*member), clock_origin_ms: self.number()? })
    }
}

fn write_issuer(out: &mut Vec<u8>, issuer: Issuer) {
    out.extend_from_slice(&issuer.member.to_be_bytes());
    out.extend_from_slice(&issuer.clock_origin_ms.to_be_bytes());
}

#[cfg(test)]
mod tests;
