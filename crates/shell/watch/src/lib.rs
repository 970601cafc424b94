//! DNS failover: probes servers with OPTIONS and updates the zone that names them when one dies or recovers, by
//! dynamic update (RFC 2136) signed with a key (TSIG, RFC 8945).
//!
//! [`Watcher`] decides without I/O: it handles the results of probes and of the name server, and says what to do
//! next. [`run`] executes that with [`Zone`] for the name server and [`probe`] for the servers.

mod plan;
pub mod probe;
mod run;
mod tsig;
mod update;
mod watcher;
mod zone;

pub use plan::{Entry, Kind, Plan, RecordData, RecordSet, Server, Transport};
pub use run::{StopWhen, run};
pub use tsig::{BadKey, TsigKey};
pub use update::{RecordSetContents, Update};
pub use watcher::{Event, Output, Watcher};
pub use zone::{Zone, ZoneError};
