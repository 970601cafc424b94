//! Sending of the requests that are due.

use std::sync::Arc;

use smallvec::SmallVec;
use strowger_foundation::{Flow, ListenerId, Timestamp};
use strowger_locate::{Hop, LocateResult, Lookup, QueryId};
use strowger_proxy::OWN_USERS;
use strowger_transaction::Kind;
use strowger_trunk::{NextHop, RequestParams};

use crate::callbacks::CACHE_ONLY_QUERY;
use crate::next_hops::flow_by_name;
use crate::shard::Shard;
use crate::trunk_registrations::{QUESTIONS, TrunkRegistration};

impl Shard {
    /// Sends the requests that are due.
    pub(crate) fn drive_trunk_registrations(&mut self, now: Timestamp) {
        let ready = self.trunk_registrations.list.iter().filter(|(_, account)| account.is_ready());
        let wanting: SmallVec<[usize; 4]> = ready.map(|(index, _)| index).collect();
        for index in wanting {
            self.drive_trunk_registration(now, index);
        }
    }

    //= rfc3261#8.1.2:dns
    fn drive_trunk_registration(&mut self, now: Timestamp, index: usize) {
        let Some(account) = self.trunk_registrations.list.get_mut(index) else { return };
        let trunk = Arc::clone(account.registration.trunk());
        let Some(place) = trunk.account.as_ref().map(|account| &account.next_hop) else { return };
        match place {
            NextHop::Address(hop) => self.send_registration(now, index, &[*hop]),
            NextHop::Name(question) => match self.names.lookup(now, question) {
                Lookup::Fresh(answer) => self.register_at(now, index, &answer),
                Lookup::Stale(answer) => {
                    self.questions.push_back((CACHE_ONLY_QUERY, question.clone()));
                    self.register_at(now, index, &answer);
                }
                Lookup::Miss => {
                    account.is_resolving = true;
                    let query = QueryId(QUESTIONS | u64::try_from(index).unwrap_or(0));
                    self.questions.push_back((query, question.clone()));
                }
            },
        }
    }

    /// Handles a DNS answer; returns whether it belongs to a registration.
    pub(crate) fn resolve_registrar(&mut self, now: Timestamp, query: QueryId, answer: &LocateResult) -> bool {
        if query.0 & QUESTIONS == 0 {
            return false;
        }
        let index = usize::try_from(query.0 & !QUESTIONS).unwrap_or(usize::MAX);
        if let Some(account) = self.trunk_registrations.list.get_mut(index)
            && core::mem::take(&mut account.is_resolving)
        {
            self.register_at(now, index, answer);
        }
        true
    }

    fn register_at(&mut self, now: Timestamp, index: usize, answer: &LocateResult) {
        self.trunk_registrations.is_settled = false;
        let mut hops: SmallVec<[Hop; 4]> = SmallVec::new();
        if let Ok(located) = answer {
            let choice = self.proxy.tag_key().hash64(&[&index.to_be_bytes()]);
            let named = self.trunk_registrations.list.get(index).and_then(TrunkRegistration::question);
            let is_out = |hop: &Hop| {
                let hop = named.map_or(*hop, |question| self.names.hop_to(hop, question));
                self.outages.is_out(now, &hop)
            };
            located.order(choice, is_out, &mut hops);
        }
        self.send_registration(now, index, &hops);
    }

    fn send_registration(&mut self, now: Timestamp, index: usize, hops: &[Hop]) {
        let Some(account) = self.trunk_registrations.list.get_mut(index) else { return };
        let listeners = &self.snapshot.listeners;
        let host = account.question().map(|question| &question.host[..]);
        let flow_to = |hop: &Hop| {
            let listener = listeners.towards(hop.transport, hop.address, ListenerId(0))?;
            flow_by_name(self.names.as_ref(), listener, *hop, host)
        };
        let flows: SmallVec<[Flow; 4]> = hops.iter().filter_map(flow_to).collect();
        account.places = flows.len();
        //= rfc3261#10.2.4:same-address
        let flow = flows.get(account.attempt).or(flows.first()).copied();
        let listener = flow.and_then(|flow| listeners.get(flow.listener));
        let (Some(flow), Some(listener)) = (flow, listener) else { return account.fail(now) };
        let Ok(client) = self.proxy.transactions().reserve_client() else { return account.fail(now) };
        let branch = self.proxy.own_branch(client);
        let sending = RequestParams { sent_by: &listener.sent_by, transport: flow.transport, branch: &branch };
        let mut request = self.proxy.transactions().pool().take(1024);
        let user = u32::try_from(index).unwrap_or(0).saturating_add(OWN_USERS);
        if account.registration.poll_request(now, &sending, &mut request) {
            self.proxy.transactions().start_client(now, client, Kind::NonInvite, flow, request, user);
        } else {
            self.proxy.transactions().release_client(client);
            self.proxy.transactions().pool().recycle(request);
        }
    }
}
