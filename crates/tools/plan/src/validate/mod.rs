//! Predictions of the models beside measurements, in the form of the thesis's tables 4.4 and 5.2 and its figure 4.13.

use serde::Serialize;

use crate::fit::{DEFAULT_QUEUE, NOTICED, Observation, noticed_at, of_one_kind};
use crate::size::Profile;
use crate::threads::threads_on_one_core;
use crate::timing::PacketTiming;
use crate::{Objective, PlanError, ServiceTime, capacity, mg1, mmck};

/// Loads at which the wait of a one-thread server must be predicted.
const PREDICTED: std::ops::RangeInclusive<f64> = 0.3..=0.8;
/// Accepted relative error of a wait; an error within [`WAIT_WITHIN_S`] is accepted as well.
const WAIT_WITHIN: f64 = 0.15;
/// Accepted absolute error of a wait, s.
const WAIT_WITHIN_S: f64 = 5e-6;
/// Accepted relative error of the rate at which 1 % is dropped.
const RATE_WITHIN: f64 = 0.1;

/// Prediction and measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Pair {
    /// Prediction; `None` if the model has no answer.
    pub predicted: Option<f64>,
    /// Measurement; `None` if it was not measured.
    pub measured: Option<f64>,
}

impl Pair {
    /// Returns the relative error, (predicted − measured)/measured.
    #[must_use]
    pub fn error(&self) -> Option<f64> {
        let (predicted, measured) = self.predicted.zip(self.measured)?;
        (measured != 0.0).then(|| predicted / measured - 1.0)
    }
}

/// Measurement with its predictions.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// Source of the measurement.
    pub name: String,
    /// λ, packets/s.
    pub rate_per_s: f64,
    /// Call rate, if known, calls/s.
    pub calls_per_s: Option<f64>,
    /// c: number of threads.
    pub servers: u32,
    /// K: system size.
    pub queue: u64,
    /// α(λ).
    pub alpha: f64,
    /// β(λ, c).
    pub beta: f64,
    /// E\[X\] on one of the threads, s.
    pub service_s: Pair,
    /// ρ = λ·E\[X\]/c, compared with the processors in use (figure 4.13).
    pub rho: Pair,
    /// W of one thread by M/G/1, s (table 4.4).
    pub wait_s: Pair,
    /// Share of drops by M/M/c/K (table 5.2).
    pub drops: Pair,
    /// Whether the wait must be predicted: one thread, a load of 30 to 80 %.
    pub wait_counts: bool,
    /// Whether the wait is predicted within 15 % or 5 µs.
    pub wait_holds: Option<bool>,
}

/// Rate with 1 % drops for a number of threads.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct OnePercent {
    /// c: number of threads.
    pub servers: u32,
    /// Packets/s.
    pub rate_per_s: Pair,
    /// Whether the rate is predicted within 10 %.
    pub holds: Option<bool>,
}

/// Result of a validation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Validation {
    /// Measurements by rising threads and rate.
    pub rows: Vec<Row>,
    /// Rates with 1 % drops, by number of threads.
    pub one_percent: Vec<OnePercent>,
    /// Number of waits that must be predicted, and number that are.
    pub waits: (usize, usize),
    /// Whether all required predictions hold; `None` if none of them was measured.
    pub holds: Option<bool>,
}

/// Compares predictions with the measurements of the most frequent kind of work.
///
/// # Errors
/// A profile without timing, and the errors of the models.
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

/// Returns X on one of c threads, and β.
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
    // Use the measured load if there is one: a wrong prediction must not exempt itself.
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

/// Returns `None` if neither rate is known.
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
