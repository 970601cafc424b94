//! Expected content of the store: an independent account of every record that the server wanted stored.

use std::collections::{BTreeMap, BTreeSet};

use strowger_foundation::Timestamp;
use strowger_registrar::ContactTarget;
use strowger_registrar::model::{Entry, Model};

use crate::server::Server;

/// Change sent to the store whose outcome is unknown.
#[derive(Clone, Debug)]
struct Pending {
    record: Vec<u8>,
    /// Bindings after the change.
    after: Vec<Entry>,
    /// Whether the store reported a failure. Until the store works again, the disk may contain the record
    /// nevertheless.
    failed: bool,
    /// Process that sent it.
    life: u64,
}

/// History of one address of record.
#[derive(Clone, Debug, Default)]
struct History {
    /// Bindings that the store certainly has.
    durable: Vec<Entry>,
    /// Changes after those, in order.
    pending: Vec<Pending>,
    /// Bindings read at a start whose disk could not be written. The table shows them, and they become certain once
    /// the disk works.
    unsettled: Option<Vec<Entry>>,
}

/// Expected state of memory and disk.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// Expected state of the table while nothing is being loaded.
    pub model: Model,
    histories: BTreeMap<Vec<u8>, History>,
    /// Addresses removed while records of the previous process were still being read.
    forgotten: BTreeSet<Vec<u8>>,
    /// Addresses whose records the current process has found in the journal.
    found: BTreeSet<Vec<u8>>,
    /// Number of the current process.
    life: u64,
}

impl Ledger {
    /// Returns all addresses of record for which a record was ever sent to the store.
    pub fn addresses(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.histories.keys()
    }

    /// Records that the server sent a record to the store, after which the bindings of `aor` are `after`.
    pub fn emit(&mut self, aor: &[u8], record: &[u8], after: Vec<Entry>) {
        let pending = Pending { record: record.to_vec(), after, failed: false, life: self.life };
        self.histories.entry(aor.to_vec()).or_default().pending.push(pending);
    }

    /// Records that the user of `aor` was removed. While records are being read, the removal must outlast them.
    pub fn forget(&mut self, aor: &[u8], record: Option<&[u8]>, is_loading: bool) {
        self.model.replace(aor, Vec::new());
        if let Some(record) = record {
            self.emit(aor, record, Vec::new());
        }
        if is_loading {
            self.forgotten.insert(aor.to_vec());
        }
    }

    /// Records that the store has a record, and therefore all earlier ones.
    pub fn on_stored(&mut self, aor: &[u8], record: &[u8]) {
        let Some(history) = self.histories.get_mut(aor) else { return };
        let is = |pending: &Pending| !pending.failed && pending.record == record;
        if let Some(at) = history.pending.iter().position(is) {
            let kept = history.pending.drain(..=at).next_back();
            history.durable = kept.map(|kept| kept.after).unwrap_or_default();
        }
    }

    /// Records that the store rejected a record.
    pub fn fail(&mut self, aor: &[u8], record: &[u8]) {
        let Some(history) = self.histories.get_mut(aor) else { return };
        let is = |pending: &&mut Pending| !pending.failed && pending.record == record;
        if let Some(pending) = history.pending.iter_mut().find(is) {
            pending.failed = true;
        }
    }

    /// Records that the store works again, so rejected records are not on the disk.
    pub fn recover(&mut self) {
        for history in self.histories.values_mut() {
            let life = self.life;
            if let Some(read) = history.unsettled.take() {
                history.durable = read;
                history.pending.retain(|pending| pending.life == life);
            }
            // What this process found settles earlier failures.
            history.pending.retain(|pending| !pending.failed || pending.life < life);
        }
    }

    /// Records a restart. The store time of the new process differs by `skew_ns` from the time without a restart.
    pub fn restart(&mut self, skew_ns: i128, found: Vec<Vec<u8>>) {
        let restored = |entries: &mut Vec<Entry>| {
            let shifted = |expires: Timestamp| {
                let at = i128::from(expires.as_nanos()).saturating_sub(skew_ns).max(0);
                Timestamp::from_nanos(u64::try_from(at).unwrap_or(u64::MAX))
            };
            let all = core::mem::take(entries).into_iter();
            *entries = all
                .filter_map(|entry| {
                    let at = shifted(entry.expires());
                    entry.restored(at)
                })
                .collect();
        };
        for history in self.histories.values_mut() {
            history.unsettled = None;
            restored(&mut history.durable);
            history.pending.iter_mut().for_each(|pending| restored(&mut pending.after));
        }
        self.model = Model::default();
        self.forgotten.clear();
        self.found = found.into_iter().collect();
        self.life += 1;
    }

