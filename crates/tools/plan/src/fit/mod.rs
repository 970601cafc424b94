//! From measurements to a profile: E\[X\], E\[X²\], α(λ), β(λ, c), the base capacity and the costs of calls, each with how sure it is.
//!
//! Measurements are runs of `strowger load` ([`from_run`]) or tables ([`from_csv`]); [`fit()`] makes a [`Fit`] of them, whose
//! [`Fit::profile`] the other models take. What the measurements do not say stays as it was in the profile that one began with.

mod costs;
mod curves;
mod error;
mod linear;
mod observation;
mod resample;
mod run;
mod table;
mod threads;

use serde::{Deserialize, Serialize};

pub use error::FitError;
pub use linear::{Estimate, LEVEL};
pub use observation::{Kind, MessageObservation, Observation, Work};
pub use resample::Bootstrap;
pub use run::{RunOptions, from_run};
pub use table::{COLUMNS, from_csv};
pub use threads::{DEFAULT_QUEUE, NOTICED, noticed_at};

use crate::size::Profile;

/// What measurements give.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Fit {
    /// How many there were.
    pub measurements: usize,
    /// What draws began with.
    pub seed: u64,
    /// E\[X\] and E\[X²\] over the rate, of one thread.
    pub service: Vec<ServicePoint>,
    /// The same by message type, where it was measured.
    pub messages: Vec<MessageFit>,
    /// Var\[X\]/E\[X\]²; nothing where nothing says it.
    pub scv: Option<Estimate>,
    /// α over the rate.
    pub alpha: Vec<AlphaPoint>,
    /// β; nothing where all measurements are of one thread.
    pub beta: Option<BetaFit>,
    /// C₁, calls/s of one thread on one core.
    pub base_capacity_per_s: Estimate,
    /// Messages that a call brings in.
    pub packets_per_call: f64,
    /// What units of work cost.
    pub costs: Vec<CostFit>,
    /// How it was found, and what to know of it: sentences.
    pub notes: Vec<String>,
    /// For the models.
    pub profile: Profile,
}

/// The service time at a rate.
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

/// What packets of a type took, over all rates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MessageFit {
    /// `INVITE`, `180`, …
    pub message: String,
    /// The share of packets that are of this type.
    pub share: f64,
    /// E\[X_i\], s.
    pub mean_s: Option<Estimate>,
    /// Var\[X_i\]/E\[X_i\]².
    pub scv: Option<Estimate>,
}

/// β(λ, c) = `per_thread`·c + `per_packet`·λ + `constant`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BetaFit {
    /// What each thread adds.
    pub per_thread: Estimate,
    /// What each packet/s adds, s.
    pub per_packet: Estimate,
    /// What is added whatever comes.
    pub constant: Estimate,
    /// The share of the scatter of β that this explains.
    pub r_squared: f64,
    /// Of how many measurements.
    pub measurements: usize,
}

/// What a unit of work cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostFit {
    /// Of which kind.
    pub kind: String,
    /// Processor time of each, s.
    pub cost_s: Estimate,
    /// Of how many runs.
    pub runs: usize,
    /// The processors that the busiest of them kept busy.
    pub busiest_load: f64,
    /// Messages that come in for each.
    pub messages_in: f64,
}

/// How a fit is made.
#[derive(Clone, Debug)]
pub struct Options {
    /// What draws begin with.
    pub seed: u64,
    /// What is taken where the measurements say nothing.
    pub from: Profile,
    /// What the profile is to be called.
    pub name: String,
}

/// Measurements of the kind of work that most of them are of, and those that do not say: a REGISTER is no packet of a call.
#[must_use]
pub fn of_one_kind(measured: Vec<Observation>) -> Vec<Observation> {
    let kinds = [Kind::Call, Kind::StatelessCall, Kind::Register, Kind::ChallengedRegister];
    let is_of = |one: &Observation, kind: Kind| one.work.as_ref().is_some_and(|work| work.kind == kind);
    let count = |kind: &Kind| measured.iter().filter(|one| is_of(one, *kind)).count();
    // The first of equals: calls before REGISTERs.
    let main = kinds.into_iter().rev().max_by_key(count);
    measured.into_iter().filter(|one| one.work.is_none() || main.is_some_and(|kind| is_of(one, kind))).collect()
}

/// Fits a profile to measurements.
///
/// # Errors
/// Where they say nothing of the service time of one thread, or contradict themselves; with the remedy.
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
            "measurements of other work than most, {} here, are in the costs and not in the service time of a packet",
            all - measured.len()
        ));
    }
    let beta = threads::beta(&measured, &single.timing, &mut notes)?;
    let (packets_per_call, is_known) = costs::packets_per_call(&measured);
    if !is_known {
        notes.push("a call brings in 6 messages, as the thesis's do: no measurement says it".to_owned());
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
        "fitted to {all} measurements: service time{}, base capacity, {measured_costs}; the rest is of {}",
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
