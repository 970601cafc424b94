//! A frozen engine under call load: the effect on callers and registering phones.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use strowger_traffic::engine::{self, PhaseReport, Plan, Run};
use strowger_traffic::meter::ResponseClass;
use strowger_traffic::options::{Options, Target, workload_with};
use strowger_traffic::script::MethodId;

use super::contender::Contender;
use super::deployment::{Deployment, Environment};
use super::requests::{Client, wait};
use crate::register::contender::free_address;
use crate::register::message::{DOMAIN, FIRST_CSEQ};

/// Users per side. All callees are registered at the first server.
const USERS: u32 = 1_000;
/// Number of caller ports.
const SOCKETS: usize = 8;
/// Maximum time for calls to end after the load stops.
const DRAIN: Duration = Duration::from_secs(4);
/// Initial time that is not counted.
const WARM_UP: Duration = Duration::from_secs(2);
/// Interval between REGISTERs of new phones.
const REGISTER_EVERY: Duration = Duration::from_millis(100);
/// Maximum wait for a response to a REGISTER.
const PATIENCE: Duration = Duration::from_secs(4);
/// Maximum time for the servers to be in sync again.
const RECOVERY: Duration = Duration::from_secs(60);

/// Schedule of a run.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// Calls per second.
    pub rate: f64,
    /// Duration of calls before the engine is frozen.
    pub before: Duration,
    /// Duration of the freeze.
    pub frozen: Duration,
}

/// Results of calls.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Calls {
    /// Started calls that count.
    pub begun: u64,
    /// Calls that were not answered and ended normally.
    pub failed: u64,
    /// Median time from INVITE to 180, in milliseconds.
    pub p50_ms: f64,
    /// 99th percentile of that time, in milliseconds.
    pub p99_ms: f64,
}

/// Results of REGISTERs.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Registers {
    /// REGISTERs sent.
    pub sent: u64,
    /// Answered with 200.
    pub taken: u64,
    /// Answered with 503.
    pub unavailable: u64,
    /// Answered with another status, or never.
    pub others: u64,
    /// Shortest time to a 503, in milliseconds.
    pub least_ms: Option<f64>,
    /// Longest time to a 503, in milliseconds.
    pub most_ms: Option<f64>,
}

/// Results of a frozen engine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FreezeResult {
    /// Contender under test.
    pub contender: Contender,
    /// Calls per second.
    pub rate: f64,
    /// Duration of the freeze in seconds.
    pub frozen_s: f64,
    /// Calls before the freeze.
    pub before: Calls,
    /// Calls during the freeze.
    pub during: Calls,
    /// REGISTERs during the freeze.
    pub registers: Registers,
    /// Seconds from the engine's resumption to the first 200 to a REGISTER.
    pub served_s: Option<f64>,
    /// Seconds until no write waits for the engine.
    pub drained_s: Option<f64>,
    /// Seconds until both servers have the same number of registrations.
    pub same_s: Option<f64>,
    /// Registrations of the two servers at the end.
    pub registrations: [u64; 2],
}

/// Freezes the engine of a contender and measures the effect.
///
/// # Errors
/// If a process does not start.
pub fn run(contender: Contender, course: Schedule, place: &Environment) -> Result<FreezeResult, String> {
    let mut site = Deployment::start(contender, true, place)?;
    let (server, callees) = (site.first().address, free_address());
    let before = call(&plan(server, callees, course.rate, course.before, true)?)?;
    let calls = plan(server, callees, course.rate, course.frozen.saturating_sub(WARM_UP), false)?;
    let engine = site.engine.as_ref().ok_or("there is no engine")?;
    engine.freeze();
    let is_over = AtomicBool::new(false);
    let (during, registers) = thread::scope(|scope| {
        let registering = scope.spawn(|| register(server, course.frozen, &is_over));
        let during = call(&calls);
        is_over.store(true, Ordering::Relaxed);
        (during, registering.join())
    });
    engine.thaw();
    let thawed = Instant::now();
    let registers = registers.map_err(|_| "the thread of the REGISTERs panicked")??;
    let mut frozen = FreezeResult {
        contender,
        rate: course.rate,
        frozen_s: course.frozen.as_secs_f64(),
        before,
        during: during?,
        registers,
        served_s: served_again(server)?.map(|()| thawed.elapsed().as_secs_f64()),
        drained_s: None,
        same_s: None,
        registrations: [0; 2],
    };
    recover(&mut site, thawed, &mut frozen)?;
    Ok(frozen)
}

