//! Redis and Valkey.
//!
//! | key | what | |
//! |---|---|---|
//! | `NAME:log:MEMBER` | stream | the member's log: an entry's id is its incarnation and number, its field `e` the rest |
//! | `NAME:c:MEMBER:CONTACT` | string | the newest change of a contact by this member, behind its version; expires when nothing older lasts any more |
//! | `NAME:beat:MEMBER` | string | what changes with each beat, and where the member takes requests; expires when it stops |
//!
//! A change is set before its entry is appended. So whoever notes where the logs end, and then reads all changes, misses none.

use std::cell::RefCell;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, FromRedisValue, Pipeline, Value};
use strowger_members::{Alive, Entry, Position, Reply, Request};
use strowger_registrar::MemberId;

use crate::EngineAddress;
use crate::changes::{self, Kept};
use crate::engine::{Engine, EngineError};
use crate::own::{FOLLOW_FOR, LOG_ENTRIES, Own, PATIENCE, READ_ENTRIES};

/// Keys that are read at once.
const READ_KEYS: usize = 1_000;
/// Digits of the version before each change.
const VERSION_LEN: usize = 16;
/// Puts each change that is newer than what is there, by the digits that both begin with.
const PUT_NEWER: &str = "
    for i, key in ipairs(KEYS) do
        local value, lasts = ARGV[2 * i - 1], ARGV[2 * i]
        local known = redis.call('GETRANGE', key, 0, 15)
        if known == '' or known < value:sub(1, 16) then redis.call('SET', key, value, 'PX', lasts) end
    end";
/// Appends an entry if the log ends where it says; where it ends then.
const APPEND: &str = "
    local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
    local at = last[1] and last[1][1] or '0-0'
    if at ~= ARGV[1] or at == ARGV[2] then return at end
    return redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[3], ARGV[2], 'e', ARGV[4])";
/// How long the sign of life of a member lasts.
const BEAT_LASTS: Duration = Duration::from_secs(10);

/// One Redis of several that stand in for one another.
pub(crate) struct Redis {
    own: Own,
    /// What commands go over, and what waits for something new: a connection each, for that one is blocked.
    commands: RefCell<Option<Connected>>,
    follows: RefCell<Option<Connected>>,
}

#[derive(Clone)]
struct Connected {
    connection: MultiplexedConnection,
    engine: String,
}

impl Redis {
    pub(crate) fn new(own: Own) -> Self {
        Self { own, commands: RefCell::new(None), follows: RefCell::new(None) }
    }

    fn log_of(&self, member: MemberId) -> String {
        format!("{}:log:{}", self.own.name, member.get())
    }

    async fn connected(&self, slot: &RefCell<Option<Connected>>) -> Result<Connected, EngineError> {
        if let Some(connected) = &*slot.borrow() {
            return Ok(connected.clone());
        }
        let mut why = Vec::new();
        for address in &self.own.engines {
            match connect(address).await {
                Ok(connected) => {
                    *slot.borrow_mut() = Some(connected.clone());
                    return Ok(connected);
                }
                Err(error) => why.push(format!("{}: {error}", address.authority)),
            }
        }
        Err(EngineError::Unreachable(why.join("; ")))
    }

    /// Asks over a connection, which is given up where it fails: another engine may be the one to be written to.
    async fn query<T: FromRedisValue>(
        &self,
        slot: &RefCell<Option<Connected>>,
        pipeline: &Pipeline,
    ) -> Result<T, EngineError> {
        let Connected { mut connection, engine } = self.connected(slot).await?;
        pipeline.query_async(&mut connection).await.map_err(|error| {
            *slot.borrow_mut() = None;
            EngineError::Failed { engine, why: error.to_string() }
        })
    }

    async fn ask<T: FromRedisValue>(&self, pipeline: &Pipeline) -> Result<T, EngineError> {
        self.query(&self.commands, pipeline).await
    }

    async fn ends(&self) -> Result<Reply, EngineError> {
        let mut pipeline = redis::pipe();
        pipeline.cmd("SMEMBERS").arg(format!("{}:members", self.own.name));
        let (numbers,): (Vec<u16>,) = self.ask(&pipeline).await?;
        let members: Vec<MemberId> = numbers.into_iter().filter_map(MemberId::new).collect();
        let mut pipeline = redis::pipe();
        for member in &members {
            pipeline.cmd("XREVRANGE").arg(self.log_of(*member)).arg("+").arg("-").arg("COUNT").arg(1);
        }
        let last: Vec<Vec<(String, Value)>> = if members.is_empty() { Vec::new() } else { self.ask(&pipeline).await? };
        let end = |entries: Vec<(String, Value)>| position(&entries.into_iter().next()?.0);
        Ok(Reply::Ends(members.into_iter().zip(last).filter_map(|(member, last)| Some((member, end(last)?))).collect()))
    }

