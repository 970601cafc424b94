//! Modules of a crate and the paths in them, as far as the source text tells. A module is a file.

use std::collections::{BTreeMap, BTreeSet};

use crate::code::{bare, words};
use crate::files::File;

/// Most imports that a path is followed through.
const MAX_IMPORTS_FOLLOWED: usize = 16;

/// Segments of a path: `crate::a::B`.
pub(crate) type Segments = Vec<String>;

/// File of a crate.
#[derive(Debug)]
pub(crate) struct Module {
    /// File, relative to the repository.
    pub path: String,
    /// Source without comments, literals and tests.
    pub code: String,
    /// Paths that occur in the code: imported ones, and those that begin with an imported module.
    pub paths: BTreeSet<Segments>,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    /// Imported names and what they stand for.
    imported: BTreeMap<String, Segments>,
    /// Modules that are imported with `*`.
    globs: Vec<Segments>,
}

/// Module tree of a library or binary. The root is the first module.
#[derive(Debug)]
pub(crate) struct Crate {
    /// All modules without those of tests.
    pub modules: Vec<Module>,
}

impl Crate {
    /// Reads the library and the binaries whose sources are in `folder`, which ends with `/`.
    pub(crate) fn read_all(files: &[File], folder: &str) -> Vec<Self> {
        let texts: BTreeMap<&str, &str> = files
            .iter()
            .filter(|file| file.path.starts_with(folder) && file.path.ends_with(".rs"))
            .map(|file| (file.path.as_str(), file.text.as_str()))
            .collect();
        let is_root = |path: &str| {
            let name = path.strip_prefix(folder).unwrap_or_default();
            let binary = name.strip_prefix("bin/");
            name == "lib.rs"
                || name == "main.rs"
                || binary.is_some_and(|name| !name.contains('/') || name.ends_with("/main.rs"))
        };
        texts.keys().filter(|path| is_root(path)).map(|root| Self::read(&texts, root)).collect()
    }

    fn read(texts: &BTreeMap<&str, &str>, root: &str) -> Self {
        let mut tree = Self { modules: Vec::new() };
        let folder = root.rsplit_once('/').map_or("", |(folder, _)| folder);
        tree.add(texts, root, folder, "", None);
        tree
    }

    /// Adds the module in file `path` and its children, which are in `folder`.
    fn add(&mut self, texts: &BTreeMap<&str, &str>, path: &str, folder: &str, name: &str, parent: Option<usize>) {
        let code = without_tests(&bare(texts.get(path).copied().unwrap_or_default()));
        let this = self.modules.len();
        let module = Module::new(path, code, parent);
        let names = declared_modules(&module.code);
        self.modules.push(module);
        if let Some(parent) = parent {
            self.modules[parent].children.insert(name.to_owned(), this);
        }
        for name in names {
            let folder = format!("{folder}/{name}");
            let candidates = [format!("{folder}.rs"), format!("{folder}/mod.rs")];
            if let Some(path) = candidates.iter().find(|path| texts.contains_key(path.as_str())) {
                self.add(texts, path, &folder, &name, Some(this));
            }
        }
    }

    /// Returns the module that defines what `path` in module `from` stands for, and its name there; the name is empty
    /// if it is the module itself. `None` if it belongs to another crate.
    pub(crate) fn resolve(&self, from: usize, path: &[String]) -> Option<(usize, String)> {
        self.resolve_within(from, path, MAX_IMPORTS_FOLLOWED)
    }

    fn resolve_within(&self, from: usize, path: &[String], imports_left: usize) -> Option<(usize, String)> {
        let mut at = from;
        let mut is_local = false;
        for (index, segment) in path.iter().enumerate() {
            let module = &self.modules[at];
            match segment.as_str() {
                "crate" if index == 0 => at = 0,
                "self" => {}
                "super" => at = module.parent?,
                name => {
                    let is_last = index + 1 == path.len();
                    let child = module.children.get(name).filter(|_| !is_last || !module.imported.contains_key(name));
                    if let Some(child) = child {
                        at = *child;
                    } else if let Some((target, item)) = self.import(at, name, imports_left) {
                        if !item.is_empty() {
                            return Some((target, item));
                        }
                        at = target;
                    } else {
                        return (is_local || module.defines(name)).then(|| (at, name.to_owned()));
                    }
                }
            }
            is_local = true;
        }
        Some((at, String::new()))
    }

