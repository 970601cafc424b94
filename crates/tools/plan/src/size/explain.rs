//! Formulas of a plan, from the subscribers to each number of the result.

use super::demand::{Demand, KEEP_ALIVE_BYTES, Member, MemoryItems, UnitCosts};
use super::requirements::CONNECTIONS_FOR_PHONES;
use super::search::queue;
use super::{Limit, Plan, Resource, Stage};
use crate::explain::{Explain, Explanation};
use crate::units::{self, number, rate, time};

impl Explain for Plan {
    fn explain(&self) -> Explanation {
        let out = self.traffic.explain().then(unit_costs(self));
        // The requirements were checked when the plan was made.
        let Ok(demand) = Demand::of(&self.requirements, &self.profile) else { return out };
        out.then(work(self, &demand))
            .then(network(self, &demand))
            .then(engine(self))
            .then(memory(self, &demand))
            .then(busiest_member(self, &demand))
            .then(first_stage(self, &demand))
            .then(limits(self))
            .then(wait(self, &demand))
            .then(servers(self))
            .then(self.availability.explain())
            .then(time_to_failure(self))
            .then(self.failover.explain())
            .then(storm(self))
    }
}

const STAGES: &str = "Singh and Schulzrinne, failover paper, section 4.5: λ/P to each cluster";
const COUNTED: &str = "counted";

fn of_the_profile(plan: &Plan) -> String {
    format!("profile {}", plan.profile.name)
}

/// Explains the cost of a REGISTER and of a call.
fn unit_costs(plan: &Plan) -> Explanation {
    let (needs, costs) = (&plan.requirements, &plan.profile.costs);
    let unit = UnitCosts::of(needs, &plan.profile);
    let source = format!("the failover paper, section 5.4, with times instead of capacities; {}", of_the_profile(plan));
    let challenge = time(unit.challenge_s);
    Explanation::new()
        .step(
            ("C_R", "CPU time of a REGISTER"),
            "C_register + challenged·C_challenge",
            format!("{} + {} × {challenge}", time(costs.register_s), number(needs.challenged_share)),
            time(unit.register_s),
            &source,
        )
        .step(
            ("C_C", "CPU time of a call"),
            "(1 − f_s)·C_stateless + f_s·C_stateful + further·C_request + challenged·C_challenge",
            format!(
                "(1 − {f}) × {} + {f} × {} + {} × {} + {} × {challenge}",
                time(costs.stateless_call_s),
                time(costs.stateful_call_s),
                number(needs.further_requests_per_call),
                time(costs.request_s),
                number(needs.challenged_calls_share),
                f = number(needs.stateful_share),
            ),
            time(unit.call_s),
            &source,
        )
}

/// Explains each kind of work and the total.
fn work(plan: &Plan, demand: &Demand<'_>) -> Explanation {
    let (work, costs, traffic) = (&plan.work, &plan.profile.costs, &plan.traffic);
    let unit = UnitCosts::of(&plan.requirements, &plan.profile);
    let with = demand.registered_with(plan.members);
    let forward = time(costs.first_message_s);
    let parts = [
        (
            work.registers,
            ("w_R", "REGISTERs, at each member with which a phone registers"),
            "λ_R·C_R·members registered with",
            format!("{} × {} × {}", rate(traffic.registers_per_s), time(unit.register_s), number(with)),
        ),
        (work.calls, ("w_C", "calls"), "λ_C·C_C", format!("{} × {}", rate(traffic.calls_per_s), time(unit.call_s))),
        (
            work.copies,
            ("w_copies", "copies of registrations to each other member, counted at both ends"),
            "2·(B − 1)·λ_R·C_copy",
            format!("2 × ({} − 1) × {} × {}", plan.members, rate(demand.copies_per_s()), time(costs.copy_s)),
        ),
        (
            work.stores,
            ("w_stores", "databases of the members: each gets all writes of its cluster"),
            "B·λ_R·T",
            format!("{} × {} × {}", plan.members, rate(traffic.registers_per_s), time(plan.profile.store.write_s)),
        ),
        (
            work.first_stage,
            ("w_first", "messages forwarded by the first stage"),
            "M_first·C_forward",
            format!("{} × {forward}", rate(demand.first_messages())),
        ),
        (
            work.keep_alives,
            ("w_NAT", "keep-alives, each counted as a forwarded message, which costs more"),
            "K·C_forward",
            format!("{} × {forward}", rate(plan.keep_alives_per_s)),
        ),
    ];
    let parts: Vec<_> = parts.into_iter().filter(|(value, ..)| *value > 0.0).collect();
    let mut out = Explanation::new();
    if plan.keep_alives_per_s > 0.0 {
        out = out.then(keep_alives(plan, demand.servers_per_phone(plan.clusters, plan.members)));
    }
    let sum: Vec<String> = parts.iter().map(|(value, ..)| time(*value)).collect();
    let names: Vec<&str> = parts.iter().map(|(_, (symbol, _), ..)| *symbol).collect();
    for (value, meaning, formula, numbers) in &parts {
        out = out.step(*meaning, formula, numbers, time(*value), COUNTED);
    }
    out.step(
        ("busy cores", "work per second, in core seconds"),
        &names.join(" + "),
        sum.join(" + "),
        number(plan.busy_cores),
        STAGES,
    )
}

