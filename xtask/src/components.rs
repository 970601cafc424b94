//! What the server's binary contains that others wrote: crates, and the C and JavaScript sources inside of crates.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::component::{Checksum, Component};
use crate::vendored;

/// Package of the binary.
pub(crate) const BINARY: &str = "strowger";

/// The binary and its components.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    /// Version of the binary.
    pub version: String,
    /// Package URLs of what the workspace's own crates use.
    pub uses: BTreeSet<String>,
    /// Components by name and version.
    pub components: Vec<Component>,
}

/// Source code of others that a package contains without being a package itself.
struct Bundled {
    /// Package that contains it.
    package: &'static str,
    /// Type of its package URL: `npm` for packages of that registry, else `generic`.
    kind: &'static str,
    /// Name.
    name: &'static str,
    /// File of the package that states the version.
    file: &'static str,
    /// Text before the version.
    before: &'static str,
    /// SPDX expression of its licence.
    licence: &'static str,
    /// Home page.
    home: &'static str,
}

const BUNDLED: [Bundled; 3] = [
    Bundled {
        package: "libsqlite3-sys",
        kind: "generic",
        name: "sqlite",
        file: "sqlite3/sqlite3.h",
        before: "#define SQLITE_VERSION ",
        licence: "blessing",
        home: "https://www.sqlite.org/",
    },
    Bundled {
        package: "libmimalloc-sys",
        kind: "generic",
        name: "mimalloc",
        file: "c_src/mimalloc/v3/include/mimalloc.h",
        before: "#define MI_MALLOC_VERSION ",
        licence: "MIT",
        home: "https://github.com/microsoft/mimalloc",
    },
    Bundled {
        package: BINARY,
        kind: "npm",
        name: "uplot",
        file: "src/plot/uplot/uPlot.iife.min.js",
        before: "/uPlot (",
        licence: "MIT",
        home: "https://github.com/leeoniya/uPlot",
    },
];

/// Reads what the binary contains when it is built with `options`, such as `--features ebpf`.
///
/// # Errors
/// Cargo fails, or a bundled version is not where it was; the text says which.
pub(crate) fn read(root: &Path, options: &[String]) -> Result<Contents, String> {
    // `cargo tree` resolves features as a build does; `cargo metadata` knows the rest.
    let tree = ["tree", "--locked", "-p", BINARY, "-e", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}"];
    let tree: Vec<&str> = tree.into_iter().chain(options.iter().map(String::as_str)).collect();
    let linked = linked(&cargo(root, &tree)?);
    let metadata = cargo(root, &["metadata", "--locked", "--format-version", "1"])?;
    let metadata = serde_json::from_str(&metadata).map_err(|error| format!("cargo metadata: {error}"))?;
    let lock = std::fs::read_to_string(root.join("Cargo.lock")).map_err(|error| format!("Cargo.lock: {error}"))?;
    let mut contents = of_metadata(&metadata, &linked, &checksums(&lock));
    add_vendored(root, &mut contents)?;
    add_bundled(root, &mut contents)?;
    Ok(contents)
}

fn cargo(root: &Path, arguments: &[&str]) -> Result<String, String> {
    let shown = format!("cargo {}", arguments.join(" "));
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let output = command.args(arguments).current_dir(root).output();
    let output = output.map_err(|error| format!("{shown} cannot be started: {error}"))?;
    if !output.status.success() {
        return Err(format!("{shown} fails:\n{}", String::from_utf8_lossy(&output.stderr)));
    }
    String::from_utf8(output.stdout).map_err(|error| format!("{shown}: {error}"))
}

/// Returns names and versions in the lines of `cargo tree`, such as `ring v0.17.14 (*)`.
fn linked(tree: &str) -> BTreeSet<(String, String)> {
    let pair = |line: &str| {
        let mut words = line.split(' ');
        Some((words.next()?.to_owned(), words.next()?.strip_prefix('v')?.to_owned()))
    };
    tree.lines().filter_map(pair).collect()
}

/// Returns the checksums of packages in `Cargo.lock`.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let table: toml::Table = lock.parse().unwrap_or_default();
    let packages = table.get("package").and_then(toml::Value::as_array).cloned().unwrap_or_default();
    let text = |package: &toml::Value, key: &str| package.get(key)?.as_str().map(str::to_owned);
    let entry = |package| Some(((text(package, "name")?, text(package, "version")?), text(package, "checksum")?));
    packages.iter().filter_map(entry).collect()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn of_metadata(
    metadata: &Value,
    linked: &BTreeSet<(String, String)>,
    checksums: &BTreeMap<(String, String), String>,
) -> Contents {
    let members: BTreeSet<String> = list(&metadata["workspace_members"]).map(text).collect();
    let mut contents = Contents::default();
    let (mut own, mut purls) = (BTreeSet::new(), BTreeMap::new());
    for package in list(&metadata["packages"]) {
        let key = (text(&package["name"]), text(&package["version"]));
        if key.0 == BINARY {
            contents.version.clone_from(&key.1);
        }
        if !linked.contains(&key) {
            continue;
        }
        if members.contains(&text(&package["id"])) {
            own.insert(text(&package["id"]));
            continue;
        }
        let purl = format!("pkg:cargo/{}@{}", key.0, key.1.replace('+', "%2B"));
        purls.insert(text(&package["id"]), purl.clone());
        let manifest = PathBuf::from(text(&package["manifest_path"]));
        contents.components.push(Component {
            checksum: checksums.get(&key).cloned().map(Checksum::Sha256),
            name: key.0,
            version: key.1,
            purl,
            // The slash is an older form of OR.
            licence: text(&package["license"]).replace('/', " OR "),
            repository: package["repository"].as_str().or(package["homepage"].as_str()).map(str::to_owned),
            authors: list(&package["authors"]).map(text).collect(),
            folder: manifest.parent().unwrap_or(&manifest).to_path_buf(),
            licence_file: None,
            uses: BTreeSet::new(),
        });
    }
    for node in list(&metadata["resolve"]["nodes"]) {
        let uses = list(&node["deps"]).filter(|dep| list(&dep["dep_kinds"]).any(|kind| kind["kind"].is_null()));
        let uses: Vec<String> = uses.filter_map(|dep| purls.get(dep["pkg"].as_str()?).cloned()).collect();
        let id = text(&node["id"]);
        match purls.get(&id) {
            Some(purl) => {
                let component = contents.components.iter_mut().find(|component| component.purl == *purl);
                component.into_iter().for_each(|component| component.uses.extend(uses.iter().cloned()));
            }
            None if own.contains(&id) => contents.uses.extend(uses),
            None => {}
        }
    }
    contents.components.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    contents
}

