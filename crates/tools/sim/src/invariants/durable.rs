//! Rules for REGISTER and the store: when a request is answered, and which bindings exist afterwards.

use core::time::Duration;
use std::collections::VecDeque;

use strowger_foundation::{ConnId, Timestamp};
use strowger_message::{HeaderName, Message, Method, Status};
use strowger_registrar::{Durability, Record};
use strowger_shard::MAX_AMPLIFICATION;

use super::location_model::{QueuedRegister, StagedRegister};
use super::{Invariants, Key, Rule, SLACK, Verdict, Violation};
use crate::invariants::broken_unless;
use crate::ladder::summary;
use crate::server::{PendingRecord, Server, Step};

/// Longest time that a client waits for the store.
const PATIENCE: Duration = Duration::from_secs(2);

/// Records of the current step that no rule has accounted for.
type Records<'a> = VecDeque<&'a PendingRecord>;

impl Invariants {
    /// Returns the rules for the next process, whose store time differs by `skew_ns` from the time without a restart.
    ///
    /// The new process does not know earlier requests. The rules remember that there were some, because responses to
    /// them may still arrive.
    #[must_use]
    pub fn after_restart(mut self, skew_ns: i128, has_store: bool, found: Vec<Vec<u8>>) -> Self {
        let before = core::mem::take(&mut self.upstream).into_keys();
        self.ghosts.extend(before);
        self.downstream.clear();
        self.closed.clear();
        self.answers = super::DnsAnswers::default();
        self.forgiven.clear();
        self.table.queues.clear();
        self.table.staged.clear();
        self.table.ledger.restart(skew_ns, found);
        self.table.loading = has_store.then(Default::default);
        self
    }

    /// Handles the storing of a record without a ticket.
    pub fn on_record_stored(&mut self, record: &[u8]) {
        if let Ok(parsed) = Record::parse(record) {
            self.table.ledger.on_stored(parsed.aor(), record);
        }
    }

    /// Sets whether the disk of the store can be written.
    pub const fn set_can_write(&mut self, can_write: bool) {
        self.can_write = can_write;
    }

