//! `SIPp` and its scenarios.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use crate::process::{Process, read, tail};
use crate::{PATIENCE, Program, Server, free_port, poll};

/// Time after which `SIPp` itself gives up, so that the failed test shows SIPp's own message.
const TIMEOUT_S: u64 = 30;

/// One `SIPp` run: a scenario of `interop/scenarios` and its parameters.
#[derive(Clone, Debug)]
pub struct Sipp {
    scenario: &'static str,
    remote: SocketAddr,
    host: Ipv4Addr,
    port: u16,
    calls: u32,
    rate: u32,
    login: Option<[String; 3]>,
    mode: &'static str,
    keys: Vec<(&'static str, String)>,
}

impl Sipp {
    /// Creates a run that plays the scenario once, from a free port, towards `remote`.
    ///
    /// Keywords have these values unless [`Sipp::key`] changes them: `caller` = `alice`, `callee` = `bob`, `domain` =
    /// `example.com`.
    #[must_use]
    pub fn new(scenario: &'static str, remote: SocketAddr) -> Sipp {
        let keys = [("caller", "alice"), ("callee", "bob"), ("domain", "example.com")];
        let keys = keys.map(|(keyword, value)| (keyword, value.to_owned())).to_vec();
        let (host, port) = (Ipv4Addr::LOCALHOST, free_port());
        Sipp { scenario, remote, host, port, calls: 1, rate: 10, login: None, mode: "u1", keys }
    }

    /// Sets the local address.
    #[must_use]
    pub fn host(self, host: Ipv4Addr) -> Sipp {
        Sipp { host, ..self }
    }

    /// Sets the local port.
    #[must_use]
    pub fn port(self, port: u16) -> Sipp {
        Sipp { port, ..self }
    }

    /// Plays the scenario `calls` times, at `rate` calls per second.
    #[must_use]
    pub fn calls(self, calls: u32, rate: u32) -> Sipp {
        Sipp { calls, rate, ..self }
    }

    /// Sets the transport mode, SIPp's option `-t`: `u1` (UDP), `t1` (one TCP connection) or `tn` (one per call).
    #[must_use]
    pub fn mode(self, mode: &'static str) -> Sipp {
        Sipp { mode, ..self }
    }

    /// Sets the value of `[keyword]` in the scenario, and of `@keyword@` where `SIPp` accepts no keyword.
    #[must_use]
    pub fn key(mut self, keyword: &'static str, value: &str) -> Sipp {
        self.keys.retain(|(other, _)| *other != keyword);
        self.keys.push((keyword, value.to_owned()));
        self
    }

    /// Answers challenges. `uri` is the Request-URI without its scheme. By default `SIPp` computes the digest with
    /// the address it sends to, but the server compares it with the Request-URI (RFC 7616 §3.4.6).
    #[must_use]
    pub fn login(self, user: &str, password: &str, uri: &str) -> Sipp {
        Sipp { login: Some([user, password, uri].map(str::to_owned)), ..self }
    }

    /// Starts `SIPp` and returns when its socket is open.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start(self) -> SippRun {
        let folder = tempfile::Builder::new().prefix("sipp-").tempdir().expect("a temporary folder");
        let file = folder.path().join("scenario.xml");
        fs::write(&file, self.scenario_text()).expect("the scenario can be written");
        let mut process =
            Process::start(&Program::Sipp.path(), &self.arguments(&file), folder.path().join("screen.log"));
        let opened = poll(PATIENCE, || (process.ended().is_some() || self.is_open()).then_some(()));
        assert!(opened.is_some(), "sipp does not open its socket");
        SippRun { scenario: self.scenario, process, folder, reported: false }
    }

    /// Plays the scenario to its end.
    ///
    /// # Panics
    /// If a call fails.
    pub fn run(self) {
        self.start().finish();
    }

    /// Returns whether a process has the port open, without binding it.
    fn is_open(&self) -> bool {
        let table = if self.mode.starts_with('t') { "/proc/net/tcp" } else { "/proc/net/udp" };
        let address = u32::from_ne_bytes(self.host.octets());
        read(Path::new(table)).contains(&format!(" {address:08X}:{:04X} ", self.port))
    }

    fn scenario_text(&self) -> String {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("scenarios/{}.xml", self.scenario));
        let mut text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        for (keyword, value) in &self.keys {
            text = text.replace(&format!("@{keyword}@"), value);
        }
        text
    }

    fn arguments(&self, file: &Path) -> Vec<String> {
        let mut words = vec![
            self.remote.to_string(),
            format!("-sf {}", file.display()),
            format!("-i {} -bind_local -p {} -t {} -max_socket 1000", self.host, self.port, self.mode),
            format!("-m {} -r {}", self.calls, self.rate),
            format!("-timeout {TIMEOUT_S} -timeout_error -nostdin"),
            "-trace_msg -message_file messages.log -trace_err -error_file errors.log".to_owned(),
        ];
        words = words.iter().flat_map(|group| group.split(' ')).map(str::to_owned).collect();
        for (keyword, value) in &self.keys {
            words.extend(["-key".to_owned(), (*keyword).to_owned(), value.clone()]);
        }
        if let Some([user, password, uri]) = &self.login {
            words.extend(["-au", user, "-ap", password, "-auth_uri", uri].map(str::to_owned));
        }
        words
    }
}

/// A running `SIPp`.
#[derive(Debug)]
pub struct SippRun {
    scenario: &'static str,
    process: Process,
    folder: TempDir,
    reported: bool,
}

impl SippRun {
    /// Waits for the end of all calls.
    ///
    /// # Panics
    /// If a call failed. The message contains SIPp's errors.
    pub fn finish(mut self) {
        let status = self.process.wait(Duration::from_secs(TIMEOUT_S + 5));
        self.reported = true;
        if status.is_none_or(|status| !status.success()) {
            panic!(
                "sipp {}: {status:?}\n{}\n--- errors ---\n{}\n--- messages ---\n{}",
                self.scenario,
                self.process.errors(),
                tail(&read(&self.folder.path().join("errors.log")), 80),
                tail(&self.messages(), 200)
            );
        }
    }

    /// Returns all messages sent and received so far.
    #[must_use]
    pub fn messages(&self) -> String {
        read(&self.folder.path().join("messages.log"))
    }
}

impl Drop for SippRun {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.reported {
            eprintln!("--- sipp {} ---\n{}", self.scenario, tail(&self.messages(), 100));
        }
    }
}

/// Registers `user` of example.com with `contact` at a server without authentication. The REGISTER is sent from
/// `port`, since a server may treat its source address as the phone's address.
///
/// # Panics
/// If the registration is refused.
pub fn register(server: &Server, user: &str, contact: &str, port: u16) {
    Sipp::new("register", server.address()).port(port).key("caller", user).key("contact", contact).run();
}
