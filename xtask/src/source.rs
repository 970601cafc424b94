//! Rules for source text.

use std::path::Path;

use crate::code::{bare, line_of, words};
use crate::files::{File, read_all};
use crate::rules::{CRATES, Group, MAX_LINES, MUST_BE_BANNED, UNSAFE_MAY_STAND_IN};
use crate::violation::Violation;

/// Path of a core crate's bans, relative to its folder.
const BANS: &str = "clippy.toml";

/// Checks the files below `root`.
///
/// # Errors
/// A file cannot be read; the text says which.
pub(crate) fn check(root: &Path) -> Result<Vec<Violation>, String> {
    let files = read_all(root)?;
    let mut found = Vec::new();
    check_core_crates(root, &files, &mut found);
    for file in &files {
        check_length(file, &mut found);
        check_paths(root, file, &mut found);
        if file.path.ends_with(".rs") {
            let code = bare(&file.text);
            check_unsafe(file, &code, &mut found);
            check_ignored(file, &code, &mut found);
            if file.path.starts_with("crates/core/") {
                check_maps(file, &code, &mut found);
            }
        }
    }
    Ok(found)
}

/// Checks that each core crate forbids unsafe code and has the same bans.
fn check_core_crates(root: &Path, files: &[File], found: &mut Vec<Violation>) {
    let text_of = |path: &str| files.iter().find(|file| file.path == path).map(|file| file.text.as_str());
    let core = CRATES.iter().filter(|rule| rule.group == Group::Core && root.join(rule.folder).is_dir());
    let mut model: Option<(String, &str)> = None;
    for rule in core {
        let lib = format!("{}/src/lib.rs", rule.folder);
        if !text_of(&lib).is_some_and(|text| bare(text).contains("#![forbid(unsafe_code)]")) {
            found.push(Violation::new("core", &lib, "the line `#![forbid(unsafe_code)]` is missing"));
        }
        let path = format!("{}/{BANS}", rule.folder);
        let Some(text) = text_of(&path) else {
            found.push(
                Violation::new("core", &path, "the file with the core's bans is missing").remedy(
                    "copy the one in crates/core/foundation: the nearest clippy.toml wins and nothing is merged",
                ),
            );
            continue;
        };
        for ban in MUST_BE_BANNED.iter().filter(|ban| !text.contains(&format!("\"{ban}\""))) {
            found.push(Violation::new("core", &path, format!("{ban} is not banned")));
        }
        match &model {
            None => model = Some((path, text)),
            Some((first, same)) if *same != text => {
                let what = format!("it differs from {first}");
                found.push(Violation::new("core", &path, what).remedy("the core's bans are the same in each crate"));
            }
            Some(_) => {}
        }
    }
}

fn check_length(file: &File, found: &mut Vec<Violation>) {
    let lines = file.text.lines().count();
    if lines > MAX_LINES && [".rs", ".sh", ".md"].iter().any(|end| file.path.ends_with(end)) {
        let what = format!("{lines} lines, {MAX_LINES} at most");
        found.push(
            Violation::new("length", &file.path, what).remedy("split it where a reader would look for the parts"),
        );
    }
}

/// Checks that no line names a folder of the machine on which it was written.
fn check_paths(root: &Path, file: &File, found: &mut Vec<Violation>) {
    let root = root.to_string_lossy();
    let known = [concat!("/ho", "me/"), concat!("/Us", "ers/"), concat!("/ro", "ot/"), concat!("/wo", "rk/")];
    for (number, line) in file.text.lines().enumerate() {
        let begins = |at: usize| !line[..at].ends_with(|c: char| c.is_alphanumeric() || "_-.$}/".contains(c));
        let local = known.iter().any(|path| line.match_indices(path).any(|(at, _)| begins(at)))
            || root.matches('/').count() > 1 && line.contains(&*root);
        if local {
            let place = format!("{}:{}", file.path, number + 1);
            found.push(
                Violation::new("local path", &place, "a folder of somebody's machine is named")
                    .remedy("say it relative to the repository, or by a variable"),
            );
        }
    }
}

fn check_unsafe(file: &File, code: &str, found: &mut Vec<Violation>) {
    if UNSAFE_MAY_STAND_IN.iter().any(|folder| file.path.starts_with(folder)) {
        return;
    }
    for at in words(code, "unsafe") {
        let place = format!("{}:{}", file.path, line_of(code, at));
        found.push(
            Violation::new("unsafe", &place, "unsafe code stands outside the crates that may hold it")
                .remedy("put it behind a safe function in crates/shell/net, with its SAFETY comment and a test"),
        );
    }
}

fn check_maps(file: &File, code: &str, found: &mut Vec<Violation>) {
    for at in words(code, "std::collections") {
        let statement = code[at..].split([';', '(', '=', '\n']).next().unwrap_or_default();
        let braced = code[at..].starts_with("std::collections::{");
        let statement = if braced { code[at..].split('}').next().unwrap_or_default() } else { statement };
        if ["HashMap", "HashSet"].iter().any(|name| words(statement, name).next().is_some()) {
            let place = format!("{}:{}", file.path, line_of(code, at));
            found.push(
                Violation::new("maps", &place, "a map of the standard library iterates in another order each run")
                    .remedy("use strowger_foundation::map::SeededMap"),
            );
        }
    }
}

