//! Redis and Valkey: one server of several, the one that sentinels name, or a cluster.
//!
//! | key | type | content |
//! |---|---|---|
//! | `{NAME}:members` | set | the numbers of all members |
//! | `{NAME:MEMBER}:log` | stream | the member's log: an entry's id is its incarnation and number, its field `e` the rest |
//! | `{NAME:MEMBER}:c:CONTACT` | string | the newest change of a contact by this member, after its version; expires when no older change is valid |
//! | `{NAME:MEMBER}:beat` | string | a value that changes with each heartbeat, and the member's SIP address; expires when heartbeats stop |
//!
//! All keys of a member are in one cluster slot, because the part in braces determines it. A change is set before its
//! entry is appended. A reader that first notes the log ends and then reads all changes therefore misses none.

mod nodes;
mod slot;

use std::time::Duration;

use redis::{FromRedisValue, Pipeline, Value};
use strowger_members::{Entry, LiveMember, Position, Reply, Request};
use strowger_registrar::MemberId;
use tokio::sync::Mutex;
use tokio::time::Instant;

use self::nodes::{Node, Nodes};
use crate::changes::{self, StoredChange};
use crate::context::{ENGINE_TIMEOUT, EngineContext, FOLLOW_EVERY, FOLLOW_FOR, LOG_ENTRIES, READ_ENTRIES};
use crate::engine::{Engine, EngineError, is_connection_lost};
use crate::{EngineAddress, EngineKind};

/// Maximum number of keys read at once.
const READ_KEYS: usize = 1_000;
/// Number of digits of the version before each change.
const VERSION_LEN: usize = 16;
/// Expiry of a member's heartbeat key.
const HEARTBEAT_TTL: Duration = Duration::from_secs(10);

/// Number of heartbeats between checks of the master with the sentinels.
const HEARTBEATS_PER_CHECK: u64 = 4;

/// A log as returned by `XREAD`.
type Log = (String, Vec<(String, Vec<(String, Vec<u8>)>)>);
/// Its last entry as returned by `XREVRANGE`.
type LastEntry = Vec<(String, Value)>;

/// A Redis engine.
pub(crate) struct Redis {
    own: EngineContext,
    kind: EngineKind,
    /// Connections for commands and for following logs. They are separate because following blocks.
    commands: Mutex<Option<Nodes>>,
    follows: Mutex<Option<Nodes>>,
}

impl Redis {
    pub(crate) fn new(own: EngineContext, kind: EngineKind) -> Self {
        Self { own, kind, commands: Mutex::new(None), follows: Mutex::new(None) }
    }

    fn log_key(&self, member: MemberId) -> String {
        format!("{{{}:{}}}:log", self.own.name, member.get())
    }

    fn heartbeat_key(&self, member: MemberId) -> String {
        format!("{{{}:{}}}:beat", self.own.name, member.get())
    }

    fn members_key(&self) -> String {
        format!("{{{}}}:members", self.own.name)
    }

    /// Returns the connections of a slot, establishing them if necessary.
    async fn nodes(&self, slot: &Mutex<Option<Nodes>>) -> Result<Nodes, EngineError> {
        let mut slot = slot.lock().await;
        if let Some(nodes) = slot.as_ref().filter(|nodes| nodes.epoch == self.own.epoch()) {
            return Ok(nodes.clone());
        }
        let nodes = Nodes::connect(self.kind, &self.own.engines, self.own.epoch()).await?;
        Ok(slot.insert(nodes).clone())
    }

    async fn known_members(&self, nodes: &Nodes) -> Result<Vec<MemberId>, EngineError> {
        let members = self.members_key();
        let mut pipeline = redis::pipe();
        pipeline.cmd("SADD").arg(&members).arg(self.own.member.get()).ignore();
        pipeline.cmd("SMEMBERS").arg(&members);
        let (numbers,): (Vec<u16>,) = nodes.of(&members)?.query(&pipeline).await?;
        Ok(numbers.into_iter().filter_map(MemberId::new).collect())
    }

