//! Injection files (SIPp's `-inf`): lines of cells separated by semicolons, referenced as `[field0]`, `[field1]` …

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Diagnostic;

/// Maximum number of lines that `PRINTF` may declare.
const MAX_LINES: u32 = 10_000_000;
/// Maximum width of a `%09d`.
const MAX_WIDTH: usize = 32;

/// Order in which calls take the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineOrder {
    /// One after the other, starting again after the last.
    Sequential,
    /// A random line.
    Random,
    /// The line of the call's user.
    User,
}

/// An injection file.
#[derive(Debug)]
pub struct Table {
    name: String,
    order: LineOrder,
    text: String,
    /// The end offset of each line.
    ends: Vec<u32>,
    printf: Option<Printf>,
    columns: u16,
    next: AtomicU64,
}

/// Lines generated on demand.
#[derive(Clone, Copy, Debug)]
struct Printf {
    lines: u32,
    multiple: i64,
    offset: i64,
}

/// Tables are equal if they are the same object.
impl PartialEq for Table {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Table {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, or [`parse`](Self::parse) fails.
    pub fn read(path: &Path) -> Result<Self, Diagnostic> {
        let name = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|error| Diagnostic {
            file: name.clone(),
            line: 1,
            column: 1,
            what: format!("the injection file cannot be read: {error}"),
        })?;
        Self::parse(&name, &bytes)
    }

    /// Parses a file's bytes. `name` is its path; `file=` refers to it by the last component.
    ///
    /// # Errors
    /// Says where and what is wrong, and what to do.
    pub fn parse(name: &str, bytes: &[u8]) -> Result<Self, Diagnostic> {
        let note = |line: usize, what: String| Diagnostic { file: name.to_owned(), line, column: 1, what };
        let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
        if u32::try_from(bytes.len()).is_err() {
            return Err(note(1, "injection files have at most 4 GiB".to_owned()));
        }
        let all = String::from_utf8_lossy(bytes);
        let mut lines = all.lines().enumerate().map(|(number, line)| (number + 1, line.trim_end_matches('\r')));
        let (_, header) = lines.next().unwrap_or((1, ""));
        let (order, printf) = header_of(header).map_err(|what| note(1, what))?;
        let (mut text, mut ends, mut columns) = (String::new(), Vec::new(), 1);
        for (number, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            if printf.is_some() {
                check_format(line).map_err(|what| note(number, what))?;
            }
            columns = columns.max(u16::try_from(line.split(';').count()).unwrap_or(u16::MAX));
            text.push_str(line);
            ends.push(u32::try_from(text.len()).unwrap_or(u32::MAX));
        }
        if ends.is_empty() {
            return Err(note(
                1,
                "the file has no lines after its first; each call needs one, such as alice;secret".to_owned(),
            ));
        }
        Ok(Self { name: name.to_owned(), order, text, ends, printf, columns, next: AtomicU64::new(0) })
    }

    /// Returns the path that it was read from.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether `name` in `file=` refers to this table: by its path or the last component.
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || Path::new(&self.name).file_name().is_some_and(|last| last == name)
    }

    /// Returns the order in which calls take lines.
    #[must_use]
    pub const fn order(&self) -> LineOrder {
        self.order
    }

    /// Returns the number of lines, at least 1.
    #[must_use]
    pub fn lines(&self) -> u32 {
        match self.printf {
            Some(printf) => printf.lines,
            None => u32::try_from(self.ends.len()).unwrap_or(u32::MAX),
        }
    }

    /// Returns the maximum number of cells in a line.
    #[must_use]
    pub const fn columns(&self) -> u16 {
        self.columns
    }

    /// Returns the line for the next call.
    pub fn next_line(&self, user: u32, random: u64) -> u32 {
        let lines = u64::from(self.lines());
        let line = match self.order {
            LineOrder::Sequential => self.next.fetch_add(1, Ordering::Relaxed) % lines,
            LineOrder::Random => random % lines,
            LineOrder::User => u64::from(user) % lines,
        };
        u32::try_from(line).unwrap_or(0)
    }

    /// Returns a cell, or an empty text if the line does not have it. Line numbers wrap around.
    #[must_use]
    pub fn cell(&self, line: u32, column: u16) -> String {
        let line = line % self.lines();
        let written = self.written(line as usize % self.ends.len());
        let cell = written.split(';').nth(usize::from(column)).unwrap_or_default();
        match self.printf {
            None => cell.to_owned(),
            Some(printf) => formatted(cell, i64::from(line) * printf.multiple + printf.offset),
        }
    }

    fn written(&self, line: usize) -> &str {
        let end = self.ends.get(line).copied().unwrap_or(0);
        let start = line.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.text.get(start as usize..end as usize).unwrap_or_default()
    }
}

