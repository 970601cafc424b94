//! SVG plots for a page. They use the page's colour variables, so they have a light and a dark form.

use std::fmt::Write as _;

/// Width and height of the drawing, and the margins around the plot: left, right, top, bottom.
const SIZE: (f64, f64) = (560.0, 240.0);
const MARGINS: (f64, f64, f64, f64) = (70.0, 28.0, 10.0, 30.0);

/// Kind of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Linear,
    Log,
    /// Shares (0 to 1) by the distance to 1 on a logarithmic scale: 0.9, 0.99 and 0.999 are equally spaced.
    Nines,
}

/// Mapping of values to positions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale {
    pub low: f64,
    pub high: f64,
    pub kind: Kind,
}

impl Scale {
    /// Creates a scale from zero to slightly above the highest value.
    pub(crate) fn from_zero(values: impl Iterator<Item = f64>) -> Self {
        let high = values.fold(0.0, f64::max);
        Self { low: 0.0, high: if high > 0.0 { (high * 1.08).min(f64::MAX) } else { 1.0 }, kind: Kind::Linear }
    }

    /// Creates a logarithmic scale around all values above zero.
    pub(crate) fn log(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = values
            .filter(|value| *value >= f64::MIN_POSITIVE)
            .fold((f64::INFINITY, 0.0), |(low, high), value| (f64::min(low, value), f64::max(high, value)));
        if low > high {
            return Self { low: 1.0, high: 10.0, kind: Kind::Log };
        }
        Self { low: (low / 1.15).max(f64::MIN_POSITIVE), high: (high * 1.15).min(f64::MAX), kind: Kind::Log }
    }

    /// Creates a scale from none to all but one of `count`.
    pub(crate) fn nines(count: u64) -> Self {
        Self { low: 0.0, high: 1.0 - 0.5 / super::format::float(count.max(5)), kind: Kind::Nines }
    }

    /// Returns the position of a value, 0 to 1.
    pub(crate) fn at(&self, value: f64) -> f64 {
        let place = match self.kind {
            Kind::Log => (value.max(self.low).ln() - self.low.ln()) / (self.high.ln() - self.low.ln()),
            Kind::Nines => (1.0 - value.clamp(0.0, self.high)).ln() / (1.0 - self.high).ln(),
            Kind::Linear => (value - self.low) / (self.high - self.low),
        };
        place.clamp(0.0, 1.0)
    }

    /// Returns about `count` round values within the scale.
    pub(crate) fn ticks(&self, count: f64) -> Vec<f64> {
        let inside = |value: &f64| (self.low..=self.high).contains(value);
        if self.kind == Kind::Nines {
            let shares = [0.0, 0.5, 0.9, 0.99, 0.999, 0.999_9, 0.999_99, 0.999_999];
            return shares.into_iter().filter(inside).collect();
        }
        if self.kind == Kind::Log {
            let decades = self.high.log10() - self.low.log10();
            let steps: &[f64] = if decades > 4.0 {
                &[1.0]
            } else if decades > 1.2 {
                &[1.0, 3.0]
            } else {
                &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0]
            };
            let mut decade = 10_f64.powf(self.low.log10().floor());
            let mut ticks = Vec::new();
            while decade > 0.0 && decade <= self.high && ticks.len() < 64 {
                ticks.extend(steps.iter().map(|step| step * decade).filter(inside));
                decade *= 10.0;
            }
            return ticks;
        }
        let rough = (self.high - self.low) / count;
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().find(|step| step * power >= rough).unwrap_or(10.0) * power;
        let first = (self.low / step).ceil();
        (0..64).map(|number| (first + f64::from(number)) * step).take_while(|tick| inside(tick)).collect()
    }
}

/// Shape of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Line,
    Dashed,
    /// Line with the area below it.
    Area,
    /// Bars from point to point; the last point only ends the bar before.
    Bars,
    /// Points only.
    Dots,
    /// Vertical bars, such as confidence intervals; each has two points.
    Spans,
}

/// One series.
#[derive(Clone, Debug)]
pub(crate) struct Series<'a> {
    pub name: &'a str,
    /// Number of a colour of the page: `--c1` and so on.
    pub colour: u8,
    pub shape: Shape,
    pub points: Vec<(f64, f64)>,
}

/// Marked value on the horizontal axis.
#[derive(Clone, Debug)]
pub(crate) struct Mark<'a> {
    pub name: &'a str,
    pub at: f64,
}

