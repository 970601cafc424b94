//! A folder with a configuration, in which the binary is run.

#![allow(dead_code, reason = "each test file uses a part")]

pub(crate) mod end;
pub(crate) mod server;

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

pub(crate) struct Folder {
    folder: TempDir,
}

/// Result of a command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Folder {
    /// Creates a folder with `config` as `strowger.toml`; without a file if it is empty.
    pub(crate) fn new(config: &str) -> Self {
        let folder = Self { folder: tempfile::tempdir().expect("a folder") };
        if !config.is_empty() {
            folder.write("strowger.toml", config);
        }
        folder
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).expect("written");
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_strowger"));
        command.args(arguments).current_dir(self.path());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        self.run_with(arguments, "")
    }

    /// Runs a command with `input` on standard input.
    pub(crate) fn run_with(&self, arguments: &[&str], input: &str) -> Ran {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        // A command that reads no input may have exited.
        drop(child.stdin.take().expect("piped").write_all(input.as_bytes()));
        let output = child.wait_with_output().expect("it ends");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}

impl Ran {
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.out
    }

    pub(crate) fn json(self) -> Value {
        serde_json::from_str(&self.ok()).expect("JSON")
    }

    /// Returns the error text; asserts that the exit code is `code` and that there is no other output.
    pub(crate) fn refused(self, code: i32) -> String {
        assert_eq!((self.code, self.out.as_str()), (Some(code), ""), "{self:?}");
        assert!(self.err.starts_with("strowger: ") && self.err.trim_end().lines().count() == 1, "{self:?}");
        self.err.trim_end().trim_start_matches("strowger: ").to_owned()
    }
}
