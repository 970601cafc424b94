//! Results that one run saves for another, as a JSON file, and the conditions that both must share: results of
//! another program or machine cannot be in the same table.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::programs;

/// Conditions that the results depend on, besides the arguments of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conditions(BTreeMap<String, String>);

impl Conditions {
    /// Returns the conditions of this machine, its system and Kamailio, and the measured program.
    ///
    /// # Errors
    /// If the program cannot be read.
    pub fn of(program: &Path) -> Result<Self, String> {
        let bytes = fs::read(program).map_err(|error| format!("{}: {error}", program.display()))?;
        let digest = Sha256::digest(&bytes).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let system = Command::new("uname").arg("-srvn").output().map_err(|error| format!("uname: {error}"))?;
        let system = String::from_utf8_lossy(&system.stdout).trim().to_owned();
        let conditions = Self::default().with("the program (SHA-256)", digest).with("the system", system);
        Ok(conditions.with("Kamailio", programs::kamailio_version()))
    }

    /// Adds another condition.
    #[must_use]
    pub fn with(mut self, what: &str, how: String) -> Self {
        self.0.insert(what.to_owned(), how);
        self
    }

    /// Returns the first condition in which `other` differs.
    fn difference(&self, other: &Self) -> Option<String> {
        let names = self.0.keys().chain(other.0.keys());
        let says = |one: &Self, name| one.0.get(name).map_or("not known", String::as_str).to_owned();
        let mut pairs = names.map(|name| (name, says(self, name), says(other, name)));
        pairs
            .find(|(_, ours, theirs)| ours != theirs)
            .map(|(name, ours, theirs)| format!("{name} was {theirs}, now {ours}"))
    }
}

#[derive(Serialize, Deserialize)]
struct SavedResults<T> {
    conditions: Conditions,
    results: T,
}

/// Reads the results of an earlier run under the same conditions.
///
/// # Errors
/// If there are no results, or they are of another version or other conditions.
pub fn read<T: DeserializeOwned>(file: &Path, conditions: &Conditions) -> Result<T, String> {
    let text = fs::read(file).map_err(|error| format!("nothing to go on from: {}: {error}", file.display()))?;
    let kept: SavedResults<T> =
        serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", file.display()))?;
    match conditions.difference(&kept.conditions) {
        None => Ok(kept.results),
        Some(difference) => Err(format!("cannot resume from {}: {difference}; run without --resume", file.display())),
    }
}

/// Saves results for another run.
///
/// # Errors
/// If the file cannot be written.
pub fn write(file: &Path, conditions: &Conditions, results: &impl Serialize) -> Result<(), String> {
    let kept = SavedResults { conditions: conditions.clone(), results };
    let text = serde_json::to_string(&kept).map_err(|error| error.to_string())?;
    fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_another_program_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, program) = (folder.path().join("results.json"), folder.path().join("program"));
        fs::write(&program, "one").expect("it can be written");
        let one = Conditions::of(&program).expect("a program").with("its priority", "nice -20".to_owned());
        write(&file, &one, &7).expect("it can be written");
        assert_eq!(read(&file, &one), Ok(7));

        fs::write(&program, "two").expect("it can be written");
        let two = Conditions::of(&program).expect("a program").with("its priority", "nice -20".to_owned());
        let refusal = read::<i32>(&file, &two).expect_err("of another program");
        assert!(refusal.contains("the program (SHA-256) was 7692c3ad3540bb80, now 3fc4ccfe745870e2"), "{refusal}");
        let refusal =
            read::<i32>(&file, &one.with("its priority", "nice 0".to_owned())).expect_err("of another priority");
        assert!(refusal.contains("its priority was nice -20, now nice 0; run without --resume"), "{refusal}");
        assert!(read::<i32>(&folder.path().join("none"), &two).expect_err("no file").contains("nothing to go on from"));
    }
}
