//! Watcher state machine: which servers are alive, and what the zone should say. Without I/O, in the time of its
//! inputs.

use std::collections::VecDeque;
use std::sync::Arc;

use strowger_balancer::{HealthChange, Target};
use strowger_foundation::Timestamp;

use crate::plan::{Plan, RecordData};
use crate::update::{DesiredState, Difference, RecordSetContents, Update, difference};
use crate::zone::ZoneError;

/// Maximum number of consecutive immediate rereads of a record set after conflicting changes.
const MAX_CONFLICTS: u8 = 8;

/// Work for the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Probe this server and pass the result to [`Watcher::handle_probe`].
    Probe(usize),
    /// Read this record set and pass it to [`Watcher::handle_read`].
    Read(usize),
    /// Update a record set and pass the result to [`Watcher::handle_update`].
    Update(Update),
    /// Report an event to the operator.
    Event(Event),
}

/// An event for the operator. Servers and sets are indices into the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A server answers, for the first time or again.
    Up {
        /// Index of the server.
        server: usize,
    },
    /// A server does not answer, or answers with an error.
    Down {
        /// Index of the server.
        server: usize,
    },
    /// The zone was updated.
    Changed {
        /// Index of the set.
        set: usize,
        /// Removed records.
        removed: Vec<RecordData>,
        /// Added records.
        added: Vec<RecordData>,
    },
    /// All servers of a set are dead and their records stay: a zone without any server is worse than one with a dead
    /// server.
    LastKept {
        /// Index of the set.
        set: usize,
    },
    /// Somebody else has restored the record of a dead server; it stays.
    PutBack {
        /// Index of the set.
        set: usize,
        /// The record.
        data: RecordData,
    },
    /// The name server does not answer. Reported once until it does.
    Unreachable,
    /// The name server answers again.
    Reachable,
    /// The name server refuses. Reported once per reason.
    Refused {
        /// What it refuses, why, and what to do.
        why: String,
    },
}

/// Watches servers and keeps record sets in line with their state.
///
/// Two watchers of a zone do not conflict. An update requires that the set is as it was read, so neither acts on a
/// stale set, and the last server is never removed. Each watcher removes a record once, when it finds the server
/// dead. A record that is missing although its server is alive is restored, whoever removed it. Servers that any
/// watcher reaches therefore stay in the zone.
#[derive(Debug)]
pub struct Watcher {
    plan: Plan,
    servers: Vec<ServerState>,
    sets: Vec<SetState>,
    outputs: VecDeque<Output>,
    is_silent: bool,
}

#[derive(Debug)]
struct ServerState {
    health: Arc<Target>,
    /// `None` until the state is known.
    is_up: Option<bool>,
    due: Timestamp,
    is_asked: bool,
}

#[derive(Debug)]
struct SetState {
    desired: Vec<DesiredState>,
    due: Timestamp,
    phase: SetPhase,
    /// Whether the desired state has changed since the set was last read.
    is_stale: bool,
    /// Whether the zone matches the desired state.
    is_settled: bool,
    conflicts: u8,
    /// Reason of the last refusal, already reported.
    refused: Option<String>,
    is_last_reported: bool,
    restored_reported: Vec<usize>,
}

#[derive(Debug)]
enum SetPhase {
    Idle,
    Reading,
    Updating(Update),
}

impl Watcher {
    /// Creates a watcher without any state; every server is due for a probe.
    #[must_use]
    pub fn new(plan: Plan, now: Timestamp) -> Self {
        let server = |server: &crate::plan::Server| ServerState {
            health: Target::new("watch", server.to_string().as_bytes()),
            is_up: None,
            due: now,
            is_asked: false,
        };
        let servers = plan.servers.iter().map(server).collect();
        let sets = plan.sets.iter().map(|set| {
            let wish = |server: Option<usize>| server.map_or(DesiredState::Publish, |_| DesiredState::Unknown);
            let wishes: Vec<DesiredState> = set.entries.iter().map(|entry| wish(entry.server)).collect();
            // Sets that depend on servers are read once a server's state is known.
            let due = if wishes.contains(&DesiredState::Publish) { now } else { now + plan.refresh };
            SetState {
                desired: wishes,
                due,
                phase: SetPhase::Idle,
                is_stale: false,
                is_settled: false,
                conflicts: 0,
                refused: None,
                is_last_reported: false,
                restored_reported: Vec::new(),
            }
        });
        let sets = sets.collect();
        let mut watcher = Self { plan, servers, sets, outputs: VecDeque::new(), is_silent: false };
        watcher.handle_timeout(now);
        watcher
    }

