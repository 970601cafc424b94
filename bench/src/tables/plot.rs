//! The plots: users per server, a sweep's share of a core, and the time of one operation in a growing table.

use std::path::Path;

use plotters::prelude::*;
use plotters::style::text_anchor::VPos;

use crate::plot::{COLOURS, Drawn, SIZE, centred, draw_axes, head};

/// A named group of bars.
pub struct Group {
    /// Name below the bars.
    pub name: String,
    /// Heights of the bars.
    pub bars: Vec<f64>,
}

/// Draws groups of up to three bars, with `names` in the legend.
///
/// # Errors
/// If the file cannot be written.
pub fn draw_bars(file: &Path, caption: &str, names: &[&str], groups: &[Group]) -> Drawn {
    let root = SVGBackend::new(file, SIZE).into_drawing_area();
    head(&root, caption, names.iter().copied().zip(COLOURS))?;
    let highest = groups.iter().flat_map(|group| &group.bars).copied().fold(1e-9, f64::max);
    let mut chart = draw_axes(&root, 64, (0.0..groups.len() as f64, 0.0..highest * 1.12), None, &short)?;
    for (index, group) in groups.iter().enumerate() {
        let width = 0.8 / group.bars.len().max(1) as f64;
        for (place, (height, colour)) in group.bars.iter().zip(COLOURS).enumerate() {
            let left = index as f64 + 0.1 + width * place as f64;
            let right = left + width * 0.92;
            chart.draw_series([Rectangle::new([(left, 0.0), (right, *height)], colour.filled())])?;
            let (x, y) = chart.plotting_area().map_coordinate(&(f64::midpoint(left, right), *height));
            root.draw(&Text::new(short(*height), (x, y - 3), centred(12, VPos::Bottom)))?;
        }
        let (x, y) = chart.plotting_area().map_coordinate(&(index as f64 + 0.5, 0.0));
        root.draw(&Text::new(group.name.clone(), (x, y + 8), centred(11, VPos::Top)))?;
    }
    root.present()?;
    Ok(())
}

/// Formats a value with few digits.
#[must_use]
pub fn short(value: f64) -> String {
    match value {
        _ if value >= 999.5e3 => format!("{:.2} M", value / 1e6),
        _ if value >= 9_995.0 => format!("{:.0} k", value / 1e3),
        _ if value >= 99.5 || value.fract().abs() < 1e-9 => format!("{value:.0}"),
        _ if value >= 0.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let short_ones = [0.0, 0.254, 1.25, 45.0, 312.4, 25_300.0, 4_321_000.0].map(short);
        assert_eq!(short_ones, ["0", "0.25", "1.2", "45", "312", "25 k", "4.32 M"]);
    }

    #[test]
    fn plots_are_small_and_labelled() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("bars.svg");
        let groups = [Group { name: "a".to_owned(), bars: vec![1.0, 2.0] }];
        draw_bars(&file, "Caption", &["one", "two"], &groups).expect("drawn");
        assert!(std::fs::read_to_string(file).expect("it is there").contains("two"));
    }
}
