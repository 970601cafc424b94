//! A real Prometheus that scrapes a server.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::process::Process;
use crate::{PATIENCE, Program, free_port, poll};

/// A running Prometheus on a loopback port, which scrapes and evaluates every second. Dropping it kills the process.
#[derive(Debug)]
pub struct Prometheus {
    address: SocketAddr,
    process: Process,
    _folder: TempDir,
}

impl Prometheus {
    /// Starts it with these alerts and one target, the job `strowger`, and waits until it answers.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start(rules: &Path, target: SocketAddr) -> Prometheus {
        let folder = tempfile::Builder::new().prefix("strowger-prometheus-").tempdir().expect("a temporary folder");
        let file = folder.path().join("prometheus.yml");
        let rules = rules.canonicalize().expect("the rules exist");
        let text = format!(
            "global:\n  scrape_interval: 1s\n  evaluation_interval: 1s\nrule_files: [{rules:?}]\nscrape_configs:\n  \
             - job_name: strowger\n    static_configs:\n      - targets: [\"{target}\"]\n"
        );
        fs::write(&file, text).expect("the configuration can be written");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let arguments = [
            format!("--config.file={}", file.display()),
            format!("--storage.tsdb.path={}", folder.path().join("data").display()),
            format!("--web.listen-address={address}"),
        ];
        let process = Process::start(&Program::Prometheus.path(), &arguments, folder.path().join("prometheus.log"));
        let mut prometheus = Prometheus { address, process, _folder: folder };
        let is_ready = poll(PATIENCE, || {
            let ended = prometheus.process.ended();
            assert!(ended.is_none(), "prometheus ended with {ended:?}:\n{}", prometheus.process.errors());
            let (status, _) = fetch(address, "/-/ready").ok()?;
            (status == 200).then_some(())
        });
        assert!(is_ready.is_some(), "prometheus does not answer:\n{}", prometheus.process.errors());
        prometheus
    }

    /// Returns the present value of each series of an expression, and its labels.
    ///
    /// # Panics
    /// If the expression has an error.
    #[must_use]
    pub fn query(&self, expression: &str) -> Vec<(Value, f64)> {
        let data = self.get(&format!("/api/v1/query?query={}", percent_encoded(expression)));
        let series = data["result"].as_array().unwrap_or_else(|| panic!("{expression}: {data}"));
        let value = |one: &Value| one["value"][1].as_str()?.parse().ok();
        series.iter().filter_map(|one| Some((one["metric"].clone(), value(one)?))).collect()
    }

    /// Returns the value of an expression with one series; none if there is none.
    ///
    /// # Panics
    /// If there are several.
    #[must_use]
    pub fn value(&self, expression: &str) -> Option<f64> {
        let found = self.query(expression);
        assert!(found.len() < 2, "{expression}: {found:?}");
        found.first().map(|(_, value)| *value)
    }

    /// Returns `data` of the answer to a request of its interface.
    ///
    /// # Panics
    /// If the answer is an error.
    #[must_use]
    pub fn get(&self, path: &str) -> Value {
        let (status, body) = fetch(self.address, path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let answer: Value = serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"));
        assert!(status == 200 && answer["status"] == "success", "{path}: {answer}");
        answer["data"].clone()
    }
}

/// Returns status and body of a resource.
fn fetch(address: SocketAddr, path: &str) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    // Version 1.0 asks for a body in one piece.
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes())?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    let status = response.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let body = response.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Ok((status, body.to_owned()))
}

fn percent_encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
