//! Measurements, independent of their format.

use std::collections::BTreeMap;

/// Measurement of a server at one rate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observation {
    /// Source of the measurement: file and line.
    pub name: String,
    /// λ: rate of packets that reached the server, dropped ones included, packets/s.
    pub rate_per_s: f64,
    /// Call rate, if known, calls/s.
    pub calls_per_s: Option<f64>,
    /// c: threads on one core that take packets from one queue.
    pub servers: u32,
    /// K, if known.
    pub queue: Option<u64>,
    /// E\[X\] of a packet with one thread, s.
    pub service_s: Option<f64>,
    /// Var\[X\]/E\[X\]² of all packets together.
    pub scv: Option<f64>,
    /// K_sockq^{s,base}: the socket's part of the service time without load, s.
    pub base_s: Option<f64>,
    /// K_copy + T_sip + K_snd: service time outside the socket, s.
    pub rest_s: Option<f64>,
    /// K_sockq: waiting and the socket's part of the service time together, s.
    pub sockq_s: Option<f64>,
    /// W: mean waiting time of a packet, s.
    pub wait_s: Option<f64>,
    /// Share of packets that were dropped.
    pub drops: Option<f64>,
    /// Processors in use: 1 is a whole one.
    pub cpu: Option<f64>,
    /// Times by message type.
    pub messages: Vec<MessageObservation>,
    /// Cost of a unit of work, from a run of the load generator.
    pub work: Option<Work>,
}

/// Times of packets of one type.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MessageObservation {
    /// Message type: `INVITE`, `180`, …
    pub message: String,
    /// Count or share; only the proportion matters.
    pub weight: f64,
    /// E\[X_i\], s.
    pub service_s: Option<f64>,
    /// Var\[X_i\]/E\[X_i\]².
    pub scv: Option<f64>,
}

/// Work of a server in a run of the load generator.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    /// Kind of work.
    pub kind: Kind,
    /// Carried units of work, 1/s.
    pub carried_per_s: f64,
    /// Processor time per unit, s.
    pub cost_s: f64,
    /// Incoming messages per unit.
    pub messages_in: f64,
}

/// Unit of work for which a profile has a cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Call forwarded statefully.
    Call,
    /// Call forwarded statelessly.
    StatelessCall,
    /// REGISTER and its response.
    Register,
    /// Challenged REGISTER, and its repetition with credentials.
    ChallengedRegister,
}

impl Kind {
    /// Returns a name for readers.
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
    /// Returns the mean and the variation over message types, if measured, from Σ share·E\[X_i\] and Σ
    /// share·E\[X_i²\].
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

    /// Returns E\[X\] as measured or as derived from the message types, s.
    #[must_use]
    pub fn mean_s(&self) -> Option<f64> {
        self.service_s.or_else(|| self.of_messages().map(|(mean, _)| mean))
    }

    /// Determines α if K_sockq was measured without its waiting time.
    ///
    /// α is chosen so that the Pollaczek-Khinchin formula gives the remaining part of K_sockq (thesis, eq. 3.1, 4.2,
    /// 4.4). This determines the service time and the wait as well.
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
        // Bisection: after sixty steps the interval is empty.
        for _ in 0..60 {
            let middle = f64::midpoint(low, high);
            if total(middle) < sockq { low = middle } else { high = middle }
        }
        self.service_s = Some(low * base + rest);
        self.wait_s = self.wait_s.or(Some((sockq - low * base).max(0.0)));
    }

    /// Returns Var\[X\]/E\[X\]², if measured for all packets or for each type.
    pub(super) fn measured_scv(&self) -> Option<f64> {
        self.scv.or_else(|| {
            let has_all = self.messages.iter().all(|message| message.scv.is_some());
            let (mean, second) = self.of_messages().filter(|_| has_all)?;
            Some((second / (mean * mean) - 1.0).max(0.0))
        })
    }
}

/// Returns the message types of all measurements.
pub(super) fn message_names(observations: &[Observation]) -> Vec<String> {
    let mut weights: BTreeMap<&str, f64> = BTreeMap::new();
    for message in observations.iter().flat_map(|observation| &observation.messages) {
        *weights.entry(&message.message).or_default() += message.weight;
    }
    weights.into_iter().filter(|(_, weight)| *weight > 0.0).map(|(name, _)| name.to_owned()).collect()
}
