//! Digest credentials in a request (RFC 7616 §3.4, RFC 3261 §22.4).

use std::borrow::Cow;

use strowger_message::{AuthParams, AuthScheme, Head, HeaderName, trim, unquote};

use crate::hash::{DigestInput, Protection};
use crate::{Algorithm, Policy, hex};

/// Result of looking for credentials in a request.
pub(crate) enum CredentialsResult<'a> {
    /// No credentials for our challenges.
    Nothing,
    /// Malformed Digest credentials, and no valid ones.
    Malformed,
    /// The credentials to verify.
    Digest(Credentials<'a>),
}

/// Credentials for our realm with all required parameters, unquoted.
pub(crate) struct Credentials<'a> {
    pub(crate) algorithm: Algorithm,
    pub(crate) username: Cow<'a, [u8]>,
    pub(crate) nonce: Cow<'a, [u8]>,
    pub(crate) uri: Cow<'a, [u8]>,
    /// Hexadecimal digits.
    pub(crate) response: Cow<'a, [u8]>,
    pub(crate) qop: ClientQop<'a>,
}

/// The quality of protection chosen by the client.
pub(crate) enum ClientQop<'a> {
    Legacy,
    Auth(NonceCount<'a>),
    AuthInt(NonceCount<'a>),
}

/// `nc` and `cnonce`.
pub(crate) struct NonceCount<'a> {
    pub(crate) nc: u32,
    nc_text: Cow<'a, [u8]>,
    cnonce: Cow<'a, [u8]>,
}

/// Returns the credentials in the `header` fields for `realm`, for the algorithm that comes first in the policy.
/// Ignores other schemes, other realms and algorithms not offered: a request may carry credentials for several
/// proxies.
//= rfc3261#22.3
pub(crate) fn find_for<'a>(
    policy: &Policy,
    head: &Head<'a>,
    header: HeaderName,
    realm: &[u8],
) -> CredentialsResult<'a> {
    let mut best: Option<(usize, Algorithm, Directives<'a>)> = None;
    let mut broken = false;
    for value in head.all(header) {
        let directives = match Directives::read_fast(value).map_or_else(|| Directives::read(value), HeaderValue::Digest)
        {
            HeaderValue::Digest(directives) => directives,
            HeaderValue::Malformed => {
                broken = true;
                continue;
            }
            HeaderValue::Other => continue,
        };
        // Some clients send empty credentials before any challenge, to identify themselves (3GPP TS 24.229
        // §5.1.1.2.1).
        let is_empty = matches!(directives.response, Some(b"" | b"\"\""));
        if is_empty || directives.realm.is_none_or(|named| *directives.unquote(named) != *realm) {
            continue;
        }
        let Some(named) = directives.algorithm() else { continue };
        if let Some(rank) = policy.algorithms.iter().position(|ours| *ours == named)
            && best.as_ref().is_none_or(|(present, ..)| rank < *present)
        {
            best = Some((rank, named, directives));
        }
    }
    match best.map(|(_, algorithm, directives)| directives.into_credentials(algorithm)) {
        Some(Some(credentials)) => CredentialsResult::Digest(credentials),
        Some(None) => CredentialsResult::Malformed,
        None if broken => CredentialsResult::Malformed,
        None => CredentialsResult::Nothing,
    }
}

impl Credentials<'_> {
    /// Returns the input of the expected response.
    pub(crate) fn digest_input<'c>(&'c self, method: &'c [u8], body: &'c [u8]) -> DigestInput<'c> {
        let protection = match &self.qop {
            ClientQop::Legacy => Protection::Legacy,
            ClientQop::Auth(count) => Protection::Auth { nc: &count.nc_text, cnonce: &count.cnonce },
            ClientQop::AuthInt(count) => Protection::AuthInt { nc: &count.nc_text, cnonce: &count.cnonce, body },
        };
        DigestInput { method, uri: &self.uri, nonce: &self.nonce, protection }
    }

    /// The nonce count, if the credentials have one.
    pub(crate) const fn nc(&self) -> Option<u32> {
        match &self.qop {
            ClientQop::Legacy => None,
            ClientQop::Auth(count) | ClientQop::AuthInt(count) => Some(count.nc),
        }
    }
}

/// The kind of a header value.
enum HeaderValue<'a> {
    Digest(Directives<'a>),
    /// A Digest with a syntax error.
    Malformed,
    /// Another scheme.
    Other,
}

