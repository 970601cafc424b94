//! Header field names, long and compact (RFC 3261 §7.3.3 and §20, and the extensions that the server knows).

use crate::text;

macro_rules! header_names {
    ($($variant:ident $long:literal $($compact:literal)?;)*) => {
        /// A header field's name, where the server has a use for the field.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum HeaderName {
            $(#[doc = concat!("`", $long, "`")] $variant,)*
            /// A field that the server only carries.
            Other,
        }

        impl HeaderName {
            /// The long form.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $long,)*
                    Self::Other => "",
                }
            }

            fn from_long(name: &[u8]) -> Self {
                let found = slot(name).and_then(|slot| SLOTS.get(slot)).map_or(Self::Other, |slot| slot.name);
                let long = found.as_str().as_bytes();
                // Nearly always it is written as it stands in the RFC, and that is the faster comparison.
                if name == long || name.eq_ignore_ascii_case(long) { found } else { Self::Other }
            }

            fn from_compact(letter: u8) -> Self {
                match letter.to_ascii_lowercase() {
                    $($($compact => Self::$variant,)?)*
                    _ => Self::Other,
                }
            }
        }

        impl HeaderName {
            /// How many there are, [`Other`](Self::Other) among them.
            pub(crate) const COUNT: usize = Self::Other as usize + 1;
        }

        const ALL: &[(HeaderName, &str)] = &[$((HeaderName::$variant, $long),)*];
    };
}

header_names! {
    Via "Via" b'v';
    From "From" b'f';
    To "To" b't';
    CallId "Call-ID" b'i';
    CSeq "CSeq";
    MaxForwards "Max-Forwards";
    Contact "Contact" b'm';
    ContentLength "Content-Length" b'l';
    ContentType "Content-Type" b'c';
    Route "Route";
    RecordRoute "Record-Route";
    Authorization "Authorization";
    ProxyAuthorization "Proxy-Authorization";
    WwwAuthenticate "WWW-Authenticate";
    ProxyAuthenticate "Proxy-Authenticate";
    Expires "Expires";
    Allow "Allow";
    Supported "Supported" b'k';
    UserAgent "User-Agent";
    Accept "Accept";
    Require "Require";
    ProxyRequire "Proxy-Require";
    Unsupported "Unsupported";
    MinExpires "Min-Expires";
    RetryAfter "Retry-After";
    Server "Server";
    Date "Date";
    Timestamp "Timestamp";
    Path "Path";
    MaxBreadth "Max-Breadth";
    PAssertedIdentity "P-Asserted-Identity";
    PPreferredIdentity "P-Preferred-Identity";
    Warning "Warning";
    Event "Event" b'o';
}

/// Some of the names.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeaderSet(u64);

impl HeaderSet {
    #[inline(always)]
    pub(crate) const fn of(name: HeaderName) -> Self {
        const { assert!(HeaderName::COUNT <= 64, "a set has a bit for each name") };
        Self(1 << name as u32)
    }

    #[inline(always)]
    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether a name is in both.
    #[inline(always)]
    pub(crate) const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// A long name, and its letters as two numbers to compare with; none is equal to those of a name that is longer than 15.
#[derive(Clone, Copy)]
struct Slot {
    words: (u64, u64),
    name: HeaderName,
}

/// Each long name at its [`slot`].
static SLOTS: [Slot; 256] = slots();

#[expect(clippy::indexing_slicing, clippy::panic, reason = "evaluated at compile time")]
const fn slots() -> [Slot; 256] {
    let mut slots = [Slot { words: (u64::MAX, u64::MAX), name: HeaderName::Other }; 256];
    let mut rest = ALL;
    while let [(name, long), tail @ ..] = rest {
        let Some(slot) = slot(long.as_bytes()) else { panic!("a long name has two letters") };
        assert!(
            matches!(slots[slot].name, HeaderName::Other),
            "two names in one slot: choose another factor in slot()"
        );
        slots[slot].name = *name;
        if long.len() < 16 {
            slots[slot].words = words(long.as_bytes());
        }
        rest = tail;
    }
    slots
}

/// Up to 16 letters as two numbers.
#[expect(clippy::indexing_slicing, reason = "evaluated at compile time, within both lengths")]
const fn words(name: &[u8]) -> (u64, u64) {
    let mut both = [0; 16];
    let mut at = 0;
    while at < name.len() {
        both[at] = name[at];
        at = at.wrapping_add(1);
    }
    let both = u128::from_le_bytes(both);
    #[expect(clippy::cast_possible_truncation, reason = "it is cut in two")]
    (both as u64, (both >> 64) as u64)
}

/// A number below 256, of the length and two letters, that tells the known names apart in any case.
#[inline]
const fn slot(name: &[u8]) -> Option<usize> {
    let [first, .., last] = name else { return None };
    Some(slot_of(*first, *last, name.len()))
}

#[inline]
const fn slot_of(first: u8, last: u8, length: usize) -> usize {
    let (first, last) = ((first | 0x20) as usize, (last | 0x20) as usize);
    first.wrapping_add(last.wrapping_mul(3)).wrapping_add(length.wrapping_mul(35)) & 255
}

/// The high bit of the first byte of `word` that is a colon, and perhaps some behind it.
#[inline(always)]
const fn colons(word: u64) -> u64 {
    text::zeros(word ^ text::ONES.wrapping_mul(b':' as u64))
}

/// All bits of the bytes before the one whose high bit is the lowest of `marks`.
#[inline(always)]
const fn before_first(marks: u64) -> u64 {
    (marks ^ marks.wrapping_sub(1)) >> 8
}

impl HeaderName {
    /// The name with which `line` begins, known or not, and its length, where its colon stands behind it within 16 bytes.
    /// `None` says only that the line must be read the long way.
    #[inline(always)]
    pub(crate) fn at_start(line: &[u8; 16]) -> Option<(Self, usize)> {
        Self::of_line(line).or_else(|| Self::of_other_line(line))
    }

