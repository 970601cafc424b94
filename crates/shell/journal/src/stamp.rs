//! When something was written, by the clocks that the caller has.

/// A moment, by several clocks. The journal keeps it and does not look at any clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Time of the store in milliseconds: only goes forward, over restarts too.
    pub store_ms: u64,
    /// Milliseconds since 1970 by the wall clock.
    pub wall_ms: u64,
    /// Milliseconds since the machine started.
    pub boot_ms: u64,
    /// Which start of the machine `boot_ms` counts from. It is kept once a segment, so it must not change while a journal is
    /// open.
    pub boot_id: [u8; 16],
}