    /// Follows the import of `name` in module `at`.
    fn import(&self, at: usize, name: &str, imports_left: usize) -> Option<(usize, String)> {
        let module = &self.modules[at];
        let imports_left = imports_left.checked_sub(1)?;
        if let Some(path) = module.imported.get(name) {
            let is_itself = path.first().is_some_and(|first| first == name) && !module.children.contains_key(name);
            return if is_itself { None } else { self.resolve_within(at, path, imports_left) };
        }
        module.globs.iter().find_map(|path| {
            let (target, item) = self.resolve_within(at, path, imports_left)?;
            let has_it = item.is_empty() && target != at && self.modules[target].has(name);
            has_it.then(|| self.resolve_within(target, &["self".to_owned(), name.to_owned()], imports_left))?
        })
    }

    /// Returns whether `above` is an ancestor of `below`.
    pub(crate) fn is_ancestor(&self, above: usize, below: usize) -> bool {
        let mut parent = self.modules[below].parent;
        while let Some(at) = parent {
            if at == above {
                return true;
            }
            parent = self.modules[at].parent;
        }
        false
    }
}

impl Module {
    fn new(path: &str, code: String, parent: Option<usize>) -> Self {
        let mut module = Self {
            path: path.to_owned(),
            code: String::new(),
            paths: BTreeSet::new(),
            parent,
            children: BTreeMap::new(),
            imported: BTreeMap::new(),
            globs: Vec::new(),
        };
        let inline = inline_modules(&code);
        let level = |at: usize| inline.iter().filter(|(start, end)| (*start..*end).contains(&at)).count();
        for (at, statement) in use_statements(&code) {
            for import in imports(statement) {
                module.add_import(import, level(at));
            }
        }
        for (at, path) in paths(&without_imports(&code)) {
            let is_relative = ["crate", "self", "super"].contains(&path[0].as_str());
            if is_relative || module.imported.contains_key(&path[0]) && path.len() > 1 {
                module.paths.insert(outward(path, level(at)));
            }
        }
        module.code = code;
        module
    }

    fn add_import(&mut self, import: Import, level: usize) {
        let path = outward(import.path, level);
        match import.name.as_str() {
            "*" => self.globs.push(path.clone()),
            // A name of an inline module is not a name of the file.
            _ if level > 0 => {}
            name => {
                self.imported.insert(name.to_owned(), path.clone());
            }
        }
        self.paths.insert(path);
    }

    fn defines(&self, name: &str) -> bool {
        const KEYWORDS: [&str; 9] = ["struct", "enum", "fn", "const", "static", "trait", "type", "union", "mod"];
        words(&self.code, name).any(|at| {
            let before = self.code[..at].trim_end();
            KEYWORDS.iter().any(|keyword| before.ends_with(keyword)) || before.ends_with("macro_rules!")
        })
    }

    fn has(&self, name: &str) -> bool {
        self.children.contains_key(name) || self.imported.contains_key(name) || self.defines(name)
    }
}

/// Removes one `super` for each of the `level` inline modules around a path.
fn outward(mut path: Segments, level: usize) -> Segments {
    for _ in 0..level {
        if path.first().is_some_and(|first| first == "super") {
            path[0] = "self".to_owned();
            if path.get(1).is_some_and(|second| second == "super") {
                path.remove(0);
            }
        }
    }
    path
}

