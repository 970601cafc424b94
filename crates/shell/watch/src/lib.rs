//! Failing over by the DNS: servers are asked by OPTIONS whether they are there, and the zone that names them is changed when one
//! dies and when it comes back, by dynamic update (RFC 2136) signed with a key (TSIG, RFC 8945).
//!
//! [`Watcher`] decides, without I/O: it is told what probes and the name server said, and says what to ask next. [`run`] carries
//! that out, with [`Zone`] for the name server and [`probe`] for the servers.

mod change;
mod key;
mod plan;
pub mod probe;
mod run;
mod watcher;
mod zone;

pub use change::Update;
pub use key::{BadKey, Key};
pub use plan::{Data, Entry, Kind, Plan, RecordSet, Server, Transport};
pub use run::{Until, run};
pub use watcher::{Event, Output, Watcher};
pub use zone::{Found, Trouble, Zone};
