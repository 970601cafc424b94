//! Huge pages, only once there is enough to fill them.
//!
//! The allocator asks the kernel to back all its memory with pages of 2 MiB, and takes memory for each thread and each range
//! of sizes from another place. So a small server would have thirty mebibytes that it never uses, and a thousand idle
//! connections might cost a megabyte or ten. A large one is some percent faster with them, for its tables have more pages
//! than the processor remembers. Hence the process begins without them, and lets the kernel use them when it has grown.

use std::fs;

use rustix::param::page_size;
use rustix::thread::{disable_transparent_huge_pages, transparent_huge_pages_are_disabled};

/// Private memory from which on huge pages are worth what they waste.
const WORTH_BYTES: u64 = 64 * 1024 * 1024;

/// Whether the kernel may use huge pages for this process.
#[derive(Debug)]
pub(crate) struct HugePages {
    /// Whether it was this process that has renounced them, and may allow them again.
    is_disabled_here: bool,
}

impl HugePages {
    /// Renounces them for now. Where somebody has for this process already (systemd, `MIMALLOC_ALLOW_THP=0`), for good.
    pub(crate) fn disable() -> Self {
        let is_possible = transparent_huge_pages_are_disabled().is_ok_and(|are_disabled| !are_disabled);
        // Where it fails all is as without this file.
        Self { is_disabled_here: is_possible && disable_transparent_huge_pages(true).is_ok() }
    }

    /// Allows them once the process is so large that they are worth it; what it has by then the kernel moves by and by.
    pub(crate) fn update(&mut self) {
        if self.is_disabled_here && private_bytes() >= WORTH_BYTES {
            self.is_disabled_here = disable_transparent_huge_pages(false).is_err();
            tracing::debug!(are_spared = self.is_disabled_here, "huge pages");
        }
    }
}

/// What the process has that is neither a file's nor shared.
fn private_bytes() -> u64 {
    fs::read_to_string("/proc/self/statm").ok().and_then(|text| private_pages(&text)).unwrap_or(0) * page_size() as u64
}

/// The resident pages less the shared ones of what `/proc/self/statm` says; see proc(5).
fn private_pages(statm: &str) -> Option<u64> {
    let mut fields = statm.split_ascii_whitespace().skip(1).map_while(|field| field.parse::<u64>().ok());
    fields.next()?.checked_sub(fields.next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_memory_is_what_is_resident_and_not_shared() {
        assert_eq!(private_pages("120935 2466 1319 1591 0 21190 0\n"), Some(2466 - 1319));
        assert_eq!(private_pages("120935 2466"), None);
        assert!(private_bytes() > 0);
    }

    #[test]
    fn huge_pages_are_allowed_to_a_process_that_has_grown_and_stay_allowed() {
        let mut pages = HugePages::disable();
        if !pages.is_disabled_here {
            // Somebody decided that for the tests.
            return;
        }
        let are_disabled = || transparent_huge_pages_are_disabled().expect("the kernel answers");
        pages.update();
        assert!(are_disabled(), "a test has no 64 MiB");
        let large = vec![1_u8; usize::try_from(WORTH_BYTES).expect("it fits")];
        pages.update();
        assert!(!are_disabled());
        drop(large);
        pages.update();
        assert!(!are_disabled());
    }
}
