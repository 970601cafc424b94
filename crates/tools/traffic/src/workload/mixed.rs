//! Parsing of `--workload`: one workload, or several with weights.

use super::{NamedWorkload, Parameters, Workload, WorkloadError, names};
use crate::engine::{Mix, WeightedScripts};
use crate::script::{Script, Step};

/// Maximum number of script classes in a mix.
const MAX_CLASSES: usize = 256;

/// A member of a mix.
struct Member {
    known: &'static NamedWorkload,
    weight: f64,
    parameters: Parameters,
}

/// Parses a name, or names with weights.
pub(super) fn parse(text: &str, set: &[(String, String)], speed: f64) -> Result<Workload, WorkloadError> {
    if !(speed > 0.0 && speed.is_finite()) {
        return Err(WorkloadError(format!("a model cannot run {speed} times faster; give a number above 0")));
    }
    let mut members: Vec<Member> = text.split(',').map(|part| member(part, speed)).collect::<Result<_, _>>()?;
    for (name, value) in set {
        assign(&mut members, name, value)?;
    }
    let made = |member: &Member| Ok((member.known.build(&member.parameters)?, member.weight));
    let mut made: Vec<(Workload, f64)> = members.iter().map(made).collect::<Result<_, WorkloadError>>()?;
    match made.pop() {
        Some((only, _)) if made.is_empty() => Ok(only),
        Some(last) => {
            made.push(last);
            merge(text, made)
        }
        None => Err(WorkloadError("no workload is given".to_owned())),
    }
}

fn member(text: &str, speed: f64) -> Result<Member, WorkloadError> {
    let (name, weight) = text.split_once(':').unwrap_or((text, "1"));
    let (name, weight) = (name.trim(), weight.trim());
    let known = NamedWorkload::find(name)
        .ok_or_else(|| WorkloadError(format!("there is no workload '{name}'; workloads: {}", names())))?;
    let weight = weight.trim_end_matches('%').parse().ok().filter(|weight: &f64| weight.is_finite() && *weight > 0.0);
    let weight = weight.ok_or_else(|| {
        WorkloadError(format!("'{text}' has no weight above 0; write a mix as proxy-200:70,registration:30"))
    })?;
    let mut parameters = Parameters::new(known.parameters);
    if known.is_model {
        parameters.set_speed(speed);
    } else if (speed - 1.0).abs() > f64::EPSILON {
        return Err(WorkloadError(format!(
            "--speed accelerates model time, but {name} has no model; it is for --workload users"
        )));
    }
    Ok(Member { known, weight, parameters })
}

/// Assigns `name=value` to all members that have the parameter, and `workload.name=value` to one.
fn assign(members: &mut [Member], name: &str, value: &str) -> Result<(), WorkloadError> {
    if let Some((workload, name)) = name.split_once('.') {
        let mut of = members.iter_mut().filter(|member| member.known.name == workload).peekable();
        if of.peek().is_none() {
            return Err(WorkloadError(format!("--set {workload}.{name}: '{workload}' is not in the workload")));
        }
        return of.try_for_each(|member| member.parameters.set(name, value));
    }
    if !members.iter().any(|member| member.parameters.has(name))
        && let Some(first) = members.first_mut()
    {
        return first.parameters.set(name, value);
    }
    members.iter_mut().filter(|member| member.parameters.has(name)).try_for_each(|it| it.parameters.set(name, value))
}

