//! Rules for forking: which branches may exist at a time, and when the next must be opened.

use core::net::SocketAddr;

use strowger_foundation::{ConnId, Flow, Timestamp};
use strowger_message::{Message, Method, Status, Uri};
use strowger_proxy::{Policy, Stateless};
use strowger_shard::{Action, Route, TargetAddress};

use super::{Branch, Invariants, Key, Rule, SLACK, TIMEOUT, Upstream, Verdict};
use crate::invariants::broken_unless;
use crate::ladder::summary;

/// Targets of a request, as known when it arrived.
#[derive(Debug)]
pub(super) enum ExpectedTargets {
    /// Single target.
    One,
    /// Contacts of a user with their q values, highest first; those of equal q are called at once.
    Contacts(Vec<(Vec<u8>, u16)>),
    /// Targets of a route, tried one after the other.
    Targets {
        /// Literal addresses, by priority.
        addresses: Vec<SocketAddr>,
        /// Whether a name, which resolves to further addresses, is among them.
        named: bool,
    },
}

/// Answers to DNS queries with their times.
#[derive(Debug, Default)]
pub(super) struct DnsAnswers(Vec<(Timestamp, Vec<SocketAddr>)>);

/// Branch about to be opened.
pub(super) struct Entry<'a> {
    pub(super) now: Timestamp,
    /// Number of the step.
    pub(super) step: u64,
    /// Whether the request arrived before this step.
    pub(super) late: bool,
    pub(super) flow: Flow,
    pub(super) uri: &'a [u8],
}

impl DnsAnswers {
    pub(super) fn add(&mut self, now: Timestamp, addresses: Vec<SocketAddr>) {
        self.0.push((now, addresses));
    }

    pub(super) const fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether a request that arrived at `since` may use `address`: from the last answer before, or from any
    /// later one.
    fn name(&self, since: Timestamp, address: SocketAddr) -> bool {
        let known = self.0.iter().rposition(|(at, _)| *at <= since).unwrap_or(0);
        self.0.iter().skip(known).any(|(_, addresses)| addresses.contains(&address))
    }
}

impl Invariants {
    /// Returns the targets of a request.
    pub(super) fn plan_of(&self, now: Timestamp, message: &Message<'_>) -> ExpectedTargets {
        let Some(uri) = Uri::parse(message.request_uri()).filter(|_| message.to().tag().is_none()) else {
            return ExpectedTargets::One;
        };
        if let Some(Action::Proxy { targets, .. }) = self.route_of(message).map(|route| &route.action) {
            let mut targets: Vec<_> = targets.iter().collect();
            targets.sort_by_key(|target| target.priority);
            let address = |place: &TargetAddress| match place {
                TargetAddress::Literal { address, .. } => Some(*address),
                TargetAddress::Name(_) => None,
            };
            let addresses: Vec<_> = targets.iter().filter_map(|target| address(&target.address)).collect();
            let named = addresses.len() < targets.len();
            return ExpectedTargets::Targets { addresses, named };
        }
        let contacts = uri.sip().filter(|uri| uri.user.is_some()).and_then(|uri| self.table.contacts(now, uri));
        contacts.map_or(ExpectedTargets::One, ExpectedTargets::Contacts)
    }

    /// Returns the route of a request.
    fn route_of(&self, message: &Message<'_>) -> Option<&Route> {
        let uri = Uri::parse(message.request_uri())?;
        let host = uri.sip()?.host_port.host;
        let anywhere = core::net::Ipv4Addr::UNSPECIFIED.into();
        self.snapshot.routes.iter().find(|route| route.matches.fits(host, message.method().as_bytes(), &uri, anywhere))
    }