/// A plot.
#[derive(Clone, Debug)]
pub(crate) struct Plot<'a> {
    /// Description for readers who cannot see the plot.
    pub title: &'a str,
    pub x: Scale,
    pub y: Scale,
    pub x_text: fn(f64) -> String,
    pub y_text: fn(f64) -> String,
    pub series: Vec<Series<'a>>,
    pub marks: Vec<Mark<'a>>,
    /// Tooltips for ranges of the horizontal axis: from, to, text.
    pub tips: Vec<(f64, f64, String)>,
}

impl Plot<'_> {
    fn x_at(&self, value: f64) -> f64 {
        MARGINS.0 + self.x.at(value) * (SIZE.0 - MARGINS.0 - MARGINS.1)
    }

    fn y_at(&self, value: f64) -> f64 {
        SIZE.1 - MARGINS.3 - self.y.at(value) * (SIZE.1 - MARGINS.2 - MARGINS.3)
    }

    /// Returns the plot as SVG, with its legend above it.
    pub(crate) fn draw(&self) -> String {
        let mut svg = String::new();
        // Writing to a String cannot fail.
        svg.push_str("<div class=\"legend\">");
        for series in self.series.iter().filter(|series| !series.name.is_empty()) {
            let dash = if series.shape == Shape::Dashed { " dashed" } else { "" };
            let _ = write!(svg, "<span><i class=\"k{}{dash}\"></i>{}</span>", series.colour, escape(series.name));
        }
        svg.push_str("</div>");
        let (width, height) = SIZE;
        let title = escape(self.title);
        let _ = write!(svg, "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{title}\">");
        self.draw_axes(&mut svg);
        for series in &self.series {
            self.draw_series(&mut svg, series);
        }
        self.draw_marks(&mut svg);
        let (top, bottom) = (MARGINS.2, height - MARGINS.3);
        for (from, to, text) in &self.tips {
            let (left, right) = (self.x_at(*from), self.x_at(*to));
            let _ = write!(
                svg,
                "<rect class=\"tip\" x=\"{left:.1}\" y=\"{top}\" width=\"{:.1}\" height=\"{:.1}\"><title>{}</title></rect>",
                (right - left).max(0.5),
                bottom - top,
                escape(text)
            );
        }
        svg.push_str("</svg>");
        svg
    }

    fn draw_axes(&self, svg: &mut String) {
        let (left, right) = (MARGINS.0, SIZE.0 - MARGINS.1);
        let bottom = SIZE.1 - MARGINS.3;
        for tick in self.y.ticks(5.0) {
            let y = self.y_at(tick);
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"end\" x=\"{}\" y=\"{:.1}\">{}</text>",
                left - 8.0,
                y + 4.0,
                escape(&(self.y_text)(tick))
            );
        }
        for (index, tick) in self.x.ticks(7.0).into_iter().enumerate() {
            let x = self.x_at(tick);
            // If there is little room, every other label is enough.
            let is_alt = if self.x.kind == Kind::Nines { index == 0 } else { index % 2 == 1 };
            let alt = if is_alt { " alt" } else { "" };
            let _ = write!(
                svg,
                "<line class=\"tick\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{bottom}\" y2=\"{}\"/>\
                 <text class=\"mid{alt}\" x=\"{x:.1}\" y=\"{}\">{}</text>",
                bottom + 4.0,
                bottom + 17.0,
                escape(&(self.x_text)(tick))
            );
        }
        let _ = write!(svg, "<line class=\"axis\" x1=\"{left}\" x2=\"{right}\" y1=\"{bottom}\" y2=\"{bottom}\"/>");
    }

    fn draw_series(&self, svg: &mut String, series: &Series<'_>) {
        let (Some(first), Some(last)) = (series.points.first(), series.points.last()) else { return };
        match series.shape {
            Shape::Dots => return series.points.iter().for_each(|point| self.draw_dot(svg, series.colour, *point)),
            Shape::Spans => return self.draw_spans(svg, series),
            _ => {}
        }
        let floor = SIZE.1 - MARGINS.3;
        let mut path = String::new();
        for (index, (x, y)) in series.points.iter().enumerate() {
            let (x, y) = (self.x_at(*x), self.y_at(*y));
            let _ = match (series.shape, index) {
                (_, 0) => write!(path, "M{x:.1} {y:.1}"),
                (Shape::Bars, _) => write!(path, "H{x:.1}V{y:.1}"),
                _ => write!(path, "L{x:.1} {y:.1}"),
            };
        }
        let from = self.x_at(first.0);
        if matches!(series.shape, Shape::Area | Shape::Bars) {
            let _ = write!(svg, "<path class=\"fill k{}\" d=\"{path}V{floor:.1}H{from:.1}Z\"/>", series.colour);
        }
        if series.points.len() == 1 {
            return self.draw_dot(svg, series.colour, *last);
        }
        let dash = if series.shape == Shape::Dashed { " dashed" } else { "" };
        let _ = write!(svg, "<path class=\"line k{}{dash}\" d=\"{path}\"/>", series.colour);
    }

    fn draw_dot(&self, svg: &mut String, colour: u8, (x, y): (f64, f64)) {
        let (x, y) = (self.x_at(x), self.y_at(y));
        let _ = write!(svg, "<circle class=\"dot k{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>");
    }

    fn draw_spans(&self, svg: &mut String, series: &Series<'_>) {
        let mut path = String::new();
        for pair in series.points.chunks(2) {
            let [(x, low), (_, high)] = pair else { continue };
            let (x, low, high) = (self.x_at(*x), self.y_at(*low), self.y_at(*high));
            let (left, right) = (x - 4.0, x + 4.0);
            let _ =
                write!(path, "M{left:.1} {low:.1}H{right:.1}M{x:.1} {low:.1}V{high:.1}M{left:.1} {high:.1}H{right:.1}");
        }
        let _ = write!(svg, "<path class=\"line k{}\" d=\"{path}\"/>", series.colour);
    }

    /// Draws the marks, with names below each other where they would overlap.
    fn draw_marks(&self, svg: &mut String) {
        let (top, bottom) = (MARGINS.2, SIZE.1 - MARGINS.3);
        let (mut free, mut row) = (f64::NEG_INFINITY, 0.0);
        for mark in &self.marks {
            let x = self.x_at(mark.at);
            row = if x < free { row + 1.0 } else { 0.0 };
            free = x + 120.0;
            let is_right = x > SIZE.0 - 140.0;
            let (class, dx) = if is_right { ("end", -5.0) } else { ("start", 5.0) };
            let _ = write!(
                svg,
                "<line class=\"mark\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top}\" y2=\"{bottom}\"/>\
                 <text class=\"{class} strong\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                x + dx,
                top + 11.0 + 17.0 * row,
                escape(mark.name)
            );
        }
    }
}

