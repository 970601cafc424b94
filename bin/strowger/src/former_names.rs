//! Warnings about former names in the configuration file.

use std::path::Path;

use strowger_control::config::Config;

/// Returns warnings about former names in the configuration file, with file and line.
pub(crate) fn warnings(file: Option<&Path>) -> Vec<String> {
    let found = file.map_or_else(Vec::new, Config::former_names);
    found.iter().map(ToString::to_string).collect()
}
