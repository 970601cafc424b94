//! `strowger load` on its core.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::NamedTempFile;

use super::{Certificate, GENERATOR_CORE};

/// A load to generate.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// Binary of the generator.
    pub binary: &'a Path,
    /// Certificate of the server and of callees.
    pub certificate: &'a Certificate,
    /// First process of the server.
    pub pid: u32,
    /// Whether it yields its core to other generators.
    pub is_nice: bool,
}

/// A load that runs.
#[derive(Debug)]
pub struct RunningLoad {
    child: Child,
    report: NamedTempFile,
}

impl Load<'_> {
    /// Starts it over TLS.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start(&self, server: SocketAddr, arguments: &str) -> io::Result<RunningLoad> {
        let Certificate { certificate, key, .. } = self.certificate;
        let report = NamedTempFile::new()?;
        let mut command = Command::new("nice");
        command
            .args(["-n", if self.is_nice { "10" } else { "0" }, "taskset", "-c", GENERATOR_CORE])
            .arg(self.binary)
            .args(["load", "run", "--to", &format!("tls:{server}")]);
        command.arg("--ca").arg(certificate).arg("--certificate").arg(certificate).arg("--key").arg(key);
        command.args(["--domain", "ex.example.com", "--quiet", "--pid", &self.pid.to_string()]);
        command.args(arguments.split_whitespace()).arg("--json").arg(report.path());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        Ok(RunningLoad { child, report })
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// If there is no report.
    pub fn run(&self, server: SocketAddr, arguments: &str) -> io::Result<Value> {
        self.start(server, arguments)?.finish()
    }
}

impl RunningLoad {
    /// Waits for its end and returns the report.
    ///
    /// # Errors
    /// If there is none.
    pub fn finish(self) -> io::Result<Value> {
        let output = self.child.wait_with_output()?;
        let text = std::fs::read(self.report.path())?;
        serde_json::from_slice(&text)
            .map_err(|_| io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()))
    }
}

/// Returns a number in a report by its path, such as `server.cpu_us_per_call`; NaN without one.
#[must_use]
pub fn number(report: &Value, path: &str) -> f64 {
    let found = path.split('.').fold(report, |value, name| &value[name]);
    found.as_f64().unwrap_or(f64::NAN)
}

/// Returns a time of a method's 2xx in microseconds, such as `p99`; NaN without one.
#[must_use]
pub fn time(report: &Value, method: &str, which: &str) -> f64 {
    let rows = report["answers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let row = rows.iter().find(|row| row["method"] == method && row["answer"] == "2xx");
    row.map_or(f64::NAN, |row| number(&row["us"], which))
}
