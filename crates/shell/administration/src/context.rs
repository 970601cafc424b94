//! What a handler has: the server, and who sends the request.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use strowger_control::protocol::{self, Change};
use tokio::task::spawn_blocking;

use crate::backend::{Backend, Refusal};
use crate::client::Client;
use crate::problem::Problem;
use crate::shared::Shared;

/// The server, on behalf of the client that sends a request.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) shared: Arc<Shared>,
    pub(crate) client: Client,
}

impl FromRequestParts<Arc<Shared>> for Context {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Self, Problem> {
        let client = parts.extensions.get::<Client>().cloned();
        let client = client.ok_or_else(|| Problem::new(StatusCode::UNAUTHORIZED, "this needs a token"))?;
        Ok(Self { shared: Arc::clone(shared), client })
    }
}

impl Context {
    pub(crate) fn backend(&self) -> &dyn Backend {
        &*self.shared.backend
    }

    /// Passes a request to the server, and writes the audit log if it is a change.
    pub(crate) async fn ask(&self, request: protocol::Request) -> Result<protocol::Response, Problem> {
        let change = request.change();
        self.run(change, move |backend| match backend.handler().handle(request) {
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
        &self,
        change: Option<Change>,
        job: impl FnOnce(&dyn Backend) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Problem> {
        let context = self.clone();
        let job = move || {
            let result = job(context.backend());
            context.audit(change.as_ref(), result.as_ref().err().map(Refusal::why));
            result
        };
        let result = spawn_blocking(job).await;
        let stopping = |_| Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the server is stopping").retry_after(1);
        result.map_err(stopping)?.map_err(Problem::from)
    }

    /// Writes a change, and why it failed, into the audit log.
    pub(crate) fn audit(&self, change: Option<&Change>, failure: Option<&str>) {
        if let Some(change) = change {
            self.backend().handler().audit(&self.client.caller(), change, failure);
        }
    }
}
