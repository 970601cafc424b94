//! What outlives a shard's transactions, as bytes for the same shard of another process that takes over from this one.
//!
//! The other process gets all sockets; this one keeps its transactions until they end. Calls that no transaction of
//! ours can change any more, their media and the registrations at carriers go over at once ([`Shard::export_state`]).
//! A call that is being set up follows when it is answered, or when its caller has been challenged
//! ([`Event::CallTransferred`]), in the same form with this call alone. `docs/adr/0049-calls-of-another-process.md` has
//! the reasons.
//!
//! | | bytes | |
//! |---|---|---|
//! | version | 1 | [`VERSION`] |
//! | shard | 2 | |
//! | check of the keys | 8 | the keys of calls are hashes under it |
//! | calls, media, registrations | 4 + n each | |

use strowger_calls::{CallKey, Calls};
use strowger_foundation::bytes::{Reader, put_block};
use strowger_foundation::{KeyRing, ShardId, Timestamp};

use crate::boundary::Event;
use crate::imported_state::{ImportedState, StateError, VERSION};
use crate::shard::Shard;

/// Returns the shard that a state belongs to; `None` for bytes that are no state.
#[must_use]
pub fn shard_of_state(state: &[u8]) -> Option<ShardId> {
    let mut reader = Reader(state);
    reader.byte()?;
    reader.number16().map(ShardId)
}

impl Shard {
    /// Appends what the same shard of another process needs, and notes which calls these are. After the other process
    /// has taken it over, give this shard [`Input::HandedOver`](crate::Input::HandedOver); if it has not, go on as
    /// before. In between, no message of a caller or callee may come, but answers of engines and what the other process
    /// relays may. Its length is bounded by the tables of calls and media: some hundred bytes a call, and at most three
    /// thousand without media.
    pub fn export_state(&mut self, out: &mut Vec<u8>) {
        let media = self.media.as_ref().map(|hook| hook.calls.keys()).unwrap_or_default();
        // Media of calls that are not tracked have nothing to wait for.
        let is_untracked = |key: &u64| self.calls.as_ref().is_none_or(|calls| !calls.is_tracked(*key));
        let untracked = media.into_iter().filter(is_untracked);
        let calls = self.movable_calls();
        self.write_state(out, &calls, untracked, true);
        self.exported = calls;
    }

    /// Takes over what the same shard of another process has exported. At the start it must come before any other
    /// input and before the first [`handle_timeout`](Self::handle_timeout); single calls may follow at any time.
    /// Afterwards drain [`poll_output`](Self::poll_output): a call that has ended meanwhile has a record.
    ///
    /// # Errors
    ///
    /// If the state is of a later version, of another shard or key, or damaged; of a damaged one, a part may have been
    /// taken over.
    pub fn import_state(&mut self, now: Timestamp, state: &[u8]) -> Result<ImportedState, StateError> {
        let mut reader = Reader(state);
        let version = reader.byte().ok_or(StateError::Malformed)?;
        if version != VERSION {
            return Err(StateError::UnknownVersion(version));
        }
        let (shard, check) = (reader.number16(), reader.number64());
        let (Some(shard), Some(check)) = (shard.map(ShardId), check) else { return Err(StateError::Malformed) };
        if shard != self.id {
            return Err(StateError::OtherShard(shard));
        }
        if check != key_check(&self.ring) {
            return Err(StateError::OtherKey);
        }
        let (calls, media, registrations) = (reader.block(), reader.block(), reader.block());
        let (Some(calls), Some(media), Some(registrations), true) = (calls, media, registrations, reader.is_empty())
        else {
            return Err(StateError::Malformed);
        };
        let imported = self.import_parts(now, calls, media, registrations).ok_or(StateError::Malformed);
        self.settle_duties();
        self.drain_components(now, None);
        imported
    }

