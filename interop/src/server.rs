//! The server under test.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::machine::Machine;
use crate::namespace::Namespace;
use crate::process::{Process, read, tail};
use crate::{PATIENCE, free_port, poll};

/// The file of a key that is shared.
const KEY: &str = "shared.key";

/// What a test wants its server to be like.
#[derive(Clone, Debug)]
pub struct Config {
    /// The loopback address that it listens on.
    pub host: IpAddr,
    /// The port there.
    pub port: u16,
    /// Whether it takes TCP connections there, too.
    pub tcp: bool,
    /// Its threads.
    pub workers: u8,
    /// The domains that it serves; the first is the realm of its challenges.
    pub domains: Vec<&'static str>,
    /// Subscribers that exist before it starts: address of record and password.
    pub users: Vec<(&'static str, &'static str)>,
    /// Digest algorithms, one challenge each, in this order.
    pub algorithms: Vec<&'static str>,
    /// Methods that need credentials.
    pub require: Vec<&'static str>,
    /// Source addresses that need none.
    pub trusted: Vec<&'static str>,
    /// How long a phone may ring.
    pub ring_timeout: &'static str,
    /// What its section `[server]` says besides, as TOML.
    pub server: &'static str,
    /// What its section `[proxy]` says besides, as TOML.
    pub proxy: String,
    /// Routes, the first match wins.
    pub routes: Vec<Route>,
    /// Listeners elsewhere, as `tcp:[::1]:5060`.
    pub listeners: Vec<String>,
    /// Where registrations live: the mode of its section `[store]`.
    pub store: &'static str,
    /// What its section `[store]` says of users, as TOML.
    pub users_in: String,
    /// What its section `[registrar]` says besides.
    pub registrar: &'static str,
    /// What its configuration says besides, as TOML.
    pub more: String,
    /// The key that it signs with, where it shares that with another.
    pub key: Option<[u8; 16]>,
    /// Whether its address may be another machine's at times: then it is ready when its control socket says so.
    pub roams: bool,
}

/// Where requests for one domain go.
#[derive(Clone, Debug)]
pub struct Route {
    /// The domain of the Request-URI, or `*`.
    pub domain: &'static str,
    /// `proxy`, `redirect` or `reject`.
    pub action: &'static str,
    /// SIP URIs.
    pub targets: Vec<String>,
}

/// The only algorithm is MD5: `baresip` 1.0 gives up when any challenge names another, and `SIPp` 3.6
/// when the first does.
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
    /// A server that asks nobody for a password.
    #[must_use]
    pub fn open() -> Config {
        Config { require: Vec::new(), ..Config::default() }
    }

    /// Writes the configuration, adds the users, starts the server and waits until it answers.
    ///
    /// # Panics
    /// When there is no server to start, or it does not answer.
    #[must_use]
    pub fn start(self) -> Server {
        self.start_in(None)
    }

    /// Like [`Config::start`], in a network of its own where there is one.
    ///
    /// # Panics
    /// When there is no server to start, or it does not answer.
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
        let address = self.address();
        let mut server = Server { process, address, file, folder: Arc::new(folder) };
        if self.roams {
            server.wait_until_it_is_asked();
            return server;
        }
        let bind = || UdpSocket::bind((address.ip(), 0)).expect("a socket");
        let socket = network.map_or_else(bind, |network| network.inside(bind));
        server.wait_until_it_answers(&socket);
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

/// A running server; dropping it kills it, and shows its log when the test has failed.
#[derive(Debug)]
pub struct Server {
    process: Process,
    address: SocketAddr,
    file: Configuration,
    folder: Arc<TempDir>,
}

/// The configuration that a server reads, and which of its servers it is, where the file is for several.
#[derive(Clone, Debug)]
struct Configuration {
    file: PathBuf,
    name: Option<String>,
}

