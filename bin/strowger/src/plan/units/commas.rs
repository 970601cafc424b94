//! Commas in numbers. Here they separate values of a list; in other notations they separate thousands or decimals.
//! Ambiguous input is refused, because a plan for a wrong number looks valid.

use super::Unit;

/// Splits a list: `2,4,8`. With spaces or semicolons, the parts may contain commas.
pub(in crate::plan) fn values(unit: Unit, text: &str) -> Result<Vec<&str>, String> {
    for parted in [";", ", "] {
        if text.contains(parted) {
            return Ok(text.split(parted).collect());
        }
    }
    if is_grouped(text) || has_a_fraction(unit, text) {
        return Err(format!("{}, '{}' for a list", ways(unit, text), text.replace(',', ";")));
    }
    Ok(text.split(',').collect())
}

/// Returns why a number with a comma is invalid.
pub(in crate::plan) fn in_a_number(unit: Unit, text: &str) -> Option<String> {
    text.contains(',').then(|| ways(unit, text))
}

/// Returns the unambiguous spellings.
fn ways(unit: Unit, text: &str) -> String {
    let fraction = text.replace(',', ".");
    let one = text.replace(',', "");
    let is_fraction = unit == Unit::Share || text.starts_with('0') || !is_grouped(text);
    let is_one_comma = text.matches(',').count() == 1;
    let may_be_fraction = is_one_comma && unit != Unit::Count && !text.contains('.');
    let ways = match (is_fraction, may_be_fraction) {
        (true, _) if is_one_comma => format!("write {fraction} for one number"),
        (_, true) => {
            format!("write {one} or {} for one number, {fraction} for a fraction", text.replace(',', "_"))
        }
        _ => format!("write {one} or {} for one number", text.replace(',', "_")),
    };
    format!("'{text}' is ambiguous: {ways}")
}

/// Whether the commas may separate thousands, as in 4,800 or 2,000,000.5.
fn is_grouped(text: &str) -> bool {
    let mut parts = text.trim().split(',');
    let first = parts.next().unwrap_or_default().trim_start_matches('-');
    let rest: Vec<&str> = parts.collect();
    let Some((last, between)) = rest.split_last() else { return false };
    (1..=3).contains(&first.len())
        && digits(first) == first.len()
        && between.iter().all(|part| part.len() == 3 && digits(part) == 3)
        && digits(last) == 3
}

/// Whether a single comma may be a decimal comma, as in 0,15 or 1,5M. Excludes 2,4 for a count and 1000,2000 for a
/// rate.
fn has_a_fraction(unit: Unit, text: &str) -> bool {
    let Some((whole, rest)) = text.trim().split_once(',') else { return false };
    let fraction = digits(rest);
    let is_one_comma = !rest.contains(',');
    if !is_one_comma || whole.is_empty() || digits(whole) != whole.len() || fraction == 0 {
        return false;
    }
    let after = rest.get(fraction..).unwrap_or_default();
    if after.starts_with('.') {
        return false;
    }
    let has_unit = !after.is_empty();
    match unit {
        Unit::Count => has_unit,
        Unit::Rate => has_unit || whole == "0" || fraction <= 2,
        Unit::Number | Unit::Erlangs | Unit::Share | Unit::Time | Unit::Bytes | Unit::Bits => true,
    }
}

/// Returns the number of leading digits.
fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_parse() {
        for (unit, text, wanted) in [
            (Unit::Count, "2,4,8", vec!["2", "4", "8"]),
            (Unit::Count, "2,3", vec!["2", "3"]),
            (Unit::Count, "50,200,1000", vec!["50", "200", "1000"]),
            (Unit::Rate, "1000,2000", vec!["1000", "2000"]),
            (Unit::Rate, "4;800", vec!["4", "800"]),
            (Unit::Rate, "4, 800", vec!["4", "800"]),
            (Unit::Rate, "1k,2k", vec!["1k", "2k"]),
            (Unit::Bytes, "2GiB,4GiB", vec!["2GiB", "4GiB"]),
            (Unit::Share, "99%,99.9%", vec!["99%", "99.9%"]),
            (Unit::Number, "0.1,0.5", vec!["0.1", "0.5"]),
            (Unit::Number, "0;1", vec!["0", "1"]),
            (Unit::Number, "0,1,2", vec!["0", "1", "2"]),
            (Unit::Rate, "4800", vec!["4800"]),
        ] {
            assert_eq!(values(unit, text).as_ref(), Ok(&wanted), "{text}");
        }
    }

    #[test]
    fn ambiguous_commas_are_refused() {
        for (unit, text, wanted) in [
            (Unit::Rate, "4,800", "write 4800 or 4_800 for one number, 4.800 for a fraction, '4;800' for a list"),
            (Unit::Count, "4,800", "write 4800 or 4_800 for one number, '4;800' for a list"),
            (Unit::Count, "2,000,000", "write 2000000 or 2_000_000 for one number, '2;000;000' for a list"),
            (Unit::Count, "100,200,400", "'100;200;400' for a list"),
            (Unit::Rate, "16,667/s", "write 16667/s or 16_667/s for one number"),
            (Unit::Time, "1,234.5us", "write 1234.5us"),
            (Unit::Erlangs, "0,15", "write 0.15 for one number, '0;15' for a list"),
            (Unit::Number, "0,022", "write 0.022 for one number, '0;022' for a list"),
            (Unit::Share, "99,999%", "write 99.999% for one number, '99;999%' for a list"),
            (Unit::Share, "99,5%", "write 99.5% for one number"),
            (Unit::Count, "1,5M", "write 1.5M for one number, '1;5M' for a list"),
            (Unit::Rate, "1,5k", "write 1.5k for one number"),
            (Unit::Time, "1,5min", "write 1.5min for one number"),
        ] {
            let error = values(unit, text).expect_err(text);
            assert!(error.contains(&format!("'{text}' is ambiguous")) && error.contains(wanted), "{error}");
        }
        assert!(in_a_number(Unit::Rate, "1,000").is_some_and(|why| why.ends_with("1.000 for a fraction")));
        assert_eq!(in_a_number(Unit::Rate, "1000"), None);
    }
}