/// Merges several workloads into one: concatenates their scripts, and has each answered by its own callee.
fn merge(name: &str, members: Vec<(Workload, f64)>) -> Result<Workload, WorkloadError> {
    let mut all = Workload { name: name.to_owned(), ..Workload::empty() };
    let (mut weights, mut classes) = (Vec::new(), 0);
    for (member, weight) in members {
        if !member.activities.is_empty() || member.avalanche.is_some() {
            return Err(WorkloadError(format!(
                "{} is a model of users, which has no arrival rate; it cannot be mixed with others",
                member.name
            )));
        }
        if member.connection_lifetime.is_some() {
            return Err(WorkloadError(format!(
                "{} opens a connection for each session; it cannot be mixed with others",
                member.name
            )));
        }
        let own = member.callers.iter().chain(&member.callees).map(|script| usize::from(script.class)).max();
        let (first_caller, first_callee) = (all.callers.len(), all.callees.len());
        let moved = |script: Script, first: usize| -> Result<Script, WorkloadError> {
            let class = u8::try_from(classes + usize::from(script.class))
                .map_err(|_| WorkloadError(format!("a mix has at most {MAX_CLASSES} classes of calls")))?;
            let steps = script.steps.into_iter().map(|step| match step {
                Step::Start { script } => shift(script, first).map(|script| Step::Start { script }),
                step => Ok(step),
            });
            let steps = steps.collect::<Result<_, _>>()?;
            Ok(Script { name: format!("{} {}", member.name, script.name), class, steps, ..script })
        };
        for script in member.callers {
            all.callers.push(moved(script, first_caller)?);
        }
        for script in member.callees {
            all.callees.push(moved(script, first_callee)?);
        }
        for (verb, script) in member.answers {
            all.answers.push((verb, shift(script, first_callee)?));
        }
        for (script, part) in member.mix.weights() {
            weights.push((shift(script, first_caller)?, weight * part));
        }
        if let (None, Some(script)) = (all.registering, member.registering) {
            all.registering = Some(shift(script, first_callee)?);
        }
        all.listen = all.listen.or(member.listen);
        classes += own.unwrap_or(0) + 1;
        all.declared.extend(member.declared.into_iter().map(|(what, text)| (format!("{}.{what}", member.name), text)));
    }
    all.mix = WeightedScripts::new(&weights)
        .map(Mix::Weighted)
        .ok_or_else(|| WorkloadError("no weight is above 0".into()))?;
    Ok(all)
}

fn shift(script: u16, first: usize) -> Result<u16, WorkloadError> {
    u16::try_from(usize::from(script) + first).map_err(|_| WorkloadError("a mix has at most 65,535 scripts".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::MethodId;

    fn set(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn members_keep_their_weights_and_answers() {
        let set = set(&[("proxy-200.hold", "3s")]);
        let mixed = Workload::parse("proxy-200:70, baseline:20, registration:10", &set, 1.0).expect("a mix");
        let names: Vec<_> = mixed.callers.iter().map(|script| script.name.as_str()).collect();
        assert_eq!(names.len(), 3);
        assert!(names[0].starts_with("proxy-200 ") && names[2].starts_with("registration "), "{names:?}");
        let shares: Vec<_> = mixed.mix.weights().iter().map(|(_, part)| (part * 100.0).round()).collect();
        assert_eq!(shares, [70.0, 20.0, 10.0]);
        let invites = mixed.answers.iter().filter(|(verb, _)| *verb == MethodId::Invite);
        let classes: Vec<_> = invites.map(|(_, script)| mixed.callees[usize::from(*script)].class).collect();
        assert_eq!(classes, [0, 1]);
        assert_eq!((mixed.callers[1].class, mixed.callers[2].class), (1, 2));
        assert!(mixed.registering.is_some());
        assert!(mixed.declared.contains(&("proxy-200.hold".to_owned(), "3s (set)".to_owned())), "{:?}", mixed.declared);
    }

    #[test]
    fn invalid_mixes_are_rejected() {
        for (text, pairs, speed, what) in [
            ("nonsense", &[][..], 1.0, "proxy-200, baseline"),
            ("proxy-200:x", &[], 1.0, "no weight"),
            ("proxy-200:0", &[], 1.0, "no weight"),
            ("proxy-200:50,users:50", &[], 1.0, "cannot be mixed"),
            ("proxy-200", &[("holt", "1s")], 1.0, "ring, hold"),
            ("proxy-200", &[("users.hold", "1s")], 1.0, "not in the workload"),
            ("proxy-200", &[("hold", "soon")], 1.0, "hold: "),
            ("proxy-200", &[], 60.0, "--workload users"),
            ("users", &[], 0.0, "above 0"),
        ] {
            let error = Workload::parse(text, &set(pairs), speed).expect_err(text).to_string();
            assert!(error.contains(what), "{text}: {error}");
        }
    }
}
