//! A separate network namespace, without foreign packet filters and connection tables and without traffic to the
//! outside; and child processes that end with the program.

use std::env;
use std::ffi::OsStr;
use std::process::{self, Command, Stdio};

/// Environment variable set in the re-executed process; tells which network it has.
const APART: &str = "STROWGER_BENCH_APART";

/// Network in which a program measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespace {
    /// A network namespace that ends with the program. Its loopback interface is up.
    Own,
    /// The machine's loopback interface.
    Shared,
}

/// Moves this program into a network namespace of its own by running it again there, and exits with the status of
/// that run.
///
/// # Panics
/// If no namespace is available (it takes root or user namespaces) and `may_share` does not allow the machine's
/// network.
#[must_use]
pub fn enter(may_share: bool) -> Namespace {
    enter_through(&APART_FROM_ALL, may_share)
}

/// Moves this program into a network namespace of its own as [`enter`] does, but leaves it among the machine's
/// processes: a probe in the kernel knows processes by their IDs there. Children that are not ended outlive it.
///
/// # Panics
/// If no namespace is available: it takes root.
pub fn enter_network() {
    let _ = enter_through(&APART_FROM_ALL[..2], false);
}

fn enter_through(way: &[&'static str], may_share: bool) -> Namespace {
    match known(env::var(APART).ok().as_deref(), may_share) {
        Some(Namespace::Own) => {
            let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
            assert!(
                up.is_ok_and(|status| status.success()),
                "the network namespace has no loopback: ip is needed (sudo apt-get install iproute2)"
            );
            Namespace::Own
        }
        Some(Namespace::Shared) => Namespace::Shared,
        None => process::exit(again(way, may_share)),
    }
}

/// Returns the network that this process already has, if it is allowed.
fn known(apart: Option<&str>, may_share: bool) -> Option<Namespace> {
    match apart {
        Some("own") => Some(Namespace::Own),
        Some("shared") if may_share => Some(Namespace::Shared),
        _ => None,
    }
}

/// Command prefix that ends a process with its parent, however that ends (util-linux).
const BOUND: [&str; 3] = ["setpriv", "--pdeathsig", "KILL"];
/// Command prefix that runs a program as the first process of new network and PID namespaces, so that its children
/// end with it, even if it is killed.
const APART_FROM_ALL: [&str; 6] = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"];

/// Runs this program again through `unshare` with these arguments and returns its exit status.
fn again(unshare: &[&'static str], may_share: bool) -> i32 {
    let apart = [&BOUND[..], unshare].concat();
    let unprivileged = [&apart[..], &["--user", "--map-root-user"]].concat();
    let program = env::current_exe().expect("a running program has a file");
    let (way, network) = match [&apart, &unprivileged].into_iter().find(|way| runs(way)) {
        Some(way) => (&way[..], "own"),
        None => {
            assert!(
                may_share,
                "a network namespace is needed: run this as root, with unshare and setpriv (util-linux) installed"
            );
            eprintln!(
                "a network namespace needs root: this machine's loopback is used, with the filters that it may have"
            );
            (if runs(&BOUND) { &BOUND[..] } else { &[] }, "shared")
        }
    };
    let mut command = through(way, program.as_os_str());
    command.args(env::args_os().skip(1)).env(APART, network);
    command.status().expect("this program runs once more").code().unwrap_or(1)
}

/// Returns a command that runs a program through the prefix `way`, or directly if `way` is empty.
fn through(way: &[&str], program: &OsStr) -> Command {
    let Some((first, others)) = way.split_first() else { return Command::new(program) };
    let mut command = Command::new(first);
    command.args(others).arg(program);
    command
}

fn runs(way: &[&str]) -> bool {
    let tried = through(way, OsStr::new("true")).stderr(Stdio::null()).status();
    tried.is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_namespace_is_shared_only_where_allowed() {
        assert_eq!(known(Some("own"), false), Some(Namespace::Own));
        assert_eq!(known(Some("shared"), true), Some(Namespace::Shared));
        for (apart, may_share) in [(Some("shared"), false), (Some("yes"), true), (Some(""), true), (None, true)] {
            assert_eq!(known(apart, may_share), None, "{apart:?}, {may_share}");
        }
    }
}
