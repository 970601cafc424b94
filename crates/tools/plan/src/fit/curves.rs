//! Service times over the rate, and their variation: α, E\[X\], E\[X²\].

use super::error::FitError;
use super::linear::{Estimate, count, least_squares};
use super::observation::{Observation, message_names};
use super::resample::Bootstrap;
use super::{AlphaPoint, MessageFit, ServicePoint};
use crate::curve::Curve;
use crate::timing::{MessageTiming, PacketTiming, Part};

/// Highest number of points of a fitted curve.
const MOST_KNOTS: usize = 8;
/// Measurements required beyond the number of curve points; they determine the interval.
const SPARE: usize = 2;
/// Highest utilization at which waits are used. Above it, waits depend more on the length of a run than on the
/// service time.
const STABLE: f64 = 0.95;

/// Fit of one thread.
#[derive(Clone, Debug)]
pub(super) struct SingleThread {
    pub timing: PacketTiming,
    pub alpha: Vec<AlphaPoint>,
    pub service: Vec<ServicePoint>,
    pub messages: Vec<MessageFit>,
    pub scv: Option<Estimate>,
    pub notes: Vec<String>,
}

/// Measurement with its rate and its mean service time.
struct ServiceSample<'a> {
    rate: f64,
    mean: f64,
    from: &'a Observation,
}

/// Fits measurements with one thread.
pub(super) fn single_thread(observations: &[Observation], resample: &Bootstrap) -> Result<SingleThread, FitError> {
    let served: Vec<ServiceSample<'_>> = observations
        .iter()
        .filter(|observation| observation.servers == 1)
        .filter_map(|from| Some(ServiceSample { rate: from.rate_per_s, mean: from.mean_s()?, from }))
        .collect();
    if served.is_empty() {
        return Err(FitError(
            "no measurement of one thread has a service time; give a column service, or runs in which the generator saw the server"
                .to_owned(),
        ));
    }
    let mut notes = Vec::new();
    let knots = knots(&served);
    let means = hats(&served, &knots, |served| served.mean)?;
    let base = base_of(&served);
    let lowest = means.first().map_or(0.0, |estimate| estimate.value);
    let (alpha, rest) = split(&served, &knots, &means, base, &mut notes)?;
    let alpha_curve = Curve::new(alpha.iter().map(|at| (at.rate_per_s, at.alpha.value)).collect())?;
    let messages = messages(observations);
    let mut timing = PacketTiming {
        messages: parts(&messages, base.unwrap_or(lowest), rest.first),
        alpha: alpha_curve,
        sip_growth: rest.growth,
    };
    let scv = variation(&served, &mut timing, resample, &mut notes);
    let service = knots
        .iter()
        .zip(&means)
        .map(|(rate, mean)| {
            let second_moment_s2 = second_moment(&timing, *rate, mean, scv.as_ref())?;
            Ok(ServicePoint { rate_per_s: *rate, mean_s: mean.clone(), second_moment_s2 })
        })
        .collect::<Result<_, FitError>>()?;
    Ok(SingleThread { alpha, service, messages, scv, notes, timing })
}

/// Returns E\[X²\] = (1 + scv)·E\[X\]², with an interval from those of both factors.
fn second_moment(
    timing: &PacketTiming,
    rate: f64,
    mean: &Estimate,
    scv: Option<&Estimate>,
) -> Result<Estimate, FitError> {
    let value = timing.service_at(rate)?.second_moment_s2();
    let variation = scv.map(|scv| (scv.value.max(0.0), scv.interval));
    let factor = |end: fn((f64, f64)) -> f64| match variation {
        Some((value, Some(interval))) => (1.0 + end(interval).max(0.0)) / (1.0 + value),
        _ => 1.0,
    };
    let interval = mean.interval.map(|(low, high)| {
        let at = |end: f64| value * (end.max(0.0) / mean.value).powi(2);
        (at(low) * factor(|interval| interval.0), at(high) * factor(|interval| interval.1))
    });
    Ok(Estimate { value, interval, method: "from the intervals of E[X] and of the variation".to_owned() })
}

