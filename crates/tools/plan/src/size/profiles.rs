//! The profiles that come with the program.

use super::profile::{Costs, Engine, Memory, Messages, Profile, Server, Store};

const MIB: f64 = 1_024.0 * 1_024.0;
const GIB: f64 = 1_024.0 * MIB;

impl Profile {
    /// What Strowger is built to reach, on a core of the machine that its design was measured on.
    pub fn design_goals() -> Self {
        let measured = Self::measured();
        Self {
            name: "goals".into(),
            source: "what Strowger is built to reach on a core; all else as measured".into(),
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

    /// What was measured of Strowger on one core of a virtual machine shared with other work, on 2026-11-21 and 22, at
    /// saturation, where a packet is cheapest and capacity is decided: a server with little to do takes two to four times the
    /// time for a call. Phones are many peers, so costs are those of bench/RESULTS.md's rows without segmentation (commit 8d56910),
    /// where no messages leave joined, also where a part of the load, as that of trunks, would cost less.
    ///
    /// Calls are its Proxy-200. A REGISTER is written through to the disk, as the server does unless it is told otherwise: 8.2 µs with
    /// 100,000 users (commit 0fd8939), and what not joining costs beside (5.4 − 3.4 µs), which is an upper bound, for of those
    /// answers not all left joined. Its challenge is what REGISTER with challenge costs more (11.5 − 5.4 µs). A copy is taken for
    /// a REGISTER in memory (5.4 µs): what one costs through an engine was not measured. A further request is a third of a
    /// call, as it has two of its six messages. The base capacity is the worse of two rounds (22,800 and 27,100/s), by default:
    /// without segmentation it was not searched for.
    ///
    /// What members write to an engine and read from it is Redis's own count, with two members (commit 26e118e, 2026-11-25): 5,000 REGISTERs
    /// a second, several of which go in one entry. One REGISTER alone takes 1,180 and 268 bytes.
    ///
    /// Connections and contacts are bench/CONNECTIONS.md's, a second core is worth 0.9 of the first, between what bench/WORKERS.md has for
    /// REGISTERs and for calls (1.72 to 1.93 times). A store writes as SQLite does by bench/JOURNAL.md where each write is a
    /// transaction of its own, 10,770 a second.
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
