//! Networks that exist only during one test.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::{PATIENCE, poll, program};

/// Name of the interfaces that [`Namespace::connect`] creates.
const LAN: &str = "lan";

/// A private network namespace with only a loopback interface.
///
/// It has no name: a child process holds it open. The kernel kills that child when the test executable ends, and
/// removes the namespace with everything in it when its last process ends. So nothing stays behind, whatever happens
/// to the test.
#[derive(Debug)]
pub struct Namespace {
    holder: Child,
}

impl Namespace {
    /// Returns whether namespaces can be created here. If not, prints that the test is skipped.
    ///
    /// # Panics
    /// If one of `programs` is missing, root runs the test, and `STROWGER_REQUIRE_INTEROP=1`.
    #[must_use]
    pub fn available(programs: &[&str]) -> bool {
        let may = Command::new("unshare").args(["--net", "true"]).stderr(Stdio::null()).status();
        let missing: Vec<_> = programs.iter().filter(|name| program::search(name).is_none()).collect();
        let why = if !may.is_ok_and(|status| status.success()) {
            "only root can create network namespaces".to_owned()
        } else if !missing.is_empty() {
            let missing =
                format!("{missing:?} are not installed (apt-get install iproute2 nftables conntrack keepalived)");
            assert!(!program::is_required(), "{missing}");
            missing
        } else {
            return true;
        };
        // The test harness captures `println!` output of tests that pass.
        let _ = writeln!(io::stderr(), "SKIPPED: {why}: {}", thread::current().name().unwrap_or("a test"));
        false
    }

