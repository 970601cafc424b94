//! Rules for dependencies, checked with `cargo metadata`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::rules::{BANNED_BEHIND_CORE, CORE_MAY_USE, CRATES, EXCUSED, Group, Rule};
use crate::violation::Violation;

/// Checks the workspace at `root`.
///
/// # Errors
/// `cargo metadata` cannot be run or its output cannot be read; the text says which.
pub(crate) fn check(root: &Path) -> Result<Vec<Violation>, String> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let output = command
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cargo metadata cannot be started: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata fails:\n{}", String::from_utf8_lossy(&output.stderr)));
    }
    let metadata = serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))?;
    Ok(check_metadata(&Graph::read(&metadata)))
}

/// Dependency graph of the packages.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    /// Members of the workspace: name, and folder relative to the root.
    members: BTreeMap<String, String>,
    /// Dependencies in a member's manifest, and whether only its tests use them.
    named: BTreeMap<String, Vec<(String, bool)>>,
    /// Dependencies of each package, without those of tests only.
    arrows: BTreeMap<String, BTreeSet<String>>,
}

impl Graph {
    /// Reads the output of `cargo metadata --format-version 1`.
    pub(crate) fn read(metadata: &Value) -> Self {
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let root = text(&metadata["workspace_root"]);
        let members: BTreeSet<_> = list(&metadata["workspace_members"]).iter().map(text).collect();
        let packages = list(&metadata["packages"]);
        let names: BTreeMap<_, _> = packages.iter().map(|p| (text(&p["id"]), text(&p["name"]))).collect();

        let mut graph = Self::default();
        for package in packages.iter().filter(|package| members.contains(&text(&package["id"]))) {
            let manifest = text(&package["manifest_path"]);
            let folder = manifest.strip_prefix(&root).unwrap_or(&manifest).trim_end_matches("Cargo.toml");
            graph.members.insert(text(&package["name"]), folder.trim_matches('/').to_owned());
            let named = list(&package["dependencies"]);
            let named = named.iter().map(|dep| (text(&dep["name"]), dep["kind"] == "dev")).collect();
            graph.named.insert(text(&package["name"]), named);
        }
        for node in list(&metadata["resolve"]["nodes"]) {
            let arrows = list(&node["deps"]).into_iter().filter(|dep| {
                let kinds = list(&dep["dep_kinds"]);
                kinds.is_empty() || kinds.iter().any(|kind| kind["kind"] != "dev")
            });
            let arrows = arrows.filter_map(|dep| names.get(&text(&dep["pkg"])).cloned());
            let from = names.get(&text(&node["id"])).cloned().unwrap_or_default();
            graph.arrows.entry(from).or_default().extend(arrows);
        }
        graph
    }

    /// Returns the path from `start` to each package that it depends on, directly or not; the first shortest one
    /// found.
    fn behind(&self, start: &str) -> BTreeMap<&str, Vec<&str>> {
        let mut ways: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let Some((start, _)) = self.arrows.get_key_value(start) else { return ways };
        ways.insert(start, vec![start]);
        let mut waiting = std::collections::VecDeque::from([start.as_str()]);
        while let Some(from) = waiting.pop_front() {
            for to in self.arrows.get(from).into_iter().flatten() {
                let excused = EXCUSED.iter().any(|(a, b, _)| *a == from && *b == to);
                if !excused && !ways.contains_key(to.as_str()) {
                    let way = ways[from].iter().copied().chain([to.as_str()]).collect();
                    ways.insert(to, way);
                    waiting.push_back(to);
                }
            }
        }
        ways
    }
}

