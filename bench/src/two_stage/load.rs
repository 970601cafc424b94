//! Calls and registrations from one generator (the engine of `strowger load`) per first-stage server, each with its
//! share of the rate and the users. There are no retransmissions, and a request not answered within two seconds has
//! failed, as in the paper.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use strowger_traffic::engine::{Plan, Run};
use strowger_traffic::meter::ResponseClass;
use strowger_traffic::options::{Options, Target, workload_with};
use strowger_traffic::script::MethodId;
use strowger_traffic::sweep::Measurement;

use super::deployment::Deployment;
use super::{DOMAIN, USERS};

/// Maximum time until each request of a call has a 2xx.
pub const WITHIN: Duration = Duration::from_secs(2);
/// Number of caller ports per generator. A registrar treats a REGISTER from another port as another phone.
const SOCKETS: usize = 8;
/// Maximum time for calls to end after the load stops. Calls that end in it are not counted.
const DRAIN: Duration = Duration::from_secs(1);
/// First port of callees.
const CALLEES: u16 = 16_070;

/// Arrival process of calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Calls per second, with Poisson arrivals, independent of responses.
    Rate(f64),
    /// Closed loop with this many calls per entry server: a new one begins when one ends.
    AtOnce(usize),
}

/// An offered load.
#[derive(Clone, Debug)]
pub struct Offer<'a> {
    /// Workload in the format of `strowger load run --workload`.
    pub workload: &'a str,
    /// Arrival process.
    pub pace: Pace,
    /// Initial time that is not counted.
    pub warm_up: Duration,
    /// Counted time.
    pub time: Duration,
    /// Whether callees register first. Later loads on the same servers find them registered.
    pub registers: bool,
    /// Random seed.
    pub seed: u64,
}

/// Results of all generators together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Started calls and registrations per second.
    pub offered: f64,
    /// Calls and registrations per second that succeeded in time.
    pub goodput: f64,
    /// 503 responses per second.
    pub refused: f64,
    /// Median time from an initial request to its 2xx for the first generator, in milliseconds.
    pub p50_ms: Option<f64>,
    /// 99th percentile of that time, in milliseconds.
    pub p99_ms: Option<f64>,
    /// Share of periods in which first-stage servers used up their quota, in percent.
    pub first_throttled: f64,
    /// Share of periods in which second-stage servers used up their quota, in percent.
    pub second_throttled: f64,
    /// Whether a generator fell behind.
    pub is_late: bool,
}

/// Offers the load.
///
/// # Errors
/// If a generator cannot run, or a server has ended.
pub fn run(site: &mut Deployment, offer: &Offer<'_>) -> Result<Outcome, String> {
    let entries = site.entries();
    let prepared = (0..).zip(&entries).map(|(number, entry)| prepare(offer, *entry, number, entries.len()));
    let runs: Vec<Run> = prepared.collect::<Result<_, String>>()?;
    let before = site.throttled();
    let parts: Vec<Result<Outcome, String>> = thread::scope(|scope| {
        let threads: Vec<_> = runs.into_iter().map(|run| scope.spawn(move || carry_out(run))).collect();
        let end = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err("a generator has panicked".to_owned()))
        };
        threads.into_iter().map(end).collect()
    });
    let [first_throttled, second_throttled] = site.throttled().percent_since(&before);
    site.check()?;
    let parts: Vec<Outcome> = parts.into_iter().collect::<Result<_, String>>()?;
    Ok(Outcome { first_throttled, second_throttled, ..sum(&parts) })
}

fn sum(parts: &[Outcome]) -> Outcome {
    let first = parts.first().copied().unwrap_or_default();
    parts.iter().skip(1).fold(first, |all, one| Outcome {
        offered: all.offered + one.offered,
        goodput: all.goodput + one.goodput,
        refused: all.refused + one.refused,
        is_late: all.is_late || one.is_late,
        ..all
    })
}

fn prepare(offer: &Offer<'_>, entry: SocketAddr, number: u16, entries: usize) -> Result<Run, String> {
    Run::prepare(plan(offer, entry, number, entries)?).map_err(|error| error.to_string())
}