    /// Returns whether a request follows a stateless route.
    ///
    /// A request that needs credentials never does: its retransmission would reuse the same nonce count.
    pub(super) fn is_stateless(&self, source: &Flow, message: &Message<'_>) -> bool {
        let stateless = match self.route_of(message).map(|route| &route.action) {
            Some(Action::Proxy { stateless: Stateless::Always, .. }) => true,
            Some(Action::Proxy { stateless: Stateless::WhenPossible, targets, .. }) => {
                targets.len() == 1 && !source.transport.is_reliable()
            }
            _ => false,
        };
        // A CANCEL follows its INVITE.
        let method = if message.method() == Method::Cancel { Method::Invite } else { message.method() };
        stateless && !self.snapshot.auth.requires(method.as_bytes())
    }

    /// Checks the order of two targets: one that has not failed recently comes first, then priority decides. On a
    /// stateless route only priority counts.
    pub(super) fn check_avoided(&self, now: Timestamp, key: &Key) -> Verdict {
        let Some(upstream) = self.upstream.get(key) else { return Ok(()) };
        let (ExpectedTargets::Targets { addresses, named: false }, [first]) =
            (&upstream.targets, &upstream.branches[..])
        else {
            return Ok(());
        };
        let chosen = first.flow.peer;
        let others = || self.upstream.iter().filter(|(other, _)| *other != key).map(|(_, upstream)| upstream);
        let request = Message::parse(&upstream.request).ok();
        let route = request.as_ref().and_then(|request| self.route_of(request));
        let forgets =
            route.is_some_and(|route| matches!(route.action, Action::Proxy { stateless: Stateless::Always, .. }));
        let is_out = |address| others().any(|one| self.has_marked(now, one, address));
        let is_well = |address| forgets || !others().any(|one| one.may_have_marked(now, &self.snapshot.proxy, address));
        for (number, other) in addresses.iter().enumerate().filter(|(_, other)| **other != chosen) {
            let before = addresses.iter().position(|one| *one == chosen).is_some_and(|at| number < at);
            let better = is_well(*other) && (!forgets && is_out(chosen) || before && is_well(chosen));
            broken_unless(!better, Rule::Avoided, || format!("{other} goes before: {}", summary(&first.bytes)))?;
        }
        Ok(())
    }

    /// Returns whether the server certainly avoids `address` because of a branch of `upstream`.
    fn has_marked(&self, now: Timestamp, upstream: &Upstream, address: SocketAddr) -> bool {
        let avoid_for = self.snapshot.proxy.avoid_for;
        let forgiven = self.forgiven.get(&address);
        upstream
            .branches_at(address)
            .filter_map(|branch| branch.failed_at)
            .any(|at| now < at + avoid_for && forgiven.is_none_or(|forgiven| *forgiven < at))
    }

    /// Checks the transactions touched by the step: unwanted branches are cancelled, a group of equal q is complete,
    /// and something is in progress until the caller has a final response.
    pub(super) fn check_touched(&self, now: Timestamp) -> Verdict {
        for key in &self.step.touched {
            let Some(upstream) = self.upstream.get(key).filter(|upstream| !upstream.stateless) else { continue };
            upstream.check_step(self.step.number)?;
            if upstream.is_invite() {
                upstream.check_losers(now)?;
                upstream.check_goes_on(now)?;
            }
        }
        Ok(())
    }

    /// Handles a closed connection: branches on it without a response are lost, or move to another connection.
    pub(super) fn on_closed(&mut self, now: Timestamp, connection: ConnId, peer: SocketAddr) {
        self.closed.insert(connection);
        self.table.disconnect(connection);
        self.step.closed = true;
        self.lose(now, |Branch { flow, .. }| {
            let same = flow.connection.map_or(flow.peer == peer, |used| used == connection && !flow.reopen);
            flow.transport.is_reliable() && same
        });
        for branch in self.upstream.values_mut().flat_map(|upstream| &mut upstream.branches) {
            let unheard = branch.provisional_at.is_none() && branch.waits(now);
            if branch.flow.connection == Some(connection) && branch.flow.reopen && unheard {
                branch.flow = Flow::new(branch.flow.listener, branch.flow.transport, branch.flow.peer);
                branch.moved_in = self.step.number;
            }
        }
    }

