//! Overload control between servers (RFC 7339, RFC 7415): feedback in responses to the sender, feedback from next
//! hops, and requests withheld from them because of it.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use strowger_foundation::{Flow, Timestamp};
use strowger_message::{
    Head, HeaderName, Message, Method, OVERLOAD_OFFER, OVERLOAD_OFFER_WITH_RATE, ResponseBuilder, Status, Via,
    is_emergency_service,
};
use strowger_overload::{Feedback, OutgoingRequest};
use strowger_transaction::ClientId;

use crate::engine::Proxy;
use crate::failover::may_fail_over;
use crate::forward;
use crate::local::{self, ToTag, ViaText};
use crate::target::{NextHop, NextHopAddress, Target};

impl Proxy {
    /// Sets whether overload control is offered to next hops and sent to senders that ask for it.
    pub const fn set_overload_control(&mut self, enabled: bool) {
        self.overload.is_enabled = enabled;
    }

    //= rfc7415#3.3
    /// Returns the overload control offer to a next hop, if the operator has configured it as a server. Algorithms
    /// are listed only for those known to support overload control.
    pub(crate) fn overload_offer(
        &self,
        now: Timestamp,
        target: &Target,
        place: &NextHop,
        peer: SocketAddr,
    ) -> Option<&'static [u8]> {
        let is_server = place.balanced.is_some() || target.trunk.is_some();
        let offer = || match self.overload.neighbours.has_feedback(now, peer) {
            true => OVERLOAD_OFFER_WITH_RATE,
            false => OVERLOAD_OFFER,
        };
        (self.overload.is_enabled && is_server).then(offer)
    }

    /// Starts a response to `message`, received from `source`, with overload feedback if the sender asked and there
    /// is any.
    #[inline]
    #[expect(clippy::too_many_arguments, reason = "all of it is the response's")]
    #[must_use]
    pub fn begin_response<'b>(
        &self,
        now: Timestamp,
        out: &'b mut Vec<u8>,
        to_tag: &ToTag,
        message: &Message<'_>,
        source: &Flow,
        status: Status,
        reason: Option<&str>,
    ) -> ResponseBuilder<'b> {
        if self.overload.shedding.has_feedback(now) {
            return self.begin_response_with_feedback(now, out, to_tag, message, source, status, reason);
        }
        local::begin(out, to_tag, message, source, status, reason)
    }

    #[cold]
    #[inline(never)]
    #[expect(clippy::too_many_arguments, reason = "all of it is the response's")]
    fn begin_response_with_feedback<'b>(
        &self,
        now: Timestamp,
        out: &'b mut Vec<u8>,
        to_tag: &ToTag,
        message: &Message<'_>,
        source: &Flow,
        status: Status,
        reason: Option<&str>,
    ) -> ResponseBuilder<'b> {
        let reason = reason.unwrap_or(status.reason());
        self.begin_response_from_head(now, out, to_tag, message.head(), message.via(), source, status, reason)
    }

    /// Starts the same for a request of which only the head was parsed.
    #[expect(clippy::too_many_arguments, reason = "all of it is the response's")]
    #[must_use]
    pub fn begin_response_from_head<'b>(
        &self,
        now: Timestamp,
        out: &'b mut Vec<u8>,
        to_tag: &ToTag,
        head: &Head<'_>,
        via: &Via<'_>,
        source: &Flow,
        status: Status,
        reason: &str,
    ) -> ResponseBuilder<'b> {
        match self.feedback(now, via, source) {
            Some(feedback) => local::begin_with_feedback(out, to_tag, head, via, source, status, reason, &feedback),
            None => local::begin_from_head(out, to_tag, head, via, source, status, reason),
        }
    }

    /// Returns the overload feedback for the sender of a request from `source` with the topmost Via `via`; `None` if
    /// it has not asked or there is nothing to report.
    #[must_use]
    pub fn feedback(&self, now: Timestamp, via: &Via<'_>, source: &Flow) -> Option<Feedback> {
        if self.overload.shedding.has_feedback(now) { self.feedback_to(now, via, source.peer) } else { None }
    }

    fn feedback_to(&self, now: Timestamp, via: &Via<'_>, client: SocketAddr) -> Option<Feedback> {
        if !self.overload.is_enabled {
            return None;
        }
        via.params.find("oc")?;
        self.overload.shedding.feedback_for(now, client, via.params.value("oc-algo"))
    }

    /// Writes a next hop's response to forward upstream; `None` if no Via would remain.
    #[inline]
    pub(crate) fn write_upstream(&self, now: Timestamp, out: &mut Vec<u8>, response: &Message<'_>) -> Option<()> {
        if response.has_other_next_via_params() || !response.head().has(HeaderName::ContentLength) {
            return self.write_response_with_feedback(now, out, response);
        }
        forward::write_response(out, response)
    }

    #[cold]
    fn write_response_with_feedback(&self, now: Timestamp, out: &mut Vec<u8>, response: &Message<'_>) -> Option<()> {
        forward::write_unusual_response(out, response, self.upstream_via(now, response).as_deref())
    }

    /// Returns the replacement of the Via below ours in a response; `None` if it is unchanged.
    fn upstream_via(&self, now: Timestamp, response: &Message<'_>) -> Option<ViaText> {
        let via = response.next_via()?;
        let client =
            SocketAddr::new(via.response_ip().unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)), via.response_port());
        let feedback = self.feedback_to(now, &via, client);
        //= rfc7339#5.4
        // Feedback of others in that Via is not trustworthy: a phone could keep all calls away from this server.
        let is_forged = || Feedback::read(via.params.iter().map(|param| (param.name, param.value))).is_some();
        (feedback.is_some() || is_forged()).then(|| local::with_feedback(via.text, feedback.as_ref())).flatten()
    }

    //= rfc7339#5.4
    /// Records the load feedback of a branch's next hop, if it was offered. `via` is ours from the response.
    #[cold]
    pub(crate) fn record_next_hop_load(&self, now: Timestamp, index: u32, client: ClientId, via: &Via<'_>) {
        let params = via.params.as_bytes();
        if params.ends_with(OVERLOAD_OFFER) || params.ends_with(OVERLOAD_OFFER_WITH_RATE) {
            return;
        }
        let branch = self.context(index).and_then(|context| context.branches.iter().find(|one| one.client == client));
        let Some(flow) = branch.filter(|branch| branch.has_overload_offer).and_then(|branch| branch.flow) else {
            return;
        };
        if let Some(feedback) = Feedback::read(via.params.iter().map(|param| (param.name, param.value))) {
            self.overload.neighbours.handle_feedback(now, flow.peer, &feedback);
        }
    }

    //= rfc7339#5.5
    //= rfc7339#5.10
    /// Removes leading next hops whose limits exclude this request. Each skip to another is charged to the failover
    /// budget. Returns whether one is left.
    #[cold]
    pub(crate) fn skip_overloaded_hops(&mut self, now: Timestamp, message: &Message<'_>, target: &mut Target) -> bool {
        let asking = OutgoingRequest {
            has_priority: has_priority(message),
            random: self.tag_key.table64(&[b"overload control", message.call_id()]),
        };
        loop {
            let Some(place) = target.next_hops.first() else { return false };
            let NextHopAddress::Flow(flow) = place.address else { return true };
            if self.overload.neighbours.admits(now, flow.peer, asking) {
                return true;
            }
            let has_other = target.next_hops.len() > 1;
            if !has_other || !may_fail_over(now, &self.outages, target, Some(flow.peer)) {
                self.counters.failovers_refused += u64::from(has_other);
                self.counters.shed_for_next_hop += 1;
                return false;
            }
            target.next_hops.remove(0);
        }
    }
}

