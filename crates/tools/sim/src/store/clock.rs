//! Clocks of a machine, and the store time derived from them.

use core::time::Duration;

use strowger_foundation::Timestamp;
use strowger_journal::Stamp;

use crate::mutant::Bug;

/// Wall clock at the start of every world, in ms since 1970.
const WALL_MS: u64 = 1_790_000_000_000;

/// Clocks of the machine.
#[derive(Clone, Debug)]
pub(crate) struct Clocks {
    /// Sum of all steps of the wall clock.
    wall_jump_ms: i64,
    /// Steps of the wall clock backward and forward since the last stamp that is certainly durable.
    unstamped_ms: (i64, i64),
    /// Whether the machine has rebooted since.
    rebooted: bool,
    boot: u8,
    booted: Timestamp,
    /// Start of the current process and its store time in ns.
    begun: (Timestamp, u64),
}

impl Clocks {
    pub(crate) const fn new() -> Self {
        let begun = (Timestamp::ZERO, WALL_MS * 1_000_000);
        Self { wall_jump_ms: 0, unstamped_ms: (0, 0), rebooted: false, boot: 1, booted: Timestamp::ZERO, begun }
    }

    /// Reboots the machine.
    pub(crate) fn reboot(&mut self, now: Timestamp) {
        self.boot = self.boot.wrapping_add(1);
        self.booted = now;
        self.rebooted = true;
    }

    /// Steps the wall clock.
    pub(crate) const fn set_wall(&mut self, jump_ms: i64) {
        self.wall_jump_ms += jump_ms;
        let (back, forward) = &mut self.unstamped_ms;
        *(if jump_ms < 0 { back } else { forward }) += jump_ms;
    }

    /// Handles that the current time is durable.
    pub(crate) const fn sync(&mut self) {
        (self.unstamped_ms, self.rebooted) = ((0, 0), false);
    }

    /// Returns the range of an allowed step of store time at a start.
    pub(crate) fn allowed_ns(&self) -> (i128, i128) {
        let (back, forward) = self.unstamped_ms;
        if self.rebooted { (i128::from(back) * 1_000_000, i128::from(forward) * 1_000_000) } else { (0, 0) }
    }

    pub(crate) fn store_ns(&self, now: Timestamp) -> u64 {
        let (at, store_ns) = self.begun;
        store_ns.saturating_add(now.as_nanos().saturating_sub(at.as_nanos()))
    }

    pub(crate) fn stamp(&self, now: Timestamp) -> Stamp {
        Stamp { store_ms: self.store_ns(now) / 1_000_000, ..self.outside(now) }
    }

    /// Starts a process that knows the last stamp of the previous one, and returns its store time in ns.
    pub(crate) fn begin(&mut self, now: Timestamp, last: Option<Stamp>, bug: Option<Bug>) -> u64 {
        let outside = self.outside(now);
        let store_ms = match last {
            None => outside.wall_ms,
            Some(_) if bug == Some(Bug::TrustsWallClock) => outside.wall_ms,
            Some(last) if last.boot_id == outside.boot_id => {
                last.store_ms + outside.boot_ms.saturating_sub(last.boot_ms)
            }
            Some(last) => last.store_ms + outside.wall_ms.saturating_sub(last.wall_ms).max(outside.boot_ms),
        };
        self.begun = (now, store_ms * 1_000_000);
        self.begun.1
    }

    fn outside(&self, now: Timestamp) -> Stamp {
        let up: Duration = now - self.booted;
        Stamp {
            store_ms: 0,
            wall_ms: (WALL_MS + now.as_millis()).saturating_add_signed(self.wall_jump_ms),
            boot_ms: u64::try_from(up.as_millis()).unwrap_or(u64::MAX),
            boot_id: [self.boot; 16],
        }
    }
}
