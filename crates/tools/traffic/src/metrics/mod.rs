//! What is known of calls beside their accounts: the metrics of RFC 6076, and how everything went second by second.

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
