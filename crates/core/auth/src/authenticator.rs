//! The server's half: challenges, and the judging of credentials.

use core::cell::RefCell;
use std::borrow::Cow;
use std::sync::Arc;

use smallvec::SmallVec;
use strowger_foundation::{KeyRing, Timestamp};
use strowger_message::{HeaderName, Message, ResponseBuilder, Uri};

use crate::credentials::{self, ClientQop, Credentials, CredentialsResult};
use crate::hash::{DigestInput, Ha1, Hex, Protection, ha2, response_with};
use crate::nonce::NonceId;
use crate::window::{NonceWindows, WindowStats, is_aged};
use crate::{Algorithm, Policy, Qop};

/// A user name, unquoted, as the client wrote it.
pub type Username = SmallVec<[u8; 32]>;

/// What a request's credentials are worth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// They prove this user.
    Accepted {
        /// The user.
        username: Username,
    },
    /// They prove nothing: to be challenged with 401 or 407.
    Challenge {
        /// The password was right, only the nonce was not: the client may answer anew without asking its user.
        stale: bool,
    },
    /// They cannot be judged, to be answered with 400: broken syntax, something required missing, or a `uri` that is not
    /// the Request-URI.
    Malformed,
}

/// What a challenge says, and to which request.
#[derive(Clone, Copy, Debug)]
pub struct Challenge<'a> {
    /// WWW-Authenticate or Proxy-Authenticate.
    pub header: HeaderName,
    /// The realm, not quoted.
    pub realm: &'a [u8],
    /// The password was right, only the nonce was not.
    pub stale: bool,
    /// What tells the request from all others: a number that only a holder of a key can choose, for peers see it in the nonce. A request
    /// that comes again has the same, and within [`NONCE_WINDOW`](crate::NONCE_WINDOW) gets the same nonce.
    pub request: u64,
}

/// Issues challenges and judges answers; one a shard. Each accepts what any other of the process issued.
#[derive(Debug)]
pub struct Authenticator {
    nonces: KeyRing,
    /// The key of the HA1s of users who do not exist.
    dummies: KeyRing,
    windows: Arc<NonceWindows>,
    /// The H(A2) of the last REGISTER: in one domain it is that of all.
    last: RefCell<Option<Ha2Cache>>,
}

/// An H(A2) and what it is of.
#[derive(Debug)]
struct Ha2Cache {
    algorithm: Algorithm,
    uri: Box<[u8]>,
    hex: Hex,
}

impl Authenticator {
    /// An authenticator. `ring` is the process's: the keys for nonces are derived from it.
    #[must_use]
    pub fn new(ring: &KeyRing, windows: Arc<NonceWindows>) -> Self {
        Self { nonces: ring.derive("nonce"), dummies: ring.derive("dummy-ha1"), windows, last: RefCell::default() }
    }

    /// Takes up rotated keys. Nonces under the key before are accepted until their age.
    pub fn handle_keys(&mut self, ring: &KeyRing) {
        self.nonces = ring.derive("nonce");
        self.dummies = ring.derive("dummy-ha1");
    }

