//! Overload feedback between servers as Via parameters (RFC 7339 §4, RFC 7415 §3.2).

use core::fmt;

/// How a client reduces its traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// By a share of the requests (RFC 7339 §7). Every client supports it.
    #[default]
    Loss,
    /// To a number of requests per second (RFC 7415).
    Rate,
}

impl Algorithm {
    /// Returns the token of `oc-algo`.
    #[must_use]
    pub const fn token(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::Rate => "rate",
        }
    }

    /// Returns the first supported algorithm of `list`, the raw value of `oc-algo`. Without a list that is loss.
    ///
    /// Returns `None` if no algorithm of the list is supported.
    #[must_use]
    pub fn choose(list: Option<&[u8]>) -> Option<Self> {
        let Some(list) = list else { return Some(Self::Loss) };
        let list = list.strip_prefix(b"\"").and_then(|list| list.strip_suffix(b"\"")).unwrap_or(list);
        list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).find_map(|token| {
            [Self::Loss, Self::Rate].into_iter().find(|known| token.eq_ignore_ascii_case(known.token().as_bytes()))
        })
    }
}

/// A server's request to the client whose Via carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feedback {
    /// How the client reduces its traffic.
    pub algorithm: Algorithm,
    /// `oc`: percentage of requests not to send, or requests per second allowed.
    pub value: u32,
    /// `oc-validity` in milliseconds; 0 ends the reduction.
    pub validity_ms: u64,
    /// `oc-seq` in hundred-thousandths, the smallest step of its grammar. `None` if absent.
    pub seq: Option<u64>,
}

/// Default of `oc-validity`, in milliseconds (RFC 7339 §4.3).
const DEFAULT_VALIDITY_MS: u64 = 500;
/// Steps of `oc-seq` per unit: its fraction has at most five digits.
const SEQ_STEPS: u64 = 100_000;
/// Maximum integer part of `oc-seq`: twelve digits.
const MAX_SEQ: u64 = 999_999_999_999;

impl Feedback {
    /// Parses Via parameters given as names and values. Returns `None` if they contain no feedback, or invalid
    /// feedback.
    pub fn read<'a>(params: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>) -> Option<Self> {
        let (mut value, mut algorithms, mut validity, mut seq) = (None, None, None, None);
        for (name, given) in params {
            let is = |wanted: &str| name.eq_ignore_ascii_case(wanted.as_bytes());
            match given {
                Some(given) if is("oc") => value = Some(number(given)?),
                Some(given) if is("oc-algo") => algorithms = Some(given),
                Some(given) if is("oc-validity") => validity = Some(number(given)?),
                Some(given) if is("oc-seq") => seq = Some(sequence(given)?),
                _ => {}
            }
        }
        //= rfc7339#4.3
        // Without "oc", a validity other than 0 is discarded.
        let value = match (value, validity) {
            (Some(value), _) => value,
            (None, Some(0)) => 0,
            (None, _) => return None,
        };
        let algorithm = Algorithm::choose(algorithms)?;
        let validity_ms = validity.unwrap_or(DEFAULT_VALIDITY_MS);
        //= rfc7339#7.1
        // A loss share is from 0 to 100.
        let is_sound = algorithm == Algorithm::Rate || value <= 100 || validity_ms == 0;
        let value = u32::try_from(value).unwrap_or(u32::MAX);
        is_sound.then_some(Self { algorithm, value, validity_ms, seq })
    }

    /// Whether a Via parameter is one that a server writes or updates.
    #[must_use]
    pub fn is_param(name: &[u8]) -> bool {
        [&b"oc"[..], b"oc-algo", b"oc-validity", b"oc-seq"].iter().any(|known| name.eq_ignore_ascii_case(known))
    }

    /// Whether it ends the reduction.
    #[must_use]
    pub const fn is_end(&self) -> bool {
        self.validity_ms == 0
    }
}