    async fn ends(&self, nodes: &Nodes) -> Result<Reply, EngineError> {
        let members = self.known_members(nodes).await?;
        let ask = |pipeline: &mut Pipeline, log: &str| {
            pipeline.cmd("XREVRANGE").arg(log).arg("+").arg("-").arg("COUNT").arg(1);
        };
        let last: Vec<(MemberId, LastEntry)> =
            query_each(nodes, &members, &|member| self.log_key(member), &ask).await?;
        let end = |(member, last): (MemberId, LastEntry)| Some((member, position(&last.into_iter().next()?.0)?));
        Ok(Reply::Ends(last.into_iter().filter_map(end).collect()))
    }

    async fn read_all(&self, nodes: &Nodes, show: &dyn Fn(&[u8])) -> Result<Reply, EngineError> {
        let pattern = format!("{{{}:*}}:c:*", self.own.name);
        for node in nodes.all() {
            let (mut cursor, mut keys) = (Some(0_u64), Vec::new());
            while cursor.is_some() || !keys.is_empty() {
                let (next, changes) = read_more(node, &pattern, cursor, &keys).await?;
                changes.iter().flatten().filter_map(|value| value.get(VERSION_LEN..)).for_each(show);
                (cursor, keys) = next;
            }
        }
        Ok(Reply::AllRead)
    }

    async fn follow(&self, nodes: &Nodes, from: &[(MemberId, Position)]) -> Result<Reply, EngineError> {
        if let Some(node) = nodes.only() {
            let entries = self.new_entries(node, from, Some(FOLLOW_FOR)).await?;
            return Ok(Reply::Entries(entries));
        }
        // A server cannot block on logs in several slots.
        let end = Instant::now() + FOLLOW_FOR;
        loop {
            let mut found = Vec::new();
            for one in from {
                let node = nodes.of(&self.log_key(one.0))?;
                found.extend(self.new_entries(node, &[*one], None).await?);
            }
            if !found.is_empty() || Instant::now() >= end {
                return Ok(Reply::Entries(found));
            }
            tokio::time::sleep(FOLLOW_EVERY).await;
        }
    }

    /// Returns a server's entries after these positions. Waits if there are none.
    async fn new_entries(
        &self,
        node: &Node,
        from: &[(MemberId, Position)],
        wait: Option<Duration>,
    ) -> Result<Vec<(MemberId, Vec<Entry>)>, EngineError> {
        let mut pipeline = redis::pipe();
        let command = pipeline.cmd("XREAD").arg("COUNT").arg(READ_ENTRIES);
        if let Some(wait) = wait {
            command.arg("BLOCK").arg(millis(wait));
        }
        command.arg("STREAMS");
        from.iter().for_each(|(member, _)| {
            command.arg(self.log_key(*member));
        });
        from.iter().for_each(|(_, at)| {
            command.arg(id(*at));
        });
        let (logs,): (Option<Vec<Log>>,) = node.query(&pipeline).await?;
        let mut found = Vec::new();
        for (key, entries) in logs.unwrap_or_default() {
            let Some((member, _)) = from.iter().find(|(member, _)| self.log_key(*member) == key) else { continue };
            let entries: Option<Vec<Entry>> = entries
                .into_iter()
                .map(|(id, fields)| Entry::from_bytes(position(&id)?, &fields.into_iter().next()?.1))
                .collect();
            found.push((*member, entries.ok_or(EngineError::Foreign { engine: node.engine.clone(), key })?));
        }
        Ok(found)
    }

