//! The programs that a benchmark calls, and what they say.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// The server's program: the one that is named, else `STROWGER_BIN`, else what lies beside this program.
///
/// # Panics
/// When this program has no file, or there is no current folder.
#[must_use]
pub fn strowger(named: Option<&PathBuf>) -> PathBuf {
    let named = named.cloned().or_else(|| std::env::var_os("STROWGER_BIN").map(PathBuf::from));
    std::path::absolute(named.unwrap_or_else(|| beside("strowger"))).expect("there is a current folder")
}

/// What lies beside this program.
///
/// # Panics
/// When this program has no file.
#[must_use]
pub fn beside(name: &str) -> PathBuf {
    std::env::current_exe().expect("a running program has a file").with_file_name(name)
}

/// Whether a program is installed: it takes `option` and ends well.
#[must_use]
pub fn is_installed(program: &str, option: &str) -> bool {
    let status = Command::new(program).arg(option).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Whether Kamailio is installed.
#[must_use]
pub fn has_kamailio() -> bool {
    is_installed("kamailio", "-v")
}

/// Its version, and that of Debian's package.
#[must_use]
pub fn kamailio_version() -> String {
    if !has_kamailio() {
        return "kamailio is not installed".to_owned();
    }
    let output = Command::new("kamailio").arg("-v").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let line = text.lines().next().unwrap_or_default().trim_start_matches("version: ");
    let version = Command::new("dpkg-query").args(["-W", "-f", "${Version}", "kamailio"]).output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    format!("{}, Debian's {version}", line.trim())
}

/// The lines that a program has written so far.
pub type Lines = Arc<Mutex<Vec<String>>>;

/// Waits for the first line of `child`, which says that it is ready, and gathers those that come after it.
///
/// # Errors
/// When it has no piped output, or ends before.
pub fn listen(child: &mut Child) -> Result<Lines, String> {
    let mut stdout = BufReader::new(child.stdout.take().ok_or("it has no output")?);
    let mut first = String::new();
    match stdout.read_line(&mut first) {
        Ok(1..) => {}
        _ => return Err("it ended before it listened".to_owned()),
    }
    let gathered = Lines::default();
    let lines = Arc::clone(&gathered);
    thread::spawn(move || {
        for line in stdout.lines().map_while(Result::ok) {
            lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
    });
    Ok(gathered)
}