    async fn read_all(&self, show: &dyn Fn(&[u8])) -> Result<Reply, EngineError> {
        let pattern = format!("{}*", escape(&format!("{}:c:", self.own.name)));
        let mut cursor = 0_u64;
        loop {
            let mut pipeline = redis::pipe();
            pipeline.cmd("SCAN").arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(READ_KEYS);
            let ((next, keys),): ((u64, Vec<String>),) = self.ask(&pipeline).await?;
            if !keys.is_empty() {
                let mut pipeline = redis::pipe();
                pipeline.cmd("MGET").arg(&keys);
                let (values,): (Vec<Option<Vec<u8>>>,) = self.ask(&pipeline).await?;
                values.iter().flatten().filter_map(|value| value.get(VERSION_LEN..)).for_each(show);
            }
            cursor = next;
            if cursor == 0 {
                return Ok(Reply::AllRead);
            }
        }
    }

    async fn follow(&self, from: &[(MemberId, Position)]) -> Result<Reply, EngineError> {
        if from.is_empty() {
            tokio::time::sleep(FOLLOW_FOR / 5).await;
            return Ok(Reply::Entries(Vec::new()));
        }
        let mut pipeline = redis::pipe();
        let block = u64::try_from(FOLLOW_FOR.as_millis()).unwrap_or(0);
        let command = pipeline.cmd("XREAD").arg("COUNT").arg(READ_ENTRIES).arg("BLOCK").arg(block).arg("STREAMS");
        from.iter().for_each(|(member, _)| {
            command.arg(self.log_of(*member));
        });
        from.iter().for_each(|(_, at)| {
            command.arg(id(*at));
        });
        type Log = (String, Vec<(String, Vec<(String, Vec<u8>)>)>);
        let (logs,): (Option<Vec<Log>>,) = self.query(&self.follows, &pipeline).await?;
        let mut found = Vec::new();
        for (key, entries) in logs.unwrap_or_default() {
            let Some((member, _)) = from.iter().find(|(member, _)| self.log_of(*member) == key) else { continue };
            let entries: Option<Vec<Entry>> = entries
                .into_iter()
                .map(|(id, fields)| Entry::from_bytes(position(&id)?, &fields.into_iter().next()?.1))
                .collect();
            let engine = self.follows.borrow().as_ref().map_or_else(String::new, |connected| connected.engine.clone());
            found.push((*member, entries.ok_or(EngineError::Foreign { engine, key })?));
        }
        Ok(Reply::Entries(found))
    }

    async fn append(&self, entry: &Entry) -> Result<Reply, EngineError> {
        let mut changes = redis::pipe();
        let newest = changes::of_entry(entry, self.own.longest);
        let store_ms = self.own.store_ms();
        let command = changes.cmd("EVAL").arg(PUT_NEWER).arg(newest.len());
        for contact in newest.keys() {
            command.arg(format!("{}:c:{}:{contact:016x}", self.own.name, self.own.member.get()));
        }
        for Kept { version, until_ms, record } in newest.values() {
            let value = [format!("{:016x}", version.to_bits()).as_bytes(), record].concat();
            command.arg(value).arg(until_ms.saturating_sub(store_ms).max(1));
        }
        command.ignore();
        changes.cmd("SADD").arg(format!("{}:members", self.own.name)).arg(self.own.member.get()).ignore();
        let (log, at) = (self.log_of(self.own.member), id(entry.position));
        let append = changes.cmd("EVAL").arg(APPEND).arg(1).arg(&log).arg(id(entry.after)).arg(&at);
        append.arg(LOG_ENTRIES).arg(entry.to_bytes());
        let (end,): (String,) = self.ask(&changes).await?;
        if end != at {
            return Err(self.failed(self.own.ends_elsewhere(position(&end).unwrap_or_default(), entry.after)));
        }
        self.wait_for_replicas().await?;
        Ok(Reply::Appended(entry.position))
    }

