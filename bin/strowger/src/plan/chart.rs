//! Plots as data: what is drawn, whatever draws it.

use super::field::DisplayUnit;

/// How points are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Joined.
    Line,
    /// Each for itself, as what was measured.
    Dots,
}

/// Points with a name.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) shape: Shape,
    /// Of which colour; each its own where nothing is said.
    pub(super) colour: Option<usize>,
    /// By rising x.
    pub(super) points: Vec<(f64, f64)>,
}

impl Line {
    pub(super) fn new(name: &str, points: Vec<(f64, f64)>) -> Self {
        Self::of(name, Shape::Line, points)
    }

    pub(super) fn dots(name: &str, points: Vec<(f64, f64)>) -> Self {
        Self::of(name, Shape::Dots, points)
    }

    /// The same, of a colour that others may have, too.
    pub(super) fn coloured(self, colour: usize) -> Self {
        Self { colour: Some(colour), ..self }
    }

    fn of(name: &str, shape: Shape, mut points: Vec<(f64, f64)>) -> Self {
        points.retain(|(x, y)| x.is_finite() && y.is_finite());
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Self { name: name.to_owned(), shape, colour: None, points }
    }
}

/// One plot.
#[derive(Clone, Debug)]
pub(super) struct Chart {
    pub(super) title: String,
    /// What is on the horizontal axis.
    pub(super) across: String,
    pub(super) x: DisplayUnit,
    pub(super) y: DisplayUnit,
    /// As far up as many times more.
    pub(super) is_log: bool,
    pub(super) lines: Vec<Line>,
}

/// Times that differ by more than this factor want a logarithmic axis.
const WIDE: f64 = 50.0;

/// A share below this is a line on the axis.
const UNSEEN: f64 = 1e-9;

impl Chart {
    /// The same, with the axis that suits its values.
    pub(super) fn with_scale(mut self) -> Self {
        let (low, high) = self.range();
        self.is_log = matches!(self.y, DisplayUnit::Micros | DisplayUnit::Seconds) && low > 0.0 && high > WIDE * low;
        self
    }

    /// The lowest and the highest value.
    pub(super) fn range(&self) -> (f64, f64) {
        self.points().fold((f64::INFINITY, 0.0), |(low, high), (_, y)| (f64::min(low, y), f64::max(high, y)))
    }

    /// Where the horizontal axis begins and ends.
    pub(super) fn extent(&self) -> (f64, f64) {
        let (first, last) =
            self.points().fold((f64::INFINITY, 0.0), |(low, high), (x, _)| (f64::min(low, x), f64::max(high, x)));
        // Loads are read from zero, where that costs little room.
        let first = if first < 0.5 * last { 0.0 } else { first };
        if first < last { (first, last) } else { (0.0, last.max(1.0)) }
    }

    /// Whether there is nothing to see.
    pub(super) fn is_empty(&self) -> bool {
        let least = if self.y == DisplayUnit::Share { UNSEEN } else { 0.0 };
        !self.points().any(|(_, y)| y > least)
    }

    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.lines.iter().flat_map(|line| line.points.iter().copied())
    }
}