fn check_ignored(file: &File, code: &str, found: &mut Vec<Violation>) {
    for at in words(code, "ignore") {
        let inside_attribute = code[..at].trim_end().ends_with("#[")
            || code[..at].rfind("#[cfg_attr(").is_some_and(|open| !code[open..at].contains(']'));
        let rest = file.text[at..].trim_start_matches("ignore").trim_start();
        let has_reason = rest.strip_prefix('=').is_some_and(|reason| !reason.trim_start().starts_with("\"\""));
        if inside_attribute && !has_reason {
            let place = format!("{}:{}", file.path, line_of(code, at));
            found.push(
                Violation::new("ignored test", &place, "nothing says why")
                    .remedy("#[ignore = \"why, and how to run it\"]"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    /// Creates a repository with one valid core crate and `files`.
    fn repository(files: &[(&str, &str)]) -> TempDir {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let bans: String = MUST_BE_BANNED.iter().map(|ban| format!("\"{ban}\"\n")).collect();
        let sound = [
            ("crates/core/foundation/clippy.toml", bans.as_str()),
            ("crates/core/foundation/src/lib.rs", "#![forbid(unsafe_code)]\n"),
        ];
        for (path, text) in sound.iter().chain(files) {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("it has one")).expect("a folder can be made");
            fs::write(path, text).expect("a file can be written");
        }
        folder
    }

    fn faults(files: &[(&str, &str)]) -> Vec<String> {
        let repository = repository(files);
        let found = check(repository.path()).expect("the files can be read");
        found.iter().map(ToString::to_string).collect()
    }

    fn only_fault(files: &[(&str, &str)]) -> String {
        let found = faults(files);
        assert_eq!(found.len(), 1, "{found:#?}");
        found[0].clone()
    }

    #[test]
    fn the_real_repository_keeps_the_rules() {
        let found = check(&crate::root()).expect("the files can be read");
        assert!(found.is_empty(), "{}", crate::violation::report(&found));
    }

    #[test]
    fn a_valid_repository_passes() {
        let net = "// SAFETY: x\nunsafe { y() }\n";
        let foundation = "use std::collections::VecDeque;\n/// unsafe, HashMap\nfn f() {}\n";
        assert_eq!(
            faults(&[("crates/shell/net/src/sys.rs", net), ("crates/core/foundation/src/f.rs", foundation)]),
            [""; 0]
        );
    }

    #[test]
    fn unsafe_outside_its_place_is_caught() {
        let fault = only_fault(&[("crates/shell/worker/src/lib.rs", "\nfn f() { unsafe { g() } }\n")]);
        assert!(fault.starts_with("crates/shell/worker/src/lib.rs:2: unsafe:"), "{fault}");
    }

    #[test]
    fn one_crate_counts_allocations_for_all_tests() {
        let counter = "unsafe impl GlobalAlloc for Counting {}\n";
        assert_eq!(faults(&[("crates/tools/allocations/src/lib.rs", counter)]), [""; 0]);
        assert!(only_fault(&[("crates/core/foundation/tests/memory.rs", counter)]).contains("unsafe:"));
    }

    #[test]
    fn a_core_crate_without_forbid_unsafe_is_caught() {
        let fault = only_fault(&[("crates/core/foundation/src/lib.rs", "// #![forbid(unsafe_code)]\n")]);
        assert!(fault.contains("is missing"), "{fault}");
    }

    #[test]
    fn missing_reduced_and_differing_bans_are_caught() {
        let lib = ("crates/core/message/src/lib.rs", "#![forbid(unsafe_code)]\n");
        assert!(only_fault(&[lib]).contains("crates/core/message/clippy.toml: core: the file with"));
        let found = faults(&[lib, ("crates/core/message/clippy.toml", "\"std::time::Instant\"\n")]);
        assert!(found.iter().any(|fault| fault.contains("std::collections::HashMap is not banned")), "{found:#?}");
        assert!(found.iter().any(|fault| fault.contains("differs from crates/core/foundation")), "{found:#?}");
    }

    #[test]
    fn std_maps_in_the_core_are_caught() {
        for text in [
            "use std::collections::HashMap;\n",
            "use std::collections::{\n    BTreeMap, HashSet,\n};\n",
            "fn f(m: std::collections::HashMap<u8, u8>) {}\n",
        ] {
            assert!(only_fault(&[("crates/core/foundation/src/f.rs", text)]).contains("maps:"), "{text}");
        }
        assert_eq!(faults(&[("crates/shell/net/src/f.rs", "use std::collections::HashMap;\n")]), [""; 0]);
    }

    #[test]
    fn a_long_file_is_caught() {
        assert_eq!(faults(&[("a.rs", &"\n".repeat(MAX_LINES))]), [""; 0]);
        assert!(only_fault(&[("a.rs", &"\n".repeat(MAX_LINES + 1))]).contains("1001 lines"));
    }

    #[test]
    fn a_local_path_is_caught_and_a_relative_one_is_not() {
        let path = concat!("see /ho", "me/somebody/x\n");
        assert!(only_fault(&[("README.md", path)]).starts_with("README.md:1: local path"));
        let relative = concat!("see docs/ho", "me/x and ${DIR}/wo", "rk/x\n");
        assert_eq!(faults(&[("README.md", relative)]), [""; 0]);
    }

    #[test]
    fn an_ignored_test_without_a_reason_is_caught() {
        for text in ["#[ignore]\n", "#[ignore = \"\"]\n", "#[cfg_attr(miri, ignore)]\n"] {
            assert!(only_fault(&[("a.rs", text)]).contains("ignored test"), "{text}");
        }
        let sound = "#[ignore = \"takes an hour\"]\n#[cfg_attr(miri, ignore = \"slow\")]\nlet ignore = 1;\n";
        assert_eq!(faults(&[("a.rs", sound)]), [""; 0]);
    }
}
