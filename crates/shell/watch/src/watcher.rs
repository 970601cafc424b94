//! Which server is alive, and what the zone is to say of it: decided without I/O, in the time that it is told.

use std::collections::VecDeque;
use std::sync::Arc;

use strowger_balancer::{HealthChange, Target};
use strowger_foundation::Timestamp;

use crate::plan::{Plan, RecordData};
use crate::update::{DesiredState, Difference, Update, difference};
use crate::zone::{RecordSetContents, ZoneError};

/// How often in a row a record set is read again at once because somebody else has changed it.
const MAX_CONFLICTS: u8 = 8;

/// What there is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Ask this server whether it is there; [`Watcher::handle_probe`] takes the answer.
    Probe(usize),
    /// Read this record set; [`Watcher::handle_read`] takes it.
    Read(usize),
    /// Change a record set; [`Watcher::handle_update`] takes the outcome.
    Update(Update),
    /// Tell the operator.
    Event(Event),
}

/// What an operator may want to know. Servers and sets are named by their places in the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A server answers, for the first time or again.
    Up {
        /// Which.
        server: usize,
    },
    /// A server does not answer, or badly.
    Down {
        /// Which.
        server: usize,
    },
    /// The zone has been changed.
    Changed {
        /// Which set.
        set: usize,
        /// What was taken out.
        removed: Vec<RecordData>,
        /// What was put in.
        added: Vec<RecordData>,
    },
    /// All servers of a set are dead, and their records stay: a zone without a server is worse than one with a dead server.
    LastKept {
        /// Which set.
        set: usize,
    },
    /// Somebody else has put back the record of a server that is dead, which is left there.
    PutBack {
        /// Which set.
        set: usize,
        /// Which record.
        data: RecordData,
    },
    /// The name server does not answer. It is told once until it does.
    Unreachable,
    /// The name server answers again.
    Reachable,
    /// The name server refuses. The same is told once.
    Refused {
        /// What it refuses, why, and what to do.
        why: String,
    },
}

/// Watches servers, and keeps record sets as their lives ask.
///
/// Two watchers of one zone do not fight. A change is made only where the set is as it was read, so neither acts on what the other
/// has changed meanwhile, and the last server is never removed. Each removes a record once, when it finds its server dead; a record that
/// is missing although its server lives is put back whoever removed it. So what one of them can reach stays in the zone.
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
    /// None while too little is known.
    is_up: Option<bool>,
    due: Timestamp,
    is_asked: bool,
}

#[derive(Debug)]
struct SetState {
    desired: Vec<DesiredState>,
    due: Timestamp,
    phase: SetPhase,
    /// A wish has changed since the set was read last.
    is_stale: bool,
    /// The zone has what is wished.
    is_settled: bool,
    conflicts: u8,
    /// Why it was refused last, which has been told.
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
    /// A watcher that knows nothing yet: every server is due.
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
            // What depends on servers is looked at when something is known of them.
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

    /// What there is to do next.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due. It looks at each server and set: there are few.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let servers = self.servers.iter().filter(|server| !server.is_asked).map(|server| server.due);
        let sets = self.sets.iter().filter(|set| matches!(set.phase, SetPhase::Idle)).map(|set| set.due);
        servers.chain(sets).min()
    }

    /// Whether all servers are known and the zone says of them what it should.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let are_known = self.servers.iter().all(|server| server.is_up.is_some());
        are_known && self.sets.iter().all(|set| set.is_settled && !set.is_stale && matches!(set.phase, SetPhase::Idle))
    }

    /// Time has passed.
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

    /// A server has answered with this final status, or not at all.
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

    /// Has the records of a server be as `wish` says.
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

    /// Reads a set, unless something is under way with it: then it is read afterwards.
    fn read(&mut self, index: usize) {
        let Some(state) = self.sets.get_mut(index).filter(|state| matches!(state.phase, SetPhase::Idle)) else {
            return;
        };
        state.phase = SetPhase::Reading;
        state.is_stale = false;
        self.outputs.push_back(Output::Read(index));
    }

    /// The name server has told what a set has.
    pub fn handle_read(&mut self, now: Timestamp, index: usize, found: Result<RecordSetContents, ZoneError>) {
        let (Some(set), Some(state)) = (self.plan.sets.get(index), self.sets.get_mut(index)) else { return };
        state.phase = SetPhase::Idle;
        let found = match found {
            Ok(found) => found,
            Err(trouble) => return self.handle_error(now, index, trouble),
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

    /// Tells what is odd about a set, once.
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

    /// The name server has changed a set, or not.
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
            Err(trouble) => self.handle_error(now, index, trouble),
        }
    }

    /// The zone has what was wished when the set was read, but for servers that are the last.
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

    fn handle_error(&mut self, now: Timestamp, index: usize, trouble: ZoneError) {
        let Some(state) = self.sets.get_mut(index) else { return };
        state.is_settled = false;
        state.due = now + self.plan.retry;
        match trouble {
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
