//! Hash maps whose order depends on a seed that is an input, so that equal inputs give equal outputs.

use foldhash::fast::FixedState;

/// The hasher of every map in the core: fast, and seeded against chosen keys.
pub type SeededState = FixedState;

/// A hash map with an explicit seed; make one with [`seeded`].
pub type SeededMap<K, V> = hashbrown::HashMap<K, V, SeededState>;

/// The hasher for `seed`; the shell draws the seed at random once a process, tests choose it.
#[must_use]
pub const fn seeded(seed: u64) -> SeededState {
    FixedState::with_seed(seed)
}
