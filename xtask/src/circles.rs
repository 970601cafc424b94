//! Rules for the modules of a crate: no two of them import each other, directly or around a corner.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::files::{File, read_all};
use crate::modules::Crate;
use crate::rules::{CIRCLES, CRATES};
use crate::violation::Violation;

/// Checks the modules of every crate below `root`.
///
/// # Errors
/// A file cannot be read; the text says which.
pub(crate) fn check(root: &Path) -> Result<Vec<Violation>, String> {
    Ok(check_files(&read_all(root)?, CIRCLES))
}

fn check_files(files: &[File], allowed: &[(&[&str], &str)]) -> Vec<Violation> {
    let mut circles = Vec::new();
    for rule in CRATES {
        for tree in Crate::read_all(files, &format!("{}/src/", rule.folder)) {
            circles.extend(circles_of(&tree));
        }
    }
    let mut found = Vec::new();
    for circle in circles.iter().filter(|circle| !allowed.iter().any(|(files, _)| circle.is(files))) {
        let what = format!("{} files import each other\n{}", circle.files.len(), circle.ties());
        found.push(
            Violation::new("circle", &circle.files[0], what)
                .remedy("move what both need into a file below both, or give the reason in xtask/src/rules.rs"),
        );
    }
    for (files, _) in allowed.iter().filter(|(files, _)| !circles.iter().any(|circle| circle.is(files))) {
        let what = format!("{} do not import each other", files.join(", "));
        found.push(Violation::new("circle", "xtask/src/rules.rs", what).remedy("remove the row"));
    }
    found
}

/// Names that each module takes from another.
type Imports = BTreeMap<usize, BTreeMap<usize, BTreeSet<String>>>;

/// Files that import each other.
#[derive(Debug)]
struct Circle {
    /// Paths, sorted.
    files: Vec<String>,
    /// Importing file, imported file, and the names.
    imports: Vec<(String, String, BTreeSet<String>)>,
}

impl Circle {
    fn is(&self, files: &[&str]) -> bool {
        let wanted: BTreeSet<&str> = files.iter().copied().collect();
        wanted.len() == self.files.len() && self.files.iter().all(|file| wanted.contains(file.as_str()))
    }

