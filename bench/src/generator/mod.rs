//! Limits of the load generator itself, beside SIPp and a relay without logic.

pub mod relay;
pub mod report;
pub mod sipp;
pub mod strowger;
pub mod wire;

/// Results at one rate.
#[derive(Clone, Debug)]
pub struct Probe {
    /// Requested calls per second.
    pub asked: f64,
    /// Calls per second actually made.
    pub made: f64,
    /// Reasons why the rate does not count: failed calls, retransmissions, calls that began late, or messages that
    /// waited to be read. Empty if it counts.
    pub faults: Vec<String>,
}

impl Probe {
    /// Allowed shortfall of the actual rate from the requested rate.
    const SHORT: f64 = 0.01;

    /// Judges a measurement.
    #[must_use]
    pub fn new(asked: f64, made: f64, mut faults: Vec<String>) -> Self {
        if made < asked * (1.0 - Self::SHORT) {
            faults.push(format!("only {made:.0} a second were made"));
        }
        Self { asked, made, faults }
    }

    /// Returns whether the rate was sustained without faults.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.faults.is_empty()
    }
}

/// Returns the highest clean rate within three percent, by doubling from `from` and then bisection. Repeats a failed
/// rate once, because the machine may have been disturbed.
pub fn highest(from: f64, mut probe: impl FnMut(f64) -> Probe) -> Option<Probe> {
    let mut twice = |rate: f64| {
        let first = probe(rate);
        if first.is_clean() { first } else { probe(rate) }
    };
    let (mut best, mut bad) = (None, None);
    let mut rate = from;
    loop {
        let tried = twice(rate);
        eprintln!("  {rate:.0}/s: {}", if tried.is_clean() { "clean".to_owned() } else { tried.faults.join(", ") });
        if tried.is_clean() {
            best = Some(tried);
        } else {
            bad = Some(rate);
        }
        let good = best.as_ref().map_or(0.0, |best: &Probe| best.asked);
        rate = match bad {
            None => good * 2.0,
            Some(bad) if good == 0.0 && bad > 100.0 => bad / 2.0,
            Some(bad) if bad > good * 1.03 && good > 0.0 => f64::midpoint(good, bad),
            Some(_) => return best,
        };
    }
}

/// Returns the processor time of this thread so far, in seconds.
#[must_use]
pub fn thread_time() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|nanos| nanos.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_clean_rate_is_found() {
        for limit in [150.0, 9_999.0, 77_000.0] {
            let found = highest(1_000.0, |rate| Probe::new(rate, rate.min(limit), Vec::new())).expect("one is clean");
            assert!(found.asked <= limit * 1.011 && found.asked > limit * 0.95, "{} for {limit}", found.asked);
        }
        assert!(highest(1_000.0, |rate| Probe::new(rate, 0.0, Vec::new())).is_none());
        // A rate that failed due to a disturbance.
        let mut count = 0;
        let found = highest(1_000.0, |rate| {
            count += 1;
            Probe::new(rate, if count % 2 == 1 { 0.0 } else { rate.min(5_000.0) }, Vec::new())
        });
        assert!(found.expect("one is clean").asked > 4_800.0);
    }
}