/// Adds the JavaScript of the administration page, which one of the workspace's own crates contains.
fn add_vendored(root: &Path, contents: &mut Contents) -> Result<(), String> {
    for component in vendored::read(root)? {
        contents.uses.insert(component.purl.clone());
        contents.components.push(component);
    }
    Ok(())
}

/// Adds what packages contain besides their own code.
fn add_bundled(root: &Path, contents: &mut Contents) -> Result<(), String> {
    for bundled in &BUNDLED {
        let package = contents.components.iter_mut().find(|component| component.name == bundled.package);
        let folder = match &package {
            Some(package) => package.folder.clone(),
            None if bundled.package == BINARY => root.join("bin/strowger"),
            None => continue,
        };
        let file = folder.join(bundled.file);
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let version = bundled_version(&text, bundled.before).ok_or_else(|| {
            format!(
                "{}: there is no version after {:?}; correct BUNDLED in components.rs",
                file.display(),
                bundled.before
            )
        })?;
        let purl = format!("pkg:{}/{}@{version}", bundled.kind, bundled.name);
        package.map_or(&mut contents.uses, |package| &mut package.uses).insert(purl.clone());
        if contents.components.iter().any(|component| component.purl == purl) {
            continue;
        }
        contents.components.push(Component {
            name: bundled.name.to_owned(),
            version,
            purl,
            licence: bundled.licence.to_owned(),
            repository: Some(bundled.home.to_owned()),
            folder: file.parent().unwrap_or(&folder).to_path_buf(),
            ..Component::default()
        });
    }
    Ok(())
}

/// Returns the version after `before`: `"3.51.0"`, `v1.6.32`, or 30302 for 3.3.2.
fn bundled_version(text: &str, before: &str) -> Option<String> {
    let (_, after) = text.split_once(before)?;
    let after = after.trim_start_matches([' ', '"', 'v']);
    let version =
        after.split(|c: char| !c.is_ascii_digit() && c != '.').next().filter(|version| !version.is_empty())?;
    match version.parse::<u32>() {
        Ok(number) => Some(format!("{}.{}.{}", number / 10_000, number / 100 % 100, number % 100)),
        Err(_) => Some(version.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_their_projects_write_them() {
        let read = |text: &str, before| bundled_version(text, before);
        assert_eq!(read("#define SQLITE_VERSION        \"3.54.1\"\n", "SQLITE_VERSION ").as_deref(), Some("3.54.1"));
        assert_eq!(read("#define MI_MALLOC_VERSION 30302   // x", "VERSION ").as_deref(), Some("3.3.2"));
        assert_eq!(read("/*! https://x/uPlot (v1.6.32) */", "/uPlot (").as_deref(), Some("1.6.32"));
        assert_eq!(read("#define VERSION other", "VERSION "), None);
    }

    #[test]
    fn the_binary_contains_its_libraries_but_no_tools_of_the_build() {
        let contents = read(&crate::root(), &[]).expect("cargo runs");
        let named = |name: &str| contents.components.iter().find(|component| component.name == name);
        let sqlite = named("libsqlite3-sys").expect("it is linked");
        assert!(sqlite.uses.iter().any(|purl| purl.starts_with("pkg:generic/sqlite@3.")), "{sqlite:?}");
        assert!(matches!(&sqlite.checksum, Some(Checksum::Sha256(hex)) if hex.len() == 64), "{sqlite:?}");
        for vendored in ["preact", "htm", "uplot"] {
            let found: Vec<_> = contents.components.iter().filter(|component| component.name == vendored).collect();
            let [one] = found.as_slice() else { panic!("{vendored}: {found:?}") };
            assert!(matches!(&one.checksum, Some(Checksum::Sha512(hex)) if hex.len() == 128), "{one:?}");
            assert!(one.purl.starts_with("pkg:npm/") && contents.uses.contains(&one.purl), "{one:?}");
        }
        assert!(named("tokio").is_some_and(|tokio| tokio.licence == "MIT"));
        assert!(contents.uses.iter().any(|purl| purl.starts_with("pkg:cargo/tokio@")), "{:?}", contents.uses);
        for not_linked in ["cc", "syn", "serde_derive", "tempfile", "gungraun", "strowger-shard", "aya"] {
            assert!(named(not_linked).is_none(), "{not_linked}");
        }
        let with_probe = read(&crate::root(), &["--features".to_owned(), "ebpf".to_owned()]).expect("cargo runs");
        assert!(with_probe.components.iter().any(|component| component.name == "aya"));
    }
}
