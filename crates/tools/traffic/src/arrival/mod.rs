//! Times of arrivals, as an open loop: calls begin by the law, independent of answers.
//!
//! All threads of a run generate the same sequence of times, which the seed determines, and each takes every n-th.
//! Their union follows the law exactly, whatever its kind, and the number of threads changes no time. Generating
//! costs some ten nanoseconds per call and thread.

mod mmpp;
mod trace;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng as _;

use crate::law::{Law, LawError, Rng, form_of, time_of};
pub use mmpp::Mmpp;

/// Law of arrivals.
#[derive(Clone, Debug)]
pub struct Arrivals {
    form: Form,
    text: Arc<str>,
}

#[derive(Clone, Debug)]
enum Form {
    /// Independent gaps with this law.
    Gaps(Law),
    /// Bursts.
    Mmpp(Mmpp),
    /// Gaps from a file, in nanoseconds; the run ends with the last one.
    Recorded(Arc<[u64]>),
    /// A rate that changes linearly from one value to another and then stays; evenly spaced or Poisson.
    Ramp { from: f64, to: f64, over: f64, is_poisson: bool },
}

/// Names of the laws for error messages and `--help`.
pub const ARRIVALS: &str = "poisson, uniform (evenly spaced), mmpp(rates=500;2000,stay=1s;200ms), ramp(from=100,to=2000,over=60s[,poisson]), \
    file(PATH,unit=us), trace(FILE.pcap,method=INVITE,speed=2), or a distribution of the gaps, such as gamma(shape=0.5), with mean 1/rate";

impl Arrivals {
    /// Parses a law of arrivals, with `rate` calls per second if the law gives no rate of its own.
    ///
    /// # Errors
    /// What is wrong, and which laws exist.
    pub fn parse(text: &str, rate: f64) -> Result<Self, LawError> {
        let text = text.trim();
        let (name, inner) = text.split_once('(').map_or((text, ""), |(name, rest)| (name, rest.trim_end_matches(')')));
        let has_rate = rate > 0.0 && rate.is_finite();
        if !has_rate && !matches!(name, "mmpp" | "ramp" | "file" | "trace") {
            return Err(LawError("the rate must be above zero; give --rate".to_owned()));
        }
        let mean = 1.0 / rate;
        let form = match name {
            "poisson" => Form::Gaps(Law::exponential(time_of(mean))),
            "uniform" | "deterministic" | "constant" if inner.is_empty() => Form::Gaps(Law::constant(time_of(mean))),
            "mmpp" => Form::Mmpp(Mmpp::parse(inner)?),
            "ramp" => ramp(inner)?,
            "trace" => Form::Recorded(trace::parse(inner)?),
            "file" => {
                let (path, unit) = inner.split_once(',').unwrap_or((inner, "unit=us"));
                let unit = unit.trim().strip_prefix("unit=").unwrap_or_default();
                let text = std::fs::read_to_string(Path::new(path))
                    .map_err(|error| LawError(format!("{path} cannot be read: {error}")))?;
                Form::Recorded(recorded(path, &text, unit)?)
            }
            _ => Form::Gaps(Law::parse_with_mean(text, Some(mean)).map_err(|error| match form_of(name) {
                Some(_) => error,
                None => LawError(format!("there are no arrivals '{name}'. Arrivals are: {ARRIVALS}")),
            })?),
        };
        Ok(Self { form, text: text.into() })
    }

    /// Creates Poisson arrivals with `rate` per second.
    #[must_use]
    pub fn poisson(rate: f64) -> Self {
        Self { form: Form::Gaps(Law::exponential(time_of(1.0 / rate))), text: "poisson".into() }
    }

    /// Creates evenly spaced arrivals with `rate` per second.
    #[must_use]
    pub fn uniform(rate: f64) -> Self {
        Self { form: Form::Gaps(Law::constant(time_of(1.0 / rate))), text: "uniform".into() }
    }

    /// Creates arrivals from recorded gaps in nanoseconds.
    #[must_use]
    pub fn recorded(gaps: Vec<u64>) -> Self {
        Self { form: Form::Recorded(gaps.into()), text: "recorded".into() }
    }

    /// Returns the long-run rate of arrivals per second, if it is defined.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        match &self.form {
            Form::Gaps(law) => law.mean().map(|mean| 1.0 / mean),
            Form::Mmpp(mmpp) => Some(mmpp.rate()),
            Form::Recorded(gaps) => {
                let total: u64 = gaps.iter().sum();
                #[expect(clippy::cast_precision_loss, reason = "a rate")]
                (total > 0).then(|| gaps.len() as f64 * 1e9 / total as f64)
            }
            Form::Ramp { to, .. } => Some(*to),
        }
    }

    /// Returns the arrival times of thread `index` of `threads`, in nanoseconds from the beginning of the run.
    #[must_use]
    pub fn times(&self, seed: u64, index: usize, threads: usize) -> ArrivalTimes {
        ArrivalTimes {
            form: self.form.clone(),
            rng: Rng::seed_from_u64(seed),
            state: mmpp::State::default(),
            at: 0.0,
            number: 0,
            next_mine: index as u64,
            step: threads.max(1) as u64,
        }
    }
}

