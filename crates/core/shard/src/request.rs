//! What is done with a request that is new and understood.

use core::net::SocketAddr;
use std::sync::Arc;

use smallvec::SmallVec;
use strowger_auth::{Algorithm, Ha1, Verdict};
use strowger_foundation::{Buf, Flow, Timestamp};
use strowger_message::{Aor, HeaderName, Message, Method, Reply, Status, Uri, parse_decimal};
use strowger_proxy::branch::{Branch, Owner, has_looped, loop_hash};
use strowger_proxy::forward::Edits;
use strowger_proxy::routing::RouteSet;
use strowger_proxy::{DEFAULT_MAX_BREADTH, Forwarding, NO_CONTEXT, Stateless, Target, local};
use strowger_registrar::{KeepAlive, KeepAliveDue, Nat};
use strowger_transaction::{Kind, ServerId, ServerKey};

use crate::boundary::Event;
use crate::register::via_matches;
use crate::shard::Shard;
use crate::snapshot::Snapshot;
use crate::way::{Question, Way};

/// The methods that the server itself answers or forwards with rules of their own; every other method is forwarded too.
const ALLOW: &[u8] =
    b"INVITE, ACK, BYE, CANCEL, REGISTER, OPTIONS, INFO, PRACK, UPDATE, MESSAGE, SUBSCRIBE, NOTIFY, PUBLISH, REFER";

/// The methods that the server itself serves.
const OWN_METHODS: &[u8] = b"OPTIONS, REGISTER";

/// Why a request is not served, and what the answer says besides.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// A status, with a reason phrase of our own where the customary one says too little.
    Status(Status, Option<&'static str>),
    /// 401 or 407.
    Challenge { status: Status, realm: SmallVec<[u8; 32]>, stale: bool },
    /// 420: the option tags that are not understood.
    BadExtension(SmallVec<[u8; 64]>),
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self::Status(status, None)
    }
}

/// A request with what every step needs to know of it.
pub(crate) struct Request<'a, 'm> {
    pub(crate) message: &'m Message<'a>,
    pub(crate) source: Flow,
    pub(crate) snapshot: &'m Snapshot,
    routes: RouteSet<'a>,
    loop_hash: u64,
}

impl Shard {
    /// Serves a request that no transaction knows.
    pub(crate) fn serve(&mut self, now: Timestamp, source: Flow, key: ServerKey, message: &Message<'_>) {
        let snapshot = Arc::clone(&self.snapshot);
        match message.method() {
            Method::Ack => self.serve_ack(now, source, &snapshot, message),
            Method::Cancel => self.serve_cancel(now, source, key, &snapshot, message),
            _ => {
                let request = self.examine(source, &snapshot, message);
                let decision = request.and_then(|request| self.decide(now, &request).map(|way| (request, way)));
                self.carry_out(now, source, key, message, decision);
            }
        }
    }

    fn carry_out<'m>(
        &mut self,
        now: Timestamp,
        source: Flow,
        key: ServerKey,
        message: &'m Message<'m>,
        decision: Result<(Request<'m, 'm>, Way<'m>), Refusal>,
    ) {
        if let Ok((request, Way::Forward { targets, stateless })) = &decision
            // A nonce count is good for once, so the retransmission of what was proved must find a transaction.
            && !request.needs_proof()
            && is_stateless(*stateless, targets)
            && max_breadth(message) > 0
        {
            let forwarding = Self::forwarding(request, targets.clone());
            self.proxy.forward_stateless(message, &forwarding);
            return;
        }
        let Some(server) = self.open(now, source, key, message) else { return };
        match decision {
            Err(refusal) => self.refuse(now, server, source, message, refusal),
            Ok((_, Way::Refuse { status, reason })) => {
                self.refuse(now, server, source, message, Refusal::Status(status, reason));
            }
            Ok((_, Way::Server)) => self.serve_own(now, server, source, message),
            Ok((request, Way::Registrar)) => self.register(now, server, &request),
            Ok((_, Way::Redirect { contacts })) => self.redirect(now, server, source, message, &contacts),
            Ok((request, Way::Forward { targets, .. })) => {
                let forwarding = Self::forwarding(&request, targets);
                if let Err(refusal) = check_breadth(&forwarding) {
                    self.refuse(now, server, source, message, refusal);
                    return;
                }
                if message.method() == Method::Invite {
                    self.answer(now, server, source, message, Status::TRYING, None, |reply| reply);
                }
                self.proxy.forward(now, server, message, &forwarding);
            }
        }
    }

