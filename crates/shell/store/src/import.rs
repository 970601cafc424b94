//! Import of users from a table.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;

use csv::{ErrorKind, StringRecord};
use strowger_directory::Ha1s;

use crate::changes::hash_from_digits;
use crate::error::ImportError;
use crate::users::{hashes, insert_user};
use crate::{Address, Backend, StoreError, UserStore, ha1};

struct Line {
    number: u64,
    address: Address,
    ha1: Ha1s,
}

impl<P: Backend> UserStore<P> {
    /// Adds a user for each line of a CSV table, or none at all. Returns the number of users per domain.
    ///
    /// The first line names the columns: `aor` (or `name`) and `password`, or `aor` and at least one of `ha1_md5`, `ha1_sha256`
    /// and `ha1_sha512_256` in hexadecimal digits (empty if unknown), which must have been computed with `realm`.
    ///
    /// # Errors
    /// [`StoreError::Import`] with the line; [`StoreError::Unreadable`]; a bad realm; file errors.
    pub fn import_csv(&mut self, table: impl Read, realm: &str) -> Result<BTreeMap<String, usize>, StoreError> {
        self.import_csv_of(table, realm, Address::parse)
    }

    /// Like [`import_csv`](Self::import_csv), with addresses that are read by `address_of`: a name may stand for one.
    ///
    /// # Errors
    /// Those of `import_csv`.
    pub fn import_csv_of(
        &mut self,
        mut table: impl Read,
        realm: &str,
        address_of: impl Fn(&str) -> Result<Address, StoreError>,
    ) -> Result<BTreeMap<String, usize>, StoreError> {
        ha1::check_realm(realm)?;
        // Read before the transaction: the table's writer may be slow, and other processes want to write.
        let mut bytes = Vec::new();
        table.read_to_end(&mut bytes).map_err(|cause| StoreError::Unreadable { cause })?;
        let lines = users_in(text_of(&bytes)?, realm, &address_of)?;
        self.backend.write(|sql| {
            for line in &lines {
                insert_user(sql, &line.address, realm, &line.ha1).map_err(|fault| match fault {
                    crate::error::Fault::Store(error) => refused(line.number, error).into(),
                    other => other,
                })?;
            }
            Ok(())
        })?;
        let mut domains = BTreeMap::new();
        lines.iter().for_each(|line| *domains.entry(line.address.domain().to_owned()).or_default() += 1);
        Ok(domains)
    }
}

/// Returns the text without the byte order mark that some spreadsheets write.
fn text_of(table: &[u8]) -> Result<&str, StoreError> {
    let text = str::from_utf8(table).map_err(|error| {
        let line = LineCounter::new(table).line_at(error.valid_up_to());
        StoreError::Import { line, fault: ImportError::Text }
    })?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

fn users_in(
    table: &str,
    realm: &str,
    address_of: &impl Fn(&str) -> Result<Address, StoreError>,
) -> Result<Vec<Line>, StoreError> {
    let mut reader = csv::Reader::from_reader(table.as_bytes());
    let columns = reader.headers().ok().and_then(Columns::of);
    let columns = columns.ok_or(StoreError::Import { line: 1, fault: ImportError::Header })?;
    let mut counter = LineCounter::new(table.as_bytes());
    let mut lines: Vec<Line> = Vec::new();
    let mut seen: HashMap<Address, u64> = HashMap::new();
    for record in reader.records() {
        let position = record.as_ref().map_or_else(csv::Error::position, StringRecord::position);
        let number =
            counter.line_at(position.map_or(0, |position| usize::try_from(position.byte()).unwrap_or_default()));
        let at_line = |fault| StoreError::Import { line: number, fault };
        let record = record.map_err(|error| at_line(fault_of(error)))?;
        let (address, ha1) = columns.user(&record, realm, address_of).map_err(at_line)?;
        if let Some(first) = seen.insert(address.clone(), number) {
            return Err(at_line(ImportError::Twice { aor: address.to_string(), first }));
        }
        lines.push(Line { number, address, ha1 });
    }
    Ok(lines)
}

/// Counts lines as an editor does. The CSV reader's own count is that of the first empty line before a record.
struct LineCounter<'a> {
    rest: &'a [u8],
    passed: usize,
    line: u64,
}