/// Checks every rule for dependencies.
pub(crate) fn check_metadata(graph: &Graph) -> Vec<Violation> {
    let mut found = Vec::new();
    for (name, folder) in &graph.members {
        let Some(rule) = CRATES.iter().find(|rule| rule.name == name) else {
            found.push(
                Violation::new("dependencies", folder, format!("{name} is not in the table of crates"))
                    .remedy("give it a line in xtask/src/rules.rs: its group and what it may depend on"),
            );
            continue;
        };
        if rule.folder != folder {
            let what = format!("{name} lies in {folder}, the table says {}", rule.folder);
            found.push(Violation::new("dependencies", folder, what));
        }
        check_named(graph, rule, &mut found);
        if rule.group == Group::Core {
            check_behind(graph, rule, &mut found);
        }
    }
    found
}

fn check_named(graph: &Graph, rule: &Rule, found: &mut Vec<Violation>) {
    let place = format!("{}/Cargo.toml", rule.folder);
    for (dep, only_tests) in graph.named.get(rule.name).into_iter().flatten() {
        if graph.members.contains_key(dep) {
            let short = dep.strip_prefix("strowger-").unwrap_or(dep);
            // Tests may depend on crates of their own group or below; other code is limited to the table.
            let target = CRATES.iter().find(|other| other.name == dep);
            let down = target.is_some_and(|other| other.group <= rule.group && other.group != Group::Leaf);
            if !(rule.may.contains(&short) || *only_tests && down) {
                let what = format!("{} depends on {dep}: that arrow is not in the table", rule.name);
                found.push(Violation::new("dependencies", &place, what).remedy(
                    "arrows point down only: move what is needed into a lower crate, or hand it in as a value",
                ));
            }
        } else if rule.group == Group::Core && !only_tests && !CORE_MAY_USE.contains(&dep.as_str()) {
            let what = format!("{} names {dep}, which the core may not use", rule.name);
            found.push(Violation::new("dependencies", &place, what).remedy(
                "if it only computes, add it to CORE_MAY_USE in xtask/src/rules.rs; else it belongs to the shell",
            ));
        }
    }
}

