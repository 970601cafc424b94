//! Completions and manual pages.

mod common;

use std::io::Write as _;
use std::process::{Command, Stdio};

use common::Folder;

#[test]
fn each_command_has_a_manual_page() {
    let folder = Folder::new("");
    folder.run(&["man", "pages/man1"]).ok();
    let top = folder.read("pages/man1/strowger.1");
    assert!(top.contains("strowger\\-ctl(1)") && top.contains("\\-\\-config"), "{top}");
    for page in ["serve", "user-alias-add", "ctl-drain", "load-run", "plan-size"] {
        let text = folder.read(&format!("pages/man1/strowger-{page}.1"));
        assert!(text.contains(".SH SYNOPSIS") && !text.contains(".SH EXTRA"), "{text}");
    }
    let drain = folder.read("pages/man1/strowger-ctl-drain.1");
    assert!(drain.contains(".SH NOTES\nExamples:\n"), "{drain}");
    let refused = folder.run(&["man", "/dev/null/pages"]).refused(1);
    assert!(refused.contains("name another folder"), "{refused}");
}

#[test]
fn completions_are_valid_scripts_that_know_the_commands() {
    let folder = Folder::new("");
    for shell in ["bash", "zsh", "fish"] {
        let script = folder.run(&["completions", shell]).ok();
        assert!(["unregister", "rebalance", "schema"].iter().all(|word| script.contains(word)), "{shell}");
        let Ok(mut checker) = Command::new(shell).arg("-n").stdin(Stdio::piped()).spawn() else {
            eprintln!("skipped: {shell} is not installed");
            continue;
        };
        checker.stdin.take().expect("a pipe").write_all(script.as_bytes()).expect("it reads");
        assert!(checker.wait().expect("it ends").success(), "{shell}");
    }
}
