//! A running contender: one or two servers, and their engine.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use super::contender::Contender;
use super::engine::Engine;
use super::{OTHER_CORE, SERVER_CORE};
use crate::register::contender::free_address;
use crate::register::message::DOMAIN;
use crate::register::probe::Probe;
use crate::register::process::{bury, family, signal};

/// Maximum start time of a server.
const PATIENCE: Duration = Duration::from_secs(120);
/// Key shared by the members.
const KEY: &[u8; 16] = b"a key of members";
/// Folder of the table definitions of Kamailio's modules on Debian.
const SCHEMA: &str = "/usr/share/kamailio/mysql";
/// Receiving processes of Kamailio if each waits for MariaDB; otherwise one.
pub const WAITING_CHILDREN: usize = 16;
/// `timers.t1` of Strowger. Transactions live 64 times as long, so they end at the rate at which they begin during
/// the measurement.
pub const T1: &str = "50ms";

/// Returns whether Kamailio's MariaDB module is installed, judged by the table definitions that come with it.
#[must_use]
pub fn has_kamailio_tables() -> bool {
    Path::new(SCHEMA).join("usrloc-create.sql").is_file()
}

/// Paths that a deployment needs.
#[derive(Clone, Debug)]
pub struct Environment {
    /// The `strowger` binary.
    pub binary: PathBuf,
    /// Folder for temporary folders, on a disk.
    pub folder: PathBuf,
}

/// A running deployment.
#[derive(Debug)]
pub struct Deployment {
    contender: Contender,
    place: Environment,
    /// Declared before `engine`: the servers end before the engine.
    servers: Vec<Server>,
    addresses: [SocketAddr; 2],
    /// Engine, if there is one.
    pub engine: Option<Engine>,
}

impl Deployment {
    /// Starts the engine and the first server, and with `is_pair` the second one.
    ///
    /// # Errors
    /// If one of them does not start.
    pub fn start(contender: Contender, is_pair: bool, place: &Environment) -> Result<Self, String> {
        let start = |kind| Engine::start(kind, contender.has_replica(), &place.folder);
        let engine = contender.engine().map(start).transpose()?;
        if let (Some(engine), Some(_)) = (&engine, contender.kamailio()) {
            for name in ["standard-create.sql", "usrloc-create.sql"] {
                engine.run_sql(&Path::new(SCHEMA).join(name))?;
            }
        }
        let addresses = [free_address(), free_address()];
        let mut site = Self { contender, place: place.clone(), servers: Vec::new(), addresses, engine };
        site.join()?;
        if is_pair {
            site.join()?;
            site.wait_for_others()?;
        }
        Ok(site)
    }

    /// Starts another server and waits until it accepts REGISTERs.
    ///
    /// # Errors
    /// If it does not.
    pub fn join(&mut self) -> Result<(), String> {
        let server = self.begin()?;
        let (contender, address) = (self.contender, server.address);
        self.servers.push(server);
        let server = self.servers.last_mut().ok_or("no server")?;
        Probe::new(address).wait(PATIENCE, || server.check())?;
        if contender.is_member() {
            server.wait_until("warm", |status| status["cluster"]["warm"] == true)?;
        }
        Ok(())
    }

    /// Starts another server without waiting for it to answer.
    ///
    /// # Errors
    /// If the program does not exist.
    pub fn begin(&self) -> Result<Server, String> {
        let number = self.servers.len();
        let (own, other) = (self.addresses[number % 2], self.addresses[(number + 1) % 2]);
        let folder = tempfile::Builder::new().prefix("strowger-cluster-").tempdir_in(&self.place.folder);
        let folder = folder.map_err(|error| error.to_string())?;
        let core = if number == 0 { SERVER_CORE.to_owned() } else { OTHER_CORE.to_string() };
        let mut command = Command::new("taskset");
        command.args(["-c", &core]);
        match self.contender.kamailio() {
            Some(mode) => self.kamailio(&mut command, mode, folder.path(), [own, other]),
            None => {
                let config = configuration(self.contender, number + 1, own, self.engine.as_ref());
                write_configuration(folder.path(), &config)?;
                command.arg(&self.place.binary).args(["serve", "-c", "strowger.toml"]);
            }
        }
        let log = File::create(folder.path().join("log")).map_err(|error| error.to_string())?;
        command.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
        Ok(Server { binary: self.place.binary.clone(), folder, address: own, child })
    }

    /// Adds a started server.
    pub fn take(&mut self, server: Server) {
        self.servers.push(server);
    }

