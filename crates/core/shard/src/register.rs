//! The registrar's handling of REGISTER (RFC 3261 §10.3, RFC 5626 §6).

use core::time::Duration;
use std::sync::Arc;

use smallvec::SmallVec;
use strowger_balancer::Slot;
use strowger_foundation::{ConnId, Flow, Timestamp};
use strowger_message::{HeaderName, Message, NameAddr, ResponseBuilder, SipUri, Status, Uri};
use strowger_proxy::branch::BranchId;
use strowger_proxy::cluster_request::ClusterRequestKind;
use strowger_registrar::{
    Durability, GruuKey, Policy, Record, RefreshRequest, Source, Update, UpdateKind, destination_uri,
};
use strowger_transaction::ServerKey;

use crate::boundary::Event;
use crate::gruu;
use crate::own_responses::{LOADING, Refusal};
use crate::pending_registers::{PendingRegister, QueueLimit};
use crate::request::Request;
use crate::responder::Responder;
use crate::shard::Shard;
use crate::snapshot::Snapshot;

/// Option tags that a REGISTER may require.
const SUPPORTED_OPTION_TAGS: [&[u8]; 3] = [b"path", b"outbound", b"gruu"];

/// Retry-After when the store cannot store a registration.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// A contact, or the first hop of a Path, that leads to this machine.
const LOCAL_CONTACT: strowger_registrar::Refusal =
    strowger_registrar::Refusal::Forbidden("Contact Leads To This Server");

/// The first parameter of a Contact with GRUUs.
const PUB_GRUU: &[u8] = b";pub-gruu=";

/// Length of a Service-Route header without its value.
const OF_SERVICE_ROUTE: usize = "Service-Route: \r\n".len();
const OF_OUTBOUND: usize = "Require: outbound\r\nSupported: outbound, path\r\n".len();

/// A REGISTER in progress.
#[derive(Clone, Copy)]
pub(crate) struct RegisterRequest<'a, 'm> {
    by: Responder,
    pub(crate) source: Flow,
    pub(crate) message: &'m Message<'a>,
    pub(crate) aor: &'m [u8],
}

impl Shard {
    pub(crate) fn register(&mut self, now: Timestamp, key: ServerKey, request: &Request<'_, '_>) {
        let (message, source) = (request.message, request.source);
        let auth = &request.snapshot.auth;
        let aor = match self.registrant(now, request) {
            Ok(aor) => aor,
            Err(refusal) => return self.refuse_registrant(now, key, request, refusal),
        };
        if !self.locations.is_complete() && self.cluster_request_of(message) == Some(ClusterRequestKind::RemoveBindings)
        {
            // The sender stops at any response, but retransmits a request without one.
            return;
        }
        let is_proven = auth.requires(b"REGISTER") || auth.trusts(source.peer.ip());
        let Some(by) = self.open(now, source, key, message, is_proven) else { return };
        if !self.locations.is_complete() {
            // Refused with a transaction. Without one, a retransmission could be carried out later, although it was
            // refused and may be outdated.
            return self.refuse(now, by, source, message, LOADING);
        }
        if request.snapshot.registrar.durability == Durability::Memory
            && self.renew(now, RegisterRequest { by, source, message, aor }, request.snapshot)
        {
            return;
        }
        if request.snapshot.registrar.durability != Durability::WriteThrough {
            self.apply_register(now, RegisterRequest { by, source, message, aor }, None);
            return;
        }
        if let Some(full) = self.pending_registers.exceeded_limit(aor) {
            self.counters.store_unavailable += 1;
            let (event, reason) = match full {
                QueueLimit::PerShard => (Event::TableFull { table: "pending REGISTERs" }, "Store Too Slow"),
                QueueLimit::PerAor => {
                    let aor = strowger_message::lossy(aor);
                    (Event::TooManyPendingRegisters { peer: source.peer, aor }, "Too Many REGISTERs Of This Address")
                }
            };
            self.report(event);
            return self.refuse(now, by, source, message, unavailable(reason));
        }
        let request = self.proxy.transactions().pool().copy_of(message.bytes());
        let (is_answered, is_closed, is_barred) = (false, false, false);
        let waiting = PendingRegister { by, source, request, aor: aor.into(), is_answered, is_closed, is_barred };
        let (ticket, is_first) = self.pending_registers.add(now, waiting);
        if is_first && !self.apply_register(now, RegisterRequest { by, source, message, aor }, Some(ticket)) {
            self.finish_pending(now, ticket);
        }
    }

