//! The server's half: issuing challenges and verifying credentials.

use core::cell::RefCell;
use core::net::IpAddr;
use std::borrow::Cow;
use std::sync::Arc;

use smallvec::SmallVec;
use strowger_foundation::{KeyRing, Timestamp, source_bits};
use strowger_message::{HeaderName, Message, ResponseBuilder, Uri};

use crate::credentials::{self, ClientQop, Credentials, CredentialsResult};
use crate::hash::{DigestInput, Ha1, Hex, Protection, ha2, response_with};
use crate::nonce::{NonceId, source_tag, tag_of};
use crate::window::{NonceWindows, WindowStats, is_aged};
use crate::{Algorithm, Policy, Qop};

/// An unquoted user name as sent by the client.
pub type Username = SmallVec<[u8; 32]>;

/// Result of verifying a request's credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The credentials authenticate this user.
    Accepted {
        /// The user.
        username: Username,
    },
    /// No valid credentials: challenge with 401 or 407.
    Challenge {
        /// The password was right and only the nonce was not: the client may retry without asking its user.
        stale: bool,
    },
    /// The credentials cannot be verified; respond with 400. A syntax error, a missing parameter, or a `uri` that is
    /// not the Request-URI.
    Malformed,
}

/// Contents of a challenge, and the request it is for.
#[derive(Clone, Copy, Debug)]
pub struct Challenge<'a> {
    /// WWW-Authenticate or Proxy-Authenticate.
    pub header: HeaderName,
    /// The realm, unquoted.
    pub realm: &'a [u8],
    /// The password was right and only the nonce was not.
    pub stale: bool,
    /// A number that identifies the request. Peers see it in the nonce, so only a holder of a key must be able to
    /// choose it. A retransmission has the same number, and gets the same nonce within
    /// [`NONCE_WINDOW`](crate::NONCE_WINDOW).
    pub request: u64,
    /// Where the request came from. The nonce tells whether credentials are [from there](Authenticator::is_from).
    pub source: IpAddr,
}

/// Issues challenges and verifies credentials; one per shard. Each accepts the nonces of all others in the process.
#[derive(Debug)]
pub struct Authenticator {
    nonces: KeyRing,
    /// Keys for the HA1s of nonexistent users.
    dummies: KeyRing,
    /// Keys for the tags of sources.
    sources: KeyRing,
    windows: Arc<NonceWindows>,
    /// The H(A2) of the last REGISTER; within a domain all have the same.
    last: RefCell<Option<Ha2Cache>>,
}

/// An H(A2) with its input.
#[derive(Debug)]
struct Ha2Cache {
    algorithm: Algorithm,
    uri: Box<[u8]>,
    hex: Hex,
}

impl Authenticator {
    /// Creates an authenticator. The keys for nonces are derived from `ring`, the process's key ring.
    #[must_use]
    pub fn new(ring: &KeyRing, windows: Arc<NonceWindows>) -> Self {
        Self {
            nonces: ring.derive("nonce"),
            dummies: ring.derive("dummy-ha1"),
            sources: ring.derive("nonce-source"),
            windows,
            last: RefCell::default(),
        }
    }

    /// Replaces the keys after a rotation. Nonces under the previous key are accepted until they expire.
    pub fn handle_keys(&mut self, ring: &KeyRing) {
        self.nonces = ring.derive("nonce");
        self.dummies = ring.derive("dummy-ha1");
        self.sources = ring.derive("nonce-source");
    }

    /// Whether credentials in a request answer a challenge that was sent to `source`, so that the sender must be there
    /// and cannot have forged the address. The challenge may be of any age, of an earlier process or of another server
    /// with the same key.
    #[must_use]
    pub fn is_from(
        &self,
        policy: &Policy,
        message: &Message<'_>,
        header: HeaderName,
        realm: &[u8],
        source: IpAddr,
    ) -> bool {
        let found = credentials::find_for(policy, message.head(), header, realm);
        let CredentialsResult::Digest(credentials) = found else { return false };
        let Some(tag) = tag_of(&credentials.nonce) else { return false };
        self.sources.keys().any(|key| source_tag(key, source_bits(source)) ^ tag == 0)
    }

