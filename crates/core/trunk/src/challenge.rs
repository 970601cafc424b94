//! Answering the challenges of a trunk (RFC 3261 §22.2 and §22.3, RFC 7616, RFC 8760).

use strowger_auth::Algorithm;
use strowger_auth::client::{Request, Secret, algorithm, respond};
use strowger_message::{AuthParams, HeaderName, Message, unquote};

use crate::trunk::{Credentials, Trunk};

/// How often one request is answered for at most: once, and again where the trunk says that the nonce was stale.
pub const MAX_ANSWERS: u8 = 3;
/// The most realms of one response that are answered.
const MAX_REALMS: usize = 4;

/// A request as it was sent, which a trunk challenged.
#[derive(Clone, Copy, Debug)]
pub struct ChallengedRequest<'a> {
    /// The method.
    pub method: &'a [u8],
    /// The Request-URI as it was sent.
    pub uri: &'a [u8],
    /// The body; empty where there is none.
    pub body: &'a [u8],
    /// An unpredictable number for the client's nonce.
    pub cnonce: u64,
    /// How often this request was challenged and answered before.
    pub attempts: u8,
}

/// Appends to `out` the header lines, each with its line end, that answer what `response` (a 401 or 407) asks of `request`:
/// Authorization and Proxy-Authorization, one a realm, by the strongest algorithm that is offered for it. The protection is
/// `auth` where it is offered, because a proxy on the way may change a body, else `auth-int`.
///
/// Returns whether the request can be sent again with them. It cannot where the trunk has no credentials or no challenge is
/// answerable, and where credentials were refused: they would be again.
#[must_use]
pub fn answer_challenge(
    trunk: &Trunk,
    response: &Message<'_>,
    request: &ChallengedRequest<'_>,
    out: &mut Vec<u8>,
) -> bool {
    let Some(credentials) = &trunk.credentials else { return false };
    let offers = select_challenges(credentials, response);
    if request.attempts >= MAX_ANSWERS || request.attempts > 0 && !offers.iter().all(Challenge::is_stale) {
        return false;
    }
    let cnonce = format!("{:016x}", request.cnonce);
    let asked =
        DigestInput { method: request.method, uri: request.uri, body: request.body, cnonce: cnonce.as_bytes(), nc: 1 };
    // Each is tried: one that cannot be answered does not spoil the others.
    let answered = offers.iter().filter(|offer| offer.answer(credentials, &asked, out)).count();
    answered > 0
}

/// What credentials are computed over.
#[derive(Clone, Copy)]
pub(crate) struct DigestInput<'a> {
    pub(crate) method: &'a [u8],
    pub(crate) uri: &'a [u8],
    pub(crate) body: &'a [u8],
    pub(crate) cnonce: &'a [u8],
    pub(crate) nc: u32,
}

/// One challenge that can be answered.
pub(crate) struct Challenge<'a> {
    pub(crate) is_by_proxy: bool,
    /// The header's value.
    pub(crate) value: &'a [u8],
    params: AuthParams<'a>,
    algorithm: Algorithm,
}

impl Challenge<'_> {
    /// The server says that the credentials were right and only their nonce is too old (RFC 7616 §3.3).
    pub(crate) fn is_stale(&self) -> bool {
        self.params.value("stale").is_some_and(|stale| unquote(stale).eq_ignore_ascii_case(b"true"))
    }

    pub(crate) fn nonce(&self) -> Option<Box<[u8]>> {
        self.params.value("nonce").map(|nonce| unquote(nonce).as_ref().into())
    }

    fn realm(&self) -> &[u8] {
        self.params.value("realm").unwrap_or_default()
    }

    /// Appends the header line; `out` is as it was where there is no answer.
    pub(crate) fn answer(&self, credentials: &Credentials, asked: &DigestInput<'_>, out: &mut Vec<u8>) -> bool {
        let before = out.len();
        //= rfc3261#22.3
        // A proxy's challenge is answered in Proxy-Authorization, a user agent's in Authorization.
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

/// Reads a challenge that was kept.
pub(crate) fn parse_challenge(by_proxy: bool, value: &[u8]) -> Option<Challenge<'_>> {
    let params = AuthParams::parse(value)?;
    let algorithm = algorithm(&params)?;
    params.value("nonce")?;
    params.value("realm")?;
    Some(Challenge { is_by_proxy: by_proxy, value, params, algorithm })
}

/// The challenges of `response` that `credentials` are for: for each realm the strongest that is known.
pub(crate) fn select_challenges<'a>(credentials: &Credentials, response: &Message<'a>) -> Vec<Challenge<'a>> {
    let mut offers: Vec<Challenge<'a>> = Vec::new();
    for (name, by_proxy) in [(HeaderName::WwwAuthenticate, false), (HeaderName::ProxyAuthenticate, true)] {
        //= rfc8760#2.4
        // What is not understood is ignored; which of the others is answered is a matter of local policy.
        for offer in response.head().all(name).filter_map(|value| parse_challenge(by_proxy, value)) {
            if credentials.realm.as_ref().is_some_and(|realm| *unquote(offer.realm()) != **realm) {
                continue;
            }
            let same = |other: &Challenge<'_>| other.is_by_proxy == by_proxy && other.realm() == offer.realm();
            let place = offers.iter().position(same).unwrap_or(offers.len());
            match offers.get_mut(place) {
                Some(other) if other.algorithm < offer.algorithm => *other = offer,
                None if place < MAX_REALMS => offers.push(offer),
                Some(_) | None => {}
            }
        }
    }
    offers
}