/// Returns the rates of the curve's points.
///
/// With four or more distinct rates, the curve has at least two points fewer than there are measurements, so that the
/// residuals determine the interval.
fn knots(served: &[ServiceSample<'_>]) -> Vec<f64> {
    let mut rates: Vec<f64> = served.iter().map(|served| served.rate).collect();
    rates.sort_by(f64::total_cmp);
    // The same nominal rate differs slightly between runs.
    let mut groups: Vec<Vec<f64>> = Vec::new();
    for rate in rates {
        match groups.last_mut() {
            Some(group) if group.first().is_some_and(|first| rate <= 1.03 * first) => group.push(rate),
            _ => groups.push(vec![rate]),
        }
    }
    let middles: Vec<f64> = groups.iter().map(|group| group.iter().sum::<f64>() / count(group.len())).collect();
    let wanted =
        if middles.len() < 4 { middles.len() } else { (served.len() - SPARE).min(middles.len()).min(MOST_KNOTS) };
    if wanted == middles.len() || wanted < 2 {
        return middles;
    }
    let last = middles.len() - 1;
    (0..wanted).filter_map(|knot| middles.get((knot * last + (wanted - 1) / 2) / (wanted - 1)).copied()).collect()
}

/// Returns the weight of each knot at a rate: linear between two neighbouring knots, constant outside.
fn hat(knots: &[f64], rate: f64) -> Vec<f64> {
    let after = knots.partition_point(|knot| *knot < rate);
    let mut weights = vec![0.0; knots.len()];
    let (before, after) = (after.saturating_sub(1), after.min(knots.len().saturating_sub(1)));
    let (Some(low), Some(high)) = (knots.get(before), knots.get(after)) else { return weights };
    let part = if high > low { ((rate - low) / (high - low)).clamp(0.0, 1.0) } else { 0.0 };
    if let Some(weight) = weights.get_mut(before) {
        *weight += 1.0 - part;
    }
    if let Some(weight) = weights.get_mut(after) {
        *weight += part;
    }
    weights
}

/// Fits a piecewise-linear function by least squares and returns its values at the knots.
fn hats(
    served: &[ServiceSample<'_>],
    knots: &[f64],
    value: impl Fn(&ServiceSample<'_>) -> f64,
) -> Result<Vec<Estimate>, FitError> {
    let rows: Vec<Vec<f64>> = served.iter().map(|served| hat(knots, served.rate)).collect();
    let values: Vec<f64> = served.iter().map(value).collect();
    least_squares(&rows, &values).map(|found| found.coefficients).ok_or_else(|| {
        FitError(
            "the rates are too close together for a curve; measure from 10 % of the load to almost 100 %".to_owned(),
        )
    })
}

/// Returns the mean of the measured K_sockq^{s,base}.
fn base_of(served: &[ServiceSample<'_>]) -> Option<f64> {
    let bases: Vec<f64> = served.iter().filter_map(|served| served.from.base_s).filter(|base| *base > 0.0).collect();
    if bases.is_empty() { None } else { Some(bases.iter().sum::<f64>() / count(bases.len())) }
}

/// Service time outside the socket, and its growth.
struct FixedService {
    first: f64,
    growth: Curve,
}

/// Splits E\[X\] into α at the knots and the rest.
///
/// E\[X\] alone does not separate the growth of the two. If the rest was measured, each has its own curve. If only
/// the socket's time without load is known, all growth is attributed to α. If neither is known, α multiplies the
/// whole service time.
fn split(
    served: &[ServiceSample<'_>],
    knots: &[f64],
    means: &[Estimate],
    base: Option<f64>,
    notes: &mut Vec<String>,
) -> Result<(Vec<AlphaPoint>, FixedService), FitError> {
    let (Some(first), Some(first_rate)) = (means.first(), knots.first()) else {
        return Err(FitError("there is no rate".to_owned()));
    };
    let lowest_load = served.iter().map(|served| served.rate * served.mean).fold(f64::INFINITY, f64::min);
    if lowest_load > 0.1 {
        notes.push(format!("the lowest load measured is {:.0} %; below it the curve is a guess", 100.0 * lowest_load));
    }
    let level = |first: f64| FixedService { first, growth: Curve::constant(1.0) };
    let (alphas, rest) = match base {
        Some(base) if served.iter().all(|served| served.from.rest_s.is_some()) => {
            notes.push("α and the growth of the rest (T_sip) are separate: base and rest were given".to_owned());
            let rests = hats(served, knots, |served| served.from.rest_s.unwrap_or(0.0))?;
            let lowest = rests.first().map_or(0.0, |rest| rest.value);
            let growth = knots.iter().zip(&rests).map(|(rate, rest)| (*rate, rest.value / lowest)).collect();
            let alphas = hats(served, knots, |served| (served.mean - served.from.rest_s.unwrap_or(0.0)) / base)?;
            (alphas, FixedService { first: lowest, growth: Curve::new(growth)? })
        }
        Some(base) => {
            notes.push(
                "α multiplies K_sockq^{s,base}, which was given; all growth of E[X] with the rate is attributed to α"
                    .to_owned(),
            );
            let rest = (first.value - base).max(0.0);
            (means.iter().map(|mean| shifted(mean, rest, base)).collect(), level(rest))
        }
        None => {
            notes.push(format!(
                "α multiplies all of E[X]: it is 1 at the lowest rate, {:.0}/s (columns base and rest separate the socket's \
                 part)",
                first_rate
            ));
            (means.iter().map(|mean| shifted(mean, 0.0, first.value)).collect(), level(0.0))
        }
    };
    if alphas.iter().any(|alpha| !alpha.value.is_finite() || alpha.value <= 0.0) {
        return Err(FitError(
            "the service time at some rate is below its parts; check the columns service, base and rest".to_owned(),
        ));
    }
    let mut points: Vec<AlphaPoint> =
        knots.iter().zip(alphas).map(|(rate, alpha)| AlphaPoint { rate_per_s: *rate, alpha }).collect();
    if rest.growth.points().len() > 1 && *first_rate > 0.0 {
        // The base was measured without load, where α is 1.
        points.insert(0, AlphaPoint { rate_per_s: 0.0, alpha: Estimate::without_interval(1.0, "by definition") });
    }
    Ok((points, rest))
}

/// Returns (estimate − shift) / by, with the interval transformed in the same way.
fn shifted(estimate: &Estimate, shift: f64, by: f64) -> Estimate {
    let of = |value: f64| (value - shift) / by;
    Estimate {
        value: of(estimate.value),
        interval: estimate.interval.map(|(low, high)| (of(low), of(high))),
        method: estimate.method.clone(),
    }
}

/// Returns the measured times of each message type, over all rates.
fn messages(observations: &[Observation]) -> Vec<MessageFit> {
    let single = || observations.iter().filter(|observation| observation.servers == 1);
    let names = message_names(observations);
    let all: f64 = single().flat_map(|one| &one.messages).map(|message| message.weight).sum();
    let fits = names.into_iter().map(|message| {
        let own = || single().flat_map(|one| &one.messages).filter(|other| other.message == message);
        let weight: f64 = own().map(|other| other.weight).sum();
        let means: Vec<f64> = own().filter_map(|other| other.service_s).collect();
        let scvs: Vec<f64> = own().filter_map(|other| other.scv).collect();
        MessageFit { share: weight / all, mean_s: mean_of(&means), scv: mean_of(&scvs), message: message.clone() }
    });
    // Skip types without a time.
    fits.filter(|fit| fit.mean_s.is_some()).collect()
}

/// Returns the mean of independent values, with its interval.
fn mean_of(values: &[f64]) -> Option<Estimate> {
    let ones: Vec<Vec<f64>> = values.iter().map(|_| vec![1.0]).collect();
    least_squares(&ones, values)?.coefficients.into_iter().next()
}

/// Returns the parts of each type. The socket's part is the same for all; the rest is proportional to the type's
/// time.
fn parts(messages: &[MessageFit], base: f64, rest: f64) -> Vec<MessageTiming> {
    let timing = |message: &str, share: f64, factor: f64| MessageTiming {
        message: message.to_owned(),
        share,
        sockq_base: Part::constant(if rest > 0.0 { base } else { base * factor }),
        copy: Part::default(),
        sip: Part::constant(rest * factor),
        send: Part::default(),
    };
    let shares: f64 = messages.iter().map(|message| message.share).sum();
    let mean = |message: &MessageFit| message.mean_s.as_ref().map_or(0.0, |mean| mean.value);
    let all: f64 = messages.iter().map(|message| message.share / shares * mean(message)).sum();
    if messages.is_empty() || all <= 0.0 {
        return vec![timing("any", 1.0, 1.0)];
    }
    messages
        .iter()
        .map(|message| {
            // Proportional to the rest only: each type's mean includes the socket's part.
            let own = if rest > 0.0 {
                (mean(message) - base).max(0.0) / (all - base).max(1e-12)
            } else {
                mean(message) / all
            };
            timing(&message.message, message.share / shares, own)
        })
        .collect()
}

/// Returns the variation of service times, as measured or as derived from waits.
fn variation(
    served: &[ServiceSample<'_>],
    timing: &mut PacketTiming,
    resample: &Bootstrap,
    notes: &mut Vec<String>,
) -> Option<Estimate> {
    let measured: Vec<f64> = served.iter().filter_map(|served| served.from.measured_scv()).collect();
    if let Some(estimate) = mean_of(&measured) {
        notes.push("E[X²] is as measured".to_owned());
        spread(timing, estimate.value);
        return Some(estimate);
    }
    let waits: Vec<(f64, f64)> = served
        .iter()
        .filter_map(|served| {
            let (wait, rho) = (served.from.wait_s?, served.rate * served.mean);
            // The wait without variance.
            let least = served.rate * served.mean.powi(2) / (2.0 * (1.0 - rho));
            (rho < STABLE && wait > 0.0).then_some((wait, least))
        })
        .collect();
    if waits.is_empty() {
        notes.push(
            "the variation of service times is unknown: assumed constant for each message type, the minimum (give waiting \
             or scv)"
                .to_owned(),
        );
        return None;
    }
    // W = (1 + scv)·W₀, by least squares of relative errors.
    let solve = |waits: &[(f64, f64)]| -> f64 {
        let (one, two) = waits.iter().fold((0.0, 0.0), |(one, two), (wait, least)| {
            let ratio = least / wait;
            (one + ratio, two + ratio * ratio)
        });
        one / two - 1.0
    };
    let scv = solve(&waits);
    let interval = resample.interval(&waits, |sample| Some(solve(sample)));
    notes.push(format!(
        "E[X²] is computed from the waits of {} measurements below a load of {:.0} %",
        waits.len(),
        100.0 * STABLE
    ));
    if scv < 0.0 {
        notes.push(format!(
            "the waits are {:.0} % below those of a constant service time: arrivals are more regular than Poisson, or the service time \
             includes waiting; the variation is taken as 0",
            -100.0 * scv
        ));
    }
    spread(timing, scv.max(0.0));
    let method = format!("bootstrap over {} measurements, {}", waits.len(), resample.method());
    Some(Estimate { value: scv, interval, method })
}

/// Sets the variance of the parts so that all packets together have this variation.
fn spread(timing: &mut PacketTiming, scv: f64) {
    let Ok(between) = timing.service_at(0.0) else { return };
    // Different means of the types already contribute variance.
    let wanted = (1.0 + scv) * between.mean_s().powi(2);
    let within: f64 = timing.messages.iter().map(|message| message.share * largest(message).mean_s.powi(2)).sum();
    let missing = wanted - between.second_moment_s2();
    if missing <= 0.0 || within <= 0.0 {
        return;
    }
    for message in &mut timing.messages {
        let part = largest_mut(message);
        part.variance_s2 = missing / within * part.mean_s.powi(2);
    }
}

fn largest(message: &MessageTiming) -> Part {
    if message.sip.mean_s > message.sockq_base.mean_s { message.sip } else { message.sockq_base }
}

fn largest_mut(message: &mut MessageTiming) -> &mut Part {
    if message.sip.mean_s > message.sockq_base.mean_s { &mut message.sip } else { &mut message.sockq_base }
}
