//! Regular expressions over messages. They are POSIX extended ones (as in SIPp's scenarios), matched in time linear
//! in the message. A dot matches line ends too; `^` and `$` are the ends of the searched text.
//!
//! Two things differ from POSIX: the first matching alternative is taken, not the longest; and there are no
//! back-references, which linear time does not allow.

use std::fmt;
use std::iter::Peekable;
use std::str::Chars;

use regex::bytes::{Regex, RegexBuilder};

/// Maximum memory of a compiled expression.
const MAX_COMPILED_BYTES: usize = 1 << 20;
/// Maximum length of an expression's text.
const MAX_TEXT_BYTES: usize = 8_192;

/// A regular expression with its text.
#[derive(Clone)]
pub struct PosixRegex {
    regex: Regex,
    text: String,
}

impl PosixRegex {
    /// Compiles a POSIX extended regular expression.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn compile(text: &str) -> Result<Self, String> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(format!("the expression has {} characters; {MAX_TEXT_BYTES} are allowed", text.len()));
        }
        let regex = RegexBuilder::new(&translate(text)?)
            .unicode(false)
            .dot_matches_new_line(true)
            .size_limit(MAX_COMPILED_BYTES)
            .dfa_size_limit(MAX_COMPILED_BYTES)
            .nest_limit(64)
            .build()
            .map_err(|error| brief(&error))?;
        Ok(Self { regex, text: text.to_owned() })
    }

    /// Returns whether `text` contains a match.
    #[must_use]
    pub fn is_in(&self, text: &[u8]) -> bool {
        self.regex.is_match(text)
    }

    /// Returns the number of groups, including the whole match.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.regex.captures_len()
    }
}

impl fmt::Debug for PosixRegex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}/", self.text)
    }
}

impl PartialEq for PosixRegex {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// What a search checks besides setting groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Check {
    /// Nothing; the call continues either way.
    #[default]
    None,
    /// The call fails without a match.
    Found,
    /// The call fails on a match.
    NotFound,
}

/// A search with a regular expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Match {
    /// Expression.
    pub pattern: PosixRegex,
    /// Where to search.
    pub place: Place,
    /// Which field of that name, from 1; only for [`Place::Header`].
    pub occurrence: u16,
    /// Variables for the whole match and then the groups in order. Without a match they stay unchanged; a group that
    /// took no part becomes an empty text.
    pub into: Vec<Variable>,
    /// When the call fails.
    pub check: Check,
}

impl Match {
    /// Searches `text`, the part that [`place`](Self::place) selects (`None` if that does not exist), and passes the
    /// groups to `set`; returns false if the call fails.
    pub fn search(&self, text: Option<&[u8]>, mut set: impl FnMut(Variable, &[u8])) -> bool {
        let is_found = match text {
            None => false,
            Some(text) if self.into.is_empty() => self.pattern.is_in(text),
            Some(text) => match self.pattern.regex.captures(text) {
                None => false,
                Some(captures) => {
                    for (group, variable) in self.into.iter().enumerate() {
                        set(*variable, captures.get(group).map_or(&[], |found| found.as_bytes()));
                    }
                    true
                }
            },
        };
        match self.check {
            Check::None => true,
            Check::Found => is_found,
            Check::NotFound => !is_found,
        }
    }
}

/// Returns the value of the `occurrence`-th (from 1) field with this name, long or compact, in any case. Surrounding
/// white space is removed; folded lines are included.
#[must_use]
pub fn field_value<'a>(message: &'a [u8], name: &str, occurrence: u16) -> Option<&'a [u8]> {
    let known = strowger_message::HeaderName::from_bytes(name.as_bytes());
    let is_it = |got: &[u8]| match known {
        strowger_message::HeaderName::Other => got.eq_ignore_ascii_case(name.as_bytes()),
        known => strowger_message::HeaderName::from_bytes(got) == known,
    };
    let mut left = occurrence.max(1);
    // Skips the first line.
    let mut at = memchr::memchr(b'\n', message)? + 1;
    loop {
        let rest = message.get(at..)?;
        let length = field_length(rest);
        let line = rest.get(..length)?;
        if line.trim_ascii().is_empty() {
            return None;
        }
        at += length;
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        if is_it(line.get(..colon)?.trim_ascii()) {
            left -= 1;
            if left == 0 {
                return line.get(colon + 1..).map(<[u8]>::trim_ascii);
            }
        }
    }
}

/// Returns the length of the first line with its continuation lines.
fn field_length(text: &[u8]) -> usize {
    for end in memchr::memchr_iter(b'\n', text) {
        let continues = matches!(text.get(end + 1), Some(b' ' | b'\t'))
            && !text.get(..end).is_some_and(|line| line.trim_ascii().is_empty());
        if !continues {
            return end + 1;
        }
    }
    text.len()
}