fn keep_alives(plan: &Plan, with: f64) -> Explanation {
    let needs = &plan.requirements;
    Explanation::new().step(
        ("K", "keep-alives to phones behind NATs, without a connection"),
        "subscribers·contacts·(1 − connected)·nat·servers that each registers with/T_K",
        format!(
            "{} × {} × (1 − {}) × {} × {} / {}",
            number(needs.subscribers),
            number(needs.contacts_per_subscriber),
            number(needs.connected_share),
            number(needs.nat_share),
            number(with),
            time(needs.keep_alive_s)
        ),
        rate(plan.keep_alives_per_s),
        "RFC 5626, section 3.5.1",
    )
}

/// Explains the network traffic of a message and of a call.
fn messages(plan: &Plan, demand: &Demand<'_>) -> Explanation {
    let (needs, messages) = (&plan.requirements, &plan.profile.messages);
    let size = units::bytes(messages.message_bytes);
    let (further, challenged) = (number(needs.further_requests_per_call), number(needs.challenged_calls_share));
    let extra = needs.stateful_share * (messages.call_out - messages.call_in);
    let (call_in, source) = (number(messages.call_in), of_the_profile(plan));
    Explanation::new()
        .step(("m", "a message with its UDP, IP and Ethernet headers"), "assumed", "assumed", size, &source)
        .step(
            ("m_in", "incoming messages of a call"),
            "call_in + 2·further + 2·challenged",
            format!("{call_in} + 2 × {further} + 2 × {challenged}"),
            number(demand.in_per_call),
            &source,
        )
        .step(
            ("m_out", "outgoing messages of a call"),
            "call_in + f_s·(call_out − call_in) + 2·further + challenged",
            format!("{call_in} + {} + 2 × {further} + {challenged}", number(extra)),
            number(demand.out_per_call),
            &source,
        )
}

/// Explains messages and bits at the edge of the service.
fn network(plan: &Plan, demand: &Demand<'_>) -> Explanation {
    let registers = rate(plan.traffic.registers_per_s);
    let mut out = messages(plan, demand).step(
        ("M", "SIP messages, in and out"),
        "2·λ_R·(1 + challenged) + λ_C·(m_in + m_out)",
        format!(
            "2 × {registers} × (1 + {}) + {} × ({} + {})",
            number(plan.requirements.challenged_share),
            rate(plan.traffic.calls_per_s),
            number(demand.in_per_call),
            number(demand.out_per_call)
        ),
        rate(plan.messages_per_s),
        COUNTED,
    );
    if plan.clusters > 1 {
        out = out.step(
            ("M_first", "messages through the first stage: all of REGISTERs, the callers' side of calls"),
            "2·λ_R·(1 + challenged) + λ_C·(m_out + 2·challenged)",
            format!("2 × {} + {}", rate(demand.register_messages), rate(demand.call_messages_first)),
            rate(demand.first_messages()),
            COUNTED,
        );
    }
    out.step(
        ("network", "bits of messages and keep-alives at the edge of the service, in and out, without the engine"),
        "(M·m + K·60 B)·8",
        format!(
            "({} × {} + {} × {}) × 8",
            rate(plan.messages_per_s),
            units::bytes(plan.profile.messages.message_bytes),
            rate(plan.keep_alives_per_s),
            units::bytes(KEEP_ALIVE_BYTES)
        ),
        units::bandwidth(plan.bandwidth_bits_per_s),
        COUNTED,
    )
}