impl fmt::Display for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn ramp(inner: &str) -> Result<Form, LawError> {
    let wrong = || LawError("a ramp is ramp(from=RATE,to=RATE,over=TIME[,poisson])".to_owned());
    let (mut from, mut to, mut over, mut is_poisson) = (None, None, None, false);
    for argument in inner.split(',').map(str::trim) {
        match argument.split_once('=') {
            Some(("from", value)) => from = value.parse::<f64>().ok(),
            Some(("to", value)) => to = value.parse::<f64>().ok(),
            Some(("over", value)) => over = crate::law::parse_time(value),
            None if argument == "poisson" => is_poisson = true,
            _ => return Err(wrong()),
        }
    }
    match (from, to, over) {
        (Some(from), Some(to), Some(over)) if from >= 0.0 && to > 0.0 && !over.is_zero() => {
            Ok(Form::Ramp { from, to, over: over.as_secs_f64(), is_poisson })
        }
        _ => Err(wrong()),
    }
}

/// Parses the thesis's format: one number per line.
fn recorded(path: &str, text: &str, unit: &str) -> Result<Arc<[u64]>, LawError> {
    let unit = crate::law::parse_time(&format!("1{unit}"))
        .ok_or_else(|| LawError(format!("{path}: the unit is one of ns, us, ms, s, as in file({path},unit=us)")))?;
    #[expect(clippy::cast_precision_loss, reason = "a unit of time")]
    let unit = unit.as_nanos() as f64;
    let lines = text.lines().enumerate().map(|(number, line)| (number + 1, line.trim()));
    let gaps: Result<Vec<_>, _> = lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(number, line)| match line.parse::<f64>() {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be a time")]
            Ok(gap) if gap >= 0.0 && gap.is_finite() => Ok((gap * unit).round() as u64),
            _ => Err(LawError(format!(
                "{path}, line {number}: '{line}' is not a time; each line is one number, not below zero"
            ))),
        })
        .collect();
    let gaps = gaps?;
    if gaps.is_empty() {
        return Err(LawError(format!("{path} has no numbers; it needs one inter-arrival time per line")));
    }
    Ok(gaps.into())
}

/// Iterator of arrival times, in order.
#[derive(Clone, Debug)]
pub struct ArrivalTimes {
    form: Form,
    rng: Rng,
    state: mmpp::State,
    at: f64,
    number: u64,
    next_mine: u64,
    step: u64,
}

impl ArrivalTimes {
    /// Advances to the next arrival time of all threads.
    fn advance(&mut self) -> Option<()> {
        let gap = match &self.form {
            Form::Gaps(law) => law.seconds(&mut self.rng) * 1e9,
            Form::Mmpp(mmpp) => mmpp.gap(&mut self.state, &mut self.rng) * 1e9,
            #[expect(clippy::cast_precision_loss, reason = "a gap of less than 2^52 ns, 52 days")]
            Form::Recorded(gaps) => gaps.get(usize::try_from(self.number).ok()?).copied()? as f64,
            Form::Ramp { from, to, over, is_poisson } => {
                let amount =
                    if *is_poisson { Law::exponential(Duration::from_secs(1)).seconds(&mut self.rng) } else { 1.0 };
                ramp_gap(*from, *to, *over, self.at / 1e9, amount) * 1e9
            }
        };
        self.at += gap;
        self.number += 1;
        Some(())
    }
}

/// Returns the time after `at` in which the integral of the rate grows by `amount`.
fn ramp_gap(from: f64, to: f64, over: f64, at: f64, amount: f64) -> f64 {
    if at >= over {
        return amount / to;
    }
    let slope = (to - from) / over;
    let now = from + slope * at;
    // now·t + slope·t²/2 = amount, solved in the form that is stable for small slopes.
    let root = now * now + 2.0 * slope * amount;
    if root >= 0.0 {
        let gap = 2.0 * amount / (now + root.sqrt());
        if at + gap <= over {
            return gap;
        }
    }
    let left = over - at;
    let done = now * left + slope * left * left / 2.0;
    left + (amount - done).max(0.0) / to
}

impl Iterator for ArrivalTimes {
    type Item = u64;

