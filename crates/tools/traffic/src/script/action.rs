//! What a session does beside sending and waiting: variables, taken from messages or computed, and tests of them.

use std::sync::Arc;

use crate::script::matching::{Place, Variable};
use crate::sipp::Table;

/// A value in a computation.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// A number.
    Number(f64),
    /// A text.
    Text(String),
    /// A variable's value.
    Variable(Variable),
    /// A number drawn from this law of the script at each use.
    Law(u16),
}

/// One action.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Puts a value into a variable.
    Assign(Variable, Operand),
    /// Adds to a variable.
    Add(Variable, Operand),
    /// Subtracts from a variable.
    Subtract(Variable, Operand),
    /// Multiplies a variable.
    Multiply(Variable, Operand),
    /// Divides a variable; by zero it stays as it is.
    Divide(Variable, Operand),
    /// Puts the text that this template of the script gives into a variable.
    Text(Variable, u16),
    /// Searches with a regular expression.
    Match(Box<super::Match>),
    /// Puts 1 or nothing into `into`, as a relation of two numbers holds or not.
    Relate {
        /// Where it goes.
        into: Variable,
        /// The left side.
        left: Variable,
        /// What must hold.
        relation: Relation,
        /// The right side.
        right: Operand,
    },
    /// Puts -1, 0 or 1 into `into`, as the left text comes before the right, is it, or comes behind it. The right one is a
    /// template of the script.
    Order {
        /// Where it goes.
        into: Variable,
        /// The left text.
        left: Variable,
        /// The right text.
        right: u16,
    },
    /// Puts the number that a variable's text is into another; 0 where it is none.
    Number {
        /// Where it goes.
        into: Variable,
        /// The text.
        from: Variable,
    },
    /// Escapes a text as in URIs (RFC 3986 §2.1).
    Escape(Variable),
    /// Undoes that.
    Unescape(Variable),
    /// Puts the wall time into two variables.
    WallTime {
        /// Seconds since 1970.
        seconds: Variable,
        /// And microseconds.
        micros: Variable,
    },
    /// Puts the time as a text into a variable.
    Clock {
        /// Where it goes.
        into: Variable,
        /// How it is written.
        form: ClockForm,
    },
    /// Puts the number of the line of an injection file that this call gets into a variable.
    Line {
        /// Where it goes.
        into: Variable,
        /// The file.
        table: Arc<Table>,
    },
    /// Puts a cell of an injection file into a variable.
    Cell {
        /// Where it goes.
        into: Variable,
        /// The file.
        table: Arc<Table>,
        /// The line, from 0.
        line: Operand,
        /// The column, from 0.
        column: u16,
    },
    /// Writes the text that this template of the script gives to the run's log.
    LogTemplate(u16),
    /// Ends the call or the run; actions behind it are not done.
    Stop(Stop),
    /// Finds the first text between `after` and `before` (either may be empty: from the start, to the end) and puts it
    /// into a variable, or nothing into it where there is none. Regular expressions are to be translated to this where they
    /// can, and are a variant of their own else.
    Find {
        /// Where to look.
        place: Place,
        /// What stands before it.
        after: String,
        /// What ends it; empty is the end of the line.
        before: String,
        /// Where it goes.
        into: Variable,
        /// Whether the call fails where it is not found.
        must: bool,
    },
    /// Puts into a variable (1 or nothing) whether a condition holds.
    Test(Variable, Condition),
    /// Writes a variable to the run's log, with the text before it.
    Log(String, Option<Variable>),
    /// Counts whether the response just received has the status that a record says; without a response, 0 is counted.
    Compare {
        /// The method of the request.
        verb: super::MethodId,
        /// The status in the record; 0 where the record has no answer.
        recorded: u16,
    },
    /// Begins to measure the time that is called so.
    BeginTimer(u8),
    /// Ends measuring it; reports have its histogram.
    EndTimer(u8),
}

/// Something that holds of a session or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The variable has a value that is not empty.
    Set(Variable),
    /// The variable has no value.
    Unset(Variable),
    /// The variable compares so with a number.
    Compares(Variable, std::cmp::Ordering, i64),
    /// The variable is this text.
    Is(Variable, String),
}

/// How two numbers compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is what its name says")]
pub enum Relation {
    Equal,
    NotEqual,
    Greater,
    Less,
    AtLeast,
    AtMost,
}

/// How a time is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockForm {
    /// Milliseconds since the run began.
    Ticks,
    /// `2026-11-21 08:25:12.123456`.
    Stamp,
    /// `Sat, 21 Nov 2026 08:25:12 GMT`.
    Date,
}

/// What an action ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The call, which counts as failed.
    Call,
    /// The run: no more calls begin; those that run are carried to their end.
    Gracefully,
    /// The run, at once.
    Now,
}
