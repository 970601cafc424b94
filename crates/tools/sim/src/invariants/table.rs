//! The location table against its reference model.

use std::sync::Arc;

use strowger_foundation::{ConnId, Timestamp};
use strowger_message::{HeaderName, Message, Method, SipUri, Status};
use strowger_registrar::model::Model;
use strowger_registrar::{Source, Target, Update};
use strowger_shard::Snapshot;

use super::fork::Plan;
use super::requests::broken_unless;
use super::{Invariants, Rule, Upstream, Verdict};
use crate::ladder::summary;
use crate::server::Server;

/// The model, and the addresses of record that were ever asked for.
#[derive(Debug)]
pub(super) struct Table {
    snapshot: Arc<Snapshot>,
    model: Model,
    known: Vec<Vec<u8>>,
}

impl Table {
    pub(super) fn new(snapshot: Arc<Snapshot>) -> Self {
        Self { snapshot, model: Model::default(), known: Vec::new() }
    }

    pub(super) fn is_empty(&self, now: Timestamp) -> bool {
        self.known.iter().all(|aor| self.model.lookup(now, aor).is_empty())
    }

    fn aor(&self, uri: &SipUri<'_>) -> Option<Vec<u8>> {
        let aor = self.snapshot.identity(uri)?;
        Some(self.snapshot.directory.resolve(aor.as_bytes()).to_vec())
    }

    /// What a REGISTER that was judged does to the model, and whether the answer says the same.
    fn register(&mut self, now: Timestamp, upstream: &Upstream, status: Status, answer: &[u8]) -> Verdict {
        let (Ok(request), Ok(answer)) = (Message::parse(&upstream.request), Message::parse(answer)) else {
            return Ok(());
        };
        let Some(aor) = request.to().parse_uri().and_then(|uri| self.aor(uri.sip()?)) else { return Ok(()) };
        let (via, flow) = (request.via(), upstream.source);
        // On a stream nobody knows the port that it is seen from.
        let same_port = flow.transport.is_reliable() || via.sent_by.port.unwrap_or(5060) == flow.peer.port();
        let matches = via.host().ip() == Some(flow.peer.ip()) && same_port;
        let source = Source { flow, via_sent_by_matches: matches };
        let update = Update::read(&request);
        let applied = update.and_then(|update| self.model.apply(now, &aor, &self.snapshot.registrar, &source, &update));
        let expected = applied.map_or_else(|refusal| refusal.status(), |_| Status::OK);
        broken_unless(status == expected, Rule::Registrar, || format!("{status}, where the model says {expected}"))?;
        if !self.known.contains(&aor) {
            self.known.push(aor.clone());
        }
        if !status.is_success() {
            return Ok(());
        }
        let listed: Vec<&[u8]> = answer.head().elements(HeaderName::Contact).collect();
        let bindings = self.model.lookup(now, &aor);
        let agrees = listed.len() == bindings.len()
            && bindings.iter().all(|binding| {
                let uri = [b"<", &binding.uri[..], b">"].concat();
                listed.iter().any(|contact| contact.starts_with(&uri))
            });
        broken_unless(agrees, Rule::Registrar, || format!("the answer lists {} of {}", listed.len(), bindings.len()))
    }

    /// A connection is closed.
    pub(super) fn disconnect(&mut self, connection: ConnId) {
        self.model.disconnect(connection);
    }

    /// The contacts of a user of ours, with their preferences.
    pub(super) fn contacts(&self, now: Timestamp, uri: &SipUri<'_>) -> Option<Vec<(Vec<u8>, u16)>> {
        let aor = self.aor(uri)?;
        Some(self.model.lookup(now, &aor).into_iter().map(|target| (target.uri.to_vec(), target.q)).collect())
    }

    /// Where a request that begins something goes: the contacts that the model has, those of the highest preference first.
    fn check_targets(upstream: &Upstream) -> Verdict {
        let Plan::Contacts(contacts) = &upstream.plan else { return Ok(()) };
        let best = contacts.iter().map(|(_, q)| *q).max();
        let mut expected: Vec<_> = contacts.iter().filter(|(_, q)| Some(*q) == best).map(|(uri, _)| uri).collect();
        let mut seen: Vec<_> = upstream.branches.iter().map(|branch| &branch.uri).collect();
        expected.sort();
        seen.sort();
        let absent = |status| matches!(status, Status::NOT_FOUND | Status::TEMPORARILY_UNAVAILABLE);
        if seen.is_empty() && !upstream.finals.iter().any(|one| absent(one.status)) {
            // It was refused for another reason.
            return Ok(());
        }
        broken_unless(seen == expected, Rule::Registrar, || {
            format!("{} targets of {}: {}", seen.len(), expected.len(), summary(&upstream.request))
        })
    }

    fn check_lookups(&self, now: Timestamp, server: &Server) -> Verdict {
        for aor in &self.known {
            let mut found: Vec<Target> = Vec::new();
            server.locations().lookup(now, aor, &mut found);
            let expected = self.model.lookup(now, aor);
            broken_unless(found == expected, Rule::Registrar, || {
                format!("{} has {found:?}, the model {expected:?}", aor.escape_ascii())
            })?;
        }
        Ok(())
    }
}

impl Invariants {
    pub(super) fn check_table(&mut self, now: Timestamp, server: &Server) -> Verdict {
        if let Some((key, true)) = &self.present.request
            && let Some(upstream) = self.upstream.get(key)
        {
            if key.1 == Method::Register.as_bytes() {
                // A challenge changes nothing, and says nothing of the table.
                if let Some(answer) = upstream.finals.first().filter(|one| one.status != Status::UNAUTHORIZED) {
                    self.table.register(now, upstream, answer.status, &answer.bytes)?;
                }
            } else if key.1 != Method::Cancel.as_bytes() {
                Table::check_targets(upstream)?;
            }
        }
        self.table.check_lookups(now, server)
    }
}
