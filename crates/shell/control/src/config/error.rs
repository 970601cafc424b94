//! Errors in a configuration and their location.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Config;
use super::former_names::{self, FormerName};

/// An invalid configuration. Printed as `file:line: key: what is wrong; remedy`, one line for each fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The file; `None` if the text has no file.
    pub file: Option<PathBuf>,
    /// The line, from 1; `None` if the fault has no location.
    pub line: Option<usize>,
    /// The key with its sections, such as `registrar.expires.min`; empty if the fault concerns no key.
    pub key: String,
    /// The problem and its remedy.
    pub message: String,
    /// Further faults.
    pub others: Vec<Self>,
}

impl ConfigError {
    /// Returns the error with the name of the file.
    pub(crate) fn in_file(self, path: &Path) -> Self {
        let others = self.others.into_iter().map(|other| other.in_file(path)).collect();
        Self { file: Some(path.to_owned()), others, ..self }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}:", file.display())?;
            if let Some(line) = self.line {
                write!(f, "{line}:")?;
            }
            f.write_str(" ")?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)?;
        self.others.iter().try_for_each(|other| write!(f, "\n{other}"))
    }
}

impl std::error::Error for ConfigError {}

/// A fault of a key, found after parsing.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) key: String,
    pub(crate) message: String,
}

impl Fault {
    pub(crate) fn new(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { key: key.into(), message: message.into() }
    }
}

/// A text with the data needed to read it and to locate faults in it.
pub(crate) struct Source<'a> {
    text: &'a str,
    /// The content with present names; `None` if the text is no TOML.
    document: Option<Spanned<DeTable<'a>>>,
    former_names: Vec<FormerName>,
}

impl<'a> Source<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let mut document = DeTable::parse(text).ok();
        let former_names =
            document.as_mut().map_or_else(Vec::new, |document| former_names::replace(document.get_mut()));
        Self { text, document, former_names }
    }

    /// Reads the text.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, toml::de::Error> {
        match &self.document {
            Some(document) => T::deserialize(toml::Deserializer::from(document.clone())),
            None => toml::from_str(self.text),
        }
    }

    /// Returns a warning for each former name.
    pub(crate) fn warnings(&self) -> Vec<ConfigError> {
        self.former_names.iter().map(|name| self.located(name)).collect()
    }

    fn located(&self, name: &FormerName) -> ConfigError {
        let FormerName { offset, key, message, .. } = name;
        let line = Some(self.line_of(*offset));
        ConfigError { file: None, line, key: key.clone(), message: message.clone(), others: Vec::new() }
    }

    /// Converts an error of `toml` or `serde`, adding its location and, for an unknown name, the nearest known one.
    pub(crate) fn explain(&self, error: &toml::de::Error) -> ConfigError {
        let offset = error.span().map(|span| span.start);
        let key = match (&self.document, offset) {
            (Some(document), Some(offset)) => key_at(document.get_ref(), offset, ""),
            _ => String::new(),
        };
        let message = match &self.document {
            // Message of `toml` for a key with a fixed set of words whose value is not a string.
            Some(_) if error.message() == "wanted string or table" => no_word(&key),
            Some(_) => advise(error.message()),
            None => format!("this is not valid TOML: {}", error.message().replace('\n', "; ")),
        };
        let line = offset.map(|offset| self.line_of(offset));
        ConfigError { file: None, line, key, message, others: Vec::new() }
    }

    /// Locates a fault at the line of its key, or of the nearest enclosing table in the text.
    pub(crate) fn place(&self, fault: Fault) -> ConfigError {
        let offset = self.document.as_ref().and_then(|document| offset_of(document.get_ref(), &fault.key));
        let line = offset.map(|offset| self.line_of(offset));
        ConfigError { file: None, line, key: fault.key, message: fault.message, others: Vec::new() }
    }

    /// Combines all faults and the keys with two names into one error, ordered by line.
    pub(crate) fn place_all(&self, faults: Vec<Fault>) -> Option<ConfigError> {
        let mut placed: Vec<ConfigError> = faults.into_iter().map(|fault| self.place(fault)).collect();
        placed.extend(self.former_names.iter().filter(|name| name.is_ambiguous).map(|name| self.located(name)));
        placed.sort_by_key(|error| error.line.unwrap_or(usize::MAX));
        let mut placed = placed.into_iter();
        let first = placed.next()?;
        Some(ConfigError { others: placed.collect(), ..first })
    }

    fn line_of(&self, offset: usize) -> usize {
        1 + self.text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
    }
}

/// Returns the innermost key whose name or value is at `offset`.
fn key_at(table: &DeTable<'_>, offset: usize, prefix: &str) -> String {
    for (name, value) in table.iter() {
        let inner = join(prefix, name.get_ref());
        if name.span().contains(&offset) && !matches!(value.get_ref(), DeValue::Table(_)) {
            return inner;
        }
        let found = key_in(value, offset, &inner);
        if !found.is_empty() {
            return found;
        }
        if name.span().contains(&offset) {
            return inner;
        }
    }
    String::new()
}

