//! Which of the programs that the tests need are here.

use std::env;
use std::io::{self, Write};
use std::path::PathBuf;
use std::thread;

/// A program that a test drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// The soft-phone `baresip`.
    Baresip,
    /// The soft-phone `linphonec`, the one that knows SHA-256 digests.
    Linphone,
    /// The scripted user agent `sipp`.
    Sipp,
    /// The SIP server `kamailio`.
    Kamailio,
    /// The database `redis-server`.
    Redis,
    /// The database `postgres`.
    Postgres,
    /// The database `mariadbd`.
    MariaDb,
    /// The library that lets several `mariadbd` commit together.
    Galera,
}

impl Program {
    /// Whether the program is installed; if not, says that the test is skipped.
    ///
    /// # Panics
    /// When it is missing and `STROWGER_REQUIRE_INTEROP=1`, except for [`Program::Linphone`].
    #[must_use]
    pub fn available(self) -> bool {
        if self.find().is_some() {
            return true;
        }
        let missing = format!("{} is not installed (apt-get install {})", self.name(), self.package());
        // They bring half a desktop, or half a carrier, with them, so nobody is made to install them.
        let is_optional = matches!(self, Program::Linphone | Program::Kamailio);
        let required = !is_optional && env::var("STROWGER_REQUIRE_INTEROP").is_ok_and(|value| value == "1");
        assert!(!required, "{missing}");
        // The test harness would keep back what `println!` says in a test that passes.
        let test = thread::current();
        let _ = writeln!(io::stderr(), "skipped: {missing}: {}", test.name().unwrap_or("a test"));
        false
    }

    /// The path of the executable.
    ///
    /// # Panics
    /// When it is not installed: ask [`Program::available`] first.
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
            Program::Sipp => "sipp",
            Program::Kamailio => "kamailio",
            Program::Redis => "redis-server",
            Program::Postgres => "postgres",
            Program::MariaDb => "mariadbd",
            Program::Galera => "libgalera_smm.so",
        }
    }

    fn package(self) -> &'static str {
        match self {
            Program::Baresip => "baresip",
            Program::Linphone => "linphone-cli",
            Program::Sipp => "sip-tester",
            Program::Kamailio => "kamailio",
            Program::Redis => "redis-server",
            Program::Postgres => "postgresql",
            Program::MariaDb => "mariadb-server",
            Program::Galera => "galera-4 rsync lsof",
        }
    }
}

/// Whether a program that is missing fails the test.
pub(crate) fn required() -> bool {
    env::var("STROWGER_REQUIRE_INTEROP").is_ok_and(|value| value == "1")
}

/// The first file of this name in the folders of `PATH`, and in those of servers, which are not in everybody's.
pub(crate) fn search(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let servers = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
    // Where Debian puts PostgreSQL: a folder a version.
    let versions =
        std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|entry| entry.path().join("bin"));
    env::split_paths(&path).chain(servers).chain(versions).map(|folder| folder.join(name)).find(|file| file.is_file())
}
