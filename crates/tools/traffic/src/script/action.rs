//! What a session does besides sending and waiting: variables that are extracted from messages or computed, and tests
//! of them.

use std::sync::Arc;

use crate::script::matching::{Place, Variable};
use crate::sipp::Table;

/// Value in a computation.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// A number.
    Number(f64),
    /// Text.
    Text(String),
    /// Value of a variable.
    Variable(Variable),
    /// Number drawn from this law of the script at each use.
    Law(u16),
}

/// An action.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Sets a variable.
    Assign(Variable, Operand),
    /// Adds to a variable.
    Add(Variable, Operand),
    /// Subtracts from a variable.
    Subtract(Variable, Operand),
    /// Multiplies a variable.
    Multiply(Variable, Operand),
    /// Divides a variable; division by zero leaves it unchanged.
    Divide(Variable, Operand),
    /// Sets a variable to the text of this template of the script.
    Text(Variable, u16),
    /// Searches with a regular expression.
    Match(Box<super::Match>),
    /// Sets `into` to 1 if two numbers satisfy the relation, else unsets it.
    Relate {
        /// Result.
        into: Variable,
        /// Left side.
        left: Variable,
        /// Relation.
        relation: Relation,
        /// Right side.
        right: Operand,
    },
    /// Sets `into` to -1, 0 or 1 if the left text is less than, equal to or greater than the right one. The right one
    /// is a template of the script.
    Order {
        /// Result.
        into: Variable,
        /// Left text.
        left: Variable,
        /// Right text.
        right: u16,
    },
    /// Sets a variable to the number in another one's text; 0 if that is no number.
    Number {
        /// Result.
        into: Variable,
        /// Text.
        from: Variable,
    },
    /// Percent-encodes a text as in URIs (RFC 3986 §2.1).
    Escape(Variable),
    /// Decodes a percent-encoded text.
    Unescape(Variable),
    /// Sets two variables to the wall time.
    WallTime {
        /// Seconds since 1970.
        seconds: Variable,
        /// Microseconds.
        micros: Variable,
    },
    /// Sets a variable to the time as text.
    Clock {
        /// Result.
        into: Variable,
        /// Format.
        form: ClockForm,
    },
    /// Sets a variable to the number of the line of an injection file that this call gets.
    Line {
        /// Result.
        into: Variable,
        /// File.
        table: Arc<Table>,
    },
    /// Sets a variable to a cell of an injection file.
    Cell {
        /// Result.
        into: Variable,
        /// File.
        table: Arc<Table>,
        /// Line, from 0.
        line: Operand,
        /// Column, from 0.
        column: u16,
    },
    /// Writes the text of this template of the script to the run's log.
    LogTemplate(u16),
    /// Ends the call or the run; later actions are skipped.
    Stop(Stop),
    /// Sets a variable to the first text between `after` and `before` (either may be empty: from the start, to the
    /// end), or unsets it if there is none. Simple regular expressions are translated to this; others have a variant
    /// of their own.
    Find {
        /// Where to search.
        place: Place,
        /// Text before the match.
        after: String,
        /// Text after the match; empty means the end of the line.
        before: String,
        /// Result.
        into: Variable,
        /// Whether the call fails if nothing is found.
        must: bool,
    },
    /// Sets a variable to 1 if a condition holds, else unsets it.
    Test(Variable, Condition),
    /// Writes a text, followed by a variable, to the run's log.
    Log(String, Option<Variable>),
    /// Compares the status of the response just received with the recorded one and counts the result; without a
    /// response the status is 0.
    Compare {
        /// Method of the request.
        verb: super::MethodId,
        /// Recorded status; 0 if the record has no response.
        recorded: u16,
    },
    /// Starts the timer with this number.
    BeginTimer(u8),
    /// Stops it; reports contain its histogram.
    EndTimer(u8),
}

/// Condition on a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The variable has a non-empty value.
    Set(Variable),
    /// The variable has no value.
    Unset(Variable),
    /// The variable has this order relative to a number.
    Compares(Variable, std::cmp::Ordering, i64),
    /// The variable equals this text.
    Is(Variable, String),
}

/// Relation of two numbers.
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

/// Format of a time.
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
    /// The run: no more calls begin; those in progress are completed.
    Gracefully,
    /// The run, immediately.
    Now,
}
