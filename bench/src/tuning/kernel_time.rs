//! K_rcv: from the arrival of a packet to the program, from `strowger probe` for Kamailio and from `strowger ctl
//! timing` for Strowger.

use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::Value;

use super::server::Server;

/// Key of K_rcv in the reports.
const K_RCV: &str = "k_rcv";
/// Maximum time to wait for a report beyond the measured time.
const GRACE: Duration = Duration::from_secs(5);

/// A measurement in progress.
#[derive(Debug)]
pub struct KernelTime {
    program: Child,
    /// Reads the report, which is longer than a pipe holds.
    reader: JoinHandle<String>,
}

impl KernelTime {
    /// Starts to measure for `seconds`; `None` if the program cannot.
    #[must_use]
    pub fn start(strowger: &Path, server: &Server, is_ours: bool, seconds: u64) -> Option<Self> {
        let (time, pid) = (format!("{seconds}s"), server.pid().to_string());
        let mut command = Command::new(strowger);
        if is_ours {
            command.args(["ctl", "timing", "--duration", &time, "--json", "-c", "strowger.toml"]);
        } else {
            command.args(["probe", "--pid", &pid, "--duration", &time, "--json", "-"]);
        }
        command.current_dir(server.folder()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut program = command.spawn().ok()?;
        let mut output = program.stdout.take()?;
        let reader = thread::spawn(move || {
            let mut text = String::new();
            // A report that cannot be read is none.
            let _ = output.read_to_string(&mut text);
            text
        });
        Some(Self { program, reader })
    }

    /// Returns the mean K_rcv in microseconds, if it was measured.
    #[must_use]
    pub fn finish(self) -> Option<f64> {
        let pause = Duration::from_millis(20);
        let mut waited = Duration::ZERO;
        while !self.reader.is_finished() {
            if waited > GRACE {
                end(self.program);
                return None;
            }
            thread::sleep(pause);
            waited += pause;
        }
        end(self.program);
        mean(&serde_json::from_str(&self.reader.join().ok()?).ok()?)
    }
}

fn end(mut program: Child) {
    // Both fail only if it has ended.
    let _ = program.kill();
    let _ = program.wait();
}

fn mean(report: &Value) -> Option<f64> {
    report["all"]["parts"][K_RCV]["mean_us"].as_f64().filter(|mean| mean.is_finite())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_mean_is_of_all_messages() {
        let report = json!({ "all": { "parts": { "k_rcv": { "mean_us": 12.5 } } }, "messages": [] });
        assert_eq!(mean(&report), Some(12.5));
        assert_eq!(mean(&json!({ "all": { "parts": {} } })), None);
    }
}
