//! Admission threshold in the order of classes.

use core::cmp::Ordering;

use crate::class::CLASSES;

/// Threshold up to which requests are admitted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Threshold {
    /// All classes before this rank are admitted; [`CLASSES`] admits all.
    pub(crate) rank: usize,
    /// Share of the class of this rank that is admitted.
    pub(crate) share: f64,
}

impl Threshold {
    pub(crate) const ALL: Self = Self { rank: CLASSES, share: 1.0 };

    /// Returns the share of a class that is admitted.
    pub(crate) fn share_of(self, rank: usize) -> f64 {
        match rank.cmp(&self.rank) {
            Ordering::Less => 1.0,
            Ordering::Equal => self.share,
            Ordering::Greater => 0.0,
        }
    }
}
