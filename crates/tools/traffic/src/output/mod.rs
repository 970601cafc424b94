//! Output of a run: live lines, and from its report tables for programs, a page for people, and comparisons of two
//! runs.
//!
//! [`PhaseData::extend`] adds a phase's data to the JSON. Everything else is made from that JSON alone
//! ([`RunReport`]), so that a page can be drawn, and two runs compared, at any later time.

mod charts;
mod compare;
mod comparison_page;
mod csv;
mod data;
pub(crate) mod format;
mod html;
mod live;
pub(crate) mod page;
mod phase_data;
pub(crate) mod plot;
mod sweep;
mod tables;

pub use compare::{BetterWhen, Comparison, Row, compare};
pub use comparison_page::comparison_page;
pub use csv::{histograms, intervals};
pub use data::{
    AnswerRow, Callee, Calls, Confidence, Counts, Difference, Distribution, Generator, Handshakes, IntervalRow,
    Intervals, Latency, Machine, MetricRow, Record, Recovery, RecoveryTime, ReportError, RunReport, ScriptRow, Server,
    ServerRow, Transactions,
};
pub(crate) use format::{percent, percent_of};
pub use html::page;
pub use live::LiveStatus;
pub use phase_data::PhaseData;
pub use sweep::sweep_page;
