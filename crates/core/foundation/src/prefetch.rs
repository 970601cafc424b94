//! Memory that will be needed soon, brought near beforehand.

use core::hint::black_box;

/// What a processor fetches of the memory at once, in bytes; no harm is done where it is another number.
pub const CACHE_LINE: usize = 64;

/// Looks at `bytes`, or the first `most` of them, which will be needed soon: to look at those of several things at once
/// takes hardly longer than at those of one.
#[inline(always)]
pub fn prefetch(bytes: &[u8], most: usize) {
    black_box(bytes.iter().step_by(CACHE_LINE).take(most.div_ceil(CACHE_LINE)).fold(0, |seen, byte| seen ^ byte));
}
