//! An engine in memory, for tests and the simulator: it forgets as a real one does that fails over to a replica that lags behind.

use std::collections::BTreeMap;

use strowger_registrar::record::merge;
use strowger_registrar::{MemberId, Record};

use crate::entry::{Entry, Position};
use crate::request::{Kind, LiveMember, Reply, Request};

/// What an engine keeps.
#[derive(Clone, Debug, Default)]
struct Storage {
    logs: BTreeMap<MemberId, Vec<Entry>>,
    /// By member and address of record: all changes of that member, of each contact the newest.
    state: BTreeMap<(MemberId, Box<[u8]>), Vec<u8>>,
}

/// The engine.
#[derive(Debug, Default)]
pub struct Engine {
    storage: Storage,
    replica: Storage,
    heartbeats: BTreeMap<MemberId, u64>,
    keeps_last: bool,
}

impl Engine {
    /// Carries a request out. The whole state is shown to `show`.
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
                    // Which process of a member it is nobody is told here.
                    incarnation: 0,
                    heartbeat: *beat,
                    address: ([192, 0, 2, 1], member.get()).into(),
                    key: String::new(),
                };
                Reply::Heartbeats(alive.filter(|(other, _)| **other != member).map(said).collect())
            }
        }
    }

    /// Has it keep the change of a contact that came last, instead of the newest: as an engine does that is only told to set.
    pub const fn set_last_write_wins(&mut self, keeps_last: bool) {
        self.keeps_last = keeps_last;
    }

    /// The replica has all that there is.
    pub fn replicate(&mut self) {
        self.replica = self.storage.clone();
    }

    /// The replica takes over: what it does not have is forgotten.
    pub fn fail_over(&mut self) {
        self.storage = self.replica.clone();
    }

    /// Forgets all that a member has written, as an engine does that keeps each member's part in another place and loses one.
    pub fn forget(&mut self, member: MemberId) {
        self.storage.logs.remove(&member);
        self.storage.state.retain(|(of, _), _| *of != member);
    }

    /// Cuts all but the newest entries of each log, as many.
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
