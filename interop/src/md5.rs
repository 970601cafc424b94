//! MD5, computed by another program than the tested one.

use std::io::Write as _;
use std::process::{Command, Stdio};

/// The MD5 digest of a text in hexadecimal.
///
/// # Panics
/// If `md5sum` is not installed.
#[must_use]
pub fn md5(text: &str) -> String {
    let mut child = Command::new("md5sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("md5sum (coreutils) is installed");
    child.stdin.take().expect("piped").write_all(text.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    String::from_utf8_lossy(&output.stdout).split_whitespace().next().expect("a hash").to_owned()
}
