//! `keepalived`, which gives an address to one of several machines (VRRP, RFC 5798).

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use crate::process::{Process, tail};
use crate::server::binary;
use crate::{Namespace, Server, program};

/// The configuration that operators are given.
const SHIPPED: &str = "docs/operating/keepalived.conf";

/// A running keepalived with the configuration that operators are given, in the addresses of a test.
#[derive(Debug)]
pub struct Keepalived {
    process: Process,
    _folder: TempDir,
}

/// Who competes for the address.
#[derive(Clone, Copy, Debug)]
pub struct Contender {
    /// Its own address.
    pub own: Ipv4Addr,
    /// The other's.
    pub peer: Ipv4Addr,
    /// The address that one of them has.
    pub shared: Ipv4Addr,
}

impl Keepalived {
    /// Starts one for this server in its network, whose interface is `lan`.
    ///
    /// # Panics
    /// When the configuration that operators are given has not what is to be replaced in it.
    #[must_use]
    pub fn start(network: &Namespace, server: &Server, contender: Contender) -> Keepalived {
        let folder = tempfile::Builder::new().prefix("keepalived-").tempdir().expect("a temporary folder");
        let text = configuration(server, contender);
        let file = folder.path().join("keepalived.conf");
        fs::write(&file, text).expect("the configuration can be written");
        let path = |name: &str| folder.path().join(name).display().to_string();
        // In the foreground, with its log on the console; VRRP alone.
        let words = ["-n", "-l", "-D", "-P", "-f", &path("keepalived.conf"), "-p", &path("pid"), "-r", &path("vrrp")];
        let arguments = words.map(str::to_owned);
        let program = program::search("keepalived").expect("keepalived is installed");
        let process = Process::start_in(Some(network), &program, &arguments, folder.path().join("keepalived.log"));
        Keepalived { process, _folder: folder }
    }

    /// Kills it (SIGKILL), so that it gives nothing back, and waits until it is gone.
    pub fn kill(&mut self) {
        self.process.kill();
        let _ = self.process.wait(Duration::from_secs(5));
    }

    /// Asks it to end (SIGTERM), so that it gives the address back, and waits until it has.
    ///
    /// # Panics
    /// When it does not end.
    pub fn terminate(&mut self) {
        self.process.signal("TERM");
        assert!(self.process.wait(Duration::from_secs(5)).is_some(), "keepalived ends:\n{}", self.log());
    }

    /// What it has said so far.
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
        // Told to end, it ends its children too.
        if self.process.ended().is_none() {
            self.process.signal("TERM");
            let _ = self.process.wait(Duration::from_secs(5));
        }
    }
}

/// The operators' configuration with what differs here put in its place.
fn configuration(server: &Server, contender: Contender) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(SHIPPED);
    let mut text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let check = format!("{} ctl status -c {}", binary().display(), server.file().display());
    for (theirs, ours) in [
        ("/usr/local/bin/strowger ctl status -c /etc/strowger/strowger.toml", check),
        ("interface         eth0", "interface         lan".to_owned()),
        ("192.0.2.1\n", format!("{}\n", contender.own)),
        ("192.0.2.2\n", format!("{}\n", contender.peer)),
        // Who builds need not be root.
        ("    enable_script_security\n", String::new()),
        ("192.0.2.10/24", format!("{}/24", contender.shared)),
    ] {
        assert!(text.contains(theirs), "no `{theirs}` in {SHIPPED}");
        text = text.replace(theirs, &ours);
    }
    text
}