    /// Judges the credentials of a request.
    ///
    /// `header` is Authorization or Proxy-Authorization; `realm` is what the challenge says. `ha1` looks up a user by the
    /// name that the client wrote, unquoted, and gives the HA1 of the algorithm asked for. It is called once at most; for
    /// who is not known the same work is done with the same outcome as for a wrong password.
    ///
    /// Accepting uses the nonce count up: to judge the same request twice gives [`Verdict::Challenge`] the second time.
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
        //= rfc7616#3.4.6
        if !is_bound(&credentials.uri, message.request_uri()) {
            return Verdict::Malformed;
        }
        let user = ha1(&credentials.username, algorithm).filter(|ha1| ha1.fits(algorithm));
        let ours = user.unwrap_or_else(|| self.dummy(&credentials, realm));
        let covered = credentials.digest_input(message.method().as_bytes(), message.body());
        let ours = response_with(algorithm, &ours, &covered, &self.ha2(algorithm, &covered));
        //= rfc7616#3.3
        // Who does not know the password is never told that only the nonce was wrong.
        if !(ours.to_hex().matches(&theirs) & user.is_some()) {
            return Verdict::Challenge { stale: false };
        }
        if is_offered(policy, &credentials) && self.use_nonce(now, policy, &credentials) {
            return Verdict::Accepted { username: Username::from_slice(&credentials.username) };
        }
        Verdict::Challenge { stale: true }
    }

    /// Adds one challenge for each algorithm of the policy, in its order (RFC 8760 §2.3): the client takes the first that
    /// it knows. They share a nonce. Where the [reply](Reply::within) has no room for all, those between the first, which
    /// the operator likes best, and the last, which most clients know, are left out, then the last, but never the first. Nothing is remembered, and the same request gets the same challenge within [`NONCE_WINDOW`](crate::NONCE_WINDOW) (RFC 3261 §8.2.7).
    pub fn challenge<'b>(
        &self,
        now: Timestamp,
        policy: &Policy,
        reply: ResponseBuilder<'b>,
        challenge: &Challenge<'_>,
    ) -> ResponseBuilder<'b> {
        let Challenge { header, realm, stale, request } = *challenge;
        let nonce = self.windows.issue(now, request).to_text(&self.nonces, self.windows.seed());
        let realm = quoted(realm);
        let stale: &[u8] = if stale { b", stale=true" } else { b"" };
        //= rfc7616#3.3
        //= rfc8760#2.3
        let parts = |algorithm| -> [&[u8]; 6] {
            [b"Digest realm=\"", &realm, b"\", nonce=\"", &nonce, offer(algorithm, policy.qop), stale]
        };
        let name = header.as_str();
        let Some((first, others)) = policy.algorithms.split_first() else { return reply };
        let mut reply = reply.header(name, &parts(*first));
        if let Some((last, between)) = others.split_last() {
            let last = parts(*last);
            let of_last =
                last.iter().fold(name.len().saturating_add(OF_FIELD), |sum, part| sum.saturating_add(part.len()));
            let limit = reply.limit();
            reply = reply.with_limit(limit.saturating_sub(of_last));
            for algorithm in between {
                reply = reply.optional(name, &parts(*algorithm));
            }
            reply = reply.with_limit(limit).optional(name, &last);
        }
        reply
    }

    /// How full the windows are that all shards share.
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

    /// Whether the nonce is ours, young enough, and not yet used with this count; or of another server that shares them, and the same.
    fn use_nonce(&self, now: Timestamp, policy: &Policy, credentials: &Credentials<'_>) -> bool {
        let (windows, age, nc) = (&self.windows, policy.nonce_age, credentials.nc());
        let Some(id) = NonceId::from_text(&credentials.nonce, &self.nonces, windows.seed()) else {
            return windows.use_foreign(now, age, (&credentials.nonce, &self.nonces), nc);
        };
        let shared = windows.nonce_sharing();
        if is_aged(&id, now, age) || shared.is_some_and(|shared| !shared.is_known(id)) {
            return false;
        }
        let is_used = windows.use_count(now, age, id, nc);
        if is_used && let Some(shared) = shared {
            shared.note_use(id, nc);
        }
        is_used
    }

    /// What stands for the HA1 of an unknown user; nobody can know a password for it.
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

/// What a header field takes besides its name and its value.
const OF_FIELD: usize = ": \r\n".len();

/// How a challenge goes on behind its nonce.
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

/// After a reload an answer may come for what was offered before it.
fn is_offered(policy: &Policy, credentials: &Credentials<'_>) -> bool {
    !matches!(credentials.qop, ClientQop::AuthInt(_)) || policy.qop == Qop::AuthOrAuthInt
}

/// Whether `uri` of the credentials names what is asked for: the Request-URI itself or one that is equal to it by
/// RFC 3261 §19.1.4. Some clients leave parameters such as `transport` out of one of the two, so parameters may differ,
/// except `maddr`, which says where a request goes.
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

/// The inside of a quoted string; control characters, which would end the header, are left out.
fn quoted(text: &[u8]) -> Cow<'_, [u8]> {
    // Without a way out of the loop it takes many at once.
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