    async fn append(&self, nodes: &Nodes, entry: &Entry) -> Result<Reply, EngineError> {
        let (log, at) = (self.log_key(self.own.member), id(entry.position));
        let node = nodes.of(&log)?;
        let mut pipeline = redis::pipe();
        self.put(&mut pipeline, node, entry);
        let append = pipeline.cmd("EVALSHA").arg(&node.scripts.append).arg(1).arg(&log).arg(id(entry.after)).arg(&at);
        append.arg(LOG_ENTRIES).arg(entry.to_bytes());
        let (end,): (String,) = node.query(&pipeline).await?;
        if end != at {
            let why = self.own.log_mismatch(position(&end).unwrap_or_default(), entry.after);
            return Err(EngineError::Failed { engine: node.engine.clone(), why });
        }
        self.wait_for_replicas(node).await?;
        Ok(Reply::Appended(entry.position))
    }

    /// Adds the changes of an entry to the pipeline.
    fn put(&self, pipeline: &mut Pipeline, node: &Node, entry: &Entry) {
        let newest = changes::of_entry(entry, self.own.max_lifetime);
        let store_ms = self.own.store_ms();
        let command = pipeline.cmd("EVALSHA").arg(&node.scripts.put_newer).arg(newest.len());
        for contact in newest.keys() {
            command.arg(format!("{{{}:{}}}:c:{contact:016x}", self.own.name, self.own.member.get()));
        }
        for StoredChange { version, until_ms, record } in newest.values() {
            let value = [format!("{:016x}", version.to_bits()).as_bytes(), record].concat();
            command.arg(value).arg(until_ms.saturating_sub(store_ms).max(1));
        }
        command.ignore();
    }

    /// Waits until the configured number of replicas has everything up to the last command on this connection.
    async fn wait_for_replicas(&self, node: &Node) -> Result<(), EngineError> {
        if self.own.replicas == 0 {
            return Ok(());
        }
        let mut pipeline = redis::pipe();
        pipeline.cmd("WAIT").arg(self.own.replicas).arg(millis(ENGINE_TIMEOUT / 2));
        let (have,): (u64,) = node.query(&pipeline).await?;
        if have >= self.own.replicas.into() {
            return Ok(());
        }
        let why = format!(
            "only {have} replicas confirmed the write, but cluster.replicas is {}; start more replicas, or lower it",
            self.own.replicas
        );
        Err(EngineError::Failed { engine: node.engine.clone(), why })
    }

    async fn write_heartbeat(&self, nodes: &Nodes) -> Result<Reply, EngineError> {
        let members = self.known_members(nodes).await?;
        let ask = |pipeline: &mut Pipeline, key: &str| {
            pipeline.cmd("GET").arg(key);
        };
        let beats: Vec<(MemberId, Option<String>)> =
            query_each(nodes, &members, &|member| self.heartbeat_key(member), &ask).await?;
        let (beat, key) = (self.own.next_heartbeat(), self.heartbeat_key(self.own.member));
        let value = format!("{} {} {} {}", beat, self.own.incarnation, self.own.address, self.own.key);
        let mut pipeline = redis::pipe();
        pipeline.cmd("SET").arg(&key).arg(value).arg("PX").arg(millis(HEARTBEAT_TTL)).ignore();
        let () = nodes.of(&key)?.query(&pipeline).await?;
        if self.kind == EngineKind::RedisSentinel && beat % HEARTBEATS_PER_CHECK == 0 {
            self.check_master(nodes).await?;
        }
        let alive = |(member, beat): (MemberId, Option<String>)| {
            let beat = beat?;
            let mut words = beat.split(' ');
            let (beat, incarnation) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            let address = words.next()?.parse().ok()?;
            Some(LiveMember { member, incarnation, heartbeat: beat, address, key: words.next()?.to_owned() })
        };
        Ok(Reply::Heartbeats(beats.into_iter().filter_map(alive).collect()))
    }

    /// Checks with the sentinels that the master is still the same: one that was cut off may not know that it has
    /// been replaced.
    async fn check_master(&self, nodes: &Nodes) -> Result<(), EngineError> {
        let (Ok(named), Some(node)) = (nodes::query_sentinels(&self.own.engines).await, nodes.only()) else {
            return Ok(());
        };
        if named.authority == node.engine {
            return Ok(());
        }
        let why = format!("the sentinels report {} as the new master", named.authority);
        Err(EngineError::Failed { engine: node.engine.clone(), why })
    }

