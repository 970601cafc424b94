//! The order of the REGISTERs of one client.

use crate::binding::Binding;

/// The Call-ID and CSeq by which a client orders its updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegisterSequence {
    /// A keyed hash of the Call-ID.
    pub(crate) id: [u8; 16],
    pub(crate) cseq: u32,
}

impl RegisterSequence {
    /// Returns whether an update with this sequence may change `binding`.
    //= rfc3261#10.3:other-call-id
    //= rfc3261#10.3:higher-cseq
    pub(crate) fn is_after(self, binding: &Binding) -> bool {
        binding.call_id != self.id || binding.cseq < self.cseq
    }

    /// Returns whether an update with this sequence made `binding`.
    pub(crate) fn has_made(self, binding: &Binding) -> bool {
        binding.call_id == self.id && binding.cseq == self.cseq
    }
}
