//! The engine: threads, sockets and time for [`Driver`]s, phase after phase.
//!
//! A [`Plan`] says everything; [`Run::prepare`] opens the sockets, [`Run::go`] runs it and gives the [`Report`]. Each thread
//! has an end that calls, an end that is called, or both, with sockets of their own, and shares nothing with the others but
//! the number of the phase; only those that listen at one address hand each other what belongs to the other's calls
//! (`handover`).

mod activities;
mod handover;
mod links;
mod mix;
mod phones;
mod plan;
mod streams;
mod thread;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use strowger_foundation::Timestamp;
use strowger_net::Clock;

pub use activities::{Activity, ActivitySchedule, CallRole, DueActivity, GapFrom};
pub use links::LinkCounts;
pub use mix::{Mix, Weighted};
pub use phones::{Avalanche, DueRegistration, FlowRecovery, Phones};
pub(crate) use plan::longest;
pub use plan::{Callee, Load, Phase, Plan, PlanError, SideScripts, entropy};

use crate::meter::{Meter, OutcomeCounts};
use crate::metrics::{Recovery, Series};
use crate::process_usage::ServerSeries;
use crate::refusals::Refusals;
use crate::replay::AnswerComparison;
use crate::script::{Ending, MethodId};
use crate::time_histogram::TimeHistogram;
use thread::{Prepared, Worker};

/// Lateness that half of all calls may have before the generator is taken for the bottleneck; messages may wait for as long
/// to be read.
pub const LATE_AT_MEDIAN: Duration = Duration::from_millis(1);
/// And lateness that a hundredth may exceed.
pub const LATE_AT_P99: Duration = Duration::from_millis(50);
/// Calls, or messages, from which on lateness is judged: one of a few says nothing.
pub const LATE_OF: u64 = 20;
/// How often the main thread looks after the phases, and threads publish what they have counted.
const BEAT: Duration = Duration::from_millis(10);
/// How long it takes from the decision for a phase to its beginning, so that all threads begin together.
const HEAD_START: Duration = Duration::from_millis(20);

/// What threads and the main thread tell each other.
#[derive(Debug)]
pub(super) struct Shared {
    /// The phase; [`OVER`] after the last.
    phase: AtomicUsize,
    /// When it begins, in nanoseconds of the clock.
    begins_at: AtomicU64,
    /// Threads that have done their part of it.
    done: AtomicUsize,
    /// Calls that were answered in it.
    answered: AtomicU64,
    /// No more calls are to begin.
    stop: AtomicBool,
    /// End at once.
    abort: AtomicBool,
    /// Each thread's counts, as they were a moment ago, or when somebody last asked.
    progress: Vec<Mutex<Progress>>,
    /// How often somebody has asked: to copy all counts takes the threads a while.
    progress_requests: AtomicU64,
}

/// No phase any more.
const OVER: usize = usize::MAX;

/// What a thread has counted so far.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// The calling end.
    pub caller: Meter,
    /// The called end.
    pub callee: Meter,
    /// Its sockets.
    pub links: LinkCounts,
}

/// Ends a run early, from another thread or a signal's.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<Shared>);

impl Stopper {
    /// Lets no more calls begin; those that are going on may end. A second time, the run ends at once.
    pub fn stop(&self) {
        if self.0.stop.swap(true, Ordering::SeqCst) {
            self.0.abort.store(true, Ordering::SeqCst);
        }
    }

    /// What was counted until a moment ago, over all threads, since the phase began; for whoever asks again and again, since
    /// the first answer may be as old as the phase.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.0.progress_requests.fetch_add(1, Ordering::Relaxed);
        let mut sum = Progress::default();
        for progress in &self.0.progress {
            let Ok(progress) = progress.lock() else { continue };
            sum.caller.merge(&progress.caller);
            sum.callee.merge(&progress.callee);
            sum.links.merge(&progress.links);
        }
        sum
    }

    /// The sockets' part of [`progress`](Self::progress).
    fn links(&self) -> LinkCounts {
        let mut sum = LinkCounts::default();
        for progress in &self.0.progress {
            if let Ok(progress) = progress.lock() {
                sum.merge(&progress.links);
            }
        }
        sum
    }

    /// The phase that is going on, and `None` after the last.
    #[must_use]
    pub fn phase(&self) -> Option<usize> {
        Some(self.0.phase.load(Ordering::SeqCst)).filter(|phase| *phase != OVER)
    }
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// What came of each phase, in their order.
    pub phases: Vec<PhaseReport>,
    /// Whether it was stopped before its end.
    pub was_stopped: bool,
    /// Why it ended before its last phase; the text names the remedy.
    pub broken_off: Option<String>,
    /// What the server used, where somebody watched it by the [`Run::clock`].
    pub server: Option<ServerSeries>,
}

