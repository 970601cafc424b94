//! This program in another role, as a separate process: each process may hold only a limited number of connections.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::phones::Task;

/// Core of the server.
pub const SERVER_CORE: &str = "0";
/// Core of the clients.
pub const CLIENT_CORE: &str = "1";

/// A child process in a role. Dropping it kills it.
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

    /// Starts an echo server and waits until it is ready. Only one of several handles datagrams.
    ///
    /// # Errors
    /// If it does not start.
    pub fn echo_server(takes_datagrams: bool) -> io::Result<Self> {
        let mut process = Self::start(SERVER_CORE, &["echo".to_owned(), format!("--datagrams={takes_datagrams}")])?;
        match process.line()?.as_str() {
            "ready" => Ok(process),
            other => Err(io::Error::other(format!("the echo server said {other:?}"))),
        }
    }

    /// Starts clients with this task and waits until they are ready, with connections open if needed in advance.
    ///
    /// # Errors
    /// If they do not start.
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

    /// Runs the clients' task and returns the results. They keep their connections until they are dropped.
    ///
    /// # Errors
    /// If they end without results.
    pub fn run(&mut self) -> io::Result<Value> {
        let input = self.child.stdin.as_mut().ok_or_else(|| io::Error::other("the process takes no input"))?;
        input.write_all(b"go\n")?;
        Ok(serde_json::from_str(&self.line()?)?)
    }

    /// Returns the process ID.
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
        // Both fail only if the process has ended already.
        let _ = (self.child.kill(), self.child.wait());
    }
}