impl<'a> LineCounter<'a> {
    fn new(text: &'a [u8]) -> Self {
        Self { rest: text, passed: 0, line: 1 }
    }

    /// Returns the line of the first byte from `offset` on that is no line end. Offsets must be ascending.
    fn line_at(&mut self, offset: usize) -> u64 {
        let (before, after) = self.rest.split_at(offset.saturating_sub(self.passed).min(self.rest.len()));
        let ends = after.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        let (skipped, rest) = after.split_at(ends);
        self.line += before.iter().chain(skipped).filter(|byte| **byte == b'\n').count() as u64;
        self.passed += before.len() + skipped.len();
        self.rest = rest;
        self.line
    }
}

/// Index of each column.
struct Columns {
    aor: usize,
    hashes: HashColumns,
}

enum HashColumns {
    Password(usize),
    Hashes { md5: Option<usize>, sha256: Option<usize>, sha512_256: Option<usize> },
}

impl Columns {
    fn of(header: &StringRecord) -> Option<Self> {
        let place = |name: &str| header.iter().position(|column| column.trim() == name);
        let hashes = [place("ha1_md5"), place("ha1_sha256"), place("ha1_sha512_256")];
        let known = hashes.iter().flatten().count();
        match (place("aor").or_else(|| place("name")), place("password"), hashes) {
            (Some(aor), Some(password), _) if header.len() == 2 => {
                Some(Self { aor, hashes: HashColumns::Password(password) })
            }
            (Some(aor), None, [md5, sha256, sha512_256]) if known > 0 && header.len() == known + 1 => {
                Some(Self { aor, hashes: HashColumns::Hashes { md5, sha256, sha512_256 } })
            }
            _ => None,
        }
    }

    fn user(
        &self,
        record: &StringRecord,
        realm: &str,
        address_of: impl Fn(&str) -> Result<Address, StoreError>,
    ) -> Result<(Address, Ha1s), ImportError> {
        let refused = |error| ImportError::Refused(Box::new(error));
        let address = address_of(cell(record, Some(self.aor))).map_err(refused)?;
        let ha1 = match &self.hashes {
            HashColumns::Password(place) => hashes(&address, realm, cell(record, Some(*place))).map_err(refused)?,
            HashColumns::Hashes { md5, sha256, sha512_256 } => Ha1s {
                md5: hash(record, *md5, "ha1_md5")?,
                sha256: hash(record, *sha256, "ha1_sha256")?,
                sha512_256: hash(record, *sha512_256, "ha1_sha512_256")?,
            },
        };
        if ha1.is_empty() { Err(ImportError::NoHash) } else { Ok((address, ha1)) }
    }
}

fn hash<const N: usize>(
    record: &StringRecord,
    place: Option<usize>,
    column: &'static str,
) -> Result<Option<[u8; N]>, ImportError> {
    match cell(record, place).trim() {
        "" => Ok(None),
        digits => hash_from_digits(digits).map(Some).ok_or(ImportError::Hash { column, digits: 2 * N }),
    }
}

fn cell(record: &StringRecord, place: Option<usize>) -> &str {
    place.and_then(|place| record.get(place)).unwrap_or_default()
}

fn refused(line: u64, error: StoreError) -> StoreError {
    StoreError::Import { line, fault: ImportError::Refused(Box::new(error)) }
}

fn fault_of(error: csv::Error) -> ImportError {
    match error.kind() {
        ErrorKind::UnequalLengths { expected_len, len, .. } => {
            ImportError::Columns { expected: *expected_len, found: *len }
        }
        _ => ImportError::Syntax(error),
    }
}
