//! What the hook does between messages: answers of engines, time-outs, the ends of calls, configuration.

use core::net::SocketAddr;
use core::time::Duration;
use std::sync::Arc;

use strowger_foundation::Timestamp;
use strowger_media::{EngineChange, Outcome};
use strowger_message::Message;
use strowger_transaction::ServerId;

use super::{HeldKind, HeldMessage, MediaFailure, MediaHook, token_of};
use crate::boundary::{Event, Inquiry, Output};
use crate::shard::Shard;
use crate::snapshot::Snapshot;

/// Minimum interval between two reports of failed calls.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

impl Shard {
    /// Creates, updates or drops the hook. Returns the messages that a dropped hook held, to be
    /// [let go on](Self::release_all) under the new snapshot.
    #[cold]
    pub(crate) fn configure_media(&mut self, now: Timestamp, snapshot: &Snapshot) -> Vec<HeldMessage> {
        match (&snapshot.media, &mut self.media) {
            (Some(policy), hook) => {
                let (id, key, seed) = (self.id, self.ring.current(), self.seed);
                let hook = hook.get_or_insert_with(|| Box::new(MediaHook::new(id, &key.derive("media"), seed, now)));
                hook.client.handle_policy(now, policy, self.locations.shards());
                Vec::new()
            }
            (None, Some(hook)) => {
                hook.add_counters(&mut self.counters);
                let mut held: Vec<_> = hook.held.drain().collect();
                held.sort_unstable_by_key(|(token, _)| *token);
                self.media = None;
                held.into_iter().map(|(_, held)| held).collect()
            }
            (None, None) => Vec::new(),
        }
    }

    /// Lets messages that no longer wait for an engine go on as received, in the order of their arrival.
    #[cold]
    pub(crate) fn release_all(&mut self, now: Timestamp, held: Vec<HeldMessage>) {
        held.into_iter().for_each(|held| self.release(now, held, &[]));
    }

    /// Handles a datagram from an engine.
    #[cold]
    pub(crate) fn handle_media(&mut self, now: Timestamp, engine: SocketAddr, message: &[u8]) {
        if let Some(hook) = &mut self.media {
            hook.client.handle_message(now, engine, message);
        }
        self.drive_media(now);
    }

    /// Does what is due.
    #[cold]
    pub(crate) fn handle_media_timeout(&mut self, now: Timestamp) {
        let Some(hook) = &mut self.media else { return };
        hook.client.handle_timeout(now);
        while hook.calls.poll_timeout().is_some_and(|at| at <= now) {
            let expired = hook.calls.poll_expired(now);
            // Another process ends the calls that it has taken over.
            if let Some(call) = expired.filter(|_| !self.is_handed_over) {
                hook.delete(now, &call);
            }
        }
    }

    /// Handles the pending outcomes of requests to engines. Called whenever there may be one.
    #[cold]
    pub(crate) fn drive_media(&mut self, now: Timestamp) {
        while let Some((user, outcome)) = self.media.as_mut().and_then(|hook| hook.client.poll_outcome()) {
            self.handle_outcome(now, user, outcome);
        }
        while let Some((engine, change)) = self.media.as_mut().and_then(|hook| hook.client.poll_change()) {
            self.report(Event::MediaEngine { engine, is_up: change == EngineChange::Back });
        }
        self.settle_media();
    }

    /// Takes what is to be sent to engines, and the time of the next deed.
    #[cold]
    pub(crate) fn settle_media(&mut self) {
        let Some(hook) = &mut self.media else { return };
        while let Some(sent) = hook.client.poll_transmit() {
            self.rare.push_back(Output::Ask(Inquiry::Media { engine: sent.engine, command: sent.bytes }));
        }
        self.settle_duties();
    }

    fn handle_outcome(&mut self, now: Timestamp, user: u64, outcome: Outcome) {
        let Some(hook) = &mut self.media else { return };
        let (token, number) = token_of(user);
        let Some(held) = hook.held.get_mut(&token) else { return };
        held.missing = held.missing.saturating_sub(1);
        match outcome {
            Outcome::Sdp(sdp, engine) => {
                if let Some(call) = hook.calls.get_mut(held.call) {
                    call.set_engine(&engine);
                    // An offer must reach the engine each time, because it changes what holds.
                    if held.result_key != 0 {
                        call.keep_result(held.result_key, &sdp);
                    }
                }
                if let Some(body) = held.bodies.get_mut(number) {
                    *body = Some(sdp);
                }
            }
            Outcome::Silent => held.failure = Some(MediaFailure::Silent),
            Outcome::Unavailable => held.failure = Some(MediaFailure::Unavailable),
            Outcome::Refused(reason, engine) => {
                held.failure = Some(MediaFailure::Refused(format!("{}: {reason}", engine.address())));
            }
        }
        if held.missing == 0
            && let Some(held) = hook.held.remove(&token)
        {
            self.resume(now, held);
        }
    }