    //= rfc3261#10.3
    /// Steps 1 to 5: returns the address of record whose bindings the sender may change.
    fn registrant<'m>(&mut self, now: Timestamp, request: &Request<'_, 'm>) -> Result<&'m [u8], Refusal> {
        let (message, snapshot) = (request.message, request.snapshot);
        //= rfc3261#10.3:require
        let required = unsupported_option_tags(message);
        if !required.is_empty() {
            return Err(Refusal::BadExtension(required));
        }
        //= rfc3261#10.3:address-of-domain
        let Some(claimed) = request.claimed else {
            return Err(match message.to().parse_uri() {
                Some(Uri::Sip(_)) => Refusal::Status(Status::NOT_FOUND, Some("Domain Not Served Here")),
                _ => Refusal::Status(Status::BAD_REQUEST, Some("To Is No SIP Address")),
            });
        };
        // Not copied: reading freshly written bytes in pieces of another size stalls the processor (store
        // forwarding).
        let aor = snapshot.directory.resolve(claimed.as_bytes());
        // A trunk makes calls but registers nobody, and anyone who can forge a datagram can claim its address.
        let is_passed = || request.is_cluster_removal() && only_removes(message);
        let is_excused = || snapshot.auth.trusts(request.source.peer.ip()) || is_passed();
        //= rfc3261#10.3:authenticates
        if snapshot.auth.requires(b"REGISTER") && !is_excused() {
            let (header, status) = (HeaderName::Authorization, Status::UNAUTHORIZED);
            let user = self.authenticate(now, request, header, status, claimed.domain())?;
            //= rfc3261#10.3:authorizes
            self.check_identity(request, &user, Some(claimed))?;
        }
        Ok(aor)
    }

    /// Returns the policy for a REGISTER. One passed on by another server of ours, according to its Via, has a Path
    /// where it needs one.
    fn registrar_policy<'s>(&self, snapshot: &'s Snapshot, message: &Message<'_>) -> &'s Policy {
        let Some(clusters) = snapshot.clusters.as_ref().filter(|_| !message.has_one_via()) else {
            return &snapshot.registrar;
        };
        let is_ours = message.via().branch.and_then(|branch| BranchId::decode(self.proxy.ring(), branch)).is_some();
        if is_ours { &clusters.registrar } else { &snapshot.registrar }
    }

    /// Refuses a REGISTER before anything is stored.
    fn refuse_registrant(&mut self, now: Timestamp, key: ServerKey, request: &Request<'_, '_>, refusal: Refusal) {
        let is_challenge = matches!(refusal, Refusal::Challenge { .. });
        let Some(by) = self.responder(now, key, request, is_challenge) else { return };
        self.refuse(now, by, request.source, request.message, refusal);
    }

    /// Steps 6 to 8 in one pass, for a REGISTER that only repeats the current bindings, as nearly all do. Returns
    /// `false` without any effect for any other.
    fn renew(&mut self, now: Timestamp, registering: RegisterRequest<'_, '_>, snapshot: &Snapshot) -> bool {
        let RegisterRequest { by, source, message, aor } = registering;
        let Some(renewal) = RefreshRequest::read(message) else { return false };
        let policy = self.registrar_policy(snapshot, message);
        let mut lines = self.pending_registers.buffer();
        let from = Source { flow: source, via_sent_by_matches: via_matches(message, &source) };
        let is_renewed = self.locations.refresh(now, aor, policy, &from, &renewal, &mut lines);
        if is_renewed {
            self.counters.registered += 1;
            self.answer(now, by, source, message, Status::OK, None, |reply| {
                add_service_routes(policy, add_contacts(reply, &lines, message, policy))
            });
        }
        self.pending_registers.recycle(lines);
        is_renewed
    }

