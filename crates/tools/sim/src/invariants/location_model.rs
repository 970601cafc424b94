//! The location table compared with its reference model.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use strowger_foundation::{ConnId, Timestamp};
use strowger_message::{HeaderName, Message, Method, SipUri, Status};
use strowger_registrar::model::Model;
use strowger_registrar::{ContactTarget, Source, Update};
use strowger_shard::{MAX_AMPLIFICATION, Snapshot};

use super::fork::ExpectedTargets;
use super::{Invariants, Key, Rule, Upstream, Verdict};
use crate::invariants::broken_unless;
use crate::ladder::summary;
use crate::ledger::Ledger;
use crate::server::{PendingRecord, Server, Step};

/// Longest possible Contact header field; a response with room for one more omits none.
const LONGEST_CONTACT: usize = 400;

/// Contacts with their q values, in thousandths.
type Contacts = Vec<(Vec<u8>, u16)>;

/// Model of the location table, and REGISTERs that wait for the store.
#[derive(Debug)]
pub(super) struct LocationModel {
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) ledger: Ledger,
    known: BTreeSet<Vec<u8>>,
    /// REGISTERs that wait for earlier ones, by address of record.
    pub(super) queues: BTreeMap<Vec<u8>, VecDeque<QueuedRegister>>,
    /// REGISTERs that wait for the store, by shard and ticket.
    pub(super) staged: BTreeMap<(usize, u64), StagedRegister>,
    /// Contacts that the table already has while records are being read.
    pub(super) loading: Option<BTreeMap<Vec<u8>, Contacts>>,
}

/// REGISTER that waits for earlier ones.
#[derive(Clone, Debug)]
pub(super) struct QueuedRegister {
    pub(super) key: Key,
    pub(super) is_barred: bool,
}

/// REGISTER whose record was sent to the store.
#[derive(Clone, Debug)]
pub(super) struct StagedRegister {
    pub(super) key: Key,
    pub(super) aor: Vec<u8>,
    pub(super) at: Timestamp,
    pub(super) record: Vec<u8>,
    /// Whether its client was told to retry.
    pub(super) is_answered: bool,
    /// Whether its user was removed meanwhile.
    pub(super) is_barred: bool,
}

/// REGISTER as the registrar interprets it.
pub(super) struct RegisterRequest<'a> {
    pub(super) aor: Vec<u8>,
    pub(super) source: Source,
    pub(super) request: Message<'a>,
}

impl LocationModel {
    pub(super) fn new(snapshot: Arc<Snapshot>) -> Self {
        Self {
            snapshot,
            ledger: Ledger::default(),
            known: BTreeSet::new(),
            queues: BTreeMap::new(),
            staged: BTreeMap::new(),
            loading: None,
        }
    }

    pub(super) fn is_empty(&self, now: Timestamp) -> bool {
        self.ledger.model.bindings(now) == 0
    }

    fn aor(&self, uri: &SipUri<'_>) -> Option<Vec<u8>> {
        let aor = self.snapshot.identity(uri)?;
        Some(self.snapshot.directory.resolve(aor.as_bytes()).to_vec())
    }

