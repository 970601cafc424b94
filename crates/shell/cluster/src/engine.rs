//! Interface of an engine.

use strowger_members::{Reply, Request};

/// Error of an engine request.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// No engine answers, or none is writable.
    #[error("no engine can be used: {0}")]
    Unreachable(String),
    /// The engine reported an error.
    #[error("{engine}: {why}")]
    Failed {
        /// Name of the engine.
        engine: String,
        /// Error message.
        why: String,
    },
    /// The engine has data that no member wrote.
    #[error("{engine}: {key} was not written by this program; use another cluster.name, or remove the key")]
    Foreign {
        /// Name of the engine.
        engine: String,
        /// Location of the data.
        key: String,
    },
}

/// A store that members share. Requests may be concurrent, one of each kind.
pub(crate) trait Engine {
    /// Executes a request. Passes the records of the whole state to `show`.
    async fn execute(&self, request: &Request, show: &dyn Fn(&[u8])) -> Result<Reply, EngineError>;
}

/// Whether a reply means that the request's connection must be replaced.
pub(crate) const fn is_connection_lost(reply: &Result<Reply, EngineError>) -> bool {
    matches!(reply, Err(_) | Ok(Reply::Failed { .. }))
}
