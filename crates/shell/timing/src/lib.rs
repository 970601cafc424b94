//! Where a packet's time goes in a server: the parts of its way, histograms of each part by message type, and the
//! report that `strowger ctl timing` and `strowger probe` print.
//!
//! The parts are those of Krishnamurthy's thesis, section 3.5; see [`Part`]. [`Probe`] measures them in any program.

mod depths;
mod histogram_recorder;
mod histograms;
mod message_type;
mod packet_log;
mod part;
mod part_histogram;
mod probe;
pub mod proc;
mod record;
mod report;
mod service_times;
mod target;
mod time_buckets;
mod type_table;

pub use depths::QueueDepths;
pub use histogram_recorder::{HistogramRecorder, RecordedHistograms};
pub use histograms::TimingHistograms;
pub use message_type::{MessageType, MethodName};
pub use packet_log::{LOG_TITLE, LogFooter, LogHeader};
pub use part::{Part, PartTimes};
pub use probe::{Probe, ProbeError, ProbeOptions};
pub use record::PacketRecord;
pub use report::{Bucket, Distribution, MessageReport, QueueDepth, TimingReport};
pub use service_times::{ServiceTime, ServiceTimes};
pub use target::{Protocol, Target};
pub use time_buckets::{TimeBuckets, TypeBuckets};
pub use type_table::{MAX_MESSAGE_TYPES, TypeIndex};
