//! The registrar's side of a REGISTER (RFC 3261 §10.3, RFC 5626 §6).

use smallvec::SmallVec;
use strowger_foundation::{Flow, Timestamp};
use strowger_message::{HeaderName, Message, NameAddr, Reply, Status, Uri};
use strowger_registrar::{GruuKey, Source, Update};
use strowger_transaction::ServerId;

use crate::gruu;
use crate::reply::Refusal;
use crate::request::Request;
use crate::shard::Shard;
use crate::snapshot::Snapshot;

/// What a REGISTER may require.
const UNDERSTOOD: [&[u8]; 3] = [b"path", b"outbound", b"gruu"];

impl Shard {
    pub(crate) fn register(&mut self, now: Timestamp, server: ServerId, request: &Request<'_, '_>) {
        let (message, source) = (request.message, request.source);
        match self.try_register(now, request) {
            Ok((aor, update)) => {
                self.counters.registered += 1;
                self.confirm(now, server, request, &aor, &update);
            }
            Err(Failure::Refused(refusal)) => self.refuse(now, server, source, message, refusal),
            Err(Failure::Registrar(refusal)) => {
                self.counters.refused += 1;
                let reason = refusal.reason();
                self.answer(now, server, source, message, refusal.status(), Some(reason), |reply| match refusal {
                    strowger_registrar::Refusal::IntervalTooBrief { min_s } => {
                        reply.header_fmt("Min-Expires", format_args!("{min_s}"))
                    }
                    _ => reply,
                });
            }
        }
    }

    //= rfc3261#10.3
    /// The eight steps; the address of record whose bindings the answer lists.
    fn try_register<'a>(
        &mut self,
        now: Timestamp,
        request: &Request<'a, '_>,
    ) -> Result<(Box<[u8]>, Update<'a>), Failure> {
        let (message, snapshot) = (request.message, request.snapshot);
        let required = not_understood(message);
        if !required.is_empty() {
            return Err(Refusal::BadExtension(required).into());
        }
        let to = message.to().parse_uri();
        let Some(Uri::Sip(to)) = to else {
            return Err(Refusal::Status(Status::BAD_REQUEST, Some("To Is No SIP Address")).into());
        };
        let Some(claimed) = snapshot.identity(&to) else {
            return Err(Refusal::Status(Status::NOT_FOUND, Some("Domain Not Served Here")).into());
        };
        let aor: Box<[u8]> = snapshot.directory.resolve(claimed.as_bytes()).into();
        // A trunk calls, and registers nobody; and its address can be claimed by whoever can forge a datagram.
        if snapshot.auth.requires(b"REGISTER") && !snapshot.auth.trusts(request.source.peer.ip()) {
            let (header, status) = (HeaderName::Authorization, Status::UNAUTHORIZED);
            let user = self.authenticate(now, request, header, status, claimed.domain())?;
            self.check_identity(request, &user, Some(&claimed))?;
        }
        let mut update = Update::read(message)?;
        leave_own_hops(snapshot, &mut update);
        let source = Source { flow: request.source, via_sent_by_matches: via_matches(message, &request.source) };
        self.locations.apply(now, &aor, &snapshot.registrar, &source, &update)?;
        Ok((aor, update))
    }

    /// The 200, with the bindings that there are now.
    fn confirm(
        &mut self,
        now: Timestamp,
        server: ServerId,
        request: &Request<'_, '_>,
        aor: &[u8],
        update: &Update<'_>,
    ) {
        let (message, source, policy) = (request.message, request.source, &request.snapshot.registrar);
        let locations = std::sync::Arc::clone(&self.locations);
        let ring = *self.proxy.ring();
        let times = [now.as_nanos().to_be_bytes(), u64::from(update.cseq).to_be_bytes()];
        let nonce = self.proxy.tag_key().hash64(&[times.as_flattened(), update.call_id]);
        let seal = |key: &GruuKey| gruu::seal(&ring, key, nonce);
        let wants_gruu = policy.gruu && update.supported.gruu;
        let flow_timer = source.transport.is_reliable() && update.first_hop;
        self.answer(now, server, source, message, Status::OK, None, |reply| {
            let reply = locations.write_contacts(now, aor, wants_gruu.then_some(&seal), reply);
            let mut reply = copy_path(reply, message, update);
            //= rfc3608#6.3
            for route in &policy.service_route {
                reply = reply.header("Service-Route", &[route]);
            }
            if !update.uses_outbound() {
                return reply;
            }
            //= rfc5626#6
            let reply = reply.header("Require", &[b"outbound"]).header("Supported", &[b"outbound, path"]);
            // Over datagrams a client's own interval is the shorter one, as a translation needs it (RFC 5626 §4.4.2).
            if flow_timer {
                return reply.header_fmt("Flow-Timer", format_args!("{}", policy.flow_timer.as_secs()));
            }
            reply
        });
    }
}

//= rfc3327#5.3
/// The path as it came, for a client that knows what that is.
fn copy_path<'b>(reply: Reply<'b>, message: &Message<'_>, update: &Update<'_>) -> Reply<'b> {
    let path = message.head().all(HeaderName::Path).filter(|_| update.supported.path);
    path.fold(reply, |reply, value| reply.header("Path", &[value]))
}

/// A path's first hops that are this server are no hops for it; one with a user is, for that names a flow.
fn leave_own_hops(snapshot: &Snapshot, update: &mut Update<'_>) {
    let is_own = |value: &[u8]| match NameAddr::parse(value).and_then(|value| value.parse_uri()) {
        Some(Uri::Sip(uri)) => uri.user.is_none() && snapshot.is_own_hop(&uri),
        _ => false,
    };
    while update.path.first().is_some_and(|value| is_own(value)) {
        update.path.remove(0);
    }
}

/// The option tags of Require that we do not understand, as one list.
fn not_understood(message: &Message<'_>) -> SmallVec<[u8; 64]> {
    let mut unknown: SmallVec<[u8; 64]> = SmallVec::new();
    for tag in message.head().elements(HeaderName::Require).filter(|tag| !tag.is_empty()) {
        if UNDERSTOOD.iter().any(|known| known.eq_ignore_ascii_case(tag)) {
            continue;
        }
        if !unknown.is_empty() {
            unknown.extend_from_slice(b", ");
        }
        unknown.extend_from_slice(tag);
    }
    unknown
}

/// Why a REGISTER failed.
enum Failure {
    Refused(Refusal),
    Registrar(strowger_registrar::Refusal),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<strowger_registrar::Refusal> for Failure {
    fn from(refusal: strowger_registrar::Refusal) -> Self {
        Self::Registrar(refusal)
    }
}

/// Whether the client knows the address that it is seen from: if so nothing translates between it and us. On a stream the
/// port that it is seen from is none that it could name.
pub(crate) fn via_matches(message: &Message<'_>, source: &Flow) -> bool {
    let via = message.via();
    let port = via.sent_by.port.unwrap_or(source.transport.default_port());
    let same_port = source.transport.is_reliable() || port == source.peer.port();
    via.host().ip() == Some(source.peer.ip()) && same_port
}
