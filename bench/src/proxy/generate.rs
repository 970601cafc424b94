//! The generator: the engine of `strowger load`, one run for all loads of a server. Callees stay registered at the
//! same address, so no user appears as a second phone.

use std::net::SocketAddr;
use std::time::Duration;

use strowger_traffic::arrival::Arrivals;
use strowger_traffic::engine::{self, Phase, PhaseReport, Plan, Report, Run};
use strowger_traffic::options::{Options, Target, workload_with};

use super::DOMAIN;
use super::figures::{Figures, Key};
use super::scenario::Scenario;
use super::steps::{Load, Step};
use super::watch::{Sample, Watcher, within};

/// Maximum time for the last calls of a load to end, so that none overlaps with the next load.
const DRAIN: Duration = Duration::from_secs(35);

/// Results of a run.
#[derive(Debug)]
pub struct Outcome {
    /// Figures of each step.
    pub figures: Vec<Figures>,
    /// Processor time per call over the first steps of the same rate: seconds since the start, microseconds.
    pub course: Vec<(f64, f64)>,
    /// Growth of memory per answered call in the first step, in bytes.
    pub answered_bytes: Option<f64>,
    /// Private and shared memory at the end, in bytes.
    pub memory: (f64, f64),
}

/// Runs all steps against the server of process `pid`.
///
/// # Errors
/// If nothing can be measured: the server does not answer, or the generator cannot run.
pub fn run(
    scenario: Scenario,
    (address, pid): (SocketAddr, u32),
    steps: &[Step],
    users: u32,
) -> Result<Outcome, String> {
    let mut plan = plan(scenario, address, users, &[])?;
    let at = plan.phases.iter().position(|phase| phase.is_measured).ok_or("the workload measures nothing")?;
    let pattern = plan.phases.remove(at);
    for (number, step) in steps.iter().enumerate() {
        plan.phases.insert(at + number, phase(&pattern, step)?);
    }
    let (report, samples) = carry_out(plan, address, pid)?;
    let measured: Vec<&PhaseReport> = report.phases.iter().filter(|phase| phase.is_measured).collect();
    let figures = measured.iter().zip(steps).map(|(phase, step)| figures(scenario, step, phase, &samples)).collect();
    let last = samples.last().copied().unwrap_or_default();
    let (mut course, mut answered_bytes) = (Vec::new(), None);
    if let (Some(first), Some(step)) = (measured.first(), steps.first().filter(|step| step.is_first)) {
        let same = steps.iter().take_while(|other| other.load == step.load).map(Step::length).sum();
        course = course_of(step.load, &samples, first, same);
        answered_bytes = growth(&samples, first, step.time);
    }
    Ok(Outcome { figures, course, answered_bytes, memory: (last.private, last.shared) })
}

/// Returns the growth of memory per ringing call in bytes: `rate` calls per second begin for `time` and none is
/// answered.
///
/// # Errors
/// As [`run`].
pub fn ringing((address, pid): (SocketAddr, u32), rate: u32, time: Duration, users: u32) -> Result<f64, String> {
    let mut plan = plan(Scenario::Call, address, users, &[("ring".to_owned(), "60s".to_owned())])?;
    let at = plan.phases.iter().position(|phase| phase.is_measured).ok_or("the workload measures nothing")?;
    let step = Step { load: Load::Rate(rate), is_first: true, settle: Duration::ZERO, time };
    let pattern = plan.phases.remove(at);
    // The calls do not end.
    plan.phases.truncate(at);
    plan.phases.push(Phase { drain: Duration::ZERO, ..phase(&pattern, &step)? });
    let (report, samples) = carry_out(plan, address, pid)?;
    let phase = report.phases.iter().find(|phase| phase.is_measured).ok_or("nothing was measured")?;
    let (from, time) = (phase.counted_from + time / 4, time - time / 4);
    let (first, last) = within(&samples, from, time).ok_or("there are no samples of the server")?;
    let calls = f64::from(rate) * last.at.saturating_since(first.at).as_secs_f64();
    Ok((last.memory() - first.memory()) / calls)
}

fn plan(scenario: Scenario, address: SocketAddr, users: u32, set: &[(String, String)]) -> Result<Plan, String> {
    let said = |error: engine::PlanError| error.to_string();
    let workload = workload_with(scenario.workload(), set, 1.0).map_err(said)?;
    let to = Target::parse(&format!("udp:{address}")).map_err(said)?;
    let options = Options {
        users,
        domain: Some(DOMAIN.to_owned()),
        sockets: scenario.sockets(),
        has_segmentation: true,
        time: Some(Duration::from_secs(1)),
        drain: Some(DRAIN),
        ..Options::new(workload, Some(to), engine::entropy())
    };
    Ok(options.plan().map_err(said)?.0)
}

