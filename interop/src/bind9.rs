//! A real name server, BIND 9's `named`, with one zone that the test writes and that can be updated with a TSIG key.
//!
//! This file depends on nothing else in this crate, so crates below it can include it in their tests.

use std::fs::{self, File};
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// TSIG key for zone updates, as a statement of the `named` configuration.
pub const KEY: &str =
    "key \"watch\" { algorithm hmac-sha256; secret \"0Wv7R1xkNpJq3nqz5m0N2w7kqJc0sYx8r2y5b8n4m6E=\"; };\n";

/// Time allowed until the first answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running name server on a loopback port. Dropping it kills the process, even when the test panics.
#[derive(Debug)]
pub struct Bind9 {
    folder: TempDir,
    zone: String,
    negative_ttl_s: u32,
    address: SocketAddr,
    child: Option<Child>,
}

impl Bind9 {
    /// Returns whether `named` is installed. If not, prints that the test is skipped.
    ///
    /// # Panics
    /// If it is missing and `STROWGER_REQUIRE_INTEROP=1`.
    #[must_use]
    pub fn available() -> bool {
        if named().is_some() {
            return true;
        }
        let missing = "named is not installed (apt-get install bind9)";
        let required = std::env::var("STROWGER_REQUIRE_INTEROP").is_ok_and(|value| value == "1");
        assert!(!required, "{missing}");
        // The test harness captures `println!` output of tests that pass.
        let _ = writeln!(io::stderr(), "skipped: {missing}: {}", thread::current().name().unwrap_or("a test"));
        false
    }

    /// Serves `zone` (`example.com`) with `records`, given as zone-file lines without SOA and NS records. Negative
    /// answers have a TTL of `negative_ttl_s` seconds.
    ///
    /// # Panics
    /// If the server does not answer in time. The message contains its log.
    #[must_use]
    pub fn start(zone: &str, negative_ttl_s: u32, records: &str) -> Bind9 {
        let folder = TempDir::with_prefix("strowger-bind9-").expect("a temporary folder can be made");
        fs::write(folder.path().join("watch.key"), KEY).expect("the key can be written");
        // Debian's AppArmor profile keeps the executable at its usual path from reading anything below /tmp, so it
        // runs from a copy. Another process makes the copy: a file that this process has open for writing cannot be
        // executed while another thread forks.
        let copied =
            Command::new("cp").arg(named().expect("named is installed")).arg(folder.path().join("named")).status();
        assert!(copied.expect("cp can be run").success(), "named can be copied");
        let address = (Ipv4Addr::LOCALHOST, free_port()).into();
        let mut server = Bind9 { folder, zone: zone.to_owned(), negative_ttl_s, address, child: None };
        server.replace(records);
        server
    }

    /// Replaces the records of the zone.
    ///
    /// # Panics
    /// If the server does not answer in time. The message contains its log.
    pub fn replace(&mut self, records: &str) {
        let (zone, negative_ttl_s) = (&self.zone, self.negative_ttl_s);
        let head = format!(
            "$ORIGIN {zone}.\n$TTL 300\n@ {negative_ttl_s} IN SOA ns hostmaster 1 3600 600 86400 {negative_ttl_s}\n@ IN NS ns\nns \
             IN A 127.0.0.1\n"
        );
        fs::write(self.folder.path().join("zone"), head + records).expect("the zone can be written");
        self.start_again();
    }

    /// Returns the address at which the server answers over UDP and TCP.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the path of the TSIG key file for zone updates.
    #[must_use]
    pub fn key_file(&self) -> PathBuf {
        self.folder.path().join("watch.key")
    }

    /// Returns the name of the zone.
    #[must_use]
    pub fn zone(&self) -> &str {
        &self.zone
    }

    /// Kills the server. Queries get no answer until it is restarted.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Both fail only if the child is already gone, which is fine.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Restarts the server at the same address.
    ///
    /// # Panics
    /// If the server does not answer in time. The message contains its log.
    pub fn start_again(&mut self) {
        self.stop();
        assert!(self.run(), "named does not answer:\n{}", self.log());
    }