    //= rfc3261#10.3:independent
    /// Steps 6 to 8: decides the new bindings. With a `ticket`, the REGISTER waits for the store; returns `false` if
    /// it has nothing to wait for and is answered.
    fn apply_register(&mut self, now: Timestamp, registering: RegisterRequest<'_, '_>, ticket: Option<u64>) -> bool {
        let RegisterRequest { source, message, aor, .. } = registering;
        let snapshot = Arc::clone(&self.snapshot);
        let mut record = self.pending_registers.buffer();
        let staged = Update::read(message).and_then(|mut update| {
            strip_own_path_hops(&snapshot, &mut update);
            let source = Source { flow: source, via_sent_by_matches: via_matches(message, &source) };
            let policy = self.registrar_policy(&snapshot, message);
            check_destinations(&snapshot, policy, &source, &update)?;
            match policy.durability {
                Durability::Memory => self.locations.apply(now, aor, policy, &source, &update)?,
                Durability::WriteBehind | Durability::WriteThrough => {
                    self.locations.stage(now, aor, policy, &source, &update, &mut record)?
                }
            };
            Ok(update)
        });
        let update = match staged {
            Ok(update) => update,
            Err(refusal) => {
                self.pending_registers.recycle(record);
                self.refuse_registration(now, registering, refusal);
                return false;
            }
        };
        //= rfc3261#10.3:visible-together
        if let Some(ticket) = ticket.filter(|_| !record.is_empty()) {
            self.pending_registers.push_record(Some(ticket), record);
            return true;
        }
        if let Ok(parsed) = Record::parse(&record) {
            self.commit_record(now, &parsed, None);
        }
        if snapshot.registrar.durability == Durability::WriteBehind && !record.is_empty() {
            self.pending_registers.push_record(None, record);
        } else {
            self.pending_registers.recycle(record);
        }
        self.confirm(now, registering, &update);
        false
    }

    //= rfc3261#10.3:failure-changes-nothing
    /// Handles the result of storing a record. A stored record counts, even if its client was told that it took too
    /// long, or the shard that staged it is gone.
    pub(crate) fn handle_stored(&mut self, now: Timestamp, ticket: u64, record: Vec<u8>, kept: bool) {
        let waiting = self.pending_registers.get_mut(ticket);
        let is_ours = waiting.is_some();
        let is_barred = waiting.as_ref().is_some_and(|waiting| waiting.is_barred);
        let closed = waiting.as_ref().and_then(|waiting| waiting.closed());
        let asked = waiting.filter(|waiting| !waiting.is_answered);
        let asked = asked.map(|waiting| (waiting.by, waiting.source, core::mem::take(&mut waiting.request)));
        if kept
            && let Ok(record) = Record::parse(&record)
            && (!is_barred || record.is_change_set())
        {
            if is_barred {
                // The other members already have it and must learn of its removal.
                self.commit_record(now, &record, closed);
                self.bar_user(now, record.aor());
            } else if is_ours {
                self.commit_record(now, &record, closed);
            } else {
                self.commit_orphan_record(now, &record);
            }
        }
        self.pending_registers.recycle(record);
        if let Some((by, source, request)) = asked {
            if let Some(message) = read(&request) {
                match Update::read(&message) {
                    Ok(update) if kept && !is_barred => {
                        let aor =
                            self.pending_registers.get_mut(ticket).map(|waiting| core::mem::take(&mut waiting.aor));
                        let aor = aor.unwrap_or_default();
                        self.confirm(now, RegisterRequest { by, source, message: &message, aor: &aor }, &update);
                    }
                    _ if is_barred => self.refuse(now, by, source, &message, Status::FORBIDDEN.into()),
                    _ => self.refuse_unstored(now, by, source, &message),
                }
            }
            self.proxy.transactions().pool().recycle(request);
        }
        self.finish_pending(now, ticket);
    }

    /// Applies a staged record. If it is newer than the version that it carries, the other members are told.
    pub(crate) fn commit_record(&mut self, now: Timestamp, record: &Record<'_>, closed: Option<ConnId>) {
        if self.locations.put(now, record, closed) {
            let mut known = self.pending_registers.buffer();
            self.locations.write_current_changes(now, record, &mut known);
            self.pending_registers.push_record(None, known);
        }
    }

    /// Applies a record that a previous instance of the shard staged. Whether its connection closed or its user was
    /// barred in the meantime is unknown.
    fn commit_orphan_record(&mut self, now: Timestamp, record: &Record<'_>) {
        let snapshot = Arc::clone(&self.snapshot);
        let is_enabled = snapshot.directory.user(record.aor()).is_some_and(|user| user.enabled);
        if is_enabled || !snapshot.auth.requires(b"REGISTER") {
            self.locations.restore(now, &snapshot.registrar, record);
        }
    }