impl Server {
    /// Starts the server of this name of a file that is for several, without waiting for it; see [`Server::wait`].
    pub(crate) fn of_several(
        (folder, file): (&Arc<TempDir>, &Path),
        name: &str,
        (machine, address): (&Machine, SocketAddr),
    ) -> Server {
        let file = Configuration { file: file.to_owned(), name: Some(name.to_owned()) };
        let process = serve(machine.network(), &file);
        Server { process, address, file, folder: Arc::clone(folder) }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Adds a subscriber while the server runs.
    ///
    /// # Panics
    /// When the command fails.
    pub fn add_user(&self, who: &str, password: &str) {
        command(&self.file, &["user", "add"], &[who, "--password", password]);
    }

    /// Runs `strowger user` with the server's configuration, as `["disable", "alice"]`.
    ///
    /// # Panics
    /// When the command fails.
    pub fn user(&self, arguments: &[&str]) {
        command(&self.file, &["user"], arguments);
    }

    /// How many bindings the running server has, as `ctl status` says.
    ///
    /// # Panics
    /// When the command fails or its answer has no such number.
    #[must_use]
    pub fn registrations(&self) -> u64 {
        let status = self.status();
        status["registrations"].as_u64().unwrap_or_else(|| panic!("no count of registrations in {status}"))
    }

    /// What `ctl status` says.
    ///
    /// # Panics
    /// When the command fails or its answer is no JSON.
    #[must_use]
    pub fn status(&self) -> Value {
        self.ctl("status")
    }

    /// The calls in progress, as `ctl calls` lists them.
    ///
    /// # Panics
    /// When the command fails or its answer has no list.
    #[must_use]
    pub fn calls(&self) -> Vec<Value> {
        let answer = self.ctl("calls");
        answer["calls"].as_array().unwrap_or_else(|| panic!("no list of calls in {answer}")).clone()
    }

    /// The records of ended calls, where the configuration says `[cdr] file = "cdr.json"`.
    ///
    /// # Panics
    /// When a line is no JSON.
    #[must_use]
    pub fn records(&self) -> Vec<Value> {
        let text = read(&self.folder.path().join("cdr.json"));
        text.lines().map(|line| serde_json::from_str(line).expect("a record is JSON")).collect()
    }

    /// The targets of its sets, as `ctl targets` lists them.
    ///
    /// # Panics
    /// When the command fails or its answer has no list.
    #[must_use]
    pub fn targets(&self) -> Vec<Value> {
        let answer = self.ctl("targets");
        answer["targets"].as_array().unwrap_or_else(|| panic!("no list of targets in {answer}")).clone()
    }

    /// The addresses of record that it has contacts of, as `ctl registrations` lists them: of at most 10,000 contacts.
    ///
    /// # Panics
    /// When the command fails or its answer has no list.
    #[must_use]
    pub fn registered(&self) -> BTreeSet<String> {
        let text = self.control(&["registrations", "--limit", "10000", "--json"]);
        let answer: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("no JSON ({error}): {text}"));
        let rows = answer["registrations"].as_array().unwrap_or_else(|| panic!("no registrations in {answer}"));
        rows.iter().filter_map(|row| row["aor"].as_str().map(str::to_owned)).collect()
    }

