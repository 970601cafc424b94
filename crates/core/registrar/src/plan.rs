//! What an update comes to, before anything is changed.

use core::time::Duration;

use smallvec::SmallVec;
use strowger_foundation::Timestamp;
use strowger_message::{Host, Uri};

use crate::binding::Binding;
use crate::locations::{Applied, Source};
use crate::policy::{Nat, Policy};
use crate::refusal::Refusal;
use crate::stripe::Stripe;
use crate::update::ContactUpdate;

pub(crate) type Indices = SmallVec<[u32; 8]>;

/// The effect of the contacts of one REGISTER on one address of record.
#[derive(Debug, Default)]
pub(crate) struct Plan<'u, 'a> {
    /// Bindings that go, or are written over.
    pub(crate) replaced: Indices,
    /// Contacts that are to be there, and for how long.
    pub(crate) wanted: SmallVec<[(&'u ContactUpdate<'a>, Duration); 4]>,
    before: usize,
    pub(crate) applied: Applied,
}

impl Plan<'_, '_> {
    fn after(&self) -> usize {
        (self.before + self.wanted.len()).saturating_sub(self.replaced.len())
    }
}

impl Stripe {
    /// What `contacts` come to, without changing anything.
    pub(crate) fn plan<'u, 'a>(
        &self,
        now: Timestamp,
        (aor, hash): (&[u8], u32),
        policy: &Policy,
        contacts: &'u [ContactUpdate<'a>],
        in_order: &dyn Fn(&Binding) -> bool,
    ) -> Result<Plan<'u, 'a>, Refusal> {
        let mut plan = Plan::default();
        let mut expired = Indices::new();
        let mut current: SmallVec<[(u32, &Binding, Option<Uri<'_>>); 8]> = SmallVec::new();
        for (index, binding) in self.of(aor, hash) {
            if now < binding.expires {
                current.push((index, binding, Uri::parse(binding.uri())));
            } else {
                expired.push(index);
            }
        }
        plan.before = current.len();
        let mut known = 0usize;
        for (number, contact) in contacts.iter().enumerate() {
            let lifetime = lifetime(policy, contact.expires_s)?;
            // Of contacts that are the same within one REGISTER the last counts.
            let superseded = contacts.iter().skip(number + 1).any(|later| same(&later.uri, &contact.uri));
            let mut is_known = false;
            for (index, binding, uri) in &current {
                if !uri.is_some_and(|uri| same(&uri, &contact.uri)) {
                    continue;
                }
                if !in_order(binding) {
                    return Err(Refusal::OutOfOrder);
                }
                is_known = true;
                if !plan.replaced.contains(index) {
                    plan.replaced.push(*index);
                }
            }
            if let Some(lifetime) = lifetime.filter(|_| !superseded) {
                known += usize::from(is_known);
                plan.wanted.push((contact, lifetime));
            }
        }
        // Who is there may refresh and exchange contacts even where the operator has lowered the limit.
        if plan.after() > policy.max_contacts && plan.after() > plan.before {
            return Err(Refusal::TooManyContacts);
        }
        let refreshed = known.min(plan.replaced.len());
        plan.applied = Applied {
            added: narrow(plan.wanted.len().saturating_sub(refreshed)),
            refreshed: narrow(refreshed),
            removed: narrow(plan.replaced.len().saturating_sub(refreshed)),
        };
        // Those whose time is up make room; nobody sees them go.
        plan.replaced.extend(expired);
        Ok(plan)
    }
}

/// How long a contact is to stay; `None` removes it.
pub(crate) fn lifetime(policy: &Policy, expires_s: Option<u32>) -> Result<Option<Duration>, Refusal> {
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

/// Whether requests for `uri` go to where its REGISTER came from.
pub(crate) fn is_translated(nat: Nat, source: &Source, uri: &Uri<'_>) -> bool {
    match nat {
        Nat::Never => false,
        Nat::Always => true,
        Nat::Auto => match uri {
            Uri::Sip(sip) => match sip.host() {
                Host::Ip(ip) => {
                    !source.via_sent_by_matches || ip.to_canonical() != source.flow.peer.ip().to_canonical()
                }
                // No name is resolved, so the source is all that there is.
                Host::Name(_) => true,
            },
            Uri::Tel(_) => true,
            Uri::Other { .. } => false,
        },
    }
}

/// URI comparison; the same bytes need no reading.
fn same(a: &Uri<'_>, b: &Uri<'_>) -> bool {
    a.as_bytes() == b.as_bytes() || a.same(b)
}

pub(crate) fn narrow(number: usize) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}
