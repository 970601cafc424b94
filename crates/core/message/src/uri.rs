//! SIP, SIPS and TEL URIs: grammar and comparison (RFC 3261 §19.1.4).

use smallvec::SmallVec;

use crate::aor::Aor;
use crate::cursor::Cursor;
use crate::host::{Host, HostPort};
use crate::text::{self, HEADER, NAME, PARAM, TOKEN, URI, USER};
use crate::unescape::Unescape;

//= rfc5031#4.2
/// Whether a Request-URI is an emergency service URN: `urn:service:sos` or a subservice of it.
#[must_use]
pub fn is_emergency_service(uri: &[u8]) -> bool {
    const SOS: &[u8] = b"urn:service:sos";
    let Some((begin, rest)) = uri.split_at_checked(SOS.len()) else { return false };
    begin.eq_ignore_ascii_case(SOS) && matches!(rest, [] | [b'.', ..])
}

/// Largest number of parameters, and of headers, of a URI: comparing two URIs is quadratic in them.
const MAX_URI_PARTS: usize = 64;

/// A URI as in a request line or between angle brackets.
#[derive(Clone, Copy, Debug)]
pub enum Uri<'a> {
    /// `sip:` or `sips:`.
    Sip(SipUri<'a>),
    /// `tel:` (RFC 3966).
    Tel(TelUri<'a>),
    /// Another scheme, stored as written.
    Other {
        /// The scheme, without the colon.
        scheme: &'a [u8],
        /// The whole URI.
        text: &'a [u8],
    },
}

/// A `sip:` or `sips:` URI.
#[derive(Clone, Copy, Debug)]
pub struct SipUri<'a> {
    /// The whole URI as written.
    pub text: &'a [u8],
    /// Whether the scheme is `sips`.
    pub secure: bool,
    /// The user part as written, escapes included.
    pub user: Option<&'a [u8]>,
    /// The password as written.
    pub password: Option<&'a [u8]>,
    /// Host and port.
    pub host_port: HostPort<'a>,
    /// The URI parameters.
    pub params: UriParams<'a>,
    /// The part after `?`, without it.
    pub headers: Option<&'a [u8]>,
}

/// A `tel:` URI.
#[derive(Clone, Copy, Debug)]
pub struct TelUri<'a> {
    /// The whole URI as written.
    pub text: &'a [u8],
    /// The number as written, visual separators included.
    pub number: &'a [u8],
    /// The parameters.
    pub params: UriParams<'a>,
}

/// The parameters of a URI. Unlike header parameters they allow no whitespace and no quotes.
#[derive(Clone, Copy, Debug, Default)]
pub struct UriParams<'a> {
    text: &'a [u8],
}

impl<'a> UriParams<'a> {
    fn parse(text: &'a [u8]) -> Option<Self> {
        Self::read(text).filter(|(_, rest)| rest.is_empty()).map(|(params, _)| params)
    }

    /// Reads the parameters at the start of `text` and returns what follows them.
    #[inline]
    fn read(text: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (mut rest, mut left) = (text, MAX_URI_PARTS);
        while let [b';', param @ ..] = rest {
            left = left.checked_sub(1)?;
            let (name, behind) = text::split_escaped(param, PARAM);
            let (value, behind) = match behind {
                [b'=', value @ ..] => text::split_escaped(value, PARAM),
                _ => (name, behind),
            };
            if name.is_empty() || value.is_empty() {
                return None;
            }
            rest = behind;
        }
        Some((Self { text: text.get(..text.len().wrapping_sub(rest.len()))? }, rest))
    }

