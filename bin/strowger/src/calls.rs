//! Calls in progress, for the control socket.

use std::time::Duration;

use strowger_control::protocol::{Call, Calls, MAX_LISTED};
use strowger_foundation::Timestamp;
use strowger_message::lossy;
use strowger_worker::{CallInfo, Fleet};

pub(crate) fn list(fleet: &Fleet, now: Timestamp, limit: usize) -> Calls {
    let found = fleet.calls(limit.min(MAX_LISTED));
    Calls { calls: found.calls.iter().map(|call| to_protocol(call, now)).collect(), more: found.more }
}

fn to_protocol(call: &CallInfo, now: Timestamp) -> Call {
    let seconds = |duration: Duration| (duration.as_secs_f64() * 1000.0).round() / 1000.0;
    Call {
        state: call.state.as_str().to_owned(),
        age_s: seconds(now - call.began),
        answered_s: call.answered.map(|answered| seconds(now - answered)),
        caller: lossy(&call.caller),
        callee: lossy(&call.callee),
        call_id: String::from_utf8_lossy(&call.call_id).chars().filter(|c| !c.is_control()).collect(),
        transport: call.transport.as_str().to_owned(),
        source: call.source,
        target: call.target,
    }
}
