//! `strowger load`: callers and answering targets, each a separate process.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::process::{Process, read, tail};
use crate::server::binary;
use crate::{Namespace, PATIENCE, poll};

/// File name of reports.
const REPORT: &str = "report.json";

/// A `strowger load answer` process: a target that a test can stop, continue, kill and restart.
#[derive(Debug)]
pub struct Answerer<'a> {
    network: Option<&'a Namespace>,
    address: SocketAddr,
    transport: &'static str,
    arguments: Vec<String>,
    folder: TempDir,
    process: Process,
}

impl<'a> Answerer<'a> {
    /// Starts a target at this address, over `udp` or `tcp`, with additional command-line arguments.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start(transport: &'static str, address: SocketAddr, words: &str) -> Answerer<'a> {
        Answerer::start_in(None, transport, address, words)
    }

    /// Like [`Answerer::start`], optionally in a network namespace.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start_in(
        network: Option<&'a Namespace>,
        transport: &'static str,
        address: SocketAddr,
        words: &str,
    ) -> Answerer<'a> {
        let folder = tempfile::Builder::new().prefix("strowger-answer-").tempdir().expect("a temporary folder");
        let words =
            format!("load answer --listen {transport}:{address} --quiet --no-watch --seed 1 --json {REPORT} {words}");
        let arguments: Vec<_> = words.split_whitespace().map(str::to_owned).collect();
        let process = run(network, &folder, &arguments);
        let mut answerer = Answerer { network, address, transport, arguments, folder, process };
        answerer.wait_until_it_listens();
        answerer
    }

    /// Returns the listening address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URI by which a server names this target.
    #[must_use]
    pub fn uri(&self) -> String {
        let parameter = if self.transport == "udp" { String::new() } else { format!(";transport={}", self.transport) };
        format!("sip:{}{parameter}", self.address)
    }

    /// Stops the process (SIGSTOP). It keeps its port and answers nothing.
    pub fn stop(&self) {
        self.process.signal("STOP");
    }

    /// Continues the process after [`Answerer::stop`].
    pub fn go_on(&self) {
        self.process.signal("CONT");
    }

    /// Kills the process (SIGKILL) and waits until it is gone.
    ///
    /// # Panics
    /// If it does not end.
    pub fn kill(&mut self) {
        self.process.kill();
        assert!(self.process.wait(PATIENCE).is_some(), "the process does not end");
    }

    /// Restarts the process at the same address.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start_again(&mut self) {
        self.process = run(self.network, &self.folder, &self.arguments);
        self.wait_until_it_listens();
    }

    /// Ends the process and returns its report.
    ///
    /// # Panics
    /// If it does not end or writes no report.
    #[must_use]
    pub fn end(mut self) -> Report {
        self.process.signal("INT");
        finish(&mut self.process, &self.folder, PATIENCE)
    }

    fn wait_until_it_listens(&mut self) {
        let told = poll(PATIENCE, || {
            let ended = self.process.ended();
            assert!(ended.is_none(), "`load answer` ended with {ended:?}:\n{}", self.process.errors());
            self.process.errors().contains("answering at").then_some(())
        });
        assert!(told.is_some(), "`load answer` does not listen:\n{}", self.process.errors());
    }
}

/// A `strowger load run` process.
#[derive(Debug)]
pub struct Load {
    folder: TempDir,
    process: Process,
}

impl Load {
    /// Starts a run with these command-line arguments.
    #[must_use]
    pub fn start(words: &str) -> Load {
        Load::start_in(None, words)
    }

    /// Like [`Load::start`], optionally in a network namespace.
    #[must_use]
    pub fn start_in(network: Option<&Namespace>, words: &str) -> Load {
        let folder = tempfile::Builder::new().prefix("strowger-load-").tempdir().expect("a temporary folder");
        let words = format!("load run --quiet --no-watch --json {REPORT} {words}");
        let arguments: Vec<_> = words.split_whitespace().map(str::to_owned).collect();
        let process = run(network, &folder, &arguments);
        Load { folder, process }
    }

    /// Stops starting new calls, waits until all pending ones are over, and returns the report.
    ///
    /// # Panics
    /// If it does not end or writes no report.
    #[must_use]
    pub fn end(mut self, patience: Duration) -> Report {
        self.process.signal("INT");
        finish(&mut self.process, &self.folder, patience)
    }

    /// Waits for the end of the run. The exit code that reports a slow generator is ignored: a busy machine is not a
    /// bug.
    ///
    /// # Panics
    /// If it does not end in time or writes no report.
    #[must_use]
    pub fn finish(mut self, patience: Duration) -> Report {
        finish(&mut self.process, &self.folder, patience)
    }
}

/// Report of a run.
#[derive(Clone, Debug)]
pub struct Report {
    value: Value,
    text: String,
}

impl Report {
    /// Returns a top-level count: `sent`, `carried`, `lost`, `failed`, `unfinished` or `unexpected`.
    ///
    /// # Panics
    /// If there is no such count.
    #[must_use]
    pub fn count(&self, name: &str) -> u64 {
        self.value[name].as_u64().unwrap_or_else(|| panic!("no {name} in {}", self.value))
    }

    /// Returns a count of the called side: `answered`, `carried`, `lost`, `failed` or `unfinished`.
    ///
    /// # Panics
    /// If there is no such count.
    #[must_use]
    pub fn callee(&self, name: &str) -> u64 {
        self.value["callee"][name].as_u64().unwrap_or_else(|| panic!("no {name} of callees in {}", self.value))
    }

    /// Returns the number of requests of this method with an answer of this kind (`2xx`, `1xx`, `other`), and the
    /// longest response time.
    #[must_use]
    pub fn answers(&self, method: &str, answer: &str) -> (u64, Duration) {
        let rows = self.value["answers"].as_array().into_iter().flatten();
        let row = rows.filter(|row| row["method"] == method && row["answer"] == answer).map(|row| &row["us"]).next();
        let count = row.and_then(|times| times["count"].as_u64()).unwrap_or_default();
        let longest_us = row.and_then(|times| times["max"].as_f64()).unwrap_or_default();
        (count, Duration::from_secs_f64(longest_us / 1e6))
    }

    /// Returns the value at a JSON pointer such as `/machine/kernel`.
    #[must_use]
    pub fn at(&self, pointer: &str) -> &Value {
        self.value.pointer(pointer).unwrap_or(&Value::Null)
    }

    /// Returns the human-readable output.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

fn run(network: Option<&Namespace>, folder: &TempDir, arguments: &[String]) -> Process {
    Process::start_in(network, &binary(), arguments, folder.path().join("load.log"))
}

fn finish(process: &mut Process, folder: &TempDir, patience: Duration) -> Report {
    let status = process.wait(patience);
    let (printed, errors) = (process.output(), process.errors());
    assert!(status.is_some(), "`strowger load` does not end:\n{printed}\n{errors}");
    let text = read(&folder.path().join(REPORT));
    let value = serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("`strowger load` ended with {status:?} and no report ({error}):\n{errors}"));
    Report { value, text: tail(&printed, 60) }
}
