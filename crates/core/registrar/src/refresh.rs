//! The way that nearly all REGISTERs take: they say again what is there, and only its time changes.
//!
//! What comes of it is what [`Locations::apply`](crate::Locations::apply) would make of it, to the byte. What is not recognised
//! here is no less valid; it goes the long way, which is the rule.

use strowger_foundation::Flow;
use strowger_message::{HeaderName, Message, NameAddr};

use crate::binding::{Binding, PackedFlow, Preference};
use crate::contact_header;
use crate::locations::Source;
use crate::plan::{RegisterSequence, lifetime};
use crate::policy::{Nat, Policy};
use crate::record_context::RecordContext;
use crate::stripe::Stripe;
use crate::update::{ContactUpdate, read_seconds};

/// A REGISTER with one contact, which may be known already, over a datagram and through no other proxy.
#[derive(Clone, Copy, Debug)]
pub struct RefreshRequest<'a> {
    /// Call-ID.
    pub call_id: &'a [u8],
    /// The number of CSeq.
    pub cseq: u32,
    /// The contact's URI as written. Nobody has read it yet: it is good where it is one that is bound.
    uri: &'a [u8],
    expires_s: Option<u32>,
    q: Option<u16>,
}

impl<'a> RefreshRequest<'a> {
    /// One of a user agent's Call-ID and CSeq that says `uri` again, for so many seconds.
    #[must_use]
    pub const fn new((call_id, cseq): (&'a [u8], u32), uri: &'a [u8], expires_s: Option<u32>) -> Self {
        Self { call_id, cseq, uri, expires_s, q: None }
    }

    /// Reads a REGISTER that may be one; `None` where it is not, and for one that is not well-formed.
    #[must_use]
    pub fn read(message: &Message<'a>) -> Option<Self> {
        let head = message.head();
        if head.first(HeaderName::Path).is_some() {
            return None;
        }
        let contact = NameAddr::parse(head.only(HeaderName::Contact).ok()??)?;
        let expires_s = head.only(HeaderName::Expires).ok()?.and_then(read_seconds);
        let (mut renewal_expires_s, mut q) = (expires_s, None);
        if !contact.params.as_bytes().is_empty() {
            let read = ContactUpdate::read_params(&contact, expires_s).ok()?;
            if !read.instance.is_empty() {
                return None;
            }
            (renewal_expires_s, q) = (read.expires_s, read.q);
        }
        let (call_id, cseq) = (message.call_id(), message.cseq().number);
        Some(Self { call_id, cseq, uri: contact.uri, expires_s: renewal_expires_s, q })
    }
}

impl Stripe {
    /// Renews the one binding of an address where `renewal` says nothing else, and writes its Contact to `lines`. `false` where
    /// it does: then nothing is changed.
    pub(crate) fn refresh(
        &mut self,
        ground: &RecordContext<'_>,
        (aor, hash): (&[u8], u32),
        (policy, source): (&Policy, &Source),
        (renewal, call): (&RefreshRequest<'_>, RegisterSequence),
        lines: &mut Vec<u8>,
    ) -> bool {
        let now = ground.now;
        let Ok(Some(lifetime)) = lifetime(policy, renewal.expires_s) else { return false };
        let is_renewed = |known: &Binding| renewal.matches(known, policy.nat, source) && call.is_after(known);
        let Some(index) =
            self.sole_binding(ground, aor, hash).filter(|(_, known)| is_renewed(known)).map(|(index, _)| index)
        else {
            return false;
        };
        self.set_keep_alive(policy);
        if let Some(binding) = self.bindings.get_mut(index) {
            binding.call_id = call.id;
        }
        self.touch(now, index, ground.process_time(ground.store_time(now + lifetime)), call.cseq);
        if let Some(binding) = self.bindings.get(index) {
            contact_header::write_contact(lines, now, binding, None);
        }
        true
    }

    /// The binding of an address that has one.
    fn sole_binding(&self, ground: &RecordContext<'_>, aor: &[u8], hash: u32) -> Option<(u32, &Binding)> {
        let mut current = self.index.of(hash).filter_map(|index| Some((index, self.bindings.get(index)?)));
        let is_current = |(_, binding): &(u32, &Binding)| binding.aor() == aor && ground.now < binding.expires;
        let first = current.find(is_current)?;
        current.find(is_current).is_none().then_some(first)
    }
}

impl RefreshRequest<'_> {
    /// Whether it says of `known` what that is already.
    fn matches(&self, known: &Binding, nat: Nat, source: &Source) -> bool {
        // No two bindings of an address are of equal URIs (RFC 3261 §19.1.4), so one with the same bytes is the one that is
        // meant, and its URI was read when it came.
        let is_sip = self.uri.starts_with(b"sip:") || self.uri.starts_with(b"sips:");
        if known.uri() != self.uri || !is_sip {
            return false;
        }
        if !known.instance().is_empty() || !known.text.path().is_empty() || source.flow.connection.is_some() {
            return false;
        }
        let translated = match nat {
            Nat::Never => false,
            Nat::Always => true,
            Nat::Auto if !source.via_sent_by_matches => true,
            Nat::Auto if known.packed_flow.is_at_peer() => false,
            Nat::Auto => return false,
        };
        let Flow { listener, transport, peer, .. } = source.flow;
        let place = PackedFlow::new(&Flow::new(listener, transport, peer), Preference::new(self.q, translated));
        known.packed_flow.is_same(&place)
    }
}
