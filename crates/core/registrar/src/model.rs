//! The location table as a list, naive and obviously correct: the reference for tests and the simulator of
//! [`Locations`](crate::Locations).

use strowger_foundation::{ConnId, Flow, Timestamp};
use strowger_message::Uri;

use crate::gruu::{instance_hash, same_instance};
use crate::plan::{lifetime, narrow};
use crate::policy::Policy;
use crate::reachability::Reachability;
use crate::refusal::Refusal;
use crate::update::{ContactUpdate, Update, UpdateKind, check_contact};
use crate::values::{BindingView, ContactTarget, Source, UpdateCounts};

/// One binding of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    aor: Vec<u8>,
    call_id: Vec<u8>,
    cseq: u32,
    expires: Timestamp,
    instance: Vec<u8>,
    reg_id: Option<u32>,
    target: ContactTarget,
}

impl Entry {
    fn is(&self, contact: &ContactUpdate<'_>) -> bool {
        if self.reg_id.is_some() || contact.reg_id.is_some() {
            return self.reg_id == contact.reg_id && same_instance(&self.instance, contact.instance);
        }
        Uri::parse(&self.target.uri).is_some_and(|uri| uri.same(&contact.uri))
    }

    /// Returns when it expires.
    #[must_use]
    pub const fn expires(&self) -> Timestamp {
        self.expires
    }

    /// Returns the binding as another process restores it, expiring at `expires`; `None` if it was on a connection.
    #[must_use]
    pub fn restored(mut self, expires: Timestamp) -> Option<Self> {
        let flow = self.target.flow;
        if flow.connection.is_some() && !flow.reopen {
            return None;
        }
        self.target.flow = Flow::new(flow.listener, flow.transport, flow.peer);
        self.expires = expires;
        Some(self)
    }

    /// Returns whether the table shows it like this at `now`.
    #[must_use]
    pub fn is_shown_as(&self, now: Timestamp, view: &BindingView<'_>) -> bool {
        let left = self.expires.saturating_since(now);
        let left_s = left.as_secs() + u64::from(left.subsec_nanos() > 0);
        let ContactTarget { uri, q, flow, is_translated: translated, path, .. } = &self.target;
        view.aor == self.aor
            && (view.uri, view.q.unwrap_or(1000), view.flow, view.path) == (&uri[..], *q, *flow, &path[..])
            && (view.is_translated, view.instance, view.reg_id) == (*translated, &self.instance[..], self.reg_id)
            && view.expires_in_s == left_s
    }
}

impl core::fmt::Display for Entry {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let ContactTarget { uri, q, flow, .. } = &self.target;
        let (uri, expires) = (uri.escape_ascii(), self.expires.as_millis());
        write!(f, "{uri} q={q} CSeq {} until {expires} ms by {flow}", self.cseq)
    }
}

/// All bindings, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Model(Vec<Entry>);

impl Model {
    /// See [`Locations::apply`](crate::Locations::apply).
    ///
    /// # Errors
    /// The same [`Refusal`].
    pub fn apply(
        &mut self,
        now: Timestamp,
        aor: &[u8],
        policy: &Policy,
        source: &Source,
        update: &Update<'_>,
    ) -> Result<UpdateCounts, Refusal> {
        self.0.retain(|entry| now < entry.expires);
        let stale = |entry: &Entry| entry.call_id == update.call_id && entry.cseq >= update.cseq;
        let (mine, mut next): (Vec<_>, Vec<_>) = self.0.iter().cloned().partition(|entry| entry.aor == aor);
        let contacts = match &update.kind {
            UpdateKind::Fetch => return Ok(UpdateCounts::default()),
            UpdateKind::RemoveAll if mine.iter().any(stale) => return Err(Refusal::OutOfOrder),
            UpdateKind::RemoveAll => {
                self.0 = next;
                return Ok(UpdateCounts { removed: narrow(mine.len()), ..UpdateCounts::default() });
            }
            UpdateKind::Contacts(contacts) => contacts,
        };
        let (mut new, mut known) = (Vec::new(), 0);
        for (number, contact) in contacts.iter().enumerate() {
            let lifetime = lifetime(policy, contact.expires_s)?;
            if mine.iter().any(|entry| entry.is(contact) && stale(entry)) {
                return Err(Refusal::OutOfOrder);
            }
            let superseded = contacts.iter().skip(number + 1).any(|later| later.same(contact));
            if let Some(lifetime) = lifetime.filter(|_| !superseded) {
                check_contact(aor, contact)?;
                let reach = Reachability::of(policy.nat, source, update, contact);
                known += usize::from(mine.iter().any(|entry| entry.is(contact)));
                new.push(Entry {
                    aor: aor.into(),
                    call_id: update.call_id.into(),
                    cseq: update.cseq,
                    expires: now + lifetime,
                    instance: contact.instance.into(),
                    reg_id: contact.reg_id,
                    target: ContactTarget {
                        uri: contact.uri.as_bytes().into(),
                        q: contact.q.unwrap_or(1000),
                        flow: reach.flow,
                        is_translated: reach.is_translated,
                        instance: instance_hash(contact.instance),
                        path: update.path.join(&b", "[..]).into(),
                        holder: None,
                    },
                });
            }
        }
        let before = mine.len();
        let kept: Vec<_> = mine.into_iter().filter(|entry| !contacts.iter().any(|c| entry.is(c))).collect();
        let (replaced, after) = (before - kept.len(), kept.len() + new.len());
        if after > policy.max_contacts && after > before {
            return Err(Refusal::TooManyContacts);
        }
        let refreshed = replaced.min(known);
        let (added, removed) = (new.len() - refreshed, replaced - refreshed);
        next.extend(kept);
        next.extend(new);
        self.0 = next;
        Ok(UpdateCounts { added: narrow(added), refreshed: narrow(refreshed), removed: narrow(removed) })
    }

    /// See [`Locations::disconnect`](crate::Locations::disconnect); for all shards.
    pub fn disconnect(&mut self, connection: ConnId) {
        self.0.retain(|entry| entry.target.flow.connection != Some(connection) || entry.target.flow.reopen);
    }

    /// See [`Locations::lookup`](crate::Locations::lookup).
    #[must_use]
    pub fn lookup(&self, now: Timestamp, aor: &[u8]) -> Vec<ContactTarget> {
        let current = self.0.iter().rev().filter(|entry| entry.aor == aor && now < entry.expires);
        let mut targets: Vec<_> = current.map(|entry| entry.target.clone()).collect();
        targets.sort_by_key(|target| core::cmp::Reverse(target.q));
        targets
    }

    /// Returns the unexpired bindings of `aor`, oldest first.
    #[must_use]
    pub fn entries(&self, now: Timestamp, aor: &[u8]) -> Vec<Entry> {
        self.0.iter().filter(|entry| entry.aor == aor && now < entry.expires).cloned().collect()
    }

    /// Replaces the bindings of `aor`.
    pub fn replace(&mut self, aor: &[u8], entries: Vec<Entry>) {
        self.0.retain(|entry| entry.aor != aor);
        self.0.extend(entries);
    }

    /// Returns the number of unexpired bindings.
    #[must_use]
    pub fn bindings(&self, now: Timestamp) -> usize {
        self.0.iter().filter(|entry| now < entry.expires).count()
    }

    /// Returns when the next binding expires.
    #[must_use]
    pub fn next_expiry(&self, now: Timestamp) -> Option<Timestamp> {
        self.0.iter().map(|entry| entry.expires).filter(|expires| now < *expires).min()
    }
}
