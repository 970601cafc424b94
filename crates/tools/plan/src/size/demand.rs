//! Load on each server.

use super::profile::{Memory, Profile};
use super::requirements::{CONNECTIONS_FOR_PHONES, FailoverMethod, Replication, Requirements};
use super::{EngineLoad, Limit, Resource, Stage, Work};
use crate::databases::databases;
use crate::error::PlanError;
use crate::traffic::Traffic;

/// Size of a keep-alive on the wire, bytes.
///
/// An empty line is shorter than the smallest Ethernet frame. The frame's checksum is not counted, as in the sizes of
/// messages.
pub(super) const KEEP_ALIVE_BYTES: f64 = 60.0;

/// Core time per unit of work, s.
pub(super) struct UnitCosts {
    pub challenge_s: f64,
    pub register_s: f64,
    pub call_s: f64,
}

impl UnitCosts {
    pub(super) fn of(needs: &Requirements, profile: &Profile) -> Self {
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

/// Numbers of items that servers hold in memory.
#[derive(Clone, Copy)]
pub(super) struct MemoryItems {
    pub contacts: f64,
    pub subscribers: f64,
    /// Calls being set up.
    pub ringing: f64,
    /// Answered calls whose transactions wait for their timers.
    pub answered: f64,
    pub connections: f64,
}

impl MemoryItems {
    pub(super) fn bytes(&self, memory: &Memory) -> f64 {
        self.contacts * memory.contact_bytes
            + self.subscribers * memory.subscriber_bytes
            + self.ringing * memory.setup_bytes
            + self.answered * memory.answered_bytes
            + self.connections * memory.connection_bytes
    }
}

/// Load on the busiest member of the busiest cluster after one member of that cluster has failed.
pub(super) struct Member {
    /// Share of all users that its cluster serves.
    pub share: f64,
    /// Share of its cluster's load that it serves.
    pub part: f64,
    /// REGISTERs that it passes on and receives from other members, 1/s.
    pub copies: f64,
    /// Utilization of its database.
    pub storing: f64,
    /// Keep-alives that it sends, 1/s.
    pub keep_alives: f64,
    /// Incoming messages, 1/s.
    pub messages_in: f64,
    /// Outgoing messages, 1/s.
    pub messages_out: f64,
    /// Core seconds per second.
    pub work: f64,
    pub kept: MemoryItems,
}

/// Load on the whole service, per second.
pub(super) struct Demand<'a> {
    pub needs: &'a Requirements,
    pub profile: &'a Profile,
    pub traffic: Traffic,
    /// Incoming messages per call.
    pub in_per_call: f64,
    /// Outgoing messages per call.
    pub out_per_call: f64,
    /// Core time of the second stage for REGISTERs, each served once, s/s.
    registers: f64,
    /// Core time of the second stage for calls, s/s.
    calls: f64,
    /// Incoming messages of REGISTERs, 1/s; as many go out.
    pub register_messages: f64,
    /// Incoming messages of calls, 1/s.
    pub call_messages_in: f64,
    /// Outgoing messages of calls, 1/s.
    pub call_messages_out: f64,
    /// Messages of calls that pass the first stage, 1/s: those of the callers' side.
    pub call_messages_first: f64,
    /// Keep-alives to phones behind NATs, with one server per phone, 1/s.
    keep_alives: f64,
}

impl<'a> Demand<'a> {
    pub(super) fn of(needs: &'a Requirements, profile: &'a Profile) -> Result<Self, PlanError> {
        needs.check()?;
        profile.check()?;
        let traffic = needs.traffic()?;
        let costs = UnitCosts::of(needs, profile);
        // A further request and its response come in, and both go out. A challenge brings in a request and the ACK.
        let further = 2.0 * needs.further_requests_per_call;
        let messages = &profile.messages;
        let stateful_extra = needs.stateful_share * (messages.call_out - messages.call_in);
        let challenges = needs.challenged_calls_share;
        let contacts = needs.subscribers * needs.contacts_per_subscriber;
        let in_per_call = messages.call_in + further + 2.0 * challenges;
        let out_per_call = messages.call_in + stateful_extra + further + challenges;
        Ok(Self {
            needs,
            profile,
            in_per_call,
            out_per_call,
            registers: traffic.registers_per_s * costs.register_s,
            calls: traffic.calls_per_s * costs.call_s,
            register_messages: traffic.registers_per_s * (1.0 + needs.challenged_share),
            call_messages_in: traffic.calls_per_s * in_per_call,
            call_messages_out: traffic.calls_per_s * out_per_call,
            call_messages_first: traffic.calls_per_s * (messages.call_in + stateful_extra + further + 3.0 * challenges),
            keep_alives: contacts * (1.0 - needs.connected_share) * needs.nat_share / needs.keep_alive_s,
            traffic,
        })
    }

