//! The files themselves: what the page may contain, and where foreign files come from.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vendor {
    packages: Vec<Package>,
}

/// A package of the npm registry.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Package {
    name: String,
    version: String,
    license: String,
    repository: String,
    /// Checksum of the package as the registry gives it.
    integrity: String,
    files: Vec<Copied>,
}

/// A file of a package.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Copied {
    file: String,
    original: String,
    /// Checksum of the original.
    sha256: String,
    changed: Option<Change>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    before: String,
    after: String,
}

fn web() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("web")
}

/// Returns our own files by name, without `vendor`.
fn own_files() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![web()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("the page has this folder").flatten() {
            let path = entry.path();
            let name = path.strip_prefix(web()).expect("it is in there").display().to_string();
            if path.is_file() {
                found.insert(name, fs::read_to_string(path).expect("a text"));
            } else if name != "vendor" {
                folders.push(path);
            }
        }
    }
    found
}

#[test]
fn foreign_files_are_those_of_the_registry() {
    let list = fs::read_to_string(web().join("../vendor.json")).expect("the list");
    let list: Vendor = serde_json::from_str(&list).expect("JSON");
    let mut expected = Vec::new();
    for Package { name, version, license, repository, integrity, files } in list.packages {
        assert!(!version.is_empty() && integrity.starts_with("sha512-"), "{name}");
        assert!(["MIT", "Apache-2.0"].contains(&license.as_str()), "{name} is under {license}");
        assert!(files.iter().any(|file| file.original == "LICENSE"), "the licence of {name} is missing");
        assert!(repository.starts_with("https://"), "{name}: {repository}");
        for Copied { file, original, sha256, changed } in files {
            let mut text = fs::read_to_string(web().join("vendor").join(&file)).expect("a text");
            if let Some(Change { before, after }) = changed {
                assert_eq!(text.matches(&after).count(), 1, "{file}");
                text = text.replace(&after, &before);
            }
            let sum = HEXLOWER.encode(&Sha256::digest(&text));
            assert_eq!(sum, sha256, "{file} is not {original} of {name} {version}");
            expected.push(file);
        }
    }
    expected.sort();
    let names = fs::read_dir(web().join("vendor")).expect("the folder").flatten();
    let mut found: Vec<String> = names.map(|entry| entry.file_name().into_string().expect("a name")).collect();
    found.sort();
    assert_eq!(found, expected, "a file is not listed");
}

/// The content policy refuses these, but the page must not even try.
#[test]
fn nothing_in_the_page_turns_text_into_markup_or_code() {
    let banned = [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "javascript:",
        "srcdoc",
        "DOMParser",
        "setAttribute(",
        "localStorage.setItem(\"token",
        "http://",
        "https://",
    ];
    for (name, text) in own_files() {
        for word in banned {
            let is_name_space = name.ends_with(".svg") && word == "http://";
            assert!(is_name_space || !text.contains(word), "{name} has {word}");
        }
        assert!(!text.contains(" style="), "{name} has a style of its own");
        if name.ends_with(".html") {
            assert!(!text.contains("<style"), "{name} has an inline style");
            assert!(
                text.matches("<script").count() == text.matches("<script src=\"/assets/").count(),
                "{name} has an inline script"
            );
        }
    }
}

#[test]
fn each_import_names_a_file() {
    let files = own_files();
    for (name, text) in files.iter().filter(|(name, _)| name.ends_with(".js")) {
        let folder = web().join(name).parent().expect("a folder").to_owned();
        for target in text.lines().filter_map(|line| line.split_once(" from \"")?.1.split('"').next()) {
            assert!(target.starts_with('.'), "{name} imports {target}, which a browser cannot find");
            assert!(folder.join(target).is_file(), "{name} imports {target}, which does not exist");
        }
    }
}