    async fn execute_on(&self, nodes: &Nodes, request: &Request, show: &dyn Fn(&[u8])) -> Result<Reply, EngineError> {
        match request {
            Request::Ends => self.ends(nodes).await,
            Request::ReadAll => self.read_all(nodes, show).await,
            Request::Follow(from) => self.follow(nodes, from).await,
            Request::Append(entry) => self.append(nodes, entry).await,
            Request::Heartbeat => self.write_heartbeat(nodes).await,
        }
    }
}

impl Engine for Redis {
    async fn execute(&self, request: &Request, show: &dyn Fn(&[u8])) -> Result<Reply, EngineError> {
        let slot = if matches!(request, Request::Follow(_)) { &self.follows } else { &self.commands };
        let nodes = self.nodes(slot).await?;
        let reply = self.execute_on(&nodes, request, show).await;
        if is_connection_lost(&reply) {
            self.own.invalidate(nodes.epoch);
        }
        reply
    }
}

/// Queries one key of each member, pipelined per server.
async fn query_each<T: FromRedisValue>(
    nodes: &Nodes,
    members: &[MemberId],
    key_of: &dyn Fn(MemberId) -> String,
    ask: &dyn Fn(&mut Pipeline, &str),
) -> Result<Vec<(MemberId, T)>, EngineError> {
    let mut answers = Vec::new();
    for node in nodes.all() {
        let (mut pipeline, mut asked) = (redis::pipe(), Vec::new());
        for member in members {
            let key = key_of(*member);
            if nodes.of(&key)?.engine == node.engine {
                ask(&mut pipeline, &key);
                asked.push(*member);
            }
        }
        if !asked.is_empty() {
            let of_node: Vec<T> = node.query(&pipeline).await?;
            answers.extend(asked.into_iter().zip(of_node));
        }
    }
    Ok(answers)
}

/// Reads these keys and, at the same time, scans for the next keys and the cursor after them.
async fn read_more(
    node: &Node,
    pattern: &str,
    cursor: Option<u64>,
    keys: &[String],
) -> Result<((Option<u64>, Vec<String>), Vec<Option<Vec<u8>>>), EngineError> {
    let mut pipeline = redis::pipe();
    if let Some(cursor) = cursor {
        pipeline.cmd("SCAN").arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(READ_KEYS);
    }
    // Keys of the same slot can be read at once.
    for keys in keys.chunk_by(|one, next| slot::of(one) == slot::of(next)) {
        pipeline.cmd("MGET").arg(keys);
    }
    let mut answers = node.query::<Vec<Value>>(&pipeline).await?.into_iter();
    let said = |error: redis::ParsingError| EngineError::Failed { engine: node.engine.clone(), why: error.to_string() };
    let mut next = (None, Vec::new());
    if cursor.is_some()
        && let Some(scanned) = answers.next()
    {
        let (at, keys): (u64, Vec<String>) = redis::from_redis_value(scanned).map_err(said)?;
        next = (Some(at).filter(|at| *at != 0), keys);
    }
    let mut changes = Vec::new();
    for answer in answers {
        changes.extend(redis::from_redis_value::<Vec<Option<Vec<u8>>>>(answer).map_err(said)?);
    }
    Ok((next, changes))
}

/// Checks that the servers accept connections.
pub(crate) async fn check(kind: EngineKind, engines: &[EngineAddress]) -> Result<(), EngineError> {
    Nodes::connect(kind, engines, 0).await.map(drop)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(0)
}

/// Formats a position as an entry id.
fn id(position: Position) -> String {
    format!("{}-{}", position.incarnation, position.number)
}

/// Parses an entry id as a position.
fn position(id: &str) -> Option<Position> {
    let (incarnation, number) = id.split_once('-')?;
    Some(Position { incarnation: incarnation.parse().ok()?, number: number.parse().ok()? })
}
