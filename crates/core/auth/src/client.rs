//! The client's half: responding to a challenge (RFC 7616 §3.4, RFC 3261 §22.2).

use strowger_message::{AuthParams, AuthScheme, unquote};

use crate::Algorithm;
use crate::hash::{DigestInput, Ha1, Protection, response};

/// The user's secret.
#[derive(Clone, Copy)]
pub enum Secret<'a> {
    /// The password.
    Password(&'a [u8]),
    /// The HA1 for the challenge's realm and algorithm.
    Ha1(&'a Ha1),
}

impl core::fmt::Debug for Secret<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret")
    }
}

/// A request that needs credentials, and its sender's secret.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The user.
    pub username: &'a [u8],
    /// The user's secret.
    pub secret: Secret<'a>,
    /// The method.
    pub method: &'a [u8],
    /// The Request-URI.
    pub uri: &'a [u8],
    /// The body; may be empty.
    pub body: &'a [u8],
    /// The client nonce: token characters, unpredictable.
    pub cnonce: &'a [u8],
    /// Number of uses of the server's nonce, including this one; the first is 1.
    pub nc: u32,
    /// Whether to protect the body if the challenge offers it. If nothing else is offered, the body is always
    /// protected.
    pub cover_body: bool,
}

/// Why no credentials can be computed for a challenge. All but the last are the peer's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChallengeError {
    /// The scheme is not Digest.
    Scheme,
    /// The algorithm is not supported.
    Algorithm,
    /// No supported quality of protection is offered.
    Qop,
    /// The realm or the nonce is missing.
    Incomplete,
    /// The HA1 is not for the challenge's algorithm.
    Ha1,
}

impl core::fmt::Display for ChallengeError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Scheme => "the challenge does not use the Digest scheme",
            Self::Algorithm => "the challenge asks for an unsupported algorithm",
            Self::Qop => "the challenge offers no supported quality of protection",
            Self::Incomplete => "the challenge has no realm or no nonce",
            Self::Ha1 => "the HA1 is for another algorithm than the challenge's",
        })
    }
}

impl core::error::Error for ChallengeError {}

/// Returns the algorithm of a challenge; `None` if it is not a supported Digest. Of several challenges, respond to
/// the first that has one (RFC 8760 §2.4).
#[must_use]
pub fn algorithm(challenge: &AuthParams<'_>) -> Option<Algorithm> {
    if challenge.scheme != AuthScheme::Digest {
        return None;
    }
    challenge.value("algorithm").map_or(Some(Algorithm::Md5), |name| Algorithm::from_name(&unquote(name)))
}

/// Appends to `out` the value of Authorization or Proxy-Authorization for `challenge`.
///
/// # Errors
/// [`ChallengeError`]; `out` is then unchanged.
pub fn respond(out: &mut Vec<u8>, challenge: &AuthParams<'_>, request: &Request<'_>) -> Result<(), ChallengeError> {
    if challenge.scheme != AuthScheme::Digest {
        return Err(ChallengeError::Scheme);
    }
    let algorithm = algorithm(challenge).ok_or(ChallengeError::Algorithm)?;
    let quoted_realm = challenge.value("realm").ok_or(ChallengeError::Incomplete)?;
    let quoted_nonce = challenge.value("nonce").ok_or(ChallengeError::Incomplete)?;
    let (realm, nonce) = (unquote(quoted_realm), unquote(quoted_nonce));
    let ha1 = match request.secret {
        Secret::Password(password) => Ha1::compute(algorithm, request.username, &realm, password),
        Secret::Ha1(ha1) if ha1.fits(algorithm) => *ha1,
        Secret::Ha1(_) => return Err(ChallengeError::Ha1),
    };
    let nc = format!("{:08x}", request.nc);
    let protection = protection(challenge, request, nc.as_bytes())?;
    let covered = DigestInput { method: request.method, uri: request.uri, nonce: &nonce, protection };
    let response = response(algorithm, &ha1, &covered).to_hex();

    //= rfc7616#3.4:quoted
    out.extend_from_slice(b"Digest username=");
    push_quoted(out, request.username);
    push(out, &[b", realm=", quoted_realm, b", nonce=", quoted_nonce, b", uri="]);
    //= rfc7616#3.4.6:uri
    push_quoted(out, request.uri);
    push(out, &[b", response=\"", response.as_bytes(), b"\""]);
    //= rfc7616#3.4:same-challenge
    //= rfc7616#3.4:not-quoted
    if challenge.value("algorithm").is_some() {
        push(out, &[b", algorithm=", algorithm.as_str().as_bytes()]);
    }
    match protection {
        Protection::Legacy => {}
        //= rfc7616#3.4:nc
        Protection::Auth { nc, .. } => push(out, &[b", qop=auth, nc=", nc]),
        Protection::AuthInt { nc, .. } => push(out, &[b", qop=auth-int, nc=", nc]),
    }
    if !matches!(protection, Protection::Legacy) {
        //= rfc7616#3.4:cnonce
        out.extend_from_slice(b", cnonce=");
        push_quoted(out, request.cnonce);
    }
    //= rfc7616#3.3:opaque-returned
    if let Some(opaque) = challenge.value("opaque") {
        push(out, &[b", opaque=", opaque]);
    }
    Ok(())
}

//= rfc7616#3.4:qop-offered
/// Returns the best protection that is offered and wanted.
fn protection<'a>(
    challenge: &AuthParams<'_>,
    request: &Request<'a>,
    nc: &'a [u8],
) -> Result<Protection<'a>, ChallengeError> {
    let Some(offered) = challenge.value("qop").map(unquote) else { return Ok(Protection::Legacy) };
    //= rfc7616#3.3:unknown-qop
    let offers = |name: &[u8]| strowger_message::split_list(&offered).any(|qop| qop.eq_ignore_ascii_case(name));
    let (auth, auth_int) = (offers(b"auth"), offers(b"auth-int"));
    let cnonce = request.cnonce;
    if auth_int && (request.cover_body || !auth) {
        return Ok(Protection::AuthInt { nc, cnonce, body: request.body });
    }
    if auth { Ok(Protection::Auth { nc, cnonce }) } else { Err(ChallengeError::Qop) }
}

fn push(out: &mut Vec<u8>, parts: &[&[u8]]) {
    for part in parts {
        out.extend_from_slice(part);
    }
}

fn push_quoted(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    for byte in text {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(*byte);
    }
    out.push(b'"');
}
