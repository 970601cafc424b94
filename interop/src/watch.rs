//! `strowger watch` as a separate process.

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use crate::bind9::Bind9;
use crate::process::Process;
use crate::server::binary;
use crate::{PATIENCE, poll};

/// A `strowger watch` that maintains the zone of a name server. Dropping it kills the process.
#[derive(Debug)]
pub struct Watch {
    process: Process,
    _folder: TempDir,
}

impl Watch {
    /// Starts it with these keys of `[watch]` and these records, as TOML.
    #[must_use]
    pub fn start(server: &Bind9, keys: &str, records: &str) -> Watch {
        Watch::begin(server, keys, records, &[])
    }

    /// Runs it with `--once` and returns its output and exit code.
    ///
    /// # Panics
    /// If it does not end.
    #[must_use]
    pub fn once(server: &Bind9, keys: &str, records: &str) -> (Vec<Value>, Option<i32>) {
        let mut watch = Watch::begin(server, keys, records, &["--once"]);
        let status = watch.process.wait(PATIENCE);
        let status = status.unwrap_or_else(|| panic!("`strowger watch` does not end:\n{}", watch.process.errors()));
        (watch.events(), status.code())
    }

    fn begin(server: &Bind9, keys: &str, records: &str, words: &[&str]) -> Watch {
        let folder = tempfile::Builder::new().prefix("strowger-watch-").tempdir().expect("a temporary folder");
        let file = folder.path().join("strowger.toml");
        let (address, zone, key) = (server.address(), server.zone(), server.key_file());
        let text = format!(
            "[watch]\nserver = \"{address}\"\nzone = {zone:?}\nkey_file = {key:?}\n{keys}\nrecord = [\n{records}\n]\n"
        );
        fs::write(&file, text).expect("the configuration can be written");
        let file = file.display().to_string();
        let words = [&["watch", "--json", "-c", &file], words].concat();
        let arguments: Vec<String> = words.into_iter().map(str::to_owned).collect();
        let process = Process::start(&binary(), &arguments, folder.path().join("watch.log"));
        Watch { process, _folder: folder }
    }

    /// Returns the events printed so far.
    ///
    /// # Panics
    /// If a line is not JSON.
    #[must_use]
    pub fn events(&self) -> Vec<Value> {
        let lines = self.process.output();
        // The last line may be incomplete.
        let whole = lines.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        whole.map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
    }

    /// Waits until this event has been printed this many times.
    ///
    /// # Panics
    /// If it is not.
    pub fn wait_for(&mut self, event: &str, times: usize) {
        let is_told = || self.events().iter().filter(|told| told["event"] == event).count() >= times;
        let told = poll(PATIENCE, || is_told().then_some(()));
        assert!(told.is_some(), "no {event}: {:?}\n{}", self.events(), self.process.errors());
    }
}
