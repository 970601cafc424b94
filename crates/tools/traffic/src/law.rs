//! Laws (probability distributions) of random times: pauses, ring and hold times, service times, gaps between
//! arrivals.
//!
//! The text form is a constant time (`250ms`) or a name with parameters: `exp(mean=3s)`, `lognormal(mean=300s,
//! sigma=1)`. The names are those of `rand_distr`, plus two from telephony: Erlang and hyper-exponential. Negative
//! samples become zero.

mod time;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::Xoshiro256PlusPlus;
use rand_distr as d;
use rand_distr::Distribution as _;
pub use time::parse_time;
use time::parse_value;
pub(crate) use time::{faster, time_of};

/// Random number generator of a run. It is the same in every version, so that seeds keep their meaning.
pub type Rng = Xoshiro256PlusPlus;

/// A probability distribution, with its text.
#[derive(Clone, Debug)]
pub struct Law {
    form: Form,
    text: Arc<str>,
    mean: Option<f64>,
    /// Factor for every sample.
    scale: f64,
}

#[derive(Clone, Debug)]
enum Form {
    Constant(f64),
    Uniform(d::Uniform<f64>),
    Exp(d::Exp<f64>),
    Normal(d::Normal<f64>),
    LogNormal(d::LogNormal<f64>),
    Gamma(d::Gamma<f64>),
    Weibull(d::Weibull<f64>),
    Pareto(d::Pareto<f64>),
    HyperExp(f64, d::Exp<f64>, d::Exp<f64>),
    Triangular(d::Triangular<f64>),
    Pert(d::Pert<f64>),
    InverseGaussian(d::InverseGaussian<f64>),
    SkewNormal(d::SkewNormal<f64>),
    Gumbel(d::Gumbel<f64>),
    Frechet(d::Frechet<f64>),
    Cauchy(d::Cauchy<f64>),
    Beta(f64, d::Beta<f64>),
    ChiSquared(f64, d::ChiSquared<f64>),
    StudentT(f64, d::StudentT<f64>),
    FisherF(f64, d::FisherF<f64>),
    Poisson(f64, d::Poisson<f64>),
    Geometric(f64, d::Geometric),
    Binomial(f64, d::Binomial),
    Zipf(f64, d::Zipf<f64>),
    Zeta(f64, d::Zeta<f64>),
}

/// Why a text is not a law; the text says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LawError(pub String);

impl fmt::Display for LawError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for LawError {}

/// Number of samples that [`Law::longest`] draws.
const LONGEST_OF: usize = 10_000;

/// The names and parameters, for error messages and `--help`.
pub const LAWS: &str = "250ms, constant(250ms), uniform(min=,max=), exp(mean=), normal(mean=,sd=), lognormal(mean=|median=,sigma=), \
    gamma(shape=,mean=), erlang(k=,mean=), weibull(shape=,mean=), pareto(shape=,mean=), hyperexp(p=,mean1=,mean2=), \
    triangular(min=,max=,mode=), pert(min=,max=,mode=), inversegaussian(mean=,shape=), skewnormal(location=,scale=,shape=), \
    gumbel(location=,scale=), frechet(location=,scale=,shape=), cauchy(median=,scale=), and with unit=: beta(alpha=,beta=), \
    chisquared(k=), studentt(k=), fisherf(m=,n=), poisson(mean=), geometric(p=), binomial(n=,p=), zipf(n=,s=), zeta(s=)";

impl Law {
    /// Parses a law.
    ///
    /// # Errors
    /// Says what is wrong, and lists the laws.
    pub fn parse(text: &str) -> Result<Self, LawError> {
        Self::parse_with_mean(text, None)
    }

