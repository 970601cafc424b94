//! What the models predict beside what was measured, as the thesis's tables 4.4 and 5.2 and its figure 4.13 have it.

use serde::Serialize;

use crate::fit::{DEFAULT_QUEUE, NOTICED, Observation, noticed_at, of_one_kind};
use crate::size::Profile;
use crate::threads::threads_on_one_core;
use crate::timing::PacketTiming;
use crate::{Objective, PlanError, ServiceTime, capacity, mg1, mmck};

/// Loads between which the wait of a one-thread server is predicted.
const PREDICTED: std::ops::RangeInclusive<f64> = 0.3..=0.8;
/// A wait may miss by this much, or by [`WAIT_WITHIN_S`].
const WAIT_WITHIN: f64 = 0.15;
/// A wait may miss by so many seconds.
const WAIT_WITHIN_S: f64 = 5e-6;
/// The rate at which 1 % is dropped may miss by this much.
const RATE_WITHIN: f64 = 0.1;

/// A prediction beside its measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Pair {
    /// By the model; nothing where it has no answer.
    pub predicted: Option<f64>,
    /// What was measured; nothing where it was not.
    pub measured: Option<f64>,
}

impl Pair {
    /// (predicted − measured)/measured.
    #[must_use]
    pub fn error(&self) -> Option<f64> {
        let (predicted, measured) = self.predicted.zip(self.measured)?;
        (measured != 0.0).then(|| predicted / measured - 1.0)
    }
}

/// One measurement and what the models make of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// Where the measurement stands.
    pub name: String,
    /// λ, packets/s.
    pub rate_per_s: f64,
    /// Calls/s, where that is known.
    pub calls_per_s: Option<f64>,
    /// c.
    pub servers: u32,
    /// K.
    pub queue: u64,
    /// α(λ).
    pub alpha: f64,
    /// β(λ, c).
    pub beta: f64,
    /// E\[X\] of one of the threads, s.
    pub service_s: Pair,
    /// ρ = λ·E\[X\]/c beside the processors kept busy (figure 4.13).
    pub rho: Pair,
    /// W, s: of one thread by M/G/1 (table 4.4).
    pub wait_s: Pair,
    /// The share that is dropped, by M/M/c/K (table 5.2).
    pub drops: Pair,
    /// Whether the wait is one that is promised to be predicted: one thread, a load of 30 to 80 %.
    pub wait_counts: bool,
    /// Whether it is, within 15 % or 5 µs.
    pub wait_holds: Option<bool>,
}

/// The rate with 1 % of drops, for a number of threads.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct OnePercent {
    /// c.
    pub servers: u32,
    /// Packets/s.
    pub rate_per_s: Pair,
    /// Whether it is predicted within 10 %.
    pub holds: Option<bool>,
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Validation {
    /// By rising threads and rate.
    pub rows: Vec<Row>,
    /// For each number of threads with a rate of 1 %.
    pub one_percent: Vec<OnePercent>,
    /// Waits that are promised to be predicted, and those that are.
    pub waits: (usize, usize),
    /// Whether all that is promised holds; nothing where nothing of it was measured.
    pub holds: Option<bool>,
}

/// Lays predictions beside measurements: of the kind of work that most of them are of.
///
/// # Errors
/// A profile without timing, and what the models refuse.
pub fn validate(measured: &[Observation], profile: &Profile) -> Result<Validation, PlanError> {
    let timing = profile.timing.as_ref().ok_or_else(|| PlanError::Contradiction {
        input: "a prediction".into(),
        reason: format!("the profile {} has no service time of a packet", profile.name),
        remedy: "fit one to measurements: strowger plan fit",
    })?;
    let mut measured = of_one_kind(measured.to_vec());
    measured.sort_by(|a, b| a.servers.cmp(&b.servers).then(a.rate_per_s.total_cmp(&b.rate_per_s)));
    let rows: Vec<Row> =
        measured.iter().map(|observation| row(observation, timing, profile)).collect::<Result<_, _>>()?;
    let mut threads: Vec<u32> = measured.iter().map(|observation| observation.servers).collect();
    threads.dedup();
    let one_percent: Vec<OnePercent> = threads
        .into_iter()
        .filter_map(|servers| one_percent(&measured, servers, timing, profile).transpose())
        .collect::<Result<_, _>>()?;
    let judged: Vec<bool> = rows.iter().filter_map(|row| row.wait_holds).collect();
    let kept = judged.iter().filter(|holds| **holds).count();
    let mut all = judged.iter().copied().chain(one_percent.iter().filter_map(|one| one.holds)).peekable();
    let holds = all.peek().is_some().then(|| all.all(|holds| holds));
    Ok(Validation { waits: (judged.len(), kept), rows, one_percent, holds })
}

