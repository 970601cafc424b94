//! Real programs against a running Strowger.
//!
//! The tests of this crate start the `strowger` binary on a free loopback port and let phones
//! (`baresip`, `linphonec`, a web page in `chromium`) and scripted user agents (`SIPp`) talk to it; what they report is what is
//! asserted. [`Config`] describes a server and [`Config::start`] runs one; [`Phone`], [`Linphone`], [`WebPhone`] and
//! [`Sipp`] are the other ends, and so are [`Caller`] and [`Callee`], which the test plays itself, and [`Load`] and [`Answerer`],
//! our own load generator; [`LossyRelay`] is a bad network between them, [`Nat`] one with private
//! addresses, [`bind9`] is the name server, whose zone [`ZoneUpdater`] changes, and [`Keepalived`] lets one address be that of either of two machines.
//!
//! Three environment variables are read:
//! - `STROWGER_BIN`: the server to test, instead of the one beside the test executable;
//! - `STROWGER_REQUIRE_INTEROP=1`: a program that is not installed fails the test instead of skipping it;
//! - `STROWGER_COLLECTOR`: an [`OpenTelemetryCollector`], which takes minutes to build and is never required.

mod administration;
mod authority;
pub mod bind9;
mod browser;
mod callee;
mod caller;
mod certificate;
pub mod checker;
pub mod connection_load;
mod databases;
mod dns_zone;
pub mod failover;
mod jssip;
mod kamailio;
mod keepalived;
mod linphone;
mod load;
mod machine;
mod md5;
mod namespace;
mod nat;
mod open_telemetry_collector;
pub mod operate;
mod phone;
mod ports;
mod process;
mod program;
mod prometheus;
mod registrant;
mod relay;
mod rtpengine;
mod server;
pub mod sharing;
mod sipp;
pub mod stages;
mod transport_calls;
mod tshark;
mod watch;
mod web_phone;
mod web_server;
pub mod wire;

pub use administration::AdministrationPage;
pub use authority::{Authority, IssuedCertificate};
pub use browser::Browser;
pub use callee::{AnswerBehavior, CallSnapshot, Callee, Stage};
pub use caller::{Call, Caller};
pub use certificate::{Certificate, key_hash};
pub use databases::{Arrangement, Database, Engines};
pub use dns_zone::{Resolver, ZoneUpdater};
pub use jssip::jssip;
pub use kamailio::Kamailio;
pub use keepalived::{Contender, Keepalived};
pub use linphone::Linphone;
pub use load::{Answerer, Load, Report};
pub use machine::{Lan, Machine};
pub use md5::md5;
pub use namespace::Namespace;
pub use nat::Nat;
pub use open_telemetry_collector::OpenTelemetryCollector;
pub use phone::{Event, Phone};
pub use ports::{free_port, free_port_pair};
pub use process::Process;
pub use program::{Program, is_required};
pub use prometheus::Prometheus;
pub use registrant::{Registrant, registration_credentials};
pub use relay::{LossyRelay, Traffic};
pub use rtpengine::{Relayed, Rtpengine};
pub use server::{Config, Route, Server, binary};
pub use sipp::{Sipp, SippRun, register};
pub use transport_calls::{call_over_all_transports, have_both_calls_ended};
pub use tshark::{SeenMessage, Tshark, traced_messages};
pub use watch::Watch;
pub use web_phone::WebPhone;
pub use web_server::{WebFile, WebServer};

use std::time::{Duration, Instant};

/// Time limit of any single step of a test. It is generous, since a busy machine is not a bug.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Calls `done` repeatedly until it returns `Some` or `patience` is over.
///
/// Other programs do not notify the test when they become ready, so their state has to be polled.
pub fn poll<T>(patience: Duration, done: impl FnMut() -> Option<T>) -> Option<T> {
    poll_every(Duration::from_millis(10), patience, done)
}

/// Does the same with other pauses, for a check that costs much.
pub fn poll_every<T>(pause: Duration, patience: Duration, mut done: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(answer) = done() {
            return Some(answer);
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(pause);
    }
}

/// Waits until `is_so`.
///
/// # Panics
/// When that takes longer than [`PATIENCE`].
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    assert!(poll(PATIENCE, || is_so().then_some(())).is_some(), "not in time: {what}");
}
