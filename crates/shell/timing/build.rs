//! Compiles the programs for the kernel, if the feature `ebpf` asks for them.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The programs, and a socket filter that the tests use to delay packets by a known time.
const SOURCES: [&str; 2] = ["src/bpf/probe.bpf.c", "tests/probe/busy_filter.bpf.c"];

fn main() {
    println!("cargo::rerun-if-changed=src/bpf");
    println!("cargo::rerun-if-changed=tests/probe/busy_filter.bpf.c");
    println!("cargo::rerun-if-env-changed=CLANG");
    if env::var_os("CARGO_FEATURE_EBPF").is_none() {
        return;
    }
    if let Err(error) = SOURCES.into_iter().try_for_each(compile) {
        println!("cargo::error={error}");
    }
}

/// Compiles a source for the architecture of the target, which decides about system calls and byte order.
fn compile(source: &str) -> Result<(), String> {
    let variable = |name: &str| env::var(name).map_err(|error| format!("{name}: {error}"));
    let architecture = variable("CARGO_CFG_TARGET_ARCH")?;
    if !["x86_64", "aarch64"].contains(&architecture.as_str()) {
        return Err(format!("the feature `ebpf` exists for x86_64 and aarch64 only, not for {architecture}"));
    }
    let name = Path::new(source).with_extension("o");
    let object = PathBuf::from(variable("OUT_DIR")?).join(name.file_name().unwrap_or_default());
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let output = Command::new(&clang)
        .args(["-target", "bpfel", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror"])
        .arg(format!("-D__TARGET_{architecture}"))
        // The kernel gets the names of the files with the programs, and the binary contains them: equal on each machine.
        .arg(format!("-ffile-prefix-map={}=timing", variable("CARGO_MANIFEST_DIR")?))
        .args(["-c", source, "-o"])
        .arg(object)
        .output()
        .map_err(|error| {
            format!(
                "cannot run `{clang}`: {error}. The feature `ebpf` needs clang 14 or newer (Debian, Ubuntu: apt-get \
                 install clang); the variable CLANG names another one"
            )
        })?;
    if output.status.success() {
        return Ok(());
    }
    let diagnostics = String::from_utf8_lossy(&output.stderr);
    diagnostics.lines().for_each(|line| println!("cargo::warning={line}"));
    Err(format!("`{clang}` cannot compile the probe's programs; it must be version 14 or newer"))
}
