//! Answers to the challenges of a trunk (RFC 3261 §22.2 and §22.3, RFC 7616, RFC 8760).

use strowger_auth::Algorithm;
use strowger_auth::client::{Request, Secret, algorithm, respond};
use strowger_message::{AuthParams, HeaderName, Message, unquote};

use crate::trunk::{Credentials, Trunk};

/// Maximum number of challenges answered per request: one, and more if the trunk reports a stale nonce.
pub const MAX_ANSWERS: u8 = 3;
/// Maximum number of realms answered per response.
const MAX_REALMS: usize = 4;

/// A sent request that a trunk has challenged.
#[derive(Clone, Copy, Debug)]
pub struct ChallengedRequest<'a> {
    /// The method.
    pub method: &'a [u8],
    /// The Request-URI as it was sent.
    pub uri: &'a [u8],
    /// The body; empty if there is none.
    pub body: &'a [u8],
    /// Unpredictable number for the client nonce.
    pub cnonce: u64,
    /// Number of times this request's challenges have been answered.
    pub attempts: u8,
}

/// Appends to `out` the header lines, with line ends, that answer the challenges of `response` (a 401 or 407) to
/// `request`: one Authorization or Proxy-Authorization per realm, with the strongest offered algorithm. The
/// protection is `auth` if offered, because a proxy may change a body, else `auth-int`.
///
/// Returns whether the request can be sent again. It cannot if the trunk has no credentials, if no challenge can be
/// answered, or if the credentials were refused.
#[must_use]
pub fn answer_challenge(
    trunk: &Trunk,
    response: &Message<'_>,
    request: &ChallengedRequest<'_>,
    out: &mut Vec<u8>,
) -> bool {
    let Some(credentials) = &trunk.credentials else { return false };
    let offers = select_challenges(credentials, response);
    //= rfc7616#3.3:refused
    if request.attempts >= MAX_ANSWERS || request.attempts > 0 && !offers.iter().all(Challenge::is_stale) {
        return false;
    }
    let cnonce = format!("{:016x}", request.cnonce);
    let asked =
        DigestInput { method: request.method, uri: request.uri, body: request.body, cnonce: cnonce.as_bytes(), nc: 1 };
    // All are tried: one that cannot be answered does not affect the others.
    let answered = offers.iter().filter(|offer| offer.answer(credentials, &asked, out)).count();
    answered > 0
}

/// Input of the digest.
#[derive(Clone, Copy)]
pub(crate) struct DigestInput<'a> {
    pub(crate) method: &'a [u8],
    pub(crate) uri: &'a [u8],
    pub(crate) body: &'a [u8],
    pub(crate) cnonce: &'a [u8],
    pub(crate) nc: u32,
}

/// One supported challenge.
pub(crate) struct Challenge<'a> {
    pub(crate) is_by_proxy: bool,
    /// Value of the header field.
    pub(crate) value: &'a [u8],
    params: AuthParams<'a>,
    algorithm: Algorithm,
}

impl Challenge<'_> {
    /// Whether the server says that only the nonce is too old and the credentials were right (RFC 7616 §3.3).
    pub(crate) fn is_stale(&self) -> bool {
        self.params.value("stale").is_some_and(|stale| unquote(stale).eq_ignore_ascii_case(b"true"))
    }

    pub(crate) fn nonce(&self) -> Option<Box<[u8]>> {
        self.params.value("nonce").map(|nonce| unquote(nonce).as_ref().into())
    }

    fn realm(&self) -> &[u8] {
        self.params.value("realm").unwrap_or_default()
    }

    /// Appends the header line. Leaves `out` unchanged if there is no answer.
    pub(crate) fn answer(&self, credentials: &Credentials, asked: &DigestInput<'_>, out: &mut Vec<u8>) -> bool {
        let before = out.len();
        //= rfc3261#22.3
        //= rfc7616#3.8:answered
        // A proxy's challenge is answered with Proxy-Authorization, a user agent's with Authorization.
        let name = if self.is_by_proxy { HeaderName::ProxyAuthorization } else { HeaderName::Authorization };
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        let request = Request {
            username: &credentials.username,
            secret: Secret::Password(credentials.password.as_bytes()),
            method: asked.method,
            uri: asked.uri,
            body: asked.body,
            cnonce: asked.cnonce,
            nc: asked.nc,
            cover_body: false,
        };
        if respond(out, &self.params, &request).is_err() {
            out.truncate(before);
            return false;
        }
        out.extend_from_slice(b"\r\n");
        true
    }
}

/// Parses a challenge's value, which may come from the cache.
pub(crate) fn parse_challenge(by_proxy: bool, value: &[u8]) -> Option<Challenge<'_>> {
    let params = AuthParams::parse(value)?;
    //= rfc7616#3.3:unknown-algorithm
    let algorithm = algorithm(&params)?;
    params.value("nonce")?;
    params.value("realm")?;
    Some(Challenge { is_by_proxy: by_proxy, value, params, algorithm })
}

/// Returns the challenges of `response` that `credentials` can answer: the strongest of each realm.
pub(crate) fn select_challenges<'a>(credentials: &Credentials, response: &Message<'a>) -> Vec<Challenge<'a>> {
    let mut offers: Vec<Challenge<'a>> = Vec::new();
    for (name, by_proxy) in [(HeaderName::WwwAuthenticate, false), (HeaderName::ProxyAuthenticate, true)] {
        //= rfc8760#2.4
        // Unsupported challenges are ignored; the choice among the others is local policy.
        for offer in response.head().all(name).filter_map(|value| parse_challenge(by_proxy, value)) {
            if credentials.realm.as_ref().is_some_and(|realm| *unquote(offer.realm()) != **realm) {
                continue;
            }
            let same = |other: &Challenge<'_>| other.is_by_proxy == by_proxy && other.realm() == offer.realm();
            let place = offers.iter().position(same).unwrap_or(offers.len());
            match offers.get_mut(place) {
                //= rfc7616#3.7:first
                //= rfc7616#5.6:strongest
                Some(other) if other.algorithm < offer.algorithm => *other = offer,
                None if place < MAX_REALMS => offers.push(offer),
                Some(_) | None => {}
            }
        }
    }
    offers
}