//= rfc7339#5.10.1
/// Whether a request is exempt from a next hop's limits: within a dialog, for an emergency, or with a resource
/// priority (RFC 4412).
fn has_priority(message: &Message<'_>) -> bool {
    let belongs = matches!(message.method(), Method::Ack | Method::Bye | Method::Cancel | Method::Prack);
    belongs
        || message.to().tag().is_some()
        || is_emergency_service(message.request_uri())
        || message.head().first(HeaderName::ResourcePriority).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(line: &str, to: &str, extra: &str) -> String {
        let method = line.split(' ').next().unwrap_or("");
        format!(
            "{line} SIP/2.0\r\nVia: SIP/2.0/UDP a;branch=z9hG4bK1\r\nFrom: <sip:a@b>;tag=1\r\nTo: <sip:b@b>{to}\r\n\
             Call-ID: c\r\nCSeq: 1 {method}\r\n{extra}Content-Length: 0\r\n\r\n"
        )
    }

    #[test]
    fn request_priority() {
        let is_kept = |line, to, extra| {
            let text = request(line, to, extra);
            has_priority(&Message::parse(text.as_bytes()).expect("valid"))
        };
        for line in ["INVITE sip:b@b", "MESSAGE sip:b@b", "REGISTER sip:b", "OPTIONS sip:b", "INVITE urn:service:sosx"]
        {
            assert!(!is_kept(line, "", ""), "{line}");
        }
        assert!(is_kept("INVITE sip:b@b", ";tag=2", ""), "in a dialog");
        for line in ["BYE sip:b@b", "CANCEL sip:b@b", "INVITE urn:service:sos", "INVITE URN:service:sos.fire"] {
            assert!(is_kept(line, "", ""), "{line}");
        }
        assert!(is_kept("INVITE sip:b@b", "", "resource-priority : ets.0\r\n"));
        assert!(!is_kept("INVITE sip:b@b", "", "Subject: Resource-Priority: no\r\n"));
    }
}