    /// Marks branches as lost.
    pub(super) fn lose(&mut self, now: Timestamp, is_lost: impl Fn(&Branch) -> bool) {
        for (key, upstream) in self.upstream.iter_mut().filter(|(_, upstream)| !upstream.stateless) {
            let shared = matches!(upstream.targets, ExpectedTargets::Targets { .. });
            for branch in &mut upstream.branches {
                if branch.waits(now) && branch.provisional_at.is_none() && branch.lost_at.is_none() && is_lost(branch) {
                    if shared && branch.ended_at(now).is_none() {
                        branch.failed_at.get_or_insert(now);
                    }
                    branch.lost_at = Some(now);
                    self.step.touched.push(key.clone());
                }
            }
        }
    }
}

impl Upstream {
    /// Returns whether another branch may be opened.
    fn may_go_on(&self) -> bool {
        !self.cancelled && self.finals.is_empty() && !self.branches.iter().any(|branch| branch.declined)
    }

    /// Checks that a branch may be opened, and marks the branches that it replaces.
    ///
    /// Returns its q value, and whether more can be tried after it: other next hops, and contacts of lower q.
    pub(super) fn enter(
        &mut self,
        entry: &Entry<'_>,
        policy: &Policy,
        answers: &DnsAnswers,
    ) -> Result<(u16, bool, bool), (Rule, String)> {
        let shown = summary(&self.request);
        if entry.late {
            broken_unless(!self.stateless, Rule::ForwardedOnce, || format!("forwarded a second time: {shown}"))?;
            broken_unless(self.may_go_on(), Rule::NothingNew, || format!("it is over: {shown}"))?;
        }
        match &self.targets {
            ExpectedTargets::One => {
                let only = self.branches.is_empty() && !entry.late;
                broken_unless(only, Rule::ForwardedOnce, || format!("forwarded a second time: {shown}"))?;
                Ok((1000, false, false))
            }
            ExpectedTargets::Contacts(contacts) => {
                self.enter_contact(entry, contacts).map(|(q, lower)| (q, false, lower))
            }
            ExpectedTargets::Targets { addresses, named } => {
                let (addresses, named) = (addresses.clone(), *named);
                let known = addresses.contains(&entry.flow.peer) || named && answers.name(self.at, entry.flow.peer);
                broken_unless(known, Rule::Failover, || format!("{} is no target: {shown}", entry.flow))?;
                self.enter_target(entry, policy, named)?;
                let tried = |address: &SocketAddr| self.branches_at(*address).next().is_some();
                let others = addresses.iter().any(|address| *address != entry.flow.peer && !tried(address));
                // The last of several has the same time limit as the others.
                let is_last = !self.branches.is_empty();
                Ok((1000, others || named || is_last, false))
            }
        }
    }

    //= rfc3261#16.6
    /// Checks a branch to a contact: it is opened with the others of its q value, after all of higher q have ended.
    fn enter_contact(&self, entry: &Entry<'_>, contacts: &[(Vec<u8>, u16)]) -> Result<(u16, bool), (Rule, String)> {
        let shown = || summary(&self.request);
        let Some((_, q)) = contacts.iter().find(|(uri, _)| uri == entry.uri) else {
            return Err((Rule::Registrar, format!("no contact of the callee: {}", shown())));
        };
        let tried = |uri: &Vec<u8>| self.branches.iter().any(|branch| branch.uri == *uri);
        let next = contacts.iter().filter(|(uri, _)| !tried(uri)).map(|(_, q)| *q).max();
        broken_unless(next == Some(*q), Rule::StepOrder, || format!("out of turn: {}", shown()))?;
        match self.branches.last() {
            None => broken_unless(!entry.late, Rule::StepOrder, || format!("begun late: {}", shown()))?,
            Some(last) if last.opened_in == entry.step => {
                broken_unless(last.q == *q, Rule::StepOrder, || format!("two steps at once: {}", shown()))?;
            }
            Some(last) => {
                broken_unless(*q < last.q, Rule::StepOrder, || format!("added to a step: {}", shown()))?;
                let ended = |branch: &Branch| branch.ended_at(entry.now).map(|at| at + SLACK);
                let all: Option<Vec<_>> = self.branches.iter().map(ended).collect();
                let Some(latest) = all.and_then(|all| all.into_iter().max()) else {
                    return Err((Rule::StepOrder, format!("before the last step has ended: {}", shown())));
                };
                broken_unless(entry.now <= latest, Rule::StepOrder, || format!("too late: {}", shown()))?;
            }
        }
        Ok((*q, contacts.iter().any(|(_, other)| other < q)))
    }