    /// As [`of_line`](Self::of_line), for a name that is not known, or is written otherwise.
    fn of_other_line(line: &[u8; 16]) -> Option<(Self, usize)> {
        match text::split_while(line, text::TOKEN) {
            (name @ [_, ..], [b':', ..]) => Some((Self::from_bytes(name), name.len())),
            _ => None,
        }
    }

    /// The known name with which `line` begins, written as it stands in the RFC and with its colon behind it, and its length.
    /// `None` says only that the line must be read the long way.
    #[inline(always)]
    pub(crate) fn of_line(line: &[u8; 16]) -> Option<(Self, usize)> {
        let (low, high) = text::halves(*line);
        let (words, last, length) = match colons(low) {
            0 => {
                let colons = colons(high);
                let bits = colons.trailing_zeros();
                if colons == 0 || bits == 7 {
                    return None;
                }
                let last = high.wrapping_shr(bits.wrapping_sub(15));
                ((low, high & before_first(colons)), last, (bits >> 3).wrapping_add(8))
            }
            colons => {
                let bits = colons.trailing_zeros();
                if bits <= 15 {
                    let name = Self::from_compact(low.to_le_bytes()[0]);
                    return (bits == 15 && name != Self::Other).then_some((name, 1));
                }
                ((low & before_first(colons), 0), low.wrapping_shr(bits.wrapping_sub(15)), bits >> 3)
            }
        };
        let length = length as usize;
        let slot = SLOTS.get(slot_of(low.to_le_bytes()[0], last.to_le_bytes()[0], length))?;
        (slot.words == words).then_some((slot.name, length))
    }

    /// The field that `name` names, in any case, long or compact.
    #[must_use]
    pub fn from_bytes(name: &[u8]) -> Self {
        match name {
            [letter] => Self::from_compact(*letter),
            _ => Self::from_long(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_name_is_known_in_any_case() {
        for (name, long) in ALL {
            assert_eq!(HeaderName::from_bytes(long.as_bytes()), *name);
            assert_eq!(HeaderName::from_bytes(long.to_uppercase().as_bytes()), *name);
            assert_eq!(name.as_str(), *long);
        }
        assert_eq!(HeaderName::from_bytes(b"V"), HeaderName::Via);
        for (name, long) in ALL {
            let line = format!("{long}:: 0123456789abcdef");
            let read = HeaderName::of_line(line.as_bytes().first_chunk().expect("long enough"));
            assert_eq!(read, (long.len() < 16).then_some((*name, long.len())), "{long}");
        }
        for line in
            [b":ia: SIP/2.0/UDP", b"VIA: SIP/2.0/UDP", b"Via : SIP/2.0/UD", b"Vi\0: SIP/2.0/UDP", b"x: SIP/2.0/UDP a"]
        {
            assert_eq!(HeaderName::of_line(line), None);
        }
        assert_eq!(HeaderName::of_line(b"V:SIP/2.0/UDP a;"), Some((HeaderName::Via, 1)));
        assert_eq!(HeaderName::from_bytes(b"l"), HeaderName::ContentLength);
        assert_eq!(HeaderName::from_bytes(b"X-Any"), HeaderName::Other);
        assert_eq!(HeaderName::from_bytes(b"z"), HeaderName::Other);
    }

    proptest! {
        /// A name is known on its line as it is known alone.
        #[test]
        fn a_name_on_its_line_is_the_name(known in 0..ALL.len(), name in "[a-zA-Z-]{0,8}", take_known in any::<bool>()) {
            let name = if take_known { ALL[known].1 } else { &name };
            let line = format!("{name}: 0123456789abcdef");
            if let Some((read, length)) = HeaderName::of_line(line.as_bytes().first_chunk().expect("long enough")) {
                prop_assert_eq!((read, length), (HeaderName::from_bytes(name.as_bytes()), name.len()));
            }
        }
    }
}
