//! Parsing of XML into a tree of elements with positions. It is as lenient as SIPp's parser where users rely on that
//! (`<` and `&` in attributes, hyphens in comments). Limits bound the cost of an untrusted file by its size.

use quick_xml::events::{BytesStart, Event};
use quick_xml::reader::Reader;

use super::Diagnostic;

/// Maximum size of a scenario file, in bytes.
pub const MAX_BYTES: usize = 4 << 20;
/// Maximum number of elements.
const MAX_ELEMENTS: usize = 20_000;
/// Maximum nesting depth; SIPp needs four.
const MAX_DEPTH: usize = 16;
/// Maximum number of attributes of an element.
const MAX_ATTRIBUTES: usize = 32;

/// Maximum length of an entity's name.
const MAX_ENTITY: usize = 32;

/// A file's text, and the offsets of its lines.
#[derive(Debug)]
pub(super) struct Source {
    file: String,
    pub(super) text: String,
    lines: Vec<usize>,
}

/// An XML element.
#[derive(Debug, Default)]
pub(super) struct Element {
    pub(super) name: String,
    /// Its byte offset in the text.
    pub(super) at: usize,
    pub(super) attributes: Vec<Attribute>,
    pub(super) children: Vec<Element>,
    /// Its text without surrounding white space, and the offset of that.
    pub(super) text: String,
    pub(super) text_at: usize,
}

/// One `name="value"`.
#[derive(Debug)]
pub(super) struct Attribute {
    pub(super) name: String,
    pub(super) value: String,
    pub(super) at: usize,
}

impl Element {
    pub(super) fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.attributes.iter().find(|attribute| attribute.name == name)
    }
}