    /// Returns the next arrival time of this thread, in nanoseconds; `None` after the end of a recording.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "nanoseconds of a run; it saturates")]
    fn next(&mut self) -> Option<u64> {
        while self.number <= self.next_mine {
            self.advance()?;
        }
        self.next_mine += self.step;
        Some(self.at as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(arrivals: &Arrivals, seed: u64, count: usize) -> Vec<u64> {
        arrivals.times(seed, 0, 1).take(count).collect()
    }

    fn gaps(moments: &[u64]) -> Vec<f64> {
        moments.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1e9).collect()
    }

    /// Returns the Kolmogorov-Smirnov statistic against the exponential law.
    fn ks(mut gaps: Vec<f64>, rate: f64) -> f64 {
        gaps.sort_by(f64::total_cmp);
        let n = gaps.len() as f64;
        let distances = gaps.iter().enumerate().map(|(i, gap)| {
            let law = 1.0 - (-rate * gap).exp();
            (law - i as f64 / n).abs().max(((i + 1) as f64 / n - law).abs())
        });
        distances.fold(0.0, f64::max)
    }

    #[test]
    fn poisson_passes_kolmogorov_smirnov() {
        let passed = (0..100).filter(|seed| {
            let gaps = gaps(&all(&Arrivals::poisson(1_000.0), *seed, 2_001));
            // Critical value at the 1 % level.
            ks(gaps, 1_000.0) < 1.628 / 2_000_f64.sqrt()
        });
        assert!(passed.count() >= 95);
        let even = gaps(&all(&Arrivals::uniform(1_000.0), 1, 2_001));
        assert!(ks(even, 1_000.0) > 0.3, "the test can fail");
    }

    #[test]
    fn poisson_counts_have_variance_equal_to_mean() {
        let moments = all(&Arrivals::poisson(20_000.0), 3, 2_000_000);
        let mut counts = vec![0_f64; 9_900];
        for at in &moments {
            if let Some(count) = counts.get_mut((at / 10_000_000) as usize) {
                *count += 1.0;
            }
        }
        let mean = counts.iter().sum::<f64>() / counts.len() as f64;
        let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / counts.len() as f64;
        assert!((mean - 200.0).abs() < 1.0, "{mean}");
        assert!((variance / mean - 1.0).abs() < 0.05, "{variance} for {mean}");
    }

    #[test]
    fn threads_share_one_sequence() {
        for text in [
            "poisson",
            "uniform",
            "gamma(shape=0.3)",
            "mmpp(rates=500;5000,stay=100ms;10ms)",
            "ramp(from=1,to=900,over=1s)",
        ] {
            let arrivals = Arrivals::parse(text, 1_000.0).expect(text);
            let whole = all(&arrivals, 9, 999);
            let mut parts: Vec<_> = (0..3).flat_map(|i| arrivals.times(9, i, 3).take(333)).collect();
            parts.sort_unstable();
            assert_eq!(whole, parts, "{text}");
        }
    }

    #[test]
    fn file_gaps_are_replayed() {
        let gaps = recorded("f", "# gaps\n100\n0\n250.5\n", "us").expect("valid");
        let arrivals = Arrivals { form: Form::Recorded(gaps), text: "file".into() };
        assert_eq!(all(&arrivals, 0, 10), [100_000, 100_000, 350_500]);
        for (text, unit, what) in
            [("1\nx\n", "us", "line 2"), ("\n", "us", "no numbers"), ("1", "", "unit"), ("-1", "s", "line 1")]
        {
            let error = recorded("f", text, unit).expect_err(what).to_string();
            assert!(error.contains(what), "{error}");
        }
    }

    #[test]
    fn a_ramp_has_the_area_of_its_trapezoid() {
        let arrivals = Arrivals::parse("ramp(from=0,to=1000,over=10s)", 0.0).expect("valid");
        let moments = all(&arrivals, 0, 15_000);
        let until = |seconds: u64| moments.iter().filter(|at| **at <= seconds * 1_000_000_000).count();
        assert!(until(5).abs_diff(1_250) <= 2, "{}", until(5));
        assert!(until(10).abs_diff(5_000) <= 2, "{}", until(10));
        assert!(until(15).abs_diff(10_000) <= 2, "{}", until(15));
        let down = Arrivals::parse("ramp(from=1000,to=10,over=2s,poisson)", 0.0).expect("valid");
        let count = all(&down, 1, 1_200).iter().filter(|at| **at <= 2_000_000_000).count();
        assert!(count.abs_diff(1_010) < 150, "{count}");
    }

    #[test]
    fn tiny_rates_are_accepted() {
        let soon = 100 * 365 * 86_400 * 1_000_000_000;
        for rate in [f64::MIN_POSITIVE, 1e-300, 1e-12] {
            assert!(all(&Arrivals::uniform(rate), 1, 3)[0] >= soon);
            for text in ["poisson", "uniform", "gamma(shape=0.5)"] {
                let arrivals = Arrivals::parse(text, rate).expect(text);
                assert!(all(&arrivals, 1, 9).is_sorted(), "{text}");
            }
            assert!(Arrivals::poisson(rate).rate().is_some_and(|rate| rate < 1e-9));
        }
    }

    #[test]
    fn bad_laws_are_rejected() {
        for text in ["poissn", "ramp(from=1)", "mmpp(rates=1)", "file(/nowhere,unit=us)", "gamma()"] {
            Arrivals::parse(text, 100.0).expect_err(text);
        }
        assert!(Arrivals::parse("poisson", 0.0).expect_err("no rate").to_string().contains("--rate"));
    }
}
