//! Via (RFC 3261 §20.42) with `rport` (RFC 3581).

use core::net::IpAddr;

use strowger_foundation::Transport;

use crate::cursor::Cursor;
use crate::host::{self, Host, HostPort};
use crate::params::Params;
use crate::text;

/// Via parameters after the server's branch that offer overload control to the next hop (RFC 7339 §4). Without a list
/// of algorithms: Kamailio treats a comma as the end of a Via even in a quoted string, and drops the request.
pub const OVERLOAD_OFFER: &[u8] = b";oc;oc-algo=\"loss\"";

/// The same offer to a next hop known to support overload control (RFC 7415 §3.3), with algorithms in order of
/// preference.
pub const OVERLOAD_OFFER_WITH_RATE: &[u8] = b";oc;oc-algo=\"loss,rate\"";

/// Prefix of every RFC 3261 branch.
pub const MAGIC_COOKIE: &[u8] = b"z9hG4bK";

/// The `rport` parameter (RFC 3581).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rport<'a> {
    /// Absent.
    Absent,
    /// `;rport`: the sender asks for the source port of the request. Holds the parameter's name as written, after
    /// which the value is inserted.
    Requested(&'a [u8]),
    /// `;rport=5060`.
    Port(u16),
}

/// One Via value.
#[derive(Clone, Copy, Debug)]
pub struct Via<'a> {
    /// The value as written.
    pub text: &'a [u8],
    /// The transport token as written.
    pub transport: &'a [u8],
    /// The sent-by: the address that the sender claims.
    pub sent_by: HostPort<'a>,
    /// All parameters.
    pub params: Params<'a>,
    /// `branch`.
    pub branch: Option<&'a [u8]>,
    /// `received` as written.
    pub received: Option<&'a [u8]>,
    /// `rport`.
    pub rport: Rport<'a>,
    /// Whether there are parameters other than these three.
    pub has_other_params: bool,
}

impl<'a> Via<'a> {
    /// Parses the first value of a Via header and returns what follows it, starting with the comma.
    #[must_use]
    pub fn parse_first(value: &'a [u8]) -> Option<(Self, &'a [u8])> {
        match Self::read_fast(value) {
            usual @ Some((_, [])) => usual,
            _ => Self::parse_any(value),
        }
    }

    /// Reads the value at the start of `text`, if in the common form, and returns what follows it. The common form
    /// has a single space, a host that is not an IPv6 address, at most one each of `branch`, `received` and `rport`,
    /// optionally [`OVERLOAD_OFFER`], and nothing else. If what follows cannot belong to a parameter,
    /// [`parse_any`](Self::parse_any) returns the same.
    #[inline(always)]
    pub(crate) fn read_fast(text: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (b"SIP/2.0/", rest) = text.split_first_chunk()? else { return None };
        let (b"UDP " | b"TCP " | b"TLS ", behind) = rest.split_first_chunk()? else { return None };
        let (transport, rest) = (rest.get(..3)?, behind);
        let (sent_by, behind) = HostPort::read_fast(rest)?;
        let (mut branch, mut received, mut rport) = (None, None, Rport::Absent);
        let mut has_other_params = false;
        let mut rest = behind;
        while let [b';', param @ ..] = rest {
            if let Some((b"branch=", value)) = param.split_first_chunk()
                && branch.is_none()
            {
                let (value, next) = text::split_value(value);
                (branch, rest) = (Some(value), next);
            } else if let Some((name @ b"rport", next)) = param.split_first_chunk()
                && rport == Rport::Absent
            {
                (rport, rest) = read_rport(name, next)?;
            } else if let Some((b"received=", value)) = param.split_first_chunk()
                && received.is_none()
            {
                let (value, next) = text::split_value(value);
                (received, rest) = (Some(value), next);
            } else {
                // Keeps the Via of a neighbour, or our own in a response, as fast to read as a phone's.
                rest = skip_offer(rest)?;
                has_other_params = true;
            }
        }
        if branch.is_some_and(<[u8]>::is_empty) || received.is_some_and(<[u8]>::is_empty) {
            return None;
        }
        let params = Params::from_read(behind.get(..behind.len().wrapping_sub(rest.len()))?);
        let text = text.get(..text.len().wrapping_sub(rest.len()))?;
        Some((Self { text, transport, sent_by, params, branch, received, rport, has_other_params }, rest))
    }

