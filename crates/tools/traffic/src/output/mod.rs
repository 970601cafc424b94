//! What a run shows: live lines, and from its report tables for programs, a page for people, and comparisons of two runs.
//!
//! [`Parts::extend`] adds to the JSON what belongs to a phase's course; everything else here is made of that JSON alone
//! ([`Run`]), so that a page can be drawn, and two runs compared, long after.

mod compare;
mod csv;
mod data;
mod html;
mod live;
mod parts;
mod plot;

pub use compare::{Better, Comparison, Row, compare};
pub use csv::{histograms, intervals};
pub use data::{
    AnswerRow, Confidence, Distribution, Generator, IntervalRow, Intervals, Latency, MetricRow, Run, RunError, Server,
    ServerRow,
};
pub use html::page;
pub use live::Live;
pub use parts::Parts;