/// Returns the body of a message.
#[must_use]
pub fn body_of(message: &[u8]) -> &[u8] {
    let crlf = memchr::memmem::find(message, b"\r\n\r\n").map(|at| at + 4);
    let start = crlf.or_else(|| memchr::memmem::find(message, b"\n\n").map(|at| at + 2));
    start.and_then(|start| message.get(start..)).unwrap_or(&[])
}

/// Returns only the last line of the library's message, which names the error; the lines before draw the expression.
fn brief(error: &regex::Error) -> String {
    let text = error.to_string();
    text.lines().last().unwrap_or(&text).trim().trim_start_matches("error: ").to_owned()
}

/// Translates POSIX syntax to the library's.
fn translate(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len() + 8);
    let mut rest = text.chars().peekable();
    let mut is_start = true;
    while let Some(c) = rest.next() {
        match c {
            '[' => bracket(&mut rest, &mut out)?,
            '\\' => match rest.next() {
                None => return Err("it ends with a single backslash".to_owned()),
                Some('1'..='9') => {
                    return Err("back-references (\\1) are not supported; match twice instead".to_owned());
                }
                // GNU extensions.
                Some(c @ ('w' | 'W' | 's' | 'S' | 'b' | 'B' | '<' | '>')) => out.extend(['\\', c]),
                Some('`') => out.push_str("\\A"),
                Some('\'') => out.push_str("\\z"),
                Some(c) => literal(c, &mut out),
            },
            // The library reads (?…) as flags, which POSIX does not have.
            '(' if rest.peek() == Some(&'?') => return Err("'(?' is Perl syntax; POSIX has no such groups".to_owned()),
            '*' | '+' | '?' if is_start => literal(c, &mut out),
            '*' | '+' | '?' => out.push(repetition(c, &mut rest)),
            '{' => match count(&rest.clone().take(16).collect::<String>()) {
                Some(length) => {
                    out.push('{');
                    out.extend(rest.by_ref().take(length));
                    if let Some(c @ ('*' | '+' | '?')) = rest.peek() {
                        return Err(format!("'{c}' repeats a repetition; put the first one in parentheses"));
                    }
                }
                None => literal(c, &mut out),
            },
            '}' | ']' => literal(c, &mut out),
            c => out.push(c),
        }
        is_start = matches!(c, '(' | '|') || (is_start && c == '^');
    }
    Ok(out)
}

/// Returns a single operator for several repetitions in a row. POSIX nests them, while the library would make them
/// lazy.
fn repetition(first: char, rest: &mut Peekable<Chars<'_>>) -> char {
    let mut all = first;
    while let Some(next) = rest.next_if(|c| matches!(c, '*' | '+' | '?')) {
        if next != all {
            all = '*';
        }
    }
    all
}

/// Returns the length of a count with its closing brace: `2}`, `2,}`, `2,5}`.
fn count(rest: &str) -> Option<usize> {
    let inner = rest.split_once('}')?.0;
    let is_count = inner.starts_with(|c: char| c.is_ascii_digit())
        && inner.matches(',').count() <= 1
        && inner.chars().all(|c| c.is_ascii_digit() || c == ',');
    is_count.then_some(inner.len() + 1)
}

/// Translates a bracket expression after its `[`. In it, backslashes and characters that are operators for the
/// library are literal.
fn bracket(rest: &mut Peekable<Chars<'_>>, out: &mut String) -> Result<(), String> {
    out.push('[');
    if rest.next_if_eq(&'^').is_some() {
        out.push('^');
    }
    let mut is_first = true;
    loop {
        let Some(c) = rest.next() else { return Err("a '[' is not closed by ']'".to_owned()) };
        match c {
            ']' if !is_first => break,
            '[' if rest.peek() == Some(&':') => {
                let class: String = rest.by_ref().take_while(|c| *c != ']').collect();
                let known = class.strip_prefix(':').and_then(|class| class.strip_suffix(':'));
                let known = known.filter(|name| CLASSES.contains(name));
                let name = known.ok_or_else(|| {
                    format!("'[{class}]' is not a character class; the classes are {}", CLASSES.join(", "))
                })?;
                out.push_str(&format!("[:{name}:]"));
            }
            '[' if matches!(rest.peek(), Some('.' | '=')) => {
                return Err("collating elements ([. .], [= =]) are not supported".to_owned());
            }
            // A range stays a range; a hyphen at either end is literal.
            '-' if !is_first && rest.peek() != Some(&']') => out.push('-'),
            c if c.is_alphanumeric() || c == ' ' => out.push(c),
            c => literal(c, out),
        }
        is_first = false;
    }
    out.push(']');
    Ok(())
}