    fn resume(&mut self, now: Timestamp, mut held: HeldMessage) {
        match &held.failure {
            None => {
                let bodies: Vec<_> = core::mem::take(&mut held.bodies).into_iter().flatten().collect();
                self.release(now, held, &bodies);
            }
            Some(failure) => {
                let failure = failure.clone();
                self.on_media_failed(now, held, &failure);
            }
        }
    }

    /// Lets a held message go on, with these bodies; without any, as received.
    pub(super) fn release(&mut self, now: Timestamp, held: HeldMessage, bodies: &[Vec<u8>]) {
        let HeldMessage { bytes, source, kind, .. } = held;
        match kind {
            HeldKind::Request(request) => self.release_request(now, &bytes, source, *request, bodies),
            HeldKind::Ack { onward, targets } => self.release_ack(now, &bytes, source, onward, &targets, bodies),
            HeldKind::Response(owner) => self.release_response(now, &bytes, source, owner, bodies),
        }
    }

    /// Refuses a held request, or lets the message go on as received. Responses and ACKs always go on: what they
    /// answer has already happened.
    fn on_media_failed(&mut self, now: Timestamp, held: HeldMessage, failure: &MediaFailure) {
        let Some(policy) = self.snapshot.media.as_ref().map(Arc::clone) else { return };
        let is_request = matches!(held.kind, HeldKind::Request(_));
        let is_refused = is_request && policy.on_failure == strowger_media::FailurePolicy::Refuse;
        if let Some(hook) = &mut self.media {
            if is_refused {
                hook.refused = hook.refused.wrapping_add(1);
            } else {
                hook.bypassed = hook.bypassed.wrapping_add(1);
            }
            if is_request && let Some(call) = hook.calls.get_mut(held.call) {
                // Its answer must not go to the engine either.
                call.forget(held.transaction);
            }
        }
        self.report_media_failure(now, &held.bytes, failure, is_refused);
        match held.kind {
            HeldKind::Request(request) if is_refused => {
                self.refuse_held(now, &held.bytes, held.source, &request, failure);
            }
            _ => self.release(now, held, &[]),
        }
    }

    /// Reports a failed call, at most one a second.
    pub(super) fn report_media_failure(
        &mut self,
        now: Timestamp,
        bytes: &[u8],
        failure: &MediaFailure,
        is_refused: bool,
    ) {
        let Some(hook) = &mut self.media else { return };
        if hook.reported.is_some_and(|before| now.saturating_since(before) < REPORT_INTERVAL) {
            return;
        }
        hook.reported = Some(now);
        let call_id = Message::parse(bytes).map(|message| strowger_message::lossy(message.call_id()));
        let reason = match failure {
            MediaFailure::Silent => "no media engine answers".to_owned(),
            MediaFailure::Unavailable => "no media engine is in service".to_owned(),
            MediaFailure::Refused(reason) => format!("media engine {reason}"),
            MediaFailure::TableFull => "too many messages or calls wait for media engines".to_owned(),
        };
        self.report(Event::MediaFailed { call_id: call_id.unwrap_or_default(), reason, is_refused });
    }

    /// Ends the call of a BYE that call tracking does not know.
    #[cold]
    pub(crate) fn end_untracked_media(&mut self, now: Timestamp, bye: &Message<'_>) {
        if let (Some(hook), Some(calls)) = (&mut self.media, &self.calls) {
            hook.end_untracked(now, calls, bye);
        }
        self.settle_media();
    }

    /// Ends a held INVITE that is cancelled. Returns whether there was one.
    pub(crate) fn cancel_held(&mut self, now: Timestamp, server: ServerId) -> bool {
        let Some(hook) = &mut self.media else { return false };
        let is_it = |held: &HeldMessage| matches!(&held.kind, HeldKind::Request(request) if request.server == server);
        let Some(token) = hook.held.iter().find(|(_, held)| is_it(held)).map(|(token, _)| *token) else {
            return false;
        };
        let Some(held) = hook.held.remove(&token) else { return false };
        hook.client.forget(|user| token_of(user).0 == token);
        let HeldKind::Request(request) = held.kind else { return false };
        self.terminate_held(now, &held.bytes, held.source, &request);
        true
    }
}