    /// The checks of RFC 3261 §16.3 that need no decision.
    fn examine<'a, 'm>(
        &self,
        source: Flow,
        snapshot: &'m Snapshot,
        message: &'m Message<'a>,
    ) -> Result<Request<'a, 'm>, Refusal> {
        let routes = RouteSet::read(self.proxy.ring(), message, |uri| snapshot.is_own_hop(uri))
            .ok_or(Refusal::Status(Status::BAD_REQUEST, Some("Bad Route Header")))?;
        let loop_hash = loop_hash(self.proxy.ring(), message);
        //= rfc3261#16.3
        if has_looped(self.proxy.ring(), message.head(), loop_hash) {
            return Err(Status::LOOP_DETECTED.into());
        }
        // No option tag is understood yet, so each one that a proxy must understand is refused.
        let required = option_tags(message, HeaderName::ProxyRequire);
        if !required.is_empty() {
            return Err(Refusal::BadExtension(required));
        }
        Ok(Request { message, source, snapshot, routes, loop_hash })
    }

    fn decide<'m>(&mut self, now: Timestamp, request: &Request<'_, 'm>) -> Result<Way<'m>, Refusal> {
        let way = self.way(now, request);
        if matches!(way, Way::Registrar) {
            return Ok(way);
        }
        // What nobody would serve is not worth a challenge; but an unknown user must not be told from a known one by it.
        if let Way::Refuse {
            status: Status::UNSUPPORTED_URI_SCHEME | Status::BAD_REQUEST | Status::TOO_MANY_HOPS,
            ..
        } = way
        {
            return Ok(way);
        }
        if request.needs_proof() {
            self.authenticate_caller(now, request)?;
        }
        Ok(way)
    }

    fn way<'m>(&self, now: Timestamp, request: &Request<'_, 'm>) -> Way<'m> {
        let question = Question {
            now,
            snapshot: request.snapshot,
            locations: &self.locations,
            // A CANCEL and an ACK go the way of their INVITE.
            method: match request.message.method() {
                Method::Ack | Method::Cancel => Method::Invite,
                method => method,
            },
            request_uri: request.routes.request_uri,
            next_hop: request.routes.next_hop(),
            proven: request.routes.proven,
            outside: request.routes.outside,
            source: request.source,
        };
        match question.way() {
            way @ (Way::Registrar | Way::Server) => way,
            //= rfc3261#16.3
            // Max-Forwards limits how far a request goes on; one that has arrived is served.
            _ if request.message.max_forwards() == Some(0) => {
                Way::Refuse { status: Status::TOO_MANY_HOPS, reason: None }
            }
            way => way,
        }
    }

    //= rfc3261#22.3
    /// The caller proves to be who From says.
    fn authenticate_caller(&mut self, now: Timestamp, request: &Request<'_, '_>) -> Result<(), Refusal> {
        let from = request.message.from().parse_uri();
        let claimed = from.as_ref().and_then(Uri::sip).and_then(|uri| request.snapshot.identity(uri));
        let (header, status) = (HeaderName::ProxyAuthorization, Status::PROXY_AUTHENTICATION_REQUIRED);
        let user = self.authenticate(now, request, header, status, request.callers_domain())?;
        self.check_identity(request, &user, claimed.as_ref())
    }

    /// The address of record whose credentials the request carries.
    pub(crate) fn authenticate(
        &mut self,
        now: Timestamp,
        request: &Request<'_, '_>,
        header: HeaderName,
        status: Status,
        domain: &[u8],
    ) -> Result<Aor, Refusal> {
        let snapshot = request.snapshot;
        let realm: SmallVec<[u8; 32]> = SmallVec::from_slice(snapshot.auth.realm.as_deref().unwrap_or(domain));
        let ha1 = |username: &[u8], algorithm: Algorithm| stored_ha1(snapshot, &user_aor(username, domain), algorithm);
        let given = request.message.head().first(header).is_some();
        match self.authenticator.check(now, &snapshot.auth, request.message, header, &realm, ha1) {
            Verdict::Accepted { username } => Ok(user_aor(&username, domain)),
            Verdict::Malformed => Err(Refusal::Status(Status::BAD_REQUEST, Some("Bad Credentials"))),
            Verdict::Challenge { stale } => {
                if given && !stale {
                    self.counters.wrong_credentials += 1;
                    let identity = strowger_message::lossy(request.message.from().uri);
                    self.report(Event::WrongCredentials { peer: request.source.peer, identity });
                }
                Err(Refusal::Challenge { status, realm, stale })
            }
        }
    }

