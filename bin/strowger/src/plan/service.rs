//! Service time of a packet: given directly, by message type, or by a profile.

use std::path::PathBuf;

use clap::Args;
use strowger_plan::{Curve, Explanation, PlanError, ServiceTime, Step, units};

use super::field::{Input, InputPoint};
use super::numbers::{Numbers, plain, times};
use super::profile::{LoadedProfile, load};
use super::units::Unit;
use crate::failure::Failure;
use crate::plot::DisplayUnit;

#[derive(Debug, Args)]
pub(super) struct ServiceArguments {
    /// E[X], mean service time of a packet; with --alpha, without the socket's part
    #[arg(
        long,
        value_name = "TIME",
        value_parser = times,
        allow_hyphen_values = true,
        required_unless_present_any = ["types", "profile"],
        conflicts_with_all = ["types", "profile"]
    )]
    service: Option<Numbers>,
    /// Squared coefficient of variation of service times, Var[X]/E[X]²: 0 for constant, 1 for exponential times
    /// [default: 1]
    #[arg(long, value_name = "NUMBER", value_parser = plain, allow_hyphen_values = true, conflicts_with_all = ["types", "profile"])]
    scv: Option<Numbers>,
    /// Service time of a message type, NAME:TIME[:SCV[:WEIGHT]], such as INVITE:230us or 180:120us:0.1:2; may be
    /// repeated
    #[arg(long = "type", value_name = "TYPE", value_parser = message_type)]
    types: Vec<MessageType>,
    /// Factor that interrupts add to the socket's part: exponential or deterministic (from the thesis), or points,
    /// such as 0=1,600=3,2400=8
    #[arg(long, value_name = "CURVE", value_parser = curve, requires = "base")]
    alpha: Option<Curve>,
    /// K_sockq, time of the socket for a packet that does not wait, without load; multiplied by α
    #[arg(long, value_name = "TIME", value_parser = times, allow_hyphen_values = true, requires = "alpha")]
    base: Option<Numbers>,
    /// Measured profile of a server, from plan fit
    #[arg(long, value_name = "FILE")]
    pub(super) profile: Option<PathBuf>,
}

/// A message type with its service time.
#[derive(Clone, Debug)]
struct MessageType {
    service: ServiceTime,
    weight: f64,
}

/// Source of the service time as a function of the rate.
#[derive(Debug)]
pub(super) struct Service<'a> {
    arguments: &'a ServiceArguments,
    /// Whether times are exponential regardless of `scv`, as in M/M/c/K.
    is_exponential: bool,
    pub(super) profile: Option<LoadedProfile>,
    default_scv: Numbers,
}

impl ServiceArguments {
    /// Returns a service with any variance.
    pub(super) fn general(&self) -> Result<Service<'_>, Failure> {
        self.service(false)
    }

    /// Returns an exponential service.
    pub(super) fn exponential(&self) -> Result<Service<'_>, Failure> {
        if self.scv.is_some() {
            return Err(Failure::Usage(
                "M/M/c/K has exponential service times, so --scv has no effect; omit it, or use mgck".to_owned(),
            ));
        }
        self.service(true)
    }

    fn service(&self, is_exponential: bool) -> Result<Service<'_>, Failure> {
        let profile = self.profile.as_deref().map(load).transpose()?;
        if self.alpha.is_some() && profile.is_some() {
            return Err(Failure::Usage("the profile has its own α; omit --alpha or --profile".to_owned()));
        }
        Ok(Service { arguments: self, is_exponential, profile, default_scv: Numbers::one(1.0) })
    }
}

