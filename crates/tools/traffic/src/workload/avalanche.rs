//! Avalanche of registrations after a power cut (avalanche restart in RFC 5390): all phones start at about the same
//! time, and each tries until it is registered.

use std::time::Duration;

use super::{NamedWorkload, Parameter, Parameters, Workload, WorkloadError, users};
use crate::engine::{Avalanche, FlowRecovery};
use crate::law::{Law, parse_time};

/// Default maximum time until all phones are registered.
const MEASURED: Duration = Duration::from_secs(3_600);

pub(super) const KNOWN: NamedWorkload = NamedWorkload {
    name: "avalanche",
    about: "phones that all register at once after a power failure, and retry as in RFC 5626 (4.5) until they succeed",
    paper: "",
    parameters: &[
        Parameter::ours("spread", "1s", "time within which phones start, evenly; or the distribution of their starts"),
        Parameter::ours("base-time", "30s", "base of the wait after a failure: 50 to 100 % of base-time × 2^failures"),
        Parameter::ours("max-time", "30m", "maximum of that wait"),
        Parameter::ours("expires", "3600s", "expiry requested in registrations"),
        Parameter::ours("refresh", "none", "share of the granted expiry after which it is refreshed, such as 0.5"),
    ],
    make: avalanche,
    is_model: false,
};

fn avalanche(parameters: &Parameters) -> Result<Workload, WorkloadError> {
    let start = match parse_time(parameters.text("spread")?) {
        Some(time) if time.is_zero() => Law::constant(time),
        Some(_) => {
            let text = format!("uniform(min=0s,max={})", parameters.text("spread")?);
            Law::parse(&text).map_err(|error| WorkloadError(format!("spread: {error}")))?
        }
        None => parameters.law("spread")?,
    };
    let flow_recovery = FlowRecovery { base: parameters.time("base-time")?, max: parameters.time("max-time")? };
    if flow_recovery.base.is_zero() || flow_recovery.max < flow_recovery.base {
        return Err(WorkloadError("base-time must be above 0, and max-time at least base-time".to_owned()));
    }
    let refresh = match parameters.text("refresh")? {
        "none" => None,
        _ => Some(parameters.share("refresh")?).filter(|part| *part > 0.0),
    };
    let expires = parameters.time("expires")?;
    if expires.as_secs() == 0 {
        return Err(WorkloadError("expires must be at least 1s".to_owned()));
    }
    Ok(Workload {
        callers: vec![users::registering(expires.as_secs())?],
        avalanche: Some(Avalanche { start, flow_recovery, refresh }),
        time: Some(MEASURED),
        declared: vec![(
            "time".to_owned(),
            "ends when all phones are registered, unless they refresh; --time is the maximum".to_owned(),
        )],
        ..Workload::empty()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(set: &[(&str, &str)]) -> Result<Workload, WorkloadError> {
        let set: Vec<_> = set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Workload::parse("avalanche", &set, 1.0)
    }

    #[test]
    fn times_default_to_the_rfc_and_can_be_set() {
        let usual = of(&[]).expect("defaults").avalanche.expect("an avalanche");
        assert_eq!(usual.flow_recovery, FlowRecovery::default());
        assert_eq!((usual.start.mean(), usual.refresh), (Some(0.5), None));
        let other = of(&[("spread", "exp(mean=3s)"), ("base-time", "3s"), ("max-time", "60s"), ("refresh", "0.5")]);
        let other = other.expect("values").avalanche.expect("an avalanche");
        assert_eq!(other.flow_recovery.upper_bound(2), Duration::from_secs(12));
        assert_eq!((other.start.mean(), other.refresh), (Some(3.0), Some(0.5)));
        for wrong in [("base-time", "0s"), ("max-time", "1s"), ("spread", "soon"), ("refresh", "2"), ("expires", "0s")]
        {
            assert!(of(&[wrong]).is_err(), "{wrong:?}");
        }
        assert!(Workload::parse("avalanche:1,registration:1", &[], 1.0).is_err(), "phones come at no rate");
    }
}
