//! What is proposed for a host.

pub(crate) mod buffers;
pub(crate) mod cores;
pub(crate) mod memory;
pub(crate) mod network;
pub(crate) mod priority;

use crate::gains::Gains;
use crate::host::Host;
use crate::proposal::{Proposal, Request, Topic};

/// Returns everything that can be tuned, by group.
#[must_use]
pub fn topics() -> Vec<&'static Topic> {
    let groups: [&[&'static Topic]; 5] =
        [&priority::TOPICS, &cores::TOPICS, &network::TOPICS, &buffers::TOPICS, &memory::TOPICS];
    let mut all: Vec<&'static Topic> = groups.concat();
    all.sort_by_key(|topic| topic.group);
    all
}

/// Returns what differs from the proposed values, by group. Reads the host and changes nothing.
#[must_use]
pub fn propose(host: &Host, request: &Request) -> Vec<Proposal> {
    let mut all = priority::advise(host, request);
    all.extend(cores::advise(host, request));
    all.extend(network::advise(host, request));
    all.extend(buffers::advise(host, request));
    all.extend(memory::advise(host, request));
    let gains = Gains::measured();
    for proposal in &mut all {
        if let Some(gain) = gains.of(proposal.topic.name, host, request) {
            proposal.gain = gain;
        }
    }
    all.sort_by_key(|proposal| (proposal.topic.group, !proposal.is_recommended));
    all
}
