//! The rules about RFCs: each requirement that concerns us is cited at its code and at a test, or is a deviation.
//!
//! The requirements stand in `specs/rfc3261.toml` and others; a file's name up to the first `-` or `.` is its RFC.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::code::{bare, line_of};
use crate::files::{File, read_all};
use crate::violation::Violation;

/// Where the data files stand.
const SPECS: &str = "specs/";
/// Requirements that are not met, or met otherwise.
const DEVIATIONS: &str = "specs/deviations.md";
/// What a citation begins with.
const MARK: &str = "//= ";
/// The words that make a requirement.
const LEVELS: [&str; 4] = ["MUST", "MUST NOT", "SHOULD", "SHOULD NOT"];
/// Crates that are tests as a whole.
const TEST_CRATES: [&str; 2] = ["interop/", "crates/tools/sim/"];

/// Checks the citations below `root` against the data.
///
/// # Errors
/// A sentence where the files cannot be read.
pub(crate) fn check(root: &Path) -> Result<Vec<Violation>, String> {
    let files = read_all(root)?;
    let mut found = Vec::new();
    let mut rfcs: BTreeMap<String, Rfc> = BTreeMap::new();
    for file in files.iter().filter(|file| file.path.starts_with(SPECS) && file.path.ends_with(".toml")) {
        match Rfc::read(file, &mut found) {
            Ok((name, rfc)) => rfcs.entry(name).or_default().join(rfc, &mut found),
            Err(what) => found.push(Violation::new("specs", &file.path, what)),
        }
    }
    let mut cited = Cited::default();
    for file in files.iter().filter(|file| file.path.ends_with(".rs")) {
        check_citations(file, &rfcs, &mut cited, &mut found);
    }
    let deviations = files.iter().find(|file| file.path == DEVIATIONS);
    let deviating = deviations.map(|file| check_deviations(file, &rfcs, &mut found)).unwrap_or_default();
    check_coverage(&rfcs, &cited, &deviating, &mut found);
    Ok(found)
}

/// What the data says of one RFC.
#[derive(Debug, Default)]
struct Rfc {
    /// The sections that are covered, with all below them.
    sections: BTreeSet<String>,
    /// Sections and single requirements that concern other roles, and the file and line of each.
    not_ours: BTreeMap<String, String>,
    /// The ids of the requirements (`16.3:max-forwards`), and the file and line of each.
    requirements: BTreeMap<String, String>,
}

