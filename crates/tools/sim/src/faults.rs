//! Faults of a world's store and process: slow commits, disk failures, and process ends.

use core::time::Duration;

use strowger_foundation::Timestamp;
use strowger_registrar::Durability;

use crate::invariants::{Invariants, Rule, Violation};
use crate::mutant::{self, Bug, Mutant};
use crate::server::{PendingRecord, ProcessStart, Server, Step};
use crate::store::ProcessEnd;
use crate::world::{Event, StoreEvent, World, server_seed};

/// Tolerance of store time after a restart, in ns: it is recorded in whole milliseconds.
const ROUNDING_NS: i128 = 3_000_000;
/// Interval between attempts to recover the disk.
const RECOVER_EVERY: Duration = Duration::from_secs(1);

impl World {
    pub(crate) fn schedule_faults(&mut self) {
        let failure = self.scenario.faults.clone();
        let at = |after: Duration| Timestamp::ZERO + after;
        for (after, end) in failure.ends {
            self.schedule(at(after), Event::Store(StoreEvent::Ends(end)));
        }
        for after in failure.checkpoints {
            self.schedule(at(after), Event::Store(StoreEvent::Checkpoint));
        }
        for (after, failing, lasts) in failure.faults {
            self.schedule(at(after), Event::Store(StoreEvent::Fails(failing)));
            self.schedule(at(after + lasts), Event::Store(StoreEvent::Heals));
        }
        for (after, jump_ms) in failure.wall_jumps {
            self.schedule(at(after), Event::Store(StoreEvent::WallJumps(jump_ms)));
        }
        for (after, aor) in failure.forgotten {
            self.schedule(at(after), Event::Forgotten(aor));
        }
    }

    fn has_store(&self) -> bool {
        !matches!(self.scenario.snapshot.registrar.durability, Durability::Memory)
    }

    const fn is_alive(&self, life: u64) -> bool {
        life == self.life && !self.is_down
    }

    /// Starts the first process with an empty store.
    pub(crate) fn begin(&mut self) -> Result<(), Violation> {
        if !self.has_store() {
            return Ok(());
        }
        let start = self.store.open(self.now).map_err(|why| self.broken(why))?;
        self.start_server(Some(start.store_ns));
        self.step(&Step::Complete { at: self.now })
    }

    pub(crate) fn on_store_event(&mut self, happens: StoreEvent) -> Result<(), Violation> {
        self.note(|| format!("{happens:?}"));
        match happens {
            StoreEvent::Committed(life) if self.is_alive(life) => self.on_committed(),
            StoreEvent::Recovery(life) if self.is_alive(life) => self.on_recovery()?,
            StoreEvent::Checkpoint => self.checkpoint()?,
            StoreEvent::Checkpointed(life) if self.is_alive(life) => {
                self.store.end_checkpoint();
                self.commit();
            }
            StoreEvent::Reads(life) if self.is_alive(life) => return self.read(),
            StoreEvent::Fails(failing) => self.store.fail(failing),
            StoreEvent::Heals => self.store.heal(),
            StoreEvent::WallJumps(jump_ms) => self.store.set_wall_clock(jump_ms),
            StoreEvent::Ends(end) if !self.is_down => self.end(end),
            StoreEvent::Begins => return self.restart(),
            StoreEvent::Ends(_)
            | StoreEvent::Committed(_)
            | StoreEvent::Recovery(_)
            | StoreEvent::Checkpointed(_)
            | StoreEvent::Reads(_) => {}
        }
        Ok(())
    }

    /// Sends the server's records to the store.
    pub(crate) fn keep(&mut self, mut records: Vec<PendingRecord>) {
        if self.bug == Some(Bug::RepliesEarly) {
            for kept in &mut records {
                if let Some(ticket) = kept.ticket.take() {
                    self.schedule_stored(Duration::ZERO, kept.shard, ticket, kept.record.clone(), true);
                }
            }
        }
        if !records.is_empty() {
            let shown: Vec<_> = records.iter().map(|kept| kept.record.escape_ascii().to_string()).collect();
            self.note(|| format!("to be kept: {}", shown.join(" | ")));
        }
        if !self.invariants.is_complete() {
            self.taken.extend(records.iter().map(|kept| kept.record.clone()));
        }
        self.store.add(records);
        self.commit();
    }

    fn commit(&mut self) {
        if let Some(takes) = self.store.begin() {
            if let Some(end) = self.store.draw_process_end(self.scenario.faults.fatal_per_mille) {
                self.schedule(self.now + takes / 2, Event::Store(StoreEvent::Ends(end)));
            }
            self.schedule(self.now + takes, Event::Store(StoreEvent::Committed(self.life)));
        }
    }

    fn schedule_stored(&mut self, after: Duration, shard: usize, ticket: u64, record: Vec<u8>, kept: bool) {
        let at = self.now + after;
        self.schedule(at, Event::Server(self.life, Step::Stored { at, shard, ticket, record, kept }));
    }