    /// Verifies the credentials of a request.
    ///
    /// `header` is Authorization or Proxy-Authorization; `realm` is that of the challenge. `ha1` looks up a user by
    /// the unquoted name that the client sent and returns the HA1 for the given algorithm. It is called at most once.
    /// For an unknown user the same work is done, with the same result as for a wrong password.
    ///
    /// Acceptance uses up the nonce count: verifying the same request again returns [`Verdict::Challenge`].
    pub fn check<'a>(
        &self,
        now: Timestamp,
        policy: &Policy,
        message: &Message<'a>,
        header: HeaderName,
        realm: &[u8],
        ha1: impl FnOnce(&[u8], Algorithm) -> Option<Ha1>,
    ) -> Verdict {
        let credentials = match credentials::find_for(policy, message.head(), header, realm) {
            CredentialsResult::Nothing => return Verdict::Challenge { stale: false },
            CredentialsResult::Malformed => return Verdict::Malformed,
            CredentialsResult::Digest(credentials) => credentials,
        };
        let algorithm = credentials.algorithm;
        let Some(theirs) = Hex::read(algorithm, &credentials.response) else { return Verdict::Malformed };
        //= rfc7616#3.4.6:bound
        if !is_bound(&credentials.uri, message.request_uri()) {
            return Verdict::Malformed;
        }
        let user = ha1(&credentials.username, algorithm).filter(|ha1| ha1.fits(algorithm));
        let ours = user.unwrap_or_else(|| self.dummy(&credentials, realm));
        let covered = credentials.digest_input(message.method().as_bytes(), message.body());
        //= rfc7616#3.6:compared
        let ours = response_with(algorithm, &ours, &covered, &self.ha2(algorithm, &covered));
        //= rfc7616#3.3:stale
        // A client that does not know the password must not learn that only the nonce was wrong.
        if !(ours.to_hex().matches(&theirs) & user.is_some()) {
            return Verdict::Challenge { stale: false };
        }
        if is_offered(policy, &credentials) && self.use_nonce(now, policy, &credentials) {
            return Verdict::Accepted { username: Username::from_slice(&credentials.username) };
        }
        Verdict::Challenge { stale: true }
    }

    /// Adds one challenge per algorithm of the policy, in order (RFC 8760 §2.3): the client uses the first that it
    /// supports. They share a nonce. If the [response](ResponseBuilder::with_limit) has no room for all, omits those
    /// between the first (the operator's preference) and the last (the most widely supported), then the last, but
    /// never the first. Stores nothing; the same request gets the same challenge within
    /// [`NONCE_WINDOW`](crate::NONCE_WINDOW) (RFC 3261 §8.2.7).
    pub fn challenge<'b>(
        &self,
        now: Timestamp,
        policy: &Policy,
        reply: ResponseBuilder<'b>,
        challenge: &Challenge<'_>,
    ) -> ResponseBuilder<'b> {
        let Challenge { header, realm, stale, request, source } = *challenge;
        //= rfc7616#3.3:unique-nonce
        let tag = source_tag(self.sources.current(), source_bits(source));
        let nonce = self.windows.issue(now, request).to_text(&self.nonces, self.windows.seed(), tag);
        let realm = quoted(realm);
        let stale: &[u8] = if stale { b", stale=true" } else { b"" };
        //= rfc7616#3.3:quoted
        //= rfc8760#2.3
        let parts = |algorithm| -> [&[u8]; 6] {
            [b"Digest realm=\"", &realm, b"\", nonce=\"", &nonce, offer(algorithm, policy.qop), stale]
        };
        let name = header.as_str();
        //= rfc7616#3.7:order
        let Some((first, others)) = policy.algorithms.split_first() else { return reply };
        let mut reply = reply.header(name, &parts(*first));
        if let Some((last, between)) = others.split_last() {
            let last = parts(*last);
            let of_last =
                last.iter().fold(name.len().saturating_add(OF_FIELD), |sum, part| sum.saturating_add(part.len()));
            let limit = reply.limit();
            reply = reply.with_limit(limit.saturating_sub(of_last));
            //= rfc7616#3.7:other-algorithm
            for algorithm in between {
                reply = reply.optional(name, &parts(*algorithm));
            }
            reply = reply.with_limit(limit).optional(name, &last);
        }
        reply
    }

    /// Returns the fill levels of the windows, which all shards share.
    #[must_use]
    pub fn window_stats(&self) -> WindowStats {
        self.windows.stats()
    }

    fn ha2(&self, algorithm: Algorithm, covered: &DigestInput<'_>) -> Hex {
        if covered.method != b"REGISTER" || matches!(covered.protection, Protection::AuthInt { .. }) {
            return ha2(algorithm, covered);
        }
        let mut last = self.last.borrow_mut();
        match &*last {
            Some(known) if known.algorithm == algorithm && *known.uri == *covered.uri => known.hex,
            _ => {
                let hex = ha2(algorithm, covered);
                *last = Some(Ha2Cache { algorithm, uri: covered.uri.into(), hex });
                hex
            }
        }
    }

    //= rfc7616#5.5:replay
    /// Whether the nonce was issued by us or by a member that shares nonces, has not expired, and has not been used
    /// with this count.
    fn use_nonce(&self, now: Timestamp, policy: &Policy, credentials: &Credentials<'_>) -> bool {
        let (windows, age, nc) = (&self.windows, policy.nonce_age, credentials.nc());
        let Some(id) = NonceId::from_text(&credentials.nonce, &self.nonces, windows.seed()) else {
            return windows.use_foreign(now, age, (&credentials.nonce, &self.nonces), nc);
        };
        let shared = windows.nonce_sharing();
        if is_aged(&id, now, age) || shared.is_some_and(|shared| !shared.is_known(id)) {
            return false;
        }
        //= rfc7616#3.4:count-rises
        let is_used = windows.use_count(now, age, id, nc);
        if is_used && let Some(shared) = shared {
            shared.note_use(id, nc);
        }
        is_used
    }

    /// Returns a substitute for the HA1 of an unknown user; nobody can know a password for it.
    fn dummy(&self, credentials: &Credentials<'_>, realm: &[u8]) -> Ha1 {
        let half = |which: &[u8]| self.dummies.current().hash128(&[&credentials.username, realm, which]).to_le_bytes();
        match credentials.algorithm {
            Algorithm::Md5 => Ha1::from(half(b"1")),
            Algorithm::Sha256 | Algorithm::Sha512_256 => {
                let mut raw = [0; 32];
                for (to, from) in raw.iter_mut().zip(half(b"1").into_iter().chain(half(b"2"))) {
                    *to = from;
                }
                Ha1::from(raw)
            }
        }
    }
}

