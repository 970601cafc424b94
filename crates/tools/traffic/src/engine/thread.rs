//! One thread: its sockets, its timers, its share of the arrivals.
//!
//! It sleeps until something arrives or is due, but polls during the last stretch before an arrival, because the
//! kernel wakes it late. Due calls take precedence over received messages: while a call is near, only a few messages
//! are handled at a time. Messages that have waited longer than the call is late come before the call, so that
//! neither starves the other.

mod endpoint;
mod phones;
mod publish;
mod readable;
mod sockets;
mod users;
mod window;

use std::io::{self, Write as _};
use std::iter::Peekable;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use rustix::fd::{AsRawFd as _, OwnedFd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use strowger_foundation::Timestamp;
use strowger_net::{Clock, RecvBatch};

use endpoint::Endpoint;
use publish::cpu_time;
pub(super) use sockets::Prepared;
use sockets::{CALLEE_BIT, LISTENER, Links, WAKER, callee_token, caller_token};
use window::window_end;

use super::activities::{ActivitySchedule, CallRole};
use super::links::{LinkCounts, cannot};
use super::phones::Phones;
use super::plan::{Load, Phase, Plan, PlanError};
use super::{OVER, PhaseReport, Shared};
use crate::arrival::ArrivalTimes;
use crate::metrics::{Series, accounts_of};
use crate::script::Stop;
use crate::service::Service;

/// Arrivals that begin before the sockets are checked again.
const BURST: usize = 32;
/// Messages handled before the next check for a due call: some tens of microseconds, with what is sent.
const PORTION: usize = 8;
/// Waiting time of messages from which they come before calls that are less late.
const MAX_UNREAD: Duration = Duration::from_millis(1);
/// Time slice of the thread if others want its CPU. The scheduler favours a thread with a shorter slice when it
/// wakes, so calls begin on time. Its share of the CPU is the same.
const SLICE: Duration = Duration::from_micros(100);
/// Minimum and maximum time before an arrival during which the thread polls.
const MARGINS: (Duration, Duration) = (Duration::from_micros(20), Duration::from_micros(250));
/// Wait of a closed loop whose session was refused, if no session ends earlier.
const HELD_FOR: Duration = Duration::from_millis(20);
/// Interval at which counts are published.
const PUBLISH_EVERY: Duration = Duration::from_millis(500);
/// Longest sleep.
const MAX_SLEEP: Duration = Duration::from_millis(20);

/// Time for calls in progress after the run was stopped.
const DRAIN_WHEN_STOPPED: Duration = Duration::from_secs(2);

const TIMER: Token = Token(usize::MAX);

/// A thread's state of the current phase.
#[derive(Debug)]
struct PhaseState {
    phase: usize,
    is_awake: bool,
    begins: Timestamp,
    /// Seed of the choice of scripts.
    seed: u64,
    moments: Option<Peekable<ArrivalTimes>>,
    /// Activities of users, if the phase has them.
    habits: Option<ActivitySchedule>,
    /// Phones, if the phase is an avalanche.
    phones: Option<Phones>,
    /// Number of the next session, over all threads.
    number: u64,
    /// Closed loops: target number of sessions in progress.
    outstanding: u64,
    /// After a refusal: the number of sessions then in progress, and the time until which no other is tried unless
    /// one of them ends.
    held: Option<(u64, Timestamp)>,
    /// Beginning of counting, and whether it has been reached.
    counted_from: Timestamp,
    is_warm: bool,
    /// End of the counted arrivals, and whether it has passed.
    counted_until: Timestamp,
    is_cooling: bool,
    /// Number of the first counted session.
    first_counted: u64,
    /// When the last session began, or when the phase's time was over.
    last_begun: Option<Timestamp>,
    /// Once that time has come: calls carried until then, whenever they began, and the counted ones among them.
    carried_in_time: Option<(u64, u64)>,
    /// Whether arrivals ran out although more were requested.
    is_used_up: bool,
    is_done: bool,
    links_before: LinkCounts,
    drops_before: u64,
    forgotten_before: u64,
    /// Time series since counting began.
    series: Series,
    cpu_before: Duration,
}

impl PhaseState {
    /// Returns the number that no session reaches. Calls of the warm-up are additional to the requested ones.
    fn limit(&self, what: &Phase, thread: usize) -> u64 {
        let limit = what.calls.filter(|_| self.is_warm).unwrap_or(u64::MAX);
        limit.saturating_add(self.first_counted.saturating_sub(thread as u64))
    }

    /// Returns when this thread's next session should begin.
    fn next_arrival(&mut self) -> Option<Timestamp> {
        if self.last_begun.is_some() {
            return self.last_begun.filter(|_| self.carried_in_time.is_none());
        }
        if let Some(habits) = &self.habits {
            return habits.next_at();
        }
        if let Some(phones) = &self.phones {
            return phones.next_at();
        }
        self.moments.as_mut()?.peek().map(|at| self.begins + Duration::from_nanos(*at))
    }
}

/// The end whose batch it is, and the index of the next message in it.
#[derive(Clone, Copy, Debug)]
struct BatchCursor {
    who: CallRole,
    link: u32,
    next: usize,
}

/// A thread of the generator.
#[derive(Debug)]
pub(super) struct Worker {
    index: usize,
    plan: Arc<Plan>,
    shared: Arc<Shared>,
    clock: Clock,
    poll: Poll,
    timer: OwnedFd,
    caller: Option<Endpoint>,
    callee: Option<Endpoint>,
    batch: RecvBatch,
    /// Rest of the batch that is still to be handled.
    unread: Option<BatchCursor>,
    /// Longest wait among the messages read last.
    waited: Duration,
    /// Whether a batch of each socket is read for every few arrivals, however late those are: a phone whose response
    /// is not read would retransmit its request for nothing.
    reads_all: bool,
    margin: Duration,
    /// First times of users for each phase, until it begins.
    habits: Vec<Option<ActivitySchedule>>,
    /// Due times of the calls that began in this round.
    dues: Vec<Timestamp>,
    published: Timestamp,
    /// Number of progress requests at the last publication.
    asked: u64,
    /// Answered calls that have been published to all threads.
    answered: u64,
}

impl Worker {
    pub(super) fn new(
        index: usize,
        plan: &Arc<Plan>,
        shared: &Arc<Shared>,
        prepared: Prepared,
        clock: Clock,
    ) -> Result<Self, PlanError> {
        let wrong = cannot;
        let Prepared { poll, caller, callee, mut service, mut post } = prepared;
        let direct = callee.as_ref().and_then(|links| links.addresses().first().copied());
        let remote = plan.remote.or(direct).ok_or_else(|| PlanError("there is no destination for calls".to_owned()))?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)
            .map_err(|error| wrong(&error))?;
        poll.registry()
            .register(&mut SourceFd(&timer.as_raw_fd()), TIMER, Interest::READABLE)
            .map_err(|error| wrong(&error))?;
        let pair = clock.pair();
        let wall_at_zero = Duration::from_nanos(pair.real.0.saturating_sub(pair.monotonic.as_nanos()));
        let mut end = |who, links: Option<Links>, token_of: fn(u32) -> Token| -> Result<Option<Endpoint>, PlanError> {
            let Some(mut links) = links else { return Ok(None) };
            match &mut links {
                Links::Udp(datagrams) => {
                    datagrams.register(poll.registry(), token_of).map_err(|error| wrong(&error))?;
                }
                Links::Tcp(streams) => {
                    streams.register_listener(poll.registry(), token_of(LISTENER)).map_err(|error| wrong(&error))?;
                    // A callee opens connections only to register.
                    if who == CallRole::Caller || plan.remote.is_some() {
                        streams.open_shared(remote);
                    }
                }
            }
            let shared = if who == CallRole::Callee { (service.take(), post.take()) } else { (None, None) };
            Ok(Endpoint::new(plan, index, who, links, shared, (remote, wall_at_zero)))
        };
        let callee = end(CallRole::Callee, callee, callee_token)?;
        let caller = end(CallRole::Caller, caller, caller_token)?;
        Ok(Self {
            index,
            plan: Arc::clone(plan),
            shared: Arc::clone(shared),
            clock,
            poll,
            timer,
            caller,
            callee,
            batch: RecvBatch::new(),
            unread: None,
            waited: Duration::ZERO,
            reads_all: false,
            margin: MARGINS.0 * 3,
            habits: users::prepare(plan, index),
            dues: Vec::with_capacity(BURST),
            published: Timestamp::ZERO,
            asked: 0,
            answered: 0,
        })
    }

    /// Runs until the last phase is over.
    pub(super) fn run(mut self, reports: &Sender<(usize, PhaseReport)>) -> io::Result<()> {
        // If the kernel does not support it, calls begin later on a busy machine, and their lateness shows it.
        let _ = strowger_net::shorten_slice(SLICE);
        let mut events = Events::with_capacity(1024);
        let mut going: Option<PhaseState> = None;
        loop {
            let phase = self.shared.phase.load(Ordering::Acquire);
            let is_current = going.as_ref().is_some_and(|going| going.phase == phase);
            if !is_current {
                if let Some(going) = going.take() {
                    self.report(&going, reports);
                }
                if phase == OVER {
                    return Ok(());
                }
                going = self.prepare_phase(phase);
            }
            let arrival = going.as_mut().and_then(PhaseState::next_arrival);
            if self.unread.is_none() {
                let is_awake = going.as_ref().is_some_and(|going| going.is_awake);
                self.wait(&mut events, arrival, is_awake)?;
            }
            if let (Some(going), Some(at)) = (&mut going, arrival) {
                let now = self.clock.now();
                if at <= now && !self.is_behind(arrival, now) {
                    self.begin_due(going, now);
                    self.flush();
                }
            }
            let is_awaited = arrival.is_some() && !self.reads_all && !self.is_behind(arrival, self.clock.now());
            self.read(if is_awaited { PORTION } else { usize::MAX })?;
            let now = self.clock.now();
            for end in [&mut self.caller, &mut self.callee].into_iter().flatten() {
                end.turn(now);
            }
            if let Some(going) = going.as_mut().filter(|_| !self.is_behind(arrival, now)) {
                self.begin_due(going, now);
            }
            self.flush();
            if let Some(going) = &mut going {
                self.update_phase(going, now);
            }
        }
    }

    fn flush(&mut self) {
        for end in [&mut self.caller, &mut self.callee].into_iter().flatten() {
            end.flush();
        }
    }

    /// Returns whether the messages read last have waited longer than the call due at `arrival` is late.
    fn is_behind(&self, arrival: Option<Timestamp>, now: Timestamp) -> bool {
        arrival.is_some_and(|at| self.waited > MAX_UNREAD.max(now.saturating_since(at))) && !self.reads_all
    }

    /// Handles received messages: a batch of each socket, and about `most` messages.
    fn read(&mut self, most: usize) -> io::Result<()> {
        let mut left = most;
        self.waited = Duration::ZERO;
        for (who, end) in [(CallRole::Caller, &mut self.caller), (CallRole::Callee, &mut self.callee)] {
            let Some(end) = end else { continue };
            if self.unread.is_some_and(|unread| unread.who != who) {
                continue;
            }
            while left > 0 {
                let (link, next) = match self.unread.take() {
                    Some(BatchCursor { link, next, .. }) => (link, next),
                    None => match end.readable.pop() {
                        Some(next) => (next.0, end.receive(next, &mut self.batch, self.clock)?),
                        None => break,
                    },
                };
                let done = end.process_batch(link, &self.batch, (next, left), self.clock);
                self.waited = self.waited.max(end.waited);
                left = left.saturating_sub(done);
                let next = next + done;
                self.unread = (next < self.batch.len()).then_some(BatchCursor { who, link, next });
            }
        }
        Ok(())
    }

    /// Prepares a phase.
    fn prepare_phase(&mut self, phase: usize) -> Option<PhaseState> {
        let plan = Arc::clone(&self.plan);
        let what = plan.phases.get(phase)?;
        let threads = plan.threads.max(1);
        let begins = Timestamp::from_nanos(self.shared.begins_at.load(Ordering::SeqCst));
        let seed = crate::driver::mix(plan.seed.wrapping_add(phase as u64));
        let moments = match &what.load {
            Load::Open(arrivals) => Some(arrivals.times(seed, self.index, threads).peekable()),
            _ => None,
        };
        let outstanding = match what.load {
            Load::Closed(all) => {
                (all / threads + usize::from(self.index < all % threads)).min(plan.max_sessions) as u64
            }
            _ => 0,
        };
        for end in [&mut self.caller, &mut self.callee].into_iter().flatten() {
            end.driver.restart_meter();
        }
        self.answered = 0;
        self.publish(true);
        let habits = self.habits(phase, what, begins);
        let phones = self.phones(what, seed, begins);
        self.reads_all = phones.is_some();
        Some(PhaseState {
            phase,
            is_awake: what.is_busy_polling,
            habits,
            phones,
            begins,
            seed,
            moments,
            number: self.index as u64,
            outstanding,
            held: None,
            counted_from: begins + what.warm_up,
            is_warm: what.warm_up.is_zero(),
            counted_until: window_end(&plan, what, begins),
            is_cooling: false,
            first_counted: self.index as u64,
            last_begun: None,
            carried_in_time: None,
            is_used_up: false,
            is_done: false,
            links_before: self.link_counts(),
            drops_before: self.service_drops(),
            forgotten_before: self.forgotten(),
            series: Series::default(),
            cpu_before: cpu_time(),
        })
    }

    /// Sleeps until there is something to do, unless it must poll, and marks the readable sockets.
    fn wait(&mut self, events: &mut Events, arrival: Option<Timestamp>, is_awake: bool) -> io::Result<()> {
        let ends = || [&self.caller, &self.callee].into_iter().flatten();
        let is_busy = ends().any(|end| !end.readable.is_empty());
        let mut target = None;
        if !is_busy && !is_awake {
            let now = self.clock.now();
            // Times that must be met exactly, and times that may be slightly late.
            let service = |is_cluster: bool| {
                let all = ends().filter_map(|end| end.service.as_ref());
                all.filter(|service| service.is_cluster() == is_cluster).filter_map(Service::poll_timeout).min()
            };
            let exact = arrival.into_iter().chain(service(false)).min();
            // Polling for each of many servers would leave hardly any sleep. The times at which they become free are
            // exact regardless.
            let timers = ends().filter_map(|end| end.driver.poll_timeout()).chain(service(true)).min();
            let wake = exact.map(|at| Timestamp::from_nanos(at.as_nanos().saturating_sub(nanos(self.margin))));
            let wake = wake.into_iter().chain(timers).min().unwrap_or(now + MAX_SLEEP).min(now + MAX_SLEEP);
            if wake > now {
                let sleep = wake - now;
                let value = Timespec {
                    tv_sec: i64::try_from(sleep.as_secs()).unwrap_or(0),
                    tv_nsec: i64::from(sleep.subsec_nanos().max(1)),
                };
                let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
                timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
                target = Some(wake);
            }
        }
        if target.is_some() && self.callee.as_mut().is_some_and(|end| !end.park()) {
            target = None;
        }
        let timeout = if target.is_some() { None } else { Some(Duration::ZERO) };
        match self.poll.poll(events, timeout) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        self.callee.iter().for_each(Endpoint::unpark);
        let now = self.clock.now();
        for event in events.iter().filter(|event| event.token() != WAKER) {
            if event.token() == TIMER {
                if let Some(target) = target {
                    let late = now.saturating_since(target);
                    self.margin = (self.margin * 15 / 16).max(late * 5 / 4).clamp(MARGINS.0, MARGINS.1);
                }
                continue;
            }
            let token = event.token().0;
            let link = u32::try_from(token & (CALLEE_BIT - 1)).unwrap_or(LISTENER);
            let end = if token & CALLEE_BIT == 0 { &mut self.caller } else { &mut self.callee };
            let Some(end) = end else { continue };
            if event.is_error()
                && let Links::Udp(datagrams) = &mut end.links
            {
                datagrams.take_errors(link);
            }
            let is_stream = matches!(end.links, Links::Tcp(_));
            if event.is_readable() || is_stream {
                end.readable.push(link, now);
            }
        }
        Ok(())
    }

    /// Begins the sessions that are due, and records how late they are.
    fn begin_due(&mut self, going: &mut PhaseState, now: Timestamp) {
        self.end_warm_up(going, now);
        self.end_window(going, now);
        self.begin_all_due(going, now);
        if !self.dues.is_empty() {
            self.note_lateness(self.clock.now(), going);
        }
    }

    fn begin_all_due(&mut self, going: &mut PhaseState, now: Timestamp) {
        let plan = Arc::clone(&self.plan);
        let Some(what) = plan.phases.get(going.phase) else { return };
        if going.last_begun.is_some() || now < going.begins {
            return;
        }
        match &what.load {
            Load::Activities(list) => return self.begin_habits(going, list, what, now),
            Load::Avalanche(_) => return self.begin_phones(going, what, now),
            _ => {}
        }
        let is_stopped = self.shared.stop.load(Ordering::Relaxed);
        let cool_down = if going.counted_until == Timestamp::MAX { Duration::ZERO } else { plan.cool_down };
        let until = what.time.map(|time| going.begins + what.warm_up + time + cool_down);
        let is_over = is_stopped || until.is_some_and(|until| now >= until);
        let mut begun = 0;
        while begun < BURST {
            let limit = going.limit(what, self.index);
            let at = match (&what.load, &mut going.moments) {
                (Load::Open(_), Some(moments)) => match moments.peek() {
                    Some(at) => going.begins + Duration::from_nanos(*at),
                    None => {
                        let is_limited = what.calls.is_some() || until.is_some();
                        going.is_used_up = is_limited && going.number < limit && until.is_none_or(|until| now < until);
                        return going.last_begun = Some(now);
                    }
                },
                (Load::Closed(_), _) => {
                    let end = if what.role == CallRole::Caller { &self.caller } else { &self.callee };
                    let unfinished = end.as_ref().map_or(u64::MAX, |end| end.driver.originated_count());
                    let is_held = going.held.is_some_and(|(count, until)| unfinished >= count && now < until);
                    if (unfinished >= going.outstanding || is_held) && !is_over {
                        return;
                    }
                    now
                }
                _ => {
                    if is_over || going.is_warm && what.calls.is_some_and(|limit| self.answered_calls() >= limit) {
                        going.last_begun = Some(now);
                    }
                    return;
                }
            };
            // A session that was due before the end of the time begins even if it is late.
            let is_behind = until.is_some_and(|until| at >= until);
            if going.number >= limit || is_stopped {
                return going.last_begun = Some(now);
            }
            if is_behind {
                // The phase continues without arrivals until its time is over.
                return going.last_begun = until;
            }
            if at > now {
                return;
            }
            self.end_warm_up(going, now);
            self.end_window(going, now);
            if let Some(moments) = &mut going.moments {
                moments.next();
                self.dues.push(at);
            }
            let users = (nth(&what.callers, going.number), nth(&what.callees, going.number));
            let end = if what.role == CallRole::Caller { &mut self.caller } else { &mut self.callee };
            if let Some(end) = end {
                // A refusal is counted where it happens.
                let script = what.mix.pick(going.seed, going.number);
                let is_refused = end.driver.begin_late((now, at), script, users, end.links.outbox()).is_err();
                going.held = is_refused.then(|| (end.driver.originated_count(), now + HELD_FOR));
            }
            going.number += plan.threads.max(1) as u64;
            begun += 1;
        }
    }

    /// Returns the calls that all threads have answered in this phase.
    fn answered_calls(&mut self) -> u64 {
        let own = self.meter_of(CallRole::Callee).answered.sent;
        let more = own.saturating_sub(self.answered);
        self.answered = own;
        self.shared.answered.fetch_add(more, Ordering::Relaxed) + more
    }

    fn note_lateness(&mut self, now: Timestamp, going: &PhaseState) {
        let who = self.plan.phases.get(going.phase).map_or(CallRole::Caller, |phase| phase.role);
        let end = if who == CallRole::Caller { &mut self.caller } else { &mut self.callee };
        if let (Some(end), false) = (end, going.is_cooling) {
            let lateness = &mut end.driver.meter_mut().lateness;
            for due in &self.dues {
                lateness.record(now.saturating_since(*due));
            }
        }
        self.dues.clear();
    }

    /// Ends the warm-up, detects the end of the phase, and publishes the counts.
    fn update_phase(&mut self, going: &mut PhaseState, now: Timestamp) {
        self.apply_script_stop();
        self.tell_phones(going, now);
        self.end_window(going, now);
        let Some(what) = self.plan.phases.get(going.phase) else { return };
        // A run stopped by hand does not wait for the last call.
        let is_stopped = self.shared.stop.load(Ordering::Relaxed);
        if is_stopped && going.last_begun.is_some_and(|last| last > now) {
            going.last_begun = Some(now);
        }
        if going.carried_in_time.is_none() && going.last_begun.is_some_and(|last| now >= last) {
            let meter = self.meter_of(what.role);
            going.carried_in_time = Some((meter.success_times(), accounts_of(meter).carried));
        }
        let since = now.saturating_since(going.counted_from);
        if going.is_warm && going.series.is_due(since) {
            going.series.record(since, self.meter_of(what.role), &self.unread_times());
        }
        if let (Some(last), false) = (going.last_begun.filter(|last| now >= *last), going.is_done) {
            let unfinished: u64 = [&self.caller, &self.callee]
                .into_iter()
                .flatten()
                .map(|end| end.driver.meter().began.unfinished + end.driver.meter().answered.unfinished)
                .sum();
            let is_aborted = self.shared.abort.load(Ordering::Relaxed);
            let drain = if is_stopped { what.drain.min(DRAIN_WHEN_STOPPED) } else { what.drain };
            if unfinished == 0 || is_aborted || now >= last + drain {
                going.is_done = true;
                self.publish(true);
                self.shared.done.fetch_add(1, Ordering::SeqCst);
            }
        }
        if now >= self.published + PUBLISH_EVERY {
            self.published = now;
            let asked = self.shared.progress_requests.load(Ordering::Relaxed);
            let is_asked = std::mem::replace(&mut self.asked, asked) != asked;
            self.publish(is_asked);
        }
    }

    /// Applies what actions of scripts request for the whole run, and prints what they log.
    fn apply_script_stop(&mut self) {
        for end in [&mut self.caller, &mut self.callee].into_iter().flatten() {
            match end.driver.take_stop() {
                Some(Stop::Now) => {
                    self.shared.stop.store(true, Ordering::SeqCst);
                    self.shared.abort.store(true, Ordering::SeqCst);
                }
                Some(_) => self.shared.stop.store(true, Ordering::SeqCst),
                None => {}
            }
            for line in end.driver.take_log() {
                // Standard error may be closed; the run continues.
                let _ = writeln!(io::stderr(), "{line}");
            }
        }
    }
}

/// Returns the user of a range whose turn it is.
fn nth(range: &std::ops::Range<u32>, number: u64) -> u32 {
    let length = u64::from(range.end - range.start).max(1);
    range.start + u32::try_from(number % length).unwrap_or(0)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
