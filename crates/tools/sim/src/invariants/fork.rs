//! Rules for what one request becomes: which branches may exist when, and when the next one must.

use core::net::SocketAddr;

use strowger_foundation::{ConnId, Flow, Timestamp};
use strowger_message::{Message, Method, Status, Uri};
use strowger_proxy::{Policy, Stateless};
use strowger_shard::{Action, Route, TargetAddress};

use super::requests::broken_unless;
use super::{Branch, Invariants, Key, Rule, SLACK, TIMEOUT, Upstream, Verdict};
use crate::ladder::summary;

/// Where a request may go, as it was known when it came.
#[derive(Debug)]
pub(super) enum ExpectedTargets {
    /// To one place.
    One,
    /// To a user's contacts, the most preferred first: those of equal preference at once.
    Contacts(Vec<(Vec<u8>, u16)>),
    /// To the targets of a route, one after the other.
    Targets {
        /// Those that are addresses, by priority.
        addresses: Vec<SocketAddr>,
        /// There is a name among them, which leads to more.
        named: bool,
    },
}

/// What came of the answers to one question.
#[derive(Debug, Default)]
pub(super) struct DnsAnswers(Vec<(Timestamp, Vec<SocketAddr>)>);

/// A branch that is about to be.
pub(super) struct Entry<'a> {
    pub(super) now: Timestamp,
    /// The number of the step.
    pub(super) step: u64,
    /// The request did not come in this step for the first time.
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

    /// Whether a request that came at `since` may have been told of `address`: by the last answer before, or any after.
    fn name(&self, since: Timestamp, address: SocketAddr) -> bool {
        let known = self.0.iter().rposition(|(at, _)| *at <= since).unwrap_or(0);
        self.0.iter().skip(known).any(|(_, addresses)| addresses.contains(&address))
    }
}

impl Invariants {
    /// Where a request may go.
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

    /// The route that takes a request.
    fn route_of(&self, message: &Message<'_>) -> Option<&Route> {
        let uri = Uri::parse(message.request_uri())?;
        let host = uri.sip()?.host_port.host;
        let anywhere = core::net::Ipv4Addr::UNSPECIFIED.into();
        self.snapshot.routes.iter().find(|route| route.matches.fits(host, message.method().as_bytes(), &uri, anywhere))
    }

    /// Whether a request goes along a route without state. One that has to prove who sent it never does: its retransmission
    /// would use the same nonce count again.
    pub(super) fn is_stateless(&self, source: &Flow, message: &Message<'_>) -> bool {
        let stateless = match self.route_of(message).map(|route| &route.action) {
            Some(Action::Proxy { stateless: Stateless::Always, .. }) => true,
            Some(Action::Proxy { stateless: Stateless::WhenPossible, targets, .. }) => {
                targets.len() == 1 && !source.transport.is_reliable()
            }
            _ => false,
        };
        // A CANCEL goes the way of its INVITE.
        let method = if message.method() == Method::Cancel { Method::Invite } else { message.method() };
        stateless && !self.snapshot.auth.requires(method.as_bytes())
    }

    /// Of two targets the one is tried first that did not fail lately, and else that of the better priority. Along a route that
    /// keeps no state the priority alone counts.
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

    /// Whether a branch of `upstream` has certainly made the server avoid `address`.
    fn has_marked(&self, now: Timestamp, upstream: &Upstream, address: SocketAddr) -> bool {
        let avoid_for = self.snapshot.proxy.avoid_for;
        let forgiven = self.forgiven.get(&address);
        upstream
            .branches_at(address)
            .filter_map(|branch| branch.failed_at)
            .any(|at| now < at + avoid_for && forgiven.is_none_or(|forgiven| *forgiven < at))
    }

    /// Those that were touched: what is not wanted is cancelled, a step is whole, and something goes on until the caller is
    /// told the end.
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

    /// A connection is closed: what went over it and was not heard of is lost, or takes another one.
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

    /// Branches that are lost with what has just happened.
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
    /// Whether another branch may be.
    fn may_go_on(&self) -> bool {
        !self.cancelled && self.finals.is_empty() && !self.branches.iter().any(|branch| branch.declined)
    }

    /// Whether a new branch may be; those that it takes the place of are marked. Gives its preference, and whether there is
    /// something else to be tried after it: other places, and lower preferences.
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
                // The last of several has no more time than the others.
                let is_last = !self.branches.is_empty();
                Ok((1000, others || named || is_last, false))
            }
        }
    }

    //= rfc3261#16.6
    /// A contact is tried with those of its preference, after all of a higher one have ended.
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
    /// A target is tried when the one before it has failed, or is silent for long; that one is then left.
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
        // A name may have been asked for in between.
        let in_time = named || entry.now <= over + SLACK;
        broken_unless(in_time, Rule::Failover, || format!("too late: {shown}"))?;
        if failed.is_none() {
            last.superseded = true;
            last.failed_at.get_or_insert(entry.now);
        }
        Ok(())
    }

    /// The caller has heard that nobody answers: the last target has been silent for as long as the others, and is left.
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

    /// All contacts of one preference are tried at once.
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

    /// Each branch that is no longer wanted, and has been heard of, is cancelled.
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

    /// Where nothing more can come, the caller knows.
    fn check_goes_on(&self, now: Timestamp) -> Verdict {
        let asks = matches!(self.targets, ExpectedTargets::Targets { named: true, .. }) && self.may_go_on();
        // One whose name is looked up has no branch yet.
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

    /// A failure goes up when nothing else is left to be tried.
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

    /// Whether a branch may have made the server avoid `address`, so that it still does.
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
    /// When it stopped being what the caller waits for, where that has come.
    pub(super) fn ended_at(&self, now: Timestamp) -> Option<Timestamp> {
        let refused = self.finished.filter(|(status, _)| !status.is_success()).map(|(_, at)| at);
        let unheard = (self.provisional_at.is_none() && self.finished.is_none()).then_some(self.ring_deadline);
        let timed_out = self.deadline().filter(|_| self.finished.is_none());
        let times = [refused, self.lost_at, self.step_deadline, unheard, timed_out];
        times.into_iter().flatten().filter(|at| *at <= now).min()
    }

    /// Whether it ended with something that the server was told, which leaves no doubt of the moment.
    fn ended_surely(&self) -> bool {
        self.finished.is_some() || self.lost_at.is_some()
    }
}

/// Whether a target that says so is left for the next one.
fn is_worth_another(status: Status) -> bool {
    matches!(status.code(), 430 | 502..=504)
}
