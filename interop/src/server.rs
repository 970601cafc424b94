//! The server under test.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::machine::Machine;
use crate::namespace::Namespace;
use crate::process::{Process, read, tail};
use crate::{PATIENCE, free_port, poll};

/// File name of a shared key.
const KEY: &str = "shared.key";

/// Configuration of a server under test.
#[derive(Clone, Debug)]
pub struct Config {
    /// Loopback address to listen on.
    pub host: IpAddr,
    /// Port to listen on.
    pub port: u16,
    /// Whether to accept TCP connections as well.
    pub tcp: bool,
    /// Number of worker threads.
    pub workers: u8,
    /// Domains served. The first is the realm of challenges.
    pub domains: Vec<&'static str>,
    /// Subscribers created before the start: address of record and password.
    pub users: Vec<(&'static str, &'static str)>,
    /// Digest algorithms in order, one challenge each.
    pub algorithms: Vec<&'static str>,
    /// Methods that require credentials.
    pub require: Vec<&'static str>,
    /// Source addresses that require no credentials.
    pub trusted: Vec<&'static str>,
    /// Maximum ringing time.
    pub ring_timeout: &'static str,
    /// Further keys of the section `[server]`, as TOML.
    pub server: &'static str,
    /// Further keys of the section `[proxy]`, as TOML.
    pub proxy: String,
    /// Routes. The first match wins.
    pub routes: Vec<Route>,
    /// Additional listeners, such as `tcp:[::1]:5060`.
    pub listeners: Vec<String>,
    /// Storage mode of registrations: `mode` in the section `[store]`.
    pub store: &'static str,
    /// Keys of the section `[store]` that concern users, as TOML.
    pub users_in: String,
    /// Further keys of the section `[registrar]`, as TOML.
    pub registrar: &'static str,
    /// Further sections of the configuration, as TOML.
    pub more: String,
    /// Signing key, if it is shared with another server.
    pub key: Option<[u8; 16]>,
    /// Whether the listening address may at times belong to another machine. The server then counts as ready when its
    /// control socket answers.
    pub roams: bool,
}

/// Routing rule for requests to one domain.
#[derive(Clone, Debug)]
pub struct Route {
    /// Domain of the Request-URI, or `*`.
    pub domain: &'static str,
    /// `proxy`, `redirect` or `reject`.
    pub action: &'static str,
    /// Targets as SIP URIs.
    pub targets: Vec<String>,
}

/// MD5 is the only algorithm: `baresip` 1.0 gives up if any challenge names another one, and `SIPp` 3.6 if the first
/// challenge does.
impl Default for Config {
    fn default() -> Config {
        Config {
            host: Ipv4Addr::LOCALHOST.into(),
            port: free_port(),
            tcp: false,
            workers: 1,
            domains: vec!["example.com"],
            users: vec![
                ("alice@example.com", "secret of alice"),
                ("bob@example.com", "secret of bob"),
                ("carol@example.com", "secret of carol"),
            ],
            algorithms: vec!["MD5"],
            require: vec!["REGISTER", "INVITE"],
            trusted: Vec::new(),
            ring_timeout: "3m",
            server: "",
            proxy: String::new(),
            routes: Vec::new(),
            listeners: Vec::new(),
            store: "write-through",
            users_in: String::new(),
            registrar: "",
            more: String::new(),
            key: None,
            roams: false,
        }
    }
}

impl Config {
    /// Returns the configuration of a server that asks for no passwords.
    #[must_use]
    pub fn open() -> Config {
        Config { require: Vec::new(), ..Config::default() }
    }

    /// Writes the configuration, adds the users, starts the server and waits until it answers.
    ///
    /// # Panics
    /// If the server executable is missing or does not answer.
    #[must_use]
    pub fn start(self) -> Server {
        self.start_in(None)
    }

