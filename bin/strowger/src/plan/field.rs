//! Input and output numbers with name, unit and JSON key.

use serde_json::Value;

use super::numbers::Numbers;
use crate::plot::DisplayUnit;

/// An output number.
#[derive(Clone, Debug)]
pub(super) struct Field {
    /// JSON key.
    pub(super) key: &'static str,
    /// Name for people.
    pub(super) name: &'static str,
    /// Display unit.
    pub(super) show: DisplayUnit,
    /// Value; `None` if there is none, such as the wait of an unstable queue.
    pub(super) value: Option<f64>,
    /// Whether plots of a sweep include it.
    pub(super) is_drawn: bool,
    /// Text for people instead of the number.
    said: Option<String>,
}

impl Field {
    pub(super) fn new(key: &'static str, name: &'static str, show: DisplayUnit, value: impl Into<Option<f64>>) -> Self {
        let value = value.into().filter(|value| value.is_finite());
        Self { key, name, show, value, is_drawn: false, said: None }
    }

    /// Includes the field in plots.
    pub(super) fn drawn(self) -> Self {
        Self { is_drawn: true, ..self }
    }

    /// Sets the text for people.
    pub(super) fn said(self, words: impl Into<Option<String>>) -> Self {
        Self { said: words.into(), ..self }
    }

    pub(super) fn text(&self) -> String {
        if let (Some(_), Some(words)) = (self.value, &self.said) {
            return words.clone();
        }
        self.value.map_or_else(|| "–".to_owned(), |value| self.show.text(value))
    }

    pub(super) fn json(&self) -> Value {
        self.value.map_or(Value::Null, |value| self.show.json(value))
    }
}

/// An input, which may be swept.
#[derive(Clone, Debug)]
pub(super) struct Input<'a> {
    /// JSON key.
    pub(super) key: &'static str,
    /// Name for people.
    pub(super) name: &'static str,
    /// Display unit.
    pub(super) show: DisplayUnit,
    /// Its values.
    pub(super) numbers: &'a Numbers,
}

impl<'a> Input<'a> {
    pub(super) fn new(key: &'static str, name: &'static str, show: DisplayUnit, numbers: &'a Numbers) -> Self {
        Self { key, name, show, numbers }
    }
}

/// One value of each input, in SI units regardless of the key.
#[derive(Clone, Debug, Default)]
pub(super) struct InputPoint {
    values: Vec<(&'static str, f64)>,
    /// Total number of points.
    points: usize,
}

/// Maximum number of points for which expensive results are computed: each inverts a model, with about a thousand
/// evaluations.
const FEW: usize = 100;

impl InputPoint {
    /// Returns the value of an input; NaN for an unknown key, which models refuse.
    pub(super) fn of(&self, key: &str) -> f64 {
        self.values.iter().find(|(name, _)| *name == key).map_or(f64::NAN, |(_, value)| *value)
    }

    /// Whether there are few enough points for expensive results.
    pub(super) const fn is_one_of_few(&self) -> bool {
        self.points <= FEW
    }

    /// Returns the value as a count.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts were read as whole numbers")]
    pub(super) fn count(&self, key: &str) -> u32 {
        self.of(key).min(f64::from(u32::MAX)) as u32
    }

    /// Returns the value as a large count.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts were read as whole numbers")]
    pub(super) fn large(&self, key: &str) -> u64 {
        self.of(key).min(1e15) as u64
    }
}

/// Maximum number of points of a sweep.
const MOST: usize = 100_000;

/// Returns the Cartesian product of all input values; the last input changes fastest.
pub(super) fn points(inputs: &[Input<'_>]) -> Result<Vec<InputPoint>, String> {
    let count = inputs.iter().map(|input| input.numbers.all().len()).try_fold(1_usize, usize::checked_mul);
    let Some(count) = count.filter(|count| *count <= MOST) else {
        return Err(
            "the sweeps have more than 100,000 points in total; use wider steps, or sweep fewer values at once"
                .to_owned(),
        );
    };
    let mut points = vec![InputPoint { values: Vec::new(), points: count }];
    for input in inputs {
        let longer = |at: &InputPoint| {
            let at = at.values.clone();
            input.numbers.all().iter().map(move |value| {
                let mut values = at.clone();
                values.push((input.key, *value));
                InputPoint { values, points: count }
            })
        };
        points = points.iter().flat_map(longer).collect();
    }
    Ok(points)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plan::numbers::rates;

    #[test]
    fn sweeps_are_combined() {
        let (a, b) = (rates("1;2").expect("two"), rates("10..30/10").expect("three"));
        let inputs = [Input::new("a", "a", DisplayUnit::Rate, &a), Input::new("b", "b", DisplayUnit::Rate, &b)];
        let points = points(&inputs).expect("six");
        let seen: Vec<_> = points.iter().map(|at| (at.of("a"), at.of("b"))).collect();
        assert_eq!(seen, [(1.0, 10.0), (1.0, 20.0), (1.0, 30.0), (2.0, 10.0), (2.0, 20.0), (2.0, 30.0)]);
        assert!(points.iter().all(|at| at.of("c").is_nan()));
    }

    #[test]
    fn json_uses_the_unit_of_the_key() {
        assert_eq!(DisplayUnit::Micros.json(617.77e-6), json!(617.77));
        assert_eq!(DisplayUnit::Count.json(6.0), json!(6));
        assert_eq!(Field::new("wait_us", "wait", DisplayUnit::Micros, None).json(), Value::Null);
        assert_eq!(Field::new("rho", "ρ", DisplayUnit::Share, 0.1 + 0.2).json(), json!(0.3));
    }
}
