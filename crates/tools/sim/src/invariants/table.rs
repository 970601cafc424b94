//! The location table against its reference model.

use std::sync::Arc;

use strowger_foundation::{Flow, ListenerId, Timestamp, Transport};
use strowger_message::{HeaderName, Message, Method, SipUri, Status, Uri};
use strowger_registrar::model::Model;
use strowger_registrar::{Source, Target, Update};
use strowger_shard::Snapshot;

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
        let via = request.via();
        let matches =
            via.host().ip() == Some(upstream.source.ip()) && via.sent_by.port.unwrap_or(5060) == upstream.source.port();
        let flow = Flow::new(ListenerId(0), Transport::Udp, upstream.source);
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

    /// Where a request that begins something goes: the contacts that the model has.
    fn check_targets(&self, now: Timestamp, upstream: &Upstream) -> Verdict {
        let Ok(request) = Message::parse(&upstream.request) else { return Ok(()) };
        let Some(Uri::Sip(uri)) = Uri::parse(request.request_uri()) else { return Ok(()) };
        if request.to().tag().is_some() || uri.user.is_none() {
            return Ok(());
        }
        let Some(aor) = self.aor(&uri) else { return Ok(()) };
        let mut expected: Vec<_> = self.model.lookup(now, &aor).into_iter().map(|target| target.uri.to_vec()).collect();
        let mut seen: Vec<_> = upstream.branches.iter().map(|branch| branch.uri.clone()).collect();
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
                self.table.check_targets(now, upstream)?;
            }
        }
        self.table.check_lookups(now, server)
    }
}
