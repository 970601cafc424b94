//! Counting under callgrind.

use std::fs;
use std::path::Path;

/// What is put before a server's command line so that each of its processes leaves its counts in `folder`.
#[must_use]
pub fn before(folder: &Path) -> [String; 4] {
    let counts = format!("--callgrind-out-file={}", folder.join("counts.%p").display());
    ["valgrind".to_owned(), "--tool=callgrind".to_owned(), "--quiet".to_owned(), counts]
}

/// The files that they have left.
///
/// # Errors
/// When there are none, or one cannot be read.
pub fn files(folder: &Path) -> Result<Vec<String>, String> {
    let files = fs::read_dir(folder).map_err(|error| error.to_string())?.flatten();
    let files = files.filter(|file| file.file_name().to_string_lossy().starts_with("counts."));
    let texts = files.map(|file| fs::read_to_string(file.path()).map_err(|error| error.to_string()));
    let texts: Vec<String> = texts.collect::<Result<_, _>>()?;
    if texts.is_empty() { Err("callgrind left no counts".to_owned()) } else { Ok(texts) }
}
