//! What requests share, and how they reach the server.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::StatusCode;
use strowger_control::caller::Caller;
use strowger_control::protocol::{self, Change};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use crate::backend::{Backend, Refusal};
use crate::client::Client;
use crate::problem::Problem;
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
    pub(crate) hosts: Vec<String>,
    pub(crate) limits: Mutex<RateLimits>,
}

impl Shared {
    pub(crate) fn limits(&self) -> MutexGuard<'_, RateLimits> {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the names that clients may call the server by.
    pub(crate) fn hosts(&self) -> Vec<String> {
        let mut hosts = self.backend.domains();
        hosts.extend_from_slice(&self.hosts);
        hosts
    }

    /// Passes a request to the server, and writes the audit log if it is a change.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        client: &Client,
        request: protocol::Request,
    ) -> Result<protocol::Response, Problem> {
        let change = request.change();
        self.run(client, change, move |backend| match backend.handler().handle(request) {
            protocol::Response::Error(why) => Err(Refusal::Invalid { field: None, why }),
            protocol::Response::NotFound(why) => Err(Refusal::NotFound(why)),
            protocol::Response::Conflict(why) => Err(Refusal::Conflict(why)),
            protocol::Response::Busy(why) => Err(Refusal::Busy(why)),
            response => Ok(response),
        })
        .await
    }

    /// Runs a job that may block, and writes the audit log if it is a change.
    pub(crate) async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        client: &Client,
        change: Option<Change>,
        job: impl FnOnce(&dyn Backend) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Problem> {
        let (shared, caller) = (Arc::clone(self), client.caller());
        let job = move || {
            let result = job(&*shared.backend);
            shared.audit(&caller, change.as_ref(), result.as_ref().err().map(Refusal::why));
            result
        };
        let result = spawn_blocking(job).await;
        let stopping = |_| Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the server is stopping").retry_after(1);
        result.map_err(stopping)?.map_err(Problem::from)
    }

    pub(crate) fn audit(&self, caller: &Caller, change: Option<&Change>, failure: Option<&str>) {
        change.into_iter().for_each(|change| self.backend.handler().audit(caller, change, failure));
    }
}
