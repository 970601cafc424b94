//! Interface of an engine.

use strowger_members::{Reply, Request};

use crate::EngineKind;
use crate::context::{EngineContext, FOLLOW_FOR};
use crate::mariadb::MariaDb;
use crate::postgres::Postgres;
use crate::redis::Redis;

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

/// The configured engine.
pub(crate) enum AnyEngine {
    Redis(Redis),
    Postgres(Postgres),
    MariaDb(MariaDb),
}

impl AnyEngine {
    pub(crate) fn new(kind: EngineKind, own: EngineContext) -> Self {
        match kind {
            EngineKind::Redis | EngineKind::RedisSentinel | EngineKind::RedisCluster => {
                Self::Redis(Redis::new(own, kind))
            }
            EngineKind::MariaDb => Self::MariaDb(MariaDb::new(own)),
            EngineKind::Postgres => Self::Postgres(Postgres::new(own)),
        }
    }
}

impl Engine for AnyEngine {
    async fn execute(&self, request: &Request, show: &dyn Fn(&[u8])) -> Result<Reply, EngineError> {
        if matches!(request, Request::Follow(from) if from.is_empty()) {
            // A member may join soon.
            tokio::time::sleep(FOLLOW_FOR / 5).await;
            return Ok(Reply::Entries(Vec::new()));
        }
        match self {
            Self::Redis(redis) => redis.execute(request, show).await,
            Self::MariaDb(mariadb) => mariadb.execute(request, show).await,
            Self::Postgres(postgres) => postgres.execute(request, show).await,
        }
    }
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
