//! Names of the kernel's reasons to drop a packet.

use std::collections::BTreeMap;
use std::fs;

use super::kernel_enum;

/// The kernel's description of its types (BTF), which the probe's programs need as well.
const KERNEL_TYPES: &str = "/sys/kernel/btf/vmlinux";
const ENUM: &str = "skb_drop_reason";
const PREFIX: &str = "SKB_DROP_REASON_";

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
        let types = fs::read(KERNEL_TYPES).unwrap_or_default();
        Self::named(kernel_enum::variants(&types, ENUM).unwrap_or_default())
    }

    /// Takes the names of the enumeration's variants by number.
    fn named(variants: BTreeMap<u32, String>) -> Self {
        let short = |name: String| name.strip_prefix(PREFIX).map(ToOwned::to_owned).unwrap_or(name);
        Self(variants.into_iter().map(|(number, name)| (number, short(name))).collect())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn named<const COUNT: usize>(variants: [(u32, &str); COUNT]) -> DropReasons {
        DropReasons::named(variants.into_iter().map(|(number, name)| (number, name.to_owned())).collect())
    }

    #[test]
    fn names_are_short() {
        let reasons = named([(1, "SKB_CONSUMED"), (6, "SKB_DROP_REASON_SOCKET_RCVBUFF")]);
        assert_eq!([1, 6, 7].map(|reason| reasons.name(reason)), ["SKB_CONSUMED", "SOCKET_RCVBUFF", "reason 7"]);
    }

    #[test]
    fn a_repeated_segment_is_no_loss() {
        let reasons = named([
            (6, "SKB_DROP_REASON_SOCKET_RCVBUFF"),
            (24, "SKB_DROP_REASON_TCP_OLD_DATA"),
            (27, "SKB_DROP_REASON_TCP_OVERWINDOW"),
        ]);
        assert_eq!([6, 24, 27, 99].map(|reason| reasons.is_duplicate(reason)), [false, true, false, false]);
    }

    #[test]
    fn the_running_kernel_names_its_reasons() {
        if !fs::exists(KERNEL_TYPES).unwrap_or_default() {
            return;
        }
        let reasons = DropReasons::of_this_kernel();
        assert!(reasons.0.values().any(|name| name == "SOCKET_RCVBUFF"), "{reasons:?}");
    }
}