    /// Does the same as [`parse`](Self::parse), with a default for a missing mean: `mean`, in seconds.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_with_mean(text: &str, mean: Option<f64>) -> Result<Self, LawError> {
        let text = text.trim();
        let (name, arguments) = match text.split_once('(') {
            None if text.starts_with(|c: char| c.is_ascii_digit() || c == '.') => ("constant", text),
            None => (text, ""),
            Some((name, rest)) => {
                let inner =
                    rest.strip_suffix(')').ok_or_else(|| LawError(format!("'{text}' has no closing bracket")))?;
                (name.trim(), inner)
            }
        };
        let mut arguments = Arguments::read(text, arguments, mean)?;
        let (form, mean) = build(&name.to_ascii_lowercase().replace(['-', '_'], ""), &mut arguments)?;
        arguments.finish()?;
        Ok(Self { form, text: text.into(), mean, scale: 1.0 })
    }

    /// Creates a law that always returns `time`.
    #[must_use]
    pub fn constant(time: Duration) -> Self {
        let seconds = time.as_secs_f64();
        Self { form: Form::Constant(seconds), text: format!("{time:?}").into(), mean: Some(seconds), scale: 1.0 }
    }

    /// Creates an exponential law with `mean`.
    #[must_use]
    pub fn exponential(mean: Duration) -> Self {
        let seconds = mean.as_secs_f64();
        let form = d::Exp::new(1.0 / seconds).map_or(Form::Constant(seconds), Form::Exp);
        Self { form, text: format!("exp(mean={mean:?})").into(), mean: Some(seconds), scale: 1.0 }
    }

    /// Returns the law with all times divided by `times`.
    #[must_use]
    pub fn faster(self, times: f64) -> Self {
        if (times - 1.0).abs() < f64::EPSILON {
            return self;
        }
        let text = format!("{} / {times}", self.text).into();
        Self { form: self.form, text, mean: self.mean.map(|mean| mean / times), scale: self.scale / times }
    }

    /// Returns the mean in seconds, if it exists and is known.
    #[must_use]
    pub const fn mean(&self) -> Option<f64> {
        self.mean
    }

    /// Draws a sample in seconds, at least zero.
    pub fn seconds(&self, rng: &mut Rng) -> f64 {
        self.form.value(rng).max(0.0) * self.scale
    }

    /// Returns a time that samples hardly ever exceed, as a limit for waits. It is the longest of 10,000 samples,
    /// with a margin if the law is not constant.
    #[must_use]
    pub fn longest(&self) -> Duration {
        let mut rng = Rng::seed_from_u64(1);
        let longest = (0..LONGEST_OF).map(|_| self.sample(&mut rng)).max().unwrap_or_default();
        match self.form {
            Form::Constant(_) => longest,
            // The samples may have missed the bound itself.
            Form::Uniform(_) | Form::Triangular(_) | Form::Pert(_) | Form::Beta(..) => longest.mul_f64(1.1),
            _ => longest.saturating_mul(2),
        }
    }

    /// Draws a sample.
    pub fn sample(&self, rng: &mut Rng) -> Duration {
        time_of(self.seconds(rng))
    }
}

impl fmt::Display for Law {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::str::FromStr for Law {
    type Err = LawError;

