//! Header field names, long and compact (RFC 3261 §7.3.3 and §20, and the supported extensions).

use crate::text;

macro_rules! header_names {
    ($($variant:ident $long:literal $($compact:literal)?;)*) => {
        /// The name of a header field that the server uses.
        // 16 bits wide, so that `Field` has no padding and is written by few instructions.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum HeaderName {
            $(#[doc = concat!("`", $long, "`")] $variant,)*
            /// A field that the server only forwards.
            Other,
        }

        impl HeaderName {
            /// Returns the long form.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $long,)*
                    Self::Other => "",
                }
            }

            fn from_long(name: &[u8]) -> Self {
                let found = slot(name).and_then(|slot| SLOTS.get(slot)).copied().unwrap_or(Self::Other);
                let long = found.as_str().as_bytes();
                // Fast path: the name is usually spelled as in the RFC.
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
            /// Number of names, including [`Other`](Self::Other).
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
    SessionExpires "Session-Expires" b'x';
    ResourcePriority "Resource-Priority";
}

/// A set of header names.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeaderSet(u64);

impl HeaderSet {
    /// Returns the set of one name.
    #[inline(always)]
    #[must_use]
    pub const fn of(name: HeaderName) -> Self {
        const { assert!(HeaderName::COUNT <= 64, "a set has a bit for each name") };
        Self(1 << name as u32)
    }

    /// Returns the union.
    #[inline(always)]
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether `name` is in the set.
    #[inline(always)]
    #[must_use]
    pub const fn contains(self, name: HeaderName) -> bool {
        self.intersects(Self::of(name))
    }

    /// Number of names in the set.
    #[inline(always)]
    pub(crate) const fn count(self) -> u32 {
        self.0.count_ones()
    }

    #[inline(always)]
    pub(crate) const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    #[inline(always)]
    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    #[inline(always)]
    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the sets have a name in common.
    #[inline(always)]
    pub(crate) const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// Common names that the server only forwards. Recognizing them is faster than checking that they are tokens.
const CARRIED: &[&str] = &[
    "Accept-Encoding",
    "Accept-Language",
    "Allow-Events",
    "Content-Disposition",
    "Min-SE",
    "Organization",
    "Privacy",
    "Reason",
    "Refer-To",
    "Referred-By",
    "Subject",
];

/// Each long name at its [`slot`].
static SLOTS: [HeaderName; 256] = slots();

#[expect(clippy::indexing_slicing, clippy::panic, reason = "evaluated at compile time")]
const fn slots() -> [HeaderName; 256] {
    let mut slots = [HeaderName::Other; 256];
    let mut rest = ALL;
    while let [(name, long), tail @ ..] = rest {
        let Some(slot) = slot(long.as_bytes()) else { panic!("a long name has two letters") };
        assert!(matches!(slots[slot], HeaderName::Other), "two names in one slot: choose another factor in slot()");
        slots[slot] = *name;
        rest = tail;
    }
    slots
}

/// Hashes the length and two letters to a number below 256, which is unique for each known name and ignores case.
#[inline]
const fn slot(name: &[u8]) -> Option<usize> {
    let [first, .., last] = name else { return None };
    let (first, last) = ((*first | 0x20) as usize, (*last | 0x20) as usize);
    Some(first.wrapping_add(last.wrapping_mul(3)).wrapping_add(name.len().wrapping_mul(35)) & 255)
}

/// The start of a line: a long name in the RFC's spelling, a colon and a space. The first 16 bytes are compared as
/// one number, which is the fastest comparison.
#[derive(Clone, Copy)]
struct NamePrefix {
    number: u128,
    mask: u128,
    long: &'static [u8],
    /// Length in bytes, including the colon and the space.
    length: usize,
    name: HeaderName,
    /// Index of the next entry of [`BEGINNINGS`] with the same first four bytes, or [`NONE`].
    next: u8,
}

const BEGINNING_COUNT: usize = ALL.len().wrapping_add(CARRIED.len());
/// Marks the absence of an index into [`BEGINNINGS`].
const NONE: u8 = u8::MAX;

static TABLES: ([NamePrefix; BEGINNING_COUNT], [u8; 256]) = beginnings();
/// The known line starts.
static BEGINNINGS: &[NamePrefix; BEGINNING_COUNT] = &TABLES.0;
/// Index of the first entry for each [`beginning_slot`].
static FIRST_BEGINNING: &[u8; 256] = &TABLES.1;

#[expect(clippy::indexing_slicing, clippy::cast_possible_truncation, reason = "evaluated at compile time")]
const fn beginnings() -> ([NamePrefix; BEGINNING_COUNT], [u8; 256]) {
    let empty = NamePrefix { number: 0, mask: 0, long: &[], length: 0, name: HeaderName::Other, next: NONE };
    let (mut all, mut firsts) = ([empty; BEGINNING_COUNT], [NONE; 256]);
    let mut at = 0;
    while at < BEGINNING_COUNT {
        let (name, long) =
            if at < ALL.len() { ALL[at] } else { (HeaderName::Other, CARRIED[at.wrapping_sub(ALL.len())]) };
        let (number, mask) = number_and_mask(long.as_bytes());
        let length = long.len().wrapping_add(2);
        all[at] = NamePrefix { number, mask, long: long.as_bytes(), length, name, next: NONE };
        let first = &mut firsts[beginning_slot(number as u32)];
        if *first == NONE {
            *first = at as u8;
        } else {
            let mut last = *first as usize;
            assert!(all[last].number as u32 == number as u32, "choose another factor in beginning_slot()");
            while all[last].next != NONE {
                last = all[last].next as usize;
            }
            all[last].next = at as u8;
        }
        at = at.wrapping_add(1);
    }
    (all, firsts)
}

/// Returns up to 16 bytes of `long`, a colon and a space as a number, and the mask of those bytes.
#[expect(clippy::indexing_slicing, reason = "evaluated at compile time, within both lengths")]
const fn number_and_mask(long: &[u8]) -> (u128, u128) {
    let (mut bytes, mut mask) = ([0; 16], [0; 16]);
    let mut at = 0;
    while at < 16 && at < long.len().wrapping_add(2) {
        bytes[at] = match at.wrapping_sub(long.len()) {
            0 => b':',
            1 => b' ',
            _ => long[at],
        };
        mask[at] = u8::MAX;
        at = at.wrapping_add(1);
    }
    (u128::from_le_bytes(bytes), u128::from_le_bytes(mask))
}

/// Hashes the first four bytes of a known line start to a unique number below 256.
#[inline(always)]
const fn beginning_slot(four: u32) -> usize {
    (four.wrapping_mul(0xc386_bbc5) >> 24) as usize
}

impl HeaderName {
    /// Returns the name at the start of the line `text`, known or not, and what follows its colon and a space. `None`
    /// means only that the full parser must read the line.
    #[inline(always)]
    pub(crate) fn at_start(text: &[u8]) -> Option<(Self, &[u8])> {
        Self::known_at_start(text).or_else(|| if let [b'\r', ..] = text { None } else { Self::other_at_start(text) })
    }

    /// Like [`known_at_start`](Self::known_at_start), for a name that is unknown or spelled differently.
    #[inline(never)]
    fn other_at_start(text: &[u8]) -> Option<(Self, &[u8])> {
        match text::split_while(text, text::TOKEN) {
            (name @ [_, ..], [b':', b' ', behind @ ..] | [b':', behind @ ..]) => Some((Self::from_bytes(name), behind)),
            _ => None,
        }
    }

    /// Returns the known name at the start of `text`, if spelled like a [`NamePrefix`], and what follows it. `None`
    /// means only that the full parser must read the line.
    #[inline(always)]
    fn known_at_start(text: &[u8]) -> Option<(Self, &[u8])> {
        let number = u128::from_le_bytes(*text.first_chunk()?);
        #[expect(clippy::cast_possible_truncation, reason = "the first four bytes")]
        let mut at = *FIRST_BEGINNING.get(beginning_slot(number as u32))?;
        loop {
            let known = BEGINNINGS.get(usize::from(at))?;
            if number & known.mask == known.number {
                let (beginning, behind) = text.split_at_checked(known.length)?;
                // Compare what lies past the first 16 bytes.
                let is_whole = known.length <= 16 || beginning.strip_prefix(known.long) == Some(b": ");
                return is_whole.then_some((known.name, behind));
            }
            at = known.next;
        }
    }

    /// Returns the field called `name`, in any case, long or compact.
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

    fn of_line(line: &str) -> Option<(HeaderName, &[u8])> {
        HeaderName::known_at_start(line.as_bytes())
    }

    #[test]
    fn every_name_is_known_in_any_case() {
        for (name, long) in ALL {
            assert_eq!(HeaderName::from_bytes(long.as_bytes()), *name);
            assert_eq!(HeaderName::from_bytes(long.to_uppercase().as_bytes()), *name);
            assert_eq!(name.as_str(), *long);
        }
        assert_eq!(HeaderName::from_bytes(b"V"), HeaderName::Via);
        for long in CARRIED {
            assert_eq!(HeaderName::from_bytes(long.as_bytes()), HeaderName::Other);
        }
        for (name, long) in ALL.iter().copied().chain(CARRIED.iter().map(|long| (HeaderName::Other, *long))) {
            let line = format!("{long}: : 0123456789abcdef");
            assert_eq!(of_line(&line), Some((name, &b": 0123456789abcdef"[..])), "{long}");
            assert_eq!(of_line(&line[..=long.len()]), None, "a line too short");
            for other in
                [format!("{long}:: 0123456789abcdef"), format!("{long} : 0123456789abcdef"), line.to_lowercase()]
            {
                assert_eq!(of_line(&other), None, "{other}");
            }
        }
        for line in [":ia: SIP/2.0/UDP", "VIA: SIP/2.0/UDP", "Vi\0: SIP/2.0/UDP", "x: SIP/2.0/UDP a", "Via: x"] {
            assert_eq!(of_line(line), None);
        }
        let compact = b"V:SIP/2.0/UDP a;";
        assert_eq!(HeaderName::at_start(compact), Some((HeaderName::Via, &b"SIP/2.0/UDP a;"[..])));
        assert_eq!(HeaderName::from_bytes(b"l"), HeaderName::ContentLength);
        assert_eq!(HeaderName::from_bytes(b"X-Any"), HeaderName::Other);
        assert_eq!(HeaderName::from_bytes(b"z"), HeaderName::Other);
    }

    proptest! {
        /// A name is recognized on a line exactly as it is alone.
        #[test]
        fn a_name_reads_alike_on_a_line(known in 0..ALL.len(), name in "[a-zA-Z-]{0,8}", take_known in any::<bool>()) {
            let name = if take_known { ALL[known].1 } else { &name };
            let line = format!("{name}: 0123456789abcdef");
            let read = HeaderName::at_start(line.as_bytes());
            prop_assert_eq!(read.map(|(read, _)| read), (!name.is_empty()).then(|| HeaderName::from_bytes(name.as_bytes())));
            prop_assert!(read.is_none_or(|(_, behind)| behind == b"0123456789abcdef"));
        }
    }
}
