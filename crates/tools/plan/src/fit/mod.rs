//! Fits a profile to measurements: E\[X\], E\[X²\], α(λ), β(λ, c), the base capacity and the costs of calls, each
//! with a confidence interval.
//!
//! Measurements are runs of `strowger load` ([`from_run`]), packet logs and reports of `strowger probe`
//! ([`from_packet_log`], [`from_timing_report`]) or tables ([`from_csv`]). [`fit()`] turns them into a
//! [`Fit`], whose [`Fit::profile`] is input to the other models. Values that the measurements do not determine stay
//! as in the initial profile.

mod costs;
mod curves;
mod error;
mod linear;
mod observation;
mod packets;
mod resample;
mod run;
mod table;
mod threads;
mod timing_report;

use serde::{Deserialize, Serialize};

pub use error::FitError;
pub use linear::{Estimate, LEVEL};
pub use observation::{Kind, MessageObservation, Observation, Work};
pub use packets::{from_packet_log, from_packet_log_in_parts, is_packet_log};
pub use resample::Bootstrap;
pub use run::{RunOptions, from_run};
pub use table::{COLUMNS, from_csv};
pub use threads::{DEFAULT_QUEUE, NOTICED, noticed_at};
pub use timing_report::{from_timing_report, is_timing_report, share_setup};

use crate::size::Profile;

/// Result of a fit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Fit {
    /// Number of measurements.
    pub measurements: usize,
    /// Seed of the random draws.
    pub seed: u64,
    /// E\[X\] and E\[X²\] over the rate, with one thread.
    pub service: Vec<ServicePoint>,
    /// E\[X\] and variation by message type, if measured.
    pub messages: Vec<MessageFit>,
    /// Var\[X\]/E\[X\]²; `None` if the measurements do not determine it.
    pub scv: Option<Estimate>,
    /// α over the rate.
    pub alpha: Vec<AlphaPoint>,
    /// β; `None` if all measurements are of one thread.
    pub beta: Option<BetaFit>,
    /// C₁: capacity of one thread on one core, calls/s.
    pub base_capacity_per_s: Estimate,
    /// Incoming messages per call.
    pub packets_per_call: f64,
    /// Costs of units of work.
    pub costs: Vec<CostFit>,
    /// Remarks on the method and its limits, as sentences.
    pub notes: Vec<String>,
    /// Profile for the models.
    pub profile: Profile,
}

/// Service time at a rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServicePoint {
    /// λ, packets/s.
    pub rate_per_s: f64,
    /// E\[X\], s.
    pub mean_s: Estimate,
    /// E\[X²\], s².
    pub second_moment_s2: Estimate,
}

/// α at a rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AlphaPoint {
    /// λ, packets/s.
    pub rate_per_s: f64,
    /// α(λ).
    pub alpha: Estimate,
}

/// Service time of packets of one type, over all rates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MessageFit {
    /// Message type: `INVITE`, `180`, …
    pub message: String,
    /// Share of packets of this type.
    pub share: f64,
    /// E\[X_i\], s.
    pub mean_s: Option<Estimate>,
    /// Var\[X_i\]/E\[X_i\]².
    pub scv: Option<Estimate>,
}

/// β(λ, c) = `per_thread`·c + `per_packet`·λ + `constant`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BetaFit {
    /// Slowdown per thread.
    pub per_thread: Estimate,
    /// Slowdown per packet/s, s.
    pub per_packet: Estimate,
    /// Constant term.
    pub constant: Estimate,
    /// Share of the variance of β that the fit explains.
    pub r_squared: f64,
    /// Number of measurements.
    pub measurements: usize,
}

/// Measured cost of a unit of work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostFit {
    /// Kind of work.
    pub kind: String,
    /// Processor time per unit, s.
    pub cost_s: Estimate,
    /// Number of runs.
    pub runs: usize,
    /// Processors in use in the busiest of them.
    pub busiest_load: f64,
    /// Incoming messages per unit.
    pub messages_in: f64,
}

/// Options of a fit.
#[derive(Clone, Debug)]
pub struct Options {
    /// Seed of the random draws.
    pub seed: u64,
    /// Profile whose values apply if the measurements do not determine them.
    pub from: Profile,
    /// Name of the resulting profile.
    pub name: String,
}

/// Returns the measurements of the most frequent kind of work and those without a kind. A REGISTER is not a packet of
/// a call.
#[must_use]
pub fn of_one_kind(measured: Vec<Observation>) -> Vec<Observation> {
    let kinds = [Kind::Call, Kind::StatelessCall, Kind::Register, Kind::ChallengedRegister];
    let is_of = |one: &Observation, kind: Kind| one.work.as_ref().is_some_and(|work| work.kind == kind);
    let count = |kind: &Kind| measured.iter().filter(|one| is_of(one, *kind)).count();
    // On a tie the first kind wins: calls before REGISTERs.
    let main = kinds.into_iter().rev().max_by_key(count);
    measured.into_iter().filter(|one| one.work.is_none() || main.is_some_and(|kind| is_of(one, kind))).collect()
}

/// Fits a profile to measurements.
///
/// # Errors
/// The measurements do not determine the service time of one thread, or contradict each other. The text says what to
/// do.
pub fn fit(measured: &[Observation], options: &Options) -> Result<Fit, FitError> {
    let mut measured = measured.to_vec();
    measured.iter_mut().for_each(Observation::resolve);
    let costs = costs::costs(&measured);
    let all = measured.len();
    let measured = of_one_kind(measured);
    let resample = Bootstrap { seed: options.seed };
    let single = curves::single_thread(&measured, &resample)?;
    let mut notes = single.notes;
    if measured.len() < all {
        notes.push(format!(
            "measurements of a different kind of work than most ({} here) are used for costs, but not for the service time of a packet",
            all - measured.len()
        ));
    }
    let beta = threads::beta(&measured, &single.timing, &mut notes)?;
    let (packets_per_call, is_known) = costs::packets_per_call(&measured);
    if !is_known {
        notes.push(
            "a call is assumed to have 6 incoming messages, as in the thesis: no measurement gives the number"
                .to_owned(),
        );
    }
    let (base_capacity_per_s, why) =
        threads::base_capacity(&measured, &single.timing, &single.service, packets_per_call, &resample)?;
    notes.push(format!("the base capacity is {why}"));
    let mut profile = options.from.clone();
    let replaced = costs::apply(&mut profile, &costs);
    profile.name.clone_from(&options.name);
    let measured_costs =
        if replaced.is_empty() { "no cost".to_owned() } else { format!("the cost of: {}", replaced.join(", ")) };
    profile.source = format!(
        "fitted to {all} measurements: service time{}, base capacity, {measured_costs}; the rest is from {}",
        if beta.is_some() { ", β" } else { "" },
        options.from.name
    );
    profile.timing = Some(single.timing);
    profile.beta = beta.as_ref().map(BetaFit::coefficients);
    profile.base_capacity_per_s = Some(base_capacity_per_s.value);
    Ok(Fit {
        measurements: all,
        seed: options.seed,
        service: single.service,
        messages: single.messages,
        scv: single.scv,
        alpha: single.alpha,
        beta,
        base_capacity_per_s,
        packets_per_call,
        costs,
        notes,
        profile,
    })
}