fn header_of(line: &str) -> Result<(LineOrder, Option<Printf>), String> {
    let mut words = line.split(',').map(str::trim);
    let order = match words.next().unwrap_or_default() {
        "SEQUENTIAL" => LineOrder::Sequential,
        "RANDOM" => LineOrder::Random,
        "USER" | "USERS" => LineOrder::User,
        other => {
            let other: String = other.chars().take(40).collect();
            return Err(format!("the first line is '{other}'; it must be SEQUENTIAL, RANDOM or USER"));
        }
    };
    let (mut lines, mut multiple, mut offset) = (None, 1, 0);
    for word in words.filter(|word| !word.is_empty()) {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let number: i64 = value.trim().parse().map_err(|_| format!("'{word}' has no number; write PRINTF=1000"))?;
        match key.trim() {
            "PRINTF" => {
                let count = u32::try_from(number).ok().filter(|count| (1..=MAX_LINES).contains(count));
                lines =
                    Some(count.ok_or_else(|| format!("PRINTF={number}: from 1 to {MAX_LINES} lines are possible"))?);
            }
            "PRINTFMULTIPLE" => {
                multiple = i64::from(i32::try_from(number).map_err(|_| format!("'{word}' is too large"))?);
            }
            "PRINTFOFFSET" => offset = i64::from(i32::try_from(number).map_err(|_| format!("'{word}' is too large"))?),
            other => return Err(format!("'{other}' is not known; there are PRINTF, PRINTFMULTIPLE and PRINTFOFFSET")),
        }
    }
    Ok((order, lines.map(|lines| Printf { lines, multiple, offset })))
}

/// Parses the rest of a number format (`%d`, `%6d`, `%06d`): the width, whether to fill with zeros, and the text
/// after it.
fn place(text: &str) -> Option<(usize, bool, &str)> {
    let is_filled = text.starts_with('0');
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let width = text.get(..digits)?;
    let width = if width.is_empty() { 0 } else { width.parse().ok().filter(|width| *width <= MAX_WIDTH)? };
    Some((width, is_filled, text.get(digits..)?.strip_prefix(['d', 'i', 'u'])?))
}

fn check_format(line: &str) -> Result<(), String> {
    let mut rest = line;
    while let Some((_, behind)) = rest.split_once('%') {
        rest = match behind.strip_prefix('%') {
            Some(behind) => behind,
            None => place(behind).ok_or("a % is not followed by d; write %d, %06d, or %% for a percent sign")?.2,
        };
    }
    Ok(())
}

fn formatted(cell: &str, number: i64) -> String {
    let mut out = String::with_capacity(cell.len() + 8);
    let mut rest = cell;
    while let Some((before, behind)) = rest.split_once('%') {
        out.push_str(before);
        rest = match (behind.strip_prefix('%'), place(behind)) {
            (Some(behind), _) => {
                out.push('%');
                behind
            }
            (None, Some((width, is_filled, behind))) => {
                out.push_str(&if is_filled { format!("{number:0width$}") } else { format!("{number:width$}") });
                behind
            }
            (None, None) => behind,
        };
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> Table {
        Table::parse("dir/users.csv", text.as_bytes()).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn the_first_line_sets_the_order_of_lines() {
        let users = table("SEQUENTIAL\n#not this\nalice;one\r\nbob;two;x\n\ncarol\n");
        assert_eq!((users.lines(), users.columns()), (3, 3));
        assert_eq!([0, 1, 2, 3].map(|_| users.next_line(9, 9)), [0, 1, 2, 0]);
        assert_eq!(
            (users.cell(1, 1), users.cell(1, 2), users.cell(2, 1), users.cell(4, 0)),
            ("two".into(), "x".into(), String::new(), "bob".into())
        );
        assert!(users.is_called("users.csv") && users.is_called("dir/users.csv") && !users.is_called("sers.csv"));
        assert_eq!(table("RANDOM\na\nb\n").next_line(0, 7), 1);
        assert_eq!(table("USER\na\nb\nc\n").next_line(4, 7), 1);
    }

    #[test]
    fn printf_makes_lines() {
        let users = table("USERS,PRINTF=4,PRINTFMULTIPLE=2,PRINTFOFFSET=10\nuser%03d;p%d;Foo\nuser%3d;50%%;Bar\n");
        assert_eq!((users.lines(), users.order()), (4, LineOrder::User));
        assert_eq!(
            (users.cell(0, 0), users.cell(1, 0), users.cell(2, 1), users.cell(3, 1)),
            ("user010".into(), "user 12".into(), "p14".into(), "50%".into())
        );
    }

    #[test]
    fn errors_name_the_cause() {
        for (text, words) in [
            ("", "must be SEQUENTIAL"),
            ("alice;x\n", "'alice;x'"),
            ("SEQUENTIAL\n#\n", "no lines"),
            ("SEQUENTIAL,PRINTF=0\na\n", "from 1 to"),
            ("SEQUENTIAL,PRINTF=x\na\n", "no number"),
            ("SEQUENTIAL,FOO=1\na\n", "not known"),
            ("SEQUENTIAL,PRINTF=2\na%s\n", "%d"),
            ("SEQUENTIAL,PRINTF=2\na%9999999999d\n", "%d"),
        ] {
            let error = Table::parse("x.csv", text.as_bytes()).expect_err(text);
            assert!(error.to_string().contains(words) && error.to_string().starts_with("x.csv:"), "{error}");
        }
    }
}