    /// The parameters as written, starting with the first semicolon.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.text
    }

    /// Returns names with values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> + use<'a> {
        self.text.split(|byte| *byte == b';').skip(1).map(|param| match memchr::memchr(b'=', param) {
            Some(at) => (param.get(..at).unwrap_or(param), param.get(at.saturating_add(1)..)),
            None => (param, None),
        })
    }

    /// Whether the parameter `name` is present, with or without a value.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// Returns the value of the parameter `name`.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&'a [u8]> {
        self.find(name)?
    }

    /// Returns the values of several parameters in one pass.
    #[must_use]
    pub fn values<const N: usize>(&self, names: [&str; N]) -> [Option<&'a [u8]>; N] {
        let mut values = [None; N];
        let mut seen = [false; N];
        let mut rest = self.text;
        while let [b';', behind @ ..] = rest {
            let (param, after) = behind.split_at_checked(param_end(behind)).unwrap_or((behind, &[]));
            rest = after;
            for ((wanted, seen), slot) in names.iter().zip(&mut seen).zip(&mut values) {
                // As everywhere, the first occurrence of a name counts.
                if !*seen
                    && let Some((name, value)) = param.split_at_checked(wanted.len())
                    && let [] | [b'=', ..] = value
                    && is_named(name, wanted)
                {
                    *seen = true;
                    *slot = value.strip_prefix(b"=");
                }
            }
        }
        values
    }

    /// Returns the first parameter `name`: its value, if it has one.
    fn find(&self, name: &str) -> Option<Option<&'a [u8]>> {
        let mut rest = self.text;
        while let [b';', behind @ ..] = rest {
            if let Some((begins, behind)) = behind.split_at_checked(name.len())
                && let [] | [b'=' | b';', ..] = behind
                && is_named(begins, name)
            {
                return Some(behind.strip_prefix(b"=").map(|value| value.get(..param_end(value)).unwrap_or(value)));
            }
            rest = behind.get(param_end(behind)..).unwrap_or(&[]);
        }
        None
    }
}

/// Whether a parameter's name is `wanted`. Compares exactly first, which is faster and usually enough.
fn is_named(name: &[u8], wanted: &str) -> bool {
    name == wanted.as_bytes() || name.eq_ignore_ascii_case(wanted.as_bytes())
}

/// Returns the end of the parameter at the start of `text`.
fn param_end(text: &[u8]) -> usize {
    text::find_near(text, b';').unwrap_or(text.len())
}

impl<'a> Uri<'a> {
    //= rfc3261#8.1.1.2:sip-scheme
    /// Parses a URI; it must be all of `text`.
    #[must_use]
    pub fn parse(text: &'a [u8]) -> Option<Self> {
        if let [b's', b'i', b'p', b':', rest @ ..] = text {
            return SipUri::parse_rest(text, false, rest).map(Self::Sip);
        }
        let mut cursor = Cursor::new(text);
        if cursor.eat_prefix(b"sip:") {
            return SipUri::parse_rest(text, false, cursor.rest()).map(Self::Sip);
        }
        if cursor.eat_prefix(b"sips:") {
            return SipUri::parse_rest(text, true, cursor.rest()).map(Self::Sip);
        }
        if cursor.eat_prefix(b"tel:") {
            return TelUri::parse_rest(text, cursor.rest()).map(Self::Tel);
        }
        let scheme = cursor.take_until(|byte| byte == b':');
        let plausible = scheme.first().is_some_and(u8::is_ascii_alphabetic)
            && scheme.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte))
            && cursor.eat(b':')
            && text::all(cursor.rest(), URI);
        plausible.then_some(Self::Other { scheme, text })
    }

    /// The URI as written.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        match self {
            Self::Sip(uri) => uri.text,
            Self::Tel(uri) => uri.text,
            Self::Other { text, .. } => text,
        }
    }

    /// Returns the SIP URI if this is one.
    #[must_use]
    pub const fn sip(&self) -> Option<&SipUri<'a>> {
        match self {
            Self::Sip(uri) => Some(uri),
            _ => None,
        }
    }

    /// Compares by RFC 3261 §19.1.4 (and RFC 3966 §4); other schemes compare byte for byte.
    #[must_use]
    pub fn same(&self, other: &Uri<'_>) -> bool {
        match (self, other) {
            (Self::Sip(a), Uri::Sip(b)) => a.same(b),
            (Self::Tel(a), Uri::Tel(b)) => a.same(b),
            (Self::Other { text: a, .. }, Uri::Other { text: b, .. }) => a == b,
            _ => false,
        }
    }
}

impl<'a> SipUri<'a> {
    /// Reads the URI at the start of `text`, if in the common form, and returns what follows it.
    #[inline]
    pub(crate) fn read_fast(text: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (b"sip:", rest) = text.split_first_chunk()? else { return None };
        Self::read_rest_fast(text, false, rest)
    }

    /// Parses what follows the scheme.
    fn parse_rest(text: &'a [u8], secure: bool, rest: &'a [u8]) -> Option<Self> {
        match Self::read_rest_fast(text, secure, rest) {
            Some((uri, [])) => Some(uri),
            _ => Self::parse_any(text, secure, rest),
        }
    }