    fn ties(&self) -> String {
        let line = |(from, to, names): &(String, String, BTreeSet<String>)| {
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            format!("    {from} takes {} from {to}", names.join(", "))
        };
        self.imports.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

fn circles_of(tree: &Crate) -> Vec<Circle> {
    let imports = imports_of(tree);
    let reachable: BTreeMap<usize, BTreeSet<usize>> =
        imports.keys().map(|from| (*from, reachable_from(&imports, *from))).collect();
    let reaches = |from: usize, to: usize| reachable.get(&from).is_some_and(|all| all.contains(&to));
    let mut seen: BTreeSet<usize> = BTreeSet::new();
    let mut circles = Vec::new();
    for (from, all) in &reachable {
        let circle: BTreeSet<usize> = all.iter().copied().filter(|to| reaches(*to, *from)).collect();
        if circle.len() > 1 && !seen.contains(from) {
            seen.extend(&circle);
            circles.push(circle_with_names(tree, &imports, &circle));
        }
    }
    circles
}

fn circle_with_names(tree: &Crate, imports: &Imports, circle: &BTreeSet<usize>) -> Circle {
    let path = |module: usize| tree.modules[module].path.clone();
    let mut files: Vec<_> = circle.iter().map(|module| path(*module)).collect();
    files.sort();
    let inside = |(from, taken): (&usize, &BTreeMap<usize, BTreeSet<String>>)| {
        let from = *from;
        let taken = taken.iter().filter(|(to, _)| circle.contains(to));
        taken.map(|(to, names)| (path(from), path(*to), names.clone())).collect::<Vec<_>>()
    };
    let mut imports: Vec<_> = imports.iter().filter(|(from, _)| circle.contains(from)).flat_map(inside).collect();
    imports.sort();
    Circle { files, imports }
}

fn reachable_from(imports: &Imports, start: usize) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut waiting = vec![start];
    while let Some(from) = waiting.pop() {
        for to in imports.get(&from).into_iter().flat_map(BTreeMap::keys) {
            if reached.insert(*to) {
                waiting.push(*to);
            }
        }
    }
    reached
}

/// Returns what the modules import. A module and its ancestors may import each other.
fn imports_of(tree: &Crate) -> Imports {
    let mut imports = Imports::new();
    for (from, module) in tree.modules.iter().enumerate() {
        for path in &module.paths {
            let Some((to, name)) = tree.resolve(from, path) else { continue };
            // An imported module counts by the names that the code takes from it.
            if !name.is_empty() && to != from && !tree.is_ancestor(to, from) && !tree.is_ancestor(from, to) {
                imports.entry(from).or_default().entry(to).or_default().insert(name);
            }
        }
    }
    imports
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIB: (&str, &str) = ("lib.rs", "mod a;\nmod b;\nmod c;\npub use b::B;\n");

    fn faults_with(files: &[(&str, &str)], allowed: &[(&[&str], &str)]) -> Vec<String> {
        let file = |(path, text): &(&str, &str)| File {
            path: format!("crates/core/foundation/src/{path}"),
            text: (*text).to_owned(),
        };
        let files: Vec<_> = files.iter().map(file).collect();
        check_files(&files, allowed).iter().map(ToString::to_string).collect()
    }

    fn faults(files: &[(&str, &str)]) -> Vec<String> {
        faults_with(files, &[])
    }

    #[test]
    fn the_real_repository_keeps_the_rules() {
        let found = check(&crate::root()).expect("the files can be read");
        assert!(found.is_empty(), "{}", crate::violation::report(&found));
    }

    #[test]
    fn imports_in_one_direction_pass() {
        let a = ("a.rs", "use crate::b::B;\nuse super::c;\nfn f() { c::g(); }\n");
        assert_eq!(
            faults(&[LIB, a, ("b.rs", "use crate::c::g;\npub struct B;\n"), ("c.rs", "pub fn g() {}\n")]),
            [""; 0]
        );
    }

    #[test]
    fn two_files_that_import_each_other_are_caught_with_the_names() {
        let a = ("a.rs", "use crate::{B, c::{D as E}};\npub struct A;\n");
        let found = faults(&[LIB, a, ("b.rs", "pub struct B(crate::a::A);\n"), ("c.rs", "pub struct D;\n")]);
        assert_eq!(found.len(), 1, "{found:#?}");
        let folder = "crates/core/foundation/src";
        assert!(found[0].starts_with(&format!("{folder}/a.rs: circle: 2 files")), "{found:#?}");
        assert!(found[0].contains(&format!("{folder}/a.rs takes B from {folder}/b.rs")), "{found:#?}");
        assert!(found[0].contains(&format!("{folder}/b.rs takes A from {folder}/a.rs")), "{found:#?}");
    }

    #[test]
    fn a_circle_of_three_is_one_circle() {
        let files = [
            LIB,
            ("a.rs", "use super::B;\nfn f() -> B {}\n"),
            ("b.rs", "use super::c;\npub struct B;\nfn f() { c::g() }\n"),
            ("c.rs", "pub fn g() { crate::a::f() }\n"),
        ];
        let found = faults(&files);
        assert_eq!(found.len(), 1, "{found:#?}");
        assert!(found[0].contains("3 files") && found[0].contains("takes g from"), "{found:#?}");
    }

    #[test]
    fn a_module_and_its_children_may_import_each_other() {
        let a = ("a.rs", "mod x;\nuse x::X;\npub struct A;\n");
        assert_eq!(faults(&[LIB, a, ("a/x.rs", "use super::A;\npub struct X;\n")]), [""; 0]);
    }

    #[test]
    fn children_of_two_modules_are_caught() {
        let a = ("a.rs", "pub mod x;\n");
        let x = ("a/x.rs", "use super::super::B;\npub struct X;\n");
        let found = faults(&[LIB, a, x, ("b.rs", "pub struct B;\nfn f(x: crate::a::x::X) {}\n")]);
        assert!(found.len() == 1 && found[0].contains("a/x.rs takes B from"), "{found:#?}");
    }

    #[test]
    fn tests_and_comments_do_not_count() {
        let b = "//! [`crate::a::A`]\npub struct B;\n#[cfg(test)]\nuse crate::a::A;\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n";
        let c = ("c.rs", "#[cfg(test)]\nmod tests;\n");
        let tests = ("c/tests.rs", "use crate::a::A;\n");
        assert_eq!(faults(&[LIB, ("a.rs", "use crate::B;\nuse crate::c;\n"), ("b.rs", b), c, tests]), [""; 0]);
    }

    #[test]
    fn a_row_excuses_its_circle_and_no_other() {
        let (a, b) = (("a.rs", "use crate::B;\n"), ("b.rs", "use crate::a;\npub struct B(a::A);\n"));
        let row: &[&str] = &["crates/core/foundation/src/a.rs", "crates/core/foundation/src/b.rs"];
        assert_eq!(faults_with(&[LIB, a, b], &[(row, "two halves")]), [""; 0]);
        let found = faults_with(&[LIB, a, ("b.rs", "pub struct B;\n")], &[(row, "two halves")]);
        assert!(found.len() == 1 && found[0].contains("remove the row"), "{found:#?}");
    }
}