    /// Returns the core time of all work, without spares and headroom.
    pub(super) fn work(&self, clusters: u32, members: u32) -> Work {
        let copies = f64::from(members - 1);
        let costs = &self.profile.costs;
        Work {
            registers: self.registers * self.registered_with(members),
            calls: self.calls,
            copies: 2.0 * copies * self.copies_per_s() * costs.copy_s,
            stores: f64::from(members) * self.storing(1.0, members, 0.0),
            first_stage: if clusters > 1 { self.first_messages() * costs.first_message_s } else { 0.0 },
            keep_alives: self.keep_alives_per_s(clusters, members) * costs.first_message_s,
        }
    }

    /// Returns the number of members with which each phone registers.
    pub(super) fn registered_with(&self, members: u32) -> f64 {
        if self.needs.failover == FailoverMethod::Client { f64::from(members) } else { 1.0 }
    }

    /// Returns the keep-alives of all servers, 1/s.
    pub(super) fn keep_alives_per_s(&self, clusters: u32, members: u32) -> f64 {
        self.keep_alives * self.servers_per_phone(clusters, members)
    }

    /// Returns the number of servers with which a phone communicates; with a first stage, one of its servers.
    pub(super) fn servers_per_phone(&self, clusters: u32, members: u32) -> f64 {
        if clusters > 1 { 1.0 } else { self.registered_with(members) }
    }

    /// Returns the REGISTERs that all members pass on to other members, 1/s.
    pub(super) fn copies_per_s(&self) -> f64 {
        let passed_on = self.needs.replication == Replication::Copies && self.needs.failover != FailoverMethod::Client;
        if passed_on { self.traffic.registers_per_s } else { 0.0 }
    }

    /// Returns the load on the engine of the busiest cluster.
    pub(super) fn engine(&self, clusters: u32, members: u32) -> Option<EngineLoad> {
        let changes_per_s = self.copies_per_s() * self.largest_share(clusters);
        let engine = &self.profile.engine;
        let readers = f64::from(members - 1);
        (changes_per_s > 0.0 && members > 1).then_some(EngineLoad {
            changes_per_s,
            in_bits_per_s: changes_per_s * engine.write_bytes * 8.0,
            out_bits_per_s: changes_per_s * engine.read_bytes * readers * 8.0,
        })
    }

    /// Returns the utilization of each database of a cluster.
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

    /// Returns the messages that pass the first stage, 1/s: requests in one direction, all responses in the other.
    pub(super) fn first_messages(&self) -> f64 {
        2.0 * self.register_messages + self.call_messages_first
    }

    /// Returns the share of all users that the busiest cluster serves.
    pub(super) fn largest_share(&self, clusters: u32) -> f64 {
        if clusters == 1 { 1.0 } else { (self.needs.skew / f64::from(clusters)).min(1.0) }
    }

    /// Returns the share of its cluster's load that a member serves while `members_there` are up.
    pub(super) fn part_of(&self, members_there: u32) -> f64 {
        if self.needs.failover == FailoverMethod::Members { 1.0 / f64::from(members_there.max(1)) } else { 1.0 }
    }

    /// Returns the load on the busiest member after one of its cluster has failed.
    pub(super) fn member(&self, clusters: u32, members: u32) -> Member {
        let share = self.largest_share(clusters);
        let left = members.saturating_sub(1).max(1);
        let part = self.part_of(left);
        let costs = &self.profile.costs;
        // It passes on what it accepts and receives what the others accept.
        let copies = self.copies_per_s() * share * (part * f64::from(members - 1) + (1.0 - part));
        let storing = self.storing(share, left, 1.0 - part);
        // With a first stage, phones send to it, so it holds their connections and NAT bindings.
        let edge = if clusters > 1 { 0.0 } else { part };
        let keep_alives = self.keep_alives * edge;
        Member {
            share,
            part,
            copies,
            storing,
            keep_alives,
            messages_in: (self.register_messages + self.call_messages_in) * share * part + copies,
            messages_out: (self.register_messages + self.call_messages_out) * share * part + copies,
            work: (self.registers + self.calls) * share * part
                + copies * costs.copy_s
                + storing
                + keep_alives * costs.first_message_s,
            kept: MemoryItems { connections: self.connections() * edge, ..self.memory_items(share, part) },
        }
    }

    /// Returns the utilization of the busiest member of the busiest cluster after one of its cluster has failed.
    pub(super) fn second_limits(&self, clusters: u32, members: u32) -> Vec<Limit> {
        let member = self.member(clusters, members);
        let mut limits = vec![
            self.limit(Stage::Second, Resource::Cpu, member.work, self.profile.working_cores()),
            self.memory_limit(Stage::Second, member.kept.bytes(&self.profile.memory)),
            self.line_limit(Stage::Second, member.messages_in, member.messages_out, member.keep_alives),
        ];
        if self.needs.replication == Replication::Store {
            limits.push(self.limit(Stage::Second, Resource::Store, member.storing, 1.0));
        }
        if member.kept.connections > 0.0 {
            limits.push(self.connections_limit(Stage::Second, member.kept.connections));
        }
        limits
    }