/// The directives as written.
#[derive(Default)]
struct Directives<'a> {
    /// The values have neither quotes nor escapes and can be used as they are.
    is_unescaped: bool,
    username: Option<&'a [u8]>,
    username_ext: Option<&'a [u8]>,
    realm: Option<&'a [u8]>,
    nonce: Option<&'a [u8]>,
    uri: Option<&'a [u8]>,
    response: Option<&'a [u8]>,
    algorithm: Option<&'a [u8]>,
    qop: Option<&'a [u8]>,
    nc: Option<&'a [u8]>,
    cnonce: Option<&'a [u8]>,
    repeated: bool,
}

/// Length of the longest directive name.
const MAX_NAME: usize = b"username*".len();

impl<'a> Directives<'a> {
    /// Reads a value in the common form: known names in lower case, whitespace only after commas, no escapes. `None`
    /// means only that [`read`](Self::read) must parse the value.
    fn read_fast(value: &'a [u8]) -> Option<Self> {
        let mut rest = value.strip_prefix(b"Digest ")?;
        let mut directives = Self { is_unescaped: true, ..Self::default() };
        loop {
            let (name, behind) = rest.split_at_checked(find(rest, [b'=', b'='])?)?;
            let slot = directives.slot(name)?;
            let (said, behind) = match behind {
                [b'=', b'"', inner @ ..] => {
                    let (said, behind) = inner.split_at_checked(find(inner, [b'"', b'\\'])?)?;
                    (said, behind.strip_prefix(b"\"")?)
                }
                [b'=', word @ ..] => {
                    let end = find(word, [b',', b',']).unwrap_or(word.len());
                    word.split_at_checked(end).filter(|(said, _)| is_plain(said))?
                }
                _ => return None,
            };
            let is_repeated = slot.replace(said).is_some();
            directives.repeated |= is_repeated;
            rest = match behind {
                [] => return Some(directives),
                [b',', b' ', behind @ ..] | [b',', behind @ ..] => behind,
                _ => return None,
            };
        }
    }

    /// Reads any value.
    fn read(value: &'a [u8]) -> HeaderValue<'a> {
        let mut directives = Self::default();
        match AuthParams::read_each(value, |name, value| directives.set(name, value)) {
            Some(params) if params.scheme == AuthScheme::Digest => HeaderValue::Digest(directives),
            None if says_digest(value) => HeaderValue::Malformed,
            _ => HeaderValue::Other,
        }
    }

    /// Returns a value without quotes and escapes.
    fn unquote(&self, value: &'a [u8]) -> Cow<'a, [u8]> {
        if self.is_unescaped { Cow::Borrowed(value) } else { unquote(value) }
    }

    /// Sets a directive. Unknown directives are ignored (RFC 7616 §3.4).
    fn set(&mut self, name: &[u8], value: &'a [u8]) {
        // Fast path: names are usually in lower case.
        let is_usual = self.slot(name).is_some();
        let slot = if is_usual { self.slot(name) } else { self.slot_in_any_case(name) };
        if let Some(slot) = slot {
            let is_repeated = slot.replace(value).is_some();
            self.repeated |= is_repeated;
        }
    }

    fn slot_in_any_case(&mut self, name: &[u8]) -> Option<&mut Option<&'a [u8]>> {
        let mut lower = [0; MAX_NAME];
        let lower = lower.get_mut(..name.len())?;
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        self.slot(lower)
    }

    fn slot(&mut self, lower_case: &[u8]) -> Option<&mut Option<&'a [u8]>> {
        Some(match lower_case {
            b"username" => &mut self.username,
            b"username*" => &mut self.username_ext,
            b"realm" => &mut self.realm,
            b"nonce" => &mut self.nonce,
            b"uri" => &mut self.uri,
            b"response" => &mut self.response,
            b"algorithm" => &mut self.algorithm,
            b"qop" => &mut self.qop,
            b"nc" => &mut self.nc,
            b"cnonce" => &mut self.cnonce,
            _ => return None,
        })
    }

    //= rfc7616#3.4
    /// The algorithm; MD5 if none is named.
    fn algorithm(&self) -> Option<Algorithm> {
        self.algorithm.map_or(Some(Algorithm::Md5), |name| Algorithm::from_name(&self.unquote(name)))
    }