    //= rfc3263#4.3
    /// Checks a branch to a target: the previous one must have failed or been silent for too long, and is then
    /// superseded.
    fn enter_target(&mut self, entry: &Entry<'_>, policy: &Policy, named: bool) -> Verdict {
        let shown = summary(&self.request);
        let Some(last) = self.branches.last_mut() else {
            return broken_unless(!entry.late || named, Rule::Failover, || format!("begun late: {shown}"));
        };
        let silent_until = last.sent_at + policy.failover_timeout;
        let failed = last.finished.filter(|(status, _)| is_worth_another(*status)).map(|(_, at)| at).or(last.lost_at);
        let silent = (last.provisional_at.is_none() && entry.now >= silent_until).then_some(silent_until);
        let Some(over) = failed.into_iter().chain(silent).min() else {
            return Err((Rule::Failover, format!("while another carries the call: {shown}")));
        };
        // A DNS lookup may have come between.
        let in_time = named || entry.now <= over + SLACK;
        broken_unless(in_time, Rule::Failover, || format!("too late: {shown}"))?;
        if failed.is_none() {
            last.superseded = true;
            last.failed_at.get_or_insert(entry.now);
        }
        Ok(())
    }

    /// Marks the last target as superseded: the caller was told that nobody answers, after it was silent for as long
    /// as the others.
    pub(super) fn leave_last(&mut self, now: Timestamp, policy: &Policy) {
        if !matches!(self.targets, ExpectedTargets::Targets { .. }) || !self.is_invite() {
            return;
        }
        let silent = |branch: &Branch| branch.has_others && branch.waits(now) && branch.provisional_at.is_none();
        if let Some(last) = self.branches.last_mut().filter(|last| silent(last))
            && now >= last.sent_at + policy.failover_timeout
        {
            last.superseded = true;
            last.failed_at.get_or_insert(now);
        }
    }

    /// Checks that all contacts of one q value are tried at once.
    fn check_step(&self, step: u64) -> Verdict {
        let (ExpectedTargets::Contacts(contacts), Some(last)) = (&self.targets, self.branches.last()) else {
            return Ok(());
        };
        let opened = self.branches.iter().filter(|branch| branch.opened_in == step).count();
        let wanted = contacts.iter().filter(|(_, q)| *q == last.q).count();
        broken_unless(opened == 0 || opened == wanted, Rule::StepOrder, || {
            format!("{opened} at once of {wanted}: {}", summary(&self.request))
        })
    }

    /// Checks that each unwanted branch with a response is cancelled.
    fn check_losers(&self, now: Timestamp) -> Verdict {
        let over = self.is_over();
        let current = self.branches.last().map_or(0, |branch| branch.q);
        let forgotten = |branch: &&Branch| {
            let unwanted = over || branch.superseded || branch.q > current;
            unwanted && branch.waits(now) && branch.provisional_at.is_some() && branch.cancelled_at.is_none()
        };
        match self.branches.iter().find(forgotten) {
            Some(branch) => Err((Rule::LosersCancelled, format!("still rings: {}", summary(&branch.bytes)))),
            None => Ok(()),
        }
    }