    //= rfc3261#10.3:in-order
    /// Finishes the REGISTER with this ticket and applies the next ones of its address, until one of them is at the
    /// store.
    fn finish_pending(&mut self, now: Timestamp, ticket: u64) {
        let mut next = self.remove_pending(now, ticket);
        while let Some(ticket) = next {
            if self.apply_pending(now, ticket) {
                return;
            }
            next = self.remove_pending(now, ticket);
        }
    }

    /// Removes a pending REGISTER and applies the operator's commands received after it, since nothing of the address
    /// is at the store.
    fn remove_pending(&mut self, now: Timestamp, ticket: u64) -> Option<u64> {
        let (waiting, next) = self.pending_registers.remove(ticket)?;
        self.proxy.transactions().pool().recycle(waiting.request);
        while let Some(order) = self.pending_registers.poll_command() {
            self.apply_unregister(now, &order.aor, order.contact.as_deref());
        }
        next
    }

    /// Applies a REGISTER that waited for others of its address; returns whether it is at the store.
    fn apply_pending(&mut self, now: Timestamp, ticket: u64) -> bool {
        let Some(waiting) = self.pending_registers.get_mut(ticket) else { return false };
        let (by, source, is_barred) = (waiting.by, waiting.source, waiting.is_barred);
        let (aor, request) = (core::mem::take(&mut waiting.aor), core::mem::take(&mut waiting.request));
        let is_stored = match read(&request) {
            Some(message) if is_barred => {
                self.refuse(now, by, source, &message, Status::FORBIDDEN.into());
                false
            }
            Some(message) => {
                self.apply_register(now, RegisterRequest { by, source, message: &message, aor: &aor }, Some(ticket))
            }
            None => false,
        };
        if let Some(waiting) = self.pending_registers.get_mut(ticket) {
            (waiting.aor, waiting.request) = (aor, request);
        }
        is_stored
    }

    /// Refuses the REGISTERs that have waited too long.
    pub(crate) fn expire_pending_registers(&mut self, now: Timestamp) {
        while let Some((by, source, request)) = self.pending_registers.poll_expired(now) {
            if let Some(message) = read(&request) {
                self.refuse_unstored(now, by, source, &message);
            }
            self.proxy.transactions().pool().recycle(request);
        }
    }

    fn refuse_unstored(&mut self, now: Timestamp, by: Responder, source: Flow, message: &Message<'_>) {
        self.counters.store_unavailable += 1;
        self.refuse(now, by, source, message, unavailable("Registration Cannot Be Stored"));
    }

    fn refuse_registration(
        &mut self,
        now: Timestamp,
        registering: RegisterRequest<'_, '_>,
        refusal: strowger_registrar::Refusal,
    ) {
        let RegisterRequest { by, source, message, aor } = registering;
        self.counters.refused += 1;
        let limit = self.snapshot.registrar.max_contacts;
        if refusal == strowger_registrar::Refusal::TooManyContacts {
            self.counters.too_many_contacts += 1;
            let aor = strowger_message::lossy(aor);
            self.report(Event::TooManyContacts { peer: source.peer, aor, limit });
        }
        if refusal == LOCAL_CONTACT {
            self.counters.local_destinations += 1;
            let contact = message.head().first(HeaderName::Contact).map(strowger_message::lossy).unwrap_or_default();
            self.report(Event::LocalContact { peer: source.peer, aor: strowger_message::lossy(aor), contact });
        }
        let reason = Some(refusal.reason());
        self.answer(now, by, source, message, refusal.status(), reason, |reply| match refusal {
            //= rfc3261#10.3:min-expires
            strowger_registrar::Refusal::IntervalTooBrief { min_s } => {
                reply.header_fmt("Min-Expires", format_args!("{min_s}"))
            }
            //= rfc3261#20.43
            strowger_registrar::Refusal::TooManyContacts => reply.optional_fmt(
                "Warning",
                format_args!("399 strowger \"an address may have {limit} contacts (registrar.max_contacts)\""),
            ),
            _ => reply,
        });
    }

