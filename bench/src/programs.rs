//! The programs that a benchmark runs, and their output.

use std::fmt::Display;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use clap::Args;

/// Option of a benchmark that names the server.
#[derive(Args, Clone, Debug)]
pub struct BinaryArgument {
    /// The `strowger` binary [default: STROWGER_BIN, else strowger beside this program]
    #[arg(long)]
    binary: Option<PathBuf>,
}

impl BinaryArgument {
    /// Returns its path, as [`strowger`] does.
    ///
    /// # Panics
    /// As [`strowger`].
    #[must_use]
    pub fn path(&self) -> PathBuf {
        strowger(self.binary.as_ref())
    }

    /// Returns its path, as [`existing_strowger`] does.
    ///
    /// # Errors
    /// If there is no such file.
    ///
    /// # Panics
    /// As [`strowger`].
    pub fn existing_path(&self) -> Result<PathBuf, String> {
        existing_strowger(self.binary.as_ref())
    }
}

/// Returns the path of the server binary: `named`, else `STROWGER_BIN`, else `strowger` beside this program.
///
/// # Panics
/// If the path of this program or the current folder is not available.
#[must_use]
pub fn strowger(named: Option<&PathBuf>) -> PathBuf {
    let named = named.cloned().or_else(|| std::env::var_os("STROWGER_BIN").map(PathBuf::from));
    std::path::absolute(named.unwrap_or_else(|| beside("strowger"))).expect("there is a current folder")
}

/// Does the same as [`strowger`], for a binary that must exist.
///
/// # Errors
/// If there is no such file.
///
/// # Panics
/// As [`strowger`].
pub fn existing_strowger(named: Option<&PathBuf>) -> Result<PathBuf, String> {
    let binary = strowger(named);
    if !binary.is_file() {
        return Err(format!("there is no {}: cargo build --release -p strowger", binary.display()));
    }
    Ok(binary)
}

/// Returns the path of a program beside this one.
///
/// # Panics
/// If the path of this program is not available.
#[must_use]
pub fn beside(name: &str) -> PathBuf {
    std::env::current_exe().expect("a running program has a file").with_file_name(name)
}

/// Returns whether a program is installed: whether it exits successfully when run with `option`.
#[must_use]
pub fn is_installed(program: &str, option: &str) -> bool {
    let status = Command::new(program).arg(option).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Returns whether Kamailio is installed.
#[must_use]
pub fn has_kamailio() -> bool {
    is_installed("kamailio", "-v")
}

/// Returns the version of Kamailio and of its Debian package.
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

/// Runs `strowger load` over UDP against a server, with `outstanding` calls at a time until it has made `calls`.
///
/// # Errors
/// If the load does not start or fails.
pub fn load(
    binary: &Path,
    server: SocketAddr,
    workload: &[&str],
    outstanding: &str,
    calls: impl Display,
) -> Result<(), String> {
    let mut load = Command::new(binary);
    load.args(["load", "run", "--to", &format!("udp:{server}"), "--quiet", "--no-watch", "--no-retransmissions"]);
    load.args(workload).args(["--outstanding", outstanding, "-m", &calls.to_string()]);
    let output = load.stdin(Stdio::null()).output().map_err(|error| format!("{load:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("the load failed: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(())
}

/// Lines that a program has written so far.
pub type Lines = Arc<Mutex<Vec<String>>>;

/// Waits for the first line of `child`, which reports that it is ready, and collects the lines after it.
///
/// # Errors
/// If its output is not piped, or it ends first.
pub fn listen(child: &mut Child) -> Result<Lines, String> {
    let mut stdout = BufReader::new(child.stdout.take().ok_or("the program's output is not piped")?);
    let mut first = String::new();
    match stdout.read_line(&mut first) {
        Ok(1..) => {}
        _ => return Err("the program ended before it listened".to_owned()),
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