    /// Checks that the caller has a final response if no branch is left.
    fn check_goes_on(&self, now: Timestamp) -> Verdict {
        let asks = matches!(self.targets, ExpectedTargets::Targets { named: true, .. }) && self.may_go_on();
        // A target whose name is being resolved has no branch yet.
        let was_sent = !self.branches.is_empty() || self.cancelled;
        if !self.finals.is_empty() || asks || !was_sent {
            return Ok(());
        }
        let lives = |branch: &Branch| {
            let ended = branch.ended_at(now);
            !branch.superseded && ended.is_none_or(|at| !branch.ended_surely() && now < at + SLACK)
        };
        broken_unless(self.branches.iter().any(lives), Rule::InviteEnds, || {
            format!("nothing goes on, and nobody is told: {}", summary(&self.request))
        })
    }

    /// Checks that a failure is forwarded only if nothing is left to try.
    pub(super) fn check_untried(&self, status: Status) -> Verdict {
        if status.is_success() || self.stateless || self.branches.is_empty() || !self.may_go_on() {
            return Ok(());
        }
        let left = match &self.targets {
            ExpectedTargets::One => false,
            ExpectedTargets::Contacts(contacts) => {
                contacts.iter().any(|(uri, _)| !self.branches.iter().any(|branch| branch.uri == *uri))
            }
            ExpectedTargets::Targets { addresses, .. } => {
                let failed = self.branches.last().is_some_and(|last| {
                    last.lost_at.is_some() || last.finished.is_some_and(|(status, _)| is_worth_another(status))
                });
                failed && addresses.iter().any(|address| self.branches_at(*address).next().is_none())
            }
        };
        let rule = if matches!(self.targets, ExpectedTargets::Contacts(_)) { Rule::StepOrder } else { Rule::Failover };
        broken_unless(!left, rule, || format!("{status}, but not all were tried: {}", summary(&self.request)))
    }

    fn branches_at(&self, address: SocketAddr) -> impl Iterator<Item = &Branch> {
        let shared = matches!(self.targets, ExpectedTargets::Targets { .. });
        self.branches.iter().filter(move |branch| shared && branch.flow.peer == address)
    }

    /// Returns whether the server may still avoid `address` because of a branch.
    fn may_have_marked(&self, now: Timestamp, policy: &Policy, address: SocketAddr) -> bool {
        self.branches_at(address).any(|branch| {
            let latest = match (branch.failed_at, branch.finished) {
                (Some(at), _) => Some(at),
                (None, Some((status, at))) => (status == Status::SERVICE_UNAVAILABLE).then_some(at),
                (None, None) => Some(branch.sent_at + policy.ring_timeout + 3 * TIMEOUT),
            };
            !self.stateless && latest.is_some_and(|latest| now < latest + policy.avoid_for + SLACK)
        })
    }
}

impl Branch {
    /// Returns when the caller stopped waiting for it, if that time has come.
    pub(super) fn ended_at(&self, now: Timestamp) -> Option<Timestamp> {
        let refused = self.finished.filter(|(status, _)| !status.is_success()).map(|(_, at)| at);
        let unheard = (self.provisional_at.is_none() && self.finished.is_none()).then_some(self.ring_deadline);
        let timed_out = self.deadline().filter(|_| self.finished.is_none());
        let times = [refused, self.lost_at, self.step_deadline, unheard, timed_out];
        times.into_iter().flatten().filter(|at| *at <= now).min()
    }

    /// Returns whether it ended with an event that the server saw, so that the time is exact.
    fn ended_surely(&self) -> bool {
        self.finished.is_some() || self.lost_at.is_some()
    }
}

/// Returns whether the next target is tried after this status.
fn is_worth_another(status: Status) -> bool {
    matches!(status.code(), 430 | 502..=504)
}
