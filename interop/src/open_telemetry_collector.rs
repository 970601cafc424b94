//! The OpenTelemetry Collector, built by hand from `interop/collector`.

use std::env;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;

use tempfile::TempDir;

use crate::process::Process;
use crate::{PATIENCE, free_port, poll};

/// A collector that takes OTLP over HTTP on a loopback port and prints all that it understands. Dropping it kills the process.
#[derive(Debug)]
pub struct OpenTelemetryCollector {
    address: SocketAddr,
    process: Process,
    _folder: TempDir,
}

impl OpenTelemetryCollector {
    /// Starts the program that `STROWGER_COLLECTOR` names, and waits until it listens; `None` without that variable.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start() -> Option<OpenTelemetryCollector> {
        let Some(program) = env::var_os("STROWGER_COLLECTOR").map(PathBuf::from) else {
            eprintln!("SKIPPED: STROWGER_COLLECTOR names no OpenTelemetry Collector (interop/collector/main.go)");
            return None;
        };
        let folder = tempfile::Builder::new().prefix("strowger-collector-").tempdir().expect("a temporary folder");
        let file = folder.path().join("collector.yaml");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let text = format!(
            "receivers: {{ otlp: {{ protocols: {{ http: {{ endpoint: {address} }} }} }} }}\n\
             exporters: {{ debug: {{ verbosity: detailed }} }}\n\
             service:\n  telemetry: {{ metrics: {{ level: none }} }}\n  \
             pipelines: {{ traces: {{ receivers: [otlp], exporters: [debug] }} }}\n"
        );
        fs::write(&file, text).expect("the configuration can be written");
        let arguments = [format!("--config=file:{}", file.display())];
        let process = Process::start(&program, &arguments, folder.path().join("collector.log"));
        let mut collector = OpenTelemetryCollector { address, process, _folder: folder };
        let listens = poll(PATIENCE, || {
            let ended = collector.process.ended();
            assert!(ended.is_none(), "the collector ended with {ended:?}:\n{}", collector.printed());
            TcpStream::connect(address).ok()
        });
        assert!(listens.is_some(), "the collector does not listen:\n{}", collector.printed());
        Some(collector)
    }

    /// Returns the address for OTLP over HTTP.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns what it has printed so far.
    #[must_use]
    pub fn printed(&self) -> String {
        self.process.output() + &self.process.errors()
    }
}
