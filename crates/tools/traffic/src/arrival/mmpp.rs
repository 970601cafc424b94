//! Bursts: a Markov-modulated Poisson process. It stays in each state for an exponential time, with that state's own
//! rate, and visits the states in cyclic order.

use rand_distr::{Distribution as _, Exp1};

use crate::law::{LawError, Rng, parse_time};

/// States: rate in arrivals per second, mean stay in seconds.
#[derive(Clone, Debug)]
pub struct Mmpp {
    states: Vec<(f64, f64)>,
}

/// Current state of the process.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct State {
    index: usize,
    left: f64,
    has_begun: bool,
}

impl Mmpp {
    /// Parses `rates=R1;R2;…,stay=T1;T2;…`.
    ///
    /// # Errors
    /// If a list is missing, or the lists differ in length.
    pub fn parse(inner: &str) -> Result<Self, LawError> {
        let wrong = || {
            LawError(
                "bursts are mmpp(rates=500;2000,stay=1s;200ms): the same number of stays as rates, at least two"
                    .to_owned(),
            )
        };
        let list = |name: &str| {
            let text = inner.split(',').find_map(|part| part.trim().strip_prefix(name)?.strip_prefix('='));
            text.map(|text| text.split(';').map(str::trim).collect::<Vec<_>>()).ok_or_else(wrong)
        };
        let (rates, stays) = (list("rates")?, list("stay")?);
        if rates.len() != stays.len() || rates.len() < 2 {
            return Err(wrong());
        }
        let states: Option<Vec<_>> = rates
            .iter()
            .zip(stays)
            .map(|(rate, stay)| {
                let rate: f64 = rate.parse().ok().filter(|rate: &f64| *rate >= 0.0 && rate.is_finite())?;
                Some((rate, parse_time(stay).filter(|stay| !stay.is_zero())?.as_secs_f64()))
            })
            .collect();
        let states = states.filter(|states| states.iter().any(|(rate, _)| *rate > 0.0)).ok_or_else(wrong)?;
        Ok(Self { states })
    }

    /// Returns the long-run rate.
    #[must_use]
    pub fn rate(&self) -> f64 {
        let arrivals: f64 = self.states.iter().map(|(rate, stay)| rate * stay).sum();
        arrivals / self.states.iter().map(|(_, stay)| stay).sum::<f64>()
    }

    /// Returns the time to the next arrival, in seconds.
    pub(super) fn gap(&self, state: &mut State, rng: &mut Rng) -> f64 {
        let unit = |rng: &mut Rng| -> f64 { Exp1.sample(rng) };
        let mut gap = 0.0;
        // Remaining expected arrivals until the next one; carries over from one state to the next.
        let mut amount = unit(rng);
        loop {
            let (rate, stay) = self.states.get(state.index).copied().unwrap_or((1.0, 1.0));
            if !state.has_begun {
                state.has_begun = true;
                state.left = unit(rng) * stay;
            }
            if rate * state.left >= amount {
                let wait = amount / rate;
                state.left -= wait;
                return gap + wait;
            }
            amount -= rate * state.left;
            gap += state.left;
            state.index = (state.index + 1) % self.states.len();
            state.has_begun = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng as _;

    #[test]
    fn bursts_have_the_mean_rate_and_more_variance_than_poisson() {
        let mmpp = Mmpp::parse("rates=100;4000, stay=90ms;10ms").expect("valid");
        assert!((mmpp.rate() - 490.0).abs() < 1e-9);
        let (mut state, mut rng, mut at) = (State::default(), Rng::seed_from_u64(2), 0.0);
        let mut counts = vec![0_f64; 10_000];
        while at < 1_000.0 {
            at += mmpp.gap(&mut state, &mut rng);
            if let Some(count) = counts.get_mut((at * 10.0) as usize) {
                *count += 1.0;
            }
        }
        let mean = counts.iter().sum::<f64>() / counts.len() as f64;
        let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / counts.len() as f64;
        assert!((mean - 49.0).abs() < 3.0, "{mean}");
        assert!(variance > 5.0 * mean, "{variance} for {mean}");
    }
}