    /// A user registers and calls only as itself, or as an alias of itself.
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

    //= rfc3261#16.6
    fn forwarding<'m>(request: &Request<'m, 'm>, targets: SmallVec<[Target<'m>; 2]>) -> Forwarding<'m> {
        Forwarding {
            edits: Edits {
                source: request.source,
                routes: request.routes.clone(),
                record_route: request.snapshot.proxy.record_route,
                strip_identity: !request.is_trusted(),
                strip_credentials: Some(request.snapshot.auth.realm.as_deref().unwrap_or(request.callers_domain())),
            },
            targets,
            caller_outside: request.outside(),
            loop_hash: request.loop_hash,
            max_breadth: max_breadth(request.message),
            ring_timeout: request.snapshot.proxy.ring_timeout,
        }
    }

    /// An ACK that no transaction absorbed: it belongs to a 2xx, or to a call that was forwarded without state. It is never
    /// answered.
    fn serve_ack(&mut self, now: Timestamp, source: Flow, snapshot: &Snapshot, message: &Message<'_>) {
        let Ok(request) = self.examine(source, snapshot, message) else { return };
        if let Way::Forward { targets, .. } = self.way(now, &request) {
            let forwarding = Self::forwarding(&request, targets);
            self.proxy.forward_stateless(message, &forwarding);
        }
    }

    //= rfc3261#16.10
    fn serve_cancel(
        &mut self,
        now: Timestamp,
        source: Flow,
        key: ServerKey,
        snapshot: &Snapshot,
        message: &Message<'_>,
    ) {
        let invite = self.find_cancelled(message);
        if invite.is_none()
            && let Ok(request) = self.examine(source, snapshot, message)
            && let Way::Forward { targets, stateless } = self.way(now, &request)
            && is_stateless(stateless, &targets)
        {
            let forwarding = Self::forwarding(&request, targets);
            self.proxy.forward_stateless(message, &forwarding);
            return;
        }
        let Some(server) = self.open(now, source, key, message) else { return };
        let status = if invite.is_some() { Status::OK } else { Status::NO_SUCH_TRANSACTION };
        self.answer(now, server, source, message, status, None, |reply| reply);
        if let Some(invite) = invite {
            self.proxy.cancel(now, invite);
        }
    }

    /// Opens a server transaction; a full table is answered 503 without one.
    fn open(&mut self, now: Timestamp, source: Flow, key: ServerKey, message: &Message<'_>) -> Option<ServerId> {
        let kind = if message.method() == Method::Invite { Kind::Invite } else { Kind::NonInvite };
        let reply_to = local::reply_flow(message.via(), &source);
        let opened = self.proxy.transactions().open_server(now, key, kind, reply_to, NO_CONTEXT);
        if let Ok(server) = opened {
            return Some(server);
        }
        self.counters.table_full += 1;
        self.report(Event::TableFull { table: "server transactions" });
        let mut out = self.proxy.transactions().pool().take(message.bytes().len());
        let key = self.proxy.tag_key();
        local::begin(&mut out, key, message, &source, Status::SERVICE_UNAVAILABLE, None).finish();
        self.proxy.transactions().send_once(reply_to, out);
        None
    }

    /// Sends a response of our own through the server transaction; `headers` adds to it.
    #[expect(clippy::too_many_arguments, reason = "all of it is the response's")]
    pub(crate) fn answer(
        &mut self,
        now: Timestamp,
        server: ServerId,
        source: Flow,
        message: &Message<'_>,
        status: Status,
        reason: Option<&str>,
        headers: impl for<'b> FnOnce(Reply<'b>) -> Reply<'b>,
    ) {
        let mut out: Buf = self.proxy.transactions().pool().take(message.bytes().len().saturating_add(256));
        let reply = local::begin(&mut out, self.proxy.tag_key(), message, &source, status, reason);
        headers(reply).finish();
        self.proxy.transactions().respond(now, server, status, out);
    }

    pub(crate) fn refuse(
        &mut self,
        now: Timestamp,
        server: ServerId,
        source: Flow,
        message: &Message<'_>,
        refusal: Refusal,
    ) {
        match refusal {
            Refusal::Status(status, reason) => {
                self.counters.refused += 1;
                //= rfc3261#21.4.6
                // A 405 must list what is allowed.
                let allow = status == Status::METHOD_NOT_ALLOWED;
                self.answer(now, server, source, message, status, reason, |reply| {
                    if allow { reply.header("Allow", &[OWN_METHODS]) } else { reply }
                });
            }
            Refusal::BadExtension(tags) => {
                self.counters.refused += 1;
                let status = Status::BAD_EXTENSION;
                self.answer(now, server, source, message, status, None, |reply| reply.header("Unsupported", &[&tags]));
            }
            Refusal::Challenge { status, realm, stale } => {
                self.challenge(now, server, source, message, status, &realm, stale);
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "all of it is the challenge's")]
    fn challenge(
        &mut self,
        now: Timestamp,
        server: ServerId,
        source: Flow,
        message: &Message<'_>,
        status: Status,
        realm: &[u8],
        stale: bool,
    ) {
        self.counters.challenged += 1;
        let header = match status {
            Status::UNAUTHORIZED => HeaderName::WwwAuthenticate,
            _ => HeaderName::ProxyAuthenticate,
        };
        let mut out: Buf = self.proxy.transactions().pool().take(message.bytes().len().saturating_add(512));
        let reply = local::begin(&mut out, self.proxy.tag_key(), message, &source, status, None);
        self.authenticator.challenge(now, &self.snapshot.auth, reply, header, realm, stale).finish();
        self.proxy.transactions().respond(now, server, status, out);
    }

    //= rfc3261#11.2
    fn serve_own(&mut self, now: Timestamp, server: ServerId, source: Flow, message: &Message<'_>) {
        //= rfc3261#8.2.2.3
        let required = option_tags(message, HeaderName::Require);
        if !required.is_empty() {
            self.refuse(now, server, source, message, Refusal::BadExtension(required));
            return;
        }
        if message.method() != Method::Options {
            self.counters.refused += 1;
            self.answer(now, server, source, message, Status::METHOD_NOT_ALLOWED, None, |r| {
                r.header("Allow", &[OWN_METHODS])
            });
            return;
        }
        self.answer(now, server, source, message, Status::OK, None, |reply| {
            reply.header("Allow", &[ALLOW]).header("Accept", &[b"application/sdp"]).header("Supported", &[b""])
        });
    }

    fn redirect(
        &mut self,
        now: Timestamp,
        server: ServerId,
        source: Flow,
        message: &Message<'_>,
        contacts: &[Box<[u8]>],
    ) {
        self.answer(now, server, source, message, Status::MOVED_TEMPORARILY, None, |reply| {
            contacts.iter().fold(reply, |reply, uri| reply.header("Contact", &[b"<", uri, b">"]))
        });
    }

    fn find_cancelled(&self, message: &Message<'_>) -> Option<ServerId> {
        self.proxy.transactions_ref().find_server(self.cancelled_key(message))
    }

    /// An OPTIONS to a binding, forwarded by nobody: its branch belongs to no transaction, so that its answer is dropped.
    fn write_options(&self, out: &mut Buf, due: &KeepAliveDue) {
        use std::io::Write as _;
        let Some(listener) = self.snapshot.listener(due.flow.listener) else { return };
        let key = self.proxy.tag_key();
        let serial = self.counters.keep_alives.to_be_bytes();
        let place = key.hash64(&[&serial, &due.uri]);
        let branch =
            Branch { shard: self.id, owner: Owner::KeepAlive(place), loop_hash: place }.encode(self.proxy.ring());
        let tag = key.sign(&[&serial, &due.uri]).to_text();
        let uri = due.uri.split(|byte| *byte == b'?').next().unwrap_or(&[]);
        let parts: [&[u8]; 22] = [
            b"OPTIONS ",
            uri,
            b" SIP/2.0\r\nVia: SIP/2.0/",
            listener.transport.as_str().as_bytes(),
            b" ",
            &listener.sent_by,
            b";branch=",
            &branch,
            b"\r\nMax-Forwards: 70\r\nFrom: <sip:",
            &listener.sent_by,
            b">;tag=",
            &tag,
            b"\r\nTo: <",
            uri,
            b">\r\nCall-ID: ",
            &tag,
            b"@",
            &listener.sent_by,
            b"\r\nCSeq: 1 OPTIONS\r\nContact: <sip:",
            &listener.sent_by,
            b">\r\n",
            b"Content-Length: 0\r\n\r\n",
        ];
        for part in parts {
            // Writing to a Vec cannot fail.
            let _ = out.write_all(part);
        }
    }

    /// Keeps a translation open (RFC 5626 §3.5.1, or OPTIONS as the configuration has it).
    pub(crate) fn keep_alive(&mut self, due: &KeepAliveDue) {
        let kind = self.snapshot.registrar.keep_alive;
        if kind == KeepAlive::Off {
            return;
        }
        self.counters.keep_alives += 1;
        let mut out = self.proxy.transactions().pool().take(512);
        match kind {
            KeepAlive::Options => self.write_options(&mut out, due),
            KeepAlive::Crlf | KeepAlive::Off => out.extend_from_slice(b"\r\n\r\n"),
        }
        self.proxy.transactions().send_once(due.flow, out);
    }
}