    //= rfc3261#10.3:no-record-route
    /// Sends the 200 with the current bindings.
    fn confirm(&mut self, now: Timestamp, registering: RegisterRequest<'_, '_>, update: &Update<'_>) {
        let RegisterRequest { by, source, message, aor } = registering;
        self.counters.registered += 1;
        self.forward_removal(now, registering, update);
        let snapshot = Arc::clone(&self.snapshot);
        let policy = &snapshot.registrar;
        let ring = *self.proxy.ring();
        let tag_key = *self.proxy.tag_key();
        let seal = |key: &GruuKey| {
            let times = [now.as_nanos().to_be_bytes(), u64::from(update.cseq).to_be_bytes()];
            gruu::seal(&ring, key, Slot::of(aor), tag_key.hash64(&[times.as_flattened(), update.call_id]))
        };
        let wants_gruu = policy.gruu && update.supported.gruu;
        let mut lines = self.pending_registers.buffer();
        self.locations.write_contacts(now, aor, wants_gruu.then_some(&seal), &mut lines);
        let flow_timer = source.transport.is_reliable() && update.is_first_hop;
        self.answer(now, by, source, message, Status::OK, None, |reply| {
            let reply = add_contacts(reply, &lines, message, policy);
            let reply = add_service_routes(policy, copy_path(reply, message, update));
            //= rfc5626#6:no-require
            //= rfc3261#8.2.4:only-supported
            //= rfc3261#8.2.4:baseline
            if !update.uses_outbound() {
                return reply;
            }
            //= rfc3261#8.2.4:require
            //= rfc5626#6:require
            let reply = reply.header("Require", &[b"outbound"]).optional("Supported", &[b"outbound, path"]);
            // Over UDP, a client's default keep-alive interval is shorter, as NAT requires (RFC 5626 §4.4.2).
            if flow_timer {
                return reply.header_fmt("Flow-Timer", format_args!("{}", policy.flow_timer.as_secs()));
            }
            reply
        });
        self.pending_registers.recycle(lines);
    }
}

/// Refuses contacts through which a sender elsewhere would reach this machine itself.
fn check_destinations(
    snapshot: &Snapshot,
    policy: &Policy,
    source: &Source,
    update: &Update<'_>,
) -> Result<(), strowger_registrar::Refusal> {
    let UpdateKind::Contacts(contacts) = &update.kind else { return Ok(()) };
    if !snapshot.guards_itself_from(source.flow.peer.ip()) {
        return Ok(());
    }
    let added = contacts.iter().filter(|contact| contact.expires_s != Some(0));
    let mut destinations = added.filter_map(|contact| destination_uri(policy.nat, source, update, contact));
    // A Path of ours leads on from here.
    let is_path = |uri: &SipUri<'_>| !update.path.is_empty() && snapshot.is_own_hop(uri);
    let is_local = |uri: Uri<'_>| uri.sip().is_some_and(|uri| snapshot.leads_here(uri) && !is_path(uri));
    if destinations.any(is_local) { Err(LOCAL_CONTACT) } else { Ok(()) }
}

/// Returns whether a REGISTER only removes bindings.
fn only_removes(message: &Message<'_>) -> bool {
    match Update::read(message).map(|update| update.kind) {
        Ok(UpdateKind::RemoveAll) => true,
        Ok(UpdateKind::Contacts(contacts)) => contacts.iter().all(|contact| contact.expires_s == Some(0)),
        Ok(UpdateKind::Fetch) | Err(_) => false,
    }
}

/// Parses a stored request that parsed before.
fn read(request: &[u8]) -> Option<Message<'_>> {
    Message::parse(request).ok()
}

//= rfc3608#6.3
fn add_service_routes<'b>(policy: &Policy, reply: ResponseBuilder<'b>) -> ResponseBuilder<'b> {
    policy.service_route.iter().fold(reply, |reply, route| reply.optional("Service-Route", &[route]))
}