fn check_behind(graph: &Graph, rule: &Rule, found: &mut Vec<Violation>) {
    for (package, way) in graph.behind(rule.name) {
        if BANNED_BEHIND_CORE.contains(&package) {
            let what = format!("{package} is a dependency of {}: {}", rule.name, way.join(" → "));
            found.push(
                Violation::new("dependencies", &format!("{}/Cargo.toml", rule.folder), what)
                    .remedy("switch the feature off that brings it in, or do without"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    type Arrows<'a> = &'a [(&'a str, Option<&'a str>)];

    /// Returns a workspace of crates with their dependencies, as `cargo metadata` would describe it.
    fn workspace(crates: &[(&str, &str, Arrows<'_>)], foreign: &[(&str, &[&str])]) -> Graph {
        let id = |name: &str| format!("id of {name}");
        let mut packages = Vec::new();
        let mut nodes = Vec::new();
        for (name, folder, deps) in crates {
            let named: Vec<_> = deps.iter().map(|(dep, kind)| json!({ "name": dep, "kind": kind })).collect();
            packages.push(json!({
                "id": id(name), "name": name, "manifest_path": format!("/r/{folder}/Cargo.toml"), "dependencies": named
            }));
            let arrows: Vec<_> =
                deps.iter().map(|(dep, kind)| json!({ "pkg": id(dep), "dep_kinds": [{ "kind": kind }] })).collect();
            nodes.push(json!({ "id": id(name), "deps": arrows }));
        }
        for (name, deps) in foreign {
            packages
                .push(json!({ "id": id(name), "name": name, "manifest_path": "/x/Cargo.toml", "dependencies": [] }));
            let arrows: Vec<_> =
                deps.iter().map(|dep| json!({ "pkg": id(dep), "dep_kinds": [{ "kind": null }] })).collect();
            nodes.push(json!({ "id": id(name), "deps": arrows }));
        }
        let members: Vec<_> = crates.iter().map(|(name, ..)| id(name)).collect();
        Graph::read(&json!({
            "workspace_root": "/r", "workspace_members": members, "packages": packages, "resolve": { "nodes": nodes }
        }))
    }

    const FOUNDATION: (&str, &str, Arrows<'static>) = ("strowger-foundation", "crates/core/foundation", &[]);

    fn only_fault(graph: &Graph) -> String {
        let found = check_metadata(graph);
        assert_eq!(found.len(), 1, "{found:#?}");
        found[0].to_string()
    }

    #[test]
    fn the_real_workspace_keeps_the_rules() {
        let found = check(&crate::root()).expect("cargo metadata works here");
        assert!(found.is_empty(), "{}", crate::violation::report(&found));
    }

    #[test]
    fn allowed_dependencies_pass() {
        let message =
            ("strowger-message", "crates/core/message", &[("strowger-foundation", None), ("memchr", None)][..]);
        assert!(check_metadata(&workspace(&[FOUNDATION, message], &[("memchr", &[])])).is_empty());
    }

    #[test]
    fn an_upward_edge_is_caught() {
        let foundation = ("strowger-foundation", "crates/core/foundation", &[("strowger-message", None)][..]);
        let message = ("strowger-message", "crates/core/message", &[][..]);
        assert!(only_fault(&workspace(&[foundation, message], &[])).contains("not in the table"));
    }

    #[test]
    fn nobody_depends_on_the_binary_even_in_tests() {
        let binary = ("strowger", "bin/strowger", &[][..]);
        let interop = ("strowger-interop", "interop", &[("strowger", Some("dev"))][..]);
        assert!(only_fault(&workspace(&[binary, interop], &[])).contains("depends on strowger"));
    }

    #[test]
    fn a_new_crate_must_be_listed() {
        assert!(
            only_fault(&workspace(&[("strowger-new", "crates/core/new", &[])], &[])).contains("not in the table of")
        );
    }

    #[test]
    fn a_crate_in_another_folder_is_caught() {
        let moved = ("strowger-foundation", "crates/shell/foundation", &[][..]);
        assert!(only_fault(&workspace(&[moved], &[])).contains("lies in crates/shell/foundation"));
    }

    #[test]
    fn foreign_crates_banned_in_the_core_are_caught() {
        let foundation = ("strowger-foundation", "crates/core/foundation", &[("serde", None)][..]);
        assert!(only_fault(&workspace(&[foundation], &[("serde", &[])])).contains("may not use"));
    }

    #[test]
    fn an_indirect_socket_in_the_core_is_caught_with_its_path() {
        let foundation = ("strowger-foundation", "crates/core/foundation", &[("slab", None)][..]);
        let graph = workspace(&[foundation], &[("slab", &["helper"]), ("helper", &["mio"]), ("mio", &[])]);
        assert!(only_fault(&graph).contains("strowger-foundation → slab → helper → mio"));
    }

    #[test]
    fn entropy_in_core_tests_is_allowed() {
        let foundation = ("strowger-foundation", "crates/core/foundation", &[("rand", Some("dev"))][..]);
        assert!(check_metadata(&workspace(&[foundation], &[("rand", &[])])).is_empty());
    }

    #[test]
    fn the_shell_may_use_sockets() {
        let net = ("strowger-net", "crates/shell/net", &[("mio", None), ("libc", None)][..]);
        assert!(check_metadata(&workspace(&[net], &[("mio", &[]), ("libc", &[])])).is_empty());
    }

    #[test]
    fn an_exception_covers_only_its_own_edge() {
        let auth = ("strowger-auth", "crates/core/auth", &[("sha2", None)][..]);
        let foreign: &[(&str, &[&str])] = &[("sha2", &["cpufeatures"]), ("cpufeatures", &["libc"]), ("libc", &[])];
        assert!(check_metadata(&workspace(&[auth], foreign)).is_empty());
        let foreign: &[(&str, &[&str])] = &[("sha2", &["libc"]), ("libc", &[])];
        assert!(only_fault(&workspace(&[auth], foreign)).contains("libc is a dependency of"));
    }
}