    /// Like [`Config::start`], optionally in a network namespace.
    ///
    /// # Panics
    /// If the server executable is missing or does not answer.
    #[must_use]
    pub fn start_in(self, network: Option<&Namespace>) -> Server {
        let folder = tempfile::Builder::new().prefix("strowger-").tempdir().expect("a temporary folder");
        let file = folder.path().join("strowger.toml");
        fs::write(&file, self.to_toml(folder.path())).expect("the configuration can be written");
        if let Some(key) = &self.key {
            write_key(&folder.path().join(KEY), key);
        }
        let file = Configuration { file, name: None };
        for (who, password) in &self.users {
            command(&file, &["user", "add"], &[who, "--password", password]);
        }
        let process = serve(network, &file);
        let mut server = Server { process, address: self.address(), file, folder: Arc::new(folder) };
        if self.roams {
            server.wait_until_it_is_asked();
            return server;
        }
        server.wait_in(network);
        server
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::new(self.host, self.port)
    }

    fn to_toml(&self, folder: &Path) -> String {
        let Config { workers, domains, algorithms, require, trusted, ring_timeout, proxy, store, .. } = self;
        let Config { server, users_in, registrar, .. } = self;
        let address = self.address();
        let transports: &[&str] = if self.tcp { &["udp", "tcp"] } else { &["udp"] };
        let own = transports.iter().map(|transport| format!("{transport}:{address}"));
        let listen: Vec<String> = own.chain(self.listeners.iter().cloned()).collect();
        let realm = domains.first().expect("a server has a domain");
        let data = folder.join("data").display().to_string();
        let key = if self.key.is_some() { format!("key_file = {:?}", folder.join(KEY)) } else { String::new() };
        let mut text = format!(
            r#"[server]
listen  = {listen:?}
domains = {domains:?}
data    = {data:?}
workers = {workers}
{key}
{server}

[store]
url = "sqlite:{data}/strowger.db"
mode = {store:?}
{users_in}

[control]
socket = "{data}/control.sock"

[registrar]
expires = {{ default = "1h", min = "1m", max = "2h" }}
{registrar}

[auth]
realm      = {realm:?}
algorithms = {algorithms:?}
require    = {require:?}
trusted    = {trusted:?}

[proxy]
ring_timeout = {ring_timeout:?}
{proxy}
"#
        );
        for Route { domain, action, targets } in &self.routes {
            text.push_str(&format!(
                "\n[[route]]\nmatch = {{ domain = {domain:?} }}\naction = {action:?}\n\
                 stateless = \"never\"\ntargets = {targets:?}\n"
            ));
        }
        text + &self.more
    }
}

/// A running server. Dropping it kills the process, and prints its log if the test has failed.
#[derive(Debug)]
pub struct Server {
    process: Process,
    address: SocketAddr,
    file: Configuration,
    folder: Arc<TempDir>,
}

/// A server's configuration file, and its name in that file if the file describes several servers.
#[derive(Clone, Debug)]
struct Configuration {
    file: PathBuf,
    name: Option<String>,
}

impl Server {
    /// Starts one server of a configuration file for several, without waiting for it. See [`Server::wait`].
    pub(crate) fn of_several(
        (folder, file): (&Arc<TempDir>, &Path),
        name: &str,
        (machine, address): (&Machine, SocketAddr),
    ) -> Server {
        let file = Configuration { file: file.to_owned(), name: Some(name.to_owned()) };
        let process = serve(machine.network(), &file);
        Server { process, address, file, folder: Arc::clone(folder) }
    }

    /// Returns the listening address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Adds a subscriber while the server runs.
    ///
    /// # Panics
    /// If the command fails.
    pub fn add_user(&self, who: &str, password: &str) {
        command(&self.file, &["user", "add"], &[who, "--password", password]);
    }

    /// Runs `strowger user` with the server's configuration and arguments such as `["disable", "alice"]`.
    ///
    /// # Panics
    /// If the command fails.
    pub fn user(&self, arguments: &[&str]) {
        command(&self.file, &["user"], arguments);
    }

    /// Returns the number of bindings from `ctl status`.
    ///
    /// # Panics
    /// If the command fails or its output has no such number.
    #[must_use]
    pub fn registrations(&self) -> u64 {
        let status = self.status();
        status["registrations"].as_u64().unwrap_or_else(|| panic!("no count of registrations in {status}"))
    }

