//! Trunks, next hops that do not answer, balancers and their targets.

use std::collections::BTreeSet;
use std::fmt;

use strowger_control::protocol::{Balancer, Outage, Status, Target, Trunk};

use crate::encoder::{Encoder, Family, Labels, flag};

/// A figure of a target.
type Figure = fn(&Target) -> u64;

/// Maximum number of targets with metrics of their own. Lists and the DNS may name more; they are in the metrics of
/// their balancer, and `strowger_omitted_targets` counts them.
pub const MAX_TARGETS: usize = 1_000;

pub(crate) fn write(to: &mut Encoder<'_>, status: &Status, targets: &[Target]) -> fmt::Result {
    trunks(to, &status.trunks)?;
    outages(to, &status.outages)?;
    balancers(to, &status.balancers)?;
    each_target(to, targets)
}

fn trunks(to: &mut Encoder<'_>, trunks: &[Trunk]) -> fmt::Result {
    let label = |trunk: &Trunk| -> Labels { vec![("trunk", trunk.name.clone())] };
    let family = Family::new("trunk_registered", "1 if the server is registered at the trunk.");
    to.gauges(&family, trunks.iter().map(|trunk| (label(trunk), flag(trunk.state == "registered"))))?;
    let family = Family::seconds("trunk_state", "Time that the trunk's registration has been in its present state.");
    to.gauges(&family, trunks.iter().map(|trunk| (label(trunk), trunk.since_s)))?;
    let family = Family::seconds("trunk_expires", "Time until the registration at the trunk expires.");
    to.gauges(&family, trunks.iter().filter_map(|trunk| Some((label(trunk), trunk.expires_s?))))?;
    let family = Family::new("trunk_last_status", "Status code of the last response to a registration at the trunk.");
    to.gauges(&family, trunks.iter().filter_map(|trunk| Some((label(trunk), u64::from(trunk.last_answer?)))))
}

/// Writes the next hops that the configuration names. Those that only callers name are counted in
/// `targets_avoided`: there may be any number of them.
fn outages(to: &mut Encoder<'_>, outages: &[Outage]) -> fmt::Result {
    let mut seen = BTreeSet::new();
    let named = outages.iter().filter_map(|outage| {
        let uri = outage.uri.clone()?;
        let text = |name: &Option<String>| name.clone().unwrap_or_default();
        let labels = vec![("uri", uri), ("balancer", text(&outage.set)), ("trunk", text(&outage.trunk))];
        // A name may have several addresses that do not answer; the list begins with any of them.
        seen.insert(labels.clone()).then_some((labels, outage.since_s))
    });
    let help = "Time since a next hop that the configuration names was first found not to answer.";
    to.gauges(&Family::seconds("next_hop_outage", help), named)
}

fn balancers(to: &mut Encoder<'_>, balancers: &[Balancer]) -> fmt::Result {
    let label = |balancer: &Balancer| -> Labels { vec![("balancer", balancer.name.clone())] };
    let family = Family::new("balancer_targets", "Targets of a balancer.");
    to.gauges(&family, balancers.iter().map(|balancer| (label(balancer), balancer.targets)))?;
    let family = Family::new("balancer_targets_in_service", "Targets of a balancer that take new calls.");
    to.gauges(&family, balancers.iter().map(|balancer| (label(balancer), balancer.in_service)))?;
    let family = Family::new("balancer_calls", "Calls in progress at the targets of a balancer.");
    to.gauges(&family, balancers.iter().map(|balancer| (label(balancer), balancer.calls)))
}

fn each_target(to: &mut Encoder<'_>, targets: &[Target]) -> fmt::Result {
    let label = |target: &Target| -> Labels { vec![("balancer", target.set.clone()), ("target", target.uri.clone())] };
    // A target that was removed and added again has two entries; that of the configuration comes first.
    let mut seen = BTreeSet::new();
    let distinct: Vec<&Target> = targets.iter().filter(|target| seen.insert((&target.set, &target.uri))).collect();
    let shown = distinct.get(..MAX_TARGETS).unwrap_or(&distinct);
    let help = "Targets without metrics of their own because there are too many.";
    to.gauge(&Family::new("omitted_targets", help), (distinct.len() - shown.len()) as u64)?;
    let gauges: [(Family<'_>, Figure); 4] = [
        (Family::new("target_up", "1 if a target takes new calls."), |target| {
            flag(matches!(target.state.as_str(), "up" | "slow start") && target.outage.is_none())
        }),
        (Family::new("target_draining", "1 if a target is drained."), |target| flag(target.draining)),
        (Family::new("target_calls", "Calls in progress at a target."), |target| target.calls.into()),
        (Family::new("target_transactions", "Transactions in progress at a target."), |target| {
            target.transactions.into()
        }),
    ];
    for (family, value) in gauges {
        to.gauges(&family, shown.iter().map(|target| (label(target), value(target))))?;
    }
    let help = "Maximum number of simultaneous calls of a target.";
    let capacity = shown.iter().filter_map(|target| Some((label(target), u64::from(target.capacity?))));
    to.gauges(&Family::new("target_capacity", help), capacity)?;
    let help = "Moving average of a target's time to the first response.";
    let response = shown.iter().filter_map(|target| Some((label(target), target.response_time_ms? / 1e3)));
    to.gauges(&Family::seconds("target_response_time", help), response)?;
    let counters: [(Family<'_>, Figure); 2] = [
        (Family::new("target_requests", "Transactions of a target."), |target| target.requests),
        (Family::new("target_failures", "Transactions of a target that got no answer, or a 503."), |target| {
            target.failures
        }),
    ];
    for (family, value) in counters {
        to.counters(&family, shown.iter().map(|target| (label(target), value(target))))?;
    }
    Ok(())
}