    /// Checks the table while records are being read: each address shows nothing yet, or its final state.
    ///
    /// # Errors
    /// The first violation.
    pub fn check_partial(&self, now: Timestamp, server: &Server) -> Result<(), String> {
        for (aor, history) in &self.histories {
            let mut found: Vec<ContactTarget> = Vec::new();
            server.lookup(now, aor, &mut found);
            let of_before = history.pending.iter().filter(|pending| pending.life < self.life);
            // A removed address may be seen once more until all records are read.
            if self.forgotten.contains(aor) {
                continue;
            }
            let mut allowed = of_before.map(|pending| &pending.after).chain([&history.durable]);
            if !found.is_empty() && !allowed.any(|entries| is_shown(now, server, aor, entries)) {
                let shown = shown(now, server, aor);
                return Err(format!("{} shows {shown} while it is read", aor.escape_ascii()));
            }
        }
        Ok(())
    }

    /// Checks the table after all records were read: it must show what the store certainly had, possibly with some of
    /// the pending changes.
    ///
    /// # Errors
    /// The first violation.
    pub fn complete(&mut self, now: Timestamp, server: &Server, can_write: bool) -> Result<(), String> {
        let found = core::mem::take(&mut self.found);
        for (aor, history) in &mut self.histories {
            let mut candidates: Vec<(bool, &[Entry])> = vec![(true, &history.durable)];
            let of_before = history.pending.iter().filter(|pending| pending.life < self.life);
            candidates.extend(of_before.map(|pending| (found.contains(&pending.record), &pending.after[..])));
            let is_forgotten = self.forgotten.contains(aor);
            let fits = |(_, entries): &&(bool, &[Entry])| is_forgotten || is_shown(now, server, aor, entries);
            let read = candidates.iter().rev().filter(|(read, _)| *read).find(fits);
            let chosen = read.or_else(|| candidates.iter().find(fits)).map(|(_, entries)| entries.to_vec());
            let is_gone = !is_forgotten || is_shown(now, server, aor, &[]);
            let Some(chosen) = chosen.filter(|_| is_gone) else {
                let all: Vec<_> = candidates.iter().map(|(_, entries)| listed(now, entries)).collect();
                let (shown, aor) = (shown(now, server, aor), aor.escape_ascii());
                let forgotten = if is_forgotten { "nothing, for it was forgotten, not " } else { "" };
                return Err(format!("{aor} has {shown} after the restart, and should have {forgotten}one of {all:?}"));
            };
            self.model.replace(aor, if is_forgotten { Vec::new() } else { chosen.clone() });
            // Changes that were not found are lost; those of the current process are still pending.
            if can_write {
                history.durable = chosen;
                let life = self.life;
                history.pending.retain(|pending| pending.life == life);
            } else {
                history.unsettled = Some(chosen);
            }
        }
        self.forgotten.clear();
        self.check_all(now, server)
    }

    /// Checks that the table contains exactly the expected bindings, with expiry times exact to the second.
    ///
    /// # Errors
    /// The address at fault.
    pub fn check_all(&self, now: Timestamp, server: &Server) -> Result<(), String> {
        let mut stranger = None;
        server.for_each_binding(now, |view| {
            let known = self.model.entries(now, view.aor);
            if !known.iter().any(|entry| entry.is_shown_as(now, view)) {
                let (aor, uri) = (view.aor.escape_ascii(), view.uri.escape_ascii());
                let known: Vec<_> = known.iter().map(ToString::to_string).collect();
                stranger = Some(format!("{aor} has {uri} for {} s by {}, not {known:?}", view.expires_in_s, view.flow));
            }
        });
        stranger.map_or(Ok(()), Err)
    }
}

fn listed(now: Timestamp, entries: &[Entry]) -> Vec<String> {
    current(now, entries).iter().map(ToString::to_string).collect()
}

fn current(now: Timestamp, entries: &[Entry]) -> Vec<&Entry> {
    entries.iter().filter(|entry| now < entry.expires()).collect()
}

fn shown(now: Timestamp, server: &Server, aor: &[u8]) -> String {
    let mut all = Vec::new();
    server.for_each_binding(now, |view| {
        if view.aor == aor {
            all.push(format!("{} for {} s by {}", view.uri.escape_ascii(), view.expires_in_s, view.flow));
        }
    });
    format!("{all:?}")
}

/// Returns whether the table shows exactly these bindings of an address, both to a call and to the operator.
fn is_shown(now: Timestamp, server: &Server, aor: &[u8], entries: &[Entry]) -> bool {
    let mut model = Model::default();
    model.replace(aor, entries.to_vec());
    let mut found: Vec<ContactTarget> = Vec::new();
    server.lookup(now, aor, &mut found);
    let mut left = current(now, entries);
    let mut is_same = found == model.lookup(now, aor);
    server.for_each_binding(now, |view| {
        if view.aor == aor {
            let at = left.iter().position(|entry| entry.is_shown_as(now, view));
            is_same &= at.is_some();
            at.map(|at| left.remove(at));
        }
    });
    is_same && left.is_empty()
}
