//! What the load asks of each server.

use super::needs::{FailoverMethod, Needs, Replication};
use super::profile::Profile;
use super::{Limit, Resource, Stage};
use crate::databases::databases;
use crate::error::PlanError;
use crate::traffic::Traffic;

/// A core's time for one of each, s.
pub(super) struct UnitCosts {
    pub challenge_s: f64,
    pub register_s: f64,
    pub call_s: f64,
}

impl UnitCosts {
    pub(super) fn of(needs: &Needs, profile: &Profile) -> Self {
        let costs = &profile.costs;
        let challenge_s = costs.challenged_register_s - costs.register_s;
        Self {
            challenge_s,
            register_s: costs.register_s + needs.challenged_share * challenge_s,
            call_s: needs.stateful_share * costs.stateful_call_s
                + (1.0 - needs.stateful_share) * costs.stateless_call_s
                + needs.further_requests_per_call * costs.request_s
                + needs.challenged_calls_share * challenge_s,
        }
    }
}

/// The load on all of the service, in a second.
pub(super) struct Demand<'a> {
    needs: &'a Needs,
    profile: &'a Profile,
    pub traffic: Traffic,
    /// A core's time that the second stage takes for REGISTERs, each served once, s/s.
    registers: f64,
    /// The same for calls.
    calls: f64,
    /// Messages of REGISTERs that come in, 1/s; as many go out.
    register_messages: f64,
    /// Messages of calls that come in, 1/s.
    call_messages_in: f64,
    /// Messages of calls that go out, 1/s.
    call_messages_out: f64,
    /// Messages of calls that pass the first stage: those of the callers' side.
    call_messages_first: f64,
}

impl<'a> Demand<'a> {
    pub(super) fn of(needs: &'a Needs, profile: &'a Profile) -> Result<Self, PlanError> {
        needs.check()?;
        profile.check()?;
        let traffic = needs.traffic()?;
        let costs = UnitCosts::of(needs, profile);
        // A further request brings in itself and its answer, and both go out; a challenge brings in a request and the ACK.
        let further = 2.0 * needs.further_requests_per_call;
        let messages = &profile.messages;
        let stateful_extra = needs.stateful_share * (messages.call_out - messages.call_in);
        let challenges = needs.challenged_calls_share;
        Ok(Self {
            needs,
            profile,
            registers: traffic.registers_per_s * costs.register_s,
            calls: traffic.calls_per_s * costs.call_s,
            register_messages: traffic.registers_per_s * (1.0 + needs.challenged_share),
            call_messages_in: traffic.calls_per_s * (messages.call_in + further + 2.0 * challenges),
            call_messages_out: traffic.calls_per_s * (messages.call_in + stateful_extra + further + challenges),
            call_messages_first: traffic.calls_per_s * (messages.call_in + stateful_extra + further + 3.0 * challenges),
            traffic,
        })
    }

    /// The core time that everything takes, with no spare and no head-room, s/s.
    pub(super) fn busy_cores(&self, clusters: u32, members: u32) -> f64 {
        let copies = f64::from(members - 1);
        let served = if self.needs.failover == FailoverMethod::Client { f64::from(members) } else { 1.0 };
        let copying = 2.0 * copies * self.copied() * self.profile.costs.copy_s;
        let storing = f64::from(members) * self.storing(1.0, members, 0.0);
        let first = if clusters > 1 { self.first_work() } else { 0.0 };
        self.registers * served + self.calls + copying + storing + first
    }

    /// REGISTERs that one member passes on to the others, 1/s.
    fn copied(&self) -> f64 {
        let passed_on = self.needs.replication == Replication::Copies && self.needs.failover != FailoverMethod::Client;
        if passed_on { self.traffic.registers_per_s } else { 0.0 }
    }

    /// The share of its time that each database of a cluster works.
    fn storing(&self, share: f64, databases_left: u32, asked_elsewhere: f64) -> f64 {
        if self.needs.replication != Replication::Store {
            return 0.0;
        }
        let writes = self.traffic.registers_per_s * share;
        if writes <= 0.0 {
            return 0.0;
        }
        let reads = self.traffic.calls_per_s * share * asked_elsewhere / writes;
        let store = &self.profile.store;
        if store.write_s <= 0.0 {
            return 0.0;
        }
        databases(databases_left, writes, reads, store.write_s, store.read_over_write)
            .map_or(f64::INFINITY, |answer| answer.replicated)
    }

    fn first_work(&self) -> f64 {
        self.first_messages() * self.profile.costs.first_message_s
    }

    /// Messages that pass the first stage, 1/s: requests one way, all answers the other.
    fn first_messages(&self) -> f64 {
        2.0 * self.register_messages + self.call_messages_first
    }

    /// The share of the users that the busiest cluster has.
    fn largest_share(&self, clusters: u32) -> f64 {
        if clusters == 1 { 1.0 } else { (self.needs.skew / f64::from(clusters)).min(1.0) }
    }

