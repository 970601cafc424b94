//! Frames of a channel: kind, number of descriptors, length, payload.

/// Maximum length of a payload.
pub const MAX_PAYLOAD: usize = 1 << 20;

/// Maximum number of descriptors with a frame; the kernel takes up to 253 at once.
pub const MAX_DESCRIPTORS: usize = 64;

/// Length of a frame's head.
pub(crate) const HEAD: usize = 6;

/// Kinds of frames. A number is never used again for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Hello,
    Ready,
    Refused,
    /// Sockets of a worker and a listener, with their descriptors.
    Sockets,
    /// A process that still has transactions, with its relay.
    Predecessor,
    /// Keys of the transactions of the last predecessor.
    Keys,
    /// States of registered addresses.
    Registrations,
    /// A part of an opaque section.
    Section,
    /// A descriptor that belongs to no worker.
    Extra,
    Complete,
    Prepared,
    Go,
    Abort,
}

/// The kinds by their numbers, from 1.
const KINDS: [Kind; 13] = [
    Kind::Hello,
    Kind::Ready,
    Kind::Refused,
    Kind::Sockets,
    Kind::Predecessor,
    Kind::Keys,
    Kind::Registrations,
    Kind::Section,
    Kind::Extra,
    Kind::Complete,
    Kind::Prepared,
    Kind::Go,
    Kind::Abort,
];

/// Head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: Kind,
    pub(crate) descriptors: usize,
    pub(crate) length: usize,
}

impl Head {
    /// Returns the bytes; `None` if a number is over its limit.
    pub(crate) fn to_bytes(self) -> Option<[u8; HEAD]> {
        let kind = KINDS.iter().position(|kind| *kind == self.kind)?;
        let fits = self.descriptors <= MAX_DESCRIPTORS && self.length <= MAX_PAYLOAD;
        let [a, b, c, d] = u32::try_from(self.length).ok().filter(|_| fits)?.to_le_bytes();
        Some([u8::try_from(kind + 1).ok()?, u8::try_from(self.descriptors).ok()?, a, b, c, d])
    }

    /// Reads a head; `None` if its kind is unknown or a number is over its limit.
    pub(crate) fn read([kind, descriptors, a, b, c, d]: [u8; HEAD]) -> Option<Self> {
        let kind = *KINDS.get(usize::from(kind).checked_sub(1)?)?;
        let descriptors = usize::from(descriptors);
        let length = usize::try_from(u32::from_le_bytes([a, b, c, d])).ok()?;
        (descriptors <= MAX_DESCRIPTORS && length <= MAX_PAYLOAD).then_some(Self { kind, descriptors, length })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn heads_are_read_as_written_and_others_are_refused(bytes: [u8; HEAD]) {
            if let Some(head) = Head::read(bytes) {
                prop_assert_eq!(head.to_bytes(), Some(bytes));
            }
        }

        #[test]
        fn heads_within_the_limits_round_trip(kind in 0..KINDS.len(), descriptors in 0..=MAX_DESCRIPTORS, length in 0..=MAX_PAYLOAD) {
            let head = Head { kind: KINDS[kind], descriptors, length };
            prop_assert_eq!(head.to_bytes().and_then(Head::read), Some(head));
        }
    }

    #[test]
    fn heads_over_the_limits_are_not_written() {
        let head = Head { kind: Kind::Keys, descriptors: 0, length: MAX_PAYLOAD + 1 };
        assert_eq!(head.to_bytes(), None);
        assert_eq!(Head { descriptors: MAX_DESCRIPTORS + 1, length: 0, ..head }.to_bytes(), None);
    }
}
