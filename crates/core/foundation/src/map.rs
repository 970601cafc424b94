//! Hash maps whose order depends on an explicit seed, so that equal inputs give equal outputs.

use foldhash::fast::FixedState;

/// The hasher of every map in the core: fast, and seeded against chosen keys.
pub type SeededState = FixedState;

/// A hash map with an explicit seed; create it with [`seeded`].
pub type SeededMap<K, V> = hashbrown::HashMap<K, V, SeededState>;

/// Returns the hasher for `seed`. The shell draws the seed at random once per process; tests choose it.
#[must_use]
pub const fn seeded(seed: u64) -> SeededState {
    FixedState::with_seed(seed)
}