/// X of one of c threads, and β.
fn service(
    rate: f64,
    servers: u32,
    timing: &PacketTiming,
    profile: &Profile,
) -> Result<Option<(ServiceTime, f64)>, PlanError> {
    let single = timing.service_at(rate)?;
    if servers == 1 {
        return Ok(Some((single, 1.0)));
    }
    let Some(beta) = profile.beta else { return Ok(None) };
    let threads = threads_on_one_core(rate, single, servers, beta)?;
    Ok(Some((threads.service, threads.beta)))
}

fn row(observation: &Observation, timing: &PacketTiming, profile: &Profile) -> Result<Row, PlanError> {
    let (rate, servers) = (observation.rate_per_s, observation.servers);
    let queue = observation.queue.unwrap_or(DEFAULT_QUEUE).max(u64::from(servers));
    let found = service(rate, servers, timing, profile)?;
    let mean = found.map(|(service, _)| service.mean_s());
    let rho = mean.map(|mean| rate * mean / f64::from(servers));
    let drops = mean.map(|mean| mmck(rate, mean, servers, queue)).transpose()?.map(|queue| queue.drop_probability);
    let wait = match found {
        Some((service, _)) if servers == 1 => match mg1(rate, service) {
            Ok(queue) => Some(queue.wait_s),
            Err(PlanError::Unstable { .. }) => None,
            Err(error) => return Err(error),
        },
        _ => None,
    };
    let wait_s = Pair { predicted: wait, measured: observation.wait_s };
    // The load as it was measured, where it was: a wrong prediction must not excuse itself.
    let load = observation.cpu.or_else(|| observation.mean_s().map(|mean| rate * mean)).or(rho);
    let wait_counts = servers == 1 && load.is_some_and(|load| PREDICTED.contains(&load));
    let wait_holds = observation.wait_s.filter(|_| wait_counts).map(|measured| {
        wait.is_some_and(|wait| (wait - measured).abs() <= (WAIT_WITHIN * measured).max(WAIT_WITHIN_S))
    });
    Ok(Row {
        name: observation.name.clone(),
        rate_per_s: rate,
        calls_per_s: observation.calls_per_s,
        servers,
        queue,
        alpha: timing.alpha.at(rate),
        beta: found.map_or(f64::NAN, |(_, beta)| beta),
        service_s: Pair { predicted: mean, measured: observation.mean_s() },
        rho: Pair { predicted: rho, measured: observation.cpu },
        wait_s,
        drops: Pair { predicted: drops, measured: observation.drops },
        wait_counts,
        wait_holds,
    })
}

/// `None` where neither is known.
fn one_percent(
    measured: &[Observation],
    servers: u32,
    timing: &PacketTiming,
    profile: &Profile,
) -> Result<Option<OnePercent>, PlanError> {
    let Some(seen) = noticed_at(measured, servers) else { return Ok(None) };
    if service(seen, servers, timing, profile)?.is_none() {
        return Ok(None);
    }
    let own = measured.iter().filter(|observation| observation.servers == servers);
    let queue = own.filter_map(|observation| observation.queue).next().unwrap_or(DEFAULT_QUEUE).max(u64::from(servers));
    let mean = |rate: f64| -> Result<f64, PlanError> {
        let found = service(rate, servers, timing, profile)?;
        Ok(found.map_or(f64::NAN, |(service, _)| service.mean_s()))
    };
    let predicted = match capacity::mmck_capacity(Objective::Drops(NOTICED), servers, queue, mean) {
        Ok(found) => Some(found.rate_per_s),
        Err(PlanError::Unreachable { .. }) => None,
        Err(error) => return Err(error),
    };
    let rate_per_s = Pair { predicted, measured: Some(seen) };
    let holds = Some(rate_per_s.error().is_some_and(|error| error.abs() <= RATE_WITHIN));
    Ok(Some(OnePercent { servers, rate_per_s, holds }))
}
