//! The targets of a process, which survive configuration changes.

use core::fmt;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::partition::SlotLoads;
use crate::target::{Target, TargetId};

/// Maximum number of targets.
pub const MAX_TARGETS: usize = 65_536;

/// All targets referenced by a set, a transaction or a call; unreferenced ones are dropped.
#[derive(Debug, Default)]
pub struct Registry {
    /// Never locked while handling a request.
    targets: Mutex<BTreeMap<TargetId, Weak<Target>>>,
    slot_loads: Arc<SlotLoads>,
}

/// The error when a target cannot be registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistryError {
    /// Another target has the same ID: one of the two URIs (or sets) must be written differently.
    Collision {
        /// The set of the other target.
        set: Box<str>,
        /// The URI of the other target.
        uri: Box<[u8]>,
    },
    /// There are [`MAX_TARGETS`] already.
    Full,
}

impl fmt::Display for RegistryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Collision { set, uri } => write!(
                f,
                "its ID collides with that of {} in {set}: write one of the URIs differently, for example with its port",
                String::from_utf8_lossy(uri)
            ),
            Self::Full => write!(f, "the limit of {MAX_TARGETS} targets is reached: remove some"),
        }
    }
}

impl core::error::Error for RegistryError {}

impl Registry {
    /// Creates an empty registry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the request counts per slot.
    #[must_use]
    pub fn slot_loads(&self) -> Arc<SlotLoads> {
        Arc::clone(&self.slot_loads)
    }

    /// Returns the target `uri` of the set `set`: the existing one with its counts and health, or a new one.
    ///
    /// # Errors
    ///
    /// Fails if its ID collides with another's or there are too many targets.
    pub fn target(&self, set: &str, uri: &[u8]) -> Result<Arc<Target>, RegistryError> {
        let id = TargetId::of(set, uri);
        let mut targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = targets.get(&id).and_then(Weak::upgrade) {
            if known.set() == set && known.uri() == uri {
                return Ok(known);
            }
            return Err(RegistryError::Collision { set: known.set().into(), uri: known.uri().into() });
        }
        targets.retain(|_, target| target.strong_count() != 0);
        if targets.len() >= MAX_TARGETS {
            return Err(RegistryError::Full);
        }
        let target = Target::new(set, uri);
        targets.insert(id, Arc::downgrade(&target));
        Ok(target)
    }

    /// Returns every referenced target, by ID, including those in no set that still have calls.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Target>> {
        let targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        targets.values().filter_map(Weak::upgrade).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_reused_while_it_is_referenced() {
        let registry = Registry::new();
        let first = registry.target("pool", b"sip:192.0.2.1").expect("new");
        first.drain();
        let again = registry.target("pool", b"sip:192.0.2.1").expect("known");
        assert!(Arc::ptr_eq(&first, &again) && again.is_draining());
        assert!(!Arc::ptr_eq(&first, &registry.target("other", b"sip:192.0.2.1").expect("another set's")));

        let call_guard = first.begin_call();
        drop((first, again));
        let target = registry.target("pool", b"sip:192.0.2.1").expect("has a call");
        assert_eq!((target.calls(), target.is_draining(), registry.all().len()), (1, true, 1));
        drop((call_guard, target));
        assert_eq!(registry.all().len(), 0);
        assert!(!registry.target("pool", b"sip:192.0.2.1").expect("new").is_draining());
    }
}