    fn from_str(text: &str) -> Result<Self, LawError> {
        Self::parse(text)
    }
}

impl Form {
    #[expect(clippy::cast_precision_loss, reason = "counts, far below 2^52")]
    fn value(&self, rng: &mut Rng) -> f64 {
        match self {
            Self::Constant(seconds) => *seconds,
            Self::Uniform(law) => law.sample(rng),
            Self::Exp(law) => law.sample(rng),
            Self::Normal(law) => law.sample(rng),
            Self::LogNormal(law) => law.sample(rng),
            Self::Gamma(law) => law.sample(rng),
            Self::Weibull(law) => law.sample(rng),
            Self::Pareto(law) => law.sample(rng),
            Self::HyperExp(p, first, second) => {
                let unit: f64 = d::StandardUniform.sample(rng);
                if unit < *p { first.sample(rng) } else { second.sample(rng) }
            }
            Self::Triangular(law) => law.sample(rng),
            Self::Pert(law) => law.sample(rng),
            Self::InverseGaussian(law) => law.sample(rng),
            Self::SkewNormal(law) => law.sample(rng),
            Self::Gumbel(law) => law.sample(rng),
            Self::Frechet(law) => law.sample(rng),
            Self::Cauchy(law) => law.sample(rng),
            Self::Beta(unit, law) => law.sample(rng) * unit,
            Self::ChiSquared(unit, law) => law.sample(rng) * unit,
            Self::StudentT(unit, law) => law.sample(rng) * unit,
            Self::FisherF(unit, law) => law.sample(rng) * unit,
            Self::Poisson(unit, law) => law.sample(rng) * unit,
            Self::Geometric(unit, law) => law.sample(rng) as f64 * unit,
            Self::Binomial(unit, law) => law.sample(rng) as f64 * unit,
            Self::Zipf(unit, law) => law.sample(rng) * unit,
            Self::Zeta(unit, law) => law.sample(rng) * unit,
        }
    }
}

type Built = (Form, Option<f64>);

fn build(name: &str, a: &mut Arguments<'_>) -> Result<Built, LawError> {
    match name {
        "constant" | "fixed" | "deterministic" => {
            a.take(&["value", ""], true).map(|value| (Form::Constant(value), Some(value)))
        }
        "uniform" => {
            let (min, max) = (a.take(&["min"], true)?, a.take(&["max"], true)?);
            Ok((a.made(d::Uniform::new_inclusive(min, max).map(Form::Uniform))?, Some(f64::midpoint(min, max))))
        }
        "exp" | "exponential" => {
            let mean = a.mean()?;
            Ok((a.made(d::Exp::new(1.0 / mean).map(Form::Exp))?, Some(mean)))
        }
        "normal" => {
            let (mean, sd) = (a.mean()?, a.take(&["sd", "stdev"], true)?);
            Ok((a.made(d::Normal::new(mean, sd).map(Form::Normal))?, Some(mean)))
        }
        "lognormal" => log_normal(a),
        "gamma" => {
            let shape = a.take(&["shape", "k"], false)?;
            gamma(a, shape)
        }
        "erlang" => {
            let k = a.take(&["k", "shape"], false)?;
            gamma(a, k.round())
        }
        "weibull" => {
            let shape = a.take(&["shape", "k"], false)?;
            let scale = match a.optional(&["scale", "lambda"], true)? {
                Some(scale) => scale,
                None => a.mean()? / gamma_function(1.0 + 1.0 / shape),
            };
            let mean = scale * gamma_function(1.0 + 1.0 / shape);
            Ok((a.made(d::Weibull::new(scale, shape).map(Form::Weibull))?, Some(mean)))
        }
        "pareto" => {
            let shape = a.take(&["shape", "k"], false)?;
            let scale = match a.optional(&["scale", "min"], true)? {
                Some(scale) => scale,
                None if shape > 1.0 => a.mean()? * (shape - 1.0) / shape,
                None => return Err(a.wrong("a Pareto distribution has a mean only if shape is above 1; give scale=")),
            };
            let mean = (shape > 1.0).then(|| scale * shape / (shape - 1.0));
            Ok((a.made(d::Pareto::new(scale, shape).map(Form::Pareto))?, mean))
        }
        "hyperexp" | "hyperexponential" => {
            let (p, first, second) = (a.take(&["p"], false)?, a.take(&["mean1"], true)?, a.take(&["mean2"], true)?);
            let form = Form::HyperExp(p, a.made(d::Exp::new(1.0 / first))?, a.made(d::Exp::new(1.0 / second))?);
            Ok((form, Some(p * first + (1.0 - p) * second)))
        }
        _ => build_rare(name, a),
    }
}

fn build_rare(name: &str, a: &mut Arguments<'_>) -> Result<Built, LawError> {
    match name {
        "triangular" | "pert" => {
            let (min, max, mode) = (a.take(&["min"], true)?, a.take(&["max"], true)?, a.take(&["mode"], true)?);
            if name == "pert" {
                let form = a.made(d::Pert::new(min, max).with_mode(mode).map(Form::Pert))?;
                return Ok((form, Some((min + max + 4.0 * mode) / 6.0)));
            }
            let form = a.made(d::Triangular::new(min, max, mode).map(Form::Triangular))?;
            Ok((form, Some((min + max + mode) / 3.0)))
        }
        "inversegaussian" | "wald" => {
            let (mean, shape) = (a.mean()?, a.take(&["shape"], true)?);
            Ok((a.made(d::InverseGaussian::new(mean, shape).map(Form::InverseGaussian))?, Some(mean)))
        }
        "skewnormal" => {
            let (at, scale) = (a.take(&["location"], true)?, a.take(&["scale"], true)?);
            let shape = a.take(&["shape"], false)?;
            Ok((a.made(d::SkewNormal::new(at, scale, shape).map(Form::SkewNormal))?, None))
        }
        "gumbel" => {
            let (at, scale) = (a.take(&["location"], true)?, a.take(&["scale"], true)?);
            Ok((a.made(d::Gumbel::new(at, scale).map(Form::Gumbel))?, Some(at + 0.577_215_664_901_532_9 * scale)))
        }
        "frechet" => {
            let (at, scale) = (a.take(&["location"], true)?, a.take(&["scale"], true)?);
            let shape = a.take(&["shape"], false)?;
            Ok((a.made(d::Frechet::new(at, scale, shape).map(Form::Frechet))?, None))
        }
        "cauchy" => {
            let (median, scale) = (a.take(&["median"], true)?, a.take(&["scale"], true)?);
            Ok((a.made(d::Cauchy::new(median, scale).map(Form::Cauchy))?, None))
        }
        _ => build_unitless(name, a),
    }
}

/// Builds laws of plain numbers, which `unit` turns into times.
fn build_unitless(name: &str, a: &mut Arguments<'_>) -> Result<Built, LawError> {
    if !["beta", "chisquared", "studentt", "fisherf", "poisson", "geometric", "binomial", "zipf", "zeta"]
        .contains(&name)
    {
        return Err(a.wrong("there is no distribution of this name"));
    }
    let unit = a.unit()?;
    let mut number = |name: &'static str| a.take(&[name], false);
    let (form, mean) = match name {
        "beta" => {
            let (alpha, beta) = (number("alpha")?, number("beta")?);
            (a.made(d::Beta::new(alpha, beta).map(|law| Form::Beta(unit, law)))?, Some(alpha / (alpha + beta)))
        }
        "chisquared" => {
            let k = number("k")?;
            (a.made(d::ChiSquared::new(k).map(|law| Form::ChiSquared(unit, law)))?, Some(k))
        }
        "studentt" => {
            let k = number("k")?;
            (a.made(d::StudentT::new(k).map(|law| Form::StudentT(unit, law)))?, None)
        }
        "fisherf" => {
            let (m, n) = (number("m")?, number("n")?);
            (a.made(d::FisherF::new(m, n).map(|law| Form::FisherF(unit, law)))?, None)
        }
        "poisson" => {
            let mean = number("mean")?;
            (a.made(d::Poisson::new(mean).map(|law| Form::Poisson(unit, law)))?, Some(mean))
        }
        "geometric" => {
            let p = number("p")?;
            (a.made(d::Geometric::new(p).map(|law| Form::Geometric(unit, law)))?, Some((1.0 - p) / p))
        }
        "binomial" => {
            let (n, p) = (number("n")?, number("p")?);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count; it saturates")]
            let law = d::Binomial::new(n as u64, p);
            (a.made(law.map(|law| Form::Binomial(unit, law)))?, Some(n * p))
        }
        "zipf" => {
            let (n, s) = (number("n")?, number("s")?);
            (a.made(d::Zipf::new(n, s).map(|law| Form::Zipf(unit, law)))?, None)
        }
        _ => {
            let s = number("s")?;
            (a.made(d::Zeta::new(s).map(|law| Form::Zeta(unit, law)))?, None)
        }
    };
    Ok((form, mean.map(|mean| mean * unit)))
}

fn log_normal(a: &mut Arguments<'_>) -> Result<Built, LawError> {
    let sigma = a.take(&["sigma"], false)?;
    let mu = match a.optional(&["median"], true)? {
        Some(median) => median.ln(),
        None => a.mean()?.ln() - sigma * sigma / 2.0,
    };
    Ok((a.made(d::LogNormal::new(mu, sigma).map(Form::LogNormal))?, Some((mu + sigma * sigma / 2.0).exp())))
}

fn gamma(a: &mut Arguments<'_>, shape: f64) -> Result<Built, LawError> {
    let scale = match a.optional(&["scale", "theta"], true)? {
        Some(scale) => scale,
        None => a.mean()? / shape,
    };
    Ok((a.made(d::Gamma::new(shape, scale).map(Form::Gamma))?, Some(shape * scale)))
}

/// Returns Γ(x) for x > 0.5, with the Lanczos approximation.
fn gamma_function(x: f64) -> f64 {
    const G: [f64; 9] = [
        0.999_999_999_999_809_9,
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    let x = x - 1.0;
    let t = x + 7.5;
    let sum = G.iter().skip(1).zip(1..).fold(G[0], |sum, (g, i)| sum + g / (x + f64::from(i)));
    (2.0 * std::f64::consts::PI).sqrt() * t.powf(x + 0.5) * (-t).exp() * sum
}

/// Returns the form of the law that a text names, if there is such a law.
pub(crate) fn form_of(text: &str) -> Option<&'static str> {
    let name = text.split_once('(').map_or(text, |(name, _)| name).trim().to_ascii_lowercase();
    let name = if name.starts_with(|c: char| c.is_ascii_digit() || c == '.') { "constant" } else { &name };
    let begins = |at: &usize| *at == 0 || LAWS.as_bytes().get(*at - 1) == Some(&b' ');
    let found = LAWS.match_indices(&format!("{name}(")).map(|(at, _)| at).find(begins)?;
    let form = LAWS.get(found..)?;
    form.get(..=form.find(')')?)
}

/// Arguments `name=value, …`, each used once.
struct Arguments<'a> {
    law: &'a str,
    list: Vec<(&'a str, f64, bool)>,
    unit: Option<f64>,
    mean: Option<f64>,
}

impl<'a> Arguments<'a> {
    fn read(law: &'a str, text: &'a str, mean: Option<f64>) -> Result<Self, LawError> {
        let mut this = Self { law, list: Vec::new(), unit: None, mean };
        for argument in text.split(',').map(str::trim).filter(|argument| !argument.is_empty()) {
            let (name, value) =
                argument.split_once('=').map_or(("", argument), |(name, value)| (name.trim(), value.trim()));
            if name == "unit" {
                let unit = parse_value(&format!("1{value}")).filter(|(_, is_time)| *is_time);
                this.unit = Some(unit.ok_or_else(|| this.wrong("unit is one of ns, us, ms, s, m, h"))?.0);
                continue;
            }
            let (value, is_time) =
                parse_value(value).ok_or_else(|| this.wrong(&format!("'{argument}' has no valid number")))?;
            this.list.push((name, value, is_time));
        }
        Ok(this)
    }

