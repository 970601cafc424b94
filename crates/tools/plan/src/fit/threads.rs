//! Contention of threads on one core, from measurements: β(λ, c) by the thesis's eq. 5.6, and the rate with 1 %
//! drops.

use super::linear::{Estimate, Regression, least_squares};
use super::observation::Observation;
use super::resample::Bootstrap;
use super::{BetaFit, ServicePoint};
use crate::threads::Beta;
use crate::timing::PacketTiming;
use crate::{Objective, PlanError, capacity, mmck};

/// Default for K: the thesis's value for a Linux socket of default size.
pub const DEFAULT_QUEUE: u64 = 200;
/// Drop share that callers notice (thesis, section 5.3).
pub const NOTICED: f64 = 0.01;
/// Drop shares from which a service time can be derived.
const TELLING: std::ops::Range<f64> = 1e-5..0.5;

/// β of one measurement.
#[derive(Clone, Debug)]
struct Point {
    threads: f64,
    rate: f64,
    beta: f64,
}

/// Fits β. Returns `None` if no measurement with several threads has a service time or drops.
pub(super) fn beta(
    observations: &[Observation],
    timing: &PacketTiming,
    notes: &mut Vec<String>,
) -> Result<Option<BetaFit>, PlanError> {
    let mut points = Vec::new();
    let (mut of_service, mut of_drops) = (0_usize, 0_usize);
    for observation in observations.iter().filter(|observation| observation.servers > 1) {
        let single = timing.service_at(observation.rate_per_s)?.mean_s();
        let shared = match observation.mean_s() {
            Some(mean) => {
                of_service += 1;
                Some(mean)
            }
            None => {
                let found = service_of_drops(observation)?;
                of_drops += usize::from(found.is_some());
                found
            }
        };
        let threads = f64::from(observation.servers);
        points.extend(shared.map(|shared| Point {
            threads,
            rate: observation.rate_per_s,
            beta: shared / (threads * single),
        }));
    }
    if points.is_empty() {
        return Ok(None);
    }
    notes.push(format!(
        "β is fitted to {of_service} measured service times and {of_drops} shares of drops, whose service times follow from M/M/c/K"
    ));
    let (found, shape) = plane(&points);
    let Some(Regression { coefficients, r_squared }) = found else { return Ok(None) };
    if shape < 3 {
        notes.push(
            "the measurements do not separate the effects of threads and rate on β; measure two numbers of threads at two rates each".to_owned(),
        );
    }
    let mut coefficients = coefficients.into_iter();
    let zero = || Estimate::without_interval(0.0, "not determined by the measurements");
    let (per_thread, per_packet) = match shape {
        3 => (coefficients.next().unwrap_or_else(zero), coefficients.next().unwrap_or_else(zero)),
        _ => (zero(), zero()),
    };
    let constant = coefficients.next().unwrap_or_else(zero);
    Ok(Some(BetaFit { per_thread, per_packet, constant, r_squared, measurements: points.len() }))
}

/// Fits A·c + B·λ + D, or D alone if the points are too few or too similar.
fn plane(points: &[Point]) -> (Option<Regression>, usize) {
    let y: Vec<f64> = points.iter().map(|point| point.beta).collect();
    let rows: Vec<Vec<f64>> = points.iter().map(|point| vec![point.threads, point.rate, 1.0]).collect();
    match least_squares(&rows, &y) {
        Some(found) => (Some(found), 3),
        None => (least_squares(&vec![vec![1.0]; y.len()], &y), 1),
    }
}

impl BetaFit {
    /// Returns the coefficients without intervals.
    #[must_use]
    pub fn coefficients(&self) -> Beta {
        Beta { per_thread: self.per_thread.value, per_packet: self.per_packet.value, constant: self.constant.value }
    }
}

/// Returns the service time at which M/M/c/K has the measured drops.
fn service_of_drops(observation: &Observation) -> Result<Option<f64>, PlanError> {
    let Some(drops) = observation.drops.filter(|drops| TELLING.contains(drops)) else { return Ok(None) };
    let (rate, servers) = (observation.rate_per_s, observation.servers);
    let queue = observation.queue.unwrap_or(DEFAULT_QUEUE);
    let full = f64::from(servers) / rate;
    // An infinite queue would drop 1 − 1/ρ; no queue drops less.
    let (mut low, mut high) = (full * 1e-3, full / (1.0 - drops) * 1.000_001);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if mmck(rate, middle, servers, queue)?.drop_probability < drops { low = middle } else { high = middle }
    }
    Ok(Some(f64::midpoint(low, high)))
}

