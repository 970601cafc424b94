//! Which server is alive, and what the zone is to say of it: decided without I/O, in the time that it is told.

use std::collections::VecDeque;
use std::sync::Arc;

use strowger_balancer::{Change, Target};
use strowger_foundation::Timestamp;

use crate::change::{Difference, Update, Wish, difference};
use crate::plan::{Data, Plan};
use crate::zone::{Found, Trouble};

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
        removed: Vec<Data>,
        /// What was put in.
        added: Vec<Data>,
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
        data: Data,
    },
    /// The name server does not answer. It is told once until it does.
    Silent,
    /// The name server answers again.
    Answers,
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
    wishes: Vec<Wish>,
    due: Timestamp,
    work: Work,
    /// A wish has changed since the set was read last.
    is_stale: bool,
    /// The zone has what is wished.
    is_settled: bool,
    conflicts: u8,
    /// Why it was refused last, which has been told.
    refused: Option<String>,
    is_last_told: bool,
    put_back_told: Vec<usize>,
}

#[derive(Debug)]
enum Work {
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
            let wish = |server: Option<usize>| server.map_or(Wish::Put, |_| Wish::Unknown);
            let wishes: Vec<Wish> = set.entries.iter().map(|entry| wish(entry.server)).collect();
            // What depends on servers is looked at when something is known of them.
            let due = if wishes.contains(&Wish::Put) { now } else { now + plan.refresh };
            SetState {
                wishes,
                due,
                work: Work::Idle,
                is_stale: false,
                is_settled: false,
                conflicts: 0,
                refused: None,
                is_last_told: false,
                put_back_told: Vec::new(),
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
        let sets = self.sets.iter().filter(|set| matches!(set.work, Work::Idle)).map(|set| set.due);
        servers.chain(sets).min()
    }

    /// Whether all servers are known and the zone says of them what it should.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let are_known = self.servers.iter().all(|server| server.is_up.is_some());
        are_known && self.sets.iter().all(|set| set.is_settled && !set.is_stale && matches!(set.work, Work::Idle))
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
            Some(Change::Down) => false,
            Some(Change::Up) => true,
            None if server.is_up.is_none() && is_good => true,
            None => return,
        };
        server.is_up = Some(is_up);
        self.outputs.push_back(Output::Event(if is_up {
            Event::Up { server: index }
        } else {
            Event::Down { server: index }
        }));
        self.wish(index, if is_up { Wish::Put } else { Wish::Go });
    }

    /// Has the records of a server be as `wish` says.
    fn wish(&mut self, server: usize, wish: Wish) {
        let mut concerned = Vec::new();
        for (index, (set, state)) in self.plan.sets.iter().zip(&mut self.sets).enumerate() {
            let own = set.entries.iter().zip(&mut state.wishes).filter(|(entry, _)| entry.server == Some(server));
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
        let Some(state) = self.sets.get_mut(index).filter(|state| matches!(state.work, Work::Idle)) else { return };
        state.work = Work::Reading;
        state.is_stale = false;
        self.outputs.push_back(Output::Read(index));
    }

    /// The name server has told what a set has.
    pub fn handle_read(&mut self, now: Timestamp, index: usize, found: Result<Found, Trouble>) {
        let (Some(set), Some(state)) = (self.plan.sets.get(index), self.sets.get_mut(index)) else { return };
        state.work = Work::Idle;
        let found = match found {
            Ok(found) => found,
            Err(trouble) => return self.handle_trouble(now, index, trouble),
        };
        let difference = difference(set, &state.wishes, &found);
        self.note(index, &difference);
        self.on_answer();
        if difference.is_nothing() {
            return self.settle(now, index, difference.is_last_kept);
        }
        let Difference { remove, add, .. } = difference;
        let update = Update { set: index, expected: found.records, remove, add };
        if let Some(state) = self.sets.get_mut(index) {
            state.work = Work::Updating(update.clone());
        }
        self.outputs.push_back(Output::Update(update));
    }

    /// Tells what is odd about a set, once.
    fn note(&mut self, index: usize, difference: &Difference) {
        let (Some(set), Some(state)) = (self.plan.sets.get(index), self.sets.get_mut(index)) else { return };
        if difference.is_last_kept && !state.is_last_told {
            self.outputs.push_back(Output::Event(Event::LastKept { set: index }));
        }
        state.is_last_told = difference.is_last_kept;
        for entry in difference.put_back.iter().filter(|entry| !state.put_back_told.contains(entry)) {
            let data = set.entries.get(*entry).map(|entry| entry.data.clone());
            self.outputs.extend(data.map(|data| Output::Event(Event::PutBack { set: index, data })));
        }
        state.put_back_told.clone_from(&difference.put_back);
    }

    /// The name server has changed a set, or not.
    pub fn handle_update(&mut self, now: Timestamp, index: usize, outcome: Result<(), Trouble>) {
        let Some(state) = self.sets.get_mut(index) else { return };
        let Work::Updating(update) = std::mem::replace(&mut state.work, Work::Idle) else { return };
        match outcome {
            Ok(()) => {
                let Update { remove: removed, add: added, .. } = update;
                self.outputs.push_back(Output::Event(Event::Changed { set: index, removed, added }));
                self.on_answer();
                self.settle(now, index, false);
            }
            Err(trouble) => self.handle_trouble(now, index, trouble),
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
        for wish in &mut state.wishes {
            *wish = match *wish {
                Wish::Put => Wish::Stay,
                Wish::Go if !is_last_kept => Wish::Gone,
                other => other,
            };
        }
    }

    fn handle_trouble(&mut self, now: Timestamp, index: usize, trouble: Trouble) {
        let Some(state) = self.sets.get_mut(index) else { return };
        state.is_settled = false;
        state.due = now + self.plan.retry;
        match trouble {
            Trouble::Changed if state.conflicts < MAX_CONFLICTS => {
                state.conflicts += 1;
                self.read(index);
            }
            Trouble::Changed => state.conflicts = 0,
            Trouble::Silent => {
                if !std::mem::replace(&mut self.is_silent, true) {
                    self.outputs.push_back(Output::Event(Event::Silent));
                }
            }
            Trouble::Refused(why) => {
                if state.refused.as_ref() != Some(&why) {
                    state.refused = Some(why.clone());
                    self.outputs.push_back(Output::Event(Event::Refused { why }));
                }
            }
        }
    }

    fn on_answer(&mut self) {
        if std::mem::take(&mut self.is_silent) {
            self.outputs.push_back(Output::Event(Event::Answers));
        }
    }
}