    /// Returns the utilization of a first-stage server after one of them has failed.
    pub(super) fn first_limits(&self, first: u32) -> Vec<Limit> {
        let left = f64::from(first.saturating_sub(1).max(1));
        let messages = self.first_messages() / left;
        let keep_alives = self.keep_alives / left;
        let connections = self.connections() / left;
        let work = (messages + keep_alives) * self.profile.costs.first_message_s;
        let mut limits = vec![
            self.limit(Stage::First, Resource::Cpu, work, self.profile.working_cores()),
            self.memory_limit(Stage::First, connections * self.profile.memory.connection_bytes),
            self.line_limit(Stage::First, messages, messages, keep_alives),
        ];
        if connections > 0.0 {
            limits.push(self.connections_limit(Stage::First, connections));
        }
        limits
    }

    /// Returns the connections of all phones, each to one server.
    pub(super) fn connections(&self) -> f64 {
        self.contacts() * self.needs.connected_share
    }

    pub(super) fn contacts(&self) -> f64 {
        self.needs.subscribers * self.needs.contacts_per_subscriber
    }

    /// Returns what a member holds: all contacts of its cluster if it receives copies, otherwise those of its own
    /// load.
    fn memory_items(&self, share: f64, part: f64) -> MemoryItems {
        let owned = if self.needs.replication == Replication::Copies { share } else { share * part };
        let states = self.traffic.calls_per_s * share * part * self.needs.stateful_share;
        MemoryItems {
            contacts: self.contacts() * owned,
            subscribers: self.needs.subscribers * share,
            ringing: states * self.needs.ring_s,
            answered: states * self.profile.memory.answered_s,
            connections: 0.0,
        }
    }

    /// Returns what all servers hold in normal operation.
    pub(super) fn total_memory_items(&self, clusters: u32, members: u32) -> MemoryItems {
        let each = self.memory_items(1.0 / f64::from(clusters), self.part_of(members));
        let servers = f64::from(clusters) * f64::from(members);
        MemoryItems {
            contacts: each.contacts * servers,
            subscribers: each.subscribers * servers,
            ringing: each.ringing * servers,
            answered: each.answered * servers,
            connections: self.connections() * self.servers_per_phone(clusters, members),
        }
    }

    /// Returns the messages of the second stage, in and out, at the edge of the service, 1/s.
    pub(super) fn messages_per_s(&self) -> f64 {
        2.0 * self.register_messages + self.call_messages_in + self.call_messages_out
    }

    pub(super) fn bandwidth_bits_per_s(&self, clusters: u32, members: u32) -> f64 {
        let keep_alives = self.keep_alives_per_s(clusters, members) * KEEP_ALIVE_BYTES;
        (self.messages_per_s() * self.profile.messages.message_bytes + keep_alives) * 8.0
    }

    /// Returns the packets that reach one core of the busiest member after one of its cluster has failed, 1/s.
    pub(super) fn packets_per_core(&self, clusters: u32, members: u32) -> f64 {
        let part = self.part_of(members.saturating_sub(1));
        let all = (self.register_messages + self.call_messages_in) * self.largest_share(clusters);
        all * part / self.profile.working_cores()
    }

    /// Returns the limit of the busier direction of a line.
    fn line_limit(&self, stage: Stage, messages_in: f64, messages_out: f64, keep_alives: f64) -> Limit {
        let size = self.profile.messages.message_bytes;
        let out = messages_out * size + keep_alives * KEEP_ALIVE_BYTES;
        let asked = (messages_in * size).max(out) * 8.0;
        self.limit(stage, Resource::Network, asked, self.profile.server.network_bits_per_s)
    }

    fn connections_limit(&self, stage: Stage, connections: f64) -> Limit {
        let has = self.needs.connections_per_server * CONNECTIONS_FOR_PHONES;
        self.limit(stage, Resource::Connections, connections, has)
    }

    fn limit(&self, stage: Stage, resource: Resource, asked: f64, has: f64) -> Limit {
        let (used, allowed) = (asked / has, self.needs.utilization);
        let carries_subscribers = if used > 0.0 { self.needs.subscribers * (allowed / used) } else { f64::INFINITY };
        Limit { stage, resource, required: asked, available: has, used, allowed, carries_subscribers }
    }

    /// Returns the memory limit. The server uses memory even without load.
    fn memory_limit(&self, stage: Stage, kept: f64) -> Limit {
        let (base, has) = (self.profile.memory.base_bytes, self.profile.server.memory_bytes);
        let room = (self.needs.utilization * has - base).max(0.0);
        let carries_subscribers = if kept > 0.0 { self.needs.subscribers * (room / kept) } else { f64::INFINITY };
        Limit { carries_subscribers, ..self.limit(stage, Resource::Memory, base + kept, has) }
    }
}