    /// Returns the log written so far.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Starts the process and returns whether it answers.
    fn run(&mut self) -> bool {
        let folder = self.folder.path();
        let settings = folder.join("named.conf");
        fs::write(&settings, self.settings()).expect("named.conf can be written");
        let log = File::create(folder.join("log")).expect("the log can be created");
        let mut command = dying_with_us(&folder.join("named"));
        command.args(["-g", "-4", "-n", "1", "-c"]).arg(&settings).current_dir(folder).stdin(Stdio::null());
        let log_too = log.try_clone().expect("a file handle can be copied");
        let child = command.stdout(log).stderr(log_too).spawn().expect("named can be started");
        self.child = Some(child);
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline && !self.has_failed() {
            if self.answers() {
                return true;
            }
        }
        self.stop();
        false
    }

    /// Returns whether the process has exited, or runs without the zone because the zone has an error.
    fn has_failed(&mut self) -> bool {
        self.child.as_mut().is_none_or(|child| child.try_wait().is_ok_and(|status| status.is_some()))
            || self.log().contains("not loaded due to errors")
    }

    /// Returns a configuration that is authoritative for one zone and answers only this machine.
    fn settings(&self) -> String {
        let (zone, folder, port) = (&self.zone, self.folder.path().display(), self.address.port());
        format!(
            r#"{KEY}options {{
    directory "{folder}";
    pid-file none;
    session-keyfile none;
    lock-file none;
    listen-on port {port} {{ 127.0.0.1; }};
    listen-on-v6 {{ none; }};
    allow-query {{ 127.0.0.0/8; }};
    recursion no;
    dnssec-validation no;
    empty-zones-enable no;
    notify no;
}};
controls {{ }};
zone "{zone}" {{ type primary; file "{folder}/zone"; allow-update {{ key "watch"; }}; }};
"#
        )
    }

    /// Queries the zone's SOA record and returns whether an answer arrives.
    fn answers(&self) -> bool {
        // ID, flags of a query, one question.
        let mut question = vec![0x53, 0x57, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in self.zone.split('.') {
            question.push(u8::try_from(label.len()).expect("a label is short"));
            question.extend_from_slice(label.as_bytes());
        }
        question.extend_from_slice(&[0, 0, 6, 0, 1]);
        let mut answer = [0; 512];
        let asked = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|socket| {
            socket.set_read_timeout(Some(Duration::from_millis(100)))?;
            socket.connect(self.address)?;
            socket.send(&question)?;
            socket.recv(&mut answer)
        });
        match asked {
            Ok(length) => length > 12 && answer[..2] == question[..2] && answer[3] & 0x0f == 0 && answer[7] > 0,
            Err(_) => {
                thread::sleep(Duration::from_millis(20));
                false
            }
        }
    }
}

impl Drop for Bind9 {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Returns the path of the executable, which is usually not in the `PATH` of users other than root.
fn named() -> Option<PathBuf> {
    search("named")
}

fn search(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/usr/local/sbin", "/usr/bin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(usual).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Runs the program under `setpriv` (util-linux), so that the kernel kills it even when the test executable is killed
/// and no `Drop` runs.
fn dying_with_us(program: &Path) -> Command {
    match search("setpriv") {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "KILL", "--"]).arg(program);
            command
        }
        None => Command::new(program),
    }
}

/// Returns a port that is free for UDP and TCP, below Linux's ephemeral range. Each call returns a different one.
fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let start = std::process::id().wrapping_mul(89);
    loop {
        let next = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % 10_000;
        let port = u16::try_from(10_000 + next).expect("it is below 20,000");
        let address = (Ipv4Addr::LOCALHOST, port);
        if UdpSocket::bind(address).is_ok() && TcpListener::bind(address).is_ok() {
            return port;
        }
    }
}
