//! What an engine must do.

use strowger_members::{Reply, Request};

use crate::EngineKind;
use crate::context::{EngineContext, FOLLOW_FOR};
use crate::mariadb::MariaDb;
use crate::postgres::Postgres;
use crate::redis::Redis;

/// Why an engine did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// None of them answers, or none can be written to.
    #[error("no engine can be used: {0}")]
    Unreachable(String),
    /// It does not do as it was told.
    #[error("{engine}: {why}")]
    Failed {
        /// Which.
        engine: String,
        /// What it said.
        why: String,
    },
    /// It has something that no member wrote.
    #[error("{engine}: {key} is not of this program; use another cluster.name, or remove it")]
    Foreign {
        /// Which.
        engine: String,
        /// Where that is.
        key: String,
    },
}

/// The engine that is configured.
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
            // Somebody may be there soon.
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

/// A store that members share. Any number of requests may be on their way, one of each kind.
pub(crate) trait Engine {
    /// Carries a request out. Records of the whole state are shown to `show`.
    async fn execute(&self, request: &Request, show: &dyn Fn(&[u8])) -> Result<Reply, EngineError>;
}

/// Whether something came of a request that lets its connection be given up.
pub(crate) const fn is_connection_lost(reply: &Result<Reply, EngineError>) -> bool {
    matches!(reply, Err(_) | Ok(Reply::Failed { .. }))
}
