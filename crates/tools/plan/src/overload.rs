//! Goodput of a server under overload: rejecting a request costs work too.

use serde::Serialize;

use crate::error::{PlanError, not_negative, positive};
use crate::explain::{Explain, Explanation};
use crate::units;

/// Highest goodput of a server under overload.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Overload {
    /// x: offered load relative to capacity.
    pub load: f64,
    /// n: transmissions of a rejected request.
    pub transmissions: f64,
    /// Cost of rejecting one transmission, s.
    pub refuse_s: f64,
    /// Cost of serving a request, s.
    pub serve_s: f64,
    /// r = n·(cost of rejecting ÷ cost of serving).
    pub ratio: f64,
    /// Highest goodput relative to capacity.
    pub goodput: f64,
    /// Load relative to capacity from which goodput is 0; `None` if rejecting costs nothing.
    pub vanishes_at: Option<f64>,
}

/// Returns the highest goodput g at a load of x.
///
/// Up to its capacity the server serves everything. Above it, serving g and rejecting x − g uses the whole processor.
///
/// From g + (x − g)·r = 1 follows g = (1 − x·r)/(1 − r).
///
/// # Errors
/// A load, a cost of serving or a number of transmissions that is not above 0, and a cost of rejecting below 0.
pub fn overload(load: f64, refuse_s: f64, serve_s: f64, transmissions: f64) -> Result<Overload, PlanError> {
    let load = positive("load", load)?;
    let refuse_s = not_negative("cost of refusing", refuse_s)?;
    let serve_s = positive("cost of serving", serve_s)?;
    let transmissions = positive("transmissions", transmissions)?;
    let ratio = transmissions * refuse_s / serve_s;
    let goodput = match (load <= 1.0, ratio < 1.0) {
        (true, _) => load,
        (false, true) => ((1.0 - load * ratio) / (1.0 - ratio)).max(0.0),
        (false, false) => 0.0,
    };
    let vanishes_at = (ratio > 0.0).then(|| (1.0 / ratio).max(1.0));
    Ok(Overload { load, transmissions, refuse_s, serve_s, ratio, goodput, vanishes_at })
}

impl Explain for Overload {
    fn explain(&self) -> Explanation {
        let explanation = Explanation::new().step(
            ("r", "the cost of refusing relative to serving"),
            "n·(cost of refusing ÷ cost of serving)",
            format!(
                "{} · ({} ÷ {})",
                units::brief::number(self.transmissions),
                units::brief::time(self.refuse_s),
                units::brief::time(self.serve_s)
            ),
            units::brief::number(self.ratio),
            "balance of CPU time",
        );
        let (formula, numbers) = if self.load <= 1.0 {
            ("x, for x ≤ 1", units::brief::number(self.load))
        } else {
            let (x, r) = (units::brief::number(self.load), units::brief::number(self.ratio));
            ("(1 − x·r)/(1 − r), at least 0", format!("(1 − {x}·{r})/(1 − {r})"))
        };
        explanation.step(
            ("g", "throughput relative to the capacity"),
            formula,
            numbers,
            units::brief::number(self.goodput),
            "g + (x − g)·r = 1",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goodput(load: f64, refuse_us: f64) -> f64 {
        overload(load, refuse_us * 1e-6, 30e-6, 1.0).expect("numbers that can be").goodput
    }

    #[test]
    fn goodput_is_full_up_to_capacity_and_reduced_by_rejecting_beyond_it() {
        assert_eq!((goodput(0.5, 0.9), goodput(1.0, 0.9)), (0.5, 1.0));
        assert!((goodput(10.0, 0.9) - 0.7 / 0.97).abs() < 1e-12, "silent drops at ten times the capacity");
        assert_eq!(goodput(1_000.0, 0.0), 1.0, "who does not pay for refusing loses nothing");
    }

    #[test]
    fn no_goodput_if_rejecting_takes_all() {
        let found = overload(50.0, 0.9e-6, 30e-6, 1.0).expect("numbers that can be");
        assert_eq!(found.goodput, 0.0);
        assert!((found.vanishes_at.expect("a load") - 100.0 / 3.0).abs() < 1e-9);
        assert_eq!(goodput(100.0 / 3.0, 0.9), 0.0);
        // Each rejected request is sent seven times.
        assert_eq!(overload(5.0, 0.9e-6, 30e-6, 7.0).expect("numbers that can be").goodput, 0.0);
        // Rejecting costs more than serving.
        assert_eq!((goodput(1.0, 60.0), goodput(1.1, 60.0)), (1.0, 0.0));
    }

    #[test]
    fn invalid_numbers_are_rejected() {
        for (load, refuse, serve, times) in
            [(0.0, 1.0, 1.0, 1.0), (1.0, -1.0, 1.0, 1.0), (1.0, 1.0, 0.0, 1.0), (1.0, 1.0, 1.0, 0.0)]
        {
            assert!(overload(load, refuse, serve, times).is_err());
        }
    }
}