    /// Reads a URI in the common form: an optional user without escapes and password, a host that is not an IPv6
    /// address, no headers. `text` starts with the URI, `rest` after its scheme. Returns what follows the URI. If
    /// what follows cannot belong to a URI, [`parse_any`](Self::parse_any) returns the same. A URI that is not read
    /// here may still be valid.
    #[inline]
    fn read_rest_fast(text: &'a [u8], secure: bool, rest: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (user, host) = match text::split_while(rest, USER) {
            (user @ [_, ..], [b'@', host @ ..]) => (Some(user), host),
            _ => (None, rest),
        };
        let (host_port, rest) = HostPort::read_fast(host)?;
        let (params, rest) = match rest {
            [b';', ..] => UriParams::read(rest)?,
            _ => (UriParams::default(), rest),
        };
        let text = text.get(..text.len().wrapping_sub(rest.len()))?;
        Some((Self { text, secure, user, password: None, host_port, params, headers: None }, rest))
    }

    /// Parses with the full grammar.
    fn parse_any(text: &'a [u8], secure: bool, rest: &'a [u8]) -> Option<Self> {
        let (user, password, rest) = match memchr::memchr(b'@', rest) {
            Some(at) => {
                let (userinfo, tail) = rest.split_at_checked(at)?;
                let (user, password) = split_at_byte(userinfo, b':');
                if user.is_empty() || !text::all_escaped(user, USER) {
                    return None;
                }
                if !password.is_none_or(|password| text::all_escaped(password, USER)) {
                    return None;
                }
                (Some(user), password, tail.get(1..)?)
            }
            None => (None, None, rest),
        };
        let (rest, headers) = split_at_byte(rest, b'?');
        if !headers.is_none_or(headers_are_valid) {
            return None;
        }
        let params_at = memchr::memchr(b';', rest).unwrap_or(rest.len());
        let (host_port, params) = rest.split_at_checked(params_at)?;
        if host_port.iter().any(|byte| text::is_lws(*byte)) {
            return None;
        }
        let host_port = HostPort::parse(host_port)?;
        Some(Self { text, secure, user, password, host_port, params: UriParams::parse(params)?, headers })
    }

    /// Returns the host as a value.
    #[must_use]
    pub fn host(&self) -> Host<'a> {
        self.host_port.host()
    }

    /// The port, if given.
    #[must_use]
    pub const fn port(&self) -> Option<u16> {
        self.host_port.port
    }

    /// The URI without the `?headers` part, which must never become headers of a forwarded request.
    #[must_use]
    pub fn without_headers(&self) -> &'a [u8] {
        let cut = self.headers.map_or(0, |headers| headers.len().saturating_add(1));
        self.text.get(..self.text.len().saturating_sub(cut)).unwrap_or(self.text)
    }

    /// Returns the user part with escapes decoded; empty if there is none.
    #[must_use]
    pub fn unescaped_user(&self) -> SmallVec<[u8; 24]> {
        Unescape::new(self.user.unwrap_or(&[])).collect()
    }

    /// Returns the canonical address of record; `None` without a user part.
    #[must_use]
    pub fn aor(&self) -> Option<Aor> {
        Some(Aor::new(self.user?, self.host_port.host))
    }

    //= rfc3261#19.1.4
    /// Compares by the rules for URIs.
    #[must_use]
    pub fn same(&self, other: &SipUri<'_>) -> bool {
        self.secure == other.secure
            && same_escaped(self.user, other.user)
            && same_escaped(self.password, other.password)
            && self.host().same(&other.host())
            && self.port() == other.port()
            && self.params_agree(other)
            && other.params_agree(self)
            && same_headers(self.headers, other.headers)
    }

    /// Whether every parameter of `self` agrees with that of `other`, and those that both must have are present.
    fn params_agree(&self, other: &SipUri<'_>) -> bool {
        const IN_BOTH: [&str; 5] = ["user", "ttl", "method", "maddr", "transport"];
        self.params.iter().all(|(name, value)| {
            let mut theirs = other.params.iter().filter(|(n, _)| same_text(n, name)).map(|(_, value)| value).peekable();
            if theirs.peek().is_none() {
                return !IN_BOTH.iter().any(|known| same_text(name, known.as_bytes()));
            }
            theirs.any(|theirs| match (value, theirs) {
                (Some(a), Some(b)) => same_text(a, b),
                (a, b) => a.is_none() && b.is_none(),
            })
        })
    }
}

