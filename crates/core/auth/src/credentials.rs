//! Digest credentials as a request carries them (RFC 7616 §3.4, RFC 3261 §22.4).

use std::borrow::Cow;

use strowger_message::{AuthParams, AuthScheme, Head, HeaderName, trim, unquote};

use crate::hash::{Covered, Protection};
use crate::{Algorithm, Policy, hex};

/// What a request has to show for itself.
pub(crate) enum Found<'a> {
    /// Nothing that answers a challenge of ours.
    Nothing,
    /// Broken Digest credentials, and no good ones.
    Broken,
    /// The credentials to judge.
    Digest(Credentials<'a>),
}

/// Credentials for our realm with everything that is required, unquoted.
pub(crate) struct Credentials<'a> {
    pub(crate) algorithm: Algorithm,
    pub(crate) username: Cow<'a, [u8]>,
    pub(crate) nonce: Cow<'a, [u8]>,
    pub(crate) uri: Cow<'a, [u8]>,
    /// As hexadecimal digits.
    pub(crate) response: Cow<'a, [u8]>,
    pub(crate) qop: ClientQop<'a>,
}

/// The quality of protection that the client chose.
pub(crate) enum ClientQop<'a> {
    Legacy,
    Auth(Count<'a>),
    AuthInt(Count<'a>),
}

/// `nc` and `cnonce`.
pub(crate) struct Count<'a> {
    pub(crate) nc: u32,
    nc_text: Cow<'a, [u8]>,
    cnonce: Cow<'a, [u8]>,
}

/// The credentials in `header` fields for `realm` with the algorithm that stands first in the policy. Other schemes,
/// other realms and algorithms that are not offered are none of ours: a request may carry credentials for several proxies.
//= rfc3261#22.3
pub(crate) fn find<'a>(policy: &Policy, head: &Head<'a>, header: HeaderName, realm: &[u8]) -> Found<'a> {
    let mut best: Option<(usize, Directives<'a>)> = None;
    let mut broken = false;
    for value in head.all(header) {
        let mut directives = Directives::default();
        let Some(params) = AuthParams::read_each(value, |name, value| directives.set(name, value)) else {
            broken |= says_digest(value);
            continue;
        };
        if params.scheme != AuthScheme::Digest {
            continue;
        }
        // Some send empty credentials to say who they are before they were challenged (3GPP TS 24.229 §5.1.1.2.1).
        let is_empty = matches!(directives.response, Some(b"" | b"\"\""));
        if is_empty || directives.realm.is_none_or(|named| *unquote(named) != *realm) {
            continue;
        }
        let rank = directives.algorithm().and_then(|named| policy.algorithms.iter().position(|ours| *ours == named));
        if let Some(rank) = rank
            && best.as_ref().is_none_or(|(present, _)| rank < *present)
        {
            best = Some((rank, directives));
        }
    }
    match best.map(|(_, directives)| directives.into_credentials()) {
        Some(Some(credentials)) => Found::Digest(credentials),
        Some(None) => Found::Broken,
        None if broken => Found::Broken,
        None => Found::Nothing,
    }
}

impl Credentials<'_> {
    /// What the response must have been computed over.
    pub(crate) fn covered<'c>(&'c self, method: &'c [u8], body: &'c [u8]) -> Covered<'c> {
        let protection = match &self.qop {
            ClientQop::Legacy => Protection::Legacy,
            ClientQop::Auth(count) => Protection::Auth { nc: &count.nc_text, cnonce: &count.cnonce },
            ClientQop::AuthInt(count) => Protection::AuthInt { nc: &count.nc_text, cnonce: &count.cnonce, body },
        };
        Covered { method, uri: &self.uri, nonce: &self.nonce, protection }
    }

    /// The nonce count; `None` where the credentials have none.
    pub(crate) const fn nc(&self) -> Option<u32> {
        match &self.qop {
            ClientQop::Legacy => None,
            ClientQop::Auth(count) | ClientQop::AuthInt(count) => Some(count.nc),
        }
    }
}

/// The directives as they stand there.
#[derive(Default)]
struct Directives<'a> {
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

/// The length of the longest name of a directive.
const MAX_NAME: usize = b"username*".len();

impl<'a> Directives<'a> {
    /// Directives that nobody knows are ignored (RFC 7616 §3.4).
    fn set(&mut self, name: &[u8], value: &'a [u8]) {
        // Nearly all write them in lower case.
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
    /// The algorithm; MD5 where none is named.
    fn algorithm(&self) -> Option<Algorithm> {
        self.algorithm.map_or(Some(Algorithm::Md5), |name| Algorithm::from_name(&unquote(name)))
    }

    /// `None` where something required is missing, repeated or improper.
    //= rfc7616#3.4
    fn into_credentials(self) -> Option<Credentials<'a>> {
        if self.repeated {
            return None;
        }
        let algorithm = self.algorithm()?;
        let username = match (self.username, self.username_ext) {
            (Some(username), None) => unquote(username),
            (None, Some(extended)) => Cow::Owned(decode_extended(&unquote(extended))?),
            _ => return None,
        };
        let count = |nc: Option<&'a [u8]>, cnonce: Option<&'a [u8]>| {
            let (nc_text, cnonce) = (unquote(nc?), unquote(cnonce?));
            Some(Count { nc: parse_nc(&nc_text)?, nc_text, cnonce })
        };
        let qop = self.qop.map(unquote);
        let qop = match qop.as_deref() {
            // Only MD5 has clients that were there before `qop` (RFC 3261 §22.4).
            None if algorithm == Algorithm::Md5 => ClientQop::Legacy,
            Some(qop) if qop.eq_ignore_ascii_case(b"auth") => ClientQop::Auth(count(self.nc, self.cnonce)?),
            Some(qop) if qop.eq_ignore_ascii_case(b"auth-int") => ClientQop::AuthInt(count(self.nc, self.cnonce)?),
            _ => return None,
        };
        let (nonce, uri, response) = (unquote(self.nonce?), unquote(self.uri?), unquote(self.response?));
        Some(Credentials { algorithm, username, nonce, uri, response, qop })
    }
}

/// Whether a value that breaks the grammar was meant for this scheme.
fn says_digest(value: &[u8]) -> bool {
    const SCHEME: &[u8] = b"digest";
    let value = trim(value);
    value.get(..SCHEME.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME))
        && value.get(SCHEME.len()).is_none_or(u8::is_ascii_whitespace)
}

//= rfc7616#3.4
/// Exactly eight hexadecimal digits; the first request has 1.
fn parse_nc(text: &[u8]) -> Option<u32> {
    hex::number(text.try_into().ok()?).filter(|nc| *nc > 0)
}

/// `UTF-8'language'percent%20encoded`, the form of RFC 5987 that RFC 7616 §3.4 asks for; the language may be empty.
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
