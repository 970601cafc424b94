//! The engine: threads, sockets and time for [`Driver`]s, phase after phase.
//!
//! A [`Plan`] describes a run completely; [`Run::prepare`] opens the sockets, [`Run::go`] runs the plan and returns
//! the [`Report`]. Each thread has a calling end, a called end, or both, with their own sockets. Threads share
//! nothing but the number of the phase; only those that listen at one address hand messages over to each other
//! (`handover`).

mod activities;
mod handover;
mod line;
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
pub use mix::{Mix, WeightedScripts};
pub use phones::{Avalanche, DueRegistration, FlowRecovery, Phones};
pub(crate) use plan::longest;
pub use plan::{Callee, Load, Phase, Plan, PlanError, SideScripts, entropy};

use crate::handshakes::Handshakes;
use crate::meter::{Meter, OutcomeCounts};
use crate::metrics::{Recovery, Series};
use crate::process_usage::ServerSeries;
use crate::refusals::Refusals;
use crate::replay::AnswerComparison;
use crate::script::{MethodId, SessionResult};
use crate::time_histogram::TimeHistogram;
use thread::{Prepared, Worker};

/// Median lateness of calls above which the generator counts as the bottleneck; the same limit holds for the time
/// that messages wait to be read.
pub const LATE_AT_MEDIAN: Duration = Duration::from_millis(1);
/// Lateness at the 99th percentile above which the generator counts as the bottleneck.
pub const LATE_AT_P99: Duration = Duration::from_millis(50);
/// Minimum number of calls or messages for a judgement of lateness; fewer prove nothing.
pub const LATE_OF: u64 = 20;
/// Interval at which the main thread checks the phases and threads publish their counts.
const BEAT: Duration = Duration::from_millis(10);
/// Time from the start decision of a phase to its beginning, so that all threads begin together.
const HEAD_START: Duration = Duration::from_millis(20);

/// State that the threads and the main thread share.
#[derive(Debug)]
pub(super) struct Shared {
    /// Index of the phase; [`OVER`] after the last.
    phase: AtomicUsize,
    /// Beginning of the phase, in nanoseconds of the clock.
    begins_at: AtomicU64,
    /// Threads that have finished the phase.
    done: AtomicUsize,
    /// Calls answered in the phase.
    answered: AtomicU64,
    /// Whether no more calls may begin.
    stop: AtomicBool,
    /// Whether the run ends at once.
    abort: AtomicBool,
    /// Counts of each thread, from a moment ago or from the last request.
    progress: Vec<Mutex<Progress>>,
    /// Number of progress requests; threads copy all counts only on request, because that takes a while.
    progress_requests: AtomicU64,
}

/// Index that means that no phase is left.
const OVER: usize = usize::MAX;

/// Counts so far of a thread.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Calling end.
    pub caller: Meter,
    /// Called end.
    pub callee: Meter,
    /// Sockets.
    pub links: LinkCounts,
}

/// Handle that stops a run early, from another thread or a signal handler's.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<Shared>);

impl Stopper {
    /// Stops new calls; calls in progress may finish. The second call ends the run at once.
    pub fn stop(&self) {
        if self.0.stop.swap(true, Ordering::SeqCst) {
            self.0.abort.store(true, Ordering::SeqCst);
        }
    }

    /// Returns the recent counts of all threads since the phase began. Meant for repeated use, because the first
    /// result may be as old as the phase.
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

    /// Returns the sockets' part of [`progress`](Self::progress).
    fn links(&self) -> LinkCounts {
        let mut sum = LinkCounts::default();
        for progress in &self.0.progress {
            if let Ok(progress) = progress.lock() {
                sum.merge(&progress.links);
            }
        }
        sum
    }

    /// Returns the index of the current phase; `None` after the last.
    #[must_use]
    pub fn phase(&self) -> Option<usize> {
        Some(self.0.phase.load(Ordering::SeqCst)).filter(|phase| *phase != OVER)
    }
}

/// Result of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// Results of the phases, in order.
    pub phases: Vec<PhaseReport>,
    /// Whether it was stopped before its end.
    pub was_stopped: bool,
    /// Why the run ended before its last phase, and what to do; `None` if it did not.
    pub broken_off: Option<String>,
    /// Resource use of the server, if it was sampled with the [`Run::clock`].
    pub server: Option<ServerSeries>,
}

