//! SIPp's scenario files: XML and injection files to a [`Script`].
//!
//! Everything that a file says is either done, or warned of by name with its line and column; nothing is skipped in
//! silence. What is wrong (a label that does not exist, a scenario that cannot end) is refused before the first message.
//!
//! What differs from SIPp, on purpose: `next_url`, header names and `search_in="hdr"` follow RFC 3261 (any case, compact
//! forms, only at the start of a line); a time-out on any `recv` of a group with optional ones holds for the whole group;
//! `<init>` and global variables are each call's own; with `lost`, a message counts as sent; a pause lets no message
//! through but those that an earlier `optional="global"` waits for.

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

pub use csv::{Order, Table};
pub use xml::MAX_BYTES;

use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;

use crate::engine::SideScripts;
use crate::law::Rng;
use crate::population::Users;
use crate::script::{MethodId, Script};

/// A remark on a file: a warning, or why it is refused. The text names the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The character in it, from 1.
    pub column: usize,
    /// What was found, and what to do.
    pub what: String,
}

impl std::fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.what)
    }
}

impl std::error::Error for Diagnostic {}

/// What SIPp's command line says beside the scenario.
#[derive(Clone, Debug)]
pub struct Options {
    /// `-s`.
    pub service: String,
    /// `-au`; the service where there is none.
    pub auth_user: Option<String>,
    /// `-ap`.
    pub auth_password: String,
    /// `-d`: the pauses that say no time.
    pub pause: Duration,
    /// `-recv_timeout`.
    pub receive_timeout: Option<Duration>,
    /// `-key`: keywords of the user's own.
    pub keys: Vec<(String, String)>,
    /// `-set`: variables that have a value from the start.
    pub set: Vec<(String, String)>,
    /// `-mi`; our own address where there is none.
    pub media_ip: Option<String>,
    /// `-mp`.
    pub media_port: u16,
    /// Whether our addresses are of IPv6.
    pub is_ipv6: bool,
    /// `-base_cseq`.
    pub base_cseq: u32,
    /// `-users`.
    pub users: u32,
    /// The host as it was named; its address where there is none.
    pub remote_host: Option<String>,
    /// What `[pid]` stands for.
    pub pid: u32,
    /// What the order of a RANDOM injection file begins with.
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

/// Which end of a call a scenario is: as in SIPp, its first message says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It begins with sending.
    Caller,
    /// It begins with receiving.
    Callee,
}

/// A scenario that can run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What a call does.
    pub script: Script,
    /// Which end it is.
    pub role: Role,
    /// The requests that begin a call, for the answering end.
    pub answers: Vec<MethodId>,
    /// What the file asks for and does not get.
    pub warnings: Vec<Diagnostic>,
    /// T1, where a `retrans` says another one than 500 ms.
    pub t1: Option<Duration>,
    /// Who `[authentication]` says we are.
    login: Login,
    /// The injection file that [`Users`] hold.
    table: Option<Arc<Table>>,
}

/// A name and a password.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Login {
    name: Text,
    password: Text,
}

/// A text that each line of an injection file may give.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Text {
    Fixed(String),
    Cell(u16),
    /// A parameter in a cell that is a whole `[authentication username=… password=…]`.
    Inside(u16, &'static str),
}

/// The columns that [`Scenario::users`] puts before those of the file: name and password.
const OWN_COLUMNS: u16 = 2;

impl Scenario {
    /// Reads a scenario file.
    ///
    /// # Errors
    /// Why it is refused: where, what was found, and the remedy.
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

    /// Compiles the bytes of a file that is called `file`. The first of `tables` is that which `[field0]` means where it
    /// names none.
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

    /// The users that the scenario's calls are made by: the lines of the first injection file (shuffled, where it says
    /// RANDOM), or one user. Calls are to take them in turn.
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
        if self.order() == Order::Random {
            order.shuffle(&mut Rng::seed_from_u64(options.seed));
        }
        let rows = order.into_iter().map(|line| {
            let mut row = vec![text(&self.login.name, line), text(&self.login.password, line)];
            row.extend((0..columns).filter_map(|column| self.table.as_ref().map(|table| table.cell(line, column))));
            row
        });
        Users::of_rows(domain, &options.service, usize::from(columns) + usize::from(OWN_COLUMNS), rows)
    }

    /// The scenario as an end of a run; where it calls, it is script 0.
    #[must_use]
    pub fn side(&self) -> SideScripts {
        let answers = self.answers.iter().map(|verb| (*verb, 0)).collect();
        SideScripts { scripts: vec![self.script.clone()].into(), answers }
    }

    /// In which order calls take the lines of the first injection file, that is, the users.
    #[must_use]
    pub fn order(&self) -> Order {
        self.table.as_ref().map_or(Order::Sequential, |table| table.order())
    }
}
