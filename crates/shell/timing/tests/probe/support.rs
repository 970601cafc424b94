//! Starting a probe, and reading its records.

use std::time::{Duration, Instant};

use strowger_timing::{PacketRecord, Part, Probe, ProbeError, ProbeOptions, Target};

/// How long to wait for an answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Starts a probe; none if this user may not, which the test reports.
pub(crate) fn start(target: Target) -> Option<Probe> {
    match Probe::start(target, &ProbeOptions::default()) {
        Ok(probe) => Some(probe),
        Err(error @ (ProbeError::NotPermitted(_) | ProbeError::NoTypeInformation(_) | ProbeError::Kernel(_))) => {
            skip(&error.to_string());
            None
        }
        Err(error) => panic!("the probe does not start: {error}"),
    }
}

/// Reports that a test cannot run here, which fails where that is required.
pub(crate) fn skip(why: &str) {
    let is_required = std::env::var("STROWGER_REQUIRE_INTEROP").is_ok_and(|value| value == "1");
    assert!(!is_required, "{why}");
    println!("SKIPPED: {why}");
}

/// Returns all records of a probe, of which no event may be lost.
pub(crate) fn stop(probe: Probe) -> Vec<PacketRecord> {
    assert_eq!(probe.lost_events(), 0);
    let mut records = Vec::new();
    probe.stop(&mut records);
    records.sort_by_key(|record| record.received_ns);
    records.iter().for_each(assert_sums);
    records
}

/// Asserts that K_rcv is the sum of its parts.
fn assert_sums(record: &PacketRecord) {
    let part = |part| record.times.get(part);
    if let Some(receive) = part(Part::Receive) {
        let parts = [Part::Stack, Part::SocketQueue, Part::Copy].map(|name| part(name).expect("K_rcv has its parts"));
        assert_eq!(parts.iter().sum::<u64>(), receive);
        assert_eq!(record.received_ns - record.arrived_ns.expect("it was seen"), receive);
    }
    if let Some(wake_up) = part(Part::WakeUp) {
        assert!(wake_up <= part(Part::SocketQueue).expect("it slept for this packet"));
    }
}

/// Uses the processor for some time.
pub(crate) fn work(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Returns the median of a part, µs; interruptions by other programs do not move it.
#[expect(clippy::cast_precision_loss, reason = "times of a test are short")]
pub(crate) fn median_us(records: &[PacketRecord], part: Part) -> f64 {
    let mut values: Vec<_> = records.iter().filter_map(|record| record.times.get(part)).collect();
    assert!(!values.is_empty(), "no record has {}", part.name());
    values.sort_unstable();
    values[values.len() / 2] as f64 / 1e3
}

/// Asserts that a measured time is the expected one within 5 % or 1 µs.
pub(crate) fn assert_close(what: &str, measured_us: f64, expected_us: f64) {
    let error = (measured_us - expected_us).abs();
    println!(
        "{what}: {measured_us:.2} µs for {expected_us:.2} µs, {:+.1} %",
        (measured_us / expected_us - 1.0) * 100.0
    );
    assert!(error <= 1.0_f64.max(expected_us * 0.05), "{what}: {measured_us} µs instead of {expected_us} µs");
}
