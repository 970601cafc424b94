//! The final response of a forwarded request: the best one is kept until no branch can give a better one (RFC 3261 §16.7,
//! steps 4 to 9).

use strowger_foundation::{Buf, Flow, Timestamp};
use strowger_message::{Message, Status};

use crate::context::Best;
use crate::engine::Proxy;
use crate::{forward, local};

impl Proxy {
    pub(crate) fn finish_if_done(&mut self, now: Timestamp, index: u32) {
        let Some(context) = self.context_mut(index) else { return };
        if context.answered || context.is_pending() {
            return;
        }
        match context.best.take() {
            Some(best) => self.finish(now, index, best),
            None => {
                let server = context.server;
                self.mark_answered(index);
                self.forget_request(index);
                // The transaction sends no 408 to a non-INVITE; told of one, it stops waiting for an answer.
                self.transactions.respond(now, server, Status::REQUEST_TIMEOUT, Buf::new());
            }
        }
    }

    /// Sends the best final response.
    pub(crate) fn finish(&mut self, now: Timestamp, index: u32, best: Best) {
        let Some(context) = self.context_mut(index) else { return };
        let (server, source) = (context.server, context.source);
        self.mark_answered(index);
        //= rfc3261#16.7
        // A 503 says that this hop is overloaded, which is not ours to say of ourselves (step 6): it leaves as 500.
        let status = if best.status == Status::SERVICE_UNAVAILABLE { Status::SERVER_ERROR } else { best.status };
        let response = best.response.or_else(|| self.write_local(index, status, &source));
        self.forget_request(index);
        if let Some(response) = response {
            self.counters.responses += 1;
            self.transactions.respond(now, server, status, response);
        }
    }

    pub(crate) fn write_local(&mut self, index: u32, status: Status, source: &Flow) -> Option<Buf> {
        let request = self.context_mut(index)?.request.take()?;
        let message = Message::parse(&request).ok()?;
        let mut response = self.transactions.pool().take(request.len());
        local::begin(&mut response, &self.tag_key, &message, source, status, None).finish();
        drop(message);
        self.transactions.pool().give(request);
        Some(response)
    }

    pub(crate) fn forget_request(&mut self, index: u32) {
        let Some(context) = self.context_mut(index) else { return };
        let (request, best) = (context.request.take(), context.best.take());
        for buf in request.into_iter().chain(best.and_then(|best| best.response)) {
            self.transactions.pool().give(buf);
        }
    }

    pub(crate) fn replace_best(&mut self, index: u32, best: Best) {
        let old = self.context_mut(index).and_then(|context| context.best.replace(best));
        if let Some(buf) = old.and_then(|best| best.response) {
            self.transactions.pool().give(buf);
        }
    }

    //= rfc3261#16.7
    /// Adds the challenges of `message` to the best response, which is one itself (step 7): the caller can then answer all
    /// who asked.
    pub(crate) fn collect_challenges(&mut self, index: u32, message: &Message<'_>) {
        let Some(context) = self.contexts.get_mut(index as usize) else { return };
        let Some(best) = context.best.as_mut().and_then(|best| best.response.as_mut()) else { return };
        let mut merged = self.transactions.pool().take(best.len().saturating_add(message.bytes().len()));
        if forward::merge_challenges(&mut merged, best, message).is_some() {
            core::mem::swap(best, &mut merged);
        }
        self.transactions.pool().give(merged);
    }

    pub(crate) fn mark_answered(&mut self, index: u32) {
        if let Some(context) = self.context_mut(index)
            && !core::mem::replace(&mut context.answered, true)
        {
            self.unanswered = self.unanswered.saturating_sub(1);
        }
    }
}

pub(crate) const fn is_challenge(status: Status) -> bool {
    matches!(status.code(), 401 | 407)
}