impl Service<'_> {
    /// Returns the inputs that can be swept.
    pub(super) fn inputs(&self) -> Vec<Input<'_>> {
        let arguments = self.arguments;
        let name = if arguments.alpha.is_some() { "service without the socket" } else { "mean service E[X]" };
        let mut inputs = Vec::new();
        inputs.extend(
            arguments.service.as_ref().map(|numbers| Input::new("service_us", name, DisplayUnit::Micros, numbers)),
        );
        inputs.extend(
            arguments
                .base
                .as_ref()
                .map(|numbers| Input::new("base_us", "K_sockq without load", DisplayUnit::Micros, numbers)),
        );
        if arguments.service.is_some() && !self.is_exponential {
            let scv = arguments.scv.as_ref().unwrap_or(&self.default_scv);
            inputs.push(Input::new("scv", "variation Var[X]/E[X]²", DisplayUnit::Number, scv));
        }
        inputs
    }

    /// Returns the assumptions made for missing arguments.
    pub(super) fn assumptions(&self) -> Vec<String> {
        let mut said = Vec::new();
        if self.arguments.service.is_some() && self.arguments.scv.is_none() && !self.is_exponential {
            said.push(
                "assumed: service times are exponentially distributed (--scv 1); the proxies in the thesis have 0.02 to 0.05"
                    .to_owned(),
            );
        }
        said.extend(self.profile.iter().flat_map(LoadedProfile::says));
        said
    }

    /// Whether the service time is the same at every rate.
    pub(super) fn is_constant(&self) -> bool {
        self.arguments.alpha.is_none() && self.profile.is_none()
    }

    /// Whether E[X] was given directly.
    pub(super) fn is_told(&self) -> bool {
        self.is_constant() && self.arguments.service.is_some()
    }

    /// Returns X at a packet rate.
    pub(super) fn at(&self, at: &InputPoint, packets_per_s: f64) -> Result<ServiceTime, PlanError> {
        if let Some(loaded) = &self.profile {
            return loaded.service_at(packets_per_s);
        }
        let rest = self.rest(at)?;
        let Some(alpha) = &self.arguments.alpha else { return Ok(rest) };
        let socket = alpha.at(packets_per_s) * at.of("base_us");
        // The socket's part varies little: it adds to the mean, and the variance stays.
        let mean = rest.mean_s() + socket;
        let variance = rest.second_moment_s2() - rest.mean_s().powi(2);
        ServiceTime::from_moments(mean, mean * mean + variance)
    }

    /// Returns the part that α does not multiply.
    fn rest(&self, at: &InputPoint) -> Result<ServiceTime, PlanError> {
        if self.arguments.service.is_some() {
            let scv = if self.is_exponential { 1.0 } else { at.of("scv") };
            return ServiceTime::with_scv(at.of("service_us"), scv);
        }
        let types = &self.arguments.types;
        let all: f64 = types.iter().map(|one| one.weight).sum();
        let shares: Vec<(f64, ServiceTime)> = types.iter().map(|one| (one.weight / all, one.service)).collect();
        ServiceTime::mixture(&shares)
    }

    /// Explains how E[X] was derived, if it was not given directly.
    pub(super) fn explain(&self, at: &InputPoint, packets_per_s: f64) -> Result<Explanation, PlanError> {
        if let Some(loaded) = &self.profile {
            return loaded.explain_at(packets_per_s);
        }
        let service = self.at(at, packets_per_s)?;
        let rest = self.rest(at)?;
        let mut explanation = Explanation::default();
        if !self.arguments.types.is_empty() {
            explanation.steps.push(Step {
                symbol: "E[X]".to_owned(),
                meaning: "the mean over the message types".to_owned(),
                formula: "Σ_i share_i·E[X_i]".to_owned(),
                numbers: format!("{} message types", self.arguments.types.len()),
                value: units::time(rest.mean_s()),
                source: "Krishnamurthy, thesis, section 4.3; E[X²] by its eq. 4.3".to_owned(),
            });
        }
        if let Some(alpha) = &self.arguments.alpha {
            let factor = units::number(alpha.at(packets_per_s));
            let base = units::time(at.of("base_us"));
            explanation.steps.push(Step {
                symbol: "E[X]".to_owned(),
                meaning: "the mean service time, including interrupts".to_owned(),
                formula: "α(λ)·K_sockq^{s,base} + the rest".to_owned(),
                numbers: format!("{factor} × {base} + {}", units::time(rest.mean_s())),
                value: units::time(service.mean_s()),
                source: "Krishnamurthy, thesis, eq. 4.1 and 4.4".to_owned(),
            });
        }
        Ok(explanation)
    }
}

/// Appends one explanation to another.
pub(super) fn joined(mut first: Explanation, then: &impl strowger_plan::Explain) -> Explanation {
    first.steps.extend(then.explain().steps);
    first
}

fn message_type(text: &str) -> Result<MessageType, String> {
    let wrong =
        |what: &str| format!("'{text}' {what}; a message type is NAME:TIME[:SCV[:WEIGHT]], such as INVITE:230us:0.1");
    let mut parts = text.split(':');
    let name = parts.next().unwrap_or_default().trim();
    let mean = parts.next().ok_or_else(|| wrong("has no time"))?;
    let number = |part: Option<&str>, default: f64| part.map_or(Ok(default), |part| Unit::Number.read(part));
    let mean = Unit::Time.read(mean)?;
    let (scv, weight) = (number(parts.next(), 0.0)?, number(parts.next(), 1.0)?);
    if name.is_empty() || parts.next().is_some() {
        return Err(wrong("has too few or too many parts"));
    }
    if weight <= 0.0 {
        return Err(wrong("has a weight that is not above zero"));
    }
    let service = ServiceTime::with_scv(mean, scv).map_err(|error| format!("{error}; {}", error.remedy()))?;
    Ok(MessageType { service, weight })
}

/// Parses α of the thesis, or points.
fn curve(text: &str) -> Result<Curve, String> {
    match text.trim() {
        "exponential" => return Ok(Curve::alpha_exponential()),
        "deterministic" => return Ok(Curve::alpha_deterministic()),
        "second-machine" => return Ok(Curve::alpha_second_machine()),
        _ => {}
    }
    let wrong = || {
        format!(
            "'{text}' is not an α; write exponential or deterministic (from the thesis), or packets/s and factors, such as 0=1,600=3,2400=8"
        )
    };
    let points = text.split(',').map(|point| {
        let (rate, factor) = point.split_once('=').ok_or_else(wrong)?;
        Ok((Unit::Rate.read(rate)?, Unit::Number.read(factor)?))
    });
    let points: Result<Vec<(f64, f64)>, String> = points.collect();
    Curve::new(points?).map_err(|error| format!("{error}; {}", error.remedy()))
}
