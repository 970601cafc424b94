//! Store time: a monotonic timeline across restarts, independent of changes to the wall clock.

use std::fs;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use strowger_foundation::Timestamp;
use strowger_journal::Stamp;

/// File with the kernel's boot id.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const STAMP_LEN: usize = 40;

/// The process's monotonic clock, as a function.
pub type NowFn = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Other clocks of the machine, used only for stamps.
pub(crate) trait MachineClocks: Send + Sync {
    /// Returns wall-clock milliseconds since 1970.
    fn wall_ms(&self) -> u64;
    /// Returns milliseconds since boot, including suspend.
    fn boot_ms(&self) -> u64;
    /// Returns the boot id; zeros if unknown.
    fn boot_id(&self) -> [u8; 16];
}

/// The real clocks.
#[derive(Debug)]
pub(crate) struct SystemClocks {
    boot_id: [u8; 16],
}

impl SystemClocks {
    pub(crate) fn new() -> Self {
        let text = fs::read_to_string(BOOT_ID).unwrap_or_default();
        let mut boot_id = [0; 16];
        let mut digits = text.chars().filter_map(|digit| digit.to_digit(16));
        for byte in &mut boot_id {
            let (Some(high), Some(low)) = (digits.next(), digits.next()) else { break };
            *byte = u8::try_from(high << 4 | low).unwrap_or(0);
        }
        Self { boot_id }
    }
}

impl MachineClocks for SystemClocks {
    fn wall_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    fn boot_ms(&self) -> u64 {
        let time = clock_gettime(ClockId::Boottime);
        let ms = time.tv_sec.saturating_mul(1000).saturating_add(time.tv_nsec / 1_000_000);
        u64::try_from(ms).unwrap_or(0)
    }

    fn boot_id(&self) -> [u8; 16] {
        self.boot_id
    }
}

/// Store time in this process: an origin on the monotonic clock.
#[derive(Clone)]
pub(crate) struct StoreClock {
    now: NowFn,
    machine: Arc<dyn MachineClocks>,
    /// Store time at [`Timestamp::ZERO`], in ns.
    origin: u64,
}

impl StoreClock {
    /// Continues from `last`: by the time since boot if the boot is the same, otherwise by the wall clock, but by no
    /// less than the current uptime. A new store begins with the wall-clock time.
    pub(crate) fn resume(last: Option<Stamp>, now: NowFn, machine: Arc<dyn MachineClocks>) -> Self {
        let store_ms = last.map_or_else(|| machine.wall_ms(), |last| resumed(&last, &*machine));
        let at = now().as_nanos();
        Self { now, machine, origin: store_ms.saturating_mul(1_000_000).saturating_sub(at) }
    }

    pub(crate) fn origin(&self) -> u64 {
        self.origin
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.now)()
    }

    /// Returns the store time in milliseconds.
    pub(crate) fn store_ms(&self) -> u64 {
        self.origin.saturating_add(self.now().as_nanos()) / 1_000_000
    }

    pub(crate) fn stamp(&self) -> Stamp {
        let machine = &*self.machine;
        Stamp {
            store_ms: self.store_ms(),
            wall_ms: machine.wall_ms(),
            boot_ms: machine.boot_ms(),
            boot_id: machine.boot_id(),
        }
    }
}

fn resumed(last: &Stamp, machine: &dyn MachineClocks) -> u64 {
    let boot_ms = machine.boot_ms();
    let is_same_boot = last.boot_id == machine.boot_id() && last.boot_id != [0; 16];
    let elapsed = if is_same_boot {
        boot_ms.saturating_sub(last.boot_ms)
    } else {
        machine.wall_ms().saturating_sub(last.wall_ms).max(boot_ms)
    };
    last.store_ms.saturating_add(elapsed)
}

/// Returns the later of two stamps by store time.
pub(crate) fn later(one: Option<Stamp>, other: Option<Stamp>) -> Option<Stamp> {
    one.into_iter().chain(other).max_by_key(|stamp| stamp.store_ms)
}