impl<'a> TelUri<'a> {
    fn parse_rest(text: &'a [u8], rest: &'a [u8]) -> Option<Self> {
        let params_at = memchr::memchr(b';', rest).unwrap_or(rest.len());
        let (number, params) = rest.split_at_checked(params_at)?;
        let digits = number.strip_prefix(b"+").unwrap_or(number);
        let valid = digits.iter().any(u8::is_ascii_hexdigit)
            && digits.iter().all(|byte| byte.is_ascii_hexdigit() || b"-.()*#".contains(byte));
        valid.then_some(())?;
        Some(Self { text, number, params: UriParams::parse(params)? })
    }

    /// Returns the number without visual separators.
    #[must_use]
    pub fn digits(&self) -> SmallVec<[u8; 24]> {
        self.number.iter().filter(|byte| !b"-.()".contains(byte)).copied().collect()
    }

    /// Compares by RFC 3966 §4: numbers without separators, parameters in any order.
    #[must_use]
    pub fn same(&self, other: &TelUri<'_>) -> bool {
        let subset = |a: &TelUri<'_>, b: &TelUri<'_>| {
            a.params.iter().all(|(name, value)| {
                b.params.iter().any(|(n, v)| {
                    same_text(n, name)
                        && value.zip(v).is_none_or(|(a, b)| same_text(a, b))
                        && value.is_some() == v.is_some()
                })
            })
        };
        self.digits().eq_ignore_ascii_case(&other.digits()) && subset(self, other) && subset(other, self)
    }
}

fn split_at_byte(text: &[u8], byte: u8) -> (&[u8], Option<&[u8]>) {
    match memchr::memchr(byte, text) {
        Some(at) => (text.get(..at).unwrap_or(text), text.get(at.saturating_add(1)..)),
        None => (text, None),
    }
}

fn headers_are_valid(headers: &[u8]) -> bool {
    let mut parts = headers.split(|byte| *byte == b'&');
    if parts.clone().nth(MAX_URI_PARTS).is_some() {
        return false;
    }
    parts.all(|header| {
        let (name, value) = split_at_byte(header, b'=');
        let allowed = HEADER | TOKEN | NAME;
        !name.is_empty() && text::all_escaped(name, allowed) && value.is_some_and(|v| text::all_escaped(v, allowed))
    })
}

/// Compares users and passwords: with case, escapes decoded.
fn same_escaped(a: Option<&[u8]>, b: Option<&[u8]>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a == b || Unescape::new(a).eq(Unescape::new(b)),
        (a, b) => a.is_none() && b.is_none(),
    }
}

/// Compares everything else: without case, escapes decoded.
fn same_text(a: &[u8], b: &[u8]) -> bool {
    a.eq_ignore_ascii_case(b)
        || Unescape::new(a)
            .map(|byte| byte.to_ascii_lowercase())
            .eq(Unescape::new(b).map(|byte| byte.to_ascii_lowercase()))
}

/// Compares headers in any order.
fn same_headers(a: Option<&[u8]>, b: Option<&[u8]>) -> bool {
    let (Some(a), Some(b)) = (a, b) else { return a.is_none() && b.is_none() };
    let list = |text| split_headers(text).collect::<SmallVec<[_; 8]>>();
    let (a, b) = (list(a), list(b));
    let within = |xs: &[(&[u8], &[u8])], ys: &[(&[u8], &[u8])]| {
        xs.iter().all(|x| ys.iter().any(|y| same_text(x.0, y.0) && same_escaped(Some(x.1), Some(y.1))))
    };
    a.len() == b.len() && within(&a, &b) && within(&b, &a)
}

