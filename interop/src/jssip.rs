//! `JsSIP`, the SIP library of the web phone, from the npm registry.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use crate::program::{Program, is_required};

/// Version of the package.
const VERSION: &str = "3.12.0";

/// File in the package.
const FILE: &str = "package/dist/jssip.min.js";

/// SHA-512 of the package.
const HASH: &str = "593992401525adb328b55ea146a3af909ff71e0c8a513cc3cf74129e9ee4cdd02cb12826c4bd0c788597ee566db0e264696a5e577348ec937d18cc2c7ec0a8a3";

/// Returns the library, or nothing if it cannot be downloaded, and says so. The package is kept in this folder.
///
/// # Panics
/// If it cannot be downloaded and `STROWGER_REQUIRE_INTEROP=1`, or if it is not the expected one.
#[must_use]
pub fn jssip(cache: &Path) -> Option<String> {
    // Tests run in parallel.
    static DOWNLOAD: Mutex<()> = Mutex::new(());
    let _one_at_a_time = DOWNLOAD.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let name = format!("jssip-{VERSION}.tgz");
    let package = cache.join(&name);
    if !package.is_file() {
        if !Program::Npm.available() {
            return None;
        }
        fs::create_dir_all(cache).expect("the folder can be made");
        let output = Command::new(Program::Npm.path())
            .args(["pack", "--silent", &format!("jssip@{VERSION}")])
            .current_dir(cache)
            .output()
            .expect("npm starts");
        if !output.status.success() {
            let why = format!("JsSIP cannot be downloaded: {}", String::from_utf8_lossy(&output.stderr));
            assert!(!is_required(), "{why}");
            let _ = writeln!(io::stderr(), "skipped: {why}: {}", thread::current().name().unwrap_or("a test"));
            return None;
        }
    }
    let hash = run("sha512sum", &[&name], cache);
    assert_eq!(hash.split(' ').next(), Some(HASH), "{} is not the expected package: delete it", package.display());
    Some(run("tar", &["-xzOf", &name, FILE], cache))
}

fn run(program: &str, arguments: &[&str], folder: &Path) -> String {
    let output = Command::new(program).args(arguments).current_dir(folder).output();
    let output = output.unwrap_or_else(|error| panic!("`{program}` does not start: {error}"));
    assert!(output.status.success(), "`{program}`: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}