impl Rfc {
    /// Reads a data file; the first value is the RFC's name, as `rfc3261`.
    fn read(file: &File, found: &mut Vec<Violation>) -> Result<(String, Self), String> {
        let name = file.path.trim_start_matches(SPECS).split(['-', '.']).next().unwrap_or_default();
        if !name.strip_prefix("rfc").is_some_and(is_number) {
            return Err("a data file is named after its RFC: rfc3261.toml, rfc3261-transactions.toml".to_owned());
        }
        let table: toml::Table = file.text.parse().map_err(|error| format!("it cannot be read: {error}"))?;
        let known = ["title", "sections", "not_ours", "requirement"];
        if let Some(key) = table.keys().find(|key| !known.contains(&key.as_str())) {
            return Err(format!("{key} is not a key: there are {}", known.join(", ")));
        }
        if text(&table, "title").is_empty() {
            return Err("the title is missing".to_owned());
        }
        let sections = table.get("sections").and_then(toml::Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let sections: BTreeSet<_> = sections.iter().filter_map(toml::Value::as_str).map(str::to_owned).collect();
        if sections.is_empty() {
            return Err("sections names no section: [\"16\", \"17.1\"]".to_owned());
        }
        let mut rfc = Self { sections, ..Self::default() };
        for (key, reason) in table.get("not_ours").and_then(toml::Value::as_table).into_iter().flatten() {
            let place = place_of(file, key);
            check_section(name, key, &rfc.sections, &place, found);
            if reason.as_str().unwrap_or_default().is_empty() {
                found.push(Violation::new("specs", &place, format!("not_ours gives no reason for {key}")));
            }
            rfc.not_ours.insert(key.clone(), place);
        }
        let requirements = table.get("requirement").and_then(toml::Value::as_array).map(Vec::as_slice);
        for requirement in requirements.unwrap_or_default() {
            rfc.take(name, file, requirement, found);
        }
        Ok((name.to_owned(), rfc))
    }

    /// Takes one `[[requirement]]`.
    fn take(&mut self, name: &str, file: &File, requirement: &toml::Value, found: &mut Vec<Violation>) {
        let empty = toml::Table::new();
        let table = requirement.as_table().unwrap_or(&empty);
        let (id, level, says) = (text(table, "id"), text(table, "level"), text(table, "text"));
        let place = place_of(file, id);
        let mut broken = |what: String, remedy| {
            found.push(Violation::new("specs", &place, format!("{name}#{id}: {what}")).remedy(remedy));
        };
        if !is_id(id) {
            broken("that is no id".to_owned(), "section, colon, a short slug: 16.3:max-forwards");
        }
        if !LEVELS.contains(&level) {
            broken(format!("{level:?} is no level"), "MUST, MUST NOT, SHOULD or SHOULD NOT");
        }
        if says.is_empty() || table.len() != 3 {
            broken("a requirement has id, level and text".to_owned(), "give it those three, each once");
        }
        if self.requirements.contains_key(id) {
            broken("the id is there twice".to_owned(), "give one of them another slug");
        }
        if self.not_ours.keys().any(|other| is_below(id, other)) {
            broken("not_ours names it too".to_owned(), "take it out, or name in not_ours the others one by one");
        }
        check_section(name, id, &self.sections, &place, found);
        self.requirements.insert(id.to_owned(), place);
    }

    /// Takes what another file says of the same RFC.
    fn join(&mut self, other: Self, found: &mut Vec<Violation>) {
        self.sections.extend(other.sections);
        self.not_ours.extend(other.not_ours);
        for (id, place) in other.requirements {
            if let Some(first) = self.requirements.get(&id) {
                let what = format!("{id} is also in {first}");
                found.push(Violation::new("specs", &place, what).remedy("give one of them another slug"));
            } else {
                self.requirements.insert(id, place);
            }
        }
    }

    /// Whether a citation may name this section: it is not covered here, or the data speaks of it.
    fn knows(&self, section: &str) -> bool {
        let covered = self.sections.iter().any(|covers| is_below(section, covers));
        let mut spoken_of = self.requirements.keys().chain(self.not_ours.keys());
        !covered || self.sections.contains(section) || spoken_of.any(|id| is_below(id, section))
    }
}

/// A requirement's section lies in what the file covers.
fn check_section(name: &str, id: &str, sections: &BTreeSet<String>, place: &str, found: &mut Vec<Violation>) {
    if !sections.iter().any(|section| is_below(id, section)) {
        let what = format!("{name}#{id} lies outside the sections of the file");
        found.push(Violation::new("specs", place, what).remedy("add its section to sections, or move it to its file"));
    }
}

/// Which requirements are cited, as `rfc3261#16.3:max-forwards`.
#[derive(Debug, Default)]
struct Cited {
    code: BTreeSet<String>,
    tests: BTreeSet<String>,
}

/// Each citation of an RFC with data names what the data has.
fn check_citations(file: &File, rfcs: &BTreeMap<String, Rfc>, cited: &mut Cited, found: &mut Vec<Violation>) {
    let is_test = is_test_path(&file.path);
    let blocks = if is_test || !file.text.contains(MARK) { Vec::new() } else { test_blocks(&file.text) };
    let lines = file.text.lines().zip(1..);
    let citations = lines.filter_map(|(line, number)| Some((line.trim().strip_prefix(MARK)?, number)));
    for (citation, number) in citations.filter(|(citation, _)| citation.starts_with("rfc")) {
        let id = citation.split_whitespace().next().unwrap_or_default();
        let (name, rest) = id.split_once('#').unwrap_or((id, ""));
        let place = format!("{}:{number}", file.path);
        let rfc = rfcs.get(name);
        if let Some((section, _)) = rest.split_once(':') {
            if rfc.is_some_and(|rfc| rfc.requirements.contains_key(rest)) {
                let test = is_test || blocks.iter().any(|(from, to)| (*from..=*to).contains(&number));
                if test { &mut cited.tests } else { &mut cited.code }.insert(id.to_owned());
            } else {
                let what = format!("{id} is no requirement of specs/{name}*.toml");
                let remedy = "correct the id, or add the requirement to the data";
                found.push(Violation::new("specs", &place, what).remedy(remedy));
            }
            if section != rest && citation != id {
                let what = format!("text follows {id}");
                found.push(Violation::new("specs", &place, what).remedy("one id a line; say more in a comment"));
            }
        } else if rfc.is_some_and(|rfc| !rfc.knows(rest)) {
            let what = format!("{id}: specs/{name}*.toml cover this part and know no section {rest:?}");
            let remedy = "cite a requirement by its id, correct the section, or name it in the data";
            found.push(Violation::new("specs", &place, what).remedy(remedy));
        }
    }
}

/// The ids that rows of the table of deviations name.
fn check_deviations(file: &File, rfcs: &BTreeMap<String, Rfc>, found: &mut Vec<Violation>) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    let rows = file.text.lines().zip(1..).filter(|(line, _)| line.starts_with('|'));
    for (line, number) in rows {
        let place = format!("{}:{number}", file.path);
        let words = line.split(|c: char| !(c.is_ascii_alphanumeric() || ".:#-_".contains(c)));
        let named = words.filter(|word| word.starts_with("rfc") && word.contains('#'));
        for id in named.map(|word| word.trim_end_matches(['.', ':'])) {
            let known = id
                .split_once('#')
                .is_some_and(|(name, rest)| rfcs.get(name).is_some_and(|rfc| rfc.requirements.contains_key(rest)));
            if !known {
                let what = format!("{id} is no requirement of the data");
                let remedy = "correct the id, or add the requirement to specs/rfc….toml";
                found.push(Violation::new("specs", &place, what).remedy(remedy));
            }
            let reason = line.trim().trim_end_matches('|').rsplit('|').next().unwrap_or_default().trim();
            if reason.is_empty() || reason.contains(id) {
                let what = format!("the row of {id} gives no reason");
                found.push(Violation::new("specs", &place, what).remedy("say why in the last column"));
            }
            ids.insert(id.to_owned());
        }
    }
    ids
}

