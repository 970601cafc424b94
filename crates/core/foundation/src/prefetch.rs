//! Prefetching of memory that is needed soon.

use core::hint::black_box;

/// Size of a cache line in bytes; a different actual size does no harm.
pub const CACHE_LINE: usize = 64;

/// Prefetches `bytes`, at most the first `most` of them. Prefetching several items together takes hardly longer than
/// one.
#[inline(always)]
pub fn prefetch(bytes: &[u8], most: usize) {
    black_box(bytes.iter().step_by(CACHE_LINE).take(most.div_ceil(CACHE_LINE)).fold(0, |seen, byte| seen ^ byte));
}