/// Returns C₁, the rate at which one thread drops 1 %, calls/s: interpolated between measurements if possible,
/// otherwise computed by M/M/c/K from E\[X\].
pub(super) fn base_capacity(
    observations: &[Observation],
    timing: &PacketTiming,
    service: &[ServicePoint],
    packets_per_call: f64,
    resample: &Bootstrap,
) -> Result<(Estimate, String), PlanError> {
    if let Some(rate) = noticed_at(observations, 1) {
        let single: Vec<&Observation> = observations.iter().filter(|observation| observation.servers == 1).collect();
        let fit = |sample: &[&Observation]| {
            let sample: Vec<Observation> = sample.iter().map(|one| (*one).clone()).collect();
            noticed_at(&sample, 1)
        };
        let estimate = Estimate {
            value: rate,
            interval: resample.interval(&single, fit),
            method: format!("bootstrap, {}", resample.method()),
        };
        return Ok((estimate.scaled(1.0 / packets_per_call), "where 1 % was dropped".to_owned()));
    }
    let queue = observations.iter().find_map(|observation| observation.queue).unwrap_or(DEFAULT_QUEUE);
    let found = capacity::mmck_capacity(Objective::Drops(NOTICED), 1, queue, |rate| {
        timing.service_at(rate).map(|service| service.mean_s())
    })?;
    let why = format!("where M/M/1/K drops 1 %, with K = {queue}: no run dropped that much");
    // C₁ is roughly inversely proportional to E[X].
    let last = service.last().map(|at| &at.mean_s);
    let interval = last.and_then(|mean| {
        let (low, high) = mean.interval.filter(|(low, _)| *low > 0.0)?;
        Some((found.rate_per_s * mean.value / high, found.rate_per_s * mean.value / low))
    });
    let method = "by the model, with the interval of E[X] at the highest rate".to_owned();
    Ok((Estimate { value: found.rate_per_s, interval, method }.scaled(1.0 / packets_per_call), why))
}

/// Returns the packets/s at which this number of threads drops 1 %.
///
/// It interpolates the logarithm of the drops between the last rate below 1 % and the first rate above.
#[must_use]
pub fn noticed_at(observations: &[Observation], servers: u32) -> Option<f64> {
    let mut rates: Vec<(f64, f64)> = observations
        .iter()
        .filter(|observation| observation.servers == servers)
        .filter_map(|observation| Some((observation.rate_per_s, observation.drops?)))
        .collect();
    rates.sort_by(|a, b| a.0.total_cmp(&b.0));
    let above = rates.iter().position(|(_, drops)| *drops > NOTICED)?;
    let (high, more) = *rates.get(above)?;
    let (low, less) = *rates.get(above.checked_sub(1)?)?;
    // Zero has no logarithm; this value is close enough to zero.
    let level = |drops: f64| drops.max(1e-4).ln();
    let part = (NOTICED.ln() - level(less)) / (level(more) - level(less));
    Some(low + part.clamp(0.0, 1.0) * (high - low))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(servers: u32, rate_per_s: f64, drops: f64) -> Observation {
        Observation { servers, rate_per_s, drops: Some(drops), ..Observation::default() }
    }

    #[test]
    fn the_service_time_is_derived_from_the_drops() {
        for (servers, rate, service) in [(2, 14_400.0, 140.37e-6), (8, 7_200.0, 1_113e-6), (16, 6_000.0, 2_758e-6)] {
            let drops = mmck(rate, service, servers, 200).expect("a queue").drop_probability;
            let found = service_of_drops(&seen(servers, rate, drops)).expect("a queue").expect("enough drops");
            assert!((found / service - 1.0).abs() < 1e-9, "{found} for {service}");
        }
        assert_eq!(service_of_drops(&seen(2, 1_000.0, 0.0)), Ok(None));
    }

    #[test]
    fn the_one_percent_drop_rate_is_interpolated() {
        let seen = [seen(1, 100.0, 0.0), seen(1, 200.0, 0.001), seen(1, 300.0, 0.1), seen(2, 50.0, 0.5)];
        assert!(noticed_at(&seen, 1).is_some_and(|rate| (rate - 250.0).abs() < 1e-9), "{:?}", noticed_at(&seen, 1));
        assert_eq!(noticed_at(&seen, 2), None, "nothing below it was measured");
    }
}
