//! Names and paragraphs drawn at random, for a reader who does not know the code: what each means should be clear without it.
//! Reviewers use it to find names and sentences that only their authors understand.

use std::path::Path;

use crate::code;
use crate::files::{self, File};

/// Names and paragraphs in one sample.
const SAMPLE_SIZE: usize = 20;
/// Words of the shortest paragraph that is drawn.
const MIN_WORDS: usize = 12;
/// Keywords that define a name.
const DEFINITIONS: [&str; 8] = ["struct", "enum", "trait", "type", "fn", "const", "static", "mod"];

/// Prints [`SAMPLE_SIZE`] public names and as many paragraphs of comments and documents, drawn with `seed`.
///
/// # Errors
/// A sentence if the repository cannot be read.
pub(crate) fn print(root: &Path, seed: u64) -> Result<(), String> {
    let files = files::read_all(root)?;
    let names: Vec<String> = files.iter().filter(|file| is_code(file)).flat_map(names).collect();
    let paragraphs: Vec<String> = files.iter().flat_map(paragraphs).collect();
    let mut random = SplitMix64(seed);
    println!("# Names, of {}", names.len());
    for name in draw(names, &mut random) {
        println!("- {name}");
    }
    println!("\n# Paragraphs, of {}", paragraphs.len());
    for paragraph in draw(paragraphs, &mut random) {
        println!("- {paragraph}\n");
    }
    Ok(())
}

fn is_code(file: &File) -> bool {
    file.path.ends_with(".rs") && !file.path.contains("/tests/")
}

/// `crate: Owner: declaration`, for each `pub` item of a file.
fn names(file: &File) -> Vec<String> {
    let bare = code::bare(&file.text);
    let mut owner = String::new();
    let mut names = Vec::new();
    for line in bare.lines() {
        if let Some(head) = line.strip_prefix("impl") {
            owner = implementor(head);
        }
        if line.starts_with('}') || line.starts_with("impl") && line.ends_with('}') {
            owner.clear();
        }
        if !is_definition(line.trim_start()) {
            continue;
        }
        let separator = if owner.is_empty() { "" } else { ": " };
        let declaration = line.trim().trim_end_matches(['{', ';', ' ']);
        names.push(format!("{}: {owner}{separator}{declaration}", crate_of(&file.path)));
    }
    names
}

/// The type that an `impl` block belongs to.
fn implementor(head: &str) -> String {
    let head = head.split(" where ").next().unwrap_or(head).trim_end_matches(['{', ' ']);
    let of = head.rsplit(" for ").next().unwrap_or(head);
    let of = if of.starts_with('<') { of.split_once("> ").map_or(of, |(_, rest)| rest) } else { of };
    of.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// Whether a line defines a public item.
fn is_definition(line: &str) -> bool {
    let Some(rest) = line.strip_prefix("pub") else { return false };
    let rest = if rest.starts_with('(') { rest.split_once(')').map_or("", |(_, rest)| rest) } else { rest };
    let keyword = rest.split_whitespace().find(|word| !matches!(*word, "unsafe" | "async" | "extern"));
    keyword.is_some_and(|keyword| DEFINITIONS.contains(&keyword))
}

/// The crate's folder.
fn crate_of(path: &str) -> &str {
    path.split_once("/src/").map_or(path, |(folder, _)| folder)
}

/// The paragraphs of a document or of a file's comments, each with the path of its file.
fn paragraphs(file: &File) -> Vec<String> {
    let lines: Vec<&str> = if is_code(file) {
        file.text.lines().map(|line| comment(line).unwrap_or("")).collect()
    } else if file.path.ends_with(".md") && file.path != "CHANGELOG.md" {
        prose(&file.text)
    } else {
        return Vec::new();
    };
    let blocks = lines.split(|line| line.trim().is_empty());
    let texts = blocks.map(|block| block.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" "));
    texts
        .filter(|text| text.split_whitespace().count() >= MIN_WORDS)
        .map(|text| format!("({}) {text}", file.path))
        .collect()
}

/// What a line says if it is a comment of its own, without citations of RFCs.
fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    (!text.starts_with('=')).then(|| text.trim_start_matches(['/', '!']))
}

/// A document's lines; headings, tables and fenced code become empty.
fn prose(text: &str) -> Vec<&str> {
    let mut is_fenced = false;
    let keep = |line| {
        let line: &str = line;
        if line.starts_with("```") {
            is_fenced = !is_fenced;
            return "";
        }
        if is_fenced || line.starts_with(['|', '#', '<']) { "" } else { line }
    };
    text.lines().map(keep).collect()
}

/// [`SAMPLE_SIZE`] different elements.
fn draw(mut all: Vec<String>, random: &mut SplitMix64) -> Vec<String> {
    let mut drawn = Vec::new();
    while drawn.len() < SAMPLE_SIZE && !all.is_empty() {
        let at = random.below(all.len());
        drawn.push(all.swap_remove(at));
    }
    drawn
}

/// A small generator: the same seed draws the same sample on every machine.
struct SplitMix64(u64);

impl SplitMix64 {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % bound as u64).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn a_method_is_sampled_with_its_type_and_private_items_not() {
        let code = "pub struct Peek;\nimpl Eq for Peek {}\npub struct Head;\nimpl<'m> Peek<'m> {\n    pub const fn read(&self) {}\n    fn hidden() {}\n}\npub(crate) mod way;\n";
        let expected = [
            "crates/core/message: pub struct Peek",
            "crates/core/message: pub struct Head",
            "crates/core/message: Peek: pub const fn read(&self) {}",
            "crates/core/message: pub(crate) mod way",
        ];
        assert_eq!(names(&file("crates/core/message/src/peek.rs", code)), expected);
    }

    #[test]
    fn a_paragraph_is_one_comment_block_without_the_code() {
        let text = "/// One two three four five six seven\n/// eight nine ten eleven twelve.\nfn f() {}\n// Short.\n";
        let expected = ["(bench/src/a.rs) One two three four five six seven eight nine ten eleven twelve."];
        assert_eq!(paragraphs(&file("bench/src/a.rs", text)), expected);
    }

    #[test]
    fn one_seed_samples_the_same_without_repeats() {
        let all: Vec<String> = (0..100).map(|n| n.to_string()).collect();
        let first = draw(all.clone(), &mut SplitMix64(7));
        assert_eq!(first, draw(all.clone(), &mut SplitMix64(7)));
        assert_ne!(first, draw(all, &mut SplitMix64(8)));
        let different: std::collections::BTreeSet<_> = first.iter().collect();
        assert_eq!(different.len(), SAMPLE_SIZE);
    }
}
