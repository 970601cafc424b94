//! Metrics of calls beyond the outcome counts: those of RFC 6076, and a time series of each phase.

mod attempt;
mod calls;
mod recovery;
mod rfc6076;
mod series;

pub use attempt::Attempt;
pub use calls::Calls;
pub use recovery::{Counts, Recovery, SHARES};
pub use rfc6076::{Figure, Metrics, Value};
pub use series::{MAX_SLICES, Series, Slice, SparseHistogram};
pub(crate) use series::{accounts_of, main_method};