impl<'m> Request<'_, 'm> {
    /// The domain of ours that From names, else the first: the realm of a caller where the configuration names none.
    fn callers_domain(&self) -> &'m [u8] {
        let from = self.message.from().parse_uri();
        let named = from.as_ref().and_then(Uri::sip).and_then(|uri| self.snapshot.domain(&uri.host()));
        named.or(self.snapshot.domains.first().map(|domain| &**domain)).unwrap_or(b"")
    }

    /// The source, where a translation hides who sent the request: what comes back goes there and not to the Contact. Who
    /// is behind another proxy is that proxy's care.
    fn outside(&self) -> Option<SocketAddr> {
        let is_first_hop = || self.message.head().elements(HeaderName::Via).nth(1).is_none();
        let translated = match self.snapshot.registrar.nat {
            Nat::Never => false,
            Nat::Always => is_first_hop(),
            Nat::Auto => !via_matches(self.message, &self.source) && is_first_hop(),
        };
        translated.then_some(self.source.peer)
    }

    /// Whether the sender has to prove who it is.
    fn needs_proof(&self) -> bool {
        let required = self.snapshot.auth.requires(self.message.method().as_bytes());
        required && !self.routes.proven && !self.is_trusted()
    }

    pub(crate) fn is_trusted(&self) -> bool {
        self.snapshot.auth.trusts(self.source.peer.ip())
    }
}

