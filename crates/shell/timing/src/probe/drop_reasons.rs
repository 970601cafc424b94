//! Names of the kernel's reasons to drop a packet.

use std::collections::BTreeMap;
use std::fs;

/// Where the kernel describes its tracepoints.
const FOLDERS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Reasons for which the kernel drops a segment or an acknowledgement whose data it has already.
const DUPLICATES: [&str; 8] = [
    "TCP_OLD_DATA",
    "TCP_OLD_SEQUENCE",
    "TCP_OLD_ACK",
    "TCP_TOO_OLD_ACK",
    "TCP_OFOMERGE",
    "TCP_RFC7323_PAWS",
    "TCP_RFC7323_PAWS_ACK",
    "TCP_RFC7323_TW_PAWS",
];

/// Names by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct DropReasons(BTreeMap<u32, String>);

impl DropReasons {
    /// Reads the running kernel's names; without them reasons have numbers.
    pub(crate) fn of_this_kernel() -> Self {
        let read = |folder| fs::read_to_string(format!("{folder}/events/skb/kfree_skb/format")).ok();
        Self(FOLDERS.into_iter().find_map(read).map(|text| parse(&text)).unwrap_or_default())
    }

    /// Returns whether a segment of a stream was dropped because its data had come before, so that nothing is missing.
    pub(crate) fn is_duplicate(&self, reason: u32) -> bool {
        self.0.get(&reason).is_some_and(|name| DUPLICATES.contains(&name.as_str()))
    }

    /// Returns the name of a reason.
    pub(crate) fn name(&self, reason: u32) -> String {
        self.0.get(&reason).cloned().unwrap_or_else(|| format!("reason {reason}"))
    }
}

/// Reads `{ 2, "NOT_SPECIFIED" }, …` from the description of the tracepoint.
fn parse(text: &str) -> BTreeMap<u32, String> {
    let pairs = text.split('{').skip(1).filter_map(|pair| {
        let (number, name) = pair.split('}').next()?.split_once(',')?;
        Some((number.trim().parse().ok()?, name.trim().trim_matches('"').to_owned()))
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_from_the_tracepoints_description() {
        let text =
            r#"print fmt: "reason: %s", __print_symbolic(REC->reason, { 5, "NO_SOCKET" }, { 6, "SOCKET_RCVBUFF" })"#;
        let reasons = DropReasons(parse(text));
        assert_eq!((reasons.name(6).as_str(), reasons.name(7).as_str()), ("SOCKET_RCVBUFF", "reason 7"));
    }

    #[test]
    fn a_repeated_segment_is_no_loss() {
        let reasons =
            DropReasons(parse(r#"{ 6, "SOCKET_RCVBUFF" }, { 24, "TCP_OLD_DATA" }, { 27, "TCP_OVERWINDOW" }"#));
        assert_eq!([6, 24, 27, 99].map(|reason| reasons.is_duplicate(reason)), [false, true, false, false]);
    }
}
