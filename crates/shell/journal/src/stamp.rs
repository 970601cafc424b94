//! Timestamp of a write on the caller's clocks.

/// A point in time on several clocks. The journal stores it but reads no clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Store time in milliseconds; monotonic, also across restarts.
    pub store_ms: u64,
    /// Wall-clock time in milliseconds since 1970.
    pub wall_ms: u64,
    /// Milliseconds since the machine booted.
    pub boot_ms: u64,
    /// Boot that `boot_ms` counts from. Stored once per segment, so it must not change while a journal is open.
    pub boot_id: [u8; 16],
}
