//! The programs that tests drive, and whether they are installed.

use std::env;
use std::io::{self, Write};
use std::path::PathBuf;
use std::thread;

/// A program that a test drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// The softphone `baresip`.
    Baresip,
    /// The softphone `linphonec`, the only one that supports SHA-256 digests.
    Linphone,
    /// The browser `chromium`.
    Chromium,
    /// The package manager `npm`, for the library of web phones.
    Npm,
    /// The tool `openssl`, which makes certificates.
    OpenSsl,
    /// The scripted user agent `sipp`.
    Sipp,
    /// The SIP server `kamailio`.
    Kamailio,
    /// The media engine `rtpengine`.
    Rtpengine,
    /// The database `redis-server`.
    Redis,
    /// The database `postgres`.
    Postgres,
    /// The database `mariadbd`.
    MariaDb,
    /// The monitoring system `prometheus`.
    Prometheus,
    /// The packet analyser `tshark`.
    Tshark,
    /// The viewer `sngrep`, which is a collector of HEP.
    Sngrep,
    /// The balancer `haproxy`.
    HaProxy,
    /// The library for synchronous replication between several `mariadbd`.
    Galera,
}

impl Program {
    /// Returns whether the program is installed. If not, prints that the test is skipped.
    ///
    /// # Panics
    /// If it is missing and `STROWGER_REQUIRE_INTEROP=1`, except for optional programs such as [`Program::Linphone`].
    #[must_use]
    pub fn available(self) -> bool {
        if self.find().is_some() {
            return true;
        }
        let missing = format!("{} is not installed (apt-get install {})", self.name(), self.package());
        // These pull in many large packages, so they are never required.
        let is_optional = matches!(self, Program::Linphone | Program::Kamailio);
        let required = !is_optional && env::var("STROWGER_REQUIRE_INTEROP").is_ok_and(|value| value == "1");
        assert!(!required, "{missing}");
        // The test harness captures `println!` output of tests that pass.
        let test = thread::current();
        let _ = writeln!(io::stderr(), "skipped: {missing}: {}", test.name().unwrap_or("a test"));
        false
    }

    /// Returns the path of the executable.
    ///
    /// # Panics
    /// If it is not installed: check [`Program::available`] first.
    #[must_use]
    pub fn path(self) -> PathBuf {
        self.find().unwrap_or_else(|| panic!("{} is not in PATH", self.name()))
    }

    fn find(self) -> Option<PathBuf> {
        match self {
            Program::Galera => Some(PathBuf::from("/usr/lib/galera").join(self.name())).filter(|file| file.is_file()),
            _ => search(self.name()),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Program::Baresip => "baresip",
            Program::Linphone => "linphonec",
            Program::Chromium => "chromium",
            Program::Npm => "npm",
            Program::OpenSsl => "openssl",
            Program::Sipp => "sipp",
            Program::Kamailio => "kamailio",
            Program::Rtpengine => "rtpengine",
            Program::Redis => "redis-server",
            Program::Postgres => "postgres",
            Program::MariaDb => "mariadbd",
            Program::Prometheus => "prometheus",
            Program::Tshark => "tshark",
            Program::Sngrep => "sngrep",
            Program::HaProxy => "haproxy",
            Program::Galera => "libgalera_smm.so",
        }
    }

    fn package(self) -> &'static str {
        match self {
            Program::Baresip => "baresip",
            Program::Linphone => "linphone-cli",
            Program::Chromium => "chromium",
            Program::Npm => "npm",
            Program::OpenSsl => "openssl",
            Program::Sipp => "sip-tester",
            Program::Kamailio => "kamailio",
            Program::Rtpengine => "rtpengine-daemon",
            Program::Redis => "redis-server",
            Program::Postgres => "postgresql",
            Program::MariaDb => "mariadb-server",
            Program::Prometheus => "prometheus",
            Program::Tshark => "tshark",
            Program::Sngrep => "sngrep",
            Program::HaProxy => "haproxy",
            Program::Galera => "galera-4 rsync lsof",
        }
    }
}

/// Returns whether a missing program fails the test.
#[must_use]
pub fn is_required() -> bool {
    env::var("STROWGER_REQUIRE_INTEROP").is_ok_and(|value| value == "1")
}

/// Returns the first file of this name in `PATH` and in the usual folders of server programs, which are often not in
/// `PATH`.
pub(crate) fn search(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let servers = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
    // Debian installs PostgreSQL in one folder per version.
    let versions =
        std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|entry| entry.path().join("bin"));
    env::split_paths(&path).chain(servers).chain(versions).map(|folder| folder.join(name)).find(|file| file.is_file())
}
