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
    match known(env::var(APART).ok().as_deref(), may_share) {
        Some(Network::Own) => {
            let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
            assert!(
                up.is_ok_and(|status| status.success()),
                "the network namespace has no loopback: ip is needed (sudo apt-get install iproute2)"
            );
            Network::Own
        }
        Some(Network::Shared) => Network::Shared,
        None => process::exit(again(may_share)),
    }
}

/// The network that this process has already been given, and may have.
fn known(apart: Option<&str>, may_share: bool) -> Option<Network> {
    match apart {
        Some("own") => Some(Network::Own),
        Some("shared") if may_share => Some(Network::Shared),
        _ => None,
    }
}

/// What a program is run through so that it is killed when who runs it is (util-linux); nothing where that is not there.
fn bound() -> &'static [&'static str] {
    const THROUGH: [&str; 3] = ["setpriv", "--pdeathsig", "KILL"];
    let tried = Command::new(THROUGH[0]).args(&THROUGH[1..]).arg("true").stderr(Stdio::null()).status();
    if tried.is_ok_and(|status| status.success()) { &THROUGH } else { &[] }
}

/// Runs this program once more; how it ended.
fn again(may_share: bool) -> i32 {
    let program = env::current_exe().expect("a running program has a file");
    let bound = bound();
    let ways = [&["--net"][..], &["--user", "--map-root-user", "--net"]];
    let mut command = match ways.into_iter().find(|way| is_allowed(way)) {
        Some(way) => {
            let mut command = Command::new("unshare");
            command.args(way).args(bound).arg(&program).env(APART, "own");
            command
        }
        None => {
            assert!(may_share, "a network namespace is needed: run this as root, with unshare (util-linux) installed");
            eprintln!(
                "a network namespace needs root: this machine's loopback is used, with the filters that it may have"
            );
            let mut command = match bound {
                [] => Command::new(&program),
                [first, rest @ ..] => {
                    let mut command = Command::new(first);
                    command.args(rest).arg(&program);
                    command
                }
            };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_that_was_set_by_hand_is_shared_only_where_it_may_be() {
        assert_eq!(known(Some("own"), false), Some(Network::Own));
        assert_eq!(known(Some("shared"), true), Some(Network::Shared));
        for (apart, may_share) in [(Some("shared"), false), (Some("yes"), true), (Some(""), true), (None, true)] {
            assert_eq!(known(apart, may_share), None, "{apart:?}, {may_share}");
        }
    }
}
