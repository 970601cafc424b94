//! Registrations of trunks: the server as a client of carriers. The first shard holds all of them.

use std::sync::Arc;

use slab::Slab;
use strowger_foundation::bytes::{Reader, put_block, put_text16};
use strowger_foundation::{ShardId, Timestamp};
use strowger_locate::LocateQuery;
use strowger_message::{Message, Status as MessageStatus};
use strowger_proxy::OWN_USERS;
use strowger_trunk::{NextHop, Registration, State, Status, Trunk};

/// The first query ID of a registration's DNS queries.
const QUESTIONS: u64 = 1 << 63;

/// One registration and the progress of its request.
#[derive(Debug)]
struct TrunkRegistration {
    registration: Registration,
    /// Whether a DNS query for the registrar is pending.
    is_resolving: bool,
    /// Index of the registrar address in use.
    attempt: usize,
    /// Number of registrar addresses at the last attempt.
    places: usize,
    /// Number of consecutive addresses that failed.
    failed: usize,
    /// Set while the registration is being removed.
    is_leaving: bool,
    /// The state last reported to the operator.
    reported_state: State,
}

/// The registrations of all trunks.
#[derive(Debug)]
pub(crate) struct TrunkRegistrations {
    list: Slab<TrunkRegistration>,
    is_home: bool,
    seed: u64,
    /// Number of registrations started.
    begun: u64,
    /// Set when there is nothing to send or report, until something happens to a registration.
    is_settled: bool,
    /// The earliest timer of all registrations, while they are settled.
    next: Option<Timestamp>,
}

impl TrunkRegistrations {
    pub(crate) fn new(now: Timestamp, shard: ShardId, seed: u64, trunks: &[Arc<Trunk>]) -> Self {
        let is_home = shard == ShardId(0);
        let mut accounts = Self { list: Slab::new(), is_home, seed, begun: 0, is_settled: true, next: None };
        accounts.handle_config(now, trunks);
        accounts.settle();
        accounts
    }

    /// Registers new trunks and unregisters removed or changed ones. A trunk whose contact and registrar are
    /// unchanged stays registered.
    pub(crate) fn handle_config(&mut self, now: Timestamp, trunks: &[Arc<Trunk>]) {
        if !self.is_home {
            return;
        }
        self.is_settled = false;
        let wanted = |trunk: &Arc<Trunk>| trunk.account.is_some();
        for (_, account) in &mut self.list {
            let before = account.registration.trunk();
            let kept = trunks.iter().any(|trunk| wanted(trunk) && trunk == before);
            if kept || account.is_leaving {
                continue;
            }
            if let Some(after) = trunks.iter().find(|after| is_same_contact(before, after)) {
                self.begun = self.begun.wrapping_add(1);
                account.registration = Registration::new(now, Arc::clone(after), self.seed.wrapping_add(self.begun));
            } else {
                account.is_leaving = true;
                account.registration.unregister(now);
            }
        }
        for trunk in trunks.iter().filter(|trunk| wanted(trunk)) {
            let known =
                self.list.iter().any(|(_, account)| !account.is_leaving && trunk == account.registration.trunk());
            if !known {
                //= rfc3261#10.2
                // A new registration starts with CSeq 1, so it needs a new Call-ID: the registrar would reject the lower CSeq.
                self.begun = self.begun.wrapping_add(1);
                let registration = Registration::new(now, Arc::clone(trunk), self.seed.wrapping_add(self.begun));
                let account = TrunkRegistration {
                    registration,
                    is_resolving: false,
                    attempt: 0,
                    places: 1,
                    failed: 0,
                    is_leaving: false,
                    reported_state: State::Registering,
                };
                self.list.insert(account);
            }
        }
        self.list.retain(|_, account| !(account.is_leaving && account.registration.is_stopped()));
    }

    /// Removes every registration, because the server is stopping.
    pub(crate) fn unregister_all(&mut self, now: Timestamp) {
        self.is_settled = false;
        for (_, account) in &mut self.list {
            if !core::mem::replace(&mut account.is_leaving, true) {
                account.registration.unregister(now);
            }
        }
    }

    /// Appends the registrations, each after the name of its trunk.
    pub(crate) fn export(&self, out: &mut Vec<u8>) {
        let mut state = Vec::new();
        for (_, account) in self.list.iter().filter(|(_, account)| !account.is_leaving) {
            state.clear();
            if account.registration.export(&mut state) {
                put_text16(out, account.registration.trunk().name.as_bytes());
                put_block(out, |out| out.extend_from_slice(&state));
            }
        }
    }

    /// Takes over registrations of another process; those whose trunk is not configured any more are left out. Returns
    /// the number of those taken over; `None` for bytes that are no registrations.
    pub(crate) fn import(&mut self, now: Timestamp, bytes: &[u8]) -> Option<usize> {
        let (mut reader, mut taken) = (Reader(bytes), 0_usize);
        while !reader.is_empty() {
            let (name, state) = (reader.text16()?, reader.block()?);
            let is_it = |account: &TrunkRegistration| account.registration.trunk().name.as_bytes() == name;
            let Some((_, account)) = self.list.iter_mut().find(|(_, account)| is_it(account)) else { continue };
            if !account.registration.import(now, state.0) {
                return None;
            }
            account.reported_state = account.registration.status(now).state;
            taken = taken.saturating_add(1);
        }
        self.settle();
        Some(taken)
    }

