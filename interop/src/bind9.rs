//! A real name server, `named` of BIND 9, with one zone that the test writes.
//!
//! This file needs nothing else of this crate, so that crates below it can include it in their tests.

use std::fs::{self, File};
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// How long it may take to answer its first question.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running name server on a loopback port; dropping it kills it, also when the test panics.
#[derive(Debug)]
pub struct Bind9 {
    folder: TempDir,
    zone: String,
    negative_ttl_s: u32,
    address: SocketAddr,
    child: Option<Child>,
}

impl Bind9 {
    /// Whether it is installed; if not, says that the test is skipped.
    ///
    /// # Panics
    /// When it is missing and `STROWGER_REQUIRE_INTEROP=1`.
    #[must_use]
    pub fn available() -> bool {
        if named().is_some() {
            return true;
        }
        let missing = "named is not installed (apt-get install bind9)";
        let required = std::env::var("STROWGER_REQUIRE_INTEROP").is_ok_and(|value| value == "1");
        assert!(!required, "{missing}");
        // The test harness would keep back what `println!` says in a test that passes.
        let _ = writeln!(io::stderr(), "skipped: {missing}: {}", thread::current().name().unwrap_or("a test"));
        false
    }

    /// Serves `zone` (`example.com`) with `records`, in the form of a zone file without its SOA and NS records; what is not
    /// in it does not exist for `negative_ttl_s` seconds.
    ///
    /// # Panics
    /// When it does not answer soon; with what it says itself.
    #[must_use]
    pub fn start(zone: &str, negative_ttl_s: u32, records: &str) -> Bind9 {
        let folder = TempDir::with_prefix("strowger-bind9-").expect("a temporary folder can be made");
        // Debian's AppArmor profile lets the executable at its usual place read nothing below /tmp.
        // By a process of its own: a file that this one has open for writing cannot be run while another thread forks.
        let copied =
            Command::new("cp").arg(named().expect("named is installed")).arg(folder.path().join("named")).status();
        assert!(copied.expect("cp can be run").success(), "named can be copied");
        let address = (Ipv4Addr::LOCALHOST, free_port()).into();
        let mut server = Bind9 { folder, zone: zone.to_owned(), negative_ttl_s, address, child: None };
        server.replace(records);
        server
    }

    /// Serves these records in place of those of before.
    ///
    /// # Panics
    /// When it does not answer soon; with what it says itself.
    pub fn replace(&mut self, records: &str) {
        let (zone, negative_ttl_s) = (&self.zone, self.negative_ttl_s);
        let head = format!(
            "$ORIGIN {zone}.\n$TTL 300\n@ {negative_ttl_s} IN SOA ns hostmaster 1 3600 600 86400 {negative_ttl_s}\n@ IN NS ns\nns \
             IN A 127.0.0.1\n"
        );
        fs::write(self.folder.path().join("zone"), head + records).expect("the zone can be written");
        self.start_again();
    }

    /// Where it answers, by UDP and TCP.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Kills it: nobody answers any more.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Both fail only when the child is gone already, which is what we want.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts it again where it was.
    ///
    /// # Panics
    /// When it does not answer soon; with what it says itself.
    pub fn start_again(&mut self) {
        self.stop();
        assert!(self.run(), "named does not answer:\n{}", self.log());
    }

    /// What it has logged.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Whether it runs and answers.
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

    /// It has ended, or goes on without the zone, in which there is a fault.
    fn has_failed(&mut self) -> bool {
        self.child.as_mut().is_none_or(|child| child.try_wait().is_ok_and(|status| status.is_some()))
            || self.log().contains("not loaded due to errors")
    }

    /// Authoritative for one zone, and for nobody but this machine.
    fn settings(&self) -> String {
        let (zone, folder, port) = (&self.zone, self.folder.path().display(), self.address.port());
        format!(
            r#"options {{
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
zone "{zone}" {{ type primary; file "{folder}/zone"; }};
"#
        )
    }

    /// Asks for the zone's SOA record.
    fn answers(&self) -> bool {
        // An identifier, a query, one question.
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

/// The executable; it lies where the `PATH` of people who are not root does not lead.
fn named() -> Option<PathBuf> {
    search("named")
}

fn search(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/usr/local/sbin", "/usr/bin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(usual).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Through `setpriv` (util-linux) the kernel kills the child also when the test executable is killed, which no `Drop` sees.
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

/// A port that is free for UDP and TCP, below those that Linux gives to outgoing sockets, and another one at each call.
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