    fn wrong(&self, what: &str) -> LawError {
        match form_of(self.law) {
            Some(form) => LawError(format!("'{}': {what}. Write it as {form}", self.law)),
            None => LawError(format!("'{}': {what}. Distributions are: {LAWS}", self.law)),
        }
    }

    fn made<T, E: fmt::Display>(&self, result: Result<T, E>) -> Result<T, LawError> {
        result.map_err(|error| self.wrong(&error.to_string()))
    }

    fn optional(&mut self, names: &[&str], is_time: bool) -> Result<Option<f64>, LawError> {
        let Some(at) = self.list.iter().position(|(name, ..)| names.contains(name)) else { return Ok(None) };
        let (name, value, has_unit) = self.list.swap_remove(at);
        if is_time && !has_unit && value != 0.0 && self.unit.is_none() {
            let given = if name.is_empty() { value.to_string() } else { format!("{name}={value}") };
            return Err(self.wrong(&format!("{given} needs a unit, such as {value}s or {value}ms")));
        }
        if !is_time && has_unit {
            return Err(self.wrong(&format!("{name} is a number and has no unit")));
        }
        let scale = if has_unit || !is_time { 1.0 } else { self.unit.unwrap_or(1.0) };
        Ok(Some(value * scale))
    }

    fn take(&mut self, names: &[&str], is_time: bool) -> Result<f64, LawError> {
        let value = self.optional(names, is_time)?;
        value.ok_or_else(|| self.wrong(&format!("{}= is missing", names.first().copied().unwrap_or_default())))
    }