/// What came of a phase.
#[derive(Clone, Debug)]
pub struct PhaseReport {
    /// Its name.
    pub name: String,
    /// Whether it is what the run is about, and no preparation.
    pub is_measured: bool,
    /// Which end began the sessions.
    pub role: CallRole,
    /// Its beginning (behind the warm-up), by the run's clock.
    pub counted_from: Timestamp,
    /// From there to the last arrival; where the phase had a time, that time.
    pub elapsed: Duration,
    /// Calls that were carried until then, whenever they began: the others were carried behind it.
    pub carried_in_time: u64,
    /// Calls of this phase that were carried behind it.
    pub carried_behind: u64,
    /// Whether its warm-up was over before it ended. Where not, nothing was counted.
    pub is_warm: bool,
    /// Whether there were fewer arrivals than its calls or its time asked for: a trace has an end.
    pub is_used_up: bool,
    /// How many users there were, where it was about users.
    pub users: Option<u32>,
    /// How phones came back, where it was about an avalanche of registrations.
    pub recovery: Option<Recovery>,
    /// What came of each script that was run.
    pub scripts: Vec<ScriptOutcomes>,
    /// The calling end.
    pub caller: Meter,
    /// The called end, where it is in this process.
    pub callee: Meter,
    /// The sockets of both.
    pub links: LinkCounts,
    /// Processor time of all threads.
    pub cpu: Duration,
    /// Messages that found the emulated server's queue full.
    pub service_drops: u64,
    /// Calls that were forgotten while copies of their messages might still come, because there were too many: see
    /// [`Driver::forgotten`].
    pub forgotten: u64,
    /// How it went over time, at the end that began the sessions.
    pub series: Series,
}

impl PhaseReport {
    /// The end that began the sessions.
    #[must_use]
    pub const fn meter(&self) -> &Meter {
        match self.role {
            CallRole::Caller => &self.caller,
            CallRole::Callee => &self.callee,
        }
    }

    /// How long messages had waited where the generator came to read them, at both ends: its own part of the times that it
    /// says of answers.
    #[must_use]
    pub fn unread(&self) -> TimeHistogram {
        let mut sum = self.caller.unread.clone();
        sum.merge(&self.callee.unread);
        sum
    }

    /// How late messages were sent again, at both ends.
    #[must_use]
    pub fn resend_lateness(&self) -> TimeHistogram {
        let mut sum = self.caller.resend_lateness.clone();
        sum.merge(&self.callee.resend_lateness);
        sum
    }

    /// The times from when requests were due to their 2xx; none where nothing was due, for a closed loop has no moments.
    pub fn from_due(&self) -> impl Iterator<Item = (MethodId, &TimeHistogram)> {
        let meter = self.meter();
        let has_moments = meter.lateness.count() > 0;
        meter.from_due.iter().filter(move |_| has_moments).map(|(verb, times)| (*verb, times))
    }

    /// Why the figures say more about the generator than about what it measured; `None` where they do not.
    #[must_use]
    pub fn bottleneck(&self) -> Option<String> {
        let (unread, resent) = (self.unread(), self.resend_lateness());
        let lates = [
            ("calls began late", &self.meter().lateness),
            ("messages waited to be read", &unread),
            ("messages were sent again late", &resent),
        ];
        for (what, late) in lates {
            let (median, p99) = (late.quantile(0.5), late.quantile(0.99));
            if late.count() >= LATE_OF && (median > LATE_AT_MEDIAN || p99 > LATE_AT_P99) {
                let busy = self.cpu.as_secs_f64() / self.elapsed.as_secs_f64().max(0.001);
                return Some(format!(
                    "{what}: {median:.1?} at the median, {p99:.1?} at the 99th percentile, while it had {busy:.1} processors; \
                     where it needs as many as it has threads, use more (--threads), and else leave it more of the machine, or \
                     use another one"
                ));
            }
        }
        if let Some(why) = self.links.exhaustion() {
            return Some(why);
        }
        let LinkCounts { kernel_drops, send_failures, handover_drops, .. } = self.links;
        if handover_drops > 0 {
            return Some(format!(
                "{handover_drops} messages were dropped on their way from one thread to another; use fewer threads (--threads)"
            ));
        }
        if kernel_drops > 0 {
            return Some(format!(
                "{kernel_drops} messages were dropped because the generator did not read them in time; use more threads \
                 (--threads) or larger buffers (net.core.rmem_max)"
            ));
        }
        (send_failures > 0).then(|| format!("{send_failures} messages could not be sent"))
    }
}

/// A run whose sockets are open.
#[derive(Debug)]
pub struct Run {
    plan: Arc<Plan>,
    shared: Arc<Shared>,
    prepared: Vec<Prepared>,
    clock: Clock,
}

