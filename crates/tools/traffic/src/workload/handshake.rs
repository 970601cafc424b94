//! Handshakes: each session opens a connection, sends one request, and closes it.

use super::{Parameter, Parameters, Workload, WorkloadError, calls, registering};
use crate::driver::ConnectionLifetime;

pub(super) const PARAMETERS: &[Parameter] =
    &[Parameter::ours("request", "OPTIONS", "the request on each connection, OPTIONS or REGISTER")];

pub(super) fn handshake(parameters: &Parameters) -> Result<Workload, WorkloadError> {
    let script = match parameters.text("request")? {
        "OPTIONS" => calls::asking()?,
        "REGISTER" => registering()?,
        other => return Err(WorkloadError(format!("request: '{other}' is neither OPTIONS nor REGISTER"))),
    };
    let connection_lifetime = Some(ConnectionLifetime::Dialog);
    Ok(Workload { callers: vec![script], connection_lifetime, ..Workload::empty() })
}