/// Formats the Via parameters, from the first semicolon on.
impl fmt::Display for Feedback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { algorithm, value, validity_ms, seq } = self;
        //= rfc7339#4.2
        // The server returns exactly one algorithm.
        write!(f, ";oc={value};oc-algo=\"{}\";oc-validity={validity_ms}", algorithm.token())?;
        match seq {
            //= rfc7339#4.4
            Some(seq) => write!(f, ";oc-seq={}.{:05}", seq / SEQ_STEPS % (MAX_SEQ + 1), seq % SEQ_STEPS),
            None => Ok(()),
        }
    }
}

/// Parses a number of digits only; saturates.
fn number(text: &[u8]) -> Option<u64> {
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    is_number
        .then(|| text.iter().fold(0_u64, |sum, digit| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'))))
}

/// Parses the value of `oc-seq`; the fraction is optional.
fn sequence(text: &[u8]) -> Option<u64> {
    let mut parts = text.splitn(2, |byte| *byte == b'.');
    let whole = number(parts.next()?)?.min(MAX_SEQ);
    let fraction = match parts.next() {
        Some(digits) => {
            let steps = number(digits)?;
            let missing = 5_u32.checked_sub(u32::try_from(digits.len()).ok()?)?;
            steps.saturating_mul(10_u64.pow(missing))
        }
        None => 0,
    };
    Some(whole.saturating_mul(SEQ_STEPS).saturating_add(fraction))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Feedback> {
        Feedback::read(text.split(';').filter(|param| !param.is_empty()).map(|param| match param.split_once('=') {
            Some((name, value)) => (name.as_bytes(), Some(value.as_bytes())),
            None => (param.as_bytes(), None),
        }))
    }

    #[test]
    fn feedback_round_trips() {
        let feedback =
            Feedback { algorithm: Algorithm::Rate, value: 150, validity_ms: 1_000, seq: Some(12_345_678_901) };
        assert_eq!(feedback.to_string(), ";oc=150;oc-algo=\"rate\";oc-validity=1000;oc-seq=123456.78901");
        assert_eq!(read(&feedback.to_string()), Some(feedback));
        let example =
            read(";branch=z9;received=192.0.2.111;oc=20;oc-algo=\"loss\";oc-validity=500;oc-seq=1282321615.782");
        let seq = Some(128_232_161_578_200);
        assert_eq!(example, Some(Feedback { algorithm: Algorithm::Loss, value: 20, validity_ms: 500, seq }));
    }

    #[test]
    fn an_echoed_offer_is_no_feedback() {
        assert_eq!(read(";branch=z9;oc;oc-algo=\"loss,rate\""), None);
        assert_eq!(read(";oc-validity=500;oc-seq=1.1"), None, "a validity without a value");
        assert!(read(";oc-validity=0;oc-seq=1.1").is_some_and(|feedback| feedback.is_end()));
        assert_eq!(
            read(";oc=10").map(|feedback| (feedback.algorithm, feedback.validity_ms)),
            Some((Algorithm::Loss, 500))
        );
    }

    #[test]
    fn invalid_feedback_is_ignored() {
        for bad in [
            "oc=101",
            "oc=",
            "oc=-1",
            "oc=1;oc-algo=\"A\"",
            "oc=1;oc-seq=1.123456",
            "oc=1;oc-validity=x",
            "oc=1;oc-seq=a",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
        assert_eq!(read("oc=99999999999999999999;oc-algo=\"rate\"").map(|feedback| feedback.value), Some(u32::MAX));
    }

    #[test]
    fn the_first_known_algorithm_is_chosen() {
        for (list, chosen) in [
            (&b"\"loss,rate\""[..], Some(Algorithm::Loss)),
            (b"\"A, RATE,loss\"", Some(Algorithm::Rate)),
            (b"loss", Some(Algorithm::Loss)),
            (b"\"A\"", None),
            (b"\"\"", None),
        ] {
            assert_eq!(Algorithm::choose(Some(list)), chosen);
        }
    }
}