    fn mean(&mut self) -> Result<f64, LawError> {
        if let Some(rate) = self.optional(&["rate"], false)? {
            return Ok(1.0 / rate);
        }
        let mean = match self.optional(&["mean"], true)? {
            Some(mean) => mean,
            None => self.mean.ok_or_else(|| self.wrong("mean= is missing"))?,
        };
        if mean > 0.0 { Ok(mean) } else { Err(self.wrong("the mean must be above zero")) }
    }

    fn unit(&mut self) -> Result<f64, LawError> {
        self.unit.ok_or_else(|| self.wrong("this distribution returns plain numbers; give their unit, such as unit=ms"))
    }

    fn finish(&self) -> Result<(), LawError> {
        match self.list.first() {
            None => Ok(()),
            Some((name, ..)) => Err(self.wrong(&format!("'{name}' is not a parameter of this distribution"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_law_error_shows_the_laws_own_form() {
        let said = |text: &str| Law::parse(text).expect_err(text).to_string();
        assert_eq!(said("3"), "'3': 3 needs a unit, such as 3s or 3ms. Write it as constant(250ms)");
        assert!(said("exp(mean=3)").ends_with("mean=3 needs a unit, such as 3s or 3ms. Write it as exp(mean=)"));
        assert!(said("normal(mean=1s)").ends_with("Write it as normal(mean=,sd=)"), "{}", said("normal(mean=1s)"));
        assert!(said("nromal(mean=1s)").contains("skewnormal(location="), "which there are");
    }

    #[test]
    fn few_samples_exceed_the_longest() {
        for text in
            ["3s", "uniform(min=1s,max=3s)", "exp(mean=3s)", "lognormal(mean=300s,sigma=1)", "pareto(shape=3,mean=1s)"]
        {
            let law = Law::parse(text).expect(text);
            let (longest, mut rng) = (law.longest(), Rng::seed_from_u64(77));
            let longer = (0..100_000).filter(|_| law.sample(&mut rng) > longest).count();
            assert!(longer <= 3, "{text}: {longer} samples are longer than {longest:?}");
        }
        assert_eq!(Law::parse("3s").expect("a law").longest(), Duration::from_secs(3));
    }

    #[test]
    fn every_law_has_its_stated_mean() {
        let laws = [
            "250ms",
            "constant(3s)",
            "uniform(min=1s,max=3s)",
            "exp(mean=3s)",
            "exp(rate=4)",
            "normal(mean=10s, sd=1s)",
            "lognormal(mean=300s, sigma=0.8)",
            "lognormal(median=2s, sigma=0.5)",
            "gamma(shape=0.5, mean=2s)",
            "gamma(shape=2, scale=2s)",
            "erlang(k=4, mean=2s)",
            "weibull(shape=1.5, mean=2s)",
            "pareto(shape=4, mean=1s)",
            "hyperexp(p=0.9, mean1=10ms, mean2=1s)",
            "triangular(min=0, max=3s, mode=1s)",
            "pert(min=0s, max=3s, mode=1s)",
            "inverse-gaussian(mean=1s, shape=3s)",
            "gumbel(location=5s, scale=1s)",
            "beta(alpha=2, beta=3, unit=s)",
            "chisquared(k=3, unit=ms)",
            "poisson(mean=12, unit=ms)",
            "geometric(p=0.25, unit=ms)",
            "binomial(n=10, p=0.5, unit=ms)",
        ];
        let mut rng = Rng::seed_from_u64(7);
        for text in laws {
            let law = Law::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            let expected = law.mean().unwrap_or_else(|| panic!("{text} has a mean"));
            let mean = (0..200_000).map(|_| law.seconds(&mut rng)).sum::<f64>() / 200_000.0;
            assert!((mean / expected - 1.0).abs() < 0.03, "{text}: {mean} for {expected}");
            assert_eq!(law.to_string(), text);
        }
        for text in [
            "skewnormal(location=1s,scale=1s,shape=2)",
            "frechet(location=0,scale=1s,shape=3)",
            "cauchy(median=1s,scale=1ms)",
            "studentt(k=3,unit=s)",
            "fisherf(m=3,n=4,unit=s)",
            "zipf(n=10,s=1.2,unit=ms)",
            "zeta(s=3,unit=ms)",
        ] {
            Law::parse(text).unwrap_or_else(|error| panic!("{text}: {error}")).sample(&mut rng);
        }
    }

    #[test]
    fn a_law_error_names_the_cause() {
        for (text, what) in [
            ("exp(mean=3)", "needs a unit"),
            ("exp()", "mean= is missing"),
            ("exp(mean=3s", "no closing bracket"),
            ("exp(mean=3s, shape=2)", "'shape' is not a parameter"),
            ("nonsense(mean=3s)", "no distribution of this name"),
            ("poisson(mean=3)", "unit=ms"),
            ("gamma(shape=2s, mean=1s)", "has no unit"),
            ("uniform(min=3s,max=1s)", "'uniform(min=3s,max=1s)'"),
        ] {
            let error = Law::parse(text).expect_err(text).to_string();
            assert!(error.contains(what), "{text}: {error}");
        }
        assert_eq!(Law::parse_with_mean("gamma(shape=2)", Some(0.5)).expect("a mean is given").mean(), Some(0.5));
    }
}
