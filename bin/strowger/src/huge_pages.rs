//! Huge pages, enabled while the process is large enough to use them and has load.
//!
//! The allocator asks the kernel to back all its memory with pages of 2 MiB, and uses separate memory for each thread
//! and size class. A small server would therefore waste 30 MiB, and a thousand idle connections 1 to 10 MB. A large
//! server gains some percent of speed, because its tables exceed the TLB. So the process starts without huge pages and
//! lets the kernel use them once it has grown. When the load has fallen, it goes without again: the kernel would fill the
//! pages of which a peak has left a few bytes in use, and take back what was returned.

use std::fs;

use rustix::param::page_size;
use rustix::thread::{disable_transparent_huge_pages, transparent_huge_pages_are_disabled};

/// Private memory in bytes above which huge pages are worth their waste.
const WORTH_BYTES: u64 = 64 * 1024 * 1024;

/// State of huge pages for this process.
#[derive(Debug)]
pub(crate) struct HugePages {
    /// Whether this process disables and enables them itself.
    is_managed: bool,
    is_disabled: bool,
}

impl HugePages {
    /// Disables huge pages for the time being. If they are already disabled for this process (systemd,
    /// `MIMALLOC_ALLOW_THP=0`), they stay so.
    pub(crate) fn disable() -> Self {
        let is_possible = transparent_huge_pages_are_disabled().is_ok_and(|are_disabled| !are_disabled);
        // If this fails, the kernel's default remains.
        let is_managed = is_possible && disable_transparent_huge_pages(true).is_ok();
        Self { is_managed, is_disabled: is_managed }
    }

    /// Enables huge pages once the process is large enough, and disables them when its load has fallen. The kernel
    /// converts existing memory gradually.
    pub(crate) fn update(&mut self, has_load_fallen: bool) {
        if !self.is_managed {
            return;
        }
        let is_disabled = has_load_fallen || (self.is_disabled && private_bytes() < WORTH_BYTES);
        if is_disabled != self.is_disabled && disable_transparent_huge_pages(is_disabled).is_ok() {
            self.is_disabled = is_disabled;
            tracing::debug!(is_disabled, "huge pages");
        }
    }
}

/// Returns the resident memory that is neither file-backed nor shared, in bytes.
fn private_bytes() -> u64 {
    fs::read_to_string("/proc/self/statm").ok().and_then(|text| private_pages(&text)).unwrap_or(0) * page_size() as u64
}

/// Returns resident minus shared pages from `/proc/self/statm`; see proc(5).
fn private_pages(statm: &str) -> Option<u64> {
    let mut fields = statm.split_ascii_whitespace().skip(1).map_while(|field| field.parse::<u64>().ok());
    fields.next()?.checked_sub(fields.next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_memory_is_resident_minus_shared() {
        assert_eq!(private_pages("120935 2466 1319 1591 0 21190 0\n"), Some(2466 - 1319));
        assert_eq!(private_pages("120935 2466"), None);
        assert!(private_bytes() > 0);
    }

    #[test]
    fn huge_pages_are_enabled_once_the_process_grows() {
        let mut pages = HugePages::disable();
        if !pages.is_managed {
            // The test environment has disabled them.
            return;
        }
        let are_disabled = || transparent_huge_pages_are_disabled().expect("the kernel answers");
        pages.update(false);
        assert!(are_disabled(), "a test has no 64 MiB");
        let large = vec![1_u8; usize::try_from(WORTH_BYTES).expect("it fits")];
        pages.update(false);
        assert!(!are_disabled());
        pages.update(true);
        assert!(are_disabled(), "what is returned stays so");
        pages.update(false);
        assert!(!are_disabled());
        drop(large);
        pages.update(false);
        assert!(!are_disabled(), "they stay while there is load");
    }
}
