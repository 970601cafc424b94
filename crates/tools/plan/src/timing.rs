//! Service time of a packet from measured parts, by message type and rate.

use serde::{Deserialize, Serialize};

use crate::curve::Curve;
use crate::error::{PlanError, not_negative, positive};
use crate::explain::Explanation;
use crate::service::ServiceTime;
use crate::units;

/// Measured part of a packet's service time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Mean, s.
    pub mean_s: f64,
    /// Variance, s².
    #[serde(default)]
    pub variance_s2: f64,
}

impl Part {
    /// Creates a part of constant duration.
    pub fn constant(mean_s: f64) -> Self {
        Self { mean_s, variance_s2: 0.0 }
    }
}

/// Cost of packets of one type, in the thesis's parts (section 3.5).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessageTiming {
    /// Message type: `INVITE`, `180`, …
    pub message: String,
    /// Share of packets of this type.
    pub share: f64,
    /// K_sockq^{s,base}: time from the socket's queue to the program, without queueing or load.
    pub sockq_base: Part,
    /// K_copy: time to copy from the kernel to the program.
    pub copy: Part,
    /// T_sip: time in the program.
    pub sip: Part,
    /// K_snd: time from the program to the device.
    pub send: Part,
}

/// Service time of a server's packets at any rate: X = α(λ)·K_sockq^{s,base} + K_copy + T_sip + K_snd (thesis, eq.
/// 4.1, 4.4).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PacketTiming {
    /// Timings by message type; the shares sum to 1.
    pub messages: Vec<MessageTiming>,
    /// α over packets/s: slowdown of the socket part by interrupts.
    pub alpha: Curve,
    /// Growth of T_sip under load, as a factor over packets/s; 1 by default.
    ///
    /// The thesis measures this growth (section 4.2.2) but gives no formula.
    #[serde(default = "unchanged")]
    pub sip_growth: Curve,
}

fn unchanged() -> Curve {
    Curve::constant(1.0)
}

impl PacketTiming {
    /// Checks all parts.
    ///
    /// # Errors
    /// A negative time, shares that do not sum to 1, a factor of 0 or below.
    pub fn check(&self) -> Result<(), PlanError> {
        positive("α", self.alpha.lowest())?;
        positive("growth of T_sip", self.sip_growth.lowest())?;
        self.service_at(0.0).map(|_| ())
    }

    /// Returns X of a packet of any type at a rate of packets.
    ///
    /// # Errors
    /// As [`PacketTiming::check`], and a rate below 0.
    pub fn service_at(&self, packets_per_s: f64) -> Result<ServiceTime, PlanError> {
        let types: Vec<(f64, ServiceTime)> = self
            .messages
            .iter()
            .map(|message| Ok((message.share, self.of_message(message, packets_per_s)?)))
            .collect::<Result<_, PlanError>>()?;
        ServiceTime::mixture(&types)
    }

    /// Returns X of a packet of one type, assuming independent parts.
    ///
    /// # Errors
    /// As [`PacketTiming::service_at`].
    pub fn of_message(&self, message: &MessageTiming, packets_per_s: f64) -> Result<ServiceTime, PlanError> {
        let rate = not_negative("rate", packets_per_s)?;
        let parts = [
            (self.alpha.at(rate), message.sockq_base),
            (1.0, message.copy),
            (self.sip_growth.at(rate), message.sip),
            (1.0, message.send),
        ];
        let (mut mean_s, mut variance_s2) = (0.0, 0.0);
        for (factor, part) in parts {
            mean_s += factor * not_negative("part of a service time", part.mean_s)?;
            variance_s2 += factor * factor * not_negative("variance of a part", part.variance_s2)?;
        }
        let mean_s = positive("service time", mean_s)?;
        ServiceTime::from_moments(mean_s, mean_s * mean_s + variance_s2)
    }

    /// Explains E\[X\] at a rate.
    ///
    /// # Errors
    /// As [`PacketTiming::service_at`].
    pub fn explain_at(&self, packets_per_s: f64) -> Result<Explanation, PlanError> {
        let service = self.service_at(packets_per_s)?;
        let alpha = self.alpha.at(packets_per_s);
        let mean = |part: fn(&MessageTiming) -> Part| -> f64 {
            self.messages.iter().map(|message| message.share * part(message).mean_s).sum()
        };
        let base = mean(|message| message.sockq_base);
        let growth = self.sip_growth.at(packets_per_s);
        Ok(Explanation::new()
            .step(
                ("α", "the factor that interrupts add to the socket's part"),
                "α(λ), linear between measured points",
                format!("α({})", units::rate(packets_per_s)),
                units::number(alpha),
                "Krishnamurthy, thesis, section 4.3.1",
            )
            .step(
                ("K_sockq^s", "the socket's part of the service time"),
                "α(λ)·K_sockq^{s,base}",
                format!("{} × {}", units::number(alpha), units::time(base)),
                units::time(alpha * base),
                "Krishnamurthy, thesis, eq. 4.4",
            )
            .step(
                ("E[X]", "the mean service time of a packet"),
                "K_sockq^s + K_copy + T_sip + K_snd",
                format!(
                    "{} + {} + {} + {}",
                    units::time(alpha * base),
                    units::time(mean(|message| message.copy)),
                    units::time(growth * mean(|message| message.sip)),
                    units::time(mean(|message| message.send)),
                ),
                units::time(service.mean_s()),
                "Krishnamurthy, thesis, eq. 4.1",
            )
            .step(
                ("E[X²]", "its second moment, over the message types"),
                "Σ_i share_i·E[X_i²]",
                format!("{} message types", self.messages.len()),
                format!("{} s²", units::number(service.second_moment_s2())),
                "Krishnamurthy, thesis, eq. 4.3",
            ))
    }
}
