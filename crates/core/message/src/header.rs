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
                // As it is nearly always written, then in any case.
                match name {
                    $(name if name == $long.as_bytes() => Self::$variant,)*
                    $(name if name.len() == $long.len() && name.eq_ignore_ascii_case($long.as_bytes()) => Self::$variant,)*
                    _ => Self::Other,
                }
            }

            fn from_compact(letter: u8) -> Self {
                match letter.to_ascii_lowercase() {
                    $($($compact => Self::$variant,)?)*
                    _ => Self::Other,
                }
            }
        }

        #[cfg(test)]
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
