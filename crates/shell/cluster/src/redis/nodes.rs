//! Connections to the servers that have the keys: one Redis, the one that sentinels name, or the masters of a
//! cluster.

use std::ops::RangeInclusive;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, FromRedisValue, Pipeline, RedisError, Value};
use tokio::task::JoinSet;

use super::slot;
use crate::context::ENGINE_TIMEOUT;
use crate::engine::EngineError;
use crate::{EngineAddress, EngineKind};

/// Timeout of a sentinel.
const SENTINEL_TIMEOUT: Duration = Duration::from_secs(1);

/// Sets each change that is newer than the stored one, or different at the same version, as compared by their leading
/// digits.
const PUT_NEWER: &str = "
    for i, key in ipairs(KEYS) do
        local value, lasts = ARGV[2 * i - 1], ARGV[2 * i]
        local known = redis.call('GETRANGE', key, 0, 15)
        if known == '' or known <= value:sub(1, 16) then redis.call('SET', key, value, 'PX', lasts) end
    end";
/// Appends an entry if the log ends where the entry says. Returns the end of the log.
const APPEND: &str = "
    local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
    local at = last[1] and last[1][1] or '0-0'
    if at ~= ARGV[1] or at == ARGV[2] then return at end
    return redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[3], ARGV[2], 'e', ARGV[4])";

/// Hashes of the loaded scripts. A server that has lost the scripts is reconnected.
#[derive(Clone)]
pub(super) struct Scripts {
    pub(super) put_newer: String,
    pub(super) append: String,
}

/// A writable server and its slots.
#[derive(Clone)]
pub(super) struct Node {
    connection: MultiplexedConnection,
    pub(super) scripts: Scripts,
    /// Name for messages.
    pub(super) engine: String,
    slots: Vec<RangeInclusive<u16>>,
}

/// The servers that together have all keys.
#[derive(Clone)]
pub(super) struct Nodes {
    /// Epoch of the connections.
    pub(super) epoch: u64,
    all: Vec<Node>,
}

impl Nodes {
    /// Connects to the servers.
    pub(super) async fn connect(kind: EngineKind, engines: &[EngineAddress], epoch: u64) -> Result<Self, EngineError> {
        let all = match kind {
            EngineKind::RedisCluster => masters_of_cluster(engines).await,
            EngineKind::RedisSentinel => connect_by_sentinels(engines).await.map(|node| vec![node]),
            EngineKind::Redis | EngineKind::Postgres | EngineKind::MariaDb => {
                first_master(engines).await.map(|node| vec![node])
            }
        };
        all.map(|all| Self { epoch, all }).map_err(EngineError::Unreachable)
    }

    pub(super) fn all(&self) -> &[Node] {
        &self.all
    }

    /// Returns the node if there is only one.
    pub(super) fn only(&self) -> Option<&Node> {
        if let [node] = &self.all[..] { Some(node) } else { None }
    }

    /// Returns the node that has a key.
    pub(super) fn of(&self, key: &str) -> Result<&Node, EngineError> {
        let slot = slot::of(key);
        self.all
            .iter()
            .find(|node| node.slots.iter().any(|slots| slots.contains(&slot)))
            .ok_or_else(|| EngineError::Unreachable(format!("no master of the cluster serves slot {slot} of {key}")))
    }
}

impl Node {
    /// Executes commands whose keys are all on this node.
    pub(super) async fn query<T: FromRedisValue>(&self, pipeline: &Pipeline) -> Result<T, EngineError> {
        let mut connection = self.connection.clone();
        let said = |error: RedisError| EngineError::Failed { engine: self.engine.clone(), why: error.to_string() };
        pipeline.query_async(&mut connection).await.map_err(said)
    }
}

/// Returns the master's address from the first sentinel that answers.
pub(super) async fn query_sentinels(sentinels: &[EngineAddress]) -> Result<EngineAddress, String> {
    let mut asked = JoinSet::new();
    for sentinel in sentinels.iter().cloned() {
        asked.spawn_local(async move {
            let answer = tokio::time::timeout(SENTINEL_TIMEOUT, query_sentinel(&sentinel)).await;
            let answer = answer.unwrap_or_else(|_| Err("it does not answer".to_owned()));
            answer.map_err(|why| format!("the sentinel {}: {why}", sentinel.authority))
        });
    }
    let mut why = Vec::new();
    while let Some(answer) = asked.join_next().await {
        match answer.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(address) => return Ok(address),
            Err(error) => why.push(error),
        }
    }
    Err(why.join("; "))
}

async fn query_sentinel(sentinel: &EngineAddress) -> Result<EngineAddress, String> {
    let (name, database) = sentinel.database.split_once('/').unwrap_or((&sentinel.database, ""));
    // A configured password belongs to the Redis servers, so try the sentinel without one.
    let open = EngineAddress { password: None, database: String::new(), ..sentinel.clone() };
    let locked = EngineAddress { password: sentinel.password.clone(), ..open.clone() };
    let command = redis::cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(name).clone();
    let mut connection = open_connection(&open).await?;
    let mut answer: Result<Option<(String, u16)>, RedisError> = command.query_async(&mut connection).await;
    if locked.password.is_some() && answer.as_ref().is_err_and(|error| error.code() == Some("NOAUTH")) {
        answer = command.query_async(&mut open_connection(&locked).await?).await;
    }
    let (host, port) =
        answer.map_err(|error| error.to_string())?.ok_or_else(|| format!("it knows no master {name}"))?;
    let authority = authority(&host, port);
    Ok(EngineAddress { authority, password: sentinel.password.clone(), database: database.to_owned() })
}

