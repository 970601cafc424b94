//! A child that never outlives its test.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::namespace::{Namespace, dying_with_us};
use crate::poll;

/// A running program whose output goes to files; dropping it kills it, also when the test panics.
///
/// It lives no longer than the thread that started it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `program` with `arguments` in the folder of `log`, which takes its standard output;
    /// standard error goes to the file beside it whose extension is `err`.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(program: &Path, arguments: &[String], log: PathBuf) -> Process {
        Process::spawn(program, arguments, log, Stdio::null(), None)
    }

    /// Like [`Process::start`], in a network of its own where there is one.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start_in(network: Option<&Namespace>, program: &Path, arguments: &[String], log: PathBuf) -> Process {
        Process::spawn(program, arguments, log, Stdio::null(), network)
    }

    /// Like [`Process::start`], with a standard input that stays open for as long as the process lives.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start_interactive(program: &Path, arguments: &[String], log: PathBuf) -> Process {
        Process::spawn(program, arguments, log, Stdio::piped(), None)
    }

    fn spawn(program: &Path, arguments: &[String], log: PathBuf, stdin: Stdio, network: Option<&Namespace>) -> Process {
        let output = File::create(&log).expect("the log file can be created");
        let errors = File::create(log.with_extension("err")).expect("the log file can be created");
        let folder = log.parent().expect("a log lies in a folder");
        let child = dying_with_us(program, network)
            .args(arguments)
            .current_dir(folder)
            // No program shall find the settings of the person who runs the tests, or leave files behind.
            .env("HOME", folder)
            .env("TMPDIR", folder)
            .stdin(stdin)
            .stdout(output)
            .stderr(errors)
            .spawn()
            .unwrap_or_else(|error| panic!("{} does not start: {error}", program.display()));
        Process { child, log }
    }

    /// The child's standard input, where it was started with one.
    pub fn stdin(&mut self) -> Option<&mut std::process::ChildStdin> {
        self.child.stdin.as_mut()
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, or `None` while it runs.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("our own child can be waited for")
    }

    /// Waits for its end; `None` when `patience` was over before.
    pub fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        poll(patience, || self.ended())
    }

    /// Sends it a signal, as `STOP`.
    ///
    /// # Panics
    /// When it is gone.
    pub fn signal(&self, name: &str) {
        let told = Command::new("kill").args([format!("-{name}"), self.id().to_string()]).status();
        assert!(told.is_ok_and(|status| status.success()), "process {} takes SIG{name}", self.id());
    }

    /// Kills it (SIGKILL), where it is not gone already.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
    }

    /// What it has written to its standard output so far.
    #[must_use]
    pub fn output(&self) -> String {
        read(&self.log)
    }

    /// What it has written to its standard error so far.
    #[must_use]
    pub fn errors(&self) -> String {
        read(&self.log.with_extension("err"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only when the child is gone already, which is what we want.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The text of a file that a program writes or wrote; empty while there is none.
pub(crate) fn read(file: &Path) -> String {
    fs::read(file).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

/// The last `lines` of a text: what a reader of a failure wants to see first.
pub(crate) fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    let skipped = all.len().saturating_sub(lines);
    all[skipped..].join("\n")
}
