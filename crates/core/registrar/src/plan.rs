//! The effect of an update, computed before anything changes.

use core::time::Duration;

use smallvec::SmallVec;

use crate::binding::Binding;
use crate::index::Indices;
use crate::policy::Policy;
use crate::record_context::RecordContext;
use crate::refusal::Refusal;
use crate::register_sequence::RegisterSequence;
use crate::stripe::Stripe;
use crate::update::{ContactUpdate, check_contact};
use crate::values::UpdateCounts;
use crate::version_table::{Change, ContactKey};

/// The effect of one REGISTER's contacts on one address of record.
#[derive(Debug, Default)]
pub(crate) struct Plan<'u, 'a> {
    /// Current bindings to remove or overwrite.
    pub(crate) replaced: Indices,
    /// Contacts to bind.
    pub(crate) planned: SmallVec<[PlannedContact<'u, 'a>; 1]>,
    /// Whether there are contacts to remove, bound or not.
    pub(crate) has_removals: bool,
    /// Contacts to remove.
    pub(crate) removals: SmallVec<[&'u ContactUpdate<'a>; 1]>,
    before: usize,
    pub(crate) applied: UpdateCounts,
}

/// One contact to bind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlannedContact<'u, 'a> {
    pub(crate) contact: &'u ContactUpdate<'a>,
    pub(crate) lifetime: Duration,
    /// The continued GRUU epoch of its instance; `None` starts a new one.
    pub(crate) epoch: Option<u32>,
}

type Current<'s> = SmallVec<[(u32, &'s Binding); 8]>;

impl Plan<'_, '_> {
    fn after(&self) -> usize {
        (self.before + self.planned.len()).saturating_sub(self.replaced.len())
    }
}

impl Stripe {
    //= rfc3261#10.3:atomic
    /// Returns the effect of `contacts` without changing anything.
    pub(crate) fn plan<'u, 'a>(
        &self,
        context: &RecordContext<'_>,
        (aor, hash): (&[u8], u32),
        policy: &Policy,
        contacts: &'u [ContactUpdate<'a>],
        call: RegisterSequence,
    ) -> Result<Plan<'u, 'a>, Refusal> {
        let mut plan = Plan::default();
        let mut current = Current::new();
        for known in self.bindings_of(aor, hash).filter(|(_, binding)| context.now < binding.expires) {
            current.push(known);
        }
        plan.before = current.len();
        let mut known = 0usize;
        for (number, contact) in contacts.iter().enumerate() {
            let lifetime = lifetime(policy, contact.expires_s)?;
            plan.has_removals |= lifetime.is_none();
            // If one REGISTER contains a contact twice, the last one counts.
            let superseded = contacts.iter().skip(number + 1).any(|later| later.same(contact));
            let mut is_known = false;
            for (index, binding) in &current {
                if !overwrites(binding, contact) {
                    continue;
                }
                let is_repeated = lifetime.is_some() && self.is_applied_by_other_member(context, binding, call);
                //= rfc3261#10.3:lower-cseq
                if !call.is_after(binding) && !is_repeated {
                    return Err(Refusal::OutOfOrder);
                }
                is_known = true;
                if !plan.replaced.contains(index) {
                    plan.replaced.push(*index);
                }
            }
            let key = contact.key(aor);
            let is_repeated = lifetime.is_none() && self.is_removed_by_other_member(context, key, call);
            if self.versions.is_before_tombstone(key, call) && !is_repeated {
                return Err(Refusal::OutOfOrder);
            }
            // A contact that is not bound here may be bound at another member. The number is limited like that of
            // contacts.
            if lifetime.is_none() && !superseded && plan.removals.len() < policy.max_contacts.max(1) {
                plan.removals.push(contact);
            }
            if let Some(lifetime) = lifetime.filter(|_| !superseded) {
                check_contact(aor, contact)?;
                known += usize::from(is_known);
                plan.planned.push(PlannedContact { contact, lifetime, epoch: epoch(&current, contact, call) });
            }
        }
        // Existing clients may refresh and replace contacts even if the operator has lowered the limit.
        if plan.after() > policy.max_contacts && plan.after() > plan.before {
            return Err(Refusal::TooManyContacts);
        }
        let refreshed = known.min(plan.replaced.len());
        plan.applied = UpdateCounts {
            added: narrow(plan.planned.len().saturating_sub(refreshed)),
            refreshed: narrow(refreshed),
            removed: narrow(plan.replaced.len().saturating_sub(refreshed)),
        };
        Ok(plan)
    }
}

impl Stripe {
    /// Returns whether another member has applied this very update. A client repeats an update that got no response;
    /// the member may have failed first.
    fn is_applied_by_other_member(
        &self,
        context: &RecordContext<'_>,
        binding: &Binding,
        call: RegisterSequence,
    ) -> bool {
        let version = || self.versions.of(binding.text.parts().contact());
        call.has_made(binding) && context.is_from_other_member(version())
    }

    /// The same for a removal.
    fn is_removed_by_other_member(
        &self,
        context: &RecordContext<'_>,
        contact: ContactKey,
        call: RegisterSequence,
    ) -> bool {
        let is_of_other = |change: Change| change.call == call && context.is_from_other_member(change.version);
        self.versions.tombstone_of(contact).is_some_and(|mark| is_of_other(mark.change))
    }
}

//= rfc5626#6:both-kinds
/// Returns whether `contact` overwrites `binding`.
fn overwrites(binding: &Binding, contact: &ContactUpdate<'_>) -> bool {
    match (contact.reg_id, binding.reg_id()) {
        (Some(new), Some(old)) => new == old && binding.has_instance(contact.instance),
        (None, None) => contact.has_uri(binding.uri()),
        _ => false,
    }
}

//= rfc5627#5.1
/// Returns the GRUU epoch to continue. Temporary GRUUs of an instance are valid until its newest binding, or with
/// flows the newest of the flow, is updated with another Call-ID.
fn epoch(current: &Current<'_>, contact: &ContactUpdate<'_>, call: RegisterSequence) -> Option<u32> {
    let of_instance = || current.iter().map(|(_, binding)| *binding).filter(|b| b.has_instance(contact.instance));
    let before =
        of_instance().filter(|b| contact.reg_id.is_none() || b.reg_id() == contact.reg_id).max_by(|a, b| a.age(b));
    if before.is_some_and(|before| before.call_id != call.id) {
        return None;
    }
    before.or_else(|| of_instance().next()).map(|binding| binding.text.epoch())
}

/// Returns the lifetime of a contact; `None` removes it.
pub(crate) fn lifetime(policy: &Policy, expires_s: Option<u32>) -> Result<Option<Duration>, Refusal> {
    //= rfc3261#10.3:expires-default
    let Some(expires_s) = expires_s else { return Ok(Some(policy.expires_default.min(policy.expires_max))) };
    let asked = Duration::from_secs(u64::from(expires_s));
    if expires_s == 0 {
        return Ok(None);
    }
    //= rfc3261#10.3 step 7
    // An hour or more is never too brief, whatever the operator's minimum.
    if asked < policy.expires_min && asked < Duration::from_secs(3600) {
        let whole_s = policy.expires_min.as_secs() + u64::from(policy.expires_min.subsec_nanos() > 0);
        return Err(Refusal::IntervalTooBrief { min_s: whole_s });
    }
    Ok(Some(asked.min(policy.expires_max)))
}

pub(crate) fn narrow(number: usize) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}
