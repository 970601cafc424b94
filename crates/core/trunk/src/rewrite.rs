//! Rewriting of telephone numbers.

/// Maximum number of digits of an international number (ITU-T E.164 §6.1).
const MAX_E164_DIGITS: usize = 15;
/// Minimum length of a subscriber number in a country without a national prefix. Shorter numbers are short codes
/// (112, 116117) and stay unchanged.
const MIN_SUBSCRIBER_DIGITS: usize = 7;

/// Rewriting of the telephone number in the user part of a SIP URI or after `tel:`. In this order: strip leading
/// characters (a plus counts), add a prefix (replacing a plus), convert to E.164.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumberRewrite {
    /// Number of characters to strip. Numbers that are not longer stay unchanged.
    pub strip: u8,
    /// Prefix to add.
    pub prefix: Box<[u8]>,
    /// Rule that converts to E.164.
    pub e164: Option<CountryRule>,
}

/// Dialling rules of one country.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountryRule {
    /// Country code, in digits.
    pub country: Box<[u8]>,
    /// Prefix before an area code; empty if there is none.
    pub national_prefix: Box<[u8]>,
    /// Prefix before a country code.
    pub international_prefix: Box<[u8]>,
    /// Whether the result starts with `+`.
    pub plus: bool,
}

impl CountryRule {
    /// Creates the rule for `country` with the most common prefixes.
    #[must_use]
    pub fn new(country: impl Into<Box<[u8]>>) -> Self {
        let (national_prefix, international_prefix) = (b"0"[..].into(), b"00"[..].into());
        Self { country: country.into(), national_prefix, international_prefix, plus: true }
    }

    /// Returns the international number, or `None` if the rule does not apply.
    fn apply(&self, number: &[u8]) -> Option<Vec<u8>> {
        let plus: &[u8] = if self.plus { b"+" } else { b"" };
        // No country code starts with 0.
        let behind = |prefix: &[u8]| number.strip_prefix(prefix).filter(|rest| !matches!(rest, [] | [b'0', ..]));
        let world = if let Some(digits) = behind(b"+") {
            [plus, digits].concat()
        } else if !self.international_prefix.is_empty()
            && let Some(digits) = behind(&self.international_prefix)
        {
            [plus, digits].concat()
        } else if self.national_prefix.is_empty() {
            if number.starts_with(b"+") || number.len() < MIN_SUBSCRIBER_DIGITS {
                return None;
            }
            [plus, &*self.country, number].concat()
        } else {
            [plus, &*self.country, behind(&self.national_prefix)?].concat()
        };
        (world.len().saturating_sub(plus.len()) <= MAX_E164_DIGITS).then_some(world)
    }
}

impl NumberRewrite {
    /// Appends the rewritten `user` to `out` and returns whether it changed. Anything that is no telephone number (a
    /// name, a code with `*` or `#`) is appended unchanged. `user` may have telephone number parameters after a
    /// semicolon; they are kept, except `phone-context`, which a global number must not have (RFC 3966 §5.1.5).
    pub fn apply(&self, user: &[u8], out: &mut Vec<u8>) -> bool {
        let (text, params) = match user.iter().position(|byte| *byte == b';') {
            Some(at) => user.split_at_checked(at).unwrap_or((user, b"")),
            None => (user, &b""[..]),
        };
        match digits_of(text).and_then(|number| self.rewritten(&number)) {
            Some(number) if *number != *text => {
                out.extend_from_slice(&number);
                write_params(params, number.starts_with(b"+"), out);
                true
            }
            _ => {
                out.extend_from_slice(user);
                false
            }
        }
    }

    fn rewritten(&self, number: &[u8]) -> Option<Vec<u8>> {
        let strip = usize::from(self.strip);
        let rest = number.get(strip..).filter(|rest| !rest.is_empty())?;
        // A prefix replaces the plus: 00 before +49 is 0049.
        let rest = if self.prefix.is_empty() { rest } else { rest.strip_prefix(b"+").unwrap_or(rest) };
        let number = [&*self.prefix, rest].concat();
        Some(self.e164.as_ref().and_then(|rule| rule.apply(&number)).unwrap_or(number))
    }
}

/// Returns the number without visual separators, or `None` if `text` is no number.
fn digits_of(text: &[u8]) -> Option<Vec<u8>> {
    let (plus, rest): (&[u8], &[u8]) = match text {
        [b'+', rest @ ..] | [b'%', b'2', b'B' | b'b', rest @ ..] => (b"+", rest),
        _ => (b"", text),
    };
    let mut number = plus.to_vec();
    for byte in rest {
        match byte {
            b'0'..=b'9' => number.push(*byte),
            b'-' | b'.' | b'(' | b')' => {}
            _ => return None,
        }
    }
    // A name may consist of dashes and dots only.
    (number.len() > plus.len()).then_some(number)
}

