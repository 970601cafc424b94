//! An in-memory engine for tests and the simulator. It loses data as a real engine does that fails over to a lagging
//! replica.

use std::collections::BTreeMap;

use strowger_registrar::record::merge;
use strowger_registrar::{MemberId, Record};

use crate::entry::{Entry, Position};
use crate::request::{Kind, LiveMember, Reply, Request};

/// Contents of an engine.
#[derive(Clone, Debug, Default)]
struct Storage {
    logs: BTreeMap<MemberId, Vec<Entry>>,
    /// Changes by member and address of record; the newest of each contact.
    state: BTreeMap<(MemberId, Box<[u8]>), Vec<u8>>,
}

/// In-memory engine.
#[derive(Debug, Default)]
pub struct Engine {
    storage: Storage,
    replica: Storage,
    heartbeats: BTreeMap<MemberId, u64>,
    keeps_last: bool,
}

impl Engine {
    /// Executes a request. Passes the whole state to `show` for [`Request::ReadAll`].
    pub fn execute(&mut self, member: MemberId, request: &Request, show: &mut dyn FnMut(&[u8])) -> Reply {
        match request {
            Request::Ends => Reply::Ends(self.ends()),
            Request::ReadAll => {
                self.storage.state.values().for_each(|record| show(record));
                Reply::AllRead
            }
            Request::Follow(from) => {
                Reply::Entries(from.iter().map(|(member, at)| (*member, self.behind(*member, *at))).collect())
            }
            Request::Append(entry) => {
                let end = self
                    .storage
                    .logs
                    .get(&member)
                    .and_then(|log| log.last())
                    .map_or(Position::BEGIN, |last| last.position);
                if end != entry.after && end != entry.position {
                    let why = format!("the log ends at {end:?}");
                    return Reply::Failed { request: Kind::Append, why };
                }
                self.append(member, entry);
                Reply::Appended(entry.position)
            }
            Request::Heartbeat => {
                let alive = self.heartbeats.clone();
                *self.heartbeats.entry(member).or_default() += 1;
                let alive = alive.iter();
                let said = |(member, beat): (&MemberId, &u64)| LiveMember {
                    member: *member,
                    // The model does not track the incarnation.
                    incarnation: 0,
                    heartbeat: *beat,
                    address: ([192, 0, 2, 1], member.get()).into(),
                    key: String::new(),
                };
                Reply::Heartbeats(alive.filter(|(other, _)| **other != member).map(said).collect())
            }
        }
    }

    /// Makes the engine keep the last written change of a contact instead of the newest, as an engine with a plain
    /// set does.
    pub const fn set_last_write_wins(&mut self, keeps_last: bool) {
        self.keeps_last = keeps_last;
    }

    /// Copies everything to the replica.
    pub fn replicate(&mut self) {
        self.replica = self.storage.clone();
    }

    /// Fails over to the replica. Data that was not replicated is lost.
    pub fn fail_over(&mut self) {
        self.storage = self.replica.clone();
    }

    /// Loses everything a member has written, as a sharded engine does that loses one shard.
    pub fn forget(&mut self, member: MemberId) {
        self.storage.logs.remove(&member);
        self.storage.state.retain(|(of, _), _| *of != member);
    }

    /// Truncates each log to its newest `left` entries.
    pub fn cut_logs(&mut self, left: usize) {
        for log in self.storage.logs.values_mut() {
            log.drain(..log.len().saturating_sub(left));
        }
    }

    fn ends(&self) -> Vec<(MemberId, Position)> {
        self.storage.logs.iter().filter_map(|(member, log)| Some((*member, log.last()?.position))).collect()
    }

    fn behind(&self, member: MemberId, at: Position) -> Vec<Entry> {
        let log = self.storage.logs.get(&member).map(Vec::as_slice).unwrap_or_default();
        log.iter().filter(|entry| entry.position > at).cloned().collect()
    }

    fn append(&mut self, member: MemberId, entry: &Entry) {
        for record in &entry.records {
            let Ok(parsed) = Record::parse(record) else { continue };
            let known = self.storage.state.entry((member, parsed.aor().into())).or_default();
            let mut merged = Vec::new();
            merge((!known.is_empty() && !self.keeps_last).then_some(known), record, &mut merged);
            *known = merged;
        }
        let log = self.storage.logs.entry(member).or_default();
        if log.last().is_none_or(|last| last.position < entry.position) {
            log.push(entry.clone());
        }
    }
}
