//! Parameters of a workload: named values with defaults, marked if the workload's paper does not give them.

use std::time::Duration;

use crate::law::{Law, faster, parse_time};
use crate::script::ScriptError;

/// Why a workload cannot be built; the text says what to do.
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
    /// Its name in `--set NAME=VALUE`.
    pub name: &'static str,
    /// Its default value.
    pub default: &'static str,
    /// A short description.
    pub about: &'static str,
    /// Whether the default is not from the workload's paper, so that reports must declare it.
    pub is_ours: bool,
}

impl Parameter {
    /// Creates a parameter with a default from the paper.
    #[must_use]
    pub const fn of_paper(name: &'static str, default: &'static str, about: &'static str) -> Self {
        Self { name, default, about, is_ours: false }
    }

    /// Creates a parameter whose default is not from the paper.
    #[must_use]
    pub const fn ours(name: &'static str, default: &'static str, about: &'static str) -> Self {
        Self { name, default, about, is_ours: true }
    }
}

/// Values of a workload's parameters, and the speed relative to the model's time.
#[derive(Clone, Debug)]
pub struct Parameters {
    known: &'static [Parameter],
    set: Vec<(String, String)>,
    speed: f64,
}

impl Parameters {
    /// Creates the default values of `known`.
    #[must_use]
    pub const fn new(known: &'static [Parameter]) -> Self {
        Self { known, set: Vec::new(), speed: 1.0 }
    }

    /// Sets a value.
    ///
    /// # Errors
    /// If there is no such parameter; lists those that exist.
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

    /// Returns whether the parameter exists.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.known.iter().any(|parameter| parameter.name == name)
    }

    /// Sets how many times faster than the model's time the run is.
    pub const fn set_speed(&mut self, speed: f64) {
        self.speed = speed;
    }

    /// Returns how many times faster than the model's time the run is.
    #[must_use]
    pub const fn speed(&self) -> f64 {
        self.speed
    }

    /// Returns a value as text.
    ///
    /// # Errors
    /// If the workload has no such parameter.
    pub fn text(&self, name: &str) -> Result<&str, WorkloadError> {
        if let Some((_, value)) = self.set.iter().find(|(other, _)| other == name) {
            return Ok(value);
        }
        let known = self.known.iter().find(|parameter| parameter.name == name);
        known.map(|parameter| parameter.default).ok_or_else(|| WorkloadError(format!("there is no parameter '{name}'")))
    }

    /// Returns a law of the model's times, divided by the speed.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn law(&self, name: &str) -> Result<Law, WorkloadError> {
        let law = Law::parse(self.text(name)?).map_err(|error| wrong(name, &error))?;
        Ok(law.faster(self.speed))
    }

    /// Does the same as [`law`](Self::law), but returns `None` for `none` and `0`.
    ///
    /// # Errors
    /// As [`law`](Self::law).
    pub fn optional_law(&self, name: &str) -> Result<Option<Law>, WorkloadError> {
        if matches!(self.text(name)?, "" | "none" | "0" | "0s" | "0ms") { Ok(None) } else { self.law(name).map(Some) }
    }

    /// Returns a time, not divided by the speed.
    ///
    /// # Errors
    /// Says how to write it.
    pub fn time(&self, name: &str) -> Result<Duration, WorkloadError> {
        let text = self.text(name)?;
        parse_time(text)
            .ok_or_else(|| wrong(name, &format!("'{text}' is not a time; write it as 500ms, 60s, 5m or 2h")))
    }

    /// Returns a time of the model, divided by the speed.
    ///
    /// # Errors
    /// Says how to write it.
    pub fn model_time(&self, name: &str) -> Result<Duration, WorkloadError> {
        Ok(faster(self.time(name)?, self.speed))
    }

    /// Returns a number that is not negative.
    ///
    /// # Errors
    /// If it is not such a number.
    pub fn number(&self, name: &str) -> Result<f64, WorkloadError> {
        let text = self.text(name)?;
        let number: Option<f64> = text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
        number.ok_or_else(|| wrong(name, &format!("'{text}' is not a number that is at least 0")))
    }

    /// Returns a share, written as `0.05` or `5%`.
    ///
    /// # Errors
    /// If it is not a share.
    pub fn share(&self, name: &str) -> Result<f64, WorkloadError> {
        let text = self.text(name)?;
        let share = match text.strip_suffix('%') {
            Some(percent) => percent.trim().parse().map(|percent: f64| percent / 100.0),
            None => text.parse(),
        };
        let share = share.ok().filter(|share| (0.0..=1.0).contains(share));
        share.ok_or_else(|| wrong(name, &format!("'{text}' is not a share; write it as 0.05 or 5%")))
    }

    /// Returns the parameters for a report: those whose default is not from the paper, and those that were set.
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
    fn values_parse_and_print() {
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
    fn errors_name_the_fix() {
        let mut parameters = Parameters::new(KNOWN);
        let error = parameters.set("holt", "1s").expect_err("unknown").to_string();
        assert!(error.contains("hold, lost, ring"), "{error}");
        parameters.set("lost", "five").expect("known");
        assert!(parameters.share("lost").expect_err("no number").to_string().contains("lost: 'five'"));
        parameters.set("hold", "exp(mean=3)").expect("known");
        assert!(parameters.law("hold").expect_err("no unit").to_string().contains("needs a unit"));
    }
}