/// Encodes a stamp as stored with a checkpoint.
pub(crate) fn encode(stamp: &Stamp) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(STAMP_LEN);
    for number in [stamp.store_ms, stamp.wall_ms, stamp.boot_ms] {
        bytes.extend_from_slice(&number.to_be_bytes());
    }
    bytes.extend_from_slice(&stamp.boot_id);
    bytes
}

pub(crate) fn decode(bytes: &[u8]) -> Option<Stamp> {
    let bytes: &[u8; STAMP_LEN] = bytes.try_into().ok()?;
    let number = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_be_bytes);
    let boot_id = bytes.get(24..)?.try_into().ok()?;
    Some(Stamp { store_ms: number(0)?, wall_ms: number(8)?, boot_ms: number(16)?, boot_id })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy)]
    struct At {
        wall: u64,
        boot: u64,
        id: u8,
    }

    impl MachineClocks for At {
        fn wall_ms(&self) -> u64 {
            self.wall
        }

        fn boot_ms(&self) -> u64 {
            self.boot
        }

        fn boot_id(&self) -> [u8; 16] {
            [self.id; 16]
        }
    }

    const DAY: u64 = 86_400_000;
    const YEARS: u64 = 10 * 365 * DAY;
    const WALL: u64 = 20_000 * DAY;
    const LAST: Stamp = Stamp { store_ms: 5 * DAY, wall_ms: WALL, boot_ms: 3 * DAY, boot_id: [7; 16] };

    fn resume(at: At) -> u64 {
        let now: NowFn = Arc::new(|| Timestamp::from_millis(123));
        let clock = StoreClock::resume(Some(LAST), now, Arc::new(at));
        assert_eq!(
            clock.stamp(),
            Stamp { store_ms: clock.store_ms(), wall_ms: at.wall, boot_ms: at.boot, boot_id: [at.id; 16] }
        );
        clock.store_ms() - LAST.store_ms
    }

    #[test]
    fn the_wall_clock_is_ignored_within_one_boot() {
        for wall in [WALL, WALL - DAY, WALL + DAY, WALL - YEARS, WALL + YEARS, 0] {
            assert_eq!(resume(At { wall, boot: 3 * DAY + 4000, id: 7 }), 4000);
        }
    }

    #[test]
    fn the_wall_clock_counts_across_boots_but_only_forward() {
        assert_eq!(resume(At { wall: WALL + 90_000, boot: 20_000, id: 8 }), 90_000);
        for wall in [WALL - DAY, WALL - YEARS, 0] {
            assert_eq!(resume(At { wall, boot: 20_000, id: 8 }), 20_000, "no less than this boot has lasted");
        }
    }

    #[test]
    fn an_unknown_boot_id_counts_as_a_new_boot() {
        let now: NowFn = Arc::new(|| Timestamp::ZERO);
        let last = Stamp { boot_id: [0; 16], ..LAST };
        let clock = StoreClock::resume(Some(last), now, Arc::new(At { wall: WALL + 1000, boot: 0, id: 0 }));
        assert_eq!(clock.store_ms(), LAST.store_ms + 1000);
    }

    #[test]
    fn a_new_store_starts_at_the_wall_clock() {
        let now: NowFn = Arc::new(|| Timestamp::from_millis(5));
        let clock = StoreClock::resume(None, now, Arc::new(At { wall: WALL, boot: 1, id: 1 }));
        assert_eq!(clock.store_ms(), WALL);
    }

    #[test]
    fn a_stamp_round_trips() {
        assert_eq!(decode(&encode(&LAST)), Some(LAST));
        assert_eq!(decode(&[0; 39]), None);
        assert_eq!(later(Some(LAST), None), Some(LAST));
        assert_eq!(
            later(Some(LAST), Some(Stamp { store_ms: 6 * DAY, ..LAST })).map(|stamp| stamp.store_ms),
            Some(6 * DAY)
        );
    }

    #[test]
    fn system_clocks_give_values() {
        let system = SystemClocks::new();
        assert!(system.wall_ms() > 1_600_000_000_000);
        assert!(system.boot_ms() > 0);
        assert_ne!(system.boot_id(), [0; 16]);
    }
}
