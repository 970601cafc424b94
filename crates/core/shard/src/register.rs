//! The registrar's side of a REGISTER (RFC 3261 §10.3).

use strowger_foundation::{Flow, Timestamp};
use strowger_message::{HeaderName, Message, Status, Uri};
use strowger_registrar::{Source, Update};
use strowger_transaction::ServerId;

use crate::request::{Refusal, Request, option_tags};
use crate::shard::Shard;

impl Shard {
    pub(crate) fn register(&mut self, now: Timestamp, server: ServerId, request: &Request<'_, '_>) {
        let (message, source) = (request.message, request.source);
        match self.try_register(now, request) {
            Ok(aor) => {
                self.counters.registered += 1;
                let locations = std::sync::Arc::clone(&self.locations);
                self.answer(now, server, source, message, Status::OK, None, |reply| {
                    locations.write_contacts(now, &aor, reply)
                });
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
    fn try_register(&mut self, now: Timestamp, request: &Request<'_, '_>) -> Result<Box<[u8]>, Failure> {
        let (message, snapshot) = (request.message, request.snapshot);
        let required = option_tags(message, HeaderName::Require);
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
        if snapshot.auth.requires(b"REGISTER") && !request.is_trusted() {
            let (header, status) = (HeaderName::Authorization, Status::UNAUTHORIZED);
            let user = self.authenticate(now, request, header, status, claimed.domain())?;
            self.check_identity(request, &user, Some(&claimed))?;
        }
        let update = Update::read(message)?;
        let source = Source { flow: request.source, via_sent_by_matches: via_matches(message, &request.source) };
        self.locations.apply(now, &aor, &snapshot.registrar, &source, &update)?;
        Ok(aor)
    }
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

/// Whether the client knows the address that it is seen from: if so nothing translates between it and us.
pub(crate) fn via_matches(message: &Message<'_>, source: &Flow) -> bool {
    let via = message.via();
    let port = via.sent_by.port.unwrap_or(source.transport.default_port());
    via.host().ip() == Some(source.peer.ip()) && port == source.peer.port()
}
