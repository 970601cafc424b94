//! Header field names, long and compact (RFC 3261 §7.3.3 and §20, and the extensions that the server knows).

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
                let found = slot(name).and_then(|slot| SLOTS.get(slot)).copied().unwrap_or(Self::Other);
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

/// A number below 256, of the length and two letters, that tells the known names apart in any case.
#[inline]
const fn slot(name: &[u8]) -> Option<usize> {
    let [first, .., last] = name else { return None };
    let (first, last) = ((*first | 0x20) as usize, (*last | 0x20) as usize);
    Some(first.wrapping_add(last.wrapping_mul(3)).wrapping_add(name.len().wrapping_mul(35)) & 255)
}

impl HeaderName {
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

    #[test]
    fn every_name_is_known_in_any_case() {
        for (name, long) in ALL {
            assert_eq!(HeaderName::from_bytes(long.as_bytes()), *name);
            assert_eq!(HeaderName::from_bytes(long.to_uppercase().as_bytes()), *name);
            assert_eq!(name.as_str(), *long);
        }
        assert_eq!(HeaderName::from_bytes(b"V"), HeaderName::Via);
        assert_eq!(HeaderName::from_bytes(b"l"), HeaderName::ContentLength);
        assert_eq!(HeaderName::from_bytes(b"X-Any"), HeaderName::Other);
        assert_eq!(HeaderName::from_bytes(b"z"), HeaderName::Other);
    }
}