    pub(super) fn asked<'a>(&mut self, upstream: &'a Upstream) -> Option<RegisterRequest<'a>> {
        let request = Message::parse(&upstream.request).ok()?;
        let aor = request.to().parse_uri().and_then(|uri| self.aor(uri.sip()?))?;
        let (via, flow) = (request.via(), upstream.source);
        // On a stream the phone does not know its public port.
        let same_port = flow.transport.is_reliable() || via.sent_by.port.unwrap_or(5060) == flow.peer.port();
        let matches = via.host().ip() == Some(flow.peer.ip()) && same_port;
        let source = Source { flow, via_sent_by_matches: matches };
        self.known.insert(aor.clone());
        Some(RegisterRequest { aor, source, request })
    }

    /// Applies a REGISTER to a model and returns the status of the response.
    pub(super) fn apply(&self, model: &mut Model, at: Timestamp, asked: &RegisterRequest<'_>) -> Status {
        let update = Update::read(&asked.request);
        let policy = &self.snapshot.registrar;
        let applied = update.and_then(|update| model.apply(at, &asked.aor, policy, &asked.source, &update));
        applied.map_or_else(|refusal| refusal.status(), |_| Status::OK)
    }

    /// Checks that a 200 lists all current bindings, or at least those named in `request` if the response would be
    /// too long.
    pub(super) fn check_listed(&self, now: Timestamp, aor: &[u8], answer: &[u8], request: &[u8]) -> Verdict {
        let Ok(parsed) = Message::parse(answer) else { return Ok(()) };
        let listed: Vec<&[u8]> = parsed.head().elements(HeaderName::Contact).collect();
        let bindings = self.ledger.model.lookup(now, aor);
        let is_cut = answer.len() + LONGEST_CONTACT > MAX_AMPLIFICATION * request.len();
        let agrees = (listed.len() == bindings.len() || is_cut && listed.len() < bindings.len())
            && bindings.iter().all(|binding| {
                let uri = [b"<", &binding.uri[..], b">"].concat();
                let is_named = || request.windows(uri.len()).any(|part| part == uri);
                listed.iter().any(|contact| contact.starts_with(&uri)) || is_cut && !is_named()
            });
        broken_unless(agrees, Rule::Registrar, || format!("the answer lists {} of {}", listed.len(), bindings.len()))
    }

    /// Handles a closed connection.
    pub(super) fn disconnect(&mut self, connection: ConnId) {
        self.ledger.model.disconnect(connection);
    }

    /// Returns the contacts of a local user with their q values.
    pub(super) fn contacts(&self, now: Timestamp, uri: &SipUri<'_>) -> Option<Contacts> {
        let aor = self.aor(uri)?;
        if let Some(shown) = &self.loading {
            return Some(shown.get(&aor).cloned().unwrap_or_default());
        }
        Some(self.ledger.model.lookup(now, &aor).into_iter().map(|target| (target.uri.to_vec(), target.q)).collect())
    }

    /// Checks the targets of a request outside a dialog: the contacts in the model, highest q first.
    fn check_targets(&self, upstream: &Upstream) -> Verdict {
        let ExpectedTargets::Contacts(contacts) = &upstream.targets else { return Ok(()) };
        let best = contacts.iter().map(|(_, q)| *q).max();
        let mut expected: Vec<_> = contacts.iter().filter(|(_, q)| Some(*q) == best).map(|(uri, _)| uri).collect();
        let mut seen: Vec<_> = upstream.branches.iter().map(|branch| &branch.uri).collect();
        expected.sort();
        seen.sort();
        let absent = |status| matches!(status, Status::NOT_FOUND | Status::TEMPORARILY_UNAVAILABLE);
        if self.loading.is_some() && upstream.branches.is_empty() {
            let known = !contacts.is_empty() || !upstream.finals.iter().any(|one| absent(one.status));
            return broken_unless(known, Rule::Loading, || {
                format!("nobody knows yet that there is no such phone: {}", summary(&upstream.request))
            });
        }
        if seen.is_empty() && !upstream.finals.iter().any(|one| absent(one.status)) {
            // It was rejected for another reason.
            return Ok(());
        }
        broken_unless(seen == expected, Rule::Registrar, || {
            format!("{} targets of {}: {}", seen.len(), expected.len(), summary(&upstream.request))
        })
    }

    fn check_lookups(&mut self, now: Timestamp, server: &Server) -> Verdict {
        if let Some(shown) = &mut self.loading {
            for aor in &self.known {
                let mut found: Vec<ContactTarget> = Vec::new();
                server.lookup(now, aor, &mut found);
                let found = found.into_iter().map(|target| (target.uri.to_vec(), target.q)).collect();
                shown.insert(aor.clone(), found);
            }
            return Ok(());
        }
        for aor in &self.known {
            let mut found: Vec<ContactTarget> = Vec::new();
            server.lookup(now, aor, &mut found);
            let expected = self.ledger.model.lookup(now, aor);
            broken_unless(found == expected, Rule::Registrar, || {
                format!("{} has {found:?}, the model {expected:?}", aor.escape_ascii())
            })?;
        }
        Ok(())
    }
}

impl Invariants {
    pub(super) fn check_table(
        &mut self,
        now: Timestamp,
        step: &Step,
        records: &[PendingRecord],
        server: &Server,
    ) -> Verdict {
        self.check_registers(now, step, records, server)?;
        if let Some((key, true)) = &self.step.request
            && let Some(upstream) = self.upstream.get(key)
            && key.1 != Method::Register.as_bytes()
            && key.1 != Method::Cancel.as_bytes()
        {
            self.table.check_targets(upstream)?;
        }
        self.table.check_lookups(now, server)
    }
}
