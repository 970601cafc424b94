//! The limit within the order of classes.

use core::cmp::Ordering;

use crate::class::CLASSES;

/// Up to where requests are admitted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Threshold {
    /// All classes before this one; [`CLASSES`] where all are.
    pub(crate) rank: usize,
    /// The share of the class of this rank.
    pub(crate) share: f64,
}

impl Threshold {
    pub(crate) const ALL: Self = Self { rank: CLASSES, share: 1.0 };

    /// The share of a class that is admitted.
    pub(crate) fn share_of(self, rank: usize) -> f64 {
        match rank.cmp(&self.rank) {
            Ordering::Less => 1.0,
            Ordering::Equal => self.share,
            Ordering::Greater => 0.0,
        }
    }
}