/// Returns `code` with the items of tests replaced by blanks.
fn without_tests(code: &str) -> String {
    let mut left = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(at) = rest.find("#[cfg(test)]") {
        let end = at + item_len(&rest[at..]);
        left.push_str(&rest[..at]);
        left.extend(rest[at..end].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        rest = &rest[end..];
    }
    left.push_str(rest);
    left
}

/// Returns the length of the item at the start of `code`, up to its `;` or closing brace.
fn item_len(code: &str) -> usize {
    let mut depth = 0usize;
    let is_import = code.split_whitespace().take(4).any(|word| word == "use");
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 && c == '}' && !is_import {
                    return at + 1;
                }
            }
            ';' | ',' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

/// Returns the names of the child modules that have their own file.
fn declared_modules(code: &str) -> Vec<String> {
    let name = |at: usize| code[at + 3..].split_once(';').map(|(name, _)| name.trim());
    let is_name = |name: &&str| !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    words(code, "mod").filter_map(|at| name(at).filter(is_name).map(str::to_owned)).collect()
}

/// Returns start and end of each module that is written out in its parent's file.
fn inline_modules(code: &str) -> Vec<(usize, usize)> {
    let is_inline =
        |at: &usize| code[at + 3..].find(['{', ';']).is_some_and(|end| code[at + 3 + end..].starts_with('{'));
    words(code, "mod").filter(is_inline).map(|at| (at, at + item_len(&code[at..]))).collect()
}

/// Returns the text between `use` and `;` of each import, with its position.
fn use_statements(code: &str) -> impl Iterator<Item = (usize, &str)> {
    words(code, "use").filter_map(|at| {
        let rest = &code[at + 3..];
        // `impl Trait + use<'a>` is no import.
        let is_import = !rest.trim_start().starts_with('<');
        rest.find(';').filter(|_| is_import).map(|end| (at, &rest[..end]))
    })
}

/// Returns `code` with the imports replaced by blanks.
fn without_imports(code: &str) -> String {
    let mut left = String::with_capacity(code.len());
    for (at, statement) in use_statements(code) {
        left.push_str(code.get(left.len()..at).unwrap_or_default());
        left.extend(std::iter::repeat_n(' ', "use".len() + statement.len()));
    }
    left.push_str(&code[left.len()..]);
    left
}

/// Imported path and the name that it has in the importing module; `*` if these are all names of a module.
struct Import {
    path: Segments,
    name: String,
}

/// Returns the imports of `tree`, for example of `crate::a::{self, B as C}`.
fn imports(tree: &str) -> Vec<Import> {
    let tree = tree.trim();
    if let Some((prefix, inner)) = tree.split_once('{') {
        let prefix: Segments = segments(prefix);
        let inner = inner.trim_end().strip_suffix('}').unwrap_or(inner);
        let inside = top_level_parts(inner).into_iter().flat_map(imports);
        return inside.map(|import| import.below(&prefix)).collect();
    }
    let (path, alias) = tree.split_once(" as ").map_or((tree, None), |(path, alias)| (path, Some(alias.trim())));
    let mut path = segments(path);
    let is_glob = tree.ends_with('*');
    let Some(last) = path.last().cloned() else {
        return if is_glob { vec![Import { path, name: "*".to_owned() }] } else { Vec::new() };
    };
    if last == "self" && path.len() > 1 {
        path.pop();
    }
    let name = if is_glob { "*".to_owned() } else { alias.map_or(last, str::to_owned) };
    vec![Import { path, name }]
}

impl Import {
    fn below(mut self, prefix: &[String]) -> Self {
        let is_self = self.path.len() == 1 && self.path[0] == "self";
        if is_self {
            self.path.clear();
            if self.name == "self" {
                self.name = prefix.last().cloned().unwrap_or_default();
            }
        }
        self.path.splice(0..0, prefix.iter().cloned());
        self
    }
}

fn segments(path: &str) -> Segments {
    path.split("::").map(str::trim).filter(|part| !part.is_empty() && *part != "*").map(str::to_owned).collect()
}

/// Splits at the commas outside braces.
fn top_level_parts(list: &str) -> Vec<&str> {
    let mut depth = 0usize;
    let split = |c: char| {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    };
    list.split(split).map(str::trim).filter(|part| !part.is_empty()).collect()
}

/// Returns every path in `code` with its position: `a::b::C`.
fn paths(code: &str) -> Vec<(usize, Segments)> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = code[at..].find(is_word).map(|offset| at + offset) {
        let mut path = Segments::new();
        let mut end = start;
        loop {
            let length = code[end..].find(|c| !is_word(c)).unwrap_or(code.len() - end);
            path.push(code[end..end + length].to_owned());
            end += length;
            let Some(rest) = code[end..].trim_start().strip_prefix("::") else { break };
            let rest = rest.trim_start();
            if !rest.starts_with(is_word) {
                break;
            }
            end = code.len() - rest.len();
        }
        let follows_path = code[..start].trim_end().ends_with("::");
        if !follows_path && (path.len() > 1) {
            found.push((start, path));
        }
        at = end;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_are_read_from_trees() {
        let found = imports("crate::{a::{self, B as C}, d::*, E}");
        let found: Vec<_> = found.iter().map(|import| format!("{}={}", import.name, import.path.join("::"))).collect();
        assert_eq!(found, ["a=crate::a", "C=crate::a::B", "*=crate::d", "E=crate::E"]);
    }

    #[test]
    fn paths_are_read_across_lines() {
        let found = paths("f(a::b :: C, x) + <D as E>::f + g::\n    h");
        let found: Vec<_> = found.iter().map(|(_, path)| path.join("::")).collect();
        assert_eq!(found, ["a::b::C", "g::h"]);
    }

    #[test]
    fn items_of_tests_are_left_out() {
        let code = "a;\n#[cfg(test)]\nuse b::{c};\nd;\n#[cfg(test)]\nmod tests {\n    fn e() {}\n}\nf;\n";
        assert_eq!(without_tests(code).split_whitespace().collect::<Vec<_>>(), ["a;", "d;", "f;"]);
    }

    #[test]
    fn a_path_in_an_inline_module_begins_one_module_further_out() {
        let path = |text: &str| segments(text);
        assert_eq!(outward(path("super::a"), 1), path("self::a"));
        assert_eq!(outward(path("super::super::a"), 1), path("super::a"));
        assert_eq!(outward(path("super::super::a"), 2), path("self::a"));
    }
}