/// Explains what members write to their engine and read from it.
fn engine(plan: &Plan) -> Explanation {
    let Some(engine) = plan.engine else { return Explanation::new() };
    let (changes, of) = (rate(engine.changes_per_s), &plan.profile.engine);
    Explanation::new()
        .step(
            ("engine in", "bits to the engine of the busiest cluster"),
            "λ_R·skew/P·b_write·8",
            format!("{changes} × {} × 8", units::bytes(of.write_bytes)),
            units::bandwidth(engine.in_bits_per_s),
            &of_the_profile(plan),
        )
        .step(
            ("engine out", "bits from it to the other members"),
            "λ_R·skew/P·(B − 1)·b_read·8",
            format!("{changes} × {} × {} × 8", plan.members - 1, units::bytes(of.read_bytes)),
            units::bandwidth(engine.out_bits_per_s),
            &of_the_profile(plan),
        )
}

/// Explains the memory of all servers.
fn memory(plan: &Plan, demand: &Demand<'_>) -> Explanation {
    let kept = demand.total_memory_items(plan.clusters, plan.members);
    Explanation::new().step(
        ("memory", "of all servers, in normal operation"),
        MEMORY,
        format!("{} × {} + {}", plan.servers, units::bytes(plan.profile.memory.base_bytes), kept_numbers(plan, &kept)),
        units::bytes(plan.memory_bytes),
        &of_the_profile(plan),
    )
}

const MEMORY: &str = "servers·base + contacts·b_contact + subscribers·b_subscriber + λ_C·ring·b_setup + λ_C·T_timers·b_answered + \
                      connections·b_connection";

fn kept_numbers(plan: &Plan, kept: &MemoryItems) -> String {
    let memory = &plan.profile.memory;
    let terms = [
        (kept.contacts, memory.contact_bytes),
        (kept.subscribers, memory.subscriber_bytes),
        (kept.ringing, memory.setup_bytes),
        (kept.answered, memory.answered_bytes),
        (kept.connections, memory.connection_bytes),
    ];
    let terms = terms.map(|(many, bytes)| format!("{} × {}", number(many), units::bytes(bytes)));
    terms.join(" + ")
}

/// Explains the load on the busiest member after one of its cluster has failed: the numerators of [`limits`].
fn busiest_member(plan: &Plan, demand: &Demand<'_>) -> Explanation {
    let member = demand.member(plan.clusters, plan.members);
    let (costs, traffic) = (&plan.profile.costs, &plan.traffic);
    let unit = UnitCosts::of(&plan.requirements, &plan.profile);
    let load = number(member.share * member.part);
    Explanation::new()
        .step(
            ("f", "share of the load at the busiest member, with one member of its cluster down"),
            "skew/P · 1/serving members",
            format!("{} × {}", number(member.share), number(member.part)),
            &load,
            STAGES,
        )
        .step(
            ("w_f", "work"),
            "(λ_R·C_R + λ_C·C_C)·f + copies·C_copy + store + keep-alives·C_forward",
            format!(
                "({} × {} + {} × {}) × {load} + {} × {} + {} + {} × {}",
                rate(traffic.registers_per_s),
                time(unit.register_s),
                rate(traffic.calls_per_s),
                time(unit.call_s),
                rate(member.copies),
                time(costs.copy_s),
                time(member.storing),
                rate(member.keep_alives),
                time(costs.first_message_s)
            ),
            number(member.work),
            STAGES,
        )
        .then(busiest_line(plan, demand, &member))
        .step(
            ("memory_f", "memory"),
            MEMORY,
            format!("{} + {}", units::bytes(plan.profile.memory.base_bytes), kept_numbers(plan, &member.kept)),
            asked_of(plan, Stage::Second, Resource::Memory),
            &of_the_profile(plan),
        )
}

