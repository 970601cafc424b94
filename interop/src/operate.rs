//! A server under load while an operator works on it, and what callers and phones notice: lost calls and registrations,
//! and late answers.

use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::{Config, Load, Report, Server, free_port};

/// Time for the last calls to end after the load.
const DRAIN: Duration = Duration::from_secs(60);

/// The load, and how often the operator acts.
#[derive(Clone, Copy, Debug)]
pub struct Exercise {
    /// Calls per second, each with up to two seconds of talk.
    pub calls: u32,
    /// REGISTERs per second.
    pub registrations: u32,
    /// Number of acts.
    pub rounds: u32,
    /// Time before each act, and after the last one.
    pub interval: Duration,
}

/// What one kind of clients has noticed.
#[derive(Clone, Debug)]
pub struct Noticed {
    /// Number of calls or registrations that were begun, and that succeeded.
    pub begun: u64,
    /// Those that succeeded.
    pub carried: u64,
    /// For each kind of answer its name, the number of answers, and the longest time until one came.
    pub answers: Vec<(String, u64, Duration)>,
}

/// What calls and registrations have noticed.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The calls.
    pub calls: Noticed,
    /// The registrations.
    pub registrations: Noticed,
}

impl Outcome {
    /// Returns the number of calls and registrations that did not succeed.
    #[must_use]
    pub fn lost(&self) -> u64 {
        [&self.calls, &self.registrations].iter().map(|noticed| noticed.begun - noticed.carried).sum()
    }

    /// Returns the longest time until an answer came.
    #[must_use]
    pub fn longest(&self) -> Duration {
        let all = self.calls.answers.iter().chain(&self.registrations.answers);
        all.map(|(_, _, longest)| *longest).max().unwrap_or_default()
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, noticed) in [("calls", &self.calls), ("registrations", &self.registrations)] {
            writeln!(f, "{name}: {} of {} succeeded", noticed.carried, noticed.begun)?;
            for (answer, count, longest) in &noticed.answers {
                writeln!(f, "  {answer}: {count}, the latest after {:.1} ms", longest.as_secs_f64() * 1e3)?;
            }
        }
        Ok(())
    }
}

/// Puts load on the server at `address` and calls `act` with the number of the round, from 0.
pub fn exercise(address: SocketAddr, how: &Exercise, mut act: impl FnMut(u32)) -> Outcome {
    let run = |words: &str| Load::start(&format!("--to udp:{address} --arrivals uniform --time 10m {words}"));
    let calls = run(&format!("--rate {} --set hold=uniform(min=0s,max=2s) --users 200 --seed 1", how.calls));
    let users = "--users 400 --user-pattern phone%";
    let registrations = run(&format!("--workload registration --rate {} {users} --seed 2", how.registrations));
    for round in 0..how.rounds {
        std::thread::sleep(how.interval);
        act(round);
    }
    std::thread::sleep(how.interval);
    let registrations = noticed(&registrations.end(DRAIN), &[("REGISTER", "2xx")]);
    let calls = noticed(&calls.end(DRAIN), &[("INVITE", "1xx"), ("INVITE", "2xx"), ("BYE", "2xx")]);
    Outcome { calls, registrations }
}

fn noticed(report: &Report, answers: &[(&str, &str)]) -> Noticed {
    let answer = |(method, answer): &(&str, &str)| {
        let (count, longest) = report.answers(method, answer);
        (format!("{answer} to {method}"), count, longest)
    };
    let answers = answers.iter().map(answer).collect();
    Noticed { begun: report.count("sent"), carried: report.count("carried"), answers }
}

/// The acts of an operator who reloads a configuration with other listeners and other values each time.
#[derive(Debug)]
pub struct Reloads {
    server: Server,
    /// The configuration at the start, without the keys that change.
    text: String,
    ports: [u16; 2],
}

impl Reloads {
    /// Starts a server. Its processes use `workers` threads.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start(workers: u8) -> Reloads {
        let domains = vec!["127.0.0.1"];
        let config = Config { tcp: true, workers, domains, users: Vec::new(), ..Config::open() };
        let server = config.start();
        let text = fs::read_to_string(server.file()).expect("the configuration can be read");
        Reloads { server, text, ports: [free_port(), free_port()] }
    }

    /// Returns the address that stays.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Reloads another configuration. Returns what the command prints.
    ///
    /// # Panics
    /// If the server refuses it, or does not listen as it says.
    pub fn reload(&self, round: u32) -> String {
        let [even, odd] = self.ports;
        let port = if round.is_multiple_of(2) { even } else { odd };
        let address = self.address();
        let more = format!("\"udp:127.0.0.1:{port}\", \"tcp:127.0.0.1:{port}\"");
        let text = self.text.replace(&format!("\"tcp:{address}\""), &format!("\"tcp:{address}\", {more}"));
        assert_ne!(text, self.text, "the configuration names its listener");
        let minutes = 60 + round;
        let text = text.replace("max = \"2h\"", &format!("max = \"{minutes}m\""));
        let values = format!(
            "[tcp]\nidle = \"{minutes}m\"\nper_source = {}\n[dns]\ntimeout = \"{}ms\"\n[log]\nlevel = \"{}\"\n",
            200 + round,
            1000 + round,
            if round.is_multiple_of(2) { "warn" } else { "info" }
        );
        fs::write(self.server.file(), format!("{text}\n{values}")).expect("the configuration can be written");
        let printed = self.server.control(&["reload"]);
        let listeners = self.server.status()["listeners"].to_string();
        assert!(listeners.contains(&format!("\"udp:127.0.0.1:{port}\"")), "{listeners}");
        printed
    }
}

/// The acts of an operator who upgrades a server again and again to the same program.
#[derive(Debug)]
pub struct Upgrades {
    server: Server,
    /// Processes that an upgrade has started.
    pids: Mutex<Vec<u64>>,
}

impl Upgrades {
    /// Starts a server whose processes use `workers` threads, and that stores registrations in this mode.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start(workers: u8, store: &'static str) -> Upgrades {
        let domains = vec!["127.0.0.1"];
        let config = Config { workers, domains, users: Vec::new(), store, ..Config::open() };
        Upgrades::of(config.start())
    }

    /// Upgrades this server.
    #[must_use]
    pub fn of(server: Server) -> Upgrades {
        Upgrades { server, pids: Mutex::default() }
    }

    /// Returns the server, whichever process it is.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Returns the address of the server.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Upgrades the server. Returns what the command prints.
    ///
    /// # Panics
    /// If that fails.
    pub fn upgrade(&self) -> String {
        let printed = self.server.command(&["upgrade"]);
        let pid = self.server.status()["pid"].as_u64().expect("a process");
        self.pids.lock().unwrap_or_else(PoisonError::into_inner).push(pid);
        printed
    }
}

impl Drop for Upgrades {
    fn drop(&mut self) {
        for pid in self.pids.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // Those before have ended, or are about to.
            let kill = Command::new("kill").args(["-s", "KILL", &pid.to_string()]).stderr(Stdio::null()).status();
            drop(kill);
        }
    }
}
