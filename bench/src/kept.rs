//! What one run leaves for another, as JSON in a file.

use std::fs;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// What an earlier run left.
///
/// # Errors
/// When there is nothing, or not of this version.
pub fn read<T: DeserializeOwned>(file: &Path) -> Result<T, String> {
    let text = fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
    serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", file.display()))
}

/// Leaves it for another run.
///
/// # Errors
/// When the file cannot be written.
pub fn write(file: &Path, results: &impl Serialize) -> Result<(), String> {
    let text = serde_json::to_string(results).map_err(|error| error.to_string())?;
    fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
}
