//! What the load generator itself can do, beside SIPp and beside a relay that does nothing.

pub mod relay;
pub mod report;
pub mod sipp;
pub mod strowger;
pub mod wire;

/// What came of a rate that was tried.
#[derive(Clone, Debug)]
pub struct Probe {
    /// Calls a second that were asked for.
    pub asked: f64,
    /// Those that were made.
    pub made: f64,
    /// Why it does not count: calls failed, messages were sent again, calls began late, or messages waited to be read. Empty where it does.
    pub faults: Vec<String>,
}

impl Probe {
    /// How far below the rate that is asked for the one that was made may be.
    const SHORT: f64 = 0.01;

    /// Judges what was seen.
    #[must_use]
    pub fn new(asked: f64, made: f64, mut faults: Vec<String>) -> Self {
        if made < asked * (1.0 - Self::SHORT) {
            faults.push(format!("only {made:.0} a second were made"));
        }
        Self { asked, made, faults }
    }

    /// Whether the rate was kept with nothing amiss.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.faults.is_empty()
    }
}

/// The highest rate that is clean, to three percent: doubling from `from`, then bisection. A rate that fails has a second
/// chance, since others may have had the machine.
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

/// Processor time of this thread so far, in seconds.
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
        // One that failed because of others.
        let mut count = 0;
        let found = highest(1_000.0, |rate| {
            count += 1;
            Probe::new(rate, if count % 2 == 1 { 0.0 } else { rate.min(5_000.0) }, Vec::new())
        });
        assert!(found.expect("one is clean").asked > 4_800.0);
    }
}