/// Bytes of a header field in addition to name and value.
const OF_FIELD: usize = ": \r\n".len();

//= rfc7616#3.3:qop
//= rfc7616#3.3:not-quoted
/// Returns the part of a challenge after its nonce.
const fn offer(algorithm: Algorithm, qop: Qop) -> &'static [u8] {
    match (algorithm, qop) {
        (Algorithm::Md5, Qop::Auth) => b"\", algorithm=MD5, qop=\"auth\"",
        (Algorithm::Sha256, Qop::Auth) => b"\", algorithm=SHA-256, qop=\"auth\"",
        (Algorithm::Sha512_256, Qop::Auth) => b"\", algorithm=SHA-512-256, qop=\"auth\"",
        (Algorithm::Md5, Qop::AuthOrAuthInt) => b"\", algorithm=MD5, qop=\"auth,auth-int\"",
        (Algorithm::Sha256, Qop::AuthOrAuthInt) => b"\", algorithm=SHA-256, qop=\"auth,auth-int\"",
        (Algorithm::Sha512_256, Qop::AuthOrAuthInt) => b"\", algorithm=SHA-512-256, qop=\"auth,auth-int\"",
    }
}

//= rfc7616#3.4:qop-offered
/// Whether the policy still offers what the credentials use. After a reload they may be for an earlier offer.
fn is_offered(policy: &Policy, credentials: &Credentials<'_>) -> bool {
    !matches!(credentials.qop, ClientQop::AuthInt(_)) || policy.qop == Qop::AuthOrAuthInt
}

/// Whether `uri` of the credentials is the Request-URI or equal to it by RFC 3261 §19.1.4. Some clients omit
/// parameters such as `transport` from one of the two, so parameters may differ, except `maddr`, which determines
/// where a request goes.
fn is_bound(uri: &[u8], request_uri: &[u8]) -> bool {
    if uri == request_uri {
        return true;
    }
    match (Uri::parse(uri), Uri::parse(request_uri)) {
        (Some(Uri::Sip(theirs)), Some(Uri::Sip(asked))) => {
            let maddr = |uri: &strowger_message::SipUri<'_>| uri.params.value("maddr").map(<[u8]>::to_ascii_lowercase);
            let bare = |uri| strowger_message::SipUri { params: Default::default(), ..uri };
            theirs.same(&asked) || maddr(&theirs) == maddr(&asked) && bare(theirs).same(&bare(asked))
        }
        (Some(theirs), Some(asked)) => theirs.same(&asked),
        _ => false,
    }
}

/// Returns the content of a quoted string. Drops control characters, which would end the header.
fn quoted(text: &[u8]) -> Cow<'_, [u8]> {
    // Without an early exit the loop is vectorized.
    let is_special = |byte: &u8| byte.is_ascii_control() | (*byte == b'"') | (*byte == b'\\');
    if !text.iter().fold(false, |any, byte| any | is_special(byte)) {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    for byte in text.iter().filter(|byte| !byte.is_ascii_control()) {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(*byte);
    }
    Cow::Owned(out)
}
