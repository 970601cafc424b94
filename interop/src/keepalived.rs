//! `keepalived`, which assigns an address to one of several machines (VRRP, RFC 5798).

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use crate::process::{Process, tail};
use crate::server::binary;
use crate::{Namespace, Server, program};

/// The configuration shipped to operators.
const SHIPPED: &str = "docs/operating/keepalived.conf";

/// A running keepalived with the configuration shipped to operators, adapted to the addresses of a test.
#[derive(Debug)]
pub struct Keepalived {
    process: Process,
    _folder: TempDir,
}

/// One of two machines that compete for the address.
#[derive(Clone, Copy, Debug)]
pub struct Contender {
    /// Address of this machine.
    pub own: Ipv4Addr,
    /// Address of the other machine.
    pub peer: Ipv4Addr,
    /// The shared address, held by one of them.
    pub shared: Ipv4Addr,
}

impl Keepalived {
    /// Starts keepalived for this server in its network, whose interface is `lan`.
    ///
    /// # Panics
    /// If the shipped configuration lacks a line that has to be replaced.
    #[must_use]
    pub fn start(network: &Namespace, server: &Server, contender: Contender) -> Keepalived {
        let folder = tempfile::Builder::new().prefix("keepalived-").tempdir().expect("a temporary folder");
        let text = configuration(server, contender);
        let file = folder.path().join("keepalived.conf");
        fs::write(&file, text).expect("the configuration can be written");
        let path = |name: &str| folder.path().join(name).display().to_string();
        // Foreground, log on the console, VRRP only.
        let words = ["-n", "-l", "-D", "-P", "-f", &path("keepalived.conf"), "-p", &path("pid"), "-r", &path("vrrp")];
        let arguments = words.map(str::to_owned);
        let program = program::search("keepalived").expect("keepalived is installed");
        let process = Process::start_in(Some(network), &program, &arguments, folder.path().join("keepalived.log"));
        Keepalived { process, _folder: folder }
    }

    /// Kills the process (SIGKILL), so that it does not release the address, and waits until it is gone.
    pub fn kill(&mut self) {
        self.process.kill();
        let _ = self.process.wait(Duration::from_secs(5));
    }

    /// Terminates the process (SIGTERM), so that it releases the address, and waits for its exit.
    ///
    /// # Panics
    /// If it does not end.
    pub fn terminate(&mut self) {
        self.process.signal("TERM");
        assert!(self.process.wait(Duration::from_secs(5)).is_some(), "keepalived does not end:\n{}", self.log());
    }

    /// Returns the output so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.output() + &self.process.errors()
    }
}

impl Drop for Keepalived {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- keepalived ---\n{}", tail(&self.log(), 40));
        }
        // SIGTERM makes it end its child processes too.
        if self.process.ended().is_none() {
            self.process.signal("TERM");
            let _ = self.process.wait(Duration::from_secs(5));
        }
    }
}

/// Returns the shipped configuration with the test's values filled in.
fn configuration(server: &Server, contender: Contender) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(SHIPPED);
    let mut text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let check = format!("{} ctl status -c {}", binary().display(), server.file().display());
    for (theirs, ours) in [
        ("/usr/local/bin/strowger ctl status -c /etc/strowger/strowger.toml", check),
        ("interface         eth0", "interface         lan".to_owned()),
        ("192.0.2.1\n", format!("{}\n", contender.own)),
        ("192.0.2.2\n", format!("{}\n", contender.peer)),
        // The build user need not be root.
        ("    enable_script_security\n", String::new()),
        ("192.0.2.10/24", format!("{}/24", contender.shared)),
    ] {
        assert!(text.contains(theirs), "no `{theirs}` in {SHIPPED}");
        text = text.replace(theirs, &ours);
    }
    text
}
