//! What reading a scenario keeps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::script::{Action, Condition, Kind, MethodId, ScriptBuilder, Variable};
use crate::sipp::csv::Table;
use crate::sipp::xml::Source;
use crate::sipp::{Diagnostic, Login, Options, Role};

/// One message command of SIPp. Its position in the list is its index.
#[derive(Debug)]
pub(super) struct Item {
    /// Its byte offset in the file.
    pub(super) at: usize,
    pub(super) kind: ItemKind,
    pub(super) next: Option<Next>,
    /// The item is skipped if this holds.
    pub(super) skip: Option<Condition>,
    /// Actions to run after it.
    pub(super) actions: Vec<Action>,
    /// A jump among the actions: the target's index, and the position in the file.
    pub(super) jump: Option<(usize, usize)>,
}

/// What it is.
#[derive(Debug)]
pub(super) enum ItemKind {
    Send { template: u16, kind: Kind, repeat: bool, prepare: Vec<Action> },
    Receive(Receive),
    Pause(u16),
    PauseFor(Variable),
    Nothing,
}

#[derive(Debug)]
pub(super) struct Receive {
    pub(super) message: Message,
    pub(super) optional: Optional,
    /// The law of the timeout, and the label to go to, if any.
    pub(super) timeout: Option<(u16, Option<(String, usize)>)>,
    pub(super) route: bool,
    pub(super) challenge: bool,
}

#[derive(Debug)]
pub(super) enum Message {
    /// A status, and the method of the transaction if it is given.
    Response(u16, Option<MethodId>),
    Requests(Vec<MethodId>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Optional {
    No,
    Yes,
    Global,
}

/// Where an item leads.
#[derive(Debug)]
pub(super) struct Next {
    pub(super) label: String,
    pub(super) at: usize,
    pub(super) test: Option<Variable>,
    pub(super) chance: Option<f64>,
}

/// State while a file is read.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    pub(super) source: &'a Source,
    pub(super) options: &'a Options,
    pub(super) tables: &'a [Arc<Table>],
    pub(super) builder: ScriptBuilder,
    pub(super) role: Role,
    pub(super) receives_requests: bool,
    pub(super) items: Vec<Item>,
    /// The index and the position in the file of each label.
    pub(super) labels: BTreeMap<String, (usize, usize)>,
    pub(super) warnings: Vec<Diagnostic>,
    /// Actions to run when a call begins.
    pub(super) begin: Vec<Action>,
    pub(super) login: Option<Login>,
    pub(super) t1: Option<f64>,
    pub(super) uses_tag: bool,
    /// The position of the first `[routes]` or `[next_url]`, and of the first `[authentication]`.
    pub(super) uses_route: Option<usize>,
    pub(super) authenticates: Option<usize>,
    pub(super) warned: BTreeSet<(usize, String)>,
    pub(super) variables: BTreeMap<String, VariableState>,
    pub(super) timers: BTreeMap<String, Timer>,
    pub(super) cseq: Option<Variable>,
    pub(super) call_id: Option<Variable>,
    pub(super) lines: Vec<(Arc<Table>, Variable)>,
    pub(super) transactions: BTreeMap<String, MethodId>,
}

/// State of a variable of the scenario.
#[derive(Debug)]
pub(super) struct VariableState {
    pub(super) number: Variable,
    pub(super) is_set: bool,
    pub(super) read_at: Option<usize>,
}

/// A time that is measured.
#[derive(Debug)]
pub(super) struct Timer {
    pub(super) number: u8,
    pub(super) is_begun: bool,
}