/// Result of a phase.
#[derive(Clone, Debug)]
pub struct PhaseReport {
    /// Name.
    pub name: String,
    /// Whether it is a measured phase and not a preparation.
    pub is_measured: bool,
    /// End that began the sessions.
    pub role: CallRole,
    /// Beginning of counting (after the warm-up), by the run's clock.
    pub counted_from: Timestamp,
    /// Time from there to the last arrival; for a timed phase, its time.
    pub elapsed: Duration,
    /// Calls carried within that time, whenever they began; the others were carried after it.
    pub carried_in_time: u64,
    /// Calls of this phase carried after that time.
    pub carried_behind: u64,
    /// Whether the warm-up was over before the phase ended. If not, nothing was counted.
    pub is_warm: bool,
    /// Whether there were fewer arrivals than the calls or the time of the phase demanded, because a trace ended.
    pub is_used_up: bool,
    /// Number of users, if the load consisted of users' activities.
    pub users: Option<u32>,
    /// Recovery of the phones, for an avalanche of registrations.
    pub recovery: Option<Recovery>,
    /// Results of each script that ran.
    pub scripts: Vec<ScriptOutcomes>,
    /// Calling end.
    pub caller: Meter,
    /// Called end, if it is in this process.
    pub callee: Meter,
    /// Sockets of both ends.
    pub links: LinkCounts,
    /// CPU time of all threads.
    pub cpu: Duration,
    /// Messages that found the emulated server's queue full.
    pub service_drops: u64,
    /// Calls that were dropped, because there were too many, while copies of their messages could still come: see
    /// [`Driver::forgotten`].
    pub forgotten: u64,
    /// Time series of the end that began the sessions.
    pub series: Series,
}

impl PhaseReport {
    /// Returns the meter of the end that began the sessions.
    #[must_use]
    pub const fn meter(&self) -> &Meter {
        match self.role {
            CallRole::Caller => &self.caller,
            CallRole::Callee => &self.callee,
        }
    }

    /// Returns how long messages waited to be read by the generator, at both ends: the generator's own part of the
    /// measured response times.
    #[must_use]
    pub fn unread(&self) -> TimeHistogram {
        let mut sum = self.caller.unread.clone();
        sum.merge(&self.callee.unread);
        sum
    }

    /// Returns the handshakes of both ends.
    #[must_use]
    pub fn handshakes(&self) -> Handshakes {
        let mut sum = self.caller.handshakes.clone();
        sum.merge(&self.callee.handshakes);
        sum
    }

    /// Returns how late retransmissions were, at both ends.
    #[must_use]
    pub fn resend_lateness(&self) -> TimeHistogram {
        let mut sum = self.caller.resend_lateness.clone();
        sum.merge(&self.callee.resend_lateness);
        sum
    }

    /// Returns the times from the due times of requests to their 2xx; nothing for a closed loop, which has no due
    /// times.
    pub fn from_due(&self) -> impl Iterator<Item = (MethodId, &TimeHistogram)> {
        let meter = self.meter();
        let has_moments = meter.lateness.count() > 0;
        meter.from_due.iter().filter(move |_| has_moments).map(|(verb, times)| (*verb, times))
    }