fn key_in(value: &Spanned<DeValue<'_>>, offset: usize, key: &str) -> String {
    let inner = match value.get_ref() {
        DeValue::Table(table) => key_at(table, offset, key),
        DeValue::Array(items) => items
            .iter()
            .enumerate()
            .map(|(index, item)| key_in(item, offset, &format!("{key}[{index}]")))
            .find(|found| !found.is_empty())
            .unwrap_or_default(),
        _ => String::new(),
    };
    if inner.is_empty() && value.span().contains(&offset) { key.to_owned() } else { inner }
}

fn offset_of(table: &DeTable<'_>, key: &str) -> Option<usize> {
    let (name, rest) = key.split_once('.').unwrap_or((key, ""));
    let (name, index) = match name.split_once('[') {
        Some((name, index)) => (name, index.trim_end_matches(']').parse::<usize>().ok()),
        None => (name, None),
    };
    let (spanned, value) = table.iter().find(|(found, _)| found.get_ref() == name)?;
    let mut offset = spanned.span().start;
    let mut value = value;
    if let (DeValue::Array(items), Some(index)) = (value.get_ref(), index) {
        value = items.get(index)?;
        offset = value.span().start;
    }
    match value.get_ref() {
        DeValue::Table(inner) if !rest.is_empty() => offset_of(inner, rest).or(Some(offset)),
        _ => Some(offset),
    }
}

fn join(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") }
}

/// Adds the nearest known name to serde's message about an unknown one.
fn advise(message: &str) -> String {
    let what = [("unknown field `", "unknown key"), ("unknown variant `", "unknown value")];
    let Some((what, rest)) = what.iter().find_map(|(start, what)| Some((what, message.strip_prefix(start)?))) else {
        if message.starts_with("invalid type: map, expected a sequence") {
            return "this is a list of tables; write each with double brackets, like [[balancer]]".to_owned();
        }
        let message = message.replace("expected u16", "expected a whole number from 0 to 65535");
        let message = message.replace("expected u32", "expected a whole number from 0 to 4294967295");
        return message.replace('\n', "; ");
    };
    let Some((found, expected)) = rest.split_once('`') else { return message.to_owned() };
    let known: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
    let found: String = found.escape_debug().collect();
    match nearest(&found, &known) {
        Some(name) => format!("{what} \"{found}\"; did you mean \"{name}\"?"),
        None if known.is_empty() => format!("{what} \"{found}\"; remove it"),
        None => format!("{what} \"{found}\"; known values are {}", quoted(&known)),
    }
}

/// Returns what to write instead of a value that is not a string.
fn no_word(key: &str) -> String {
    let schema = serde_json::to_value(schemars::schema_for!(Config)).unwrap_or_default();
    match words_of(&schema, key).as_slice() {
        [] => "a string in quotes is required".to_owned(),
        words => format!("a string in quotes is required; known values are {}", quoted(words)),
    }
}

/// Returns the words allowed for a key; empty if it has no fixed set.
fn words_of<'a>(schema: &'a Value, key: &str) -> Vec<&'a str> {
    let resolved = |node: &'a Value| {
        // The schema of an optional key also allows null.
        let node = node.pointer("/anyOf/0").unwrap_or(node);
        match node.get("$ref").and_then(Value::as_str) {
            Some(path) => schema.pointer(path.trim_start_matches('#')).unwrap_or(node),
            None => node,
        }
    };
    let inner = |node: &'a Value, name: &str| {
        let (name, is_item) = name.split_once('[').map_or((name, false), |(name, _)| (name, true));
        let value = node.get("properties")?.get(name)?;
        Some(resolved(if is_item { value.get("items")? } else { value }))
    };
    let found = key.split('.').try_fold(schema, inner);
    let words = found.and_then(|node| node.get("enum")).and_then(Value::as_array);
    words.into_iter().flatten().filter_map(Value::as_str).collect()
}

fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ")
}

pub(crate) fn nearest<'a>(found: &str, known: &[&'a str]) -> Option<&'a str> {
    let is_part = |name: &&&str| name.len() >= 3 && found.starts_with(**name);
    if let Some(name) = known.iter().find(is_part) {
        return Some(name);
    }
    let distance = |name: &&&str| edit_distance(found, name);
    known.iter().min_by_key(distance).filter(|name| edit_distance(found, name) <= name.len().div_ceil(3)).copied()
}

/// Levenshtein distance over bytes, ignoring case.
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.to_ascii_lowercase(), b.to_ascii_lowercase());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut next = vec![i + 1];
        for ((y, above_left), above) in b.bytes().zip(&row).zip(row.iter().skip(1)) {
            let left = next.last().copied().unwrap_or_default();
            next.push((above_left + usize::from(x != y)).min(above + 1).min(left + 1));
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_table_error_suggests_brackets() {
        let error = toml::from_str::<Several>("[balancer]\n").expect_err("a table");
        assert!(advise(error.message()).contains("[[balancer]]"), "{error}");
    }

    #[derive(Debug, serde::Deserialize)]
    struct Several {
        #[serde(rename = "balancer")]
        _balancers: Vec<u8>,
    }

    #[test]
    fn distances() {
        for (a, b, distance) in [("", "", 0), ("listen", "lisen", 1), ("kitten", "sitting", 3), ("abc", "", 3)] {
            assert_eq!(edit_distance(a, b), distance, "{a} {b}");
        }
        assert_eq!(nearest("colour", &["level", "format"]), None);
    }
}
