//! Times over time.

use strowger_timing::{Part, TimingReport};

/// Maximum number of points; then two neighbours become one.
const MAX_POINTS: usize = 1_000;

/// What was seen in one interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TimePoint {
    /// End of the interval since the start, s.
    pub(crate) at_s: f64,
    /// Length of the interval, s.
    pub(crate) seconds: f64,
    /// Packets received, 1/s.
    pub(crate) packets_per_s: f64,
    /// Mean of each measured part, µs.
    pub(crate) means_us: Vec<(Part, f64)>,
    /// Mean number of packets in the queue.
    pub(crate) queue: Option<f64>,
    /// Processors in use.
    pub(crate) cpu: Option<f64>,
    /// Number of drops.
    pub(crate) drops: u64,
}

impl TimePoint {
    /// Returns what was added to a report since an earlier one of the same measurement.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    pub(crate) fn between(before: &TimingReport, now: &TimingReport) -> Self {
        let seconds = now.seconds - before.seconds;
        let packets = |report: &TimingReport| report.packets_per_s * report.seconds;
        let means = Part::ALL.into_iter().filter_map(|part| {
            let sum = |report: &TimingReport| {
                let times = report.all.parts.get(part.key());
                times.map_or((0.0, 0), |times| (times.mean_us * times.count as f64, times.count))
            };
            let ((before, earlier), (now, count)) = (sum(before), sum(now));
            let new = count.checked_sub(earlier).filter(|new| *new > 0)?;
            Some((part, ((now - before) / new as f64).max(0.0)))
        });
        let busy = |report: &TimingReport| report.cpu.map(|cpu| cpu * report.seconds);
        let per_s = |more: f64| if seconds > 0.0 { (more / seconds).max(0.0) } else { 0.0 };
        let drops = |report: &TimingReport| report.drops.values().sum::<u64>();
        Self {
            at_s: now.seconds,
            seconds,
            packets_per_s: per_s(packets(now) - packets(before)),
            means_us: means.collect(),
            queue: now.queue.map(|queue| {
                let earlier = before.queue.map_or(0.0, |queue| queue.mean * before.seconds);
                per_s(queue.mean * now.seconds - earlier)
            }),
            cpu: busy(now).map(|busy_now| per_s(busy_now - busy(before).unwrap_or(0.0))),
            drops: drops(now).saturating_sub(drops(before)),
        }
    }

    /// Returns the mean of a part, µs.
    pub(crate) fn mean_us(&self, part: Part) -> Option<f64> {
        self.means_us.iter().find(|(own, _)| *own == part).map(|(_, mean)| *mean)
    }
}

/// Points in order of time, at most [`MAX_POINTS`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Timeline {
    points: Vec<TimePoint>,
}

impl Timeline {
    /// Appends a point. When there are too many, every second one is left out.
    pub(crate) fn push(&mut self, point: TimePoint) {
        if self.points.len() >= MAX_POINTS {
            let mut is_kept = false;
            self.points.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
        }
        self.points.push(point);
    }

    pub(crate) fn points(&self) -> &[TimePoint] {
        &self.points
    }
}

#[cfg(test)]
mod tests {
    use strowger_timing::{Distribution, MessageReport};

    use super::*;

    fn report(seconds: f64, count: u64, mean_us: f64, cpu: f64) -> TimingReport {
        let times = Distribution { count, mean_us, ..Distribution::default() };
        let all = MessageReport { parts: [("k_sockq".to_owned(), times)].into(), ..MessageReport::default() };
        TimingReport { seconds, packets_per_s: 100.0, all, cpu: Some(cpu), ..TimingReport::default() }
    }

    #[test]
    fn a_point_contains_only_what_is_new() {
        let point = TimePoint::between(&report(1.0, 100, 10.0, 0.5), &report(2.0, 200, 20.0, 0.75));
        assert_eq!((point.seconds, point.packets_per_s, point.cpu), (1.0, 100.0, Some(1.0)));
        assert_eq!(point.mean_us(Part::SocketQueue), Some(30.0));
        assert_eq!(point.mean_us(Part::Send), None);
    }

    #[test]
    fn a_long_timeline_is_thinned() {
        let mut line = Timeline::default();
        for second in 0..2_500_u32 {
            line.push(TimePoint { at_s: f64::from(second), ..TimePoint::default() });
        }
        assert!(line.points().len() <= MAX_POINTS);
        assert_eq!(line.points().last().map(|point| point.at_s), Some(2_499.0));
        assert!(line.points().is_sorted_by(|a, b| a.at_s < b.at_s));
    }
}
