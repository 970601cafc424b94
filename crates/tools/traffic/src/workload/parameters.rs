//! The parameters of a workload: named values with defaults, and whether its paper gives them.

use std::time::Duration;

use crate::law::{Law, faster, parse_time};
use crate::script::ScriptError;

/// Why there is no such workload; the text names the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadError(pub String);

impl std::fmt::Display for WorkloadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WorkloadError {}

impl From<ScriptError> for WorkloadError {
    fn from(error: ScriptError) -> Self {
        Self(error.to_string())
    }
}

/// A parameter of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name, as `--set NAME=VALUE` has it.
    pub name: &'static str,
    /// Its value where nobody sets it.
    pub default: &'static str,
    /// What it means, in a few words.
    pub about: &'static str,
    /// The default is ours, because the workload's paper does not give it: reports declare it.
    pub is_ours: bool,
}

impl Parameter {
    /// A parameter whose default is the paper's.
    #[must_use]
    pub const fn of_paper(name: &'static str, default: &'static str, about: &'static str) -> Self {
        Self { name, default, about, is_ours: false }
    }

    /// A parameter whose default the paper does not give.
    #[must_use]
    pub const fn ours(name: &'static str, default: &'static str, about: &'static str) -> Self {
        Self { name, default, about, is_ours: true }
    }
}

/// The values of a workload's parameters, and how much faster than the model time runs.
#[derive(Clone, Debug)]
pub struct Parameters {
    known: &'static [Parameter],
    set: Vec<(String, String)>,
    speed: f64,
}

impl Parameters {
    /// The defaults of `known`.
    #[must_use]
    pub const fn new(known: &'static [Parameter]) -> Self {
        Self { known, set: Vec::new(), speed: 1.0 }
    }

    /// Sets one.
    ///
    /// # Errors
    /// Where there is no such parameter: which there are.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), WorkloadError> {
        if !self.has(name) {
            let names: Vec<_> = self.known.iter().map(|parameter| parameter.name).collect();
            let there =
                if names.is_empty() { "it has none".to_owned() } else { format!("it has {}", names.join(", ")) };
            return Err(WorkloadError(format!("the workload has no parameter '{name}'; {there}")));
        }
        self.set.retain(|(other, _)| other != name);
        self.set.push((name.to_owned(), value.trim().to_owned()));
        Ok(())
    }

    /// Whether there is such a parameter.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.known.iter().any(|parameter| parameter.name == name)
    }

    /// Lets the model's time run so many times faster.
    pub const fn set_speed(&mut self, speed: f64) {
        self.speed = speed;
    }

    /// How many times faster than the model time runs.
    #[must_use]
    pub const fn speed(&self) -> f64 {
        self.speed
    }

    /// A value as it was written.
    ///
    /// # Errors
    /// Where the workload has no such parameter.
    pub fn text(&self, name: &str) -> Result<&str, WorkloadError> {
        if let Some((_, value)) = self.set.iter().find(|(other, _)| other == name) {
            return Ok(value);
        }
        let known = self.known.iter().find(|parameter| parameter.name == name);
        known.map(|parameter| parameter.default).ok_or_else(|| WorkloadError(format!("there is no parameter '{name}'")))
    }

    /// A law of the model's times, in real time: compressed by the speed.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn law(&self, name: &str) -> Result<Law, WorkloadError> {
        let law = Law::parse(self.text(name)?).map_err(|error| wrong(name, &error))?;
        Ok(law.faster(self.speed))
    }

    /// As [`law`](Self::law), and `None` where the value is `none` or `0`.
    ///
    /// # Errors
    /// As [`law`](Self::law).
    pub fn optional_law(&self, name: &str) -> Result<Option<Law>, WorkloadError> {
        if matches!(self.text(name)?, "" | "none" | "0" | "0s" | "0ms") { Ok(None) } else { self.law(name).map(Some) }
    }

    /// A time as it was written, whatever the speed.
    ///
    /// # Errors
    /// How it is written.
    pub fn time(&self, name: &str) -> Result<Duration, WorkloadError> {
        let text = self.text(name)?;
        parse_time(text).ok_or_else(|| wrong(name, &format!("'{text}' is no time; write it as 500ms, 60s, 5m or 2h")))
    }

    /// A time of the model, in real time: compressed by the speed.
    ///
    /// # Errors
    /// How it is written.
    pub fn model_time(&self, name: &str) -> Result<Duration, WorkloadError> {
        Ok(faster(self.time(name)?, self.speed))
    }

    /// A number that is not negative.
    ///
    /// # Errors
    /// Where it is none.
    pub fn number(&self, name: &str) -> Result<f64, WorkloadError> {
        let text = self.text(name)?;
        let number: Option<f64> = text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
        number.ok_or_else(|| wrong(name, &format!("'{text}' is no number that is at least 0")))
    }

    /// A share, written as `0.05` or `5%`.
    ///
    /// # Errors
    /// Where it is none.
    pub fn share(&self, name: &str) -> Result<f64, WorkloadError> {
        let text = self.text(name)?;
        let share = match text.strip_suffix('%') {
            Some(percent) => percent.trim().parse().map(|percent: f64| percent / 100.0),
            None => text.parse(),
        };
        let share = share.ok().filter(|share| (0.0..=1.0).contains(share));
        share.ok_or_else(|| wrong(name, &format!("'{text}' is no share; write it as 0.05 or 5%")))
    }

    /// What a report says of the parameters: all whose default is ours, and all that were set.
    #[must_use]
    pub fn declared(&self) -> Vec<(String, String)> {
        let value = |parameter: &Parameter| {
            let set = self.set.iter().find(|(name, _)| name == parameter.name);
            match set {
                Some((name, value)) => Some((name.clone(), format!("{value} (set)"))),
                None if parameter.is_ours => Some((parameter.name.to_owned(), format!("{} (ours)", parameter.default))),
                None => None,
            }
        };
        self.known.iter().filter_map(value).collect()
    }
}

fn wrong(name: &str, what: &dyn std::fmt::Display) -> WorkloadError {
    WorkloadError(format!("{name}: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[Parameter] = &[
        Parameter::of_paper("hold", "lognormal(mean=300s,sigma=1)", "how long they talk"),
        Parameter::ours("lost", "5%", "a share"),
        Parameter::ours("ring", "none", "how long it rings"),
    ];

    #[test]
    fn values_are_read_and_said() {
        let mut parameters = Parameters::new(KNOWN);
        assert_eq!(parameters.share("lost"), Ok(0.05));
        assert!(parameters.optional_law("ring").expect("none").is_none());
        assert_eq!(
            parameters.declared(),
            [("lost".to_owned(), "5% (ours)".to_owned()), ("ring".to_owned(), "none (ours)".to_owned()),]
        );
        parameters.set("hold", " 60s").expect("known");
        parameters.set_speed(60.0);
        assert_eq!(parameters.law("hold").expect("a law").mean(), Some(1.0));
        assert_eq!(parameters.declared()[0], ("hold".to_owned(), "60s (set)".to_owned()));
    }

    #[test]
    fn what_is_wrong_names_the_remedy() {
        let mut parameters = Parameters::new(KNOWN);
        let error = parameters.set("holt", "1s").expect_err("unknown").to_string();
        assert!(error.contains("hold, lost, ring"), "{error}");
        parameters.set("lost", "five").expect("known");
        assert!(parameters.share("lost").expect_err("no number").to_string().contains("lost: 'five'"));
        parameters.set("hold", "exp(mean=3)").expect("known");
        assert!(parameters.law("hold").expect_err("no unit").to_string().contains("needs a unit"));
    }
}