    /// Parses with the full grammar.
    fn parse_any(value: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let mut cursor = Cursor::new(value);
        cursor.skip_lws();
        let start = cursor.rest();
        let transport = read_protocol(&mut cursor)?;
        let sent_by = read_sent_by(&mut cursor)?;
        let before = cursor.rest();
        let (mut branch, mut received, mut rport) = (None, None, Rport::Absent);
        let mut has_other_params = false;
        Params::read_each(&mut cursor, |param| {
            if param.is("branch") {
                branch = Some(param.value?);
            } else if param.is("received") {
                received = Some(param.value?);
            } else if param.is("rport") {
                rport = match param.value {
                    None => Rport::Requested(param.name),
                    Some(port) => Rport::Port(host::parse_port(port)?),
                };
            } else {
                has_other_params = true;
            }
            Some(())
        })?;
        let text = text::trim(cursor.read_since(start)?);
        let params = Params::from_read(cursor.read_since(before)?);
        cursor.skip_lws();
        if !matches!(cursor.peek(), None | Some(b',')) {
            return None;
        }
        Some((Self { text, transport, sent_by, params, branch, received, rport, has_other_params }, cursor.rest()))
    }

    /// Parses every value of a Via header.
    pub fn parse_all(value: &'a [u8]) -> impl Iterator<Item = Option<Self>> {
        text::split_list(value).map(|element| {
            let (via, rest) = Self::parse_first(element)?;
            rest.is_empty().then_some(via)
        })
    }

    /// Returns the branch after the magic cookie. `None` for an RFC 2543 sender and for a bare cookie, which
    /// identifies no transaction (RFC 4475 §3.2.1).
    #[must_use]
    pub fn rfc3261_branch(&self) -> Option<&'a [u8]> {
        let (cookie, rest) = self.branch?.split_at_checked(MAGIC_COOKIE.len())?;
        // Fast path: usually spelled exactly so.
        let is_cookie = cookie == MAGIC_COOKIE || cookie.eq_ignore_ascii_case(MAGIC_COOKIE);
        (is_cookie && !rest.is_empty()).then_some(rest)
    }

    /// Whether the branch is the magic cookie and nothing else.
    #[must_use]
    pub fn is_bare_cookie(&self) -> bool {
        self.branch.is_some_and(|branch| branch.eq_ignore_ascii_case(MAGIC_COOKIE))
    }

    /// Returns the transport, if supported.
    #[must_use]
    pub fn transport(&self) -> Option<Transport> {
        Transport::from_token(self.transport)
    }

    /// Returns `received` as an address; accepts brackets around IPv6, which the grammar does not have (RFC 5118
    /// §4.5).
    #[must_use]
    pub fn received_ip(&self) -> Option<IpAddr> {
        let text = self.received?;
        let bare = text.strip_prefix(b"[").and_then(|t| t.strip_suffix(b"]")).unwrap_or(text);
        core::str::from_utf8(bare).ok()?.parse().ok()
    }

    /// Returns the port for responses: `rport`, the sent-by port, or the transport's default (RFC 3261 §18.2.2).
    #[must_use]
    pub fn response_port(&self) -> u16 {
        match (self.rport, self.sent_by.port) {
            (Rport::Port(port), _) | (_, Some(port)) => port,
            _ => self.transport().unwrap_or(Transport::Udp).default_port(),
        }
    }

    /// Returns the address for responses, if it is a literal: `received` or the sent-by.
    #[must_use]
    pub fn response_ip(&self) -> Option<IpAddr> {
        self.received_ip().or_else(|| self.sent_by.host().ip())
    }

    /// Returns the sent-by host as a value.
    #[must_use]
    pub fn host(&self) -> Host<'a> {
        self.sent_by.host()
    }
}

/// Reads host and port, up to the parameters or the next value.
fn read_sent_by<'a>(cursor: &mut Cursor<'a>) -> Option<HostPort<'a>> {
    let sent_by = cursor.take_until(|byte| byte == b';' || byte == b',');
    HostPort::parse(text::trim(sent_by))
}

/// Returns what follows an overload control offer as the server writes it; `None` if there is none.
#[inline(never)]
fn skip_offer(text: &[u8]) -> Option<&[u8]> {
    let behind = text.strip_prefix(OVERLOAD_OFFER)?;
    matches!(behind, [] | [b';' | b',' | b'\r', ..]).then_some(behind)
}

/// Reads the value after the name `rport` and returns what follows it.
#[inline]
fn read_rport<'a>(name: &'a [u8], text: &'a [u8]) -> Option<(Rport<'a>, &'a [u8])> {
    let [b'=', value @ ..] = text else {
        return matches!(text, [] | [b';' | b',' | b'\r', ..]).then_some((Rport::Requested(name), text));
    };
    let (port, rest) = text::split_value(value);
    Some((Rport::Port(host::parse_port(port)?), rest))
}

