//! Measured results, as they are saved in `bench/tuning`.

use serde::{Deserialize, Serialize};

use super::server::{Contender, Tuning};

/// Runs at one rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Offered calls per second.
    pub calls_per_s: f64,
    /// Packets per second sent to the server.
    pub packets_per_s: f64,
    /// Share of packets dropped by its socket, in percent.
    pub drops_percent: f64,
    /// Cores that it kept busy.
    pub processors: f64,
    /// 99th percentile of the time from INVITE to 180 in milliseconds, if there were any.
    pub p99_ms: Option<f64>,
    /// Whether the generator fell behind.
    pub is_late: bool,
}

/// A tuned server under several rates, in ascending order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sweep {
    /// The server.
    pub contender: Contender,
    /// How it was tuned.
    pub tuning: Tuning,
    /// Its rates.
    pub points: Vec<Point>,
    /// Mean K_rcv in microseconds at [`KERNEL_TIME_SHARE`] of the saturation rate, if it was measured.
    pub kernel_time_us: Option<f64>,
}

/// Share of the saturation rate at which K_rcv is measured.
pub const KERNEL_TIME_SHARE: f64 = 0.8;

/// A tuned server that shares its core with another program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shared {
    /// The server.
    pub contender: Contender,
    /// How it was tuned.
    pub tuning: Tuning,
    /// What was measured.
    pub point: Point,
    /// Mean K_rcv in microseconds, if it was measured.
    pub kernel_time_us: Option<f64>,
}

/// Results of a part, with the circumstances in which they were measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Machine, versions, date and command.
    pub around: String,
    /// Day of the measurement.
    pub date: String,
    /// Baseline against tuned, for all servers.
    pub tuned: Vec<Sweep>,
    /// Each tuning alone, for some servers.
    pub single: Vec<Sweep>,
    /// Beside another program.
    pub shared: Vec<Shared>,
}

/// Calls per second at which a share of packets is dropped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capacity {
    /// Calls per second.
    pub calls_per_s: f64,
    /// Whether it is more: less was dropped at the highest rate, or the generator could offer no more.
    pub is_more: bool,
}

impl Sweep {
    /// Returns the points that count. On one core the generator has the other, and a run in which it was late says
    /// nothing about the server; on two cores it shares one with the server and is late when that is busy.
    pub fn counted(&self) -> impl DoubleEndedIterator<Item = &Point> {
        let is_shared = self.contender.cores > 1;
        self.points.iter().filter(move |point| is_shared || !point.is_late)
    }

    /// Returns the calls per second at which this share of packets is dropped, between two measured rates; `None` if
    /// it is dropped already at the lowest one.
    #[must_use]
    pub fn calls_at(&self, drops_percent: f64) -> Option<Capacity> {
        let mut before: Option<&Point> = None;
        for point in self.counted() {
            if point.drops_percent > drops_percent {
                let before = before?;
                let share = (drops_percent - before.drops_percent) / (point.drops_percent - before.drops_percent);
                let calls_per_s = before.calls_per_s + share * (point.calls_per_s - before.calls_per_s);
                return Some(Capacity { calls_per_s, is_more: false });
            }
            before = Some(point);
        }
        Some(Capacity { calls_per_s: before?.calls_per_s, is_more: true })
    }

    /// Returns the point that counts whose rate is next to the given one.
    #[must_use]
    pub fn at(&self, calls_per_s: f64) -> Option<&Point> {
        let distance = |point: &Point| (point.calls_per_s - calls_per_s).abs();
        self.counted().min_by(|one, other| distance(one).total_cmp(&distance(other)))
    }
}

/// Returns the change between two capacities as a ratio, if both are known exactly.
#[must_use]
pub fn ratio(before: Option<Capacity>, after: Option<Capacity>) -> Option<f64> {
    let exact = |one: Option<Capacity>| one.filter(|one| !one.is_more).map(|one| one.calls_per_s);
    Some(exact(after)? / exact(before)?)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a sweep with these rates and drops.
    pub(crate) fn sweep(contender: Contender, tuning: Tuning, points: &[(f64, f64)]) -> Sweep {
        let point = |(calls_per_s, drops_percent): &(f64, f64)| Point {
            calls_per_s: *calls_per_s,
            packets_per_s: 6.0 * calls_per_s,
            drops_percent: *drops_percent,
            processors: 0.9,
            p99_ms: Some(1.0),
            is_late: false,
        };
        Sweep { contender, tuning, points: points.iter().map(point).collect(), kernel_time_us: Some(12.0) }
    }

    #[test]
    fn rates_are_found_between_measured_ones() {
        let contender = Contender { is_ours: false, processes: 1, cores: 1 };
        let capacity = |calls_per_s, is_more| Some(Capacity { calls_per_s, is_more });
        let mut of = sweep(contender, Tuning::None, &[(100.0, 0.0), (200.0, 2.0), (300.0, 10.0)]);
        assert_eq!(of.calls_at(1.0), capacity(150.0, false));
        assert_eq!(of.calls_at(2.0), capacity(200.0, false));
        assert_eq!(of.calls_at(4.0), capacity(225.0, false));
        assert_eq!(of.calls_at(20.0), capacity(300.0, true), "more was not tried");
        assert_eq!(ratio(of.calls_at(1.0), of.calls_at(4.0)), Some(1.5));
        assert_eq!(ratio(of.calls_at(1.0), of.calls_at(20.0)), None);
        of.points[2].is_late = true;
        assert_eq!(of.calls_at(4.0), capacity(200.0, true), "the generator could offer no more");
        of.contender.cores = 2;
        assert_eq!(of.calls_at(4.0), capacity(225.0, false), "it shares a core");
        let of = sweep(contender, Tuning::None, &[(100.0, 3.0)]);
        assert_eq!((of.calls_at(1.0), of.at(700.0).map(|point| point.calls_per_s)), (None, Some(100.0)));
    }
}