fn write_params(params: &[u8], is_global: bool, out: &mut Vec<u8>) {
    for param in params.split(|byte| *byte == b';').skip(1) {
        let name = param.split(|byte| *byte == b'=').next().unwrap_or_default();
        if !(is_global && name.eq_ignore_ascii_case(b"phone-context")) {
            out.push(b';');
            out.extend_from_slice(param);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn apply(rewrite: &NumberRewrite, user: &str) -> String {
        let mut out = Vec::new();
        let changed = rewrite.apply(user.as_bytes(), &mut out);
        let out = String::from_utf8(out).expect("ASCII");
        assert_eq!(changed, out != user);
        out
    }

    fn german() -> NumberRewrite {
        NumberRewrite { e164: Some(CountryRule::new(*b"49")), ..NumberRewrite::default() }
    }

    #[test]
    fn numbers_become_e164() {
        for (dialled, expected) in [
            ("030123456", "+4930123456"),
            ("0043123456", "+43123456"),
            ("+43123456", "+43123456"),
            ("%2B43123456", "+43123456"),
            ("+49-(30)-123.456", "+4930123456"),
            ("030-123;ext=5;phone-context=+49", "+4930123;ext=5"),
            ("112", "112"),
            ("123456", "123456"),
            ("000123", "000123"),
            ("0", "0"),
            ("00", "00"),
            ("+0123", "+0123"),
            ("0123456789012345678", "0123456789012345678"),
            ("alice", "alice"),
            ("*21#", "*21#"),
            ("-.-", "-.-"),
            ("", ""),
            ("4930x", "4930x"),
        ] {
            assert_eq!(apply(&german(), dialled), expected, "{dialled}");
        }
    }

    #[test]
    fn a_country_without_a_national_prefix_keeps_its_short_codes() {
        let rule = CountryRule { national_prefix: Box::default(), ..CountryRule::new(*b"45") };
        let danish = NumberRewrite { e164: Some(CountryRule { plus: false, ..rule }), ..NumberRewrite::default() };
        for (dialled, expected) in
            [("33221100", "4533221100"), ("112", "112"), ("0046123", "46123"), ("+46123", "46123")]
        {
            assert_eq!(apply(&danish, dialled), expected, "{dialled}");
        }
    }

    #[test]
    fn first_strip_then_prefix_then_e164() {
        let dial_out = NumberRewrite { strip: 1, ..german() };
        assert_eq!(apply(&dial_out, "9030123456"), "+4930123456");
        assert_eq!(apply(&dial_out, "9"), "9");
        let local = NumberRewrite { prefix: (*b"030").into(), ..german() };
        assert_eq!(apply(&local, "123456"), "+4930123456");
        let carrier = NumberRewrite { strip: 1, prefix: (*b"00").into(), e164: None };
        assert_eq!(apply(&carrier, "+4930123"), "004930123");
        assert_eq!(apply(&carrier, "bob"), "bob");
    }

    fn rule() -> impl Strategy<Value = NumberRewrite> {
        let country = ("[1-9][0-9]{0,2}", "0?|1", "00|011|", any::<bool>()).prop_map(
            |(country, national, international, plus)| CountryRule {
                country: country.into_bytes().into(),
                national_prefix: national.into_bytes().into(),
                international_prefix: international.into_bytes().into(),
                plus,
            },
        );
        (0..4_u8, "[+]?[0-9]{0,3}", proptest::option::of(country)).prop_map(|(strip, prefix, e164)| NumberRewrite {
            strip,
            prefix: prefix.into_bytes().into(),
            e164,
        })
    }

    proptest! {
        /// Anything with a character that numbers do not have is no number.
        #[test]
        fn names_are_unchanged(rewrite in rule(), name in "[0-9]{0,4}[a-zA-Z_*#!~]{1,3}[0-9.-]{0,4}(;x=y)?") {
            prop_assert_eq!(apply(&rewrite, &name), name);
        }

        /// A number stays a number under any rule: at least one digit, with at most a leading plus.
        #[test]
        fn a_number_stays_a_number(rewrite in rule(), number in "[+]?[0-9()-]{0,5}[0-9]{1,12}") {
            let out = apply(&NumberRewrite { prefix: rewrite.prefix.iter().copied().filter(u8::is_ascii_digit).collect(), ..rewrite }, &number);
            let digits = out.trim_start_matches('+');
            prop_assert!(!digits.is_empty());
            prop_assert!(digits.bytes().all(|byte| byte.is_ascii_digit() || b"()-+".contains(&byte)), "{}", out);
        }

        /// Converting an international number again does not change it.
        #[test]
        fn e164_is_idempotent(number in "[+]?[0-9]{1,16}", national in "0?") {
            let rule = CountryRule { national_prefix: national.into_bytes().into(), ..CountryRule::new(*b"49") };
            let rewrite = NumberRewrite { e164: Some(rule), ..NumberRewrite::default() };
            let once = apply(&rewrite, &number);
            prop_assert_eq!(apply(&rewrite, &once), once);
        }

        /// Visual separators make no difference.
        #[test]
        fn separators_are_ignored(rewrite in rule(), parts in proptest::collection::vec("[0-9]{1,4}", 1..4)) {
            let plain = parts.concat();
            let out = apply(&rewrite, &plain);
            let divided = apply(&rewrite, &parts.join("-"));
            prop_assert!(divided == out || divided == parts.join("-"), "{} {}", divided, out);
        }
    }
}
