//! A network of one's own, where nobody else's filters and connection tables are on the way, and what is sent stays.

use std::env;
use std::process::{self, Command, Stdio};

/// Set where the process is the second one: which network it has.
const APART: &str = "STROWGER_BENCH_APART";

/// What a program measures in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// A namespace that ends with the program. Its loopback is up.
    Own,
    /// The machine's loopback.
    Shared,
}

/// Gives this program a network of its own: runs it once more there, where that has not been done, and ends as that ended.
///
/// # Panics
/// When there is none to be had, which takes root or user namespaces, and `may_share` does not allow the machine's.
#[must_use]
pub fn enter(may_share: bool) -> Network {
    match env::var(APART).as_deref() {
        Ok("own") => {
            let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
            assert!(
                up.is_ok_and(|status| status.success()),
                "the network namespace has no loopback: ip is needed (sudo apt-get install iproute2)"
            );
            Network::Own
        }
        Ok(_) => Network::Shared,
        Err(_) => process::exit(again(may_share)),
    }
}

/// Runs this program once more; how it ended.
fn again(may_share: bool) -> i32 {
    let program = env::current_exe().expect("a running program has a file");
    let ways = [&["--net"][..], &["--user", "--map-root-user", "--net"]];
    let mut command = match ways.into_iter().find(|way| is_allowed(way)) {
        Some(way) => {
            let mut command = Command::new("unshare");
            command.args(way).arg(&program).env(APART, "own");
            command
        }
        None => {
            assert!(may_share, "a network namespace is needed: run this as root, with unshare (util-linux) installed");
            eprintln!(
                "a network namespace needs root: this machine's loopback is used, with the filters that it may have"
            );
            let mut command = Command::new(&program);
            command.env(APART, "shared");
            command
        }
    };
    command.args(env::args_os().skip(1)).status().expect("this program runs once more").code().unwrap_or(1)
}

fn is_allowed(way: &[&str]) -> bool {
    let tried = Command::new("unshare").args(way).arg("true").stderr(Stdio::null()).status();
    tried.is_ok_and(|status| status.success())
}