    /// What `check --connect --json` prints, whatever it finds.
    ///
    /// # Panics
    /// When it prints no JSON.
    #[must_use]
    pub fn check_connections(&self) -> Value {
        let arguments = arguments(&self.file, &["check"], &["--connect", "--json"]);
        let mut process = Process::start(&binary(), &arguments, self.folder.path().join("check.log"));
        assert!(process.wait(PATIENCE).is_some(), "it does not end");
        let text = process.output();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("no JSON ({error}): {text}\n{}", process.errors()))
    }

    /// What `ctl QUESTION --json` prints.
    fn ctl(&self, question: &str) -> Value {
        let text = self.control(&[question, "--json"]);
        serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("`ctl {question} --json` printed no JSON ({error}): {text}"))
    }

    /// What `ctl` with these words prints.
    ///
    /// # Panics
    /// When the command fails.
    pub fn control(&self, words: &[&str]) -> String {
        command(&self.file, &[&["ctl"], words].concat(), &[])
    }

    /// What `strowger` with these words prints, with its configuration.
    ///
    /// # Panics
    /// When the command fails.
    pub fn command(&self, words: &[&str]) -> String {
        command(&self.file, words, &[])
    }

    /// Its configuration.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file.file
    }

    /// The number of its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Asks it to end (SIGTERM), and waits until it has.
    ///
    /// # Panics
    /// When it does not end, or not in good order.
    pub fn terminate(&mut self) {
        self.process.signal("TERM");
        let status = self.process.wait(PATIENCE);
        assert!(status.is_some_and(|status| status.success()), "the server ends with {status:?}:\n{}", self.log());
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

    /// Stops it (SIGSTOP) for so long, as a machine does that is paused.
    pub fn pause(&self, time: Duration) {
        self.process.signal("STOP");
        std::thread::sleep(time);
        self.process.signal("CONT");
    }

    /// Stops it (SIGSTOP): what comes waits.
    pub fn stop(&self) {
        self.process.signal("STOP");
    }

    /// Lets it go on after [`Server::stop`].
    pub fn go_on(&self) {
        self.process.signal("CONT");
    }

    /// Kills it (SIGKILL), where nobody else has, and waits until it is gone.
    ///
    /// # Panics
    /// When it does not go.
    pub fn kill(&mut self) {
        self.process.kill();
        assert!(self.process.wait(PATIENCE).is_some(), "the server is gone");
    }

    /// Starts it anew, with what it has left behind; its log begins anew, too.
    pub fn begin(&mut self) {
        self.process = serve(None, &self.file);
    }

    /// [Starts](Self::begin) it anew and waits until it answers.
    ///
    /// # Panics
    /// When it does not answer.
    pub fn restart(&mut self) {
        self.restart_on(&Machine::local());
    }

    /// Like [`restart`](Self::restart), on the machine where it was.
    ///
    /// # Panics
    /// When it does not answer.
    pub fn restart_on(&mut self, machine: &Machine) {
        self.process = serve(machine.network(), &self.file);
        self.wait(machine);
    }

    /// Waits until it answers, on the machine where it is.
    pub(crate) fn wait(&mut self, machine: &Machine) {
        let bind = || UdpSocket::bind((self.address.ip(), 0)).expect("a socket");
        let socket = machine.network().map_or_else(bind, |network| network.inside(bind));
        self.wait_until_it_answers(&socket);
    }

    /// What it has written to its log so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.output() + &self.process.errors()
    }

    /// It is ready when it says over its control socket how it is.
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

    /// It is ready when it answers an OPTIONS that is for itself.
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

/// Nobody else may read it.
fn write_key(file: &Path, key: &[u8; 16]) {
    let made = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
    made.and_then(|mut file| file.write_all(key)).expect("the key can be written");
}

fn serve(network: Option<&Namespace>, config: &Configuration) -> Process {
    let log = format!("{}.log", config.name.as_deref().unwrap_or("server"));
    Process::start_in(network, &binary(), &arguments(config, &["serve"], &[]), config.file.with_file_name(log))
}

/// Runs one `strowger` command to its end and returns what it printed.
fn command(config: &Configuration, verb: &[&str], rest: &[&str]) -> String {
    let folder = tempfile::Builder::new().prefix("strowger-command-").tempdir().expect("a temporary folder");
    let mut process = Process::start(&binary(), &arguments(config, verb, rest), folder.path().join("command.log"));
    let status = process.wait(PATIENCE);
    assert!(
        status.is_some_and(|status| status.success()),
        "`strowger {} {}`: {status:?}\n{}{}",
        verb.join(" "),
        rest.join(" "),
        process.output(),
        process.errors()
    );
    process.output()
}

fn arguments(config: &Configuration, verb: &[&str], rest: &[&str]) -> Vec<String> {
    let file = config.file.display().to_string();
    let name = config.name.as_deref().map(|name| ["--as", name]);
    let which = ["-c", file.as_str()].into_iter().chain(name.into_iter().flatten());
    verb.iter().copied().chain(which).chain(rest.iter().copied()).map(str::to_owned).collect()
}

/// `STROWGER_BIN`, else what was built with the tests, else what lies in the workspace's target folder.
pub(crate) fn binary() -> PathBuf {
    if let Some(path) = env::var_os("STROWGER_BIN") {
        return PathBuf::from(path);
    }
    let executable = env::current_exe().expect("a running program has an executable");
    // Tests lie in target/PROFILE/deps, other programs beside the server.
    let [beside, profile] = [1, 2].map(|level| executable.ancestors().nth(level).unwrap_or(Path::new("/")));
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target");
    let places = [beside.to_path_buf(), profile.to_path_buf(), target.join("release"), target.join("debug")];
    let found = places.iter().map(|place| place.join("strowger")).find(|file| file.is_file());
    found.unwrap_or_else(|| {
        panic!("no server to test in {places:?}: run `cargo build --bin strowger`, or set STROWGER_BIN")
    })
}
