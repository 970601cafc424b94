//! The program that runs.

use std::io;
use std::path::PathBuf;

/// Returns the path of the running program, as it was before a newer one replaced the file.
///
/// # Errors
/// The system does not tell the path.
pub fn own_program() -> io::Result<PathBuf> {
    let path = std::env::current_exe()?;
    // The kernel adds this to the name of a file that was replaced.
    Ok(path.to_str().and_then(|text| text.strip_suffix(" (deleted)")).map(PathBuf::from).unwrap_or(path))
}