impl Run {
    /// Opens everything that the plan needs.
    ///
    /// # Errors
    /// What cannot be, and the remedy.
    pub fn prepare(plan: Plan) -> Result<Self, PlanError> {
        plan.check()?;
        // Connections are files; without privilege the limit may stay, and running into it is counted.
        let _ = strowger_net::raise_open_files();
        let threads = plan.threads.max(1);
        let shared = Arc::new(Shared {
            phase: AtomicUsize::new(0),
            begins_at: AtomicU64::new(u64::MAX),
            done: AtomicUsize::new(0),
            answered: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            abort: AtomicBool::new(false),
            progress: (0..threads).map(|_| Mutex::default()).collect(),
            progress_requests: AtomicU64::new(0),
        });
        let plan = Arc::new(plan);
        let mut prepared: Vec<Prepared> = Vec::with_capacity(threads);
        for index in 0..threads {
            let first = prepared.first();
            let next = Prepared::open(&plan, index, first)?;
            prepared.push(next);
        }
        Prepared::connect(&mut prepared, &plan)?;
        Ok(Self { plan, shared, prepared, clock: Clock::start() })
    }

    /// Where the called end listens; empty where it is elsewhere.
    #[must_use]
    pub fn listening(&self) -> Vec<SocketAddr> {
        self.prepared.iter().flat_map(Prepared::callee_addresses).collect()
    }

    /// The clock of the run, for whoever watches the server meanwhile.
    #[must_use]
    pub const fn clock(&self) -> Clock {
        self.clock
    }

    /// Ends the run early, or looks at it.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.shared))
    }

    /// Runs all phases, and waits for their end.
    ///
    /// # Errors
    /// When a thread cannot be started, or dies.
    pub fn go(self) -> Result<Report, PlanError> {
        let Self { plan, shared, prepared, clock } = self;
        let threads = prepared.len();
        let (sender, reports) = std::sync::mpsc::channel();
        let begin = |phase: usize| {
            let at = clock.now() + HEAD_START;
            shared.begins_at.store(at.as_nanos(), Ordering::SeqCst);
            shared.done.store(0, Ordering::SeqCst);
            shared.answered.store(0, Ordering::SeqCst);
            shared.phase.store(phase, Ordering::SeqCst);
        };
        let workers: Result<Vec<_>, _> = prepared
            .into_iter()
            .enumerate()
            .map(|(index, prepared)| Worker::new(index, &plan, &shared, prepared, clock))
            .collect();
        let workers = workers?;
        // Only now: to make room for sessions takes a while.
        begin(0);
        let mut handles = Vec::with_capacity(threads);
        for (index, worker) in workers.into_iter().enumerate() {
            let sender = sender.clone();
            let handle = std::thread::Builder::new().name(format!("load-{index}")).spawn(move || worker.run(&sender));
            handles.push(handle.map_err(|error| PlanError(format!("a thread cannot be started: {error}")))?);
        }
        drop(sender);
        let stopper = Stopper(Arc::clone(&shared));
        let mut broken_off = None;
        for phase in 0..plan.phases.len() {
            if phase > 0 {
                begin(phase);
            }
            while shared.done.load(Ordering::SeqCst) < threads && !shared.abort.load(Ordering::SeqCst) {
                if handles.iter().any(std::thread::JoinHandle::is_finished) {
                    break;
                }
                std::thread::sleep(BEAT);
                if broken_off.is_none()
                    && let Some(why) = unreachable(&plan, &stopper.links())
                {
                    broken_off = Some(why);
                    shared.stop.store(true, Ordering::SeqCst);
                }
            }
            broken_off = broken_off.or_else(|| unprepared(&plan, phase, &stopper.progress()));
            if broken_off.is_some() || shared.stop.load(Ordering::SeqCst) {
                break;
            }
        }
        if !shared.stop.load(Ordering::SeqCst) {
            broken_off = broken_off.or_else(|| silent(&plan, &stopper.links()));
        }
        shared.phase.store(OVER, Ordering::SeqCst);
        let was_stopped = shared.stop.load(Ordering::SeqCst);
        for handle in handles {
            let ended =
                handle.join().map_err(|_| PlanError("a thread of the generator died; this is a bug".to_owned()))?;
            ended.map_err(|error| PlanError(format!("a thread of the generator ended: {error}")))?;
        }
        let mut phases: Vec<Option<PhaseReport>> = plan.phases.iter().map(|_| None).collect();
        for (phase, report) in reports.try_iter() {
            if let Some(place) = phases.get_mut(phase) {
                match place {
                    None => *place = Some(report),
                    Some(sum) => sum.merge(&report),
                }
            }
        }
        for phase in phases.iter_mut().flatten() {
            phase.scripts = phase.script_outcomes(&plan);
            phase.gather_transactions();
        }
        Ok(Report { phases: phases.into_iter().flatten().collect(), was_stopped, broken_off, server: None })
    }
}

