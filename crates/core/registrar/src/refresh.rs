//! The fast path of nearly all REGISTERs: they repeat the current binding, and only its times change.
//!
//! The result equals that of [`Locations::apply`](crate::Locations::apply) to the byte. A REGISTER that is not
//! recognized here is equally valid and takes the general path.

use strowger_foundation::Flow;
use strowger_message::{HeaderName, Message, NameAddr};

use crate::binding::{Binding, PackedFlow, Preference};
use crate::contact_header;
use crate::plan::lifetime;
use crate::policy::{Nat, Policy};
use crate::record_context::RecordContext;
use crate::register_sequence::RegisterSequence;
use crate::stripe::Stripe;
use crate::update::{ContactUpdate, read_seconds};
use crate::values::Source;

/// A REGISTER over UDP with one contact, which may already be bound, and without a Path.
#[derive(Clone, Copy, Debug)]
pub struct RefreshRequest<'a> {
    /// The Call-ID.
    pub call_id: &'a [u8],
    /// The number of CSeq.
    pub cseq: u32,
    /// The contact's URI as written. It is not parsed: it is valid if it equals the URI of a binding.
    uri: &'a [u8],
    expires_s: Option<u32>,
    q: Option<u16>,
}

impl<'a> RefreshRequest<'a> {
    /// Creates a refresh of `uri` with this Call-ID and CSeq and this expiry in seconds.
    #[must_use]
    pub const fn new((call_id, cseq): (&'a [u8], u32), uri: &'a [u8], expires_s: Option<u32>) -> Self {
        Self { call_id, cseq, uri, expires_s, q: None }
    }

    /// Parses a REGISTER that may be a refresh; `None` if it is not one or is malformed.
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
    /// Refreshes the only binding of an address if `renewal` changes nothing else, and writes its Contact to `lines`.
    /// Returns `false` without any change otherwise.
    pub(crate) fn refresh(
        &mut self,
        context: &RecordContext<'_>,
        (aor, hash): (&[u8], u32),
        (policy, source): (&Policy, &Source),
        (renewal, call): (&RefreshRequest<'_>, RegisterSequence),
        lines: &mut Vec<u8>,
    ) -> bool {
        let now = context.now;
        let Ok(Some(lifetime)) = lifetime(policy, renewal.expires_s) else { return false };
        let is_renewed = |known: &Binding| renewal.matches(known, policy.nat, source) && call.is_after(known);
        let Some(index) =
            self.sole_binding(context, aor, hash).filter(|(_, known)| is_renewed(known)).map(|(index, _)| index)
        else {
            return false;
        };
        self.set_keep_alive(policy);
        if let Some(binding) = self.bindings.get_mut(index) {
            binding.call_id = call.id;
        }
        self.touch(now, index, context.process_time(context.store_time(now + lifetime)), call.cseq);
        if let Some(binding) = self.bindings.get(index) {
            contact_header::write_contact(lines, now, binding, None);
        }
        true
    }

    /// Returns the binding of an address that has exactly one.
    fn sole_binding(&self, context: &RecordContext<'_>, aor: &[u8], hash: u32) -> Option<(u32, &Binding)> {
        let mut current = self.index.of(hash).filter_map(|index| Some((index, self.bindings.get(index)?)));
        let is_current = |(_, binding): &(u32, &Binding)| binding.aor() == aor && context.now < binding.expires;
        let first = current.find(is_current)?;
        current.find(is_current).is_none().then_some(first)
    }
}

impl RefreshRequest<'_> {
    /// Returns whether it repeats the data of `known`.
    fn matches(&self, known: &Binding, nat: Nat, source: &Source) -> bool {
        // No two bindings of an address have equal URIs (RFC 3261 §19.1.4), so a binding with the same bytes is the
        // right one, and its URI was parsed when it was registered.
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