    /// Forgets all registrations, which another process has from here on. The carriers are not told.
    pub(crate) fn transfer_all(&mut self) {
        self.list.clear();
        self.is_home = false;
        self.settle();
    }

    pub(crate) const fn poll_timeout(&self) -> Option<Timestamp> {
        self.next
    }

    /// Returns whether there is nothing to send or report, which is nearly always the case.
    pub(crate) const fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// Marks everything as sent and reported.
    pub(crate) fn settle(&mut self) {
        self.next = self.list.iter().filter_map(|(_, account)| account.registration.poll_timeout()).min();
        // One that failed immediately tries the next address with the next input.
        self.is_settled = !self.list.iter().any(|(_, account)| account.is_ready());
    }

    pub(crate) fn handle_timeout(&mut self, now: Timestamp) {
        if self.next.is_none_or(|next| next > now) {
            return;
        }
        self.is_settled = false;
        for (_, account) in &mut self.list {
            if account.registration.poll_timeout().is_some_and(|at| at <= now) {
                account.registration.handle_timeout(now);
            }
        }
    }

    /// Handles the response to a request of `user`.
    pub(crate) fn handle_response(&mut self, now: Timestamp, user: u32, message: &Message<'_>) {
        let Some(account) = self.of_user(user) else { return };
        //= rfc3263#4.3
        if message.status() == Some(MessageStatus::SERVICE_UNAVAILABLE)
            && account.has_untried_address()
            && account.registration.is_answered_by(message)
        {
            return account.fail(now);
        }
        account.failed = 0;
        account.registration.handle_response(now, message);
    }

    /// Handles a request of `user` that got no response.
    pub(crate) fn handle_failure(&mut self, now: Timestamp, user: u32) {
        if let Some(account) = self.of_user(user) {
            account.fail(now);
        }
    }

    pub(crate) fn for_each(&self, now: Timestamp, mut visit: impl FnMut(&str, Status)) {
        for (_, account) in self.list.iter().filter(|(_, account)| !account.is_leaving) {
            visit(&account.registration.trunk().name, account.registration.status(now));
        }
    }

    /// Returns a trunk whose registration state differs from the one last reported.
    pub(crate) fn poll_change(&mut self, now: Timestamp) -> Option<(Box<str>, Status)> {
        let news = |account: &TrunkRegistration| (account.registration.status(now).state, account.reported_state);
        let told = |(state, told): (State, State)| state == told || state == State::Registering;
        let (_, account) = self.list.iter_mut().find(|(_, account)| !account.is_leaving && !told(news(account)))?;
        let status = account.registration.status(now);
        account.reported_state = status.state;
        Some((account.registration.trunk().name.clone(), status))
    }

    /// Returns the registration whose requests have this user number, and marks the list as not settled.
    fn of_user(&mut self, user: u32) -> Option<&mut TrunkRegistration> {
        self.is_settled = false;
        self.list.get_mut(usize::try_from(user.checked_sub(OWN_USERS)?).ok()?)
    }
}

/// Returns whether two trunks of one name register the same contact at the same registrar.
fn is_same_contact(before: &Trunk, after: &Trunk) -> bool {
    let (Some(old), Some(new)) = (&before.account, &after.account) else { return false };
    before.name == after.name
        && (&old.from, &old.contact_user, &old.registrar, &old.next_hop)
            == (&new.from, &new.contact_user, &new.registrar, &new.next_hop)
}

impl TrunkRegistration {
    /// Returns the question for the DNS if the registrar is a name.
    fn question(&self) -> Option<&LocateQuery> {
        match self.registration.trunk().account.as_ref().map(|account| &account.next_hop) {
            Some(NextHop::Name(question)) => Some(question),
            Some(NextHop::Address(_)) | None => None,
        }
    }

    /// Returns whether it has a request to send and no DNS query is pending.
    fn is_ready(&self) -> bool {
        self.registration.wants_request() && !self.is_resolving
    }

    /// Returns whether the current attempt has not yet tried every address.
    const fn has_untried_address(&self) -> bool {
        self.failed.saturating_add(1) < self.places
    }

    //= rfc3261#8.1.2:tries-each-address
    /// Gives up the current address: tries the next one, or all again later.
    fn fail(&mut self, now: Timestamp) {
        let has_more = self.has_untried_address();
        self.failed = self.failed.saturating_add(1);
        self.attempt = self.attempt.saturating_add(1) % self.places.max(1);
        if has_more {
            self.registration.retry_at_next_hop();
        } else {
            self.failed = 0;
            self.registration.handle_failure(now);
        }
    }
}
mod drive;
