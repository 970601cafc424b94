//! Users that databases run as when root runs the tests.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::program::search;

/// Returns the command that runs a program as this user. The kernel kills the program when its parent process dies.
pub(super) fn run_as(user: &str, program: &Path, arguments: &[&str]) -> (PathBuf, Vec<String>) {
    let program = program.display().to_string();
    if !rustix::process::geteuid().is_root() {
        return (program.into(), arguments.iter().map(ToString::to_string).collect());
    }
    let setpriv = search("setpriv").expect("setpriv is of util-linux");
    let (user, group) = (format!("--reuid={user}"), format!("--regid={user}"));
    let all = [&user, &group, "--clear-groups", "--pdeathsig", "KILL", "--", &program];
    (setpriv, all.into_iter().chain(arguments.iter().copied()).map(String::from).collect())
}

/// Changes the owner of a folder and its contents to this user.
pub(super) fn give(user: &str, folder: &Path) {
    if rustix::process::geteuid().is_root() {
        let given = Command::new("chown").args(["-R", &format!("{user}:{user}")]).arg(folder).status();
        assert!(given.is_ok_and(|status| status.success()), "{user} gets {}", folder.display());
    }
}