    /// Returns the credentials; `None` if a required parameter is missing, repeated or invalid.
    //= rfc7616#3.4
    fn into_credentials(self, algorithm: Algorithm) -> Option<Credentials<'a>> {
        if self.repeated {
            return None;
        }
        //= rfc7616#3.4:one-username
        let username = match (self.username, self.username_ext) {
            //= rfc7616#4:usernames
            (Some(username), None) => self.unquote(username),
            (None, Some(extended)) => Cow::Owned(decode_extended(&self.unquote(extended))?),
            _ => return None,
        };
        //= rfc7616#3.4:cnonce
        let count = |nc: Option<&'a [u8]>, cnonce: Option<&'a [u8]>| {
            let (nc_text, cnonce) = (self.unquote(nc?), self.unquote(cnonce?));
            Some(NonceCount { nc: parse_nc(&nc_text)?, nc_text, cnonce })
        };
        let qop = self.qop.map(|qop| self.unquote(qop));
        let qop = match qop.as_deref() {
            // Only MD5 has clients that predate `qop` (RFC 3261 §22.4).
            None if algorithm == Algorithm::Md5 => ClientQop::Legacy,
            Some(qop) if qop.eq_ignore_ascii_case(b"auth") => ClientQop::Auth(count(self.nc, self.cnonce)?),
            Some(qop) if qop.eq_ignore_ascii_case(b"auth-int") => ClientQop::AuthInt(count(self.nc, self.cnonce)?),
            _ => return None,
        };
        let (nonce, uri, response) = (self.unquote(self.nonce?), self.unquote(self.uri?), self.unquote(self.response?));
        Some(Credentials { algorithm, username, nonce, uri, response, qop })
    }
}

/// Whether an unquoted value consists of letters, digits and hyphens, as in usual values: `MD5`, `auth` and a count
/// are checked fast.
fn is_plain(word: &[u8]) -> bool {
    match word {
        [] => false,
        b"MD5" | b"auth" => true,
        _ => {
            word.try_into().is_ok_and(|digits| hex::lower_case(digits).is_some())
                || word.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
        }
    }
}

/// Returns the position of the first of two bytes.
#[inline(always)]
fn find(text: &[u8], wanted: [u8; 2]) -> Option<usize> {
    let (eights, rest) = text.as_chunks::<8>();
    let mut before = 0usize;
    for eight in eights {
        let equal = wanted.map(|byte| {
            let differing = u64::from_le_bytes(*eight) ^ hex::every(byte);
            // The high bit of each zero byte, and possibly of bytes above the first one.
            differing.wrapping_sub(hex::every(1)) & !differing & hex::every(0x80)
        });
        let equal = equal[0] | equal[1];
        if equal != 0 {
            return before.checked_add(equal.trailing_zeros() as usize / 8);
        }
        before = before.wrapping_add(8);
    }
    before.checked_add(rest.iter().position(|byte| wanted.contains(byte))?)
}

/// Whether a malformed value names the Digest scheme.
fn says_digest(value: &[u8]) -> bool {
    const SCHEME: &[u8] = b"digest";
    let value = trim(value);
    value.get(..SCHEME.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME))
        && value.get(SCHEME.len()).is_none_or(u8::is_ascii_whitespace)
}

//= rfc7616#3.4:nc
/// Parses exactly eight hexadecimal digits, not zero; the first request has 1.
fn parse_nc(text: &[u8]) -> Option<u32> {
    hex::number(text.try_into().ok()?).filter(|nc| *nc > 0)
}

/// Decodes `UTF-8'language'percent%20encoded`, the form of RFC 5987 required by RFC 7616 §3.4; the language may be
/// empty.
fn decode_extended(value: &[u8]) -> Option<Vec<u8>> {
    let mut parts = value.splitn(3, |byte| *byte == b'\'');
    let (charset, _language, mut rest) = (parts.next()?, parts.next()?, parts.next()?);
    if !charset.eq_ignore_ascii_case(b"utf-8") {
        return None;
    }
    let mut said = Vec::with_capacity(rest.len());
    loop {
        match rest {
            [] => return Some(said),
            [b'%', high, low, tail @ ..] => {
                let mut raw = [0; 1];
                data_encoding::HEXLOWER_PERMISSIVE.decode_mut(&[*high, *low], &mut raw).ok()?;
                said.extend_from_slice(&raw);
                rest = tail;
            }
            [b'%' | b'\'', ..] => return None,
            [byte, tail @ ..] => {
                said.push(*byte);
                rest = tail;
            }
        }
    }
}
