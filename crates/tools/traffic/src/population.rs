//! Users of a run: generated from a pattern, which needs no memory, or read from a table.

use std::io::Write as _;
use std::path::Path;

/// The users of a run.
#[derive(Clone, Debug)]
pub struct Users {
    /// The domain of users without one of their own.
    pub domain: String,
    /// The fixed user part that replaces `[service]`.
    pub service: String,
    names: Names,
    password: String,
    count: u32,
}

#[derive(Clone, Debug)]
enum Names {
    /// A prefix, a suffix, and between them a number with at least this many digits.
    Pattern { before: String, after: String, digits: usize },
    /// The lines of a table: the cells' text, concatenated, and the end offset of each cell.
    Table { text: Vec<u8>, ends: Vec<u32>, columns: usize, is_verbatim: bool },
}

/// Why there are no users; the text says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsersError(pub String);

impl std::fmt::Display for UsersError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsersError {}

impl Users {
    /// Creates `count` users. Their names are `pattern` with `%` replaced by their number (from 0), or `%6` by the
    /// number with at least six digits. `password` may contain a `%` too.
    #[must_use]
    pub fn generated(pattern: &str, password: &str, domain: &str, count: u32) -> Self {
        let (before, rest) = pattern.split_once('%').unwrap_or((pattern, ""));
        let after = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        let digits = rest.get(..rest.len() - after.len()).and_then(|digits| digits.parse().ok()).unwrap_or(1);
        let names = Names::Pattern { before: before.to_owned(), after: after.to_owned(), digits };
        let service = "service".to_owned();
        Self { domain: domain.to_owned(), service, names, password: password.to_owned(), count: count.max(1) }
    }

    /// Reads the lines of a table. The first column is the name, or `user@domain` for a user of a domain other than
    /// `domain`; the second is the password. A first line with column names (`name,password`, `aor,password`) allows
    /// any order. Cells are separated by `,` and may be quoted, as in the server's own import; or by `;`, as in
    /// SIPp's files, whose first line says SEQUENTIAL or RANDOM and is skipped, and whose cells are taken verbatim.
    ///
    /// # Errors
    /// If the file cannot be read or has no lines.
    pub fn read(path: &Path, domain: &str) -> Result<Self, UsersError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| UsersError(format!("{} cannot be read: {error}", path.display())))?;
        Self::table(&text, domain).map_err(|what| UsersError(format!("{}: {what}", path.display())))
    }

    fn table(text: &str, domain: &str) -> Result<Self, String> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let rows = rows(text)?;
        if rows.is_empty() {
            return Err("has no users; each line is name,password".to_owned());
        }
        let columns = rows.iter().map(Vec::len).max().unwrap_or(1);
        let (mut cells, mut ends) = (Vec::new(), Vec::with_capacity(rows.len() * columns));
        for row in &rows {
            for column in 0..columns {
                cells.extend_from_slice(row.get(column).map_or(&[][..], |cell| cell.as_bytes()));
                ends.push(u32::try_from(cells.len()).map_err(|_| "is larger than 4 GiB")?);
            }
        }
        let count = u32::try_from(rows.len()).map_err(|_| "has more than 2^32 lines")?;
        let names = Names::Table { text: cells, ends, columns, is_verbatim: false };
        let service = "service".to_owned();
        Ok(Self { domain: domain.to_owned(), service, names, password: String::new(), count })
    }

    /// Creates one user for each row of `columns` cells: name (verbatim, even with a domain), password, and any
    /// further ones. Missing cells are empty.
    #[must_use]
    pub fn of_rows(domain: &str, service: &str, columns: usize, rows: impl IntoIterator<Item = Vec<String>>) -> Self {
        let (columns, mut count) = (columns.max(2), 0);
        let (mut text, mut ends) = (Vec::new(), Vec::new());
        let mut push = |row: &[String]| {
            for column in 0..columns {
                text.extend_from_slice(row.get(column).map_or("", String::as_str).as_bytes());
                ends.push(u32::try_from(text.len()).unwrap_or(u32::MAX));
            }
            count += 1;
        };
        let mut rows = rows.into_iter();
        push(&rows.next().unwrap_or_default());
        rows.for_each(|row| push(&row));
        let names = Names::Table { text, ends, columns, is_verbatim: true };
        Self { domain: domain.to_owned(), service: service.to_owned(), names, password: String::new(), count }
    }

    /// Returns the number of users, at least 1.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Appends the name of user `number`.
    pub fn push_name(&self, number: u32, out: &mut Vec<u8>) {
        match &self.names {
            Names::Pattern { before, after, digits } => {
                out.extend_from_slice(before.as_bytes());
                push_padded(number % self.count, *digits, out);
                out.extend_from_slice(after.as_bytes());
            }
            Names::Table { is_verbatim: true, .. } => out.extend_from_slice(self.cell(number, 0)),
            Names::Table { .. } => {
                let cell = self.cell(number, 0);
                out.extend_from_slice(cell.split(|byte| *byte == b'@').next().unwrap_or(cell));
            }
        }
    }

    /// Appends the domain of user `number`.
    pub fn push_domain(&self, number: u32, out: &mut Vec<u8>) {
        let own = match &self.names {
            Names::Table { is_verbatim: false, .. } => self.cell(number, 0).split(|byte| *byte == b'@').nth(1),
            _ => None,
        };
        out.extend_from_slice(own.filter(|own| !own.is_empty()).unwrap_or(self.domain.as_bytes()));
    }

    /// Returns the domain, if all users have the same.
    #[must_use]
    pub const fn only_domain(&self) -> Option<&str> {
        match self.names {
            Names::Table { is_verbatim: false, .. } => None,
            _ => Some(self.domain.as_str()),
        }
    }

    /// Appends the password of user `number`.
    pub fn push_password(&self, number: u32, out: &mut Vec<u8>) {
        match &self.names {
            Names::Table { .. } => out.extend_from_slice(self.cell(number, 1)),
            Names::Pattern { .. } => match self.password.split_once('%') {
                None => out.extend_from_slice(self.password.as_bytes()),
                Some((before, after)) => {
                    // Writing to a Vec cannot fail.
                    let _ = write!(out, "{before}{}{after}", number % self.count);
                }
            },
        }
    }

    /// Returns a cell of user `number`'s line, or an empty one if there is none.
    #[must_use]
    pub fn cell(&self, number: u32, column: u16) -> &[u8] {
        let Names::Table { text, ends, columns, .. } = &self.names else { return &[] };
        if usize::from(column) >= *columns {
            return &[];
        }
        let at = (number % self.count) as usize * columns + usize::from(column);
        let end = ends.get(at).copied().unwrap_or(0);
        let start = at.checked_sub(1).and_then(|before| ends.get(before)).copied().unwrap_or(0);
        text.get(start as usize..end as usize).unwrap_or(&[])
    }
}

