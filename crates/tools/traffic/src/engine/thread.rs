//! One thread: its sockets, its timers, its share of the arrivals.
//!
//! It sleeps until something comes or is due, the last stretch before an arrival awake, for the kernel wakes late.

use std::io::{self, Write as _};
use std::iter::Peekable;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use rustix::fd::{AsRawFd as _, OwnedFd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use strowger_foundation::Timestamp;
use strowger_net::{Clock, RecvBatch};

use super::links::{Datagrams, LinkCounts, Received, Streams};
use super::plan::{Load, Plan, PlanError, Who};
use super::{OVER, PhaseReport, Progress, Shared};
use crate::arrival::Moments;
use crate::driver::{Connecting, Driver, Outbox, Setup};
use crate::meter::Meter;
use crate::metrics::Series;
use crate::script::Stop;
use crate::service::Service;

/// Arrivals that begin before the sockets are looked after again.
const BURST: usize = 32;
/// The stretch before an arrival that is waited for awake: at least and at most.
const MARGINS: (Duration, Duration) = (Duration::from_micros(20), Duration::from_micros(250));
/// How often counts are published.
const PUBLISH_EVERY: Duration = Duration::from_millis(500);
/// The longest sleep.
const MAX_SLEEP: Duration = Duration::from_millis(20);

/// How long calls may still take when the run was stopped.
const DRAIN_WHEN_STOPPED: Duration = Duration::from_secs(2);

const TIMER: Token = Token(usize::MAX);
const CALLEE_BIT: usize = 1 << 40;
const LISTENER: u32 = u32::MAX;

fn caller_token(link: u32) -> Token {
    Token(link as usize)
}

fn callee_token(link: u32) -> Token {
    Token(link as usize | CALLEE_BIT)
}

#[derive(Debug)]
enum Links {
    Udp(Datagrams),
    Tcp(Box<Streams>),
}

impl Links {
    fn outbox(&mut self) -> &mut dyn Outbox {
        match self {
            Self::Udp(datagrams) => datagrams,
            Self::Tcp(streams) => streams.as_mut(),
        }
    }

    fn flush(&mut self) {
        match self {
            Self::Udp(datagrams) => datagrams.flush(),
            Self::Tcp(streams) => streams.flush(),
        }
    }

    fn counts(&self) -> LinkCounts {
        match self {
            Self::Udp(datagrams) => datagrams.counts(),
            Self::Tcp(streams) => streams.counts(),
        }
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        match self {
            Self::Udp(datagrams) => datagrams.addresses(),
            Self::Tcp(streams) => streams.address().into_iter().collect(),
        }
    }
}

/// The sockets of a thread, before it runs.
#[derive(Debug)]
pub(super) struct Prepared {
    poll: Poll,
    caller: Option<Links>,
    callee: Option<Links>,
}

impl Prepared {
    pub(super) fn open(plan: &Plan, index: usize, first: Option<&Self>) -> Result<Self, PlanError> {
        let wrong = |error: &dyn std::fmt::Display| {
            PlanError(error.to_string().replace("[server] listen", "--listen or --from"))
        };
        let poll = Poll::new().map_err(|error| wrong(&error))?;
        let address = |number: usize| plan.addresses.get(number % plan.addresses.len().max(1)).copied();
        let any_port = |number: usize| address(number).map(|ip| SocketAddr::new(ip, 0));
        let is_stream = plan.transport.is_reliable();
        let opens_late = plan.connecting == Connecting::PersistentWithOpen;
        let registry = || poll.registry().try_clone().map_err(|error| wrong(&error));
        let stream = |listen, token_of| {
            Streams::new(listen, plan.connections, opens_late, registry()?, token_of)
                .map(|streams| Links::Tcp(Box::new(streams)))
                .map_err(|error| wrong(&error))
        };
        let caller = match &plan.caller {
            None => None,
            Some(_) if is_stream => Some(stream(any_port(index), caller_token)?),
            Some(_) => {
                let numbers = (0..plan.sockets.max(1)).map(|number| index * plan.sockets.max(1) + number);
                let addresses: Vec<_> = numbers.filter_map(any_port).collect();
                Some(Links::Udp(Datagrams::bind(&addresses, plan.buffers).map_err(|error| wrong(&error))?))
            }
        };
        let callee = match &plan.callee {
            None => None,
            Some(callee) if is_stream => {
                let listen = callee.listen.or_else(|| any_port(index));
                Some(stream(listen, callee_token)?)
            }
            Some(callee) => Some(Links::Udp(match (callee.listen, first.and_then(|first| first.callee.as_ref())) {
                (Some(_), Some(Links::Udp(first))) => first.sibling().map_err(|error| wrong(&error))?,
                (listen, _) => {
                    let listen: Vec<_> = listen.or_else(|| any_port(index)).into_iter().collect();
                    Datagrams::bind(&listen, plan.buffers).map_err(|error| wrong(&error))?
                }
            })),
        };
        Ok(Self { poll, caller, callee })
    }

    pub(super) fn callee_addresses(&self) -> Vec<SocketAddr> {
        self.callee.as_ref().map(Links::addresses).unwrap_or_default()
    }
}

/// One end: its sessions and its sockets.
#[derive(Debug)]
struct End {
    driver: Driver,
    links: Links,
    service: Option<Service>,
    /// Sockets that have something to read, as far as is known.
    readable: Vec<u32>,
    received: Received,
}

impl End {
    fn new(
        plan: &Plan,
        index: usize,
        who: Who,
        links: Links,
        (remote, wall_at_zero): (SocketAddr, Duration),
    ) -> Option<Self> {
        let (side, service) = match who {
            Who::Caller => (plan.caller.as_ref()?, None),
            Who::Callee => {
                let callee = plan.callee.as_ref()?;
                let seed = crate::driver::mix(plan.seed ^ index as u64);
                (&callee.side, callee.service.clone().map(|law| Service::new(law, seed)))
            }
        };
        let is_callee = who == Who::Callee;
        let setup = Setup {
            scripts: Arc::clone(&side.scripts),
            answers: side.answers.clone(),
            users: Arc::clone(&plan.users),
            remote,
            transport: plan.transport,
            connecting: plan.connecting,
            locals: links.addresses(),
            repeats: plan.repeats,
            t1: plan.t1,
            t2: plan.t1 * 8,
            max_ring: plan.max_ring,
            max_sessions: plan.max_sessions,
            expected: plan.expected(),
            run: plan.run,
            number: u16::try_from(index * 2 + usize::from(is_callee)).unwrap_or(u16::MAX),
            seed: plan.seed,
        };
        let readable = Vec::new();
        let mut driver = Driver::new(setup);
        driver.set_wall(wall_at_zero);
        Some(Self { driver, links, service, readable, received: Received::default() })
    }

    /// Reads what has come, a batch of each socket.
    fn read(&mut self, batch: &mut RecvBatch, clock: Clock) -> io::Result<()> {
        for link in std::mem::take(&mut self.readable) {
            match &mut self.links {
                Links::Udp(datagrams) => {
                    let Some(socket) = datagrams.sockets.get_mut(link as usize) else { continue };
                    socket.socket.recv(batch)?;
                    if batch.is_full() {
                        self.readable.push(link);
                    }
                    if batch.is_empty() {
                        continue;
                    }
                    let pair = clock.pair();
                    for datagram in batch.iter() {
                        let arrived = pair.arrival(datagram.arrival);
                        let from = (link, datagram.peer);
                        match &mut self.service {
                            Some(service) if service.applies(datagram.bytes) => {
                                service.handle_message(arrived, from, datagram.bytes);
                            }
                            _ => self.driver.handle_message(pair.monotonic, arrived, from, datagram.bytes, datagrams),
                        }
                    }
                }
                Links::Tcp(streams) => {
                    if link == LISTENER {
                        streams.accept();
                        continue;
                    }
                    let now = clock.now();
                    streams.read(link, &mut self.received);
                    let Some(peer) = self.received.peer else { continue };
                    let mut start = 0;
                    for end in &self.received.ends {
                        let bytes = self.received.bytes.get(start..*end).unwrap_or(&[]);
                        start = *end;
                        match &mut self.service {
                            Some(service) if service.applies(bytes) => service.handle_message(now, (link, peer), bytes),
                            _ => self.driver.handle_message(now, now, (link, peer), bytes, streams.as_mut()),
                        }
                    }
                    if self.received.is_closed {
                        streams.forget(link);
                        self.driver.handle_closed(now, link, streams.as_mut());
                    }
                }
            }
        }
        Ok(())
    }

    /// Does what is due.
    fn turn(&mut self, now: Timestamp) {
        if let Some(service) = &mut self.service {
            while let Some(job) = service.poll_done(now) {
                let from = (job.link, job.peer);
                self.driver.handle_message(now, now, from, &job.bytes, self.links.outbox());
                service.recycle(job);
            }
        }
        if self.driver.poll_timeout().is_some_and(|at| at <= now) {
            self.driver.handle_timeout(now, self.links.outbox());
        }
    }
}

/// What a thread has of the phase that is going on.
#[derive(Debug)]
struct Going {
    phase: usize,
    begins: Timestamp,
    /// What the choice of scripts begins with.
    seed: u64,
    moments: Option<Peekable<Moments>>,
    /// The number of the next session among those of all threads.
    number: u64,
    /// Closed loops: sessions at once.
    outstanding: u64,
    /// Since when it is counted, and whether that has come.
    counted_from: Timestamp,
    is_warm: bool,
    /// The last one has begun.
    last_begun: Option<Timestamp>,
    is_done: bool,
    links_before: LinkCounts,
    drops_before: u64,
    /// How it went, since it is counted.
    series: Series,
    cpu_before: Duration,
}

impl Going {
    /// When this thread's next session should begin.
    fn next_arrival(&mut self) -> Option<Timestamp> {
        let moments = self.moments.as_mut().filter(|_| self.last_begun.is_none())?;
        moments.peek().map(|at| self.begins + Duration::from_nanos(*at))
    }
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
    caller: Option<End>,
    callee: Option<End>,
    batch: RecvBatch,
    margin: Duration,
    /// Moments at which calls should have begun that were begun in this round.
    dues: Vec<Timestamp>,
    published: Timestamp,
}

impl Worker {
    pub(super) fn new(
        index: usize,
        plan: &Arc<Plan>,
        shared: &Arc<Shared>,
        prepared: Prepared,
        clock: Clock,
    ) -> Result<Self, PlanError> {
        let wrong = |error: &dyn std::fmt::Display| PlanError(error.to_string());
        let Prepared { poll, caller, callee } = prepared;
        let direct = callee.as_ref().and_then(|links| links.addresses().first().copied());
        let remote = plan.remote.or(direct).ok_or_else(|| PlanError("there is nobody to call".to_owned()))?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)
            .map_err(|error| wrong(&error))?;
        poll.registry()
            .register(&mut SourceFd(&timer.as_raw_fd()), TIMER, Interest::READABLE)
            .map_err(|error| wrong(&error))?;
        let pair = clock.pair();
        let wall_at_zero = Duration::from_nanos(pair.real.0.saturating_sub(pair.monotonic.as_nanos()));
        let end = |who, links: Option<Links>, token_of: fn(u32) -> Token| -> Result<Option<End>, PlanError> {
            let Some(mut links) = links else { return Ok(None) };
            match &mut links {
                Links::Udp(datagrams) => {
                    datagrams.register(poll.registry(), token_of).map_err(|error| wrong(&error))?;
                }
                Links::Tcp(streams) => {
                    streams.register_listener(poll.registry(), token_of(LISTENER)).map_err(|error| wrong(&error))?;
                    // A callee calls only to register.
                    streams.open_shared(remote);
                }
            }
            Ok(End::new(plan, index, who, links, (remote, wall_at_zero)))
        };
        let callee = end(Who::Callee, callee, callee_token)?;
        let caller = end(Who::Caller, caller, caller_token)?;
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
            margin: MARGINS.0 * 3,
            dues: Vec::with_capacity(BURST),
            published: Timestamp::ZERO,
        })
    }

    /// Runs until the last phase is over.
    pub(super) fn run(mut self, reports: &Sender<(usize, PhaseReport)>) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        let mut going: Option<Going> = None;
        loop {
            let phase = self.shared.phase.load(Ordering::Relaxed);
            let is_current = going.as_ref().is_some_and(|going| going.phase == phase);
            if !is_current {
                if let Some(going) = going.take() {
                    self.report(&going, reports);
                }
                if phase == OVER {
                    return Ok(());
                }
                going = self.enter(phase);
            }
            let arrival = going.as_mut().and_then(Going::next_arrival);
            self.wait(&mut events, arrival)?;
            for end in [&mut self.caller, &mut self.callee].into_iter().flatten() {
                end.read(&mut self.batch, self.clock)?;
            }
            let mut now = self.clock.now();
            for end in [&mut self.caller, &mut self.callee].into_iter().flatten() {
                end.turn(now);
            }
            if let Some(going) = &mut going {
                self.begin_due(going, now);
            }
            if !self.dues.is_empty() {
                now = self.clock.now();
                self.note_lateness(now, going.as_ref());
            }
            for end in [&mut self.caller, &mut self.callee].into_iter().flatten() {
                end.links.flush();
            }
            if let Some(going) = &mut going {
                self.look_after(going, now);
            }
        }
    }

    /// Prepares for a phase.
    fn enter(&mut self, phase: usize) -> Option<Going> {
        let plan = Arc::clone(&self.plan);
        let what = plan.phases.get(phase)?;
        let threads = plan.threads.max(1);
        let begins = Timestamp::from_nanos(self.shared.begins_at.load(Ordering::SeqCst));
        let seed = crate::driver::mix(plan.seed.wrapping_add(phase as u64));
        let moments = match &what.load {
            Load::Open(arrivals) => Some(arrivals.moments(seed, self.index, threads).peekable()),
            _ => None,
        };
        let outstanding = match what.load {
            Load::Closed(all) => (all / threads + usize::from(self.index < all % threads)) as u64,
            _ => 0,
        };
        for end in [&mut self.caller, &mut self.callee].into_iter().flatten() {
            end.driver.restart_meter();
        }
        Some(Going {
            phase,
            begins,
            seed,
            moments,
            number: self.index as u64,
            outstanding,
            counted_from: begins + what.warm_up,
            is_warm: what.warm_up.is_zero(),
            last_begun: None,
            is_done: false,
            links_before: self.link_counts(),
            drops_before: self.service_drops(),
            series: Series::default(),
            cpu_before: cpu_time(),
        })
    }

    /// Sleeps until there is something to do, and notes what can be read.
    fn wait(&mut self, events: &mut Events, arrival: Option<Timestamp>) -> io::Result<()> {
        let ends = || [&self.caller, &self.callee].into_iter().flatten();
        let is_busy = ends().any(|end| !end.readable.is_empty());
        let mut target = None;
        if !is_busy {
            let now = self.clock.now();
            // What must be met exactly, and what may be a little late.
            let service = ends().filter_map(|end| end.service.as_ref()?.poll_timeout()).min();
            let exact = arrival.into_iter().chain(service).min();
            let timers = ends().filter_map(|end| end.driver.poll_timeout()).min();
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
        let timeout = if target.is_some() { None } else { Some(Duration::ZERO) };
        match self.poll.poll(events, timeout) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        for event in &*events {
            if event.token() == TIMER {
                if let Some(target) = target {
                    let late = self.clock.now().saturating_since(target);
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
            if (event.is_readable() || is_stream) && !end.readable.contains(&link) {
                end.readable.push(link);
            }
        }
        Ok(())
    }

    /// Begins the sessions that are due.
    fn begin_due(&mut self, going: &mut Going, now: Timestamp) {
        let plan = Arc::clone(&self.plan);
        let Some(what) = plan.phases.get(going.phase) else { return };
        if going.last_begun.is_some() || now < going.begins {
            return;
        }
        let is_stopped = self.shared.stop.load(Ordering::Relaxed);
        let is_over = is_stopped || what.time.is_some_and(|time| now >= going.begins + what.warm_up + time);
        let (mut begun, limit) = (0, what.calls.unwrap_or(u64::MAX));
        while begun < BURST {
            let at = match (&what.load, &mut going.moments) {
                (Load::Open(_), Some(moments)) => match moments.peek() {
                    Some(at) => going.begins + Duration::from_nanos(*at),
                    None => return going.last_begun = Some(now),
                },
                (Load::Closed(_), _) => {
                    let end = if what.who == Who::Caller { &self.caller } else { &self.callee };
                    let unfinished = end.as_ref().map_or(u64::MAX, |end| end.driver.own());
                    if unfinished >= going.outstanding && !is_over {
                        return;
                    }
                    now
                }
                _ => {
                    if is_over || what.calls.is_some_and(|limit| self.answered() >= limit) {
                        going.last_begun = Some(now);
                    }
                    return;
                }
            };
            // What was due before the time was up is begun all the same, late as it is.
            let is_behind = what.time.is_some_and(|time| at >= going.begins + what.warm_up + time);
            if going.number >= limit || is_behind || is_stopped {
                going.last_begun = Some(now);
                return;
            }
            if at > now {
                return;
            }
            if let Some(moments) = &mut going.moments {
                moments.next();
                self.dues.push(at);
            }
            let pick = |range: &std::ops::Range<u32>| {
                let length = u64::from(range.end - range.start).max(1);
                range.start + u32::try_from(going.number % length).unwrap_or(0)
            };
            let users = (pick(&what.callers), pick(&what.callees));
            let end = if what.who == Who::Caller { &mut self.caller } else { &mut self.callee };
            if let Some(end) = end {
                // A refusal is counted where it happens.
                let script = what.mix.pick(going.seed, going.number);
                let _ = end.driver.begin(now, script, users, end.links.outbox());
            }
            going.number += plan.threads.max(1) as u64;
            begun += 1;
        }
    }

    fn answered(&self) -> u64 {
        self.callee.as_ref().map_or(0, |end| end.driver.meter().answered.sent)
    }

    fn note_lateness(&mut self, now: Timestamp, going: Option<&Going>) {
        let who = going.and_then(|going| self.plan.phases.get(going.phase)).map_or(Who::Caller, |phase| phase.who);
        let end = if who == Who::Caller { &mut self.caller } else { &mut self.callee };
        if let Some(end) = end {
            let lateness = &mut end.driver.meter_mut().lateness;
            for due in &self.dues {
                lateness.record(now.saturating_since(*due));
            }
        }
        self.dues.clear();
    }

    /// Ends the warm-up, finds the end of the phase, publishes what was counted.
    fn look_after(&mut self, going: &mut Going, now: Timestamp) {
        self.obey_scripts();
        let Some(what) = self.plan.phases.get(going.phase) else { return };
        if !going.is_warm && now >= going.counted_from {
            going.is_warm = true;
            for end in [&mut self.caller, &mut self.callee].into_iter().flatten() {
                end.driver.restart_meter();
            }
            (going.links_before, going.cpu_before) = (self.link_counts(), cpu_time());
            going.drops_before = self.service_drops();
        }
        let since = now.saturating_since(going.counted_from);
        if going.is_warm && going.series.is_due(since) {
            going.series.note(since, self.meter_of(what.who));
        }
        if let (Some(last), false) = (going.last_begun, going.is_done) {
            let unfinished: u64 = [&self.caller, &self.callee]
                .into_iter()
                .flatten()
                .map(|end| end.driver.meter().began.unfinished + end.driver.meter().answered.unfinished)
                .sum();
            let is_aborted = self.shared.abort.load(Ordering::Relaxed);
            // Who ends a run by hand does not wait for the last call.
            let is_stopped = self.shared.stop.load(Ordering::Relaxed);
            let drain = if is_stopped { what.drain.min(DRAIN_WHEN_STOPPED) } else { what.drain };
            if unfinished == 0 || is_aborted || now >= last + drain {
                going.is_done = true;
                self.publish();
                self.shared.done.fetch_add(1, Ordering::SeqCst);
            }
        }
        if now >= self.published + PUBLISH_EVERY {
            self.published = now;
            self.publish();
        }
    }

    /// Does what actions of scripts ask of the whole run, and passes on what they log.
    fn obey_scripts(&mut self) {
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
                // Standard error may be closed; the run goes on.
                let _ = writeln!(io::stderr(), "{line}");
            }
        }
    }

    fn publish(&self) {
        let meter = |end: &Option<End>| end.as_ref().map_or_else(Meter::default, |end| end.driver.meter().clone());
        let progress = Progress { caller: meter(&self.caller), callee: meter(&self.callee), links: self.link_counts() };
        if let Some(Ok(mut place)) = self.shared.progress.get(self.index).map(|place| place.lock()) {
            *place = progress;
        }
    }

    fn link_counts(&self) -> LinkCounts {
        let mut sum = LinkCounts::default();
        for end in [&self.caller, &self.callee].into_iter().flatten() {
            sum.merge(&end.links.counts());
        }
        sum
    }

    fn service_drops(&self) -> u64 {
        self.callee.as_ref().and_then(|end| end.service.as_ref()).map_or(0, |service| service.dropped)
    }

    /// What one end has counted; of an end that is not here, nothing.
    fn meter_of(&self, who: Who) -> &Meter {
        static NOTHING: LazyLock<Meter> = LazyLock::new(Meter::default);
        let end = if who == Who::Caller { &self.caller } else { &self.callee };
        end.as_ref().map_or(&NOTHING, |end| end.driver.meter())
    }

    /// Says what came of a phase.
    fn report(&mut self, going: &Going, reports: &Sender<(usize, PhaseReport)>) {
        let Some(what) = self.plan.phases.get(going.phase) else { return };
        let ended = going.last_begun.unwrap_or_else(|| self.clock.now());
        let meter = |end: &Option<End>| end.as_ref().map_or_else(Meter::default, |end| end.driver.meter().clone());
        let mut series = going.series.clone();
        series.note(self.clock.now().saturating_since(going.counted_from), self.meter_of(what.who));
        let report = PhaseReport {
            name: what.name.clone(),
            is_measured: what.is_measured,
            who: what.who,
            counted_from: going.counted_from,
            elapsed: ended.saturating_since(going.counted_from),
            caller: meter(&self.caller),
            callee: meter(&self.callee),
            links: self.link_counts().since(&going.links_before),
            cpu: cpu_time().saturating_sub(going.cpu_before),
            service_drops: self.service_drops() - going.drops_before,
            series,
        };
        // Nobody listens only where the run has failed already.
        let _ = reports.send((going.phase, report));
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Processor time of this thread so far.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0))
}