    /// Returns the output of `ctl status`.
    ///
    /// # Panics
    /// If the command fails or prints no JSON.
    #[must_use]
    pub fn status(&self) -> Value {
        self.ctl("status")
    }

    /// Returns the calls in progress from `ctl calls`.
    ///
    /// # Panics
    /// If the command fails or its output has no list.
    #[must_use]
    pub fn calls(&self) -> Vec<Value> {
        let answer = self.ctl("calls");
        answer["calls"].as_array().unwrap_or_else(|| panic!("no list of calls in {answer}")).clone()
    }

    /// Returns the records of ended calls. Requires `[cdr] file = "cdr.json"` in the configuration.
    ///
    /// # Panics
    /// If a line is not JSON.
    #[must_use]
    pub fn records(&self) -> Vec<Value> {
        let text = read(&self.folder.path().join("cdr.json"));
        text.lines().map(|line| serde_json::from_str(line).expect("a record is JSON")).collect()
    }

    /// Returns the targets of the server's sets from `ctl targets`.
    ///
    /// # Panics
    /// If the command fails or its output has no list.
    #[must_use]
    pub fn targets(&self) -> Vec<Value> {
        let answer = self.ctl("targets");
        answer["targets"].as_array().unwrap_or_else(|| panic!("no list of targets in {answer}")).clone()
    }

