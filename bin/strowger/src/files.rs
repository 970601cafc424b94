//! Files of results.

use std::io::Write as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Refuses a pipe: a running server that reads one waits until somebody writes to it.
pub(crate) fn refuse_pipe(file: &Path) -> Result<(), String> {
    match std::fs::metadata(file) {
        Ok(data) if data.file_type().is_fifo() => {
            Err(format!("{} is a pipe, which a running server does not read; use a file", file.display()))
        }
        _ => Ok(()),
    }
}

/// Whether this user may not read the file.
pub(crate) fn is_forbidden(file: &Path) -> bool {
    std::fs::File::open(file).is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
}

/// Whether the file is standard output.
pub(crate) fn is_piped(file: &Path) -> bool {
    file.as_os_str() == "-"
}

/// Checks before a measurement that the files can be written and differ from each other.
pub(crate) fn ready(files: &[Option<&Path>]) -> Result<(), Failure> {
    let mut taken: Vec<PathBuf> = Vec::new();
    for file in files.iter().flatten() {
        // Devices and pipes, such as /dev/null, may appear several times, and opening them could have side effects.
        let is_file = !is_piped(file) && std::fs::metadata(file).map_or(true, |is| is.is_file() || is.is_dir());
        if is_file {
            try_to_open(file).map_err(|error| {
                Failure::Usage(format!("{} cannot be written: {error}; nothing was measured", file.display()))
            })?;
        }
        let place = if is_piped(file) { file.to_path_buf() } else { std::path::absolute(file).unwrap_or_default() };
        if (is_file || is_piped(file)) && taken.contains(&place) {
            let name = if is_piped(file) { "standard output (-)".to_owned() } else { file.display().to_string() };
            return Err(Failure::Usage(format!("{name} is named for two forms of the report; name another file")));
        }
        taken.push(place);
    }
    Ok(())
}

/// Tests whether the file can be opened, without changes.
fn try_to_open(file: &Path) -> std::io::Result<()> {
    if std::fs::OpenOptions::new().write(true).open(file).map_or_else(is_missing, |_| Ok(false))? {
        std::fs::OpenOptions::new().write(true).create_new(true).open(file)?;
        std::fs::remove_file(file)?;
    }
    Ok(())
}

fn is_missing(error: std::io::Error) -> std::io::Result<bool> {
    if error.kind() == std::io::ErrorKind::NotFound { Ok(true) } else { Err(error) }
}

/// Writes all files, then reports those that failed; `-` is standard output.
pub(crate) fn write_all(files: &[(PathBuf, String)]) -> Result<(), Failure> {
    files.iter().map(|(file, text)| write(file, text)).fold(Ok(()), both)
}

/// Combines two results, including both messages if both failed.
pub(crate) fn both(one: Result<(), Failure>, other: Result<(), Failure>) -> Result<(), Failure> {
    match (one, other) {
        (Err(one), Err(other)) => Err(Failure::No(format!("{one}\nstrowger: {other}"))),
        (one, other) => one.and(other),
    }
}

/// Writes a file; `-` is standard output.
pub(crate) fn write(file: &Path, text: &str) -> Result<(), Failure> {
    if is_piped(file) {
        return std::io::stdout().write_all(text.as_bytes()).map_err(Failure::Output);
    }
    std::fs::write(file, text).map_err(|error| Failure::No(format!("{} cannot be written: {error}", file.display())))
}
