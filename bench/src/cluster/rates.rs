//! REGISTERs a second, what they cost, and how soon they are answered.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::contender::Contender;
use super::deployment::{Deployment, Environment};
use crate::register::load::{PATIENCE, Pace, Phones, Tally};
use crate::register::process::{Usage, sync_time};

/// How much is done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Users.
    pub users: u32,
    /// Sockets that they are spread over.
    pub sockets: u32,
    /// REGISTERs under way at saturation.
    pub window: usize,
    /// How long users may take to be registered for the first time.
    pub fill: Duration,
    /// Refreshes that are not counted, before those that are.
    pub warm_up: Duration,
    /// Refreshes that are counted.
    pub time: Duration,
    /// REGISTERs a second at which their answers are timed.
    pub rates: Vec<u32>,
}

/// Processor time, in seconds for 1,000 REGISTERs that were taken.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Cost {
    /// The server that took them.
    pub server: f64,
    /// The engine.
    pub engine: f64,
    /// The second server, which follows.
    pub follower: f64,
    /// The engine's replica.
    pub replica: f64,
}

/// What was measured at one pace.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PaceResult {
    /// REGISTERs a second that were asked for; none at saturation.
    pub asked: Option<u32>,
    /// 200s a second.
    pub rate: f64,
    /// From a REGISTER to its 200, in milliseconds: the median.
    pub p50_ms: f64,
    /// And the 99th percentile.
    pub p99_ms: f64,
    /// Answered with 503.
    pub unavailable: u64,
    /// Answered otherwise, but not with 200.
    pub others: u64,
    /// Never answered.
    pub lost: u64,
    /// Sent again.
    pub again: u64,
    /// What it cost.
    pub cost: Cost,
    /// The share of their core that the phones, the second server and the replica used: near 1 that was the limit.
    pub other_core: f64,
    /// The same of the first server and the engine.
    pub server_core: f64,
}

/// What came of one contender.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RateResult {
    /// Who.
    pub contender: Contender,
    /// Users that were registered when the measuring began.
    pub users: usize,
    /// First registrations a second.
    pub fill_rate: f64,
    /// What an fdatasync took just before, in milliseconds.
    pub sync_ms: f64,
    /// Saturation, and the rates that it could keep.
    pub paces: Vec<PaceResult>,
}

impl RateResult {
    /// What was measured at saturation.
    #[must_use]
    pub fn full(&self) -> Option<&PaceResult> {
        self.paces.iter().find(|pace| pace.asked.is_none())
    }

    /// What was measured at a rate.
    #[must_use]
    pub fn at(&self, rate: u32) -> Option<&PaceResult> {
        self.paces.iter().find(|pace| pace.asked == Some(rate))
    }
}

/// What everybody has used so far.
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

    /// The processor's seconds since then: the server's, the engine's, the follower's, the replica's and the phones'.
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

/// Measures one contender, with a second server behind it where it shares.
///
/// # Errors
/// When it does not start, or ends.
pub fn run(plan: &Plan, contender: Contender, place: &Environment) -> Result<RateResult, String> {
    let sync_ms = sync_time(&place.folder, 100).map_err(|error| error.to_string())?.0;
    let mut site = Deployment::start(contender, contender.is_shared(), place)?;
    let mut phones = Phones::new(site.first().address, plan.users, plan.sockets).napping();
    let fill = phones.fill(plan.window, plan.fill);
    let users = phones.registered();
    if users == 0 {
        return Err("nobody was registered".to_owned());
    }
    phones.run(Pace::Window(plan.window), plan.warm_up);
    let full = measure(&mut site, &mut phones, Pace::Window(plan.window), plan.time)?;
    let mut paces = vec![full];
    for rate in &plan.rates {
        // What cannot be kept measures the queue.
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
    // Those that were under way are no part of the rate, but they count where they are lost.
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