fn busiest_line(plan: &Plan, demand: &Demand<'_>, member: &Member) -> Explanation {
    let load = number(member.share * member.part);
    let size = units::bytes(plan.profile.messages.message_bytes);
    let (rate_in, rate_out) = (rate(member.messages_in), rate(member.messages_out));
    Explanation::new()
        .step(
            ("in_f", "incoming messages"),
            "(λ_R·(1 + challenged) + λ_C·m_in)·f + copies",
            format!(
                "({} + {}) × {load} + {}",
                rate(demand.register_messages),
                rate(demand.call_messages_in),
                rate(member.copies)
            ),
            &rate_in,
            COUNTED,
        )
        .step(
            ("out_f", "outgoing messages"),
            "(λ_R·(1 + challenged) + λ_C·m_out)·f + copies",
            format!(
                "({} + {}) × {load} + {}",
                rate(demand.register_messages),
                rate(demand.call_messages_out),
                rate(member.copies)
            ),
            &rate_out,
            COUNTED,
        )
        .step(
            ("b_f", "bits in the busier direction"),
            "max(in_f·m, out_f·m + keep-alives·60 B)·8",
            format!("max({rate_in} × {size}, {rate_out} × {size} + {} × 60 B) × 8", rate(member.keep_alives)),
            asked_of(plan, Stage::Second, Resource::Network),
            COUNTED,
        )
}

/// Explains the load on a first-stage server after one of them has failed.
fn first_stage(plan: &Plan, demand: &Demand<'_>) -> Explanation {
    if plan.first == 0 {
        return Explanation::new();
    }
    let left = number(f64::from(plan.first.saturating_sub(1).max(1)));
    let (messages, keep_alives) = (rate(demand.first_messages()), rate(plan.keep_alives_per_s));
    let memory = &plan.profile.memory;
    Explanation::new()
        .step(
            ("w_s", "the work of a first-stage server, with one of them down"),
            "(M_first + K)·C_forward/(S − 1)",
            format!("({messages} + {keep_alives}) × {} / {left}", time(plan.profile.costs.first_message_s)),
            asked_of(plan, Stage::First, Resource::Cpu),
            STAGES,
        )
        .step(
            ("b_s", "bits that it sends; it receives no more than that"),
            "(M_first·m + K·60 B)·8/(S − 1)",
            format!(
                "({messages} × {} + {keep_alives} × 60 B) × 8 / {left}",
                units::bytes(plan.profile.messages.message_bytes)
            ),
            asked_of(plan, Stage::First, Resource::Network),
            COUNTED,
        )
        .step(
            ("memory_s", "memory"),
            "base + connections·b_connection/(S − 1)",
            format!(
                "{} + {} × {} / {left}",
                units::bytes(memory.base_bytes),
                number(demand.connections()),
                units::bytes(memory.connection_bytes)
            ),
            asked_of(plan, Stage::First, Resource::Memory),
            &of_the_profile(plan),
        )
}

fn asked_of(plan: &Plan, stage: Stage, resource: Resource) -> String {
    let limit = plan.limits.iter().find(|limit| limit.stage == stage && limit.resource == resource);
    limit.map_or_else(|| "0".to_owned(), |limit| amount(resource, limit.required))
}

fn amount(resource: Resource, value: f64) -> String {
    match resource {
        Resource::Cpu | Resource::Connections => number(value),
        Resource::Memory => units::bytes(value),
        Resource::Network => units::bandwidth(value),
        Resource::Store => time(value),
    }
}

