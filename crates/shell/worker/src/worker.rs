//! The loop of one core: wait, receive, let the shards act, send.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use mio::{Events, Poll, Token};
use strowger_foundation::Timestamp;
use strowger_net::{Clock, RecvBatch};

use crate::balance::{Decision, Report};
use crate::brain::Maker;
use crate::contact::{Contact, Mail};
use crate::crew::{Crew, STOOD_STILL};
use crate::desk::Desk;
use crate::handover::HANDOVER_QUEUE;
use crate::options::{Spread, WorkerOptions};
use crate::spin::Spinner;

/// How old a posted status may become while there is something new to tell.
const STATUS_EVERY: Duration = Duration::from_millis(100);

/// How long a worker sleeps at most while nobody would wake it: it waits for room that another one makes, or for a socket of
/// which the kernel cannot tell.
const UNWOKEN: Duration = Duration::from_millis(1);

/// How much of what a worker says of its load is new; the rest is what it said before. Chance makes 100 ms uneven.
const NEWS: f64 = 0.4;

/// Messages taken from one other worker before the sockets are looked at again.
const TAKE_BATCH: usize = 64;

/// So many rounds in a row timers wait at most.
const MAX_PUT_OFF: u32 = 256;

/// Timers fire together, up to this much late: under load hundreds a second would each wake a worker, and none of those of
/// SIP is so exact. The shortest, T1, is 500 ms.
pub const TIMER_TICK: Duration = Duration::from_millis(4);

/// Every so many looks one is at everything that the kernel has; the others are at the socket that was the last to have
/// datagrams, and at what other workers have given. Where each of those finds something, all else would wait for ever.
pub(crate) const LOOKS_AT_ONE_SOCKET: u32 = 8;

/// The doorbell's events; sockets have the index of their listener, those for new work this more.
pub(crate) const DOORBELL: Token = Token(usize::MAX);
pub(crate) const FIRST_NEW_WORK: usize = 1 << 31;

/// One worker.
pub(crate) struct Worker<M: Maker> {
    poll: Poll,
    clock: Clock,
    inbox: RecvBatch,
    contact: Arc<Contact>,
    pub(crate) crew: Crew<M>,
    /// When the status was last posted.
    posted: Timestamp,
    /// Whether something happened since.
    is_dirty: bool,
    /// Rounds in a row in which timers waited for what had come before.
    put_off: u32,
    spinner: Spinner,
    /// Looks since the kernel was last asked for all that it has.
    looks: u32,
    /// Since when it waits, or waited before this round.
    idle_since: Option<Timestamp>,
    meter: Meter,
    report: Report,
    spread: Spread,
}

/// How much of its time a worker is at work.
#[derive(Clone, Copy, Debug, Default)]
struct Meter {
    /// Since when.
    since: Timestamp,
    /// When it last began to work.
    woke: Timestamp,
    busy: Duration,
}

impl Meter {
    /// How long it has worked since it woke.
    fn rest(&mut self, now: Timestamp) -> Duration {
        let worked = now.max(self.woke) - self.woke;
        self.busy += worked;
        self.woke = now;
        worked
    }

    fn wake(&mut self, now: Timestamp) {
        self.woke = now;
    }

    /// The share since this was last asked.
    fn take(&mut self, now: Timestamp) -> f64 {
        self.rest(now);
        let (busy, all) = (std::mem::take(&mut self.busy), now.max(self.since) - self.since);
        self.since = now;
        if all.is_zero() { 0.0 } else { (busy.as_secs_f64() / all.as_secs_f64()).min(1.0) }
    }
}

impl<M: Maker> Worker<M> {
    /// A worker that does not run yet.
    pub(crate) fn new(poll: Poll, clock: Clock, desk: Desk<M>, options: &WorkerOptions) -> Self {
        let contact = Arc::clone(&desk.exits.contact);
        let report = Report::of(desk.exits.shards());
        let (inbox, crew, spinner) = (RecvBatch::new(), Crew::new(desk), Spinner::new(options.spin));
        let (posted, is_dirty, idle_since) = (Timestamp::ZERO, true, None);
        let (meter, spread, looks) = (Meter::default(), options.spread, 0);
        Self {
            poll,
            clock,
            inbox,
            contact,
            crew,
            posted,
            is_dirty,
            put_off: 0,
            spinner,
            looks,
            idle_since,
            meter,
            report,
            spread,
        }
    }