fn is_stateless(stateless: Stateless, targets: &[Target<'_>]) -> bool {
    match stateless {
        Stateless::Never => false,
        Stateless::WhenPossible => targets.len() == 1,
        Stateless::Always => true,
    }
}

/// A username is the user part of an address of record; a whole address is taken too.
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

/// All option tags of `header` as one list.
pub(crate) fn option_tags(message: &Message<'_>, header: HeaderName) -> SmallVec<[u8; 64]> {
    let mut tags: SmallVec<[u8; 64]> = SmallVec::new();
    for tag in message.head().elements(header).filter(|tag| !tag.is_empty()) {
        if !tags.is_empty() {
            tags.extend_from_slice(b", ");
        }
        tags.extend_from_slice(tag);
    }
    tags
}

fn max_breadth(message: &Message<'_>) -> u32 {
    let given = message.head().first(HeaderName::MaxBreadth).and_then(parse_decimal);
    given.map_or(DEFAULT_MAX_BREADTH, |breadth| u32::try_from(breadth).unwrap_or(u32::MAX))
}

//= rfc5393#5.3.3
fn check_breadth(forwarding: &Forwarding<'_>) -> Result<(), Refusal> {
    let needed = u32::try_from(forwarding.targets.len()).unwrap_or(u32::MAX);
    if forwarding.max_breadth < needed { Err(Status::MAX_BREADTH_EXCEEDED.into()) } else { Ok(()) }
}
