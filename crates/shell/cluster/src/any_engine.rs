//! The engine of the configured kind.

use strowger_members::{Reply, Request};

use crate::EngineKind;
use crate::context::{EngineContext, FOLLOW_FOR};
use crate::engine::{Engine, EngineError};
use crate::mariadb::MariaDb;
use crate::postgres::Postgres;
use crate::redis::Redis;

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
