//! Properties of a request: its destination, its sender, and whether the sender must authenticate.

use core::net::SocketAddr;

use strowger_foundation::{Flow, HostId, Transport};
use strowger_message::{HeaderName, Method, NameAddr, SipUri, Uri};
use strowger_proxy::cluster_request::ClusterRequestKind;
use strowger_registrar::{Nat, Source, is_translated};

use super::Request;
use crate::next_hops::is_from;
use crate::register::via_matches;
use crate::route::{Action, Route, TargetAddress};
use crate::router::ForwardOptions;
use crate::uri_address::{peer_of, question_of};

impl<'a, 'm> Request<'a, 'm> {
    //= rfc3261#16.4:goes-on
    /// Returns the effective Request-URI.
    pub(super) fn uri(&self) -> Option<Uri<'a>> {
        if self.routes.is_uri_from_last_route {
            Uri::parse(self.routes.request_uri)
        } else {
            self.message.uri().copied()
        }
    }

    /// Returns whether it is a REGISTER for a local domain without a Route; [`route`](Shard::route) would decide the
    /// same.
    pub(super) fn is_for_the_registrar(&self) -> bool {
        let uri = self.message.uri().and_then(Uri::sip).filter(|_| self.message.method() == Method::Register);
        self.message.head().first(HeaderName::Route).is_none()
            && uri.is_some_and(|uri| self.snapshot.addressed_domain(uri).is_some())
    }

    /// Returns whether a member of another cluster has sent it and has already authenticated the sender. This
    /// excludes REGISTER, which that member does not authenticate.
    pub(super) fn is_cluster_request(&self) -> bool {
        self.routes.cluster_request.is_some() && self.message.method() != Method::Register
    }

    /// Returns whether it removes bindings at the request of the cluster that has the user.
    pub(crate) fn is_cluster_removal(&self) -> bool {
        self.routes.cluster_request.is_some_and(|asked| asked.kind == ClusterRequestKind::RemoveBindings)
    }

    /// Returns the local domain in From, else the first one: the default realm for a caller.
    pub(super) fn callers_domain(&self) -> &'m [u8] {
        let from = self.message.from().parse_uri();
        let named = from.as_ref().and_then(Uri::sip).and_then(|uri| self.snapshot.domain(&uri.host()));
        named.or(self.snapshot.domains.first().map(|domain| &**domain)).unwrap_or(b"")
    }

    /// Returns the flow to the caller for the dialog if its Contact is not sufficient: because of NAT or because it
    /// uses a connection. A caller behind another proxy is reached through that proxy, and a trunk through its name.
    pub(super) fn callers_flow(&self) -> Option<Flow> {
        let translated = match self.snapshot.registrar.nat {
            Nat::Never => false,
            Nat::Always => true,
            Nat::Auto => !via_matches(self.message, &self.source),
        };
        match self.source.connection {
            _ if !self.message.has_one_via() => None,
            Some(_) if self.source.host != HostId::NONE && self.is_trunks_name(self.contact().as_ref()) => None,
            Some(_) if translated || self.source.transport.is_web_socket() => Some(self.source),
            Some(_) => {
                let uri = self.contact();
                let is_open = |peer: &SocketAddr| {
                    !self.snapshot.is_own_address(*peer) || !self.snapshot.guards_itself_from(self.source.peer.ip())
                };
                let peer = uri.as_ref().and_then(Uri::sip).and_then(peer_of).filter(is_open);
                Some(Flow { reopen: true, peer: peer.unwrap_or(self.source.peer), ..self.source })
            }
            None => translated.then_some(self.source),
        }
    }

    /// Returns the first contact.
    fn contact(&self) -> Option<Uri<'_>> {
        self.message.head().elements(HeaderName::Contact).next().and_then(NameAddr::parse)?.parse_uri()
    }

    //= rfc5922#7.3
    /// Returns whether the URI is a name of a trunk that is reached over TLS. Unlike an address, its certificate proves
    /// such a name on another connection, too, so requests find the trunk when the connection of its call is gone.
    // Never inlined: only TLS needs it.
    #[inline(never)]
    fn is_trunks_name(&self, uri: Option<&Uri<'_>>) -> bool {
        let Some(question) = uri.and_then(Uri::sip).and_then(question_of) else { return false };
        let is_it = |name: &[u8]| name.eq_ignore_ascii_case(&question.host);
        let is_domain =
            || self.snapshot.trunks.iter().flat_map(|trunk| &trunk.domains).any(|one| is_it(one.as_bytes()));
        let is_target = || {
            let of_trunk = |route: &&Route| matches!(route.action, Action::Proxy { trunk: Some(_), .. });
            let targets = self.snapshot.routes.iter().filter(of_trunk).flat_map(|route| route.action.targets());
            targets.map(|target| &target.address).any(|address| match address {
                TargetAddress::Name(question) => is_it(&question.host),
                TargetAddress::Literal { .. } => false,
            })
        };
        (question.is_secure || question.transport == Some(Transport::Tls)) && (is_domain() || is_target())
    }

    //= rfc5626#5.1:path
    /// Returns whether a forwarded REGISTER gets a Path to this server. Between servers of ours, only a phone that no
    /// other server can reach gets one. A browser always does: it is reached over its own connection only.
    pub(super) fn needs_path(&self) -> bool {
        if self.message.method() != Method::Register {
            return false;
        }
        if self.snapshot.clusters.is_none() {
            return self.snapshot.proxy.outbound || self.source.transport.is_web_socket();
        }
        self.callers_flow().is_some() || self.is_contact_translated()
    }

    /// Returns whether it comes from a phone whose Contact is not its source address.
    pub(super) fn is_contact_translated(&self) -> bool {
        let source = Source { flow: self.source, via_sent_by_matches: via_matches(self.message, &self.source) };
        let is_translated = |contact: &[u8]| {
            let uri = NameAddr::parse(contact).and_then(|contact| contact.parse_uri());
            uri.is_some_and(|uri| is_translated(self.snapshot.registrar.nat, &source, &uri))
        };
        self.message.has_one_via() && self.message.head().elements(HeaderName::Contact).any(is_translated)
    }

    //= rfc5626#5.1:no-ob
    /// Returns whether the sender is a client that supports outbound flows and is not behind a proxy.
    pub(super) fn wants_outbound(&self) -> bool {
        let mut supported = self.message.head().elements(HeaderName::Supported);
        self.message.has_one_via() && supported.any(|tag| tag.eq_ignore_ascii_case(b"outbound"))
    }

    //= rfc3261#16.10
    /// Returns whether a CANCEL without its INVITE may refer to an INVITE that another, failed member forwarded.
    pub(super) const fn may_be_other_members(&self, options: ForwardOptions) -> bool {
        self.snapshot.has_shared_keys && options.failover_timeout.is_some()
    }

    /// Returns whether the sender is proven: by credentials, by its address, or by a Route or token that a proven
    /// sender received.
    pub(super) fn is_proven(&self) -> bool {
        self.is_authenticated.get() || self.routes.is_dialog_proven || self.is_trusted() || self.follows_flow_token()
    }

    /// Whether it was found to carry a user's credentials.
    pub(crate) const fn is_authenticated(&self) -> bool {
        self.is_authenticated.get()
    }

    /// Sets that, for a request that was authenticated before.
    pub(crate) fn set_authenticated(&self, is_authenticated: bool) {
        self.is_authenticated.set(is_authenticated);
    }

    /// Returns whether the sender must authenticate; for a CANCEL or ACK, whether the sender of its INVITE had to.
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

    /// Returns whether the sender must authenticate within a dialog (or had to, for a CANCEL). The operator may
    /// require this of senders whose From is a local user. Others have no credentials, and a call that they cannot
    /// end would go on.
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

    /// Returns whether a Route of ours proves that the request belongs to a dialog, and it goes to a contact. Anyone
    /// who was once called knows such a Route, so it must not give access to users and numbers of ours.
    pub(super) fn is_in_dialog(&self) -> bool {
        let to_contact = || self.local_user_uri().is_none_or(|uri| uri.params.contains("gr"));
        self.routes.is_dialog_proven && (self.routes.remaining > 0 || to_contact())
    }

    /// Returns the Request-URI if it names a user or number in a local domain.
    pub(super) fn local_user_uri(&self) -> Option<SipUri<'a>> {
        let uri = *self.uri()?.sip()?;
        (uri.user.is_some() && self.snapshot.addressed_domain(&uri).is_some()).then_some(uri)
    }

    /// Returns whether a token of ours leads the request to a peer. Whoever has received the token may send there. A
    /// sender's own token only tells its address.
    pub(super) fn follows_flow_token(&self) -> bool {
        let elsewhere = self.routes.token_flow.is_some_and(|flow| !is_from(&self.source, &flow));
        elsewhere && self.routes.remaining == 0
    }

    //= rfc5922#7.4
    /// Returns whether its sender needs no password: because of its address, because its certificate is a trunk's, or
    /// because another server of ours has authenticated it.
    pub(crate) fn is_trusted(&self) -> bool {
        self.snapshot.trusts(self.source.peer.ip()) || self.source.host != HostId::NONE || self.is_cluster_request()
    }
}