    /// Returns the addresses of record with at least one contact from `ctl registrations`, of up to 10,000 contacts.
    ///
    /// # Panics
    /// If the command fails or its output has no list.
    #[must_use]
    pub fn registered(&self) -> BTreeSet<String> {
        let text = self.control(&["registrations", "--limit", "10000", "--json"]);
        let answer: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("no JSON ({error}): {text}"));
        let rows = answer["registrations"].as_array().unwrap_or_else(|| panic!("no registrations in {answer}"));
        rows.iter().filter_map(|row| row["aor"].as_str().map(str::to_owned)).collect()
    }

    /// Returns the output of `check --connect --json`, whatever its exit code.
    ///
    /// # Panics
    /// If it prints no JSON.
    #[must_use]
    pub fn check_connections(&self) -> Value {
        let arguments = arguments(&self.file, &["check"], &["--connect", "--json"]);
        let mut process = Process::start(&binary(), &arguments, self.folder.path().join("check.log"));
        assert!(process.wait(PATIENCE).is_some(), "`check` does not end");
        let text = process.output();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("no JSON ({error}): {text}\n{}", process.errors()))
    }

    /// Returns the output of `ctl QUESTION --json`.
    fn ctl(&self, question: &str) -> Value {
        let text = self.control(&[question, "--json"]);
        serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("`ctl {question} --json` printed no JSON ({error}): {text}"))
    }

    /// Returns the output of `ctl` with these arguments.
    ///
    /// # Panics
    /// If the command fails.
    pub fn control(&self, words: &[&str]) -> String {
        command(&self.file, &[&["ctl"], words].concat(), &[])
    }

    /// Starts a trace with these arguments of `ctl trace` and waits until it runs. Its output goes to files beside the
    /// server's.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn trace(&self, words: &[&str]) -> Process {
        let arguments = arguments(&self.file, &["ctl", "trace"], words);
        let mut process = Process::start(&binary(), &arguments, self.folder.path().join("trace.log"));
        let runs = poll(PATIENCE, || {
            assert!(process.ended().is_none(), "the trace ends: {}", process.errors());
            process.errors().contains("waiting for messages").then_some(())
        });
        assert!(runs.is_some(), "the trace does not start: {}", process.errors());
        process
    }

    /// Returns the output of `strowger` with these arguments and the server's configuration.
    ///
    /// # Panics
    /// If the command fails.
    pub fn command(&self, words: &[&str]) -> String {
        command(&self.file, words, &[])
    }

    /// Returns why `strowger` refuses these arguments.
    ///
    /// # Panics
    /// If it does not.
    #[must_use]
    pub fn refused_command(&self, words: &[&str]) -> String {
        let (status, output, errors) = run(&self.file, words, &[]);
        assert_eq!(status.and_then(|status| status.code()), Some(1), "{output}{errors}");
        errors
    }

    /// Returns the path of the configuration file.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file.file
    }

    /// Returns the process ID.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Terminates the server (SIGTERM) and waits for its exit.
    ///
    /// # Panics
    /// If it does not end, or exits with an error.
    pub fn terminate(&mut self) {
        self.process.signal("TERM");
        let status = self.process.wait(PATIENCE);
        assert!(
            status.is_some_and(|status| status.success()),
            "the server ended with {status:?} instead of exiting cleanly:\n{}",
            self.log()
        );
    }

    /// Waits until none of its targets has a call or other work in progress.
    ///
    /// # Panics
    /// When something is left.
    pub fn wait_until_at_rest(&self) {
        let counts = ["calls", "transactions", "work"];
        let is_idle = |target: &Value| counts.iter().all(|count| target[count].as_f64() == Some(0.0));
        // A transaction whose last message went elsewhere ends with its timers (RFC 3261 §17: 32 s).
        let rest = poll(Duration::from_secs(40), || self.targets().iter().all(is_idle).then_some(()));
        assert!(rest.is_some(), "something is left: {:#?}", self.targets());
    }

    /// Stops the server (SIGSTOP) for this time, like a paused machine.
    pub fn pause(&self, time: Duration) {
        self.process.signal("STOP");
        std::thread::sleep(time);
        self.process.signal("CONT");
    }

    /// Stops the server (SIGSTOP). Incoming messages stay queued.
    pub fn stop(&self) {
        self.process.signal("STOP");
    }

    /// Continues the server after [`Server::stop`].
    pub fn go_on(&self) {
        self.process.signal("CONT");
    }

    /// Kills the server (SIGKILL) unless it is already dead, and waits until it is gone.
    ///
    /// # Panics
    /// If it does not end.
    pub fn kill(&mut self) {
        self.process.kill();
        assert!(self.process.wait(PATIENCE).is_some(), "the server does not end after SIGKILL");
    }

    /// Starts the server again with the data it has left behind and a new log, without waiting for it.
    pub fn begin(&mut self) {
        self.process = serve(None, &self.file);
    }

    /// [Starts](Self::begin) the server again and waits until it answers.
    ///
    /// # Panics
    /// If it does not answer.
    pub fn restart(&mut self) {
        self.restart_on(&Machine::local());
    }

    /// Like [`restart`](Self::restart), for a server on the given machine.
    ///
    /// # Panics
    /// If it does not answer.
    pub fn restart_on(&mut self, machine: &Machine) {
        self.restart_in(machine.network());
    }

    /// Like [`restart`](Self::restart), optionally in a network namespace.
    ///
    /// # Panics
    /// If it does not answer.
    pub fn restart_in(&mut self, network: Option<&Namespace>) {
        self.process = serve(network, &self.file);
        self.wait_in(network);
    }

    /// Waits until the server on this machine answers.
    pub(crate) fn wait(&mut self, machine: &Machine) {
        self.wait_in(machine.network());
    }

    fn wait_in(&mut self, network: Option<&Namespace>) {
        let bind = || UdpSocket::bind((self.address.ip(), 0)).expect("a socket");
        let socket = network.map_or_else(bind, |network| network.inside(bind));
        self.wait_until_it_answers(&socket);
    }

    /// Returns the log so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.output() + &self.process.errors()
    }

    /// Waits until the server answers `status` on its control socket.
    fn wait_until_it_is_asked(&mut self) {
        let socket = self.folder.path().join("data/control.sock");
        let opened = poll(PATIENCE, || {
            if let Some(status) = self.process.ended() {
                panic!("the server ended with {status}:\n{}", self.log());
            }
            UnixStream::connect(&socket).ok()
        });
        assert!(opened.is_some(), "the server has no control socket:\n{}", self.log());
        let _ = self.status();
    }

    /// Waits until the server answers an OPTIONS addressed to itself.
    fn wait_until_it_answers(&mut self, socket: &UdpSocket) {
        socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a time-out can be set");
        let (server, local) = (self.address, socket.local_addr().expect("a bound socket has an address"));
        let mut attempt = 0;
        let answered = poll(PATIENCE, || {
            if let Some(status) = self.process.ended() {
                panic!("the server ended with {status}:\n{}", self.log());
            }
            attempt += 1;
            let request = format!(
                "OPTIONS sip:{server} SIP/2.0\r\n\
                 Via: SIP/2.0/UDP {local};branch=z9hG4bK-ready-{attempt}\r\n\
                 Max-Forwards: 70\r\n\
                 From: <sip:ready@{local}>;tag=ready\r\n\
                 To: <sip:{server}>\r\n\
                 Call-ID: ready-{attempt}@{local}\r\n\
                 CSeq: {attempt} OPTIONS\r\n\
                 Content-Length: 0\r\n\r\n"
            );
            socket.send_to(request.as_bytes(), server).ok()?;
            let mut response = [0; 2048];
            let length = socket.recv(&mut response).ok()?;
            response[..length].starts_with(b"SIP/2.0 200 ").then_some(())
        });
        assert!(answered.is_some(), "the server answers no OPTIONS:\n{}", self.log());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the server's log ---\n{}", tail(&self.log(), 60));
        }
    }
}

