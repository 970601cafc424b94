//! What requests share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;

use crate::backend::Backend;
use crate::rate::RateLimits;
use crate::roles::Roles;
use crate::tokens::KnownTokens;

/// Maximum number of traces at a time. The server runs eight, so two are left for the command line.
pub(crate) const MAX_TRACES: usize = 6;

/// What requests share.
pub(crate) struct Shared {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) tokens: KnownTokens,
    pub(crate) roles: Roles,
    pub(crate) traces: Arc<Semaphore>,
    /// The document, as JSON.
    pub(crate) document: String,
    pub(crate) limits: Mutex<RateLimits>,
}

impl Shared {
    pub(crate) fn limits(&self) -> MutexGuard<'_, RateLimits> {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