/// Parses a table of users: name, password, and further columns.
fn rows(text: &str) -> Result<Vec<Vec<String>>, String> {
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let is_header = |line: &str| columns(&line.split([';', ',']).map(str::to_owned).collect::<Vec<_>>()).is_some();
    let first = lines().find(|line| !is_word_of_sipp(line) && !is_header(line));
    let mut rows: Vec<Vec<String>> = if first.is_some_and(|line| line.contains(';')) {
        lines().map(|line| line.split(';').map(|cell| cell.trim().to_owned()).collect()).collect()
    } else {
        let mut reader = csv::ReaderBuilder::new();
        reader.has_headers(false).flexible(true).comment(Some(b'#'));
        let records = reader.from_reader(text.as_bytes()).into_records();
        let cells = |record: csv::StringRecord| record.iter().map(str::to_owned).collect();
        records.map(|record| record.map(cells).map_err(|error| error.to_string())).collect::<Result<_, _>>()?
    };
    let words = rows.iter().take_while(|row| row.first().is_some_and(|cell| is_word_of_sipp(cell))).count();
    rows.drain(..words);
    rows.retain(|row| row.iter().any(|cell| !cell.trim().is_empty()));
    let Some(header) = rows.first() else { return Ok(rows) };
    let header: Vec<String> = header.iter().flat_map(|cell| cell.split(';')).map(str::to_owned).collect();
    if header.iter().any(|cell| cell.trim().starts_with("ha1_")) {
        return Err("has hashes, but answering a challenge needs the password; give aor,password".to_owned());
    }
    if let Some((name, password)) = columns(&header) {
        rows.remove(0);
        for row in &mut rows {
            // Name and password come first; the other columns keep their order.
            let mut cells = std::mem::take(row).into_iter().enumerate().collect::<Vec<_>>();
            cells.sort_by_key(|(column, _)| (*column != name, *column != password, *column));
            *row = cells.into_iter().map(|(_, cell)| cell).collect();
        }
    }
    rows.iter_mut().filter_map(|row| row.first_mut()).for_each(|name| {
        let plain = name.trim();
        *name = plain.strip_prefix("sip:").unwrap_or(plain).to_owned();
    });
    Ok(rows)
}