/// Whether nobody is there at all.
fn unreachable(plan: &Plan, links: &LinkCounts) -> Option<String> {
    let remote = plan.remote?;
    if links.received > 0 || links.unreachable + links.broken == 0 {
        return None;
    }
    let transport = plan.transport.as_str().to_ascii_lowercase();
    Some(format!(
        "nobody answers at {transport}:{remote}: the system says that nothing listens there, or that no way leads \
         there; start the server, or correct --to"
    ))
}

/// Whether whoever is there says nothing at all.
fn silent(plan: &Plan, links: &LinkCounts) -> Option<String> {
    let remote = plan.remote.filter(|_| links.received == 0 && links.sent + links.connected > 0)?;
    let transport = plan.transport.as_str().to_ascii_lowercase();
    Some(format!(
        "not one answer came from {transport}:{remote}: is it a SIP server, does it run, and is --to right? A firewall \
         between may drop what is sent"
    ))
}

/// Whether a phase that prepares the next ones has failed.
fn unprepared(plan: &Plan, phase: usize, progress: &Progress) -> Option<String> {
    // What comes behind the measured phase only tidies up.
    let prepares = plan.phases.get(phase..).unwrap_or(&[]).iter().any(|phase| phase.is_measured);
    let what = plan.phases.get(phase).filter(|phase| prepares && !phase.is_measured)?;
    let meter = match what.role {
        CallRole::Caller => &progress.caller,
        CallRole::Callee => &progress.callee,
    };
    let failed = meter.began.sent - meter.began.carried;
    let (ending, _) = meter.failures.iter().max_by_key(|(_, count)| **count)?;
    let why = with_remedy(*ending, &meter.refusals);
    // A remedy may be a question.
    let stop = if why.ends_with('?') { "" } else { "." };
    Some(format!(
        "{failed} of {} could not be prepared ({}), most because of: {why}{stop} Where no one must register, use --callee there",
        counted(meter.began.sent, "user"),
        what.name,
    ))
}

/// An ending with what the server said, and what may help against it.
pub(crate) fn with_remedy(ending: Ending, refusals: &Refusals) -> String {
    match ending {
        // Who says why needs no guesses.
        Ending::Refused(status) if refusals.has_warning(status) => format!("{ending}{}", refusals.reasons(status)),
        Ending::Refused(status) => format!("{ending}{}{}", refusals.reasons(status), remedy(ending)),
        _ => format!("{ending}{}", remedy(ending)),
    }
}

/// `1 user`, `2 users`.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// What may help against an ending, as the rest of a sentence.
const fn remedy(ending: Ending) -> &'static str {
    match ending {
        Ending::Refused(403) => {
            ". Does the server know the users' domain (--domain), and may these users do so? Or it has as many contacts of them \
             as it keeps, from earlier runs: let them expire, or use others (--user-pattern)"
        }
        Ending::Refused(401 | 407) => {
            ". Does the server know the users, their domain (--domain) and passwords (--password, --users-file)? Or is it to ask \
             nobody, or not this machine: in Strowger's configuration auth.require = [], or auth.trusted"
        }
        Ending::Refused(404) => {
            ". Does the server know the users, their domain (--domain) and passwords (--password, --users-file)?"
        }
        Ending::Refused(480) => ". Nobody may have registered whom the calls were for",
        Ending::Lost => ". Does the server run, and has it work for so many?",
        _ => "",
    }
}

impl PhaseReport {
    /// Adds another thread's.
    fn merge(&mut self, other: &Self) {
        self.caller.merge(&other.caller);
        self.callee.merge(&other.callee);
        self.links.merge(&other.links);
        self.elapsed = self.elapsed.max(other.elapsed);
        self.carried_in_time += other.carried_in_time;
        self.carried_behind += other.carried_behind;
        self.is_warm |= other.is_warm;
        self.is_used_up &= other.is_used_up;
        self.cpu += other.cpu;
        self.service_drops += other.service_drops;
        self.forgotten += other.forgotten;
        if let Some(theirs) = &other.recovery {
            self.recovery.get_or_insert_default().merge(theirs);
        }
        self.series.merge(&other.series);
    }
}

impl PhaseReport {
    /// The answers of both ends beside those of a record, where the phase is a replay.
    #[must_use]
    pub fn answer_comparison(&self) -> AnswerComparison {
        let mut compared = self.caller.compared.clone();
        compared.merge(&self.callee.compared);
        compared
    }
}

/// The accounts of a script's sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptOutcomes {
    /// Which end ran it.
    pub who: CallRole,
    /// Its name.
    pub name: String,
    /// Its sessions; none of them is offered or refused.
    pub accounts: OutcomeCounts,
}
