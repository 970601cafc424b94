//! SIPstone: five tests of a server, and their weighted mean.
//!
//! From H. Schulzrinne, S. Narayanan, J. Lennox and M. Doyle, "SIPstone - Benchmarking SIP Server Performance"
//! (2002). The result of each test is the highest rate at which [`SUCCESS`] of its requests succeed within
//! [`WITHIN`]. SIPstone-A is the weighted mean of the five rates ([`score`]).
//!
//! | test | workload | messages | what the server must be |
//! |---|---|---|---|
//! | registration | `registration` | REGISTER, (401, REGISTER,) 200 | a registrar; with authentication if it asks for it |
//! | outbound proxy | `outbound` | as proxy-200, to an address of another domain | a proxy that relays to other domains |
//! | redirect | `redirect` | INVITE, 302, ACK | a redirect server for the domain |
//! | proxy 480 | `proxy-480` | INVITE, 480, ACK | a registrar at which no callee is registered |
//! | proxy 200 | `proxy-200` | INVITE, (407, ACK, INVITE,) 180, 200, ACK, BYE, 200 | a registrar and proxy; with authentication if it asks for it |
//!
//! The kinds of tests and the weighted mean are the benchmark's. We have no source for its weights, nor for its
//! limits on failures and times. Ours are equal weights, 95 % and 2 s (the limit of the two-stage paper); reports
//! declare them.

use std::net::SocketAddr;
use std::time::Duration;

use crate::script::{Extract, MethodId, Pattern, Script, ScriptBuilder, ScriptError, SessionResult};

use super::calls::{self, ACK_TO_FAILURE, CallTimes, INVITE, registering};
use super::{Parameter, Parameters, Workload, WorkloadError, callee};

/// A test of SIPstone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SipstoneTest {
    /// The name in SIPstone.
    pub name: &'static str,
    /// The workload in this crate.
    pub workload: &'static str,
    /// Its weight in the score.
    pub weight: f64,
    /// The rule that a rate must meet, as in `load search --rule`.
    pub rule: &'static str,
}

/// Share of requests that must succeed.
pub const SUCCESS: f64 = 0.95;
/// Maximum time from a request to its success.
pub const WITHIN: Duration = Duration::from_secs(2);
/// How long a rate is held, as in the two-stage paper.
pub const LASTS: Duration = Duration::from_secs(60);

const RULE: &str = "success(2s)=95%";

/// The tests, with equal weights. Those after `proxy-480` register the callees, which must not be registered in it.
pub const PARTS: [SipstoneTest; 5] = [
    SipstoneTest { name: "registration", workload: "registration", weight: 1.0, rule: RULE },
    SipstoneTest { name: "outbound proxy", workload: "outbound", weight: 1.0, rule: RULE },
    SipstoneTest { name: "proxy 480", workload: "proxy-480", weight: 1.0, rule: RULE },
    SipstoneTest { name: "redirect", workload: "redirect", weight: 1.0, rule: RULE },
    SipstoneTest { name: "proxy 200", workload: "proxy-200", weight: 1.0, rule: RULE },
];

/// Returns the weighted mean of rates; `None` if no weight is positive, or if a weight or a rate is negative or not
/// finite.
#[must_use]
pub fn score(rates: &[(SipstoneTest, f64)]) -> Option<f64> {
    let is_sound = |value: f64| value >= 0.0 && value.is_finite();
    if !rates.iter().all(|(part, rate)| is_sound(part.weight) && is_sound(*rate)) {
        return None;
    }
    let sum: f64 = rates.iter().map(|(part, _)| part.weight).sum();
    let weighted: f64 = rates.iter().map(|(part, rate)| part.weight * rate).sum();
    (sum > 0.0).then(|| weighted / sum)
}

