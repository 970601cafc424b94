//! What a request says of itself: whom it is for, whom it comes from, and what its sender has to prove.

use strowger_foundation::Flow;
use strowger_message::{HeaderName, Method, NameAddr, SipUri, Uri};
use strowger_proxy::cluster_request::ClusterRequestKind;
use strowger_registrar::{Nat, Source, is_translated};

use super::Request;
use crate::next_hops::{is_from, peer_of};
use crate::register::via_matches;
use crate::router::ForwardOptions;

impl<'a, 'm> Request<'a, 'm> {
    /// The Request-URI that counts.
    pub(super) fn uri(&self) -> Option<Uri<'a>> {
        if self.routes.is_uri_from_last_route {
            Uri::parse(self.routes.request_uri)
        } else {
            self.message.uri().copied()
        }
    }

    /// Whether it is a REGISTER for a domain of ours that came without a Route: what [`way`](Shard::way) would find out too.
    pub(super) fn is_for_the_registrar(&self) -> bool {
        let uri = self.message.uri().and_then(Uri::sip).filter(|_| self.message.method() == Method::Register);
        self.message.head().first(HeaderName::Route).is_none()
            && uri.is_some_and(|uri| self.snapshot.addressed_domain(uri).is_some())
    }

    /// Whether a member of another cluster has sent it, which has asked the sender for what he had to prove. A REGISTER was not asked
    /// about.
    pub(super) fn is_cluster_request(&self) -> bool {
        self.routes.cluster_request.is_some() && self.message.method() != Method::Register
    }

    /// Whether it removes bindings, at the word of another cluster that has the user now.
    pub(crate) fn is_cluster_removal(&self) -> bool {
        self.routes.cluster_request.is_some_and(|asked| asked.kind == ClusterRequestKind::RemoveBindings)
    }

    /// The domain of ours that From names, else the first: the realm of a caller where the configuration names none.
    pub(super) fn callers_domain(&self) -> &'m [u8] {
        let from = self.message.from().parse_uri();
        let named = from.as_ref().and_then(Uri::sip).and_then(|uri| self.snapshot.domain(&uri.host()));
        named.or(self.snapshot.domains.first().map(|domain| &**domain)).unwrap_or(b"")
    }

    /// The flow by which the caller is reached in the dialog, where its Contact does not say enough: a translation hides
    /// it, or it came over a connection. Who is behind another proxy is that proxy's care.
    pub(super) fn callers_flow(&self) -> Option<Flow> {
        let translated = match self.snapshot.registrar.nat {
            Nat::Never => false,
            Nat::Always => true,
            Nat::Auto => !via_matches(self.message, &self.source),
        };
        match self.source.connection {
            _ if !self.message.has_one_via() => None,
            Some(_) if translated => Some(self.source),
            Some(_) => {
                let contact = self.message.head().elements(HeaderName::Contact).next();
                let uri = contact.and_then(NameAddr::parse).and_then(|contact| contact.parse_uri());
                let peer = uri.as_ref().and_then(Uri::sip).and_then(peer_of);
                Some(Flow { reopen: true, peer: peer.unwrap_or(self.source.peer), ..self.source })
            }
            None => translated.then_some(self.source),
        }
    }

    //= rfc5626#5.1
    /// Whether a REGISTER that goes on gets a Path that leads back here. Between servers of ours only who is reached through this one
    /// does: any of them reaches the others.
    pub(super) fn needs_path(&self) -> bool {
        if self.message.method() != Method::Register {
            return false;
        }
        if self.snapshot.clusters.is_none() {
            return self.snapshot.proxy.outbound;
        }
        self.callers_flow().is_some() || self.is_contact_translated()
    }

    /// Whether it comes from a phone that is not where its Contact says.
    pub(super) fn is_contact_translated(&self) -> bool {
        let source = Source { flow: self.source, via_sent_by_matches: via_matches(self.message, &self.source) };
        let is_translated = |contact: &[u8]| {
            let uri = NameAddr::parse(contact).and_then(|contact| contact.parse_uri());
            uri.is_some_and(|uri| is_translated(self.snapshot.registrar.nat, &source, &uri))
        };
        self.message.has_one_via() && self.message.head().elements(HeaderName::Contact).any(is_translated)
    }

    //= rfc5626#5.1
    /// Whether the sender is a client that knows of flows, and no proxy stands before it.
    pub(super) fn wants_outbound(&self) -> bool {
        let mut supported = self.message.head().elements(HeaderName::Supported);
        self.message.has_one_via() && supported.any(|tag| tag.eq_ignore_ascii_case(b"outbound"))
    }

    //= rfc3261#16.10
    /// Whether a CANCEL without its INVITE may be for one that another member has forwarded, which is gone.
    pub(super) const fn may_be_other_members(&self, onward: ForwardOptions) -> bool {
        self.snapshot.has_shared_keys && onward.failover_timeout.is_some()
    }

    /// Whether the sender has shown that it is not just anybody: by credentials, by its address, or by what we gave to somebody who had.
    pub(super) fn is_proven(&self) -> bool {
        self.is_authenticated.get() || self.routes.is_dialog_proven || self.is_trusted() || self.follows_flow_token()
    }

    /// Whether the sender has to prove who it is; of a CANCEL or an ACK, whether the sender of its INVITE had to.
    pub(super) fn needs_auth(&self) -> bool {
        self.is_auth_method() && !self.is_in_dialog() && !self.follows_flow_token() && !self.is_trusted()
    }

    pub(super) fn is_auth_method(&self) -> bool {
        let method = match self.message.method() {
            Method::Ack | Method::Cancel => Method::Invite,
            method => method,
        };
        self.snapshot.auth.requires(method.as_bytes())
    }

    /// Whether the sender has to prove who it is inside a dialog, or of a CANCEL had to, as the operator may want of those whom From calls users of
    /// ours. Others have nothing to prove it by, and a call that they cannot end would go on.
    pub(super) fn needs_auth_in_dialog(&self) -> bool {
        self.snapshot.auth.in_dialog
            && self.is_auth_method()
            && self.is_in_dialog()
            && !self.follows_flow_token()
            && !self.is_trusted()
            && self.is_from_local_user()
    }

    pub(super) fn is_from_local_user(&self) -> bool {
        let from = self.message.from().parse_uri();
        let claimed = from.as_ref().and_then(Uri::sip).and_then(|uri| self.snapshot.identity(uri));
        let directory = &self.snapshot.directory;
        claimed.is_some_and(|claimed| {
            directory.user(directory.resolve(claimed.as_bytes())).is_some_and(|user| user.enabled)
        })
    }

    /// Whether a Route of ours proves that the request belongs to a dialog, and it goes where dialogs lead: to a contact.
    /// Who was once called knows such a Route; users and numbers of ours are not to be had for it.
    pub(super) fn is_in_dialog(&self) -> bool {
        let to_contact = || self.local_user_uri().is_none_or(|uri| uri.params.contains("gr"));
        self.routes.is_dialog_proven && (self.routes.remaining > 0 || to_contact())
    }

    /// The Request-URI, where it names a user or a number of a domain of ours.
    pub(super) fn local_user_uri(&self) -> Option<SipUri<'a>> {
        let uri = *self.uri()?.sip()?;
        (uri.user.is_some() && self.snapshot.addressed_domain(&uri).is_some()).then_some(uri)
    }

    /// Whether a token of ours leads the request to a peer: who has been given the token may send there. Its owner's own
    /// token says no more than where the owner is.
    pub(super) fn follows_flow_token(&self) -> bool {
        let elsewhere = self.routes.token_flow.is_some_and(|flow| !is_from(&self.source, &flow));
        elsewhere && self.routes.remaining == 0
    }

    pub(crate) fn is_trusted(&self) -> bool {
        self.snapshot.trusts(self.source.peer.ip()) || self.is_cluster_request()
    }
}