    /// Waits until as many replicas as are promised have all that was written over this connection.
    async fn wait_for_replicas(&self) -> Result<(), EngineError> {
        if self.own.replicas == 0 {
            return Ok(());
        }
        let mut pipeline = redis::pipe();
        // What counts is what was written over this connection, which may be a new one.
        pipeline.cmd("SADD").arg(format!("{}:members", self.own.name)).arg(self.own.member.get()).ignore();
        let within = u64::try_from((PATIENCE / 2).as_millis()).unwrap_or(0);
        pipeline.cmd("WAIT").arg(self.own.replicas).arg(within);
        let (have,): (u64,) = self.ask(&pipeline).await?;
        if have >= self.own.replicas.into() {
            return Ok(());
        }
        Err(self.failed(format!(
            "{have} replicas have what was written, and cluster.replicas is {}; start more, or lower it",
            self.own.replicas
        )))
    }

    fn failed(&self, why: String) -> EngineError {
        let engine = self.commands.borrow().as_ref().map_or_else(String::new, |connected| connected.engine.clone());
        EngineError::Failed { engine, why }
    }

    async fn beat(&self) -> Result<Reply, EngineError> {
        let (name, own) = (&self.own.name, self.own.member.get());
        let members = format!("{name}:members");
        let mut pipeline = redis::pipe();
        pipeline.cmd("SADD").arg(&members).arg(own).ignore();
        pipeline.cmd("SMEMBERS").arg(&members);
        let (numbers,): (Vec<u16>,) = self.ask(&pipeline).await?;
        let members: Vec<MemberId> = numbers.into_iter().filter_map(MemberId::new).collect();
        let key = |member: u16| format!("{name}:beat:{member}");
        let mut pipeline = redis::pipe();
        pipeline.cmd("MGET").arg(members.iter().map(|member| key(member.get())).collect::<Vec<_>>());
        let beat = self.own.next_beat();
        let value = format!("{} {} {} {}", beat, self.own.incarnation, self.own.address, self.own.key);
        let lasts = u64::try_from(BEAT_LASTS.as_millis()).unwrap_or(0);
        pipeline.cmd("SET").arg(key(own)).arg(value).arg("PX").arg(lasts).ignore();
        let (beats,): (Vec<Option<String>>,) = self.ask(&pipeline).await?;
        let alive = |(member, beat): (MemberId, Option<String>)| {
            let beat = beat?;
            let mut words = beat.split(' ');
            let (beat, incarnation) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            let address = words.next()?.parse().ok()?;
            Some(Alive { member, incarnation, beat, address, key: words.next()?.to_owned() })
        };
        Ok(Reply::Beat(members.into_iter().zip(beats).filter_map(alive).collect()))
    }
}

impl Engine for Redis {
    async fn carry_out(&self, request: &Request, show: &dyn Fn(&[u8])) -> Result<Reply, EngineError> {
        match request {
            Request::Ends => self.ends().await,
            Request::ReadAll => self.read_all(show).await,
            Request::Follow(from) => self.follow(from).await,
            Request::Append(entry) => self.append(entry).await,
            Request::Beat => self.beat().await,
        }
    }
}

/// Connects to an engine that can be written to.
async fn connect(address: &EngineAddress) -> Result<Connected, String> {
    let said = |error: redis::RedisError| error.to_string();
    let client = Client::open(info(address)?).map_err(said)?;
    let config =
        AsyncConnectionConfig::new().set_connection_timeout(Some(PATIENCE)).set_response_timeout(Some(PATIENCE));
    let mut connection = client.get_multiplexed_async_connection_with_config(&config).await.map_err(said)?;
    let role: Vec<Value> = redis::cmd("ROLE").query_async(&mut connection).await.map_err(said)?;
    let role: String = role.into_iter().next().and_then(|role| redis::from_redis_value(role).ok()).unwrap_or_default();
    if role != "master" {
        return Err(format!("is a {role}, not the one to be written to"));
    }
    Ok(Connected { connection, engine: address.authority.clone() })
}

fn info(address: &EngineAddress) -> Result<ConnectionInfo, String> {
    let password = match &address.password {
        Some((user, password)) => format!("{}:{password}@", user.as_deref().unwrap_or_default()),
        None => String::new(),
    };
    let url = format!("redis://{password}{}/{}", address.authority, address.database);
    url.parse().map_err(|error: redis::RedisError| error.to_string())
}

/// A position as an entry's id.
fn id(position: Position) -> String {
    format!("{}-{}", position.incarnation, position.number)
}

/// An entry's id as a position.
fn position(id: &str) -> Option<Position> {
    let (incarnation, number) = id.split_once('-')?;
    Some(Position { incarnation: incarnation.parse().ok()?, number: number.parse().ok()? })
}

/// A text that a pattern finds as it is.
fn escape(text: &str) -> String {
    text.chars().flat_map(|c| if "*?[]\\".contains(c) { vec!['\\', c] } else { vec![c] }).collect()
}
