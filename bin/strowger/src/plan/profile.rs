//! Profiles: measured costs of a server, from a file or built in.

use std::path::{Path, PathBuf};

use serde::Deserialize as _;
use serde_json::Value;
use strowger_plan::timing::PacketTiming;
use strowger_plan::{Beta, Explanation, PlanError, Profile, ServiceTime};

use crate::failure::Failure;

/// Names of the built-in profiles.
pub(super) const BUILT_IN: &str = "measured (this server's benchmarks) or goals (this server's performance goals)";

/// A profile with its source.
#[derive(Clone, Debug)]
pub(super) struct LoadedProfile {
    pub(super) profile: Profile,
    file: PathBuf,
}

/// Loads a profile: output of `plan fit`, the profile part of it, or a built-in name.
pub(super) fn load(file: &Path) -> Result<LoadedProfile, Failure> {
    let built_in = match file.to_str() {
        Some("measured") => Some(Profile::measured()),
        Some("goals") => Some(Profile::design_goals()),
        _ => None,
    };
    if let Some(profile) = built_in.filter(|_| !file.exists()) {
        return Ok(LoadedProfile { profile, file: file.to_path_buf() });
    }
    let wrong = |what: &dyn std::fmt::Display| {
        Failure::Usage(format!(
            "{}: {what}; give a profile written by plan fit (--output), or {BUILT_IN}",
            file.display()
        ))
    };
    let text = std::fs::read_to_string(file).map_err(|error| wrong(&error))?;
    let json: Value = serde_json::from_str(&text).map_err(|error| wrong(&format!("this is not JSON: {error}")))?;
    let inner = json.get("profile").unwrap_or(&json);
    let profile = Profile::deserialize(inner).map_err(|error| wrong(&format!("this is not a profile: {error}")))?;
    Ok(LoadedProfile { profile, file: file.to_path_buf() })
}

impl LoadedProfile {
    /// Describes the profile.
    pub(super) fn says(&self) -> Vec<String> {
        vec![format!("profile {} ({}): {}", self.profile.name, self.file.display(), self.profile.source)]
    }

    fn timing(&self) -> Result<&PacketTiming, PlanError> {
        self.profile.timing.as_ref().ok_or_else(|| PlanError::Contradiction {
            input: "the service time of a packet".into(),
            reason: format!("the profile {} does not have it", self.profile.name),
            remedy: "give --service, or fit a profile to measurements (plan fit)",
        })
    }

    pub(super) fn service_at(&self, packets_per_s: f64) -> Result<ServiceTime, PlanError> {
        self.timing()?.service_at(packets_per_s)
    }

    pub(super) fn explain_at(&self, packets_per_s: f64) -> Result<Explanation, PlanError> {
        self.timing()?.explain_at(packets_per_s)
    }

    pub(super) const fn beta(&self) -> Option<Beta> {
        self.profile.beta
    }
}