/// Parameters of `outbound`: the callee's address.
pub(super) const OUTBOUND: &[Parameter] = &[
    Parameter::ours("at", "127.0.0.1:5070", "address and port of the callee in the request URI"),
    Parameter::ours("ring", "none", "ring time, a distribution"),
    Parameter::ours("hold", "none", "talk time, a distribution"),
];

/// Returns the workload of calls to an address outside the server's domains.
pub(super) fn outbound(parameters: &Parameters) -> Result<Workload, WorkloadError> {
    let text = parameters.text("at")?;
    let at: SocketAddr = text.parse().map_err(|_| {
        WorkloadError(format!("at: '{text}' is not an address with a port; write it as 127.0.0.1:5070"))
    })?;
    let times =
        CallTimes { ring: parameters.optional_law("ring")?, hold: parameters.optional_law("hold")?, reaction: None };
    Ok(Workload {
        callers: vec![calls::caller_to(&times, &format!("sip:[callee]@{at}"))?],
        callees: vec![callee(&times)?],
        answers: vec![(MethodId::Invite, 0)],
        listen: Some(at),
        ..Workload::empty()
    })
}

/// Returns the workload of redirected calls.
pub(super) fn redirect(_: &Parameters) -> Result<Workload, WorkloadError> {
    Ok(Workload {
        callers: vec![refused_caller("redirect", &[300, 301, 302])?],
        callees: vec![callee(&CallTimes::default())?, registering()?],
        answers: vec![(MethodId::Invite, 0)],
        registering: Some(1),
        ..Workload::empty()
    })
}

/// Parameters of `proxy-480`: the statuses that mean that the callee is not available.
pub(super) const PROXY_480: &[Parameter] =
    &[Parameter::ours("status", "480", "status for an unregistered user; 404 if the server is configured so")];

/// Returns the workload of calls to users who are not registered.
pub(super) fn proxy_480(parameters: &Parameters) -> Result<Workload, WorkloadError> {
    let text = parameters.text("status")?;
    let status = text.parse().ok().filter(|status| (300..700).contains(status));
    let status = status.ok_or_else(|| WorkloadError(format!("status: '{text}' is not valid; write 480 or 404")))?;
    Ok(Workload { callers: vec![refused_caller("proxy-480", &[status])?], ..Workload::empty() })
}

/// Returns the script of an INVITE that must be answered with one of these statuses, and its ACK, with answers to
/// challenges.
fn refused_caller(name: &str, statuses: &[u16]) -> Result<Script, ScriptError> {
    let mut script = ScriptBuilder::new(name);
    let (again, challenged, answered) = (script.label(), script.label(), script.label());
    let mut awaited = vec![
        (Pattern::PROVISIONAL, Extract::NOTHING, None),
        (Pattern::status(401), Extract::CHALLENGE, Some(challenged)),
        (Pattern::status(407), Extract::CHALLENGE, Some(challenged)),
    ];
    awaited.extend(statuses.iter().map(|status| (Pattern::status(*status), Extract::NOTHING, Some(answered))));
    script.place_label(again).send(INVITE).wait(&awaited);
    script.place_label(challenged).send(ACK_TO_FAILURE).jump(again);
    script.place_label(answered).send(ACK_TO_FAILURE).end(SessionResult::Carried);
    script.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_score_is_the_weighted_mean() {
        let rates = [100.0, 200.0, 300.0, 400.0, 500.0];
        let equal: Vec<_> = PARTS.into_iter().zip(rates).collect();
        assert_eq!(score(&equal), Some(300.0));
        let mut weighted = equal.clone();
        weighted[4].0.weight = 6.0;
        assert_eq!(score(&weighted), Some(400.0));
        assert_eq!(score(&[]), None);
        weighted[0].1 = f64::NAN;
        assert_eq!(score(&weighted), None);
    }

    #[test]
    fn each_part_has_a_workload() {
        for part in PARTS {
            assert!(Workload::by_name(part.workload).expect("sound defaults").is_some(), "{}", part.name);
        }
    }
}
