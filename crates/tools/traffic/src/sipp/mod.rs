//! Import of SIPp's scenario files: XML and injection files become a [`Script`].
//!
//! Everything in a file is either supported, or reported by name in a warning with its line and column. Errors, such
//! as a label that does not exist or a scenario that cannot end, are found before the first message is sent.
//!
//! Intentional differences from SIPp: `next_url`, header names and `search_in="hdr"` follow RFC 3261 (any case,
//! compact forms, only at the start of a line); a timeout on any `recv` of a group with optional ones applies to the
//! whole group; `<init>` and global variables belong to each call; with `lost`, a message counts as sent; during a
//! pause, only the messages of an earlier `optional="global"` are received.

mod actions;
mod check;
mod compile;
mod context;
mod csv;
mod distribution;
mod keywords;
mod parse;
mod reader;
mod xml;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub use csv::{LineOrder, Table};
pub use xml::MAX_BYTES;

use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;

use crate::engine::SideScripts;
use crate::law::Rng;
use crate::population::Users;
use crate::script::{MethodId, Script};

/// A warning about a file, or the reason why it is rejected. The text says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The file.
    pub file: String,
    /// The line, counted from 1.
    pub line: usize,
    /// The character in the line, counted from 1.
    pub column: usize,
    /// What was found, and what to do about it.
    pub what: String,
}

impl std::fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.what)
    }
}

impl std::error::Error for Diagnostic {}

/// Options of SIPp's command line, apart from the scenario.
#[derive(Clone, Debug)]
pub struct Options {
    /// `-s`.
    pub service: String,
    /// `-au`; defaults to the service.
    pub auth_user: Option<String>,
    /// `-ap`.
    pub auth_password: String,
    /// `-d`: the length of pauses that do not specify one.
    pub pause: Duration,
    /// `-recv_timeout`.
    pub receive_timeout: Option<Duration>,
    /// `-key`: user-defined keywords.
    pub keys: Vec<(String, String)>,
    /// `-set`: variables with initial values.
    pub set: Vec<(String, String)>,
    /// `-mi`; defaults to the local address.
    pub media_ip: Option<String>,
    /// `-mp`.
    pub media_port: u16,
    /// Whether the local addresses are IPv6.
    pub is_ipv6: bool,
    /// `-base_cseq`.
    pub base_cseq: u32,
    /// `-users`.
    pub users: u32,
    /// The remote host as given; defaults to its address.
    pub remote_host: Option<String>,
    /// The value of `[pid]`.
    pub pid: u32,
    /// Seed of the order of a RANDOM injection file.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            service: "service".to_owned(),
            auth_user: None,
            auth_password: "password".to_owned(),
            pause: Duration::ZERO,
            receive_timeout: None,
            keys: Vec::new(),
            set: Vec::new(),
            media_ip: None,
            media_port: 6_000,
            is_ipv6: false,
            base_cseq: 1,
            users: 0,
            remote_host: None,
            pid: std::process::id(),
            seed: 1,
        }
    }
}

/// The end of a call that a scenario plays. As in SIPp, its first message determines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The scenario begins with sending.
    Caller,
    /// The scenario begins with receiving.
    Callee,
}

/// A compiled scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The steps of a call.
    pub script: Script,
    /// The end that it plays.
    pub role: Role,
    /// The requests that begin a call at the answering end.
    pub answers: Vec<MethodId>,
    /// Unsupported requests of the file.
    pub warnings: Vec<Diagnostic>,
    /// T1, if a `retrans` sets another one than 500 ms.
    pub t1: Option<Duration>,
    /// The user name and password of `[authentication]`.
    login: Login,
    /// The injection file that is part of the [`Users`].
    table: Option<Arc<Table>>,
}

/// A user name and a password.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Login {
    name: Text,
    password: Text,
}

/// A text that may come from the lines of an injection file.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Text {
    Fixed(String),
    Cell(u16),
    /// A parameter in a cell that contains a whole `[authentication username=… password=…]`.
    Inside(u16, &'static str),
}

/// The number of columns that [`Scenario::users`] puts before those of the file: name and password.
const OWN_COLUMNS: u16 = 2;

impl Scenario {
    /// Reads a scenario file.
    ///
    /// # Errors
    /// If the file is rejected: says where, what was found, and what to do.
    pub fn read(path: &Path, tables: &[Arc<Table>], options: &Options) -> Result<Self, Diagnostic> {
        let file = path.display().to_string();
        let note = |what: String| Diagnostic { file: file.clone(), line: 1, column: 1, what };
        let length =
            std::fs::metadata(path).map_err(|error| note(format!("the scenario cannot be read: {error}")))?.len();
        if length > MAX_BYTES as u64 {
            return Err(note(format!("the file has {length} bytes; scenarios have at most {MAX_BYTES}")));
        }
        let bytes = std::fs::read(path).map_err(|error| note(format!("the scenario cannot be read: {error}")))?;
        Self::compile(&file, &bytes, tables, options)
    }

    /// Compiles the bytes of a file named `file`. The first of `tables` is the one that `[field0]` refers to if it
    /// does not name a file.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn compile(file: &str, bytes: &[u8], tables: &[Arc<Table>], options: &Options) -> Result<Self, Diagnostic> {
        let source = xml::Source::new(file, bytes)?;
        let root = source.tree()?;
        let mut reader = reader::Reader::new(&source, options, tables);
        reader.scenario(&root)?;
        compile::scenario(reader, &root)
    }

    /// Returns the users that make the scenario's calls: the lines of the first injection file (shuffled if it says
    /// RANDOM), or one user. Calls must take them in order.
    #[must_use]
    pub fn users(&self, domain: &str, options: &Options) -> Users {
        let text = |text: &Text, line: u32| match (text, &self.table) {
            (Text::Fixed(text), _) => text.clone(),
            (Text::Cell(column), Some(table)) => table.cell(line, *column),
            (Text::Inside(column, name), Some(table)) => {
                keywords::parameter(&table.cell(line, *column), name).unwrap_or_default()
            }
            (_, None) => String::new(),
        };
        let (lines, columns) = self.table.as_ref().map_or((1, 0), |table| (table.lines(), table.columns()));
        let mut order: Vec<u32> = (0..lines).collect();
        if self.order() == LineOrder::Random {
            order.shuffle(&mut Rng::seed_from_u64(options.seed));
        }
        let rows = order.into_iter().map(|line| {
            let mut row = vec![text(&self.login.name, line), text(&self.login.password, line)];
            row.extend((0..columns).filter_map(|column| self.table.as_ref().map(|table| table.cell(line, column))));
            row
        });
        Users::of_rows(domain, &options.service, usize::from(columns) + usize::from(OWN_COLUMNS), rows)
    }

    /// Returns the scenario as one end of a run. A caller is script 0.
    #[must_use]
    pub fn side(&self) -> SideScripts {
        let answers = self.answers.iter().map(|verb| (*verb, 0)).collect();
        SideScripts { scripts: vec![self.script.clone()].into(), answers }
    }

    /// Returns the order in which calls take the users, that is, the lines of the first injection file.
    #[must_use]
    pub fn order(&self) -> LineOrder {
        self.table.as_ref().map_or(LineOrder::Sequential, |table| table.order())
    }
}