    /// Returns whether all records of earlier processes were read.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.table.loading.is_none()
    }

    /// Handles the recovery of the store: rejected records are not on the disk.
    pub fn on_store_recovered(&mut self) {
        self.table.ledger.recover();
    }

    /// Checks a step for the registrar's rules.
    pub(super) fn check_registers(
        &mut self,
        now: Timestamp,
        step: &Step,
        records: &[PendingRecord],
        server: &Server,
    ) -> Verdict {
        let mut records: Records<'_> = records.iter().collect();
        match step {
            Step::Message { .. } => {
                if let Some((key, true)) = self.step.request.clone()
                    && key.1 == Method::Register.as_bytes()
                {
                    self.check_register(now, &key, &mut records)?;
                }
            }
            Step::Stored { shard, ticket, kept, .. } => self.on_stored(now, (*shard, *ticket), *kept, &mut records)?,
            Step::Forget { aor, .. } => self.on_forget(aor, &mut records),
            Step::Complete { .. } => {
                self.table.loading = None;
                let complete = self.table.ledger.complete(now, server, self.can_write);
                complete.map_err(|detail| (Rule::Durable, detail))?;
            }
            _ => {}
        }
        if self.table.loading.is_some() && matches!(step, Step::Restored { .. } | Step::Message { .. }) {
            let partial = self.table.ledger.check_partial(now, server);
            partial.map_err(|detail| (Rule::Durable, detail))?;
        }
        let stray = records.front().map(|kept| kept.record.escape_ascii().to_string());
        broken_unless(stray.is_none(), Rule::Durable, || format!("a record of nobody: {stray:?}"))?;
        self.check_patience(now)
    }

    fn mode(&self) -> Durability {
        self.table.snapshot.registrar.durability
    }

    /// Checks a new REGISTER: it must be answered or wait.
    fn check_register(&mut self, now: Timestamp, key: &Key, records: &mut Records<'_>) -> Verdict {
        let Some(upstream) = self.upstream.get(key) else { return Ok(()) };
        let Some(answer) = upstream.finals.first().map(|one| one.status) else {
            let Some(asked) = self.table.asked(upstream) else { return Ok(()) };
            let through = self.mode() == Durability::WriteThrough;
            broken_unless(through, Rule::InviteEnds, || format!("not answered: {}", summary(&upstream.request)))?;
            let key = key.clone();
            if self.table.staged.values().any(|staged| staged.aor == asked.aor) {
                let queue = self.table.queues.entry(asked.aor).or_default();
                queue.push_back(QueuedRegister { key, is_barred: false });
                return Ok(());
            }
            return self.stage(now, key, records);
        };
        // A challenge changes no binding and lists none.
        if answer == Status::UNAUTHORIZED { Ok(()) } else { self.judge(now, key, records) }
    }

    /// Checks a REGISTER that was answered without waiting for the store.
    fn judge(&mut self, now: Timestamp, key: &Key, records: &mut Records<'_>) -> Verdict {
        let Some(upstream) = self.upstream.get(key) else { return Ok(()) };
        let (Some(asked), Some(answer)) = (self.table.asked(upstream), upstream.finals.first()) else { return Ok(()) };
        let shown = || summary(&answer.bytes);
        if self.table.loading.is_some() {
            let later = answer.status == Status::SERVICE_UNAVAILABLE && has_retry_after(&answer.bytes);
            return broken_unless(later, Rule::Loading, || format!("while records are being read: {}", shown()));
        }
        // A query from an unproven source must not get a response much longer than itself.
        let is_asking = asked.request.head().first(HeaderName::Contact).is_none();
        if answer.status == Status::MESSAGE_TOO_LARGE && is_asking && !upstream.source.transport.is_reliable() {
            let is_short = answer.bytes.len() <= MAX_AMPLIFICATION * upstream.request.len();
            return broken_unless(is_short, Rule::Registrar, || format!("too long: {}", shown()));
        }
        let model = &self.table.ledger.model;
        let (before, mut next) = (model.entries(now, &asked.aor), model.clone());
        let expected = self.table.apply(&mut next, now, &asked);
        let (status, after) = (answer.status, next.entries(now, &asked.aor));
        broken_unless(status == expected, Rule::Registrar, || format!("{status}, where the model says {expected}"))?;
        let changes = before != after;
        if self.mode() == Durability::WriteThrough {
            broken_unless(!changes, Rule::Durable, || format!("answered before it is kept: {}", shown()))?;
        } else if self.mode() == Durability::WriteBehind {
            // A removal is sent to the store even if the binding has already expired.
            match records.pop_front().filter(|kept| kept.ticket.is_none()) {
                Some(kept) => self.table.ledger.emit(&asked.aor, &kept.record, after),
                None if changes => return Err((Rule::Durable, format!("nobody is asked to keep it: {}", shown()))),
                None => {}
            }
        }
        self.table.ledger.model = next;
        let (answer, request) = (answer.bytes.clone(), upstream.request.clone());
        if status.is_success() { self.table.check_listed(now, &asked.aor, &answer, &request) } else { Ok(()) }
    }

    /// Handles a REGISTER whose record was sent to the store.
    fn stage(&mut self, now: Timestamp, key: Key, records: &mut Records<'_>) -> Verdict {
        let Some(upstream) = self.upstream.get(&key) else { return Ok(()) };
        let Some(asked) = self.table.asked(upstream) else { return Ok(()) };
        let mut next = self.table.ledger.model.clone();
        let expected = self.table.apply(&mut next, now, &asked);
        let kept = records.pop_front().and_then(|kept| Some((kept, kept.ticket?)));
        let (Some((kept, ticket)), true) = (kept, expected == Status::OK) else {
            let shown = summary(&upstream.request);
            return Err((Rule::Registrar, format!("waits, where the model says {expected}: {shown}")));
        };
        let aor = Record::parse(&kept.record).map(|record| record.aor().to_vec()).unwrap_or_default();
        broken_unless(aor == asked.aor, Rule::Durable, || "the record is another address's".to_owned())?;
        self.table.ledger.emit(&asked.aor, &kept.record, next.entries(now, &asked.aor));
        let record = kept.record.clone();
        let staged = StagedRegister { key, aor: asked.aor, at: now, record, is_answered: false, is_barred: false };
        self.table.staged.insert((kept.shard, ticket), staged);
        Ok(())
    }

    /// Handles the outcome of a record.
    fn on_stored(&mut self, now: Timestamp, id: (usize, u64), kept: bool, records: &mut Records<'_>) -> Verdict {
        let Some(staged) = self.table.staged.remove(&id) else { return Ok(()) };
        let aor = &staged.aor;
        if kept {
            self.table.ledger.on_stored(aor, &staged.record);
        } else {
            self.table.ledger.fail(aor, &staged.record);
        }
        if kept && !staged.is_barred {
            self.bind(now, &staged)?;
        }
        if !staged.is_answered {
            self.check_told(now, &staged, kept)?;
        }
        self.process_queue(now, aor, records)
    }

    /// Makes stored bindings visible, except those whose connection was closed meanwhile.
    fn bind(&mut self, now: Timestamp, staged: &StagedRegister) -> Verdict {
        let Some(upstream) = self.upstream.get(&staged.key) else { return Ok(()) };
        let Some(asked) = self.table.asked(upstream) else { return Ok(()) };
        let mut model = core::mem::take(&mut self.table.ledger.model);
        let status = self.table.apply(&mut model, staged.at, &asked);
        let closed = asked.source.flow.connection.filter(|connection: &ConnId| self.closed.contains(connection));
        closed.into_iter().for_each(|connection| model.disconnect(connection));
        self.table.ledger.model = model;
        broken_unless(status == Status::OK, Rule::Registrar, || {
            format!("{} was staged at {:?} and is refused at {now:?}", summary(&upstream.request), staged.at)
        })
    }

    /// Checks that the client of a stored or rejected record is answered accordingly.
    fn check_told(&self, now: Timestamp, staged: &StagedRegister, kept: bool) -> Verdict {
        let Some(upstream) = self.upstream.get(&staged.key) else { return Ok(()) };
        let expected = match (staged.is_barred, kept) {
            (true, _) => Status::FORBIDDEN,
            (false, true) => Status::OK,
            (false, false) => Status::SERVICE_UNAVAILABLE,
        };
        let answer = upstream.finals.first();
        let told = answer.is_some_and(|one| one.status == expected && one.at == now);
        broken_unless(told, Rule::Durable, || {
            let said = answer.map(|one| summary(&one.bytes));
            format!("the store says {kept}, and the client hears {said:?}: {}", summary(&upstream.request))
        })?;
        match answer {
            Some(one) if expected == Status::OK => {
                self.table.check_listed(now, &staged.aor, &one.bytes, &upstream.request)
            }
            Some(one) if expected == Status::SERVICE_UNAVAILABLE => {
                broken_unless(has_retry_after(&one.bytes), Rule::Durable, || format!("when? {}", summary(&one.bytes)))
            }
            _ => Ok(()),
        }
    }

    /// Processes the REGISTERs queued for an address until one waits for the store.
    fn process_queue(&mut self, now: Timestamp, aor: &[u8], records: &mut Records<'_>) -> Verdict {
        while let Some(next) = self.table.queues.get_mut(aor).and_then(VecDeque::pop_front) {
            let Some(upstream) = self.upstream.get(&next.key) else { continue };
            match upstream.finals.first().map(|one| one.status) {
                Some(status) if next.is_barred => {
                    let refused = status == Status::FORBIDDEN;
                    broken_unless(refused, Rule::Durable, || format!("{status} to one who was forgotten"))?;
                }
                Some(_) => self.judge(now, &next.key, records)?,
                None => return self.stage(now, next.key, records),
            }
        }
        Ok(())
    }

    fn on_forget(&mut self, aor: &[u8], records: &mut Records<'_>) {
        let record = if self.mode() == Durability::Memory { None } else { records.pop_front() };
        let is_loading = self.table.loading.is_some();
        self.table.ledger.forget(aor, record.map(|kept| &kept.record[..]), is_loading);
        let staged = self.table.staged.values_mut().filter(|staged| staged.aor == aor);
        staged.for_each(|staged| staged.is_barred = true);
        let queued = self.table.queues.get_mut(aor).into_iter().flatten();
        queued.for_each(|queued| queued.is_barred = true);
    }

    /// Checks that no client waits longer than two seconds, and that none is rejected for that before.
    fn check_patience(&mut self, now: Timestamp) -> Verdict {
        let late = |upstream: &super::Upstream| now > upstream.at + PATIENCE + SLACK;
        let early = |upstream: &super::Upstream| now < upstream.at + PATIENCE;
        let sent_away = |upstream: Option<&super::Upstream>| -> Result<bool, (Rule, String)> {
            let Some(upstream) = upstream else { return Ok(false) };
            let Some(answer) = upstream.finals.first() else {
                let shown = || format!("waits for too long: {}", summary(&upstream.request));
                return broken_unless(!late(upstream), Rule::Patience, shown).map(|()| false);
            };
            let in_time = answer.status == Status::SERVICE_UNAVAILABLE && !early(upstream);
            let said = has_retry_after(&answer.bytes);
            broken_unless(in_time && said, Rule::Patience, || format!("not yet: {}", summary(&answer.bytes)))?;
            Ok(true)
        };
        for staged in self.table.staged.values_mut().filter(|staged| !staged.is_answered) {
            staged.is_answered = sent_away(self.upstream.get(&staged.key))?;
        }
        for queue in self.table.queues.values_mut() {
            let mut left = VecDeque::new();
            for queued in queue.drain(..) {
                if !sent_away(self.upstream.get(&queued.key))? {
                    left.push_back(queued);
                }
            }
            *queue = left;
        }
        Ok(())
    }

    /// Checks the location table as the operator sees it.
    ///
    /// # Errors
    /// The first violation.
    pub fn check_bindings(&self, now: Timestamp, server: &Server) -> Result<(), Violation> {
        if self.table.loading.is_some() {
            return Ok(());
        }
        let all = self.table.ledger.check_all(now, server);
        all.map_err(|detail| Violation { at: now, rule: Rule::Registrar, detail })
    }
}

fn has_retry_after(answer: &[u8]) -> bool {
    Message::parse(answer).is_ok_and(|answer| answer.head().first(HeaderName::RetryAfter).is_some())
}
