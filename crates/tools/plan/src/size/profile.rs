//! What a server was measured to cost and to have.

use serde::{Deserialize, Serialize};

use crate::error::{PlanError, count, not_negative, positive, share};
use crate::threads::Beta;
use crate::timing::PacketTiming;

/// A measured server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// What it is called.
    pub name: String,
    /// Where its figures come from, for the reader of a plan.
    pub source: String,
    /// A core's time for each unit of work.
    pub costs: Costs,
    /// Memory for what is kept.
    pub memory: Memory,
    /// What a unit of work sends and receives.
    pub messages: Messages,
    /// The store behind a member.
    pub store: Store,
    /// The engine through which members share registrations.
    #[serde(default)]
    pub engine: Engine,
    /// What one server is.
    pub server: Server,
    /// The parts of a packet's service time, where they were measured: for the mean wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timing: Option<PacketTiming>,
    /// What threads on one core lose to each other, where it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beta: Option<Beta>,
    /// C₁: the calls/s that one core carries with one thread, where it was measured, 1/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_capacity_per_s: Option<f64>,
}

/// Time of one core, all of the server's threads and the kernel's work for them together, s.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// A call (INVITE to the answer to BYE) with transactions.
    pub stateful_call_s: f64,
    /// A call without.
    pub stateless_call_s: f64,
    /// A further request in a call and its answer: PRACK, UPDATE.
    pub request_s: f64,
    /// A REGISTER that refreshes what is known, and its answer.
    pub register_s: f64,
    /// A REGISTER that is challenged, and the one that answers: four messages.
    pub challenged_register_s: f64,
    /// A registration that one member passes on to another, at either end of that.
    pub copy_s: f64,
    /// Forwarding a message in the first stage, request or response.
    pub first_message_s: f64,
}

/// Memory, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// The server before anything is kept.
    pub base_bytes: f64,
    /// A registered contact.
    pub contact_bytes: f64,
    /// A subscriber: name, credentials.
    pub subscriber_bytes: f64,
    /// A call that is being set up: its transactions.
    pub setup_bytes: f64,
    /// What is left of its transactions afterwards.
    pub answered_bytes: f64,
    /// For how long that is kept, s: timers J, L and M.
    pub answered_s: f64,
    /// A TCP connection, idle.
    pub connection_bytes: f64,
}

/// What crosses the network, of a server that forwards: in and out counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Messages {
    /// A message's size with its headers of UDP, IP and Ethernet, bytes.
    pub message_bytes: f64,
    /// Messages that a stateful call brings in.
    pub call_in: f64,
    /// Messages that it sends out.
    pub call_out: f64,
}

/// A member's store.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Store {
    /// T: a write, s of the store's time.
    pub write_s: f64,
    /// t: a read, in parts of a write.
    pub read_over_write: f64,
}

/// What an engine receives and sends for one REGISTER, bytes of its protocol without headers of TCP and IP.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Engine {
    /// Written by the member that has accepted it.
    pub write_bytes: f64,
    /// Read by each of the other members.
    pub read_bytes: f64,
}

impl Default for Engine {
    /// Measured with Redis, two members and 5,000 REGISTERs a second.
    fn default() -> Self {
        Self { write_bytes: 870.0, read_bytes: 217.0 }
    }
}

/// A server.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Its cores.
    pub cores: u32,
    /// How many of them work as one, for each further core: 1 for a server that scales without loss.
    pub scaling: f64,
    /// Its memory, bytes.
    pub memory_bytes: f64,
    /// Its network, bit/s in each direction.
    pub network_bits_per_s: f64,
    /// R: the probability that it answers.
    pub availability: f64,
    /// What it costs in a month, in any currency.
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
                reason: "it is below that of a REGISTER without a challenge".into(),
                remedy: "give the cost of both its requests together",
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

    /// Cores that work as one does: 1 + (n − 1)·scaling.
    pub fn working_cores(&self) -> f64 {
        1.0 + f64::from(self.server.cores - 1) * self.server.scaling
    }
}
