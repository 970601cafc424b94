//! Measured costs and resources of a server.

use serde::{Deserialize, Serialize};

use crate::error::{PlanError, count, not_negative, positive, share};
use crate::threads::Beta;
use crate::timing::PacketTiming;

/// Profile of a measured server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Name.
    pub name: String,
    /// Source of the figures, for the reader of a plan.
    pub source: String,
    /// Core time per unit of work.
    pub costs: Costs,
    /// Memory per item.
    pub memory: Memory,
    /// Messages per unit of work.
    pub messages: Messages,
    /// Store of a member.
    pub store: Store,
    /// Engine through which members share registrations.
    #[serde(default)]
    pub engine: Engine,
    /// Resources of one server.
    pub server: Server,
    /// Parts of a packet's service time, if measured; they determine the mean wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timing: Option<PacketTiming>,
    /// Contention of threads on one core, if measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beta: Option<Beta>,
    /// C₁: capacity of one core with one thread, if measured, calls/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_capacity_per_s: Option<f64>,
}

/// Time of one core for all of the server's threads and the kernel's work for them, s.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// A stateful call, from the INVITE to the response to BYE.
    pub stateful_call_s: f64,
    /// A stateless call.
    pub stateless_call_s: f64,
    /// A further request in a call and its response: PRACK, UPDATE.
    pub request_s: f64,
    /// A REGISTER that refreshes a binding, and its response.
    pub register_s: f64,
    /// A challenged REGISTER and its repetition with credentials: four messages.
    pub challenged_register_s: f64,
    /// A registration passed from one member to another, at either end.
    pub copy_s: f64,
    /// A message forwarded in the first stage, request or response.
    pub first_message_s: f64,
}

/// Memory per item, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// The server without any items.
    pub base_bytes: f64,
    /// A registered contact.
    pub contact_bytes: f64,
    /// A subscriber: name and credentials.
    pub subscriber_bytes: f64,
    /// A call being set up: its transactions.
    pub setup_bytes: f64,
    /// The remains of a call's transactions after its set-up.
    pub answered_bytes: f64,
    /// Time for which these remain, s: timers J, L and M.
    pub answered_s: f64,
    /// An idle TCP connection.
    pub connection_bytes: f64,
}

/// Network messages of a forwarding server, counted separately in each direction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Messages {
    /// Size of a message with its UDP, IP and Ethernet headers, bytes.
    pub message_bytes: f64,
    /// Incoming messages of a stateful call.
    pub call_in: f64,
    /// Outgoing messages of a stateful call.
    pub call_out: f64,
}

/// Store of a member.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Store {
    /// T: store time per write, s.
    pub write_s: f64,
    /// t: store time of a read relative to a write.
    pub read_over_write: f64,
}

/// Engine traffic for one REGISTER, in bytes of its protocol without TCP and IP headers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Engine {
    /// Bytes written by the member that accepted it.
    pub write_bytes: f64,
    /// Bytes read by each other member.
    pub read_bytes: f64,
}

impl Default for Engine {
    /// Returns values measured with Redis, two members and 5,000 REGISTERs per second.
    fn default() -> Self {
        Self { write_bytes: 870.0, read_bytes: 217.0 }
    }
}

/// Resources of a server.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Number of cores.
    pub cores: u32,
    /// Capacity of each further core relative to the first: 1 for a server that scales linearly.
    pub scaling: f64,
    /// Memory, bytes.
    pub memory_bytes: f64,
    /// Network bandwidth in each direction, bit/s.
    pub network_bits_per_s: f64,
    /// R: probability that the server answers.
    pub availability: f64,
    /// Cost per month, in any currency.
    pub cost_per_month: f64,
}

impl Profile {
    pub(super) fn check(&self) -> Result<(), PlanError> {
        let Costs {
            stateful_call_s,
            stateless_call_s,
            request_s,
            register_s,
            challenged_register_s,
            copy_s,
            first_message_s,
        } = self.costs;
        positive("cost of a stateful call", stateful_call_s)?;
        positive("cost of a stateless call", stateless_call_s)?;
        not_negative("cost of a request", request_s)?;
        positive("cost of a REGISTER", register_s)?;
        if not_negative("cost of a challenged REGISTER", challenged_register_s)? < register_s {
            return Err(PlanError::Contradiction {
                input: "cost of a challenged REGISTER".into(),
                reason: "it is below that of an unchallenged REGISTER".into(),
                remedy: "give the total cost of both requests",
            });
        }
        not_negative("cost of a copy", copy_s)?;
        positive("cost of a forwarded message", first_message_s)?;
        self.check_amounts()
    }

    fn check_amounts(&self) -> Result<(), PlanError> {
        let Memory {
            base_bytes,
            contact_bytes,
            subscriber_bytes,
            setup_bytes,
            answered_bytes,
            answered_s,
            connection_bytes,
        } = self.memory;
        for (input, value) in [
            ("memory of an empty server", base_bytes),
            ("memory of a contact", contact_bytes),
            ("memory of a subscriber", subscriber_bytes),
            ("memory of a call that is set up", setup_bytes),
            ("memory of an answered call", answered_bytes),
            ("time that transactions are kept", answered_s),
            ("memory of a connection", connection_bytes),
            ("size of a message", self.messages.message_bytes),
            ("messages into a call", self.messages.call_in),
            ("messages out of a call", self.messages.call_out),
            ("bytes of a write to the engine", self.engine.write_bytes),
            ("bytes of a read from the engine", self.engine.read_bytes),
            ("time of a write", self.store.write_s),
            ("time of a read over a write's", self.store.read_over_write),
            ("cost of a server", self.server.cost_per_month),
        ] {
            not_negative(input, value)?;
        }
        count("cores of a server", self.server.cores, 1 << 16)?;
        share("scaling", self.server.scaling)?;
        positive("memory of a server", self.server.memory_bytes)?;
        positive("network of a server", self.server.network_bits_per_s)?;
        share("availability of a server", self.server.availability)?;
        if let Some(timing) = &self.timing {
            timing.check()?;
        }
        Ok(())
    }

    /// Returns the equivalent number of cores without scaling losses: 1 + (n − 1)·scaling.
    pub fn working_cores(&self) -> f64 {
        1.0 + f64::from(self.server.cores - 1) * self.server.scaling
    }
}
