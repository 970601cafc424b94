//! Hosts and addresses that belong to configured targets.

use core::net::SocketAddr;

use strowger_foundation::Transport;
use strowger_locate::{CandidateList, LocateQuery, Lookup};
use strowger_message::SipUri;

use super::NextHopResolver;
use crate::route::{Action, Route, RouteTarget, TargetAddress};
use crate::uri_address::{host_of, question_of};

impl NextHopResolver<'_> {
    /// Returns whether `uri` names a host of the trunk: one that the trunk sends from, or a target of a route to it.
    pub(crate) fn is_of_trunk(&self, uri: &SipUri<'_>, trunk: u32) -> bool {
        let Some(host) = host_of(uri) else { return false };
        let ip = host.ip();
        let known = self.snapshot.trunks.iter().find(|known| known.id() == trunk);
        if known.zip(ip).is_some_and(|(known, ip)| known.is_from(ip)) {
            return true;
        }
        let of_trunk = |route: &&Route| matches!(&route.action, Action::Proxy { trunk: of, .. } if *of == Some(trunk));
        self.snapshot.routes.iter().filter(of_trunk).flat_map(|route| route.action.targets()).any(|target| {
            match (&target.address, ip) {
                (TargetAddress::Literal { address, .. }, Some(ip)) => address.ip() == ip,
                (TargetAddress::Name(question), Some(ip)) => self.resolves_to(question, |found| found.ip() == ip),
                (TargetAddress::Name(question), None) => {
                    question_of(uri).is_some_and(|named| named.host == question.host)
                }
                (TargetAddress::Literal { .. }, None) => false,
            }
        })
    }

    //= rfc5922#7.3
    /// Returns the name of the configured target that has this address. Within a call, a peer that was called by name
    /// may write its address into Record-Route and Contact; its certificate still has the name.
    // Never inlined: only TLS needs it.
    #[inline(never)]
    pub(super) fn name_of(&self, address: SocketAddr) -> Option<&[u8]> {
        let targets = || self.snapshot.routes.iter().flat_map(|route| route.action.targets());
        let is_literal = |target: &RouteTarget| match target.address {
            TargetAddress::Literal { address: known, .. } => known == address,
            TargetAddress::Name(_) => false,
        };
        if targets().any(is_literal) {
            return None;
        }
        targets().find_map(|target| {
            let TargetAddress::Name(question) = &target.address else { return None };
            let may_be_secure = question.transport.is_none_or(Transport::is_secure);
            (may_be_secure && self.resolves_to(question, |found| found == address)).then_some(&question.host[..])
        })
    }

    /// Returns whether a cached name resolves to such an address.
    fn resolves_to(&self, question: &LocateQuery, is_it: impl Fn(SocketAddr) -> bool) -> bool {
        let question = &*self.asked(question);
        let answer = match self.names.lookup(self.now, question) {
            Lookup::Fresh(answer) => answer,
            Lookup::Stale(answer) => {
                self.notes.refresh.set(Some(Box::new(question.clone())));
                answer
            }
            Lookup::Miss => return false,
        };
        let has_it = |located: &CandidateList| {
            located.candidates.iter().flat_map(|candidate| &candidate.hops).any(|hop| is_it(hop.address))
        };
        answer.is_ok_and(|located| has_it(&located))
    }
}
