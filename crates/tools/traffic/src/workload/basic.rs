//! The basic workloads: answered calls, and registrations.

use std::time::Duration;

use super::{CallTimes, Parameter, Parameters, Workload, WorkloadError, callee, caller, faults, registering};
use crate::engine::Mix;
use crate::law::Law;
use crate::script::MethodId;

/// Parameters of `proxy-200`.
pub(super) const TIMES: &[Parameter] = &[
    Parameter::ours("ring", "none", "ring time, a distribution"),
    Parameter::ours("hold", "none", "talk time, a distribution"),
    Parameter::ours("reaction", "none", "delay before 180, ACK and the last 200, a distribution"),
    faults::FAULTS,
    faults::NO_ANSWER_RING,
];

/// Parameters of `baseline`.
pub(super) const FAULTS: &[Parameter] = &[faults::FAULTS, faults::NO_ANSWER_RING];

pub(super) fn proxy_200(parameters: &Parameters) -> Result<Workload, WorkloadError> {
    let law = |name| parameters.optional_law(name);
    let times = CallTimes { ring: law("ring")?, hold: law("hold")?, reaction: law("reaction")? };
    faults::add(parameters, answered(&times)?, &times)
}

pub(super) fn baseline(parameters: &Parameters) -> Result<Workload, WorkloadError> {
    let pause = Law::constant(Duration::from_millis(250));
    let times = CallTimes { ring: Some(pause.clone()), hold: Some(pause), reaction: None };
    faults::add(parameters, answered(&times)?, &times)
}

pub(super) fn registration(_: &Parameters) -> Result<Workload, WorkloadError> {
    Ok(Workload { callers: vec![registering()?], ..Workload::empty() })
}

/// Returns the workload of answered calls.
pub(super) fn answered(times: &CallTimes) -> Result<Workload, WorkloadError> {
    Ok(Workload {
        callers: vec![caller(times)?],
        mix: Mix::One(0),
        callees: vec![callee(times)?, registering()?],
        answers: vec![(MethodId::Invite, 0)],
        registering: Some(1),
        ..Workload::empty()
    })
}