/// Plans calls through the server to phones at `callees`, which register first if `registers` is set.
fn plan(server: SocketAddr, callees: SocketAddr, rate: f64, time: Duration, registers: bool) -> Result<Plan, String> {
    let said = |error: engine::PlanError| error.to_string();
    let workload = workload_with("proxy-200", &[], 1.0).map_err(said)?;
    let to = Target::parse(&format!("udp:{server}")).map_err(said)?;
    let options = Options {
        users: USERS,
        domain: Some(DOMAIN.to_owned()),
        sockets: SOCKETS,
        rate,
        time: Some(time),
        warm_up: WARM_UP,
        drain: Some(DRAIN),
        ..Options::new(workload, Some(to), 11)
    };
    let mut plan = options.plan().map_err(said)?.0;
    let at = plan.phases.iter().position(|phase| phase.is_measured).ok_or("the workload measures nothing")?;
    // The phones stay registered.
    plan.phases.truncate(at + 1);
    if !registers {
        plan.phases.drain(..at);
    }
    plan.callees_at = vec![callees];
    Ok(plan)
}

fn call(plan: &Plan) -> Result<Calls, String> {
    let report = Run::prepare(plan.clone()).and_then(Run::go).map_err(|error| error.to_string())?;
    if let Some(why) = report.broken_off {
        return Err(why);
    }
    let phase = report.phases.iter().find(|phase| phase.is_measured).ok_or("nothing was measured")?;
    Ok(calls(phase))
}

fn calls(phase: &PhaseReport) -> Calls {
    let meter = phase.meter();
    let ringing = meter.answer(MethodId::Invite, ResponseClass::Provisional);
    let at = |share: f64| ringing.map_or(f64::NAN, |times| times.quantile(share).as_secs_f64() * 1e3);
    Calls {
        begun: meter.began.sent,
        failed: meter.began.sent.saturating_sub(meter.began.carried),
        p50_ms: at(0.5),
        p99_ms: at(0.99),
    }
}

/// Registers new phones at a steady rate, without waiting for responses.
fn register(server: SocketAddr, time: Duration, is_over: &AtomicBool) -> Result<Registers, String> {
    let mut asker = Client::new(server)?;
    let began = Instant::now();
    let mut sent: Vec<Option<Instant>> = Vec::new();
    let mut registers = Registers::default();
    let last = time.saturating_sub(PATIENCE);
    while began.elapsed() < time && !is_over.load(Ordering::Relaxed) {
        if began.elapsed() < last && began.elapsed() >= REGISTER_EVERY * u32::try_from(sent.len()).unwrap_or(0) {
            asker.register(u32::try_from(sent.len()).unwrap_or(0), FIRST_CSEQ);
            sent.push(Some(Instant::now()));
        }
        wait(&[&asker], Duration::from_millis(10));
        while let Some(told) = asker.answer() {
            let Some(since) = sent.get_mut(told.answer.user as usize).and_then(Option::take) else { continue };
            registers.note(told.answer.status, since.elapsed());
        }
    }
    registers.sent = sent.len() as u64;
    registers.others += sent.iter().flatten().count() as u64;
    Ok(registers)
}

impl Registers {
    fn note(&mut self, status: u16, after: Duration) {
        let after_ms = after.as_secs_f64() * 1e3;
        match status {
            200 => self.taken += 1,
            503 => {
                self.unavailable += 1;
                self.least_ms = Some(self.least_ms.map_or(after_ms, |least| least.min(after_ms)));
                self.most_ms = Some(self.most_ms.map_or(after_ms, |most| most.max(after_ms)));
            }
            _ => self.others += 1,
        }
    }
}

/// Registers phones until one gets a 200; `None` if none does in time.
fn served_again(server: SocketAddr) -> Result<Option<()>, String> {
    let mut asker = Client::new(server)?;
    let began = Instant::now();
    for user in 0.. {
        // User numbers after those of the earlier phones.
        asker.register(1_000_000 + user, FIRST_CSEQ);
        wait(&[&asker], Duration::from_millis(50));
        while let Some(told) = asker.answer() {
            if told.answer.status == 200 {
                return Ok(Some(()));
            }
        }
        if began.elapsed() > RECOVERY {
            break;
        }
    }
    Ok(None)
}

/// Measures the time until no write is pending and both servers have the same number of registrations.
fn recover(site: &mut Deployment, thawed: Instant, frozen: &mut FreezeResult) -> Result<(), String> {
    while thawed.elapsed() < RECOVERY && (frozen.drained_s.is_none() || frozen.same_s.is_none()) {
        let status = site.first().status();
        let registrations = status["registrations"].as_u64().unwrap_or(0);
        let others = site.second().map_or(0, |second| second.registrations());
        let after = thawed.elapsed().as_secs_f64();
        if status["cluster"]["waiting"] == 0 && status["cluster"]["trouble"].is_null() {
            frozen.drained_s.get_or_insert(after);
            if registrations == others && registrations > 0 {
                frozen.same_s.get_or_insert(after);
            }
        }
        frozen.registrations = [registrations, others];
        site.check()?;
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