/// Each requirement is cited at code and at a test, or deviates.
fn check_coverage(
    rfcs: &BTreeMap<String, Rfc>,
    cited: &Cited,
    deviating: &BTreeSet<String>,
    found: &mut Vec<Violation>,
) {
    for (name, rfc) in rfcs {
        for (requirement, place) in &rfc.requirements {
            let id = format!("{name}#{requirement}");
            let missing = match (cited.code.contains(&id), cited.tests.contains(&id)) {
                _ if deviating.contains(&id) => continue,
                (true, true) => continue,
                (false, false) => "neither code nor test cites it",
                (false, true) => "a test cites it, but no code does",
                (true, false) => "code cites it, but no test does",
            };
            found.push(Violation::new("specs", place, format!("{id}: {missing}")).remedy(
                "write `//= ` and the id above the code and above a test that fails without it, \
                 or give it a row in specs/deviations.md",
            ));
        }
    }
}

fn text<'a>(table: &'a toml::Table, key: &str) -> &'a str {
    table.get(key).and_then(toml::Value::as_str).unwrap_or_default()
}

/// The file and the last line that names `id` in quotes: of two that are the same, the second is one too many.
fn place_of(file: &File, id: &str) -> String {
    let at = file.text.rfind(&format!("\"{id}\""));
    at.map_or_else(|| file.path.clone(), |at| format!("{}:{}", file.path, line_of(&file.text, at)))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_id(id: &str) -> bool {
    let slug = |slug: &str| !slug.is_empty() && slug.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    id.split_once(':').is_some_and(|(section, rest)| section.split('.').all(|part| !part.is_empty()) && slug(rest))
}

/// Whether `id` is `section`, or is below it.
fn is_below(id: &str, section: &str) -> bool {
    id.strip_prefix(section).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', ':']))
}

fn is_test_path(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let in_folder = path.starts_with("tests/") || path.contains("/tests/");
    in_folder || name == "tests.rs" || name.ends_with("_tests.rs") || TEST_CRATES.iter().any(|c| path.starts_with(c))
}

/// The lines, first and last, of each item under `#[cfg(test)]` that has a body.
fn test_blocks(source: &str) -> Vec<(usize, usize)> {
    let code = bare(source);
    let mut blocks = Vec::new();
    for (at, attribute) in code.match_indices("#[cfg(test)]") {
        let body = at + attribute.len();
        let mut depth = 0usize;
        for (offset, byte) in code[body..].bytes().enumerate() {
            match byte {
                b'{' => depth += 1,
                b'}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if byte == b'}' && depth == 0 {
                blocks.push((line_of(&code, at), line_of(&code, body + offset)));
            }
            if depth == 0 && matches!(byte, b'}' | b';') {
                break;
            }
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const DATA: &str = "title = \"SIP\"\nsections = [\"8\", \"16\"]\n[not_ours]\n\"8.1.2\" = \"only phones do it\"\n\
        [[requirement]]\nid = \"16.3:hops\"\nlevel = \"MUST\"\ntext = \"A proxy counts hops.\"\n";
    const CODE: &str = "//= rfc3261#16.3:hops\nfn count() {}\n";
    const TEST: &str = "#[test]\nfn counts() {\n    //= rfc3261#16.3:hops\n    assert!(true);\n}\n";

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

    fn sound<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        let all = [("specs/rfc3261.toml", DATA), ("a/src/lib.rs", CODE), ("a/tests/hops.rs", TEST)];
        let replaced = |path: &str| more.iter().any(|(other, _)| *other == path);
        all.into_iter().filter(|(path, _)| !replaced(path)).chain(more.iter().copied()).collect()
    }

    /// The only fault of a sound repository with these files in place of others.
    fn only_fault(more: &[(&str, &str)]) -> String {
        let found = faults(&sound(more));
        assert_eq!(found.len(), 1, "{found:#?}");
        found[0].clone()
    }

    #[test]
    fn the_real_repository_keeps_the_rules() {
        let found = check(&crate::root()).expect("the files can be read");
        assert!(found.is_empty(), "{}", crate::violation::report(&found));
    }

    #[test]
    fn a_cited_requirement_passes() {
        assert_eq!(faults(&sound(&[])), [""; 0]);
        let others = "//= rfc3261#22.3\n//= rfc3261#16\n//= rfc3261#16.3\n//= rfc3261#8.1.2\n//= rfc9999#1.2\n";
        assert_eq!(faults(&sound(&[("b/src/lib.rs", others)])), [""; 0]);
    }

    #[test]
    fn a_requirement_needs_code_and_a_test() {
        let fault = only_fault(&[("a/tests/hops.rs", "")]);
        assert!(fault.starts_with("specs/rfc3261.toml:6: specs: rfc3261#16.3:hops: code cites it, but no"), "{fault}");
        assert!(only_fault(&[("a/src/lib.rs", "")]).contains("but no code does"));
        assert!(only_fault(&[("a/src/lib.rs", ""), ("a/tests/hops.rs", "")]).contains("neither code nor test"));
    }

    #[test]
    fn the_path_tells_what_is_a_test() {
        let inside = format!("{CODE}#[cfg(test)]\nmod tests {{\n    fn brace() {{ \"}}\"; }}\n{TEST}}}\n");
        for (path, text) in [
            ("a/src/b.rs", inside.as_str()),
            ("a/src/tests.rs", TEST),
            ("a/src/hops_tests.rs", TEST),
            ("tests/b.rs", TEST),
            ("interop/src/b.rs", TEST),
            ("crates/tools/sim/src/b.rs", TEST),
        ] {
            assert_eq!(faults(&sound(&[("a/tests/hops.rs", ""), (path, text)])), [""; 0], "{path}");
        }
        for text in [
            format!("#[cfg(test)]\nmod tests;\n{CODE}"),
            format!("#[cfg(test)]\nmod tests {{ fn f() {{}} }}\n{CODE}"),
            format!("#[cfg(test)]\nuse a::{{b, c}};\n{CODE}"),
        ] {
            assert!(
                only_fault(&[("a/tests/hops.rs", ""), ("a/src/b.rs", &text)]).contains("but no test does"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_deviation_replaces_citations() {
        let uncited = [("a/src/lib.rs", ""), ("a/tests/hops.rs", "")];
        let row = "| RFC | why |\n|---|---|\n| 3261 §16.3 (`rfc3261#16.3:hops`) | it is dear |\n";
        assert_eq!(faults(&sound(&[uncited[0], uncited[1], (DEVIATIONS, row)])), [""; 0]);
        let outside = "rfc3261#16.3:hops is not done\n";
        assert!(only_fault(&[uncited[0], uncited[1], (DEVIATIONS, outside)]).contains("neither"));
        assert!(only_fault(&[(DEVIATIONS, "| rfc3261#16.3:hops | |\n")]).contains("gives no reason"));
        assert!(only_fault(&[(DEVIATIONS, "| rfc3261#16.3:gone | why |\n")]).contains("is no requirement"));
    }

    #[test]
    fn an_unknown_citation_is_caught() {
        let fault = only_fault(&[("b/src/lib.rs", "\n    //= rfc3261#16.3:hop\n")]);
        assert!(fault.starts_with("b/src/lib.rs:2: specs: rfc3261#16.3:hop is no requirement"), "{fault}");
        assert!(only_fault(&[("b/src/lib.rs", "//= rfc3263#4:srv\n")]).contains("is no requirement"));
        assert!(only_fault(&[("b/src/lib.rs", "//= rfc3261#16.4\n")]).contains("know no section \"16.4\""));
        assert!(only_fault(&[("b/src/lib.rs", "//= rfc3261#16.3:hops and more\n")]).contains("text follows"));
    }

    #[test]
    fn invalid_data_is_caught() {
        let without = |from: &str, to: &str| only_fault(&[("specs/rfc3261.toml", &DATA.replacen(from, to, 1))]);
        assert!(without("\"MUST\"", "\"MAY\"").contains("\"MAY\" is no level"));
        assert!(without("text = \"A proxy counts hops.\"", "").contains("has id, level and text"));
        assert!(without("\"16\"]", "\"17\"]").contains("outside the sections"));
        assert!(without("8.1.2", "9.1").contains("outside the sections"));
        assert!(without("only phones do it", "").contains("no reason for 8.1.2"));
        assert!(without("8.1.2", "16").contains("not_ours names it too"));
        let other = DATA
            .replace("[\"8\", \"16\"]", "[\"16.3\"]")
            .replace("[not_ours]\n\"8.1.2\" = \"only phones do it\"\n", "");
        let fault = only_fault(&[("specs/rfc3261-more.toml", &other)]);
        assert!(fault.contains("16.3:hops is also in specs/rfc3261"), "{fault}");
        let again = "[[requirement]]\nid = \"16.3:hops\"\nlevel = \"MUST\"\ntext = \"It counts.\"\n";
        let twice = format!("{DATA}{again}");
        let fault = only_fault(&[("specs/rfc3261.toml", &twice)]);
        assert!(fault.starts_with("specs/rfc3261.toml:10: specs: rfc3261#16.3:hops: the id is there twice"), "{fault}");
    }

    #[test]
    fn an_unreadable_file_is_caught() {
        for (path, text, what) in [
            ("specs/rfc1.toml", "title", "cannot be read"),
            ("specs/rfc1.toml", "titel = \"\"", "titel is not a key"),
            ("specs/rfc1.toml", "sections = [\"1\"]", "title is missing"),
            ("specs/rfc1.toml", "title = \"a\"", "names no section"),
            ("specs/sip.toml", "", "named after its RFC"),
        ] {
            assert!(only_fault(&[(path, text)]).contains(what), "{text}");
        }
    }

    #[test]
    fn an_id_is_a_section_and_a_slug() {
        let broken = ["16.3", "16.3:", ":hops", "16..3:hops", "16.3:hop count"];
        assert_eq!(broken.map(is_id), [false; 5]);
        assert!(is_id("16.3:hops") && is_id("8.2.6.2:to-tag") && is_id("16.7:503"));
    }
}