fn plan(offer: &Offer<'_>, entry: SocketAddr, number: u16, entries: usize) -> Result<Plan, String> {
    let said = |error: strowger_traffic::engine::PlanError| error.to_string();
    let workload = workload_with(offer.workload, &[], 1.0).map_err(said)?;
    let calls = !workload.callees.is_empty();
    let to = Target::parse(&format!("udp:{entry}")).map_err(said)?;
    let parts = u32::try_from(entries).unwrap_or(u32::MAX).max(1);
    let (rate, outstanding) = match offer.pace {
        Pace::Rate(rate) => ((rate / f64::from(parts)).max(1.0), None),
        Pace::AtOnce(count) => (1.0, Some(count)),
    };
    let options = Options {
        users: (USERS / parts).max(1),
        pattern: format!("s{number}u%"),
        domain: Some(DOMAIN.to_owned()),
        sockets: if calls { SOCKETS } else { 1 },
        has_segmentation: true,
        retransmits: false,
        rate,
        outstanding,
        time: Some(offer.time),
        warm_up: offer.warm_up,
        drain: Some(DRAIN),
        ..Options::new(workload, Some(to), offer.seed + u64::from(number))
    };
    let mut plan = options.plan().map_err(said)?.0;
    let measured = plan.phases.iter().position(|phase| phase.is_measured);
    // No unregistration: the servers end with their registrations.
    let measured = measured.ok_or("the workload measures nothing")?;
    plan.phases.truncate(measured + 1);
    if !offer.registers {
        plan.phases.drain(..measured);
    }
    if calls {
        plan.callees_at = vec![(Ipv4Addr::LOCALHOST, CALLEES + number).into()];
    }
    Ok(plan)
}

#[expect(clippy::cast_precision_loss, reason = "counts of calls")]
fn carry_out(run: Run) -> Result<Outcome, String> {
    let report = run.go().map_err(|error| error.to_string())?;
    let measured = Measurement::of(&report, WITHIN);
    if let Some(why) = report.broken_off {
        return Err(why);
    }
    let phase = report.phases.iter().find(|phase| phase.is_measured).ok_or("nothing was measured")?;
    let meter = phase.meter();
    let seconds = phase.elapsed.as_secs_f64().max(0.001);
    let of_verb = |verb| meter.answer(verb, ResponseClass::Success).filter(|times| times.count() > 0);
    let times = of_verb(MethodId::Invite).or_else(|| of_verb(MethodId::Register));
    let quantile = |share: f64| Some(times?.quantile(share).as_secs_f64() * 1e3);
    Ok(Outcome {
        offered: meter.began.sent as f64 / seconds,
        goodput: measured.throughput,
        refused: meter.received.responses(503) as f64 / seconds,
        p50_ms: quantile(0.5),
        p99_ms: quantile(0.99),
        is_late: measured.bottleneck.is_some(),
        ..Outcome::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generators_share_the_rate_and_the_users() {
        let offer = Offer {
            workload: "proxy-200",
            pace: Pace::Rate(900.0),
            warm_up: Duration::ZERO,
            time: WITHIN,
            registers: true,
            seed: 1,
        };
        let entry = ([127, 0, 0, 1], 5060).into();
        let later = plan(&Offer { registers: false, ..offer.clone() }, entry, 1, 3).expect("a plan");
        assert!(later.phases.len() == 1 && later.phases[0].is_measured);
        let plan = plan(&offer, entry, 1, 3).expect("a plan");
        assert_eq!(plan.phases.len(), 2, "callees register, then calls are measured");
        assert_eq!(plan.phases[1].callees.len() as u32, USERS / 3);
        assert_eq!(plan.callees_at[0].port(), CALLEES + 1);
        assert!(!plan.retransmits);
        let part = Outcome { offered: 300.0, goodput: 200.0, is_late: false, ..Outcome::default() };
        let all = sum(&[part, Outcome { is_late: true, ..part }]);
        assert!(all.is_late && (all.offered - 600.0).abs() < 1e-9 && (all.goodput - 400.0).abs() < 1e-9);
    }
}
