//! `strowger load`: callers, and targets that answer them, as processes of their own.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::process::{Process, read, tail};
use crate::server::binary;
use crate::{Namespace, PATIENCE, poll};

/// The name of reports.
const REPORT: &str = "report.json";

/// A `strowger load answer`: a target that a test can stop, let go on, kill and start again.
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
    /// Answers at this address, by `udp` or `tcp`, with these words on its command line besides.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start(transport: &'static str, address: SocketAddr, words: &str) -> Answerer<'a> {
        Answerer::start_in(None, transport, address, words)
    }

    /// Like [`Answerer::start`], in a network of its own where there is one.
    ///
    /// # Panics
    /// When it does not start.
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

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its URI, as a target has it.
    #[must_use]
    pub fn uri(&self) -> String {
        let parameter = if self.transport == "udp" { String::new() } else { format!(";transport={}", self.transport) };
        format!("sip:{}{parameter}", self.address)
    }

    /// Stops it (SIGSTOP): it keeps its port, and says nothing.
    pub fn stop(&self) {
        self.process.signal("STOP");
    }

    /// Lets it go on after [`Answerer::stop`].
    pub fn go_on(&self) {
        self.process.signal("CONT");
    }

    /// Kills it (SIGKILL), and waits until it is gone.
    ///
    /// # Panics
    /// When it does not go.
    pub fn kill(&mut self) {
        self.process.kill();
        assert!(self.process.wait(PATIENCE).is_some(), "it is gone");
    }

    /// Starts it again where it was.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_again(&mut self) {
        self.process = run(self.network, &self.folder, &self.arguments);
        self.wait_until_it_listens();
    }

    /// Ends it, and returns its report.
    ///
    /// # Panics
    /// When it does not end, or leaves no report.
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

/// A `strowger load run`.
#[derive(Debug)]
pub struct Load {
    folder: TempDir,
    process: Process,
}

impl Load {
    /// Begins with these words on its command line.
    #[must_use]
    pub fn start(words: &str) -> Load {
        Load::start_in(None, words)
    }

    /// Like [`Load::start`], in a network of its own where there is one.
    #[must_use]
    pub fn start_in(network: Option<&Namespace>, words: &str) -> Load {
        let folder = tempfile::Builder::new().prefix("strowger-load-").tempdir().expect("a temporary folder");
        let words = format!("load run --quiet --no-watch --json {REPORT} {words}");
        let arguments: Vec<_> = words.split_whitespace().map(str::to_owned).collect();
        let process = run(network, &folder, &arguments);
        Load { folder, process }
    }

    /// Has it begin nothing new, and returns its report when all that was begun is over.
    ///
    /// # Panics
    /// When it does not end, or leaves no report.
    #[must_use]
    pub fn end(mut self, patience: Duration) -> Report {
        self.process.signal("INT");
        finish(&mut self.process, &self.folder, patience)
    }

    /// Waits for its end. That the generator itself was slow, which this program says by its exit code, does not count: a
    /// busy machine is not a bug.
    ///
    /// # Panics
    /// When it does not end in time, or leaves no report.
    #[must_use]
    pub fn finish(mut self, patience: Duration) -> Report {
        finish(&mut self.process, &self.folder, patience)
    }
}

/// What a run says of itself.
#[derive(Clone, Debug)]
pub struct Report {
    value: Value,
    text: String,
}

impl Report {
    /// A count that stands at its top, as `sent`, `carried`, `lost`, `failed`, `unfinished`, `unexpected`.
    ///
    /// # Panics
    /// When there is no such count.
    #[must_use]
    pub fn count(&self, name: &str) -> u64 {
        self.value[name].as_u64().unwrap_or_else(|| panic!("no {name} in {}", self.value))
    }

    /// A count of its called end, as `answered`, `carried`, `lost`, `failed`, `unfinished`.
    ///
    /// # Panics
    /// When there is no such count.
    #[must_use]
    pub fn callee(&self, name: &str) -> u64 {
        self.value["callee"][name].as_u64().unwrap_or_else(|| panic!("no {name} of callees in {}", self.value))
    }

    /// How many requests of this method got an answer of this kind (`2xx`, `1xx`, `other`), and the longest time.
    #[must_use]
    pub fn answers(&self, method: &str, answer: &str) -> (u64, Duration) {
        let rows = self.value["answers"].as_array().into_iter().flatten();
        let row = rows.filter(|row| row["method"] == method && row["answer"] == answer).map(|row| &row["us"]).next();
        let count = row.and_then(|times| times["count"].as_u64()).unwrap_or_default();
        let longest_us = row.and_then(|times| times["max"].as_f64()).unwrap_or_default();
        (count, Duration::from_secs_f64(longest_us / 1e6))
    }

    /// What its JSON has at this place, as `/machine/kernel`.
    #[must_use]
    pub fn at(&self, pointer: &str) -> &Value {
        self.value.pointer(pointer).unwrap_or(&Value::Null)
    }

    /// What it printed, for people.
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
