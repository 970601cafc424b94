//! Plots as data, independent of the drawing backend.

use super::unit::DisplayUnit;

/// Display of points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Connected by a line.
    Line,
    /// Separate points, for measurements.
    Dots,
}

/// A named series of points.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) shape: Shape,
    /// Colour index; by default each series has its own.
    pub(crate) colour: Option<usize>,
    /// Points in order of rising x.
    pub(crate) points: Vec<(f64, f64)>,
}

impl Line {
    pub(crate) fn new(name: &str, points: Vec<(f64, f64)>) -> Self {
        Self::of(name, Shape::Line, points)
    }

    pub(crate) fn dots(name: &str, points: Vec<(f64, f64)>) -> Self {
        Self::of(name, Shape::Dots, points)
    }

    /// Sets a colour, which several series may share.
    pub(crate) fn coloured(self, colour: usize) -> Self {
        Self { colour: Some(colour), ..self }
    }

    fn of(name: &str, shape: Shape, mut points: Vec<(f64, f64)>) -> Self {
        points.retain(|(x, y)| x.is_finite() && y.is_finite());
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Self { name: name.to_owned(), shape, colour: None, points }
    }
}

/// A plot.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    pub(crate) title: String,
    /// Label of the horizontal axis.
    pub(crate) across: String,
    pub(crate) x: DisplayUnit,
    pub(crate) y: DisplayUnit,
    /// Whether the vertical axis is logarithmic.
    pub(crate) is_log: bool,
    /// Whether the horizontal axis is logarithmic; then every x must be above zero.
    pub(crate) is_across_log: bool,
    pub(crate) lines: Vec<Line>,
}

/// Ratio of times above which the axis is logarithmic.
const WIDE: f64 = 50.0;

/// Share below which a line coincides with the axis.
const UNSEEN: f64 = 1e-9;

impl Chart {
    /// Sets the axis scale that suits the values.
    pub(crate) fn with_scale(mut self) -> Self {
        let (low, high) = self.range();
        self.is_log = matches!(self.y, DisplayUnit::Micros | DisplayUnit::Seconds) && low > 0.0 && high > WIDE * low;
        self
    }

    /// Returns the lowest and the highest value.
    pub(crate) fn range(&self) -> (f64, f64) {
        self.points().fold((f64::INFINITY, 0.0), |(low, high), (_, y)| (f64::min(low, y), f64::max(high, y)))
    }

    /// Returns the limits of the horizontal axis.
    pub(crate) fn extent(&self) -> (f64, f64) {
        let (first, last) =
            self.points().fold((f64::INFINITY, 0.0), |(low, high), (x, _)| (f64::min(low, x), f64::max(high, x)));
        // The axis starts at zero if that costs little space.
        let first = if first < 0.5 * last && !self.is_across_log { 0.0 } else { first };
        if first < last { (first, last) } else { (0.0, last.max(1.0)) }
    }

    /// Whether there is nothing to plot.
    pub(crate) fn is_empty(&self) -> bool {
        let least = if self.y == DisplayUnit::Share { UNSEEN } else { 0.0 };
        !self.points().any(|(_, y)| y > least)
    }

    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.lines.iter().flat_map(|line| line.points.iter().copied())
    }
}
