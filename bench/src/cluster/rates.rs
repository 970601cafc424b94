//! REGISTERs per second, their cost and response times.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::contender::Contender;
use super::deployment::{Deployment, Environment};
use crate::register::load::{PATIENCE, Pace, Phones, Tally};
use crate::register::process::{Usage, sync_time};

/// Extent of a measurement.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Number of users.
    pub users: u32,
    /// Number of their sockets.
    pub sockets: u32,
    /// REGISTERs in flight at saturation.
    pub window: usize,
    /// Maximum time for the first registration of all users.
    pub fill: Duration,
    /// Duration of refreshes before the measurement.
    pub warm_up: Duration,
    /// Duration of measured refreshes.
    pub time: Duration,
    /// Rates per second at which response times are measured.
    pub rates: Vec<u32>,
}

/// Processor seconds per 1,000 successful REGISTERs.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Cost {
    /// Cost at the server that accepts them.
    pub server: f64,
    /// Cost at the engine.
    pub engine: f64,
    /// Cost at the second server, which follows.
    pub follower: f64,
    /// Cost at the engine's replica.
    pub replica: f64,
}

/// Results at one rate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PaceResult {
    /// Offered REGISTERs per second; `None` at saturation.
    pub asked: Option<u32>,
    /// 200s per second.
    pub rate: f64,
    /// Median time from a REGISTER to its 200, in milliseconds.
    pub p50_ms: f64,
    /// 99th percentile of that time, in milliseconds.
    pub p99_ms: f64,
    /// Answered with 503.
    pub unavailable: u64,
    /// Answered with a status other than 200 and 503.
    pub others: u64,
    /// Never answered.
    pub lost: u64,
    /// Retransmissions.
    pub again: u64,
    /// Processor cost.
    pub cost: Cost,
    /// Share of their core that the phones, the second server and the replica used. Near 1, this core was the
    /// bottleneck.
    pub other_core: f64,
    /// Share of their core that the first server and the engine used.
    pub server_core: f64,
}

/// Results of one contender.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RateResult {
    /// Contender under test.
    pub contender: Contender,
    /// Registered users when the measurement began.
    pub users: usize,
    /// First registrations per second.
    pub fill_rate: f64,
    /// Duration of an fdatasync just before, in milliseconds.
    pub sync_ms: f64,
    /// Results at saturation and at the rates that it can sustain.
    pub paces: Vec<PaceResult>,
}

impl RateResult {
    /// Returns the results at saturation.
    #[must_use]
    pub fn full(&self) -> Option<&PaceResult> {
        self.paces.iter().find(|pace| pace.asked.is_none())
    }

    /// Returns the results at a rate.
    #[must_use]
    pub fn at(&self, rate: u32) -> Option<&PaceResult> {
        self.paces.iter().find(|pace| pace.asked == Some(rate))
    }
}

/// Processor time used so far by all processes.
struct UsageTotals {
    server: Usage,
    engine: Usage,
    follower: Usage,
    replica: Usage,
    phones: Usage,
}

impl UsageTotals {
    fn so_far(site: &mut Deployment) -> Self {
        let server = Usage::of(&site.first().processes());
        let follower = site.second().map(|server| Usage::of(&server.processes())).unwrap_or_default();
        let of_engine = |of: fn(&super::engine::Engine) -> Vec<u32>| site.engine.as_ref().map(of).unwrap_or_default();
        let (engine, replica) =
            (of_engine(super::engine::Engine::processes), of_engine(super::engine::Engine::replica));
        let phones = Usage::of(&[std::process::id()]);
        Self { server, engine: Usage::of(&engine), follower, replica: Usage::of(&replica), phones }
    }

    /// Returns the processor seconds since `before`: of the server, the engine, the follower, the replica and the
    /// phones.
    fn since(&self, before: &Self) -> [f64; 5] {
        let seconds = |now: &Usage, then: &Usage| now.since(then).processor.as_secs_f64();
        [
            seconds(&self.server, &before.server),
            seconds(&self.engine, &before.engine),
            seconds(&self.follower, &before.follower),
            seconds(&self.replica, &before.replica),
            seconds(&self.phones, &before.phones),
        ]
    }
}

/// Measures one contender, with a second server if it shares registrations.
///
/// # Errors
/// If a process does not start, or ends.
pub fn run(plan: &Plan, contender: Contender, place: &Environment) -> Result<RateResult, String> {
    let sync_ms = sync_time(&place.folder, 100).map_err(|error| error.to_string())?.0;
    let mut site = Deployment::start(contender, contender.is_shared(), place)?;
    let mut phones = Phones::new(site.first().address, plan.users, plan.sockets).napping();
    let fill = phones.fill(plan.window, plan.fill);
    let users = phones.registered();
    if users == 0 {
        return Err("no phone could register".to_owned());
    }
    phones.run(Pace::Window(plan.window), plan.warm_up);
    let full = measure(&mut site, &mut phones, Pace::Window(plan.window), plan.time)?;
    let mut paces = vec![full];
    for rate in &plan.rates {
        // At a rate that cannot be sustained, only the queue would be measured.
        if paces[0].rate < 1.2 * f64::from(*rate) {
            continue;
        }
        phones.run(Pace::Rate(*rate), plan.warm_up / 4);
        paces.push(measure(&mut site, &mut phones, Pace::Rate(*rate), plan.time)?);
    }
    Ok(RateResult { contender, users, fill_rate: fill.rate(), sync_ms, paces })
}

fn measure(site: &mut Deployment, phones: &mut Phones, pace: Pace, time: Duration) -> Result<PaceResult, String> {
    let before = UsageTotals::so_far(site);
    let mut tally = phones.run(pace, time);
    let used = UsageTotals::so_far(site).since(&before);
    // Requests in flight at the end do not count for the rate, but do if they are lost.
    tally.lost += phones.run(Pace::Stop, PATIENCE + Duration::from_secs(1)).lost;
    site.check()?;
    Ok(paced(pace, &tally, used))
}

fn paced(pace: Pace, tally: &Tally, [server, engine, follower, replica, phones]: [f64; 5]) -> PaceResult {
    let seconds = tally.time.as_secs_f64();
    let each = |used: f64| 1e3 * used / tally.taken.max(1) as f64;
    PaceResult {
        asked: if let Pace::Rate(rate) = pace { Some(rate) } else { None },
        rate: tally.rate(),
        p50_ms: tally.milliseconds(0.5),
        p99_ms: tally.milliseconds(0.99),
        unavailable: tally.unavailable,
        others: tally.others,
        lost: tally.lost,
        again: tally.again,
        cost: Cost { server: each(server), engine: each(engine), follower: each(follower), replica: each(replica) },
        other_core: (phones + follower + replica) / seconds,
        server_core: (server + engine) / seconds,
    }
}
