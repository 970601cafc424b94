//! Rules for documents: their links and names exist.

use std::collections::BTreeSet;
use std::path::Path;

use crate::code::{bare, words};
use crate::files::{File, read_all};
use crate::violation::Violation;

/// Documents whose names of functions and types are looked up in the code.
const NAMING: [&str; 2] = ["ARCHITECTURE.md", "docs/internals/"];

/// Checks the documents below `root`.
///
/// # Errors
/// A file cannot be read; the text says which.
pub(crate) fn check(root: &Path) -> Result<Vec<Violation>, String> {
    let files = read_all(root)?;
    let code: String = files.iter().filter(|file| file.path.ends_with(".rs")).map(|file| bare(&file.text)).collect();
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".md")) {
        check_links(root, file, &mut found);
        if NAMING.iter().any(|start| file.path.starts_with(start)) {
            check_names(root, file, &code, &mut found);
        }
        if file.path.starts_with("bench/") {
            check_summary(file, &mut found);
        }
    }
    Ok(found)
}

/// Checks that each relative link leads to a file.
fn check_links(root: &Path, file: &File, found: &mut Vec<Violation>) {
    let folder = root.join(&file.path);
    let folder = folder.parent().unwrap_or(root);
    for (line, text) in outside_blocks(&file.text) {
        for rest in text.split("](").skip(1) {
            let target = rest.split([')', '#', ' ']).next().unwrap_or_default();
            if !target.is_empty() && !target.contains(':') && !folder.join(target).exists() {
                let place = format!("{}:{line}", file.path);
                found.push(Violation::new("link", &place, format!("{target} does not exist")));
            }
        }
    }
}

/// Checks that each name in backticks that looks like code (`a::b`, `f()`) or like a path in the repository
/// (`crates/…`) exists.
fn check_names(root: &Path, file: &File, code: &str, found: &mut Vec<Violation>) {
    for (line, text) in outside_blocks(&file.text) {
        for name in text.split('`').skip(1).step_by(2) {
            let place = || format!("{}:{line}", file.path);
            let is_path =
                ["crates/", "bin/", "docs/", "interop/", "scripts/", "xtask/"].iter().any(|p| name.starts_with(p));
            if is_path && !name.contains(['*', '{', ' ']) && !root.join(name).exists() {
                found.push(Violation::new("name", &place(), format!("there is no {name}")));
            }
            let plain = name.split('(').next().unwrap_or(name);
            let named = plain.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':');
            if !is_path && named && (plain.contains("::") || plain != name) {
                let missing = plain.split("::").find(|part| !is_a_crate(part) && words(code, part).next().is_none());
                if let Some(part) = missing {
                    let what = format!("`{name}`: the code has no {part}");
                    found.push(Violation::new("name", &place(), what).remedy("name it as it is in the code"));
                }
            }
        }
    }
}

/// A page of measurements has a summary, whose numbers occur again in the rest of the page.
fn check_summary(file: &File, found: &mut Vec<Violation>) {
    const TITLE: &str = "\n## In short\n";
    let Some((before, after)) = file.text.split_once(TITLE) else {
        let remedy = "add it after the title: three figures from the tables below";
        found.push(Violation::new("summary", &file.path, "there is no section \"In short\"").remedy(remedy));
        return;
    };
    let (summary, rest) = after.split_once("\n## ").unwrap_or((after, ""));
    let known: BTreeSet<&str> = numbers(before).chain(numbers(rest)).collect();
    let first = before.matches('\n').count() + 3;
    for (index, line) in summary.lines().enumerate() {
        for number in numbers(line).filter(|number| !known.contains(number)) {
            let place = format!("{}:{}", file.path, first + index);
            let what = format!("{number} does not occur in the rest of the page");
            found.push(Violation::new("summary", &place, what).remedy("copy figures from the tables as they are"));
        }
    }
}

/// The numbers in a text, with their decimal points and thousands separators.
fn numbers(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split(|c: char| !c.is_ascii_digit() && c != '.' && c != ',');
    parts.map(|part| part.trim_matches(['.', ','])).filter(|part| !part.is_empty())
}

fn is_a_crate(part: &str) -> bool {
    crate::rules::CRATES.iter().any(|rule| rule.folder.ends_with(&format!("/{part}")))
}

/// Returns the numbered lines outside fenced blocks.
fn outside_blocks(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut inside = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        (!inside && !fence).then_some((index + 1, line))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn faults(files: &[(&str, &str)]) -> Vec<String> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("it has one")).expect("a folder can be made");
            fs::write(path, text).expect("a file can be written");
        }
        let found = check(folder.path()).expect("the files can be read");
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_real_docs_are_correct() {
        let found = check(&crate::root()).expect("the files can be read");
        assert!(found.is_empty(), "{}", crate::violation::report(&found));
    }

    #[test]
    fn a_dead_link_is_caught() {
        let text = "[a](b.md) [c](b.md#part) [d](https://example.com/) [e](#here)\n```\n[f](gone.md)\n```\n";
        assert_eq!(faults(&[("a.md", text), ("b.md", "")]), [""; 0]);
        assert_eq!(faults(&[("a.md", "\n[a](gone.md)\n")]), ["a.md:2: link: gone.md does not exist"]);
    }

    #[test]
    fn a_summary_with_a_stale_number_is_caught() {
        let page =
            |figure: &str| format!("# Page\n\n## In short\n\n- It takes {figure} ms.\n\n## Table\n\n| 1,234.5 | 6 |\n");
        assert_eq!(faults(&[("bench/A.md", &page("1,234.5"))]), [""; 0]);
        let found = faults(&[("bench/A.md", &page("234.5"))]);
        assert!(found.len() == 1 && found[0].starts_with("bench/A.md:5: summary: 234.5 does not occur"), "{found:#?}");
        let found = faults(&[("bench/A.md", "# Page\n")]);
        assert!(found.len() == 1 && found[0].contains("there is no section"), "{found:#?}");
    }

    #[test]
    fn a_missing_function_is_caught() {
        let code = ("crates/core/shard/src/lib.rs", "impl Shard { fn handle_input() {} } // fn old()");
        let text = "`Shard::handle_input`, `shard::Shard`, `handle_input()`, `crates/core/shard`, `make test`\n";
        assert_eq!(faults(&[("ARCHITECTURE.md", text), code]), [""; 0]);
        let found = faults(&[("ARCHITECTURE.md", "`Shard::old` and `crates/core/gone`\n"), code]);
        assert_eq!(found.len(), 2, "{found:#?}");
        assert!(found[0].contains("the code has no old"), "{found:#?}");
    }
}