fn split_headers(text: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    text.split(|byte| *byte == b'&').map(|header| {
        let (name, value) = split_at_byte(header, b'=');
        (name, value.unwrap_or(&[]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn uri(text: &str) -> Uri<'_> {
        Uri::parse(text.as_bytes()).unwrap_or_else(|| panic!("{text} is valid"))
    }

    /// The examples of RFC 3261 §19.1.4.
    #[test]
    fn comparison_follows_the_rfc() {
        for (a, b) in [
            ("sip:%61lice@atlanta.com;transport=TCP", "sip:alice@AtLanTa.CoM;Transport=tcp"),
            ("sip:carol@chicago.com", "sip:carol@chicago.com;newparam=5"),
            ("sip:carol@chicago.com", "sip:carol@chicago.com;security=on"),
            (
                "sip:biloxi.com;transport=tcp;method=REGISTER?to=sip:bob%40biloxi.com",
                "sip:biloxi.com;method=REGISTER;transport=tcp?to=sip:bob%40biloxi.com",
            ),
            (
                "sip:alice@atlanta.com?subject=project%20x&priority=urgent",
                "sip:alice@atlanta.com?priority=urgent&subject=project%20x",
            ),
            ("tel:+1-201-555-0123", "TEL:+1(201)5550123"),
            ("tel:7042;phone-context=example.com", "tel:7042;phone-context=Example.com"),
        ] {
            assert!(uri(a).same(&uri(b)) && uri(b).same(&uri(a)), "{a} = {b}");
        }
        for (a, b) in [
            ("SIP:ALICE@AtLanTa.CoM;Transport=udp", "sip:alice@AtLanTa.CoM;Transport=UDP"),
            ("sip:bob@biloxi.com", "sip:bob@biloxi.com:5060"),
            ("sip:bob@biloxi.com", "sip:bob@biloxi.com;transport=udp"),
            ("sip:bob@biloxi.com", "sip:bob@biloxi.com:6000;transport=tcp"),
            ("sip:carol@chicago.com", "sip:carol@chicago.com?Subject=next%20meeting"),
            ("sip:bob@phone21.boxesbybob.com", "sip:bob@192.0.2.4"),
            ("sip:carol@chicago.com;security=on", "sip:carol@chicago.com;security=off"),
            ("sip:a@b", "sips:a@b"),
            ("sip:a@b", "tel:1"),
            ("tel:+1", "tel:1"),
        ] {
            assert!(!uri(a).same(&uri(b)) && !uri(b).same(&uri(a)), "{a} is not {b}");
        }
    }

    #[test]
    fn the_user_part_is_split_before_it_is_unescaped() {
        let Uri::Sip(parsed) = uri("sip:sips%3Auser%40example.com@example.net") else { panic!("a SIP URI") };
        assert_eq!(parsed.user, Some(&b"sips%3Auser%40example.com"[..]));
        let aor = parsed.aor().expect("has a user");
        assert_eq!(aor.as_bytes(), b"sips:user@example.com@example.net");
        assert_eq!((aor.user(), aor.domain()), (&b"sips:user@example.com"[..], &b"example.net"[..]));
    }

    #[test]
    fn headers_are_separated() {
        let Uri::Sip(parsed) = uri("sip:user@example.com:5070;lr;x=1?Route=%3Csip:example.com%3E") else { panic!() };
        assert_eq!(parsed.without_headers(), b"sip:user@example.com:5070;lr;x=1");
        assert!(parsed.params.contains("LR"));
        assert_eq!(parsed.params.value("x"), Some(&b"1"[..]));
    }

    #[test]
    fn invalid_uris_are_rejected() {
        for bad in [
            "",
            "sip:",
            "sip:@",
            "sip:a@",
            "sip:a b@c",
            "sip:a@b c",
            "sip:a@b;;c",
            "sip:a@b;=1",
            "sip:a@b;x=",
            "sip:a@b?",
            "sip:a@b?x",
            "<sip:a@b>",
            "sip:a@[::1",
            "sip:a@2001:db8::1",
            "sip:a%4@b",
            "tel:",
            "tel:abc;=",
            "noscheme",
            "1sip:x",
            "sip:a@b\r\n",
            "sip:a@b; lr",
        ] {
            assert!(Uri::parse(bad.as_bytes()).is_none(), "{bad:?}");
        }
    }

    proptest! {
        /// The fast path accepts a subset of the grammar: the full parser returns the same.
        #[test]
        fn the_fast_path_agrees_with_the_parser(
            text in "([a-z0-9]{0,3}|[:@;?=.,&%/_-]|%4a|\\[::1\\]|:5060|lr|[ \t\"<>\r\né]){0,8}@?([a-z0-9_.-]{0,6})(:[0-9]{0,6})?(;[a-z%?=@]{0,4}){0,3}",
        ) {
            let rest = text.as_bytes();
            if let Some((short, [])) = SipUri::read_rest_fast(rest, false, rest) {
                let long = SipUri::parse_any(rest, false, rest);
                prop_assert_eq!(Some(format!("{short:?}")), long.map(|long| format!("{long:?}")));
            }
        }
    }
}
