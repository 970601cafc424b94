//! Calls in progress, for the control socket.

use std::time::Duration;

use strowger_control::protocol::{Call, Calls, MAX_LISTED, Response};
use strowger_foundation::Timestamp;
use strowger_message::lossy;
use strowger_worker::{CallInfo, Fleet};

pub(crate) fn list(fleet: &Fleet, now: Timestamp, limit: usize) -> Calls {
    let found = fleet.calls(limit.min(MAX_LISTED));
    Calls { calls: found.calls.iter().map(|call| to_protocol(call, now)).collect(), more: found.more }
}

/// Ends the calls with this Call-ID, and answers with them. `has_earlier`: earlier processes have transactions.
pub(crate) fn end(fleet: &Fleet, now: Timestamp, call_id: &str, has_earlier: bool) -> Response {
    let found = fleet.end_calls(call_id.as_bytes());
    if found.calls.is_empty() {
        let no = |why| format!("there is no call with this Call-ID: {why}; `strowger ctl calls` lists all of them");
        return match found.more {
            true => Response::Busy(no("a worker does not answer; try again")),
            false if has_earlier => Response::NotFound(no(
                "it may have ended already, or ring in an earlier process, where the server cannot end it",
            )),
            false => Response::NotFound(no("it may have ended already")),
        };
    }
    let calls: Vec<_> = found.calls.iter().map(|call| to_protocol(call, now)).collect();
    for Call { caller, callee, state, .. } in &calls {
        tracing::info!(call_id, caller, callee, state, "the operator ends a call");
    }
    Response::Ending(Calls { calls, more: found.more })
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
        target_transport: call.target_transport.map(|transport| transport.as_str().to_owned()),
    }
}
