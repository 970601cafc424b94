//! A server process, measured from outside.

use std::fs::{self, File};
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::programs;

/// Maximum start time.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running server. Dropping it kills it and removes its folder.
#[derive(Debug)]
pub struct Server {
    binary: PathBuf,
    folder: PathBuf,
    child: Child,
}

impl Server {
    /// Starts the server of the same build with this configuration and waits until it answers at `address`.
    ///
    /// # Panics
    /// If it does not answer.
    #[must_use]
    pub fn start(name: &str, config: &str, address: SocketAddr) -> Server {
        Self::start_with(name, config, address, &[])
    }

    /// Does the same, with these environment variables besides those of this process.
    ///
    /// # Panics
    /// If it does not answer.
    #[must_use]
    pub fn start_with(name: &str, config: &str, address: SocketAddr, variables: &[(&str, &str)]) -> Server {
        let binary = binary();
        let folder = std::env::temp_dir().join(format!("strowger-bench-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a temporary folder can be made");
        fs::write(folder.join("strowger.toml"), config).expect("the configuration can be written");
        let log = File::create(folder.join("log")).expect("the log can be created");
        let child = Command::new(&binary)
            .args(["serve", "-c", "strowger.toml"])
            .current_dir(&folder)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the server starts");
        let server = Server { binary, folder, child };
        server.wait(address);
        server
    }

    /// Returns the program, which also generates load.
    #[must_use]
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// Returns its process ID.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns a counter of `ctl status`, for example `connections.open`; a missing one is 0.
    ///
    /// # Panics
    /// If the server does not answer.
    #[must_use]
    pub fn counter(&self, name: &str) -> u64 {
        // Worker statistics are up to one second old.
        thread::sleep(Duration::from_millis(1500));
        let text = self.status();
        let value = text.lines().find_map(|line| line.split_once(name)?.1.trim().parse().ok());
        value.unwrap_or(0)
    }

    /// Returns the output of `ctl status`.
    ///
    /// # Panics
    /// If the command fails.
    #[must_use]
    pub fn status(&self) -> String {
        let output = Command::new(&self.binary)
            .args(["ctl", "status", "-c", "strowger.toml"])
            .current_dir(&self.folder)
            .output()
            .expect("the server can be asked");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Returns the processor time that the server has used so far.
    ///
    /// # Panics
    /// If the server has ended.
    #[must_use]
    pub fn processor_time(&self) -> Duration {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.pid())).expect("the server runs");
        let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks: u64 = fields.iter().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
        Duration::from_millis(ticks * 10)
    }

    fn wait(&self, address: SocketAddr) {
        let socket = UdpSocket::bind((address.ip(), 0)).expect("a socket");
        socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a time-out can be set");
        let local = socket.local_addr().expect("a bound socket has an address");
        let deadline = Instant::now() + PATIENCE;
        for number in 1.. {
            let request = format!(
                "OPTIONS sip:{address} SIP/2.0\r\nVia: SIP/2.0/UDP {local};branch=z9hG4bK-ready-{number}\r\n\
                 Max-Forwards: 70\r\nFrom: <sip:ready@{local}>;tag=r\r\nTo: <sip:{address}>\r\nCall-ID: r{number}@{local}\r\n\
                 CSeq: {number} OPTIONS\r\nContent-Length: 0\r\n\r\n"
            );
            let _ = socket.send_to(request.as_bytes(), address);
            let mut response = [0; 2048];
            match socket.recv(&mut response) {
                Ok(_) if response.starts_with(b"SIP/2.0 200 ") => return,
                Ok(_) => {}
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
            let log = || fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "the server does not answer:\n{}", log());
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // These fail only if the server has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Returns the path of the server binary, which must exist.
fn binary() -> PathBuf {
    let binary = programs::strowger(None);
    assert!(binary.is_file(), "no {}: cargo build --release -p strowger", binary.display());
    binary
}

/// Returns the command line of this benchmark run, for repeating it. `program` names its package and binary. Local
/// paths are omitted, as they mean nothing elsewhere.
#[must_use]
pub fn command_line(program: &str) -> String {
    let mut said = String::new();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--binary" | "--output" | "--results" => drop(words.next()),
            _ if word.contains('/') => {}
            _ => said.extend([" ", &word]),
        }
    }
    let said = if said.is_empty() { said } else { format!(" --{said}") };
    format!("cargo build --release -p strowger && cargo run --release -p {program}{said}")
}

/// Returns the machine, software versions and command of the results, as lines of Markdown.
#[must_use]
pub fn circumstances(command: &str) -> String {
    let say = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
    };
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = processor.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory =
        memory.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    format!(
        "- Machine: {}, {cores} cores, {} GiB, a virtual machine shared with other work\n- Linux {}; {}\n\
         - {} at commit {}, release build\n- Date: {}\n- Command: `{command}`\n",
        model.map_or("a processor", |(_, name)| name),
        memory.unwrap_or(0) >> 20,
        say("uname", &["-r"]),
        say("rustc", &["--version"]),
        say(&binary().display().to_string(), &["--version"]),
        say("git", &["-C", &here.display().to_string(), "rev-parse", "--short", "HEAD"]),
        say("date", &["-u", "+%Y-%m-%d"]),
    )
}