    /// Runs until it is told to stop.
    ///
    /// # Errors
    /// When the kernel refuses to be waited for: nothing that the loop could mend.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(256);
        // Before it does anything: whoever was answered finds its shards in the status.
        self.post(self.clock.now());
        while !self.contact.is_stopping.load(Ordering::Acquire) {
            self.wait(&mut events)?;
            self.handle_events(&events);
            self.round();
        }
        let now = self.clock.now();
        // Others may have handed over last answers for connections of this worker.
        self.crew.take_over(now, HANDOVER_QUEUE);
        self.crew.desk.exits.flush(now);
        self.crew.desk.exits.hand_in();
        self.crew.desk.exits.ring(now, false);
        self.post(now);
        Ok(())
    }

    /// Waits until there is something to do, and not at all where there is already.
    pub(crate) fn wait(&mut self, events: &mut Events) -> io::Result<()> {
        if self.crew.has_work() {
            return self.look(events, Some(Duration::ZERO));
        }
        // Others are rung for when there is nothing more to give them.
        if self.crew.desk.exits.owes_rings() {
            self.looks += 1;
            if self.looks < LOOKS_AT_ONE_SOCKET && self.crew.try_hot(&self.clock, &mut self.inbox) {
                events.clear();
                return Ok(());
            }
            self.crew.desk.exits.ring(self.clock.now(), false);
        }
        let began = self.clock.now();
        self.spinner.on_worked(self.meter.rest(began));
        self.idle_since = Some(began);
        let next = self.next_deadline(began);
        if self.wait_awake(events, began, next)? {
            return Ok(());
        }
        self.contact.doorbell.park();
        let timeout = if self.is_called() {
            Some(Duration::ZERO)
        } else if !self.crew.wait_for_hot() {
            Some(UNWOKEN)
        } else {
            (next != Timestamp::MAX).then(|| next - self.clock.now())
        };
        let outcome = self.look(events, timeout);
        self.contact.doorbell.unpark();
        self.meter.wake(self.clock.now());
        outcome
    }

    /// Waits without giving up the processor, where what comes usually comes so soon that to be woken would cost more;
    /// whether it came.
    fn wait_awake(&mut self, events: &mut Events, began: Timestamp, next: Timestamp) -> io::Result<bool> {
        events.clear();
        let limit = self.spinner.limit(!self.crew.desk.seats.is_empty());
        if limit.is_zero() {
            return Ok(false);
        }
        let until = (began + limit).min(next);
        let mut now = began;
        while now < until {
            self.meter.wake(now);
            self.looks += 1;
            if self.looks >= LOOKS_AT_ONE_SOCKET {
                self.look(events, Some(Duration::ZERO))?;
                if !events.is_empty() || self.crew.has_lost() {
                    return Ok(true);
                }
            }
            if self.is_called() || self.crew.try_hot(&self.clock, &mut self.inbox) {
                return Ok(true);
            }
            now = self.clock.now();
        }
        self.spinner.on_missed(now - began);
        if now < next {
            return Ok(false);
        }
        // Something is due, so there is no time to sleep.
        self.look(events, Some(Duration::ZERO))?;
        Ok(true)
    }

    /// Asks the kernel what there is.
    fn look(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        self.looks = 0;
        let outcome = self.poll.poll(events, timeout);
        self.crew.ask_hot();
        match outcome {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether somebody else in the process has left something.
    fn is_called(&self) -> bool {
        !self.crew.is_handed_nothing() || self.contact.is_called()
    }

    /// Until when there is nothing to do unless something arrives.
    fn next_deadline(&self, now: Timestamp) -> Timestamp {
        let status = if self.is_dirty { self.posted + STATUS_EVERY } else { Timestamp::MAX };
        let exits = &self.crew.desk.exits;
        let retry = exits.next_retry();
        let overload = self.crew.desk.admission.next_deadline();
        let crowded = if exits.is_crowded() { now + UNWOKEN } else { Timestamp::MAX };
        self.next_timer().min(status).min(retry).min(crowded).min(overload)
    }

    /// When timers fire next: the first tick at which one is due.
    fn next_timer(&self) -> Timestamp {
        let at = self.crew.desk.next_wakeup().min(self.crew.desk.exits.streams.next_deadline());
        next_tick(at)
    }

    /// Takes note of what the kernel said.
    pub(crate) fn handle_events(&mut self, events: &Events) {
        for event in events {
            if event.token() == DOORBELL {
                self.fetch_mail();
            } else if !self.crew.desk.exits.streams.on_event(event)
                && let Token(token) = event.token()
            {
                let exits = &mut self.crew.desk.exits;
                if let Some(port) = exits.ports.get_mut(token) {
                    port.on_event(event);
                } else if let Some(Some(queue)) = exits.new_work.get_mut(token.wrapping_sub(FIRST_NEW_WORK)) {
                    queue.outlet.on_event(event);
                }
            }
        }
    }

    fn fetch_mail(&mut self) {
        let mail = self.contact.mail.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Mail { snapshot, version }) = mail {
            let now = self.clock.now();
            self.crew.desk.handle_config(now, &snapshot, version);
            self.post(now);
        }
    }

    /// One round of work: a batch from each socket that has one, some messages of each connection and of each other worker,
    /// the timers.
    pub(crate) fn round(&mut self) {
        let Self { clock, inbox, crew, contact, is_dirty, put_off, .. } = self;
        // Between two rounds all that was counted has left too.
        if contact.take_arrived() {
            crew.desk.take_arrivals(clock.now(), post_status);
            *is_dirty = true;
        }
        let began = crew.read_at();
        for listener in 0..crew.desk.exits.ports.len() {
            *is_dirty |= crew.receive(listener, clock, inbox);
        }
        // What a batch was received with serves the round: reading the clock is dear where a round is a packet.
        let now = if crew.read_at() > began { crew.read_at() } else { clock.now() };
        *is_dirty |= crew.read_streams(now);
        // What was handed over before a connection was closed must be heard before that: the post is taken first, then all
        // that the rings have, and then the post is opened.
        let post = contact.take_post();
        *is_dirty |= crew.take_over(now, if post.is_some() { HANDOVER_QUEUE } else { TAKE_BATCH });
        if let Some(post) = post {
            crew.open_post(now, post);
            *is_dirty = true;
        }
        crew.desk.ask_wakeups(now);
        // Who has stood still, or whose machine has, reads what came meanwhile before it takes anybody for silent; not for ever,
        // where more comes than can be read.
        let is_late = now.saturating_since(crew.desk.next_wakeup()) > STOOD_STILL;
        let is_put_off = is_late && (*put_off == 0 || crew.is_catching_up(now)) && *put_off < MAX_PUT_OFF;
        *put_off = if is_put_off { *put_off + 1 } else { 0 };
        if is_put_off {
            // The kernel may not have said yet what there is.
            crew.look_at_all();
        }
        if !is_put_off && next_tick(crew.desk.next_wakeup()) <= now {
            crew.desk.handle_timeout(now);
            *is_dirty = true;
        }
        if next_tick(crew.desk.exits.streams.next_deadline()) <= now {
            crew.desk.exits.streams.handle_timeout(now);
            *is_dirty = true;
        }
        crew.desk.exits.flush(now);
        if crew.has_lost() {
            crew.handle_lost(now);
            crew.desk.exits.flush(now);
            *is_dirty = true;
        }
        crew.desk.exits.hand_in();
        crew.desk.adjust_admission(now);
        crew.desk.let_go(now, post_status);
        crew.desk.ask_wakeups(now);
        crew.desk.exits.ring(now, true);
        let first = crew.take_first_arrival();
        // Also what was received while it waited awake.
        self.is_dirty |= first.is_some();
        if let Some(since) = self.idle_since.take() {
            self.spinner.on_waited(first.map_or(Duration::MAX, |first| first.max(since) - since));
        }
        if self.is_dirty && now - self.posted >= STATUS_EVERY {
            let load = self.meter.take(now);
            self.crew.desk.load += (load - self.crew.desk.load) * NEWS;
            self.post(now);
            self.balance(now);
        }
    }

    /// Leaves the status where others read it.
    pub(crate) fn post(&mut self, now: Timestamp) {
        post_status(&mut self.crew.desk, now);
        self.posted = now;
        self.is_dirty = false;
    }

    /// Reports what there was to do, and sees to it that shards move where that is due.
    fn balance(&mut self, now: Timestamp) {
        let desk = &mut self.crew.desk;
        if desk.exits.others() == 0 {
            return;
        }
        (self.report.at, self.report.busy) = (now, desk.load);
        desk.take_loads(&mut self.report.loads);
        let common = Arc::clone(&desk.common);
        // Somebody else is at it: this report is the next one's.
        let Ok(mut balance) = common.balance.try_lock() else { return };
        balance.report(desk.exits.index, &mut self.report);
        // A server that ends waits for its shards to become idle, and does not want any to be missed.
        if desk.snapshot.draining {
            return;
        }
        let Some(Decision { plan, active }) = balance.decide(now) else { return };
        // Nobody decides anything else before the plan is told and carried out, so this is not overtaken by a later change.
        drop(balance);
        desk.exits.receive_at(active, self.spread);
        // Before anybody acts by it, those who lose shards can know it.
        let givers = plan.givers();
        let others = (0..=desk.exits.others()).filter(|worker| !givers.contains(worker));
        let _turn = desk.exits.contact.turn();
        for worker in givers.iter().copied().chain(others) {
            desk.exits.contact_of(worker).into_iter().for_each(|contact| contact.tell_plan(&plan));
        }
    }
}

fn post_status<M: Maker>(desk: &mut Desk<M>, now: Timestamp) {
    let status = desk.status(now);
    desk.exits.contact.board.post(now, status);
}

/// The first tick that is not before `at`.
fn next_tick(at: Timestamp) -> Timestamp {
    let tick = u64::try_from(TIMER_TICK.as_nanos()).unwrap_or(1);
    at.as_nanos().checked_next_multiple_of(tick).map_or(Timestamp::MAX, Timestamp::from_nanos)
}
