//! Messages by type, and the times of their packets.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use strowger_control::protocol::{CallSetup, DestinationSetup, SetupTimes};
use strowger_foundation::DurationHistogram;
use strowger_timing::{MessageType, MethodName, Part, TimeBuckets, TypeBuckets};

use crate::encoder::{Encoder, Family, Labels};
use crate::families::targets::MAX_TARGETS;

/// Bounds of the histograms of packets' times, ns: from 1 µs to 1 s.
pub const BOUNDS_NS: [u64; 19] = [
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
];

/// Parts of a packet's time that a server measures.
const PARTS: [Part; 8] = [
    Part::Receive,
    Part::ReceiveBatch,
    Part::Common,
    Part::Specific,
    Part::Application,
    Part::SendBatch,
    Part::Send,
    Part::SendCall,
];

/// Writes the times of call setup.
pub(crate) fn setup(to: &mut Encoder<'_>, setup: &CallSetup) -> fmt::Result {
    let help = "Time from an INVITE to its first provisional response other than 100.";
    let ringing = buckets(&setup.ringing);
    to.histograms(&Family::seconds("call_ringing", help), &setup_bounds(), [(Labels::new(), &ringing)])?;
    let results = results(&Labels::new(), setup);
    let samples = results.iter().map(|(labels, times)| (labels.clone(), times));
    let help = "Time from an INVITE to its final response.";
    to.histograms(&Family::seconds("call_setup", help), &setup_bounds(), samples)
}

/// Writes the times of calls by trunk and by target, at most [`MAX_TARGETS`] of each.
pub(crate) fn setups(to: &mut Encoder<'_>, setups: &[DestinationSetup]) -> fmt::Result {
    let of_trunk = |setup: &DestinationSetup| setup.trunk.clone().map(|trunk| vec![("trunk", trunk)]);
    let of_target = |setup: &DestinationSetup| {
        let (set, target) = (setup.set.clone()?, setup.target.clone()?);
        Some(vec![("balancer", set), ("target", target)])
    };
    setups_by(to, ["trunk_response", "trunk_call_ringing", "trunk_call_setup"], setups, &of_trunk)?;
    setups_by(to, ["target_response", "target_call_ringing", "target_call_setup"], setups, &of_target)
}

fn setups_by(
    to: &mut Encoder<'_>,
    [response, ringing, setup]: [&str; 3],
    setups: &[DestinationSetup],
    labels: &dyn Fn(&DestinationSetup) -> Option<Labels>,
) -> fmt::Result {
    // A destination that is both has the trunk's calls beside others.
    let mut all: BTreeMap<Labels, [TimeBuckets; 5]> = BTreeMap::new();
    for one in setups {
        let Some(labels) = labels(one) else { continue };
        if all.len() >= MAX_TARGETS && !all.contains_key(&labels) {
            continue;
        }
        let CallSetup { ringing, answered, rejected, cancelled } = &one.setup;
        let sums = all.entry(labels).or_default();
        let parts = [&one.response, ringing, answered, rejected, cancelled];
        sums.iter_mut().zip(parts).for_each(|(sum, one)| sum.add(&buckets(one)));
    }
    let help = "Time from an INVITE sent to this destination to its first response, 100 included.";
    let samples = all.iter().map(|(labels, [response, ..])| (labels.clone(), response));
    to.histograms(&Family::seconds(response, help), &setup_bounds(), samples)?;
    let help = "Time from an INVITE to the first provisional response of this destination other than 100.";
    let samples = all.iter().map(|(labels, [_, ringing, ..])| (labels.clone(), ringing));
    to.histograms(&Family::seconds(ringing, help), &setup_bounds(), samples)?;
    let help = "Time from an INVITE to its final response from this destination.";
    let samples = all.iter().flat_map(|(labels, [_, _, results @ ..])| {
        RESULTS.into_iter().zip(results).map(|(result, times)| (with_result(labels, result), times))
    });
    to.histograms(&Family::seconds(setup, help), &setup_bounds(), samples)
}

/// What becomes of calls, in the order of their figures.
const RESULTS: [&str; 3] = ["answered", "rejected", "cancelled"];

fn results(labels: &Labels, setup: &CallSetup) -> [(Labels, TimeBuckets); 3] {
    let CallSetup { answered, rejected, cancelled, .. } = setup;
    let [first, second, third] = RESULTS.map(|result| with_result(labels, result));
    [(first, buckets(answered)), (second, buckets(rejected)), (third, buckets(cancelled))]
}

fn with_result(labels: &Labels, result: &str) -> Labels {
    labels.iter().cloned().chain([("result", result.to_owned())]).collect()
}

fn buckets(times: &SetupTimes) -> TimeBuckets {
    TimeBuckets { sum_s: times.sum_s, counts: times.counts.clone() }
}

/// Returns the bounds of times of call setup, ns.
fn setup_bounds() -> Vec<u64> {
    let nanos = |bound: Duration| u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX);
    DurationHistogram::bounds().map(nanos).collect()
}

pub(crate) fn write(to: &mut Encoder<'_>, times: &[TypeBuckets]) -> fmt::Result {
    let mut rows: Vec<&TypeBuckets> = times.iter().collect();
    rows.sort_by_key(|row| row.message);
    messages(to, &rows)?;
    let of_requests = rows.iter().filter_map(|row| Some((method(request(row.message)?), row.part(Part::Application))));
    let help = "Time from the receipt of a request until it is handled (T_sip).";
    to.histograms(&Family::seconds("request_processing", help), &BOUNDS_NS, of_requests)?;
    let mut totals = PARTS.map(|part| (part, TimeBuckets::default()));
    for (part, total) in &mut totals {
        rows.iter().for_each(|row| total.add(row.part(*part)));
    }
    let of_parts = totals.iter().map(|(part, total)| (vec![("part", part.key().to_owned())], total));
    let help = "Parts of the time that a received packet and what it causes spend in the server.";
    to.histograms(&Family::seconds("packet_time", help), &BOUNDS_NS, of_parts)
}

fn messages(to: &mut Encoder<'_>, rows: &[&TypeBuckets]) -> fmt::Result {
    let requests = rows.iter().filter_map(|row| Some((method(request(row.message)?), row.packets)));
    to.counters(&Family::new("requests", "Requests received, including retransmissions, by method."), requests)?;
    let responses = rows.iter().filter_map(|row| match row.message {
        MessageType::Response(status, name) => {
            let mut labels = method(name);
            labels.push(("code", status.to_string()));
            Some((labels, row.packets))
        }
        _ => None,
    });
    to.counters(&Family::new("responses", "Responses received, by method and status code."), responses)?;
    let others: u64 = rows.iter().filter(|row| row.message == MessageType::Other).map(|row| row.packets).sum();
    let help = "Received messages of further types: only so many are counted by type.";
    let others = (others > 0).then_some((Labels::new(), others));
    to.counters(&Family::new("other_messages", help), others)
}

fn request(message: MessageType) -> Option<MethodName> {
    match message {
        MessageType::Request(method) => Some(method),
        _ => None,
    }
}

fn method(name: MethodName) -> Labels {
    let name = if name == MethodName::Extension { "other" } else { name.as_str() };
    vec![("method", name.to_owned())]
}
