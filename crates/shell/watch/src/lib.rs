//! Failing over by the DNS: servers are asked by OPTIONS whether they are there, and the zone that names them is changed when one
//! dies and when it comes back, by dynamic update (RFC 2136) signed with a key (TSIG, RFC 8945).
//!
//! [`Watcher`] decides, without I/O: it is told what probes and the name server said, and says what to ask next. [`run`] carries
//! that out, with [`Zone`] for the name server and [`probe`] for the servers.

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
pub use update::Update;
pub use watcher::{Event, Output, Watcher};
pub use zone::{RecordSetContents, Zone, ZoneError};