//= rfc3261#10.3:lists-bindings
/// Adds all contacts of the address. If the response is limited and they do not fit, adds those that the request
/// names, because its sender must learn their expiry, and as many others as fit. A query without contacts never gets
/// a partial list: its response exceeds the limit instead.
fn add_contacts<'b>(
    mut reply: ResponseBuilder<'b>,
    lines: &[u8],
    message: &Message<'_>,
    policy: &Policy,
) -> ResponseBuilder<'b> {
    // The fields after them. The Path is copied from the request, so it is no longer than there.
    let routes: usize = policy.service_route.iter().map(|route| route.len().saturating_add(OF_SERVICE_ROUTE)).sum();
    let behind = routes.saturating_add(OF_OUTBOUND);
    let path = if message.head().first(HeaderName::Path).is_some() { message.head().len() } else { 0 };
    let behind = behind.saturating_add(path);
    if lines.len().saturating_add(behind) <= reply.remaining() || message.head().first(HeaderName::Contact).is_none() {
        return reply.lines(lines);
    }
    let mut others: SmallVec<[&[u8]; 16]> = SmallVec::new();
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        if is_named(line, message) && line.len() <= reply.remaining() {
            reply = reply.lines(line);
        } else if is_named(line, message) {
            reply = reply.optional_lines(&[without_gruus(line), b"\r\n"].concat());
        } else {
            others.push(line);
        }
    }
    let room = reply.remaining().saturating_sub(behind);
    let mut used = 0_usize;
    for line in others {
        let with = used.saturating_add(line.len());
        if with <= room {
            used = with;
            reply = reply.lines(line);
        }
    }
    reply
}

/// Returns a Contact line without its end and its GRUUs, for a client that gets none.
fn without_gruus(line: &[u8]) -> &[u8] {
    let line = line.trim_ascii_end();
    let at = line.windows(PUB_GRUU.len()).position(|part| part == PUB_GRUU).unwrap_or(line.len());
    line.get(..at).unwrap_or(line)
}

/// Returns whether `message` contains the URI of a Contact line.
fn is_named(line: &[u8], message: &Message<'_>) -> bool {
    let uri = line.split(|byte| *byte == b'<').nth(1).and_then(|rest| rest.split(|byte| *byte == b'>').next());
    uri.is_some_and(|uri| {
        let mut contacts = message.head().elements(HeaderName::Contact).filter_map(NameAddr::parse);
        contacts.any(|contact| contact.uri == uri)
    })
}

//= rfc3261#8.2.4:only-supported
//= rfc3327#5.3
/// Copies the Path of the request, for a client that supports it.
fn copy_path<'b>(reply: ResponseBuilder<'b>, message: &Message<'_>, update: &Update<'_>) -> ResponseBuilder<'b> {
    let path = message.head().all(HeaderName::Path).filter(|_| update.supported.path);
    path.fold(reply, |reply, value| reply.header("Path", &[value]))
}

/// Removes a Path's leading hops that are this server. A hop with a user part stays, because it names a flow.
fn strip_own_path_hops(snapshot: &Snapshot, update: &mut Update<'_>) {
    let is_own = |value: &[u8]| match NameAddr::parse(value).and_then(|value| value.parse_uri()) {
        Some(Uri::Sip(uri)) => uri.user.is_none() && snapshot.is_own_hop(&uri),
        _ => false,
    };
    while update.path.first().is_some_and(|value| is_own(value)) {
        update.path.remove(0);
    }
}

/// Returns the option tags of Require that the server does not support, as one list.
fn unsupported_option_tags(message: &Message<'_>) -> SmallVec<[u8; 64]> {
    let mut unknown: SmallVec<[u8; 64]> = SmallVec::new();
    if message.head().first(HeaderName::Require).is_none() {
        return unknown;
    }
    for tag in message.head().elements(HeaderName::Require).filter(|tag| !tag.is_empty()) {
        if SUPPORTED_OPTION_TAGS.iter().any(|known| known.eq_ignore_ascii_case(tag)) {
            continue;
        }
        if !unknown.is_empty() {
            unknown.extend_from_slice(b", ");
        }
        unknown.extend_from_slice(tag);
    }
    unknown
}

/// Returns whether the client's Via shows the address that it is seen from, which means no NAT in between. On streams
/// the ports are not compared, because a client cannot name its source port.
pub(crate) fn via_matches(message: &Message<'_>, source: &Flow) -> bool {
    let via = message.via();
    let port = via.sent_by.port.unwrap_or(source.transport.default_port());
    let same_port = source.transport.is_reliable() || port == source.peer.port();
    via.host().ip() == Some(source.peer.ip()) && same_port
}

const fn unavailable(reason: &'static str) -> Refusal {
    Refusal::RetryAfter(Status::SERVICE_UNAVAILABLE, reason, RETRY_AFTER)
}