/// POSIX character classes.
const CLASSES: [&str; 12] =
    ["alnum", "alpha", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "xdigit"];

fn literal(c: char, out: &mut String) {
    // The library reads \< and \> as word boundaries.
    if c.is_ascii_punctuation() && !matches!(c, '<' | '>') {
        out.push('\\');
    }
    out.push(c);
}

/// Where an [`Action::Find`] searches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the whole message.
    Message,
    /// In the body.
    Body,
    /// Values of a header field, by its long or compact name in any case.
    Header(String),
    /// In another variable.
    Variable(Variable),
}

/// Index of a session's variable.
pub type Variable = u16;

#[cfg(test)]
mod tests {
    use super::*;

    fn first(pattern: &str, text: &str) -> Option<String> {
        let pattern = PosixRegex::compile(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
        pattern.regex.find(text.as_bytes()).map(|found| String::from_utf8_lossy(found.as_bytes()).into_owned())
    }

    #[test]
    fn posix_patterns_match() {
        for (pattern, text, wanted) in [
            ("[0-9]{1,3}[.][0-9]{1,3}", "at 10.20", Some("10.20")),
            ("o=([[:alnum:]]*) ([[:alnum:]]*)", "v=0\r\no=me 12 IN", Some("o=me 12")),
            ("Content-Type:.*", "A: b\r\nContent-Type: x\r\n\r\nv=0", Some("Content-Type: x\r\n\r\nv=0")),
            ("<sip:([^@>]*)@", "To: <sip:me@here>", Some("<sip:me@")),
            ("[\\d]+", "ab\\d1", Some("\\d")),
            ("[]x]+", "a]x]", Some("]x]")),
            ("[^]x]+", "]xab]", Some("ab")),
            ("[a&&b]+", "x&&a", Some("&&a")),
            ("[+*-]+", "1-+*2", Some("-+*")),
            ("[a-c-]+", "xb-a", Some("b-a")),
            ("a.*?c", "abcbc", Some("abcbc")),
            ("*a", "b*a", Some("*a")),
            ("a{", "a{", Some("a{")),
            ("a{2}", "aaa", Some("aa")),
            ("[[:space:]]x\\.y", " x.y", Some(" x.y")),
            ("^b", "a\nb", None),
            ("\\<b\\>", "ab b", Some("b")),
            ("\u{e4}+", "\u{e4}", Some("\u{e4}")),
        ] {
            assert_eq!(first(pattern, text).as_deref(), wanted, "{pattern} in {text:?}");
        }
    }

    #[test]
    fn unsupported_patterns_are_rejected() {
        for (pattern, words) in [
            ("(a)\\1", "back-references"),
            ("a\\", "backslash"),
            ("[a", "not closed"),
            ("[[:foo:]]", "not a character class"),
            ("(?i)a", "Perl"),
            ("(a", "unclosed group"),
            ("a{2}*", "parentheses"),
            ("((a{500}){500}){500}", "size limit"),
            (&format!("{}a{}", "(".repeat(200), ")".repeat(200)), "nest"),
            (&"a".repeat(9_000), "allowed"),
        ] {
            let error = PosixRegex::compile(pattern).expect_err(pattern);
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn a_search_gives_its_groups_and_whether_the_call_continues() {
        let message = b"INVITE sip:a SIP/2.0\r\nv: one\r\nContact:\r\n <sip:me@h>\r\nVIA: two\r\n\r\nbody: x\r\n";
        assert_eq!(field_value(message, "Via", 2), Some(&b"two"[..]));
        assert_eq!(field_value(message, "via", 1), Some(&b"one"[..]));
        assert_eq!(field_value(message, "m", 1), Some(&b"<sip:me@h>"[..]));
        assert_eq!(field_value(message, "body", 1), None);
        assert_eq!(body_of(message), b"body: x\r\n");
        let mut search = Match {
            pattern: PosixRegex::compile("sip:([^@]*)(@x)?@").expect("valid"),
            place: Place::Header("Contact".to_owned()),
            occurrence: 1,
            into: vec![4, 5, 6],
            check: Check::Found,
        };
        let mut got = Vec::new();
        assert!(
            search.search(field_value(message, "Contact", 1), |variable, text| got.push((variable, text.to_vec())))
        );
        assert_eq!(got, [(4, b"sip:me@".to_vec()), (5, b"me".to_vec()), (6, Vec::new())]);
        assert!(!search.search(None, |_, _| panic!("nothing was found")));
        search.check = Check::NotFound;
        assert!(!search.search(Some(b"sip:a@"), |_, _| {}));
        assert!(search.search(Some(b"tel:a"), |_, _| {}));
        search.check = Check::None;
        assert!(search.search(None, |_, _| {}));
    }
}
