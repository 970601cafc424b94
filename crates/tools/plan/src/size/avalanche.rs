//! Registration avalanche: all phones register at once after an outage.

use super::demand::{Demand, UnitCosts};
use super::{Avalanche, Resource, Stage};

/// Returns the avalanche after an outage, or `None` if calls alone overload the service.
///
/// Each resource limits the rate of registrations, one per contact, with all servers up and the calls of the busy
/// hour. The lowest limit counts.
pub(super) fn after_an_outage(demand: &Demand<'_>, first: u32, clusters: u32, members: u32) -> Option<Avalanche> {
    let mut rates = of_the_second_stage(demand, clusters, members);
    if clusters > 1 {
        rates.extend(of_the_first_stage(demand, first));
    }
    let (stage, resource, registrations_per_s) = rates.into_iter().min_by(|a, b| a.2.total_cmp(&b.2))?;
    let registrations = demand.contacts();
    let least_s = registrations / registrations_per_s;
    let is_one = registrations_per_s > 0.0 && least_s.is_finite();
    is_one.then_some(Avalanche { registrations, registrations_per_s, least_s, stage, resource })
}

/// Bottleneck and the registration rate at which it saturates, 1/s.
type Rate = (Stage, Resource, f64);

/// Returns the limits of the busiest cluster.
fn of_the_second_stage(demand: &Demand<'_>, clusters: u32, members: u32) -> Vec<Rate> {
    let (needs, profile) = (demand.needs, demand.profile);
    let costs = UnitCosts::of(needs, profile);
    let share = demand.largest_share(clusters);
    let part = demand.part_of(members);
    // Copies per registration of its cluster: a member passes on what it accepts and receives what others accept.
    let is_copied = demand.copies_per_s() > 0.0;
    let copies = if is_copied { part * f64::from(members - 1) + (1.0 - part) } else { 0.0 };
    let calls = demand.traffic.calls_per_s * share * part;
    let bits = profile.messages.message_bytes * 8.0;

    let cores = profile.working_cores() - calls * costs.call_s;
    let each_s = part * costs.register_s + copies * profile.costs.copy_s;
    let line = profile.server.network_bits_per_s - calls * demand.in_per_call.max(demand.out_per_call) * bits;
    let each_bits = (part * (1.0 + needs.challenged_share) + copies) * bits;
    let mut rates = vec![
        (Stage::Second, Resource::Cpu, cores / (each_s * share)),
        (Stage::Second, Resource::Network, line / (each_bits * share)),
    ];
    if needs.replication == super::Replication::Store {
        // Each database receives all writes of its cluster.
        rates.push((Stage::Second, Resource::Store, 1.0 / (profile.store.write_s * share)));
    }
    rates
}

fn of_the_first_stage(demand: &Demand<'_>, first: u32) -> [Rate; 2] {
    let profile = demand.profile;
    let servers = f64::from(first.max(1));
    let messages = 2.0 * (1.0 + demand.needs.challenged_share);
    let bits = profile.messages.message_bytes * 8.0;
    let calls = demand.call_messages_first;
    let cores = servers * profile.working_cores() - calls * profile.costs.first_message_s;
    let line = servers * profile.server.network_bits_per_s - calls * bits;
    [
        (Stage::First, Resource::Cpu, cores / (messages * profile.costs.first_message_s)),
        (Stage::First, Resource::Network, line / (messages * bits)),
    ]
}
