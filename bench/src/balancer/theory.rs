//! Queueing theory beside the measurements. Calls assigned at random form independent single-server queues with
//! Poisson arrivals, whose mean waiting time the Pollaczek-Khinchine formula gives.

use super::contender::{Law, Layout, TargetSpeeds, service};

/// Returns the mean times of an INVITE and a BYE from the request to its 200, in milliseconds, at `load` (0 to 1) of
/// equal targets selected at random. The delay of the balancer and the network is not included.
#[must_use]
pub fn at_random(layout: Layout, load: f64) -> Option<(f64, f64)> {
    if layout.speeds != TargetSpeeds::Equal || load >= 1.0 {
        return None;
    }
    let (invite, bye) = service();
    // Half of the requests are INVITEs, half BYEs.
    let mean = f64::midpoint(invite, bye);
    let second = f64::midpoint(invite * invite, bye * bye) * if layout.law == Law::Exponential { 2.0 } else { 1.0 };
    let arrivals = load / mean;
    let waiting = arrivals * second / (2.0 * (1.0 - load));
    Some((1e3 * (waiting + invite), 1e3 * (waiting + bye)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_queue_takes_its_service_time_and_a_full_one_has_none() {
        let layout = Layout::equal(8);
        let (invite, bye) = at_random(layout, 1e-9).expect("it is stable");
        assert!((invite - 2.121).abs() < 0.001 && (bye - 1.212).abs() < 0.001, "{invite} {bye}");
        assert_eq!(at_random(layout, 1.0), None);
        // By hand: 480 per second, E[S²] = 5.968 ms².
        let (invite, _) = at_random(layout, 0.8).expect("it is stable");
        assert!((invite - (0.48 * 5.968 / 0.4 + 2.121)).abs() < 0.01, "{invite}");
    }
}
