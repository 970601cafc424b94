//! What was measured, whatever it was written in.

use std::collections::BTreeMap;

/// One measurement: a server at one rate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observation {
    /// Where it stands: a file, and a line.
    pub name: String,
    /// λ, packets/s that came to the server, those that were dropped among them.
    pub rate_per_s: f64,
    /// Calls/s, where that is known.
    pub calls_per_s: Option<f64>,
    /// c, threads that took packets from one queue on one core.
    pub servers: u32,
    /// K, where it is known.
    pub queue: Option<u64>,
    /// E\[X\] of a packet on one thread, s.
    pub service_s: Option<f64>,
    /// Var\[X\]/E\[X\]² of all packets together.
    pub scv: Option<f64>,
    /// K_sockq^{s,base}: what of the service is the socket's without load, s.
    pub base_s: Option<f64>,
    /// What of the service is not the socket's: K_copy + T_sip + K_snd, s.
    pub rest_s: Option<f64>,
    /// K_sockq: waiting and the socket's part of the service together, s.
    pub sockq_s: Option<f64>,
    /// W, the mean time that a packet waited, s.
    pub wait_s: Option<f64>,
    /// The share of packets that were dropped.
    pub drops: Option<f64>,
    /// The processors that the server kept busy: 1 is a whole one.
    pub cpu: Option<f64>,
    /// What packets of each type took.
    pub messages: Vec<MessageObservation>,
    /// What a unit of work cost, of a run of the load generator.
    pub work: Option<Work>,
}

/// What packets of one type took.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MessageObservation {
    /// `INVITE`, `180`, …
    pub message: String,
    /// How many, or which share: only their proportion counts.
    pub weight: f64,
    /// E\[X_i\], s.
    pub service_s: Option<f64>,
    /// Var\[X_i\]/E\[X_i\]².
    pub scv: Option<f64>,
}

/// What a server did in a run of the load generator.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    /// Of which kind.
    pub kind: Kind,
    /// How many units a second were carried.
    pub carried_per_s: f64,
    /// Processor time of each, s.
    pub cost_s: f64,
    /// Messages that came in for each.
    pub messages_in: f64,
}

/// A unit of work that a profile has a cost for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A call with transactions.
    Call,
    /// A call without.
    StatelessCall,
    /// A REGISTER and its answer.
    Register,
    /// A REGISTER that is challenged, and the one that answers.
    ChallengedRegister,
}

impl Kind {
    /// For people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Call => "stateful call",
            Self::StatelessCall => "stateless call",
            Self::Register => "REGISTER",
            Self::ChallengedRegister => "challenged REGISTER",
        }
    }
}

impl Observation {
    /// The mean and the scatter over the message types, where they were measured: Σ share·E\[X_i\] and Σ share·E\[X_i²\].
    pub(super) fn of_messages(&self) -> Option<(f64, f64)> {
        let all: f64 = self.messages.iter().map(|message| message.weight).sum();
        let parts: Option<Vec<(f64, f64)>> = self
            .messages
            .iter()
            .map(|message| {
                let (share, mean) = (message.weight / all, message.service_s?);
                Some((share * mean, share * mean * mean * (1.0 + message.scv.unwrap_or(0.0))))
            })
            .collect();
        let parts = parts.filter(|parts| !parts.is_empty() && all > 0.0)?;
        let mean = parts.iter().map(|part| part.0).sum();
        Some((mean, parts.iter().map(|part| part.1).sum()))
    }

    /// E\[X\], as it was measured or as its types make it, s.
    #[must_use]
    pub fn mean_s(&self) -> Option<f64> {
        self.service_s.or_else(|| self.of_messages().map(|(mean, _)| mean))
    }

    /// α, where K_sockq was measured and not how much of it is waiting: the α with which the formula of Pollaczek and Khinchin gives
    /// the rest of it (thesis, eq. 3.1, 4.2, 4.4). Then the service time and the wait are known, too.
    pub(super) fn resolve(&mut self) {
        let (Some(base), Some(rest), Some(sockq), None) = (self.base_s, self.rest_s, self.sockq_s, self.service_s)
        else {
            return;
        };
        let (rate, second) = (self.rate_per_s, 1.0 + self.scv.unwrap_or(0.0));
        let total = |alpha: f64| {
            let service = alpha * base + rest;
            rate * service * service * second / (2.0 * (1.0 - rate * service)) + alpha * base
        };
        let highest = (1.0 / rate - rest) / base;
        if self.servers != 1 || base <= 0.0 || highest <= 0.0 || total(0.0) > sockq {
            return;
        }
        let (mut low, mut high) = (0.0, highest);
        // Each step halves: sixty leave nothing.
        for _ in 0..60 {
            let middle = f64::midpoint(low, high);
            if total(middle) < sockq { low = middle } else { high = middle }
        }
        self.service_s = Some(low * base + rest);
        self.wait_s = self.wait_s.or(Some((sockq - low * base).max(0.0)));
    }

    /// Var\[X\]/E\[X\]², where it was measured of all packets or of each type.
    pub(super) fn measured_scv(&self) -> Option<f64> {
        self.scv.or_else(|| {
            let has_all = self.messages.iter().all(|message| message.scv.is_some());
            let (mean, second) = self.of_messages().filter(|_| has_all)?;
            Some((second / (mean * mean) - 1.0).max(0.0))
        })
    }
}

/// The message types of all measurements.
pub(super) fn message_names(observations: &[Observation]) -> Vec<String> {
    let mut weights: BTreeMap<&str, f64> = BTreeMap::new();
    for message in observations.iter().flat_map(|observation| &observation.messages) {
        *weights.entry(&message.message).or_default() += message.weight;
    }
    weights.into_iter().filter(|(_, weight)| *weight > 0.0).map(|(name, _)| name.to_owned()).collect()
}