/// Returns whether a line is SIPp's keyword for how the lines below are used.
fn is_word_of_sipp(line: &str) -> bool {
    matches!(line.split([';', ',', '=']).next().map(str::trim), Some("SEQUENTIAL" | "RANDOM" | "USER" | "PRINTF"))
}

/// Returns the columns of the name and the password in a header line.
fn columns(header: &[String]) -> Option<(usize, usize)> {
    let place =
        |names: &[&str]| header.iter().position(|cell| names.iter().any(|name| cell.trim().eq_ignore_ascii_case(name)));
    let name = place(&["aor", "name", "user", "username", "login", "uri", "address"])?;
    Some((name, place(&["password", "passwd", "pass", "secret"])?))
}

/// Appends a number with leading zeros.
pub(crate) fn push_padded(number: u32, digits: usize, out: &mut Vec<u8>) {
    let mut buffer = [b'0'; 10];
    let (mut rest, mut at) = (number, buffer.len());
    while rest > 0 {
        at -= 1;
        if let Some(digit) = buffer.get_mut(at) {
            *digit = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        }
        rest /= 10;
    }
    let start = at.min(buffer.len() - digits.clamp(1, buffer.len()));
    out.extend_from_slice(buffer.get(start..).unwrap_or(&[]));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(users: &Users, number: u32) -> String {
        let mut out = Vec::new();
        users.push_name(number, &mut out);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn header_lines_are_skipped_and_a_domain_in_a_line_is_used() {
        for header in ["name,password", "User;Secret", "aor,password", "SEQUENTIAL", "USER"] {
            let users = Users::table(&format!("{header}\nalice@there,x\nbob,y\n"), "here").expect("two lines");
            let domain = |number| {
                let mut out = Vec::new();
                users.push_domain(number, &mut out);
                String::from_utf8(out).expect("ASCII")
            };
            assert_eq!((users.count(), name(&users, 0), domain(0)), (2, "alice".to_owned(), "there".to_owned()));
            assert_eq!((name(&users, 1), domain(1)), ("bob".to_owned(), "here".to_owned()), "{header}");
        }
        // Format of the server's import: columns in any order, quotes, and a byte order mark from a spreadsheet.
        let users =
            Users::table("\u{feff}password,aor\n\"se,\"\"cret\",sip:alice@there\n p ,bob\n", "here").expect("two");
        assert_eq!((users.count(), name(&users, 0), users.cell(0, 1)), (2, "alice".to_owned(), &b"se,\"cret"[..]));
        assert_eq!((name(&users, 1), users.cell(1, 1)), ("bob".to_owned(), &b" p "[..]));
        assert!(Users::table("aor,ha1_md5\nalice@there,00\n", "here").is_err_and(|why| why.contains("hashes")));
        let users = Users::table("name,hidden\nuser,x\n", "d").expect("two lines");
        assert_eq!((users.count(), name(&users, 0)), (2, "name".to_owned()), "a user may be called so");
    }

    #[test]
    fn names_come_from_a_pattern_or_a_table() {
        let users = Users::generated("u%4x", "p%", "example.com", 20);
        assert_eq!((name(&users, 7), name(&users, 27)), ("u0007x".to_owned(), "u0007x".to_owned()));
        assert_eq!(name(&Users::generated("u%", "p", "d", 9), 0), "u0");
        let users = Users::table("SEQUENTIAL\n#x\nalice@d;secret;1\nbob;;2\n", "d").expect("two lines");
        assert_eq!((users.count(), name(&users, 0), name(&users, 1)), (2, "alice".to_owned(), "bob".to_owned()));
        assert_eq!(
            (users.cell(0, 1), users.cell(1, 1), users.cell(1, 2), users.cell(1, 3)),
            (&b"secret"[..], &b""[..], &b"2"[..], &b""[..])
        );
        assert!(Users::table("\n", "d").is_err());
    }
}