impl Source {
    /// Decodes the bytes of a file: UTF-8, or ISO 8859-1 if the declaration says so and the bytes are not UTF-8.
    pub(super) fn new(file: &str, bytes: &[u8]) -> Result<Self, Diagnostic> {
        let plain = |line, column, what: String| Diagnostic { file: file.to_owned(), line, column, what };
        if bytes.len() > MAX_BYTES {
            let what = format!("the file has {} bytes; scenarios have at most {MAX_BYTES}", bytes.len());
            return Err(plain(1, 1, what));
        }
        let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) if says_latin(bytes) => bytes.iter().map(|byte| char::from(*byte)).collect(),
            Err(error) => {
                let good = bytes.get(..error.valid_up_to()).unwrap_or(&[]);
                let line = memchr::memchr_iter(b'\n', good).count() + 1;
                let column = good.len() - memchr::memrchr(b'\n', good).map_or(0, |at| at + 1) + 1;
                let what = "the file is not UTF-8 from here on; convert it (iconv -t UTF-8), or say encoding=\"ISO-8859-1\" in \
                            its first line";
                return Err(plain(line, column, what.to_owned()));
            }
        };
        let lines = std::iter::once(0).chain(memchr::memchr_iter(b'\n', text.as_bytes()).map(|at| at + 1)).collect();
        Ok(Self { file: file.to_owned(), text, lines })
    }

    /// Creates a diagnostic for the position `at`.
    pub(super) fn diagnostic(&self, at: usize, what: impl Into<String>) -> Diagnostic {
        let index = self.lines.partition_point(|start| *start <= at).saturating_sub(1);
        let start = self.lines.get(index).copied().unwrap_or(0);
        let before = self.text.get(start..at).unwrap_or_default();
        Diagnostic { file: self.file.clone(), line: index + 1, column: before.chars().count() + 1, what: what.into() }
    }

    /// Returns the root element.
    pub(super) fn tree(&self) -> Result<Element, Diagnostic> {
        let mut reader = Reader::from_str(&self.text);
        reader.config_mut().allow_dangling_amp = true;
        let mut open: Vec<Element> = Vec::new();
        let mut root: Option<Element> = None;
        let mut count = 0;
        loop {
            let at = position(&reader);
            let event = reader.read_event().map_err(|error| {
                let at = usize::try_from(reader.error_position()).unwrap_or(at);
                self.diagnostic(at.min(self.text.len()), format!("this is not XML: {error}"))
            })?;
            let is_empty = matches!(event, Event::Empty(_));
            match event {
                Event::Start(tag) | Event::Empty(tag) => {
                    count += 1;
                    if count > MAX_ELEMENTS || open.len() >= MAX_DEPTH {
                        let what =
                            format!("a scenario has at most {MAX_ELEMENTS} elements, {MAX_DEPTH} inside each other");
                        return Err(self.diagnostic(at, what));
                    }
                    if root.is_some() {
                        return Err(self.diagnostic(at, "a file has one <scenario>; this comes after its end"));
                    }
                    let element = self.element(&tag, at)?;
                    if is_empty { self.close(element, &mut open, &mut root) } else { open.push(element) }
                }
                Event::End(_) => {
                    if let Some(element) = open.pop() {
                        self.close(element, &mut open, &mut root);
                    }
                }
                Event::Text(text) => push_text(&mut open, &text, at),
                // After `<![CDATA[`.
                Event::CData(text) => push_text(&mut open, &text, at + 9),
                Event::GeneralRef(reference) => {
                    let text = self.unescape(&format!("&{};", &*reference), at)?;
                    if let Some(element) = open.last_mut() {
                        element.text.push_str(&text);
                    }
                }
                Event::DocType(doctype) if doctype.contains('[') => {
                    let what = "declarations of entities are not read; remove them from this DOCTYPE, from '[' to ']'";
                    return Err(self.diagnostic(at, what));
                }
                Event::Eof => break,
                _ => {}
            }
        }
        if let Some(element) = open.last() {
            let what = format!("the file ends inside this <{}>; </{}> is missing", element.name, element.name);
            return Err(self.diagnostic(element.at, what));
        }
        root.ok_or_else(|| self.diagnostic(0, "the file has no <scenario>"))
    }

    fn close(&self, element: Element, open: &mut [Element], root: &mut Option<Element>) {
        match open.last_mut() {
            Some(parent) => parent.children.push(element),
            None => *root = Some(element),
        }
    }

    fn element(&self, tag: &BytesStart<'_>, at: usize) -> Result<Element, Diagnostic> {
        let mut element = Element { name: tag.name().0.to_owned(), at, text_at: at, ..Element::default() };
        for attribute in tag.attributes() {
            let attribute = attribute.map_err(|error| self.diagnostic(at, format!("<{}>: {error}", element.name)))?;
            if element.attributes.len() >= MAX_ATTRIBUTES {
                return Err(
                    self.diagnostic(at, format!("<{}> has more than {MAX_ATTRIBUTES} attributes", element.name))
                );
            }
            let name = attribute.key.0;
            // The event borrows from the text, so the difference of addresses is its offset.
            let at = (name.as_ptr() as usize).checked_sub(self.text.as_ptr() as usize).unwrap_or(at);
            let value = self.unescape(&attribute.value, at)?;
            element.attributes.push(Attribute { name: name.to_owned(), value, at });
        }
        Ok(element)
    }

    /// Replaces XML's five entities and numeric character references. Any other ampersand is kept.
    fn unescape(&self, text: &str, at: usize) -> Result<String, Diagnostic> {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once('&') {
            out.push_str(before);
            let length =
                behind.bytes().take(MAX_ENTITY).take_while(|b| b.is_ascii_alphanumeric() || *b == b'#').count();
            let name =
                behind.split_at_checked(length).filter(|(name, after)| !name.is_empty() && after.starts_with(';'));
            let name = name.map(|(name, _)| name);
            let Some(name) = name else {
                out.push('&');
                rest = behind;
                continue;
            };
            let number = name.strip_prefix('#').and_then(|number| match number.strip_prefix(['x', 'X']) {
                Some(hex) => u32::from_str_radix(hex, 16).ok(),
                None => number.parse().ok(),
            });
            out.push(match name {
                "lt" => '<',
                "gt" => '>',
                "amp" => '&',
                "quot" => '"',
                "apos" => '\'',
                _ => number.and_then(char::from_u32).ok_or_else(|| {
                    self.diagnostic(
                        at,
                        format!("the entity &{name}; is not known; XML has &lt; &gt; &amp; &quot; &apos; &#N;"),
                    )
                })?,
            });
            rest = behind.get(name.len() + 1..).unwrap_or_default();
        }
        out.push_str(rest);
        Ok(out)
    }
}

fn position(reader: &Reader<&[u8]>) -> usize {
    usize::try_from(reader.buffer_position()).unwrap_or(usize::MAX)
}

fn push_text(open: &mut [Element], text: &str, at: usize) {
    let Some(element) = open.last_mut() else { return };
    if element.text.is_empty() {
        if text.trim().is_empty() {
            return;
        }
        element.text_at = at;
    }
    element.text.push_str(text);
}

/// Returns whether the XML declaration names ISO 8859-1 or a similar encoding with one byte per character.
fn says_latin(bytes: &[u8]) -> bool {
    let declaration =
        bytes.get(..bytes.len().min(200)).unwrap_or(&[]).split(|byte| *byte == b'>').next().unwrap_or(&[]);
    let text = String::from_utf8_lossy(declaration).to_ascii_lowercase();
    text.starts_with("<?xml")
        && ["iso-8859-1", "iso8859-1", "latin1", "windows-1252"].iter().any(|name| text.contains(name))
}