    /// Creates a namespace.
    ///
    /// # Panics
    /// If it cannot be created: check [`Namespace::available`] first.
    #[must_use]
    pub fn new() -> Namespace {
        // `cat` reads from this process until it ends.
        let mut command = dying_with_us(Path::new("unshare"), None);
        let holder = command.args(["--net", "cat"]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        let namespace = Namespace { holder: holder.expect("`unshare` starts") };
        let ours = fs::read_link("/proc/self/ns/net").expect("there is /proc");
        let made = poll(PATIENCE, || fs::read_link(namespace.path()).is_ok_and(|theirs| theirs != ours).then_some(()));
        assert!(made.is_some(), "`unshare` cannot create a network namespace");
        namespace.run("ip", "link set lo up");
        namespace
    }

    /// Adds an interface with these addresses and no peer.
    ///
    /// # Panics
    /// If there is already one of this name.
    pub fn add_interface(&self, name: &str, v4: Ipv4Addr, v6: Ipv6Addr) {
        self.run("ip", &format!("link add {name} type veth peer name {name}-end"));
        self.run("ip", &format!("address add {v4}/24 dev {name}"));
        // No duplicate address detection: it would only delay the test.
        self.run("ip", &format!("address add {v6}/64 dev {name} nodad"));
        for end in [name, &format!("{name}-end")] {
            self.run("ip", &format!("link set {end} up"));
        }
    }

    /// Connects two namespaces by a link whose ends have these addresses of a /24 network.
    ///
    /// # Panics
    /// If there is already a link with such an end.
    pub fn join(&self, address: Ipv4Addr, other: &Namespace, its_address: Ipv4Addr) {
        let (end, its_end) = (interface(its_address), interface(address));
        self.run("ip", &format!("link add {end} type veth peer name {its_end} netns {}", other.holder.id()));
        for (namespace, end, address) in [(self, end, address), (other, its_end, its_address)] {
            namespace.run("ip", &format!("address add {address}/24 dev {end}"));
            namespace.run("ip", &format!("link set {end} up"));
        }
    }

    /// Connects all of these through a switch in this namespace. Each gets addresses of one /24 network on its
    /// interface `lan`.
    ///
    /// # Panics
    /// If this namespace already has such a switch.
    pub fn connect(&self, others: &[(&Namespace, &[Ipv4Addr])]) {
        self.run("ip", "link add switch type bridge");
        self.run("ip", "link set switch up");
        for (number, (other, addresses)) in others.iter().enumerate() {
            let (port, holder) = (format!("port{number}"), other.holder.id());
            self.run("ip", &format!("link add {port} type veth peer name {LAN} netns {holder}"));
            self.run("ip", &format!("link set {port} master switch up"));
            for address in *addresses {
                other.run("ip", &format!("address add {address}/24 dev {LAN}"));
            }
            other.run("ip", &format!("link set {LAN} up"));
        }
    }

    /// Drops this percentage of the datagrams that arrive in the namespace.
    ///
    /// # Panics
    /// If it drops some already.
    pub fn lose(&self, percent: u8) {
        self.run("nft", "add table inet loss");
        self.run("nft", "add chain inet loss in { type filter hook input priority 0 ; }");
        let rule = format!("meta l4proto udp numgen random mod 100 < {percent} counter drop");
        self.run("nft", &format!("add rule inet loss in {rule}"));
    }

    /// Returns how many datagrams [were lost](Namespace::lose).
    ///
    /// # Panics
    /// If [`Namespace::lose`] was not called.
    #[must_use]
    pub fn lost(&self) -> u64 {
        let rules = self.run("nft", "list chain inet loss in");
        let count = rules.split("packets ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
        count.unwrap_or_else(|| panic!("no count in {rules}"))
    }

    /// Takes the interface `lan` down: nothing comes in or goes out.
    ///
    /// # Panics
    /// If there is no such interface.
    pub fn unplug(&self) {
        self.run("ip", &format!("link set {LAN} down"));
    }

    /// Runs a program in the namespace with space-separated arguments and returns its output.
    ///
    /// # Panics
    /// If it fails. The message contains its error output.
    pub fn run(&self, program: &str, words: &str) -> String {
        let output = self.output(program, words);
        let (printed, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "`{program} {words}`: {}\n{errors}", output.status);
        printed.into_owned()
    }

    fn output(&self, program: &str, words: &str) -> std::process::Output {
        let output = self.command(program).args(words.split(' ')).stdin(Stdio::null()).output();
        output.unwrap_or_else(|error| panic!("`{program}` does not start: {error}"))
    }

    /// Sets a value below `/proc/sys/net`.
    ///
    /// # Panics
    /// If there is no such value.
    pub fn set(&self, key: &str, value: u32) {
        let file = format!("/proc/sys/net/{key}");
        self.inside(|| fs::write(&file, value.to_string()).unwrap_or_else(|error| panic!("{file}: {error}")));
    }

    /// Runs a closure inside the namespace. Sockets opened there stay in the namespace.
    ///
    /// # Panics
    /// If `what` panics.
    pub fn inside<T: Send>(&self, what: impl FnOnce() -> T + Send) -> T {
        let door = File::open(self.path()).expect("the namespace is held open");
        let visit = || {
            let moved = move_into_link_name_space(door.as_fd(), Some(LinkNameSpaceType::Network));
            moved.expect("root may enter a namespace");
            what()
        };
        thread::scope(|scope| scope.spawn(visit).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Returns a command that runs in the namespace.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.path().display())).arg("--").arg(program);
        command
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/ns/net", self.holder.id()))
    }
}

impl Default for Namespace {
    fn default() -> Namespace {
        Namespace::new()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Both fail only if the child is already gone, which is fine.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Runs the program under `setpriv` (util-linux), so that the kernel kills it even when the test executable is killed
/// and no `Drop` runs.
pub(crate) fn dying_with_us(program: &Path, network: Option<&Namespace>) -> Command {
    let command = |program: &Path| network.map_or_else(|| Command::new(program), |network| network.command(program));
    match program::search("setpriv") {
        Some(setpriv) => {
            let mut command = command(&setpriv);
            command.args(["--pdeathsig", "KILL", "--"]).arg(program);
            command
        }
        None => command(program),
    }
}

/// Returns the name of the interface towards an address.
pub(crate) fn interface(address: Ipv4Addr) -> String {
    let [a, b, c, d] = address.octets();
    format!("to{a:02x}{b:02x}{c:02x}{d:02x}")
}