/// Escapes a text for HTML, between tags or in an attribute.
pub(crate) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\n' | '\t' => safe.push(c),
            // Neither HTML nor XML allows them.
            c if c.is_control() => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        let linear = Scale::from_zero([930.0].into_iter());
        assert_eq!(linear.ticks(5.0), [0.0, 500.0, 1_000.0]);
        let close = Scale { low: 1.0, high: 3.0, kind: Kind::Linear };
        assert_eq!(close.ticks(5.0), [1.0, 1.5, 2.0, 2.5, 3.0]);
        let log = Scale { low: 80.0, high: 12_000.0, kind: Kind::Log };
        let ticks: Vec<_> = log.ticks(5.0).iter().map(|tick| tick.round()).collect();
        assert_eq!(ticks, [100.0, 300.0, 1_000.0, 3_000.0, 10_000.0]);
        assert!(Scale::log([5.0].into_iter()).ticks(5.0).iter().all(|tick| *tick > 0.0));
        assert!(!Scale::log([0.0].into_iter()).ticks(5.0).is_empty(), "nothing measured");
    }

    /// A report may contain any number.
    #[test]
    fn an_extreme_axis_has_finitely_many_ticks() {
        for values in
            [vec![5e-324], vec![5e-324, 1.0], vec![1e-310, f64::MAX], vec![f64::MAX], vec![0.0, f64::MIN_POSITIVE]]
        {
            for scale in [Scale::log(values.iter().copied()), Scale::from_zero(values.iter().copied())] {
                assert!(scale.low < scale.high && scale.high.is_finite(), "{scale:?}");
                assert!(scale.ticks(5.0).len() <= 70, "{scale:?}");
                assert!(values.iter().all(|value| (0.0..=1.0).contains(&scale.at(*value))), "{scale:?}");
            }
        }
    }

    #[test]
    fn positions_span_the_axis() {
        let log = Scale { low: 1.0, high: 100.0, kind: Kind::Log };
        assert_eq!((log.at(1.0), log.at(10.0), log.at(100.0), log.at(0.0)), (0.0, 0.5, 1.0, 0.0));
        let linear = Scale { low: 0.0, high: 50.0, kind: Kind::Linear };
        assert_eq!((linear.at(25.0), linear.at(99.0)), (0.5, 1.0));
        let nines = Scale::nines(400_000);
        assert_eq!((nines.at(0.0), nines.at(1.0)), (0.0, 1.0));
        assert!((nines.at(0.99) - 2.0 * nines.at(0.9)).abs() < 1e-6, "each nine is as wide");
        assert_eq!(nines.ticks(5.0).len(), 7);
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(escape("<a href=\"x\">&'\u{0}"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;\u{fffd}");
    }
}