    fn on_committed(&mut self) {
        let (records, kept) = self.store.finish(self.now);
        self.note(|| format!("{} records are kept: {kept}", records.len()));
        if kept {
            self.invariants.on_store_recovered();
        }
        for (number, one) in (0u32..).zip(records) {
            match one.ticket {
                Some(ticket) => {
                    let after = Duration::from_micros(150) * number;
                    self.schedule_stored(after, one.shard, ticket, one.record, kept);
                }
                None => self.invariants.on_record_stored(&one.record),
            }
        }
        if self.store.wants_checkpoint() {
            self.schedule(self.now, Event::Store(StoreEvent::Checkpoint));
        }
        if self.store.is_failing() {
            self.schedule(self.now + RECOVER_EVERY, Event::Store(StoreEvent::Recovery(self.life)));
        } else {
            self.commit();
        }
    }

    fn on_recovery(&mut self) -> Result<(), Violation> {
        let is_well = self.store.recover(self.now).map_err(|why| self.broken(why))?;
        if is_well {
            self.invariants.on_store_recovered();
            self.commit();
        } else {
            self.schedule(self.now + RECOVER_EVERY, Event::Store(StoreEvent::Recovery(self.life)));
        }
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<(), Violation> {
        // While records are being read, the state is incomplete.
        if self.is_down || !self.has_store() || !self.invariants.is_complete() {
            return Ok(());
        }
        let begun = self.store.begin_checkpoint(self.now).map_err(|why| self.broken(why))?;
        if let Some(takes) = begun {
            self.schedule(self.now + takes, Event::Store(StoreEvent::Checkpointed(self.life)));
        }
        Ok(())
    }

    /// Ends the process. Only phones with a connection are notified.
    fn end(&mut self, end: ProcessEnd) {
        self.is_down = true;
        self.unread.clear();
        self.taken.clear();
        self.store.end(self.now, end);
        self.lose_connections();
        self.schedule(self.now + end.down, Event::Store(StoreEvent::Begins));
    }

    fn lose_connections(&mut self) {
        for (connection, agent) in self.streams.cut_all() {
            let told = self.now + self.network.delay();
            self.schedule(told, Event::Lost(agent, connection));
        }
    }

    /// Starts the next process.
    fn restart(&mut self) -> Result<(), Violation> {
        self.lose_connections();
        self.is_down = false;
        self.life += 1;
        self.witnessed.add(&self.invariants.coverage());
        let mut skew_ns = 0;
        let (mut store_ns, mut found) = (None, Vec::new());
        if self.has_store() {
            let start = self.store.open(self.now).map_err(|why| self.broken(why))?;
            skew_ns = i128::from(start.store_ns) - i128::from(start.expected_ns);
            let (least, most) = start.allowed_ns;
            if !start.is_new && (skew_ns < least - ROUNDING_NS || skew_ns > most + ROUNDING_NS) {
                return Err(self.broken(format!("store time jumps by {skew_ns} ns, not by {least} to {most}")));
            }
            store_ns = Some(start.store_ns);
            (self.unread, found) = (start.records, start.found);
        }
        let fresh = Invariants::new(self.scenario.snapshot.clone());
        let before = core::mem::replace(&mut self.invariants, fresh);
        self.invariants = before.after_restart(skew_ns, store_ns.is_some(), found);
        self.start_server(store_ns);
        if store_ns.is_none() {
            return Ok(());
        }
        if self.store.is_failing() {
            self.schedule(self.now + RECOVER_EVERY, Event::Store(StoreEvent::Recovery(self.life)));
        }
        self.continue_loading();
        Ok(())
    }

    fn start_server(&mut self, store_ns: Option<u64>) {
        let store_ns = store_ns.map(|store_ns| mutant::believed(store_ns, self.bug));
        let configured = mutant::configured(&self.scenario.snapshot, self.bug);
        let birth = ProcessStart { at: self.now, life: self.life, store_ns };
        let server = Server::begin(self.scenario.shards, server_seed(self.seed), configured, birth);
        self.server = Mutant::new(server, self.scenario.server, self.bug);
    }

    /// Reads one record of an earlier process, or reports that all are read.
    fn read(&mut self) -> Result<(), Violation> {
        let Some(record) = self.unread.pop_front() else {
            // Records of an earlier process must not restore what was removed meanwhile.
            for record in core::mem::take(&mut self.taken) {
                self.step(&Step::Restored { at: self.now, record })?;
            }
            self.invariants.set_can_write(!self.store.has_fault());
            return self.step(&Step::Complete { at: self.now });
        };
        self.note(|| format!("restored: {}", record.escape_ascii()));
        self.step(&Step::Restored { at: self.now, record })?;
        self.continue_loading();
        Ok(())
    }

    fn continue_loading(&mut self) {
        let left = u64::try_from(self.unread.len()).unwrap_or(0) + 1;
        let most = Duration::from_millis(self.scenario.faults.reading_max_ms) / u32::try_from(left).unwrap_or(1);
        let pause = self.store.pause(most);
        self.schedule(self.now + pause, Event::Store(StoreEvent::Reads(self.life)));
    }

    fn broken(&self, detail: String) -> Violation {
        Violation { at: self.now, rule: Rule::Durable, detail }
    }
}