    /// Returns the next output.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is due. Scans all servers and sets, of which there are
    /// few.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let servers = self.servers.iter().filter(|server| !server.is_asked).map(|server| server.due);
        let sets = self.sets.iter().filter(|set| matches!(set.phase, SetPhase::Idle)).map(|set| set.due);
        servers.chain(sets).min()
    }

    /// Whether all servers' states are known and the zone is as desired.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let are_known = self.servers.iter().all(|server| server.is_up.is_some());
        are_known && self.sets.iter().all(|set| set.is_settled && !set.is_stale && matches!(set.phase, SetPhase::Idle))
    }

    /// Processes timers that are due.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        for (index, server) in self.servers.iter_mut().enumerate() {
            if server.due <= now && !server.is_asked {
                server.is_asked = true;
                server.due = now + self.plan.probe.interval;
                self.outputs.push_back(Output::Probe(index));
            }
        }
        for index in 0..self.sets.len() {
            let is_due = self.sets.get(index).is_some_and(|set| set.due <= now);
            if is_due {
                self.read(index);
            }
        }
    }

    /// Handles the result of a probe: the final status, or `None` without an answer.
    pub fn handle_probe(&mut self, now: Timestamp, index: usize, status: Option<u16>) {
        let Some(server) = self.servers.get_mut(index) else { return };
        server.is_asked = false;
        let is_good = status.is_some_and(|status| self.plan.probe.accepts(status));
        let is_up = match server.health.handle_probe(now, is_good, &self.plan.probe) {
            Some(HealthChange::Down) => false,
            Some(HealthChange::Up) => true,
            None if server.is_up.is_none() && is_good => true,
            None => return,
        };
        server.is_up = Some(is_up);
        self.outputs.push_back(Output::Event(if is_up {
            Event::Up { server: index }
        } else {
            Event::Down { server: index }
        }));
        self.set_desired(index, if is_up { DesiredState::Publish } else { DesiredState::Remove });
    }

    /// Sets the desired state of all records of a server.
    fn set_desired(&mut self, server: usize, wish: DesiredState) {
        let mut concerned = Vec::new();
        for (index, (set, state)) in self.plan.sets.iter().zip(&mut self.sets).enumerate() {
            let own = set.entries.iter().zip(&mut state.desired).filter(|(entry, _)| entry.server == Some(server));
            own.for_each(|(_, old)| {
                *old = wish;
                state.is_stale = true;
                concerned.push(index);
            });
        }
        concerned.dedup();
        concerned.into_iter().for_each(|index| self.read(index));
    }

    /// Reads a set unless an operation on it is in progress; a stale or due set is then read later.
    fn read(&mut self, index: usize) {
        let Some(state) = self.sets.get_mut(index).filter(|state| matches!(state.phase, SetPhase::Idle)) else {
            return;
        };
        state.phase = SetPhase::Reading;
        state.is_stale = false;
        self.outputs.push_back(Output::Read(index));
    }

    /// Handles the result of reading a set.
    pub fn handle_read(&mut self, now: Timestamp, index: usize, found: Result<RecordSetContents, ZoneError>) {
        let (Some(set), Some(state)) = (self.plan.sets.get(index), self.sets.get_mut(index)) else { return };
        state.phase = SetPhase::Idle;
        let found = match found {
            Ok(found) => found,
            Err(failure) => return self.handle_error(now, index, failure),
        };
        let difference = difference(set, &state.desired, &found);
        self.report(index, &difference);
        self.on_answer();
        if difference.is_empty() {
            return self.settle(now, index, difference.is_last_kept);
        }
        let Difference { remove, add, .. } = difference;
        let update = Update { set: index, expected: found.records, remove, add };
        if let Some(state) = self.sets.get_mut(index) {
            state.phase = SetPhase::Updating(update.clone());
        }
        self.outputs.push_back(Output::Update(update));
    }

    /// Reports oddities of a set, once.
    fn report(&mut self, index: usize, difference: &Difference) {
        let (Some(set), Some(state)) = (self.plan.sets.get(index), self.sets.get_mut(index)) else { return };
        if difference.is_last_kept && !state.is_last_reported {
            self.outputs.push_back(Output::Event(Event::LastKept { set: index }));
        }
        state.is_last_reported = difference.is_last_kept;
        for entry in difference.restored.iter().filter(|entry| !state.restored_reported.contains(entry)) {
            let data = set.entries.get(*entry).map(|entry| entry.data.clone());
            self.outputs.extend(data.map(|data| Output::Event(Event::PutBack { set: index, data })));
        }
        state.restored_reported.clone_from(&difference.restored);
    }

    /// Handles the result of an update.
    pub fn handle_update(&mut self, now: Timestamp, index: usize, outcome: Result<(), ZoneError>) {
        let Some(state) = self.sets.get_mut(index) else { return };
        let SetPhase::Updating(update) = std::mem::replace(&mut state.phase, SetPhase::Idle) else { return };
        match outcome {
            Ok(()) => {
                let Update { remove: removed, add: added, .. } = update;
                self.outputs.push_back(Output::Event(Event::Changed { set: index, removed, added }));
                self.on_answer();
                self.settle(now, index, false);
            }
            Err(failure) => self.handle_error(now, index, failure),
        }
    }

    /// Records that the zone matches the desired state, except for records that stay because all servers of the set
    /// are dead.
    fn settle(&mut self, now: Timestamp, index: usize, is_last_kept: bool) {
        let Some(state) = self.sets.get_mut(index) else { return };
        state.conflicts = 0;
        state.refused = None;
        state.due = now + self.plan.refresh;
        if state.is_stale {
            return self.read(index);
        }
        state.is_settled = true;
        for wish in &mut state.desired {
            *wish = match *wish {
                DesiredState::Publish => DesiredState::Present,
                DesiredState::Remove if !is_last_kept => DesiredState::Removed,
                other => other,
            };
        }
    }

    fn handle_error(&mut self, now: Timestamp, index: usize, failure: ZoneError) {
        let Some(state) = self.sets.get_mut(index) else { return };
        state.is_settled = false;
        state.due = now + self.plan.retry;
        match failure {
            ZoneError::Conflict if state.conflicts < MAX_CONFLICTS => {
                state.conflicts += 1;
                self.read(index);
            }
            ZoneError::Conflict => state.conflicts = 0,
            ZoneError::Timeout => {
                if !std::mem::replace(&mut self.is_silent, true) {
                    self.outputs.push_back(Output::Event(Event::Unreachable));
                }
            }
            ZoneError::Refused(why) => {
                if state.refused.as_ref() != Some(&why) {
                    state.refused = Some(why.clone());
                    self.outputs.push_back(Output::Event(Event::Refused { why }));
                }
            }
        }
    }

    fn on_answer(&mut self) {
        if std::mem::take(&mut self.is_silent) {
            self.outputs.push_back(Output::Event(Event::Reachable));
        }
    }
}
