//! Built-in profiles.

use super::profile::{Costs, Engine, Memory, Messages, Profile, Server, Store};

const MIB: f64 = 1_024.0 * 1_024.0;
const GIB: f64 = 1_024.0 * MIB;

impl Profile {
    /// Returns Strowger's design goals, for a core of the machine on which its design was measured.
    pub fn design_goals() -> Self {
        let measured = Self::measured();
        Self {
            name: "goals".into(),
            source: "Strowger's performance goals for one core; everything else as measured".into(),
            costs: Costs {
                stateful_call_s: 32e-6,
                stateless_call_s: 26e-6,
                request_s: 10e-6,
                register_s: 4.8e-6,
                challenged_register_s: 9.5e-6,
                copy_s: 4.8e-6,
                first_message_s: 26e-6 / 6.0,
            },
            memory: Memory { contact_bytes: 250.0, setup_bytes: 4_096.0, answered_bytes: 1_024.0, ..measured.memory },
            base_capacity_per_s: Some(30_000.0),
            ..measured
        }
    }

    /// Returns measurements of Strowger on one core of a shared virtual machine, taken on 2026-11-21 and 22.
    ///
    /// They are taken at saturation, where a packet is cheapest and which determines the capacity: on a nearly idle
    /// server a call costs two to four times as much. Phones are many peers, so costs are those of the rows without
    /// segmentation in bench/RESULTS.md (commit 8d56910), where no messages are joined. A part of the load that could
    /// be joined, such as that of trunks, would cost less.
    ///
    /// Calls are Proxy-200. A REGISTER is written through to the disk, as by default: 8.2 µs with 100,000 users
    /// (commit 0fd8939), plus the cost of not joining (5.4 − 3.4 µs), which is an upper bound because not all of
    /// those responses left joined. The challenge is the additional cost of REGISTER with challenge (11.5 − 5.4 µs).
    /// A copy counts as a REGISTER in memory (5.4 µs); its cost through an engine was not measured. A further request
    /// is a third of a call: it has two of its six messages. The base capacity is the lower of two rounds (22,800 and
    /// 27,100/s) with segmentation, the default; it was not searched for without.
    ///
    /// The engine's traffic is counted by Redis with two members (commit 26e118e, 2026-11-25): 5,000 REGISTERs per
    /// second, several of them in one entry. A single REGISTER takes 1,180 and 268 bytes.
    ///
    /// Connections and contacts are from bench/CONNECTIONS.md. A second core adds 0.9 of the first, between the
    /// values of bench/WORKERS.md for REGISTERs and for calls (1.72 to 1.93 times). A store has the write rate of
    /// SQLite in bench/JOURNAL.md with one transaction per write, 10,770 per second.
    pub fn measured() -> Self {
        Self {
            name: "measured".into(),
            source: "bench/RESULTS.md of 2026-11-22 without segmentation, bench/CONNECTIONS.md, bench/WORKERS.md, bench/JOURNAL.md of \
                     2026-11-21: one core of a shared virtual machine (AMD EPYC), at saturation; the cost of a copy, memory of a \
                     subscriber, sizes of messages, the server and its price are assumptions"
                .into(),
            costs: Costs {
                stateful_call_s: 35.7e-6,
                stateless_call_s: 28.6e-6,
                request_s: 35.7e-6 / 3.0,
                register_s: 8.2e-6 + (5.4e-6 - 3.4e-6),
                challenged_register_s: 8.2e-6 + (5.4e-6 - 3.4e-6) + (11.5e-6 - 5.4e-6),
                copy_s: 5.4e-6,
                first_message_s: 28.6e-6 / 6.0,
            },
            memory: Memory {
                base_bytes: 64.0 * MIB,
                contact_bytes: 275.0,
                subscriber_bytes: 300.0,
                setup_bytes: 2_637.0,
                answered_bytes: 671.0,
                answered_s: 32.0,
                connection_bytes: 327.0,
            },
            messages: Messages { message_bytes: 650.0, call_in: 6.0, call_out: 7.0 },
            store: Store { write_s: 1.0 / 10_770.0, read_over_write: 0.5 },
            engine: Engine::default(),
            server: Server {
                cores: 8,
                scaling: 0.9,
                memory_bytes: 16.0 * GIB,
                network_bits_per_s: 1e9,
                availability: 0.99,
                cost_per_month: 100.0,
            },
            timing: None,
            beta: None,
            base_capacity_per_s: Some(22_800.0),
        }
    }
}
