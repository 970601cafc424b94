//! Networks that exist for one test only.

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

/// What interfaces are called that [`Namespace::connect`] makes.
const LAN: &str = "lan";

/// A network namespace of its own, with a loopback interface and nothing else.
///
/// It has no name: a child holds it open, the kernel kills that child when the test executable is gone, and with the last
/// process the kernel removes the namespace and all that is in it. So nothing stays behind, whatever happens to the test.
#[derive(Debug)]
pub struct Namespace {
    holder: Child,
}

impl Namespace {
    /// Whether namespaces can be made here; if not, says that the test is skipped.
    ///
    /// # Panics
    /// When one of `programs` is missing, root runs the test, and `STROWGER_REQUIRE_INTEROP=1`.
    #[must_use]
    pub fn available(programs: &[&str]) -> bool {
        let may = Command::new("unshare").args(["--net", "true"]).stderr(Stdio::null()).status();
        let missing: Vec<_> = programs.iter().filter(|name| program::search(name).is_none()).collect();
        let why = if !may.is_ok_and(|status| status.success()) {
            "only root may make network namespaces".to_owned()
        } else if !missing.is_empty() {
            let missing =
                format!("{missing:?} are not installed (apt-get install iproute2 nftables conntrack keepalived)");
            assert!(!program::required(), "{missing}");
            missing
        } else {
            return true;
        };
        // The test harness would keep back what `println!` says in a test that passes.
        let _ = writeln!(io::stderr(), "SKIPPED: {why}: {}", thread::current().name().unwrap_or("a test"));
        false
    }

    /// Makes one.
    ///
    /// # Panics
    /// When it cannot be made: ask [`Namespace::available`] first.
    #[must_use]
    pub fn new() -> Namespace {
        // `cat` reads from us until we are gone.
        let mut command = dying_with_us(Path::new("unshare"), None);
        let holder = command.args(["--net", "cat"]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        let namespace = Namespace { holder: holder.expect("`unshare` starts") };
        let ours = fs::read_link("/proc/self/ns/net").expect("there is /proc");
        let made = poll(PATIENCE, || fs::read_link(namespace.path()).is_ok_and(|theirs| theirs != ours).then_some(()));
        assert!(made.is_some(), "`unshare` makes no network namespace");
        namespace.run("ip", "link set lo up");
        namespace
    }

    /// Adds an interface that has these addresses and leads nowhere.
    ///
    /// # Panics
    /// When there is one of this name.
    pub fn add_interface(&self, name: &str, v4: Ipv4Addr, v6: Ipv6Addr) {
        self.run("ip", &format!("link add {name} type veth peer name {name}-end"));
        self.run("ip", &format!("address add {v4}/24 dev {name}"));
        // Without waiting for another machine that might have the address.
        self.run("ip", &format!("address add {v6}/64 dev {name} nodad"));
        for end in [name, &format!("{name}-end")] {
            self.run("ip", &format!("link set {end} up"));
        }
    }

    /// Joins two of them by a cable whose ends have these addresses of a /24 network.
    ///
    /// # Panics
    /// When there is one already with such an end.
    pub fn join(&self, address: Ipv4Addr, other: &Namespace, its_address: Ipv4Addr) {
        let (end, its_end) = (interface(its_address), interface(address));
        self.run("ip", &format!("link add {end} type veth peer name {its_end} netns {}", other.holder.id()));
        for (namespace, end, address) in [(self, end, address), (other, its_end, its_address)] {
            namespace.run("ip", &format!("address add {address}/24 dev {end}"));
            namespace.run("ip", &format!("link set {end} up"));
        }
    }

    /// Joins all of these, each with addresses of one /24 network on its interface `lan`, by a switch in this one.
    ///
    /// # Panics
    /// When there is such a switch already.
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

    /// From now on so many of a hundred datagrams that arrive in it are lost.
    ///
    /// # Panics
    /// When it loses some already.
    pub fn lose(&self, percent: u8) {
        self.run("nft", "add table inet loss");
        self.run("nft", "add chain inet loss in { type filter hook input priority 0 ; }");
        let rule = format!("meta l4proto udp numgen random mod 100 < {percent} counter drop");
        self.run("nft", &format!("add rule inet loss in {rule}"));
    }

    /// How many [were lost](Namespace::lose).
    ///
    /// # Panics
    /// When none can be.
    #[must_use]
    pub fn lost(&self) -> u64 {
        let rules = self.run("nft", "list chain inet loss in");
        let count = rules.split("packets ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
        count.unwrap_or_else(|| panic!("no count in {rules}"))
    }

    /// Pulls the plug of its interface `lan`: nothing comes in or goes out any more.
    ///
    /// # Panics
    /// When it has none.
    pub fn unplug(&self) {
        self.run("ip", &format!("link set {LAN} down"));
    }

    /// Runs a program in it, with words for arguments, and returns what it printed.
    ///
    /// # Panics
    /// When it fails, with what it says.
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
    /// When there is no such value.
    pub fn set(&self, key: &str, value: u32) {
        let file = format!("/proc/sys/net/{key}");
        self.inside(|| fs::write(&file, value.to_string()).unwrap_or_else(|error| panic!("{file}: {error}")));
    }

    /// Does something from within; sockets that are opened there stay there.
    ///
    /// # Panics
    /// When `what` does.
    pub fn inside<T: Send>(&self, what: impl FnOnce() -> T + Send) -> T {
        let door = File::open(self.path()).expect("the namespace is held open");
        let visit = || {
            let moved = move_into_link_name_space(door.as_fd(), Some(LinkNameSpaceType::Network));
            moved.expect("root may enter a namespace");
            what()
        };
        thread::scope(|scope| scope.spawn(visit).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// A program that will run in it.
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
        // Both fail only when the child is gone already, which is what we want.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Through `setpriv` (util-linux) the kernel kills the child also when the test executable is killed,
/// which no `Drop` sees.
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

/// The name of the interface that leads to an address.
pub(crate) fn interface(address: Ipv4Addr) -> String {
    let [a, b, c, d] = address.octets();
    format!("to{a:02x}{b:02x}{c:02x}{d:02x}")
}