/// Reads `SIP / 2.0 / transport LWS`, with the whitespace that the grammar allows around the slashes.
fn read_protocol<'a>(cursor: &mut Cursor<'a>) -> Option<&'a [u8]> {
    let valid = cursor.eat_prefix(b"SIP")
        && cursor.eat_separator(b'/')
        && cursor.eat_prefix(b"2.0")
        && cursor.eat_separator(b'/');
    valid.then_some(())?;
    let transport = cursor.token()?;
    cursor.peek().filter(|byte| text::is_lws(*byte))?;
    cursor.skip_lws();
    Some(transport)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn via(text: &str) -> Via<'_> {
        let (via, rest) = Via::parse_first(text.as_bytes()).unwrap_or_else(|| panic!("{text} is valid"));
        assert!(rest.is_empty());
        via
    }

    #[test]
    fn the_usual_form() {
        let via = via("SIP/2.0/UDP 192.0.2.1:5062;branch=z9hG4bKabc;rport;received=192.0.2.9");
        assert_eq!(via.transport(), Some(Transport::Udp));
        assert_eq!((via.sent_by.host, via.sent_by.port), (&b"192.0.2.1"[..], Some(5062)));
        assert_eq!(via.rfc3261_branch(), Some(&b"abc"[..]));
        assert_eq!(via.rport, Rport::Requested(b"rport"));
        assert_eq!(via.response_ip(), "192.0.2.9".parse().ok());
        assert_eq!(via.response_port(), 5062);
    }

    proptest! {
        /// The fast path accepts a subset of the grammar: the full parser returns the same.
        #[test]
        fn the_fast_path_agrees_with_the_parser(
            text in "SIP/2.0/(UDP|TCP|TLS|SCTP|udp) ?([a-z0-9.]{1,8}|192.0.2.1|\\[::1\\])(:[0-9]{0,5})?(;branch=[a-z0-9_,=]{0,6}|;oc;oc-algo=\"loss\"|;oc;oc-algo=\"loss\"a|;rport(=[0-9]{0,5})?|;received=[0-9.a]{0,6}|;[a-z]{0,3}|;[a-z]=[a-z]| |,|;rports){0,4}",
        ) {
            if let Some((short, [])) = Via::read_fast(text.as_bytes()) {
                let long = Via::parse_any(text.as_bytes());
                prop_assert_eq!(Some(format!("{:?}", (short, b""))), long.map(|long| format!("{long:?}")));
            }
        }
    }

    #[test]
    fn other_parameters_are_noticed() {
        for plain in ["", ";branch=z9hG4bK1", ";rport;branch=z9hG4bK1", ";branch=b;rport=5060;received=192.0.2.1"] {
            assert!(!via(&format!("SIP/2.0/UDP a{plain}")).has_other_params, "{plain}");
        }
        for other in [";oc", ";branch=b;oc;oc-algo=\"loss\"", ";ttl=1;rport"] {
            assert!(via(&format!("SIP/2.0/UDP a{other}")).has_other_params, "{other}");
        }
        let offered = via("SIP/2.0/UDP a;branch=b;oc;oc-algo=\"loss\"");
        assert_eq!(offered.params.value("oc-algo"), Some(&b"\"loss\""[..]));
        assert!(offered.params.find("oc").is_some_and(|oc| oc.value.is_none()));
    }

    #[test]
    fn folds_and_spaces_as_in_the_torture_message() {
        let via = via("SIP  / 2.0\r\n /UDP\r\n    192.0.2.2 : 5070 ;branch = 390skdjuw");
        assert_eq!((via.transport, via.sent_by.host), (&b"UDP"[..], &b"192.0.2.2"[..]));
        assert_eq!((via.branch, via.rfc3261_branch()), (Some(&b"390skdjuw"[..]), None));
    }

    #[test]
    fn a_list_is_read_one_by_one() {
        let value = b"SIP/2.0/UDP a;branch=z9hG4bK1 , SIP/2.0/TCP [::1]:5060;branch=z9hG4bK2";
        let (first, rest) = Via::parse_first(value).expect("valid");
        assert_eq!((first.sent_by.host, rest.first()), (&b"a"[..], Some(&b',')));
        assert_eq!(Via::parse_all(value).filter(Option::is_some).count(), 2);
    }

    #[test]
    fn invalid_vias_are_rejected() {
        for bad in [
            "",
            "SIP/2.0/UDP",
            "SIP/2.0/UDP ",
            "SIP/3.0/UDP a",
            "SIP/2.0/UDP 192.0.2.15;;,;,,",
            "SIP/2.0/UDP a;branch=",
            "SIP/2.0/UDP a;rport=0",
            "SIP/2.0/UDP 2001:db8::9",
            "SIP/2.0/UDP a b",
        ] {
            assert!(Via::parse_first(bad.as_bytes()).is_none(), "{bad:?}");
        }
    }
}