fn phase(pattern: &Phase, step: &Step) -> Result<Phase, String> {
    let load = match step.load {
        Load::Rate(rate) => {
            engine::Load::Open(Arrivals::parse("poisson", f64::from(rate)).map_err(|error| error.to_string())?)
        }
        Load::Saturation(count) => engine::Load::Closed(usize::try_from(count).unwrap_or(1)),
    };
    // The generator polls continuously: times must include only the server's wake-ups, and the server must not spend
    // processor time on waking the generator.
    Ok(Phase {
        load,
        calls: None,
        time: Some(step.time),
        warm_up: step.settle,
        is_busy_polling: true,
        ..pattern.clone()
    })
}

fn carry_out(plan: Plan, address: SocketAddr, pid: u32) -> Result<(Report, Vec<Sample>), String> {
    let run = Run::prepare(plan).map_err(|error| error.to_string())?;
    let watcher = Watcher::start(pid, address.port(), run.clock());
    let report = run.go().map_err(|error| error.to_string());
    let samples = watcher.stop();
    let report = report?;
    match &report.broken_off {
        Some(why) => Err(why.clone()),
        None => Ok((report, samples)),
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn figures(scenario: Scenario, step: &Step, phase: &PhaseReport, samples: &[Sample]) -> Figures {
    let meter = phase.meter();
    let elapsed = phase.elapsed.as_secs_f64();
    let mut figures = Figures::default();
    figures.put(Key::Rate, phase.carried_in_time as f64 / elapsed);
    let sent = meter.began.sent as f64;
    figures.put(Key::Lost, 100.0 * (sent - meter.began.carried as f64).max(0.0) / sent);
    let (verb, answer) = scenario.timed();
    if let Some(times) = meter.answer(verb, answer).filter(|times| times.count() > 0) {
        figures.put(Key::P50, times.quantile(0.5).as_secs_f64() * 1e6);
        figures.put(Key::P99, times.quantile(0.99).as_secs_f64() * 1e6);
    }
    // In a closed loop nothing is scheduled, so nothing is late.
    let is_late = matches!(step.load, Load::Rate(_)) && phase.bottleneck().is_some();
    figures.put(Key::Late, f64::from(u8::from(is_late)));
    if let Some((first, last)) = within(samples, phase.counted_from, phase.elapsed) {
        let (used, time) = (last.since(&first), last.at.saturating_since(first.at).as_secs_f64());
        let calls = phase.carried_in_time as f64 * time / elapsed;
        let processor = used.user + used.system;
        figures.put(Key::Processor, 1e6 * processor / calls);
        figures.put(Key::Kernel, 100.0 * used.system / processor);
        figures.put(Key::Cores, processor / time);
        figures.put(Key::Switches, used.switches / calls);
        figures.put(Key::Drops, used.drops);
        let most = samples.iter().filter(|sample| sample.at >= first.at && sample.at <= last.at);
        figures.put(Key::Memory, most.map(Sample::memory).fold(0.0, f64::max) / f64::from(1 << 20));
    }
    figures
}

/// Returns the processor time per call for each second of `time`, from the start of the first step.
fn course_of(load: Load, samples: &[Sample], first: &PhaseReport, time: Duration) -> Vec<(f64, f64)> {
    let Load::Rate(rate) = load else { return Vec::new() };
    let inside = samples.iter().filter(|sample| sample.at >= first.counted_from);
    let mut points = Vec::new();
    let mut last: Option<&Sample> = None;
    for sample in inside.take_while(|sample| sample.at <= first.counted_from + time) {
        let Some(from) = last else {
            last = Some(sample);
            continue;
        };
        let width = sample.at.saturating_since(from.at).as_secs_f64();
        if width >= 0.95 {
            let used = sample.since(from);
            let at = sample.at.saturating_since(first.counted_from).as_secs_f64();
            points.push((at, 1e6 * (used.user + used.system) / (f64::from(rate) * width)));
            last = Some(sample);
        }
    }
    points
}

/// Returns the growth of memory per call of the first step in bytes, from its second second on.
#[expect(clippy::cast_precision_loss, reason = "for people")]
fn growth(samples: &[Sample], first: &PhaseReport, time: Duration) -> Option<f64> {
    let skipped = Duration::from_secs(2).min(time / 2);
    let (from, to) = within(samples, first.counted_from + skipped, time - skipped)?;
    let part = to.at.saturating_since(from.at).as_secs_f64() / first.elapsed.as_secs_f64();
    Some((to.memory() - from.memory()) / (first.carried_in_time as f64 * part))
}