    fn import_parts(
        &mut self,
        now: Timestamp,
        calls: Reader<'_>,
        media: Reader<'_>,
        registrations: Reader<'_>,
    ) -> Option<ImportedState> {
        let mut imported = ImportedState::default();
        // Before the calls: one that has ended meanwhile ends at its engine too.
        if let (Some(hook), Some(policy)) = (&mut self.media, &self.snapshot.media) {
            hook.calls.import(now, media.0, &policy.engines)?;
        }
        if let Some(own) = &mut self.calls {
            own.expect_imports();
            let snapshot = &self.snapshot;
            let counted = own.import(now, calls.0, |target| {
                let member = snapshot.balanced(target)?;
                member.set.members().get(member.index).map(|member| member.target.begin_call())
            })?;
            (imported.calls, imported.known, imported.refused) = (counted.added, counted.known, counted.refused);
        } else {
            imported.refused = Calls::count_exported(now, calls.0)?;
        }
        imported.registrations = self.trunk_registrations.import(now, registrations.0)?;
        Some(imported)
    }

    /// Handles that another process has taken over what [`export_state`](Self::export_state) returned. Media stay known
    /// here too, for responses that are repeated; only the other process ends them at their engines.
    #[cold]
    pub(crate) fn hand_over(&mut self) {
        for key in core::mem::take(&mut self.exported) {
            self.calls.iter_mut().for_each(|calls| calls.transfer(key));
        }
        self.is_handed_over = true;
        // A call may have been set up since the export: an engine has answered, or the other process was fast to relay.
        for key in self.movable_calls() {
            self.transfer_call(key);
        }
        self.trunk_registrations.transfer_all();
        self.end_own_requests();
    }

    /// Ends what only one process may send for the server: probes of targets and engines. Keep-alives of bindings end
    /// when they are due.
    pub(crate) fn end_own_requests(&mut self) {
        for client in self.probes.stop() {
            self.proxy.transactions().stop_retransmitting(client);
        }
        self.media.iter_mut().for_each(|hook| hook.client.stop_probing());
        self.settle_duties();
    }

    /// Passes a call on to the other process if no transaction can change it any more.
    #[cold]
    pub(crate) fn transfer_call(&mut self, key: CallKey) {
        if !self.is_movable(key) {
            return;
        }
        let mut state = Vec::new();
        self.write_state(&mut state, &[key], core::iter::empty(), false);
        self.calls.iter_mut().for_each(|calls| calls.transfer(key));
        self.report(Event::CallTransferred(state.into()));
    }

    /// Whether a call can go to another process: no INVITE is pending, and no BYE of ours.
    fn is_movable(&self, key: CallKey) -> bool {
        self.calls.as_ref().is_some_and(|calls| calls.is_settled(key)) && !self.byes.has_any_of(key)
    }

    fn movable_calls(&self) -> Vec<CallKey> {
        let settled = self.calls.iter().flat_map(Calls::settled);
        settled.filter(|key| !self.byes.has_any_of(*key)).collect()
    }

    fn write_state(
        &self,
        out: &mut Vec<u8>,
        calls: &[CallKey],
        untracked_media: impl Iterator<Item = u64>,
        has_registrations: bool,
    ) {
        out.push(VERSION);
        out.extend_from_slice(&self.id.0.to_be_bytes());
        out.extend_from_slice(&key_check(&self.ring).to_be_bytes());
        put_block(out, |out| {
            for (own, key) in self.calls.iter().flat_map(|own| calls.iter().map(move |key| (own, *key))) {
                own.export(key, out);
            }
        });
        put_block(out, |out| {
            if let Some(hook) = &self.media {
                for key in calls.iter().map(|key| key.to_bits()).chain(untracked_media) {
                    hook.calls.export(key, out);
                }
            }
        });
        put_block(out, |out| {
            if has_registrations {
                self.trunk_registrations.export(out);
            }
        });
    }
}

/// Returns a number that is the same if two processes give a call the same key.
fn key_check(ring: &KeyRing) -> u64 {
    ring.current().derive("transfer").table64(&[b"keys of calls"])
}
