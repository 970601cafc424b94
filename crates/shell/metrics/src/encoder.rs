//! Writing of metric families.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use strowger_timing::TimeBuckets;

/// Labels of one sample.
pub(crate) type Labels = Vec<(&'static str, String)>;

/// Name, unit and meaning of a family.
#[derive(Clone, Debug)]
pub(crate) struct Family<'a> {
    name: &'a str,
    unit: Option<Unit>,
    help: &'a str,
}

impl<'a> Family<'a> {
    /// A family without a unit.
    pub(crate) const fn new(name: &'a str, help: &'a str) -> Self {
        Self { name, unit: None, help }
    }

    /// A family of seconds; the name lacks the unit.
    pub(crate) const fn seconds(name: &'a str, help: &'a str) -> Self {
        Self { name, unit: Some(Unit::Seconds), help }
    }

    /// A family of bytes; the name lacks the unit.
    pub(crate) const fn bytes(name: &'a str, help: &'a str) -> Self {
        Self { name, unit: Some(Unit::Bytes), help }
    }

    /// A family of shares from 0 to 1; the name lacks the unit.
    pub(crate) fn ratio(name: &'a str, help: &'a str) -> Self {
        Self { name, unit: Some(Unit::Other("ratio".to_owned())), help }
    }
}

/// Writer of metric families.
pub(crate) struct Encoder<'a>(DescriptorEncoder<'a>);

impl<'a> Encoder<'a> {
    pub(crate) const fn new(encoder: DescriptorEncoder<'a>) -> Self {
        Self(encoder)
    }

    /// Writes a counter; the name lacks `_total`.
    pub(crate) fn counter(&mut self, family: &Family<'_>, value: u64) -> fmt::Result {
        self.counters(family, [(Labels::new(), value)])
    }

    /// Writes a counter for each label set; nothing if there is none.
    pub(crate) fn counters(
        &mut self,
        family: &Family<'_>,
        samples: impl IntoIterator<Item = (Labels, u64)>,
    ) -> fmt::Result {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return Ok(());
        }
        let Family { name, unit, help } = family;
        let mut encoder = self.0.encode_descriptor(name, help, unit.as_ref(), MetricType::Counter)?;
        samples.try_for_each(|(labels, value)| {
            encoder.encode_family(&labels)?.encode_counter::<NoLabelSet, u64, f64>(&value, None)
        })
    }

    /// Writes a counter of fractions; the name lacks `_total`.
    pub(crate) fn fractional_counter(&mut self, family: &Family<'_>, value: f64) -> fmt::Result {
        let Family { name, unit, help } = family;
        let mut encoder = self.0.encode_descriptor(name, help, unit.as_ref(), MetricType::Counter)?;
        encoder.encode_counter::<NoLabelSet, f64, f64>(&value, None)
    }

    /// Writes a gauge.
    pub(crate) fn gauge(&mut self, family: &Family<'_>, value: impl EncodeGaugeValue) -> fmt::Result {
        self.gauges(family, [(Labels::new(), value)])
    }

    /// Writes a gauge for each label set; nothing if there is none.
    pub(crate) fn gauges<V: EncodeGaugeValue>(
        &mut self,
        family: &Family<'_>,
        samples: impl IntoIterator<Item = (Labels, V)>,
    ) -> fmt::Result {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return Ok(());
        }
        let Family { name, unit, help } = family;
        let mut encoder = self.0.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
        samples.try_for_each(|(labels, value)| encoder.encode_family(&labels)?.encode_gauge(&value))
    }

    /// Writes a histogram for each label set that has values, with these bounds.
    pub(crate) fn histograms<'t>(
        &mut self,
        family: &Family<'_>,
        bounds_ns: &[u64],
        samples: impl IntoIterator<Item = (Labels, &'t TimeBuckets)>,
    ) -> fmt::Result {
        let mut samples = samples.into_iter().filter(|(_, times)| times.count() > 0).peekable();
        if samples.peek().is_none() {
            return Ok(());
        }
        let Family { name, unit, help } = family;
        let mut encoder = self.0.encode_descriptor(name, help, unit.as_ref(), MetricType::Histogram)?;
        let bounds = || bounds_ns.iter().map(|bound| seconds(*bound)).chain([f64::INFINITY]);
        samples.try_for_each(|(labels, times)| {
            let buckets: Vec<(f64, u64)> = bounds().zip(times.counts.iter().copied()).collect();
            let mut encoder = encoder.encode_family(&labels)?;
            encoder.encode_histogram::<NoLabelSet>(times.sum_s, times.count(), &buckets, None)
        })
    }
}

/// Returns 1 for a condition that holds, else 0.
pub(crate) fn flag(holds: bool) -> u64 {
    u64::from(holds)
}

/// Converts a bound, ns.
#[expect(clippy::cast_precision_loss, reason = "bounds are far below 2^53")]
fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}
