//! One database server on a machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::machine::Machine;
use crate::poll;
use crate::process::{Process, tail};
use crate::program::search;

/// Time allowed for a database to start.
const START: Duration = Duration::from_secs(30);

/// A database server that can be killed, stopped and restarted.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) machine: Machine,
    pub(crate) port: u16,
    pub(crate) folder: PathBuf,
    program: PathBuf,
    arguments: Vec<String>,
    process: Process,
}

impl Node {
    /// Starts `program` with its output in `folder` and waits until it listens on `port`.
    pub(crate) fn start(
        (machine, port): (Machine, u16),
        folder: &Path,
        (program, arguments): (PathBuf, Vec<String>),
    ) -> Node {
        let node = Node::begin((machine, port), folder, (program, arguments));
        node.wait_until_it_listens()
    }

    /// Like [`Node::start`], without waiting.
    pub(crate) fn begin(
        (machine, port): (Machine, u16),
        folder: &Path,
        (program, arguments): (PathBuf, Vec<String>),
    ) -> Node {
        Node::begin_with((machine, port), folder, (program, arguments), &[])
    }

    /// Like [`Node::begin`], with arguments that apply only to this start.
    pub(crate) fn begin_with(
        (machine, port): (Machine, u16),
        folder: &Path,
        (program, arguments): (PathBuf, Vec<String>),
        first: &[&str],
    ) -> Node {
        let process = launch(&machine, folder, &program, &[&arguments[..], &owned(first)].concat());
        Node { machine, port, folder: folder.to_owned(), program, arguments, process }
    }

    /// Waits until the server listens, and restarts it if it exits before.
    pub(crate) fn wait_until_it_listens(mut self) -> Node {
        self.wait_until_it_is_up(&[]);
        self
    }

    /// Returns `host:port`.
    pub(crate) fn authority(&self) -> String {
        format!("{}:{}", self.machine.address(), self.port)
    }

    /// Kills the server and its child processes (SIGKILL).
    pub(crate) fn kill(&mut self) {
        self.signal("KILL");
        self.process.kill();
        let _ = self.process.wait(START);
    }

    /// Restarts the server with additional arguments.
    pub(crate) fn start_again(&mut self, more: &[&str]) {
        self.process = self.launch(more);
        self.wait_until_it_is_up(more);
    }

    /// Runs the program to completion with additional arguments and returns its output.
    pub(crate) fn run_once(&self, more: &[&str]) -> String {
        let arguments = [&self.arguments[..], &owned(more)].concat();
        let output = self.machine.run(&self.program, &arguments, &self.folder);
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    }

    /// Sends a signal to the server and its child processes.
    pub(crate) fn signal(&self, name: &str) {
        let own = self.process.id();
        let children = fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap_or_default();
        let own = own.to_string();
        for process in [own.as_str()].into_iter().chain(children.split_whitespace()) {
            let _ =
                Command::new("kill").args([&format!("-{name}"), process]).stderr(std::process::Stdio::null()).status();
        }
    }

    /// Runs one of the database's client programs on the server's machine and returns its output, or `None` if it
    /// fails.
    pub(crate) fn ask(&self, program: &str, arguments: &[&str]) -> Option<String> {
        let program = search(program).unwrap_or_else(|| panic!("{program} comes with the server"));
        let output = self.machine.run(&program, &owned(arguments), &self.folder);
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Waits until `is_so` returns true.
    pub(crate) fn wait_until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let found = poll(START, || is_so().then_some(()));
        assert!(found.is_some(), "{}: not in time: {what}\n{}", self.authority(), self.log());
    }

    pub(crate) fn log(&self) -> String {
        tail(&(self.process.output() + &self.process.errors()), 30)
    }

    fn launch(&self, more: &[&str]) -> Process {
        let arguments = [&self.arguments[..], &owned(more)].concat();
        launch(&self.machine, &self.folder, &self.program, &arguments)
    }

    fn wait_until_it_is_up(&mut self, more: &[&str]) {
        let mut ended = String::new();
        let is_up = poll(START, || {
            // Processes of the previous server may hold its shared memory for a moment.
            if self.process.ended().is_some() {
                ended = self.log();
                std::thread::sleep(Duration::from_millis(100));
                self.process = self.launch(more);
            }
            self.machine.listens(self.port).then_some(())
        });
        assert!(is_up.is_some(), "{} does not answer:\n{ended}\n{}", self.program.display(), self.log());
    }
}

fn launch(machine: &Machine, folder: &Path, program: &Path, arguments: &[String]) -> Process {
    Process::start_in(machine.network(), program, arguments, folder.join("log"))
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}
