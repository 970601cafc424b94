//! The program in another role: as a process of its own, for each may hold only so many connections.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::phones::Task;

/// The core of the server, and that of the clients.
pub const SERVER_CORE: &str = "0";
/// The clients' core.
pub const CLIENT_CORE: &str = "1";

/// A process of ours; dropping it kills it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Process {
    fn start(core: &str, arguments: &[String]) -> io::Result<Self> {
        let mut child = Command::new("taskset")
            .args(["-c", core])
            .arg(std::env::current_exe()?)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().ok_or_else(|| io::Error::other("the process has no output"))?;
        Ok(Self { child, output: BufReader::new(output) })
    }

    /// An echo server, which is ready; only one of several takes the datagrams.
    ///
    /// # Errors
    /// When it does not start.
    pub fn echo_server(takes_datagrams: bool) -> io::Result<Self> {
        let mut process = Self::start(SERVER_CORE, &["echo".to_owned(), format!("--datagrams={takes_datagrams}")])?;
        match process.line()?.as_str() {
            "ready" => Ok(process),
            other => Err(io::Error::other(format!("the echo server said {other:?}"))),
        }
    }

    /// Clients with this task: ready to begin, their connections open where they are to be.
    ///
    /// # Errors
    /// When they do not start.
    pub fn phones(task: &Task) -> io::Result<Self> {
        let Task { server, lifetime, rate, requests, connections, .. } = task;
        let arguments = format!(
            "phones --server {server} --lifetime {lifetime} --rate {rate} --requests {requests} --connections {connections}"
        );
        let arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
        let mut process = Self::start(CLIENT_CORE, &arguments)?;
        match process.line()?.as_str() {
            "ready" => Ok(process),
            other => Err(io::Error::other(format!("the clients said {other:?}"))),
        }
    }

    /// Lets clients do their task, and gives what came of it. They keep their connections until they are dropped.
    ///
    /// # Errors
    /// When they end without having said anything.
    pub fn run(&mut self) -> io::Result<Value> {
        let input = self.child.stdin.as_mut().ok_or_else(|| io::Error::other("the process takes no input"))?;
        input.write_all(b"go\n")?;
        Ok(serde_json::from_str(&self.line()?)?)
    }

    /// Its number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Err(io::Error::other("the process has ended"));
        }
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only where it is gone already.
        let _ = (self.child.kill(), self.child.wait());
    }
}