/// Explains the utilization of each resource.
fn limits(plan: &Plan) -> Explanation {
    let server = &plan.profile.server;
    let mut out = Explanation::new().step(
        ("effective cores", "cores of a server: each additional core adds less capacity"),
        "1 + (cores − 1)·scaling",
        format!("1 + ({} − 1) × {}", server.cores, number(server.scaling)),
        number(plan.profile.working_cores()),
        &of_the_profile(plan),
    );
    if plan.connections_per_server > 0.0 {
        out = out.step(
            ("connections", "connections for phones: one of 16 is reserved for those that the server opens"),
            "tcp.connections·15/16",
            format!("{} × 15/16", number(plan.requirements.connections_per_server)),
            number(plan.requirements.connections_per_server * CONNECTIONS_FOR_PHONES),
            "the server's limits",
        );
    }
    plan.limits.iter().fold(out, full)
}

fn full(out: Explanation, limit: &Limit) -> Explanation {
    let Limit { stage, resource, .. } = *limit;
    let meaning = format!("{resource} of the {stage}: utilization of the busiest server, with one of its group down");
    out.step(
        ("u", meaning.as_str()),
        "needed / available",
        format!("{} / {}", amount(resource, limit.required), amount(resource, limit.available)),
        format!("{}, allowed {}", units::share(limit.used), units::share(limit.allowed)),
        STAGES,
    )
}

/// Explains the wait of a packet.
fn wait(plan: &Plan, demand: &Demand<'_>) -> Explanation {
    let Some(queue) = queue(demand, plan.clusters, plan.members) else { return Explanation::new() };
    let member = demand.member(plan.clusters, plan.members);
    let cores = number(plan.profile.working_cores());
    let service = if plan.profile.timing.is_some() { "from the profile" } else { "assumed exponential" };
    Explanation::new()
        .step(
            ("λ", "packets from phones and servers to one core of the busiest member"),
            "(λ_R·(1 + challenged) + λ_C·m_in)·f / effective cores",
            format!(
                "({} + {}) × {} / {cores}",
                rate(demand.register_messages),
                rate(demand.call_messages_in),
                number(member.share * member.part)
            ),
            rate(queue.rate_per_s),
            STAGES,
        )
        .step(
            ("E[X]", "CPU time of each of them"),
            "w_f / effective cores / λ",
            format!("{} / {cores} / {}, {service}", number(member.work), rate(queue.rate_per_s)),
            time(queue.service_s),
            &of_the_profile(plan),
        )
        .then(queue.explain())
}

fn servers(plan: &Plan) -> Explanation {
    let server = &plan.profile.server;
    Explanation::new()
        .step(
            ("servers", "the smallest number that carries the load with one server of a group down and meets the required availability"),
            "S + P·B",
            format!("{} + {} × {}", plan.first, plan.clusters, plan.members),
            number(f64::from(plan.servers)),
            STAGES,
        )
        .step(
            ("cores", "of all servers"),
            "servers·cores per server",
            format!("{} × {}", plan.servers, server.cores),
            number(f64::from(plan.cores)),
            COUNTED,
        )
        .step(
            ("cost", "per month"),
            "servers·price",
            format!("{} × {}", plan.servers, number(server.cost_per_month)),
            number(plan.cost_per_month),
            COUNTED,
        )
}

fn time_to_failure(plan: &Plan) -> Explanation {
    let times = &plan.failover.times;
    if times.availability >= 1.0 {
        return Explanation::new();
    }
    let availability = number(times.availability);
    Explanation::new().step(
        ("T_F", "the mean time to a server's failure"),
        "T_M·R/(1 − R)",
        format!("{} × {availability} / (1 − {availability})", time(times.repair_s)),
        time(times.failure_s),
        "R = T_F/(T_F + T_M)",
    )
}

fn storm(plan: &Plan) -> Explanation {
    let Some(storm) = &plan.avalanche else { return Explanation::new() };
    Explanation::new().step(
        ("T_storm", "the minimum time until all phones are registered again, with all servers up"),
        "contacts / registrations per second that the bottleneck handles besides calls",
        format!(
            "{} / {}, {} of the {}",
            number(storm.registrations),
            rate(storm.registrations_per_s),
            storm.resource,
            storm.stage
        ),
        time(storm.least_s),
        COUNTED,
    )
}