    fn kamailio(&self, command: &mut Command, mode: u8, folder: &Path, [own, other]: [SocketAddr; 2]) {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("kamailio/cluster.cfg");
        // -DD keeps the first process in the foreground, so that it and its children can be found and ended.
        command.args(["kamailio", "-DD", "-E", "-x", "fm", "-X", "fm", "-m", "2048", "-M", "64", "-f"]).arg(file);
        command.arg("-Y").arg(folder).args(["-l", &format!("udp:{own}"), "-A", &format!("DB_MODE={mode}")]);
        let children = if matches!(mode, 1 | 3) { WAITING_CHILDREN } else { 1 };
        command.args(["-A", &format!("CHILDREN={children}")]);
        if let Some(engine) = &self.engine {
            command.args(["-A", &format!("DB_URL=\"mysql://strowger@127.0.0.1:{}/strowger\"", engine.port())]);
        }
        if self.contender == Contender::KamailioDmq {
            command.args(["-A", &format!("DMQ_OWN=\"sip:{own}\""), "-A", &format!("DMQ_OTHER=\"sip:{other}\"")]);
        }
    }

    /// Returns the first server, at which phones register.
    ///
    /// # Panics
    /// If it was removed.
    pub fn first(&mut self) -> &mut Server {
        self.servers.first_mut().expect("there is a server")
    }

    /// Returns the second server, if there is one.
    pub fn second(&mut self) -> Option<&mut Server> {
        self.servers.get_mut(1)
    }

    /// Checks that all servers are running.
    ///
    /// # Errors
    /// If one has ended. The error includes the end of its log.
    pub fn check(&mut self) -> Result<(), String> {
        self.servers.iter_mut().try_for_each(Server::check)
    }

    /// Waits until the servers know each other.
    fn wait_for_others(&mut self) -> Result<(), String> {
        if self.contender.is_member() {
            let sees = |status: &Value| status["cluster"]["members"][0]["alive"] == true;
            return self.servers.iter_mut().try_for_each(|server| server.wait_until("not alone", sees));
        }
        if self.contender == Contender::KamailioDmq {
            // Kamailio requests the other server's list at its start, and reports nothing about the result.
            thread::sleep(Duration::from_secs(2));
        }
        self.check()
    }
}

/// A server. Dropping it ends all its processes and removes its files.
#[derive(Debug)]
pub struct Server {
    binary: PathBuf,
    folder: tempfile::TempDir,
    /// Listening address.
    pub address: SocketAddr,
    child: Child,
}

impl Server {
    /// Returns its process IDs.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        family(self.child.id())
    }

    /// Checks that it is running.
    ///
    /// # Errors
    /// If it has ended. The error includes the end of its log.
    pub fn check(&mut self) -> Result<(), String> {
        if let Ok(None) = self.child.try_wait() {
            return Ok(());
        }
        let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        let last: Vec<&str> = log.lines().rev().filter(|line| !line.trim().is_empty()).take(3).collect();
        Err(format!("a server has ended: {}", last.join(" / ")))
    }

    /// Returns the output of `ctl status --json`, or null if it does not answer.
    #[must_use]
    pub fn status(&self) -> Value {
        let mut command = Command::new(&self.binary);
        command.args(["ctl", "status", "--json", "-c", "strowger.toml"]).current_dir(self.folder.path());
        let output = command.output().ok();
        output.and_then(|output| serde_json::from_slice(&output.stdout).ok()).unwrap_or_default()
    }

    /// Returns the number of bindings in its status.
    #[must_use]
    pub fn registrations(&self) -> u64 {
        self.status()["registrations"].as_u64().unwrap_or(0)
    }

    /// Waits until its status satisfies `is_so`.
    ///
    /// # Errors
    /// If that does not happen in time.
    pub fn wait_until(&mut self, what: &str, is_so: impl Fn(&Value) -> bool) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(&self.status()) {
            self.check()?;
            if Instant::now() > deadline {
                return Err(format!("a server is not {what} in time"));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let family = self.processes();
        signal(self.child.id(), Signal::KILL);
        // Fails only if the process has ended already.
        let _ = self.child.wait();
        bury(&family);
    }
}

/// Returns the configuration of a Strowger server with this member number.
#[must_use]
pub fn configuration(contender: Contender, number: usize, address: SocketAddr, engine: Option<&Engine>) -> String {
    let mode = contender.store().unwrap_or_default();
    let mut text = format!(
        "[server]\nlisten = [\"udp:{address}\"]\ndomains = [\"{DOMAIN}\"]\ndata = \"data\"\nworkers = 1\nkey_file = \"shared.key\"\n\n\
         [store]\nmode = \"{mode}\"\n\n[auth]\nrequire = []\n\n[timers]\nt1 = \"{T1}\"\n\n[log]\nlevel = \"warn\"\n"
    );
    if let (Some(durability), Some(engine)) = (contender.durability(), engine) {
        let replicas = u8::from(contender.has_replica());
        let store = engine.url();
        text += &format!(
            "\n[cluster]\nstore = \"{store}\"\nmember = {number}\ndurability = \"{durability}\"\nreplicas = {replicas}\n"
        );
    }
    text
}

fn write_configuration(folder: &Path, config: &str) -> Result<(), String> {
    let said = |error: std::io::Error| error.to_string();
    fs::write(folder.join("strowger.toml"), config).map_err(said)?;
    let key = OpenOptions::new().write(true).create_new(true).mode(0o600).open(folder.join("shared.key"));
    key.and_then(|mut file| file.write_all(KEY)).map_err(said)
}