    /// Returns why the figures describe the generator rather than the measured system; `None` if they do not.
    #[must_use]
    pub fn bottleneck(&self) -> Option<String> {
        let (unread, resent) = (self.unread(), self.resend_lateness());
        let lates = [
            ("calls began late", &self.meter().lateness),
            ("messages were read late", &unread),
            ("retransmissions were late", &resent),
        ];
        for (what, late) in lates {
            let (median, p99) = (late.quantile(0.5), late.quantile(0.99));
            if late.count() >= LATE_OF && (median > LATE_AT_MEDIAN || p99 > LATE_AT_P99) {
                let busy = self.cpu.as_secs_f64() / self.elapsed.as_secs_f64().max(0.001);
                return Some(format!(
                    "{what}: median {median:.1?}, p99 {p99:.1?}, with {busy:.1} CPUs in use; \
                     if all threads are busy, use more (--threads); otherwise free CPU time on this machine, or \
                     use another machine"
                ));
            }
        }
        if let Some(why) = self.links.exhaustion() {
            return Some(why);
        }
        let LinkCounts { kernel_drops, send_failures, handover_drops, .. } = self.links;
        if handover_drops > 0 {
            return Some(format!(
                "{handover_drops} messages were dropped between threads; use fewer threads (--threads)"
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
    /// What cannot be opened, and the remedy.
    pub fn prepare(plan: Plan) -> Result<Self, PlanError> {
        plan.check()?;
        // Connections are files. Without privilege the limit may stay; running into it is counted.
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

    /// Returns the addresses of the called end; empty if it is elsewhere.
    #[must_use]
    pub fn listening(&self) -> Vec<SocketAddr> {
        self.prepared.iter().flat_map(Prepared::callee_addresses).collect()
    }

    /// Returns the clock of the run, for sampling the server meanwhile.
    #[must_use]
    pub const fn clock(&self) -> Clock {
        self.clock
    }

    /// Returns a handle that stops the run early or reads its progress.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.shared))
    }

    /// Runs all phases and waits for their end.
    ///
    /// # Errors
    /// If a thread cannot be started, or dies.
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
        // The phase begins only here, because allocating sessions takes a while.
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
        let phases: Vec<_> = phases.into_iter().flatten().collect();
        let broken_off = broken_off.map(|why| failed_handshakes(&plan, &phases).unwrap_or(why));
        Ok(Report { phases, was_stopped, broken_off, server: None })
    }
}

/// Returns the most frequent reason if all handshakes failed.
fn failed_handshakes(plan: &Plan, phases: &[PhaseReport]) -> Option<String> {
    let remote = plan.remote?;
    let mut all = Handshakes::default();
    phases.iter().for_each(|phase| all.merge(&phase.handshakes()));
    let (reason, _) = all.failures.iter().max_by_key(|(_, count)| **count).filter(|_| all.times.count() == 0)?;
    Some(format!("no connection to {}:{remote} could be used: {reason}", plan.transport.as_str().to_ascii_lowercase()))
}

/// Returns an error if no peer is reachable.
fn unreachable(plan: &Plan, links: &LinkCounts) -> Option<String> {
    let remote = plan.remote?;
    if links.received > 0 || links.unreachable + links.broken == 0 {
        return None;
    }
    let transport = plan.transport.as_str().to_ascii_lowercase();
    Some(format!(
        "cannot reach {transport}:{remote}: nothing listens there, or there is no route \
         to it; start the server, or correct --to"
    ))
}

/// Returns an error if the peer answers nothing at all.
fn silent(plan: &Plan, links: &LinkCounts) -> Option<String> {
    let remote = plan.remote.filter(|_| links.received == 0 && links.sent + links.connected > 0)?;
    let transport = plan.transport.as_str().to_ascii_lowercase();
    Some(format!(
        "no response from {transport}:{remote}: check that a SIP server runs there and that --to is correct. A firewall \
         in between may drop the packets"
    ))
}

/// Returns an error if a phase that prepares later ones has failed.
fn unprepared(plan: &Plan, phase: usize, progress: &Progress) -> Option<String> {
    // Phases after the measured one only clean up.
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
        "{failed} of {} could not be prepared ({}), mostly because of: {why}{stop} If no registration is needed, use --callee remote",
        counted(meter.began.sent, "user"),
        what.name,
    ))
}

/// Returns an ending with the server's reason and a possible remedy.
pub(crate) fn with_remedy(ending: SessionResult, refusals: &Refusals) -> String {
    match ending {
        // A server that gives its reason makes guesses superfluous.
        SessionResult::Refused(status) if refusals.has_warning(status) => {
            format!("{ending}{}", refusals.reasons(status))
        }
        SessionResult::Refused(status) => format!("{ending}{}{}", refusals.reasons(status), remedy(ending)),
        _ => format!("{ending}{}", remedy(ending)),
    }
}

/// `1 user`, `2 users`.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// Returns a possible remedy for an ending, as the rest of a sentence.
const fn remedy(ending: SessionResult) -> &'static str {
    match ending {
        SessionResult::Refused(403) => {
            ". Does the server know the users' domain (--domain), and are these users allowed? Or it holds the maximum \
             number of contacts for them from earlier runs: let them expire, or use other users (--user-pattern)"
        }
        SessionResult::Refused(401 | 407) => {
            ". Does the server know the users, their domain (--domain) and passwords (--password, --users-file)? Or disable \
             challenges, or challenges for this machine: in Strowger's configuration auth.require = [], or auth.trusted"
        }
        SessionResult::Refused(404) => {
            ". Does the server know the users, their domain (--domain) and passwords (--password, --users-file)?"
        }
        SessionResult::Refused(480) => ". The called users may not be registered",
        SessionResult::Lost => ". Does the server run, and can it handle this load?",
        _ => "",
    }
}

impl PhaseReport {
    /// Adds the result of another thread.
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
    /// Returns the comparison of both ends' answers with the recorded ones, if the phase is a replay.
    #[must_use]
    pub fn answer_comparison(&self) -> AnswerComparison {
        let mut compared = self.caller.compared.clone();
        compared.merge(&self.callee.compared);
        compared
    }
}

/// Outcomes of a script's sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptOutcomes {
    /// Which end ran it.
    pub who: CallRole,
    /// Name.
    pub name: String,
    /// Sessions; `offered` and `refused` are not used.
    pub accounts: OutcomeCounts,
}