/// Writes the key file, readable only by its owner.
fn write_key(file: &Path, key: &[u8; 16]) {
    let made = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
    made.and_then(|mut file| file.write_all(key)).expect("the key can be written");
}

fn serve(network: Option<&Namespace>, config: &Configuration) -> Process {
    let log = format!("{}.log", config.name.as_deref().unwrap_or("server"));
    Process::start_in(network, &binary(), &arguments(config, &["serve"], &[]), config.file.with_file_name(log))
}

/// Runs one `strowger` command to completion and returns its output.
fn command(config: &Configuration, verb: &[&str], rest: &[&str]) -> String {
    let (status, output, errors) = run(config, verb, rest);
    assert!(
        status.is_some_and(|status| status.success()),
        "`strowger {} {}`: {status:?}\n{output}{errors}",
        verb.join(" "),
        rest.join(" "),
    );
    output
}

/// Runs a command; returns its status, if it has ended in time, its output and its error messages.
fn run(config: &Configuration, verb: &[&str], rest: &[&str]) -> (Option<ExitStatus>, String, String) {
    let folder = tempfile::Builder::new().prefix("strowger-command-").tempdir().expect("a temporary folder");
    let mut process = Process::start(&binary(), &arguments(config, verb, rest), folder.path().join("command.log"));
    (process.wait(PATIENCE), process.output(), process.errors())
}

fn arguments(config: &Configuration, verb: &[&str], rest: &[&str]) -> Vec<String> {
    let file = config.file.display().to_string();
    let name = config.name.as_deref().map(|name| ["--as", name]);
    let which = ["-c", file.as_str()].into_iter().chain(name.into_iter().flatten());
    verb.iter().copied().chain(which).chain(rest.iter().copied()).map(str::to_owned).collect()
}

/// Returns `STROWGER_BIN`, or else the binary built with the tests, or else the one in the workspace's target folder.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn binary() -> PathBuf {
    if let Some(path) = env::var_os("STROWGER_BIN") {
        return PathBuf::from(path);
    }
    let executable = env::current_exe().expect("a running program has an executable");
    // Tests are in target/PROFILE/deps, other programs beside the server.
    let [beside, profile] = [1, 2].map(|level| executable.ancestors().nth(level).unwrap_or(Path::new("/")));
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target");
    let places = [beside.to_path_buf(), profile.to_path_buf(), target.join("release"), target.join("debug")];
    let found = places.iter().map(|place| place.join("strowger")).find(|file| file.is_file());
    found.unwrap_or_else(|| {
        panic!("no server to test in {places:?}: run `cargo build --bin strowger`, or set STROWGER_BIN")
    })
}