    /// How full the busiest member of the busiest cluster is, when one of its cluster has failed.
    pub(super) fn second_limits(&self, clusters: u32, members: u32) -> Vec<Limit> {
        let share = self.largest_share(clusters);
        let left = members.saturating_sub(1).max(1);
        let serving = if self.needs.failover == FailoverMethod::Members { f64::from(left) } else { 1.0 };
        let alone = 1.0 / serving;
        let copied = self.copied() * share;
        // It passes on what it has accepted, and takes over what others have.
        let copies = copied * (alone * f64::from(members - 1) + (1.0 - alone));
        let storing = self.storing(share, left, 1.0 - alone);
        let work = (self.registers + self.calls) * share * alone + copies * self.profile.costs.copy_s + storing;
        let messages_in = (self.register_messages + self.call_messages_in) * share * alone + copies;
        let messages_out = (self.register_messages + self.call_messages_out) * share * alone + copies;
        let connections = if clusters > 1 { 0.0 } else { self.connections() * alone };
        let memory = self.kept(share, alone) + connections * self.profile.memory.connection_bytes;
        let mut limits = vec![
            self.limit(Stage::Second, Resource::Cpu, work, self.profile.working_cores()),
            self.memory_limit(Stage::Second, memory),
            self.line_limit(Stage::Second, messages_in.max(messages_out)),
        ];
        if self.needs.replication == Replication::Store {
            limits.push(self.limit(Stage::Second, Resource::Store, storing, 1.0));
        }
        limits
    }

    /// How full a first-stage server is, when one of them has failed.
    pub(super) fn first_limits(&self, first: u32) -> Vec<Limit> {
        let left = f64::from(first.saturating_sub(1).max(1));
        let messages = self.first_messages() / left;
        let memory = self.connections() / left * self.profile.memory.connection_bytes;
        let work = messages * self.profile.costs.first_message_s;
        vec![
            self.limit(Stage::First, Resource::Cpu, work, self.profile.working_cores()),
            self.memory_limit(Stage::First, memory),
            self.line_limit(Stage::First, messages),
        ]
    }

    fn connections(&self) -> f64 {
        self.contacts() * self.needs.connected_share
    }

    fn contacts(&self) -> f64 {
        self.needs.subscribers * self.needs.contacts_per_subscriber
    }

    /// What a member keeps beside what it is without any load, bytes: all of its cluster's contacts where it is given copies, else
    /// those of its own load.
    fn kept(&self, share: f64, alone: f64) -> f64 {
        let memory = &self.profile.memory;
        let owned = if self.needs.replication == Replication::Copies { share } else { share * alone };
        let states = self.traffic.calls_per_s * share * alone * self.needs.stateful_share;
        self.contacts() * owned * memory.contact_bytes
            + self.needs.subscribers * share * memory.subscriber_bytes
            + states * (self.needs.ring_s * memory.setup_bytes + memory.answered_s * memory.answered_bytes)
    }

    /// The memory of all servers, in ordinary service, bytes.
    pub(super) fn memory_bytes(&self, first: u32, clusters: u32, members: u32) -> f64 {
        let memory = &self.profile.memory;
        let alone = if self.needs.failover == FailoverMethod::Members { 1.0 / f64::from(members) } else { 1.0 };
        let each = memory.base_bytes + self.kept(1.0 / f64::from(clusters), alone);
        f64::from(clusters * members) * each
            + f64::from(first) * memory.base_bytes
            + self.connections() * memory.connection_bytes
    }

    /// Messages of the second stage, in and out, 1/s.
    pub(super) fn messages_per_s(&self) -> f64 {
        2.0 * self.register_messages + self.call_messages_in + self.call_messages_out
    }

    pub(super) fn bandwidth_bits_per_s(&self) -> f64 {
        self.messages_per_s() * self.profile.messages.message_bytes * 8.0
    }

    /// Packets that come to one core of the busiest member when one of its cluster has failed, 1/s.
    pub(super) fn packets_per_core(&self, clusters: u32, members: u32) -> f64 {
        let left = f64::from(members.saturating_sub(1).max(1));
        let serving = if self.needs.failover == FailoverMethod::Members { left } else { 1.0 };
        let all = (self.register_messages + self.call_messages_in) * self.largest_share(clusters);
        all / serving / self.profile.working_cores()
    }

    fn line_limit(&self, stage: Stage, messages: f64) -> Limit {
        let asked = messages * self.profile.messages.message_bytes * 8.0;
        self.limit(stage, Resource::Network, asked, self.profile.server.network_bits_per_s)
    }

    fn limit(&self, stage: Stage, resource: Resource, asked: f64, has: f64) -> Limit {
        let (used, allowed) = (asked / has, self.needs.utilization);
        let carries_subscribers = if used > 0.0 { self.needs.subscribers * (allowed / used) } else { f64::INFINITY };
        Limit { stage, resource, asked, has, used, allowed, carries_subscribers }
    }

    /// Memory is not empty without load.
    fn memory_limit(&self, stage: Stage, kept: f64) -> Limit {
        let (base, has) = (self.profile.memory.base_bytes, self.profile.server.memory_bytes);
        let room = (self.needs.utilization * has - base).max(0.0);
        let carries_subscribers = if kept > 0.0 { self.needs.subscribers * (room / kept) } else { f64::INFINITY };
        Limit { carries_subscribers, ..self.limit(stage, Resource::Memory, base + kept, has) }
    }
}
