//! Authentication of the sender of a request, and whether it may use the identity that it claims.

use smallvec::SmallVec;
use strowger_auth::{Algorithm, Ha1, Verdict};
use strowger_foundation::Timestamp;
use strowger_message::{Aor, HeaderName, Status, Uri};

use super::Request;
use crate::boundary::Event;
use crate::own_responses::Refusal;
use crate::shard::Shard;
use crate::snapshot::Snapshot;

impl Shard {
    //= rfc3261#22.3
    /// Authenticates the caller as the identity in From.
    pub(super) fn authenticate_caller(&mut self, now: Timestamp, request: &Request<'_, '_>) -> Result<(), Refusal> {
        let from = request.message.from().parse_uri();
        let claimed = from.as_ref().and_then(Uri::sip).and_then(|uri| request.snapshot.identity(uri));
        //= rfc7616#3.8:407
        let (header, status) = (HeaderName::ProxyAuthorization, Status::PROXY_AUTHENTICATION_REQUIRED);
        let user = self.authenticate(now, request, header, status, request.callers_domain())?;
        self.check_identity(request, &user, claimed.as_ref())
    }

    /// Authenticates a sender within a dialog as any local user. The identity is not checked: From names a callee as
    /// it was dialled, which may be a group or a user who forwarded the call. A gateway is no user, whatever number
    /// it was called by.
    pub(super) fn authenticate_party(&mut self, now: Timestamp, request: &Request<'_, '_>) -> Result<(), Refusal> {
        if request.snapshot.is_next_hop(now, &self.names, request.source.peer.ip()) {
            return Ok(());
        }
        let (header, status) = (HeaderName::ProxyAuthorization, Status::PROXY_AUTHENTICATION_REQUIRED);
        self.authenticate(now, request, header, status, request.callers_domain()).map(drop)
    }

    /// Returns the address of record whose credentials the request carries.
    pub(crate) fn authenticate(
        &mut self,
        now: Timestamp,
        request: &Request<'_, '_>,
        header: HeaderName,
        status: Status,
        domain: &[u8],
    ) -> Result<Aor, Refusal> {
        let snapshot = request.snapshot;
        //= rfc7616#5.2:realm
        let realm: SmallVec<[u8; 32]> = SmallVec::from_slice(snapshot.auth.realm.as_deref().unwrap_or(domain));
        let mut known = None;
        let ha1 = |username: &[u8], algorithm: Algorithm| {
            stored_ha1(snapshot, known.insert(user_aor(username, domain)), algorithm)
        };
        let given = request.message.head().first(header).is_some();
        match self.authenticator.check(now, &snapshot.auth, request.message, header, &realm, ha1) {
            Verdict::Accepted { username } => {
                self.proven.insert(now, request.source.peer.ip());
                request.is_authenticated.set(true);
                Ok(known.unwrap_or_else(|| user_aor(&username, domain)))
            }
            //= rfc7616#3.4.6:400
            Verdict::Malformed => Err(Refusal::Status(Status::BAD_REQUEST, Some("Bad Credentials"))),
            Verdict::Challenge { stale } => {
                if given && !stale {
                    self.counters.wrong_credentials += 1;
                    //= rfc7616#3.4:logged
                    //= rfc7616#3.4:log-careful
                    self.report_failure(request, (header, realm.as_slice()), known.as_ref());
                }
                Err(Refusal::Challenge { status, realm, stale })
            }
        }
    }

    /// Reports wrong credentials; `user` is that of the credentials if they are for the realm.
    #[cold]
    fn report_failure(&mut self, request: &Request<'_, '_>, (header, realm): (HeaderName, &[u8]), user: Option<&Aor>) {
        let Request { message, snapshot, source, .. } = *request;
        let (peer, transport) = (source.peer, source.transport);
        let is_proven = user.is_some()
            && (transport.is_reliable()
                || self.authenticator.is_from(&snapshot.auth, message, header, realm, peer.ip()));
        self.report(Event::WrongCredentials {
            peer,
            transport,
            identity: strowger_message::lossy(message.from().uri),
            user: user.map(Aor::to_string),
            is_known_user: user.is_some_and(|user| snapshot.directory.user(user.as_bytes()).is_some()),
            is_proven,
        });
    }

    //= rfc3261#10.3:forbidden
    /// Checks that a user registers and calls only as itself or as an alias of itself.
    pub(crate) fn check_identity(
        &mut self,
        request: &Request<'_, '_>,
        user: &Aor,
        claimed: Option<&Aor>,
    ) -> Result<(), Refusal> {
        let directory = &request.snapshot.directory;
        if claimed.is_some_and(|claimed| directory.resolve(claimed.as_bytes()) == user.as_bytes()) {
            return Ok(());
        }
        let (claimed, reason) = match claimed {
            Some(claimed) => (claimed.to_string(), "Not Your Identity"),
            None => (strowger_message::lossy(request.message.from().uri), "From Names No Domain Served Here"),
        };
        self.report(Event::WrongIdentity { peer: request.source.peer, user: user.to_string(), claimed });
        Err(Refusal::Status(Status::FORBIDDEN, Some(reason)))
    }
}

/// Returns the address of record of a username, which is its user part or the whole address.
fn user_aor(username: &[u8], domain: &[u8]) -> Aor {
    let (user, domain) = match username.iter().rposition(|byte| *byte == b'@') {
        Some(at) => (username.get(..at).unwrap_or(&[]), username.get(at.saturating_add(1)..).unwrap_or(&[])),
        None => (username, domain),
    };
    Aor::from_unescaped(user, domain)
}

fn stored_ha1(snapshot: &Snapshot, aor: &Aor, algorithm: Algorithm) -> Option<Ha1> {
    let user = snapshot.directory.user(aor.as_bytes()).filter(|user| user.enabled)?;
    match algorithm {
        Algorithm::Md5 => user.ha1.md5.map(Ha1::from),
        Algorithm::Sha256 => user.ha1.sha256.map(Ha1::from),
        Algorithm::Sha512_256 => user.ha1.sha512_256.map(Ha1::from),
    }
}