async fn connect_by_sentinels(sentinels: &[EngineAddress]) -> Result<Node, String> {
    let address = query_sentinels(sentinels).await?;
    let node = connect_to_master(&address).await;
    node.map_err(|why| format!("{}, named by the sentinels: {why}", address.authority))
}

async fn first_master(engines: &[EngineAddress]) -> Result<Node, String> {
    let mut why = Vec::new();
    for address in engines {
        match connect_to_master(address).await {
            Ok(node) => return Ok(node),
            Err(error) => why.push(format!("{}: {error}", address.authority)),
        }
    }
    Err(why.join("; "))
}

/// Connects to a writable server that has all slots.
async fn connect_to_master(address: &EngineAddress) -> Result<Node, String> {
    let mut connection = open_connection(address).await?;
    let role: Result<Vec<Value>, RedisError> = redis::cmd("ROLE").query_async(&mut connection).await;
    let role = role.map_err(|error| error.to_string())?.into_iter().next();
    let role: String = role.and_then(|role| redis::from_redis_value(role).ok()).unwrap_or_default();
    if role != "master" {
        return Err(format!("is a {role}, which is not writable"));
    }
    let scripts = load_scripts(&mut connection).await?;
    Ok(Node { connection, scripts, engine: address.authority.clone(), slots: vec![0..=slot::SLOTS - 1] })
}

async fn load_scripts(connection: &mut MultiplexedConnection) -> Result<Scripts, String> {
    let mut pipeline = redis::pipe();
    for script in [PUT_NEWER, APPEND] {
        pipeline.cmd("SCRIPT").arg("LOAD").arg(script);
    }
    let names: Result<(String, String), RedisError> = pipeline.query_async(connection).await;
    let (put_newer, append) = names.map_err(|error| error.to_string())?;
    Ok(Scripts { put_newer, append })
}

/// Connects to all masters of a cluster, as listed by one of these servers.
async fn masters_of_cluster(engines: &[EngineAddress]) -> Result<Vec<Node>, String> {
    let mut why = Vec::new();
    for address in engines {
        match masters_by(address).await {
            Ok(masters) => return Ok(masters),
            Err(error) => why.push(format!("{}: {error}", address.authority)),
        }
    }
    Err(why.join("; "))
}

async fn masters_by(address: &EngineAddress) -> Result<Vec<Node>, String> {
    type Server = (String, u16);
    let mut connection = open_connection(address).await?;
    let ranges: Result<Vec<(u16, u16, Vec<Value>)>, RedisError> = slots(&mut connection).await;
    let mut masters: Vec<Node> = Vec::new();
    for (first, last, server) in ranges.map_err(|error| error.to_string())? {
        let server: Option<Value> = server.into_iter().next();
        let server: Option<Vec<Value>> = server.and_then(|server| redis::from_redis_value(server).ok());
        let server =
            server.and_then(|words| redis::from_redis_value(Value::Array(words.into_iter().take(2).collect())).ok());
        let (host, port): Server = server.ok_or("it names a master that has no address")?;
        // A server that does not know its own address leaves it out.
        let own_host = || address.authority.rsplit_once(':').map_or("", |(host, _)| host).to_owned();
        let authority = authority(&if host.is_empty() { own_host() } else { host }, port);
        if let Some(known) = masters.iter_mut().find(|node| node.engine == authority) {
            known.slots.push(first..=last);
            continue;
        }
        let master = EngineAddress { authority: authority.clone(), ..address.clone() };
        let node = connect_to_master(&master).await.map_err(|why| format!("the master {authority}: {why}"))?;
        masters.push(Node { slots: vec![first..=last], ..node });
    }
    if masters.is_empty() { Err("no master has a slot yet".to_owned()) } else { Ok(masters) }
}

/// Returns the result of `CLUSTER SLOTS`: first slot, last slot, and the servers that have them, the master first.
async fn slots(connection: &mut MultiplexedConnection) -> Result<Vec<(u16, u16, Vec<Value>)>, RedisError> {
    let ranges: Vec<Vec<Value>> = redis::cmd("CLUSTER").arg("SLOTS").query_async(connection).await?;
    let range = |mut range: Vec<Value>| {
        let servers = range.split_off(range.len().min(2));
        let (first, last) = redis::from_redis_value(Value::Array(range))?;
        Ok((first, last, servers))
    };
    ranges.into_iter().map(range).collect()
}

async fn open_connection(address: &EngineAddress) -> Result<MultiplexedConnection, String> {
    let said = |error: RedisError| error.to_string();
    let client = Client::open(info(address)?).map_err(said)?;
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(ENGINE_TIMEOUT))
        .set_response_timeout(Some(ENGINE_TIMEOUT));
    client.get_multiplexed_async_connection_with_config(&config).await.map_err(said)
}

fn info(address: &EngineAddress) -> Result<ConnectionInfo, String> {
    let password = match &address.password {
        Some((user, password)) => format!("{}:{password}@", user.as_deref().unwrap_or_default()),
        None => String::new(),
    };
    let url = format!("redis://{password}{}/{}", address.authority, address.database);
    url.parse().map_err(|error: RedisError| error.to_string())
}

/// Formats host and port.
fn authority(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}
