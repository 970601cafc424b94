//! A child process that never outlives its test.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::namespace::{Namespace, dying_with_us};
use crate::poll;

/// A running program whose output goes to files. Dropping it kills the program, even when the test panics.
///
/// It lives no longer than the thread that started it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `program` with `arguments` in the folder of `log`. Standard output goes to `log`, standard error to the
    /// same name with the extension `err`.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn start(program: &Path, arguments: &[String], log: PathBuf) -> Process {
        Process::spawn(program, arguments, log, Stdio::null(), None)
    }

    /// Like [`Process::start`], optionally in a network namespace.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn start_in(network: Option<&Namespace>, program: &Path, arguments: &[String], log: PathBuf) -> Process {
        Process::spawn(program, arguments, log, Stdio::null(), network)
    }

    /// Like [`Process::start`], with a standard input that stays open while the process lives.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn start_interactive(program: &Path, arguments: &[String], log: PathBuf) -> Process {
        Process::start_interactive_in(None, program, arguments, log)
    }

    /// Like [`Process::start_interactive`], optionally in a network namespace.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn start_interactive_in(
        network: Option<&Namespace>,
        program: &Path,
        arguments: &[String],
        log: PathBuf,
    ) -> Process {
        Process::spawn(program, arguments, log, Stdio::piped(), network)
    }

    fn spawn(program: &Path, arguments: &[String], log: PathBuf, stdin: Stdio, network: Option<&Namespace>) -> Process {
        let output = File::create(&log).expect("the log file can be created");
        let errors = File::create(log.with_extension("err")).expect("the log file can be created");
        let folder = log.parent().expect("a log lies in a folder");
        let child = dying_with_us(program, network)
            .args(arguments)
            .current_dir(folder)
            // Programs must neither read the settings of the user who runs the tests nor leave files behind.
            .env("HOME", folder)
            .env("TMPDIR", folder)
            .stdin(stdin)
            .stdout(output)
            .stderr(errors)
            .spawn()
            .unwrap_or_else(|error| panic!("{} does not start: {error}", program.display()));
        Process { child, log }
    }

    /// Returns the child's standard input, if it was started with one.
    pub fn stdin(&mut self) -> Option<&mut std::process::ChildStdin> {
        self.child.stdin.as_mut()
    }

    /// Returns the process ID.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the exit status, or `None` while the process runs.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("our own child can be waited for")
    }

    /// Waits for the process to exit. Returns `None` if that takes longer than `patience`.
    pub fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        poll(patience, || self.ended())
    }

    /// Sends a signal, such as `STOP`.
    ///
    /// # Panics
    /// If the process is gone.
    pub fn signal(&self, name: &str) {
        let told = Command::new("kill").args([format!("-{name}"), self.id().to_string()]).status();
        assert!(told.is_ok_and(|status| status.success()), "process {} cannot be sent SIG{name}", self.id());
    }

    /// Kills the process (SIGKILL) unless it is already gone.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
    }

    /// Returns the standard output so far.
    #[must_use]
    pub fn output(&self) -> String {
        read(&self.log)
    }

    /// Returns the standard error so far.
    #[must_use]
    pub fn errors(&self) -> String {
        read(&self.log.with_extension("err"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if the child is already gone, which is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the contents of a program's output file, or an empty string if there is none.
pub(crate) fn read(file: &Path) -> String {
    fs::read(file).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

/// Returns the last `lines` lines of a text, which a failure message should show first.
pub(crate) fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    let skipped = all.len().saturating_sub(lines);
    all[skipped..].join("\n")
}
