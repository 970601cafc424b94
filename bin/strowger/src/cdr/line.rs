//! Output format of a call record.

use std::time::Duration;

use strowger_calls::CallRecord;
use strowger_control::protocol::EndedCall;
use strowger_foundation::Timestamp;
use strowger_message::lossy;
use strowger_net::ClockPair;

use crate::utc::rfc3339;

/// Converts a record, with its times in wall clock time.
pub(super) fn line_of(record: &CallRecord, now: &ClockPair) -> EndedCall {
    let wall = |at: Timestamp| rfc3339(now.real_time(at).0 / 1_000_000);
    let seconds = |duration: Duration| (duration.as_secs_f64() * 1000.0).round() / 1000.0;
    let trunks = record.trunks.as_deref();
    let name = |name: &Option<Box<str>>| name.as_deref().map(str::to_owned);
    EndedCall {
        start: wall(record.began),
        answer: record.answered.map(wall),
        end: wall(record.ended),
        setup_s: seconds(record.answered.unwrap_or(record.ended) - record.began),
        talk_s: seconds(record.answered.map_or(Duration::ZERO, |answered| record.ended - answered)),
        reason: record.reason.as_str().to_owned(),
        status: record.status,
        caller: lossy(record.caller()),
        callee: lossy(record.callee()),
        call_id: String::from_utf8_lossy(record.call_id()).into_owned(),
        source: format!("{}:{}", record.transport.as_str().to_ascii_lowercase(), record.source),
        target: record.target.map(|target| target.to_string()),
        source_trunk: trunks.and_then(|trunks| name(&trunks.source)),
        target_trunk: trunks.and_then(|trunks| name(&trunks.target)),
        target_uri: trunks.and_then(|trunks| trunks.target_uri.as_deref()).map(lossy),
    }
}

/// Returns the record as a line of JSON.
pub(super) fn json(record: &CallRecord, now: &ClockPair) -> String {
    // Serialization cannot fail.
    serde_json::to_string(&line_of(record, now)).map_or_else(|error| error.to_string(), |line| line + "\n")
}
