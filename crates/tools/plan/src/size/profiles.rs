//! The profiles that come with the program.

use super::profile::{Costs, Memory, Messages, Profile, Server, Store};

const KIB: f64 = 1_024.0;
const MIB: f64 = 1_024.0 * KIB;
const GIB: f64 = 1_024.0 * MIB;

impl Profile {
    /// What Strowger is built to reach, on a core of the machine that its design was measured on.
    pub fn goals() -> Self {
        Self {
            name: "goals".into(),
            source: "what Strowger is built to reach; the store, the server and its price are assumptions".into(),
            costs: Costs {
                stateful_call_s: 32e-6,
                stateless_call_s: 26e-6,
                request_s: 10e-6,
                register_s: 4.8e-6,
                challenged_register_s: 9.5e-6,
                copy_s: 4.8e-6,
                first_message_s: 26e-6 / 6.0,
            },
            base_capacity_per_s: Some(1.0 / 32e-6),
            ..Self::measured()
        }
    }

    /// What was measured of Strowger on one core of a virtual machine shared with other work (bench/RESULTS.md,
    /// bench/CONNECTIONS.md).
    pub fn measured() -> Self {
        Self {
            name: "measured".into(),
            source: "bench/RESULTS.md and bench/CONNECTIONS.md: one core of a shared virtual machine (AMD EPYC); the store, \
                     the server and its price are assumptions"
                .into(),
            costs: Costs {
                stateful_call_s: 64.9e-6,
                stateless_call_s: 52e-6,
                request_s: 20e-6,
                register_s: 9.0e-6,
                challenged_register_s: 18e-6,
                copy_s: 9.0e-6,
                first_message_s: 52e-6 / 6.0,
            },
            memory: Memory {
                base_bytes: 64.0 * MIB,
                contact_bytes: 275.0,
                subscriber_bytes: 300.0,
                setup_bytes: 4.0 * KIB,
                answered_bytes: KIB,
                answered_s: 32.0,
                connection_bytes: 327.0,
            },
            messages: Messages { message_bytes: 650.0, call_in: 6.0, call_out: 7.0 },
            store: Store { write_s: 23e-6, read_over_write: 0.5 },
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
            base_capacity_per_s: Some(1.0 / 64.9e-6),
        }
    }
}
