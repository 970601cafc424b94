//! PostgreSQL.
//!
//! | table | content |
//! |---|---|
//! | `strowger_log` | the members' logs, one row per entry |
//! | `strowger_changes` | the newest change of each contact by each member |
//! | `strowger_members` | heartbeats, with the address where the member takes requests |
//!
//! A change and its entry are written in one transaction. The database's configuration decides whether a commit waits
//! for a standby (`synchronous_standby_names`).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use strowger_members::{Entry, Kind, LiveMember, Position, Reply, Request};
use strowger_registrar::MemberId;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, NoTls, Row, Statement};

use crate::EngineAddress;
use crate::changes;
use crate::context::{
    CUT_EVERY, ENGINE_TIMEOUT, EngineContext, FOLLOW_EVERY, FOLLOW_FOR, LOG_ENTRIES, PAGE_TIMEOUT, READ_CHANGES,
    READ_ENTRIES,
};
use crate::engine::{Engine, EngineError, is_connection_lost};

/// Checks whether the server is read-only or a standby, and whether the tables exist.
const STATE: &str = "SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::bool,
    to_regclass('strowger_members') IS NOT NULL";
/// A heartbeat need not wait for a standby: the member stays visible and serves while there is none.
const ASYNC_COMMIT: &str = "SET synchronous_commit = off";
/// Creates the tables. Members that start at the same time do it one after the other.
const TABLES: &str = "
    BEGIN;
    SELECT pg_advisory_xact_lock(5060);
    CREATE TABLE IF NOT EXISTS strowger_log (
        cluster text, member int, incarnation bigint, number bigint, entry bytea NOT NULL,
        PRIMARY KEY (cluster, member, incarnation, number));
    CREATE TABLE IF NOT EXISTS strowger_changes (
        cluster text, member int, contact bigint, version bigint NOT NULL, until_ms bigint NOT NULL,
        change bytea NOT NULL,
        PRIMARY KEY (cluster, member, contact));
    CREATE TABLE IF NOT EXISTS strowger_members (
        cluster text, member int, incarnation bigint NOT NULL, beat bigint NOT NULL, address text NOT NULL,
        key text NOT NULL,
        PRIMARY KEY (cluster, member));
    COMMIT";
const ENDS: &str = "
    SELECT DISTINCT ON (member) member, incarnation, number FROM strowger_log WHERE cluster = $1
    ORDER BY member, incarnation DESC, number DESC";
/// Opens a cursor that scans the table once. Pages by key would be sorted again each time until the planner has
/// statistics.
const OPEN: &str = "
    DECLARE strowger_state NO SCROLL CURSOR FOR
    SELECT change FROM strowger_changes WHERE cluster = $1 AND until_ms > $2";
const FOLLOW: &str = "
    SELECT entry.member, entry.incarnation, entry.number, entry.entry
    FROM unnest($2::int[], $3::bigint[], $4::bigint[]) AS read(member, incarnation, number)
    CROSS JOIN LATERAL (
        SELECT * FROM strowger_log AS log
        WHERE log.cluster = $1 AND log.member = read.member
            AND (log.incarnation, log.number) > (read.incarnation, read.number)
        ORDER BY log.incarnation, log.number LIMIT $5) AS entry";
const PUT: &str = "
    INSERT INTO strowger_changes
    SELECT $1, $2, * FROM unnest($3::bigint[], $4::bigint[], $5::bigint[], $6::bytea[])
    ON CONFLICT (cluster, member, contact)
    DO UPDATE SET version = EXCLUDED.version, until_ms = EXCLUDED.until_ms, change = EXCLUDED.change
    WHERE strowger_changes.version <= EXCLUDED.version";
const APPEND: &str = "INSERT INTO strowger_log VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING";
const LAST: &str = "
    SELECT incarnation, number FROM strowger_log WHERE cluster = $1 AND member = $2
    ORDER BY incarnation DESC, number DESC LIMIT 1";
const CUT: &str = "
    DELETE FROM strowger_log WHERE cluster = $1 AND member = $2 AND (incarnation, number) < ($3, $4)";
const FORGET: &str = "DELETE FROM strowger_changes WHERE cluster = $1 AND member = $2 AND until_ms <= $3";
const HEARTBEAT: &str = "
    INSERT INTO strowger_members VALUES ($1, $2, $3, $4, $5, $6)
    ON CONFLICT (cluster, member) DO UPDATE
    SET incarnation = EXCLUDED.incarnation, beat = EXCLUDED.beat, address = EXCLUDED.address, key = EXCLUDED.key";
const ALIVE: &str = "SELECT member, incarnation, beat, address, key FROM strowger_members WHERE cluster = $1";

/// A connection, if established, and its epoch.
type ConnectionSlot = RefCell<Option<(u64, Rc<Connection>)>>;

/// A connection with its prepared statements.
struct Connection {
    client: Client,
    follow: Statement,
    last: Statement,
    put: Statement,
    append: Statement,
}

impl Connection {
    async fn prepare(client: Client) -> Result<Self, tokio_postgres::Error> {
        let (follow, last, put, append) = tokio::try_join!(
            client.prepare(FOLLOW),
            client.prepare(LAST),
            client.prepare(PUT),
            client.prepare(APPEND)
        )?;
        Ok(Self { client, follow, last, put, append })
    }
}

/// A PostgreSQL engine: one of several servers that replace each other.
pub(crate) struct Postgres {
    own: EngineContext,
    /// Connections for following logs, for transactions, for the whole state, and for everything else.
    follows: ConnectionSlot,
    appends: ConnectionSlot,
    reads: ConnectionSlot,
    commands: ConnectionSlot,
}

impl Postgres {
    pub(crate) fn new(own: EngineContext) -> Self {
        Self {
            own,
            follows: RefCell::new(None),
            appends: RefCell::new(None),
            reads: RefCell::new(None),
            commands: RefCell::new(None),
        }
    }

    const fn slot_for(&self, request: &Request) -> &ConnectionSlot {
        match request {
            Request::Follow(_) => &self.follows,
            Request::Append(_) => &self.appends,
            Request::ReadAll => &self.reads,
            Request::Ends | Request::Heartbeat => &self.commands,
        }
    }

    async fn connection(&self, slot: &ConnectionSlot) -> Result<(u64, Rc<Connection>), EngineError> {
        let epoch = self.own.epoch();
        let is_good = |(made, connected): &&(u64, Rc<Connection>)| *made == epoch && !connected.client.is_closed();
        if let Some(connected) = slot.borrow().as_ref().filter(is_good) {
            return Ok(connected.clone());
        }
        let client = connect_to_one(&self.own.engines).await?;
        let unreachable = |error: tokio_postgres::Error| EngineError::Unreachable(describe(&error));
        if !core::ptr::eq(slot, &self.appends) {
            client.batch_execute(ASYNC_COMMIT).await.map_err(unreachable)?;
        }
        let connected = (epoch, Rc::new(Connection::prepare(client).await.map_err(unreachable)?));
        *slot.borrow_mut() = Some(connected.clone());
        Ok(connected)
    }

    async fn ends(&self, client: &Client) -> Result<Reply, tokio_postgres::Error> {
        let rows = client.query(ENDS, &[&self.own.name]).await?;
        Ok(Reply::Ends(rows.iter().filter_map(|row| Some((member(row)?, position(row, 1)))).collect()))
    }

    async fn read_all(&self, client: &Client, show: &dyn Fn(&[u8])) -> Result<Reply, tokio_postgres::Error> {
        client.batch_execute("BEGIN READ ONLY").await?;
        client.execute(OPEN, &[&self.own.name, &signed(self.own.store_ms())]).await?;
        let next = client.prepare(&format!("FETCH {READ_CHANGES} FROM strowger_state")).await?;
        loop {
            let Ok(rows) = tokio::time::timeout(PAGE_TIMEOUT, client.query(&next, &[])).await else {
                *self.reads.borrow_mut() = None;
                return Ok(Reply::Failed { request: Kind::ReadAll, why: "the database stopped answering".to_owned() });
            };
            let rows = rows?;
            rows.iter().for_each(|row| show(row.get(0)));
            if rows.is_empty() {
                client.batch_execute("COMMIT").await?;
                return Ok(Reply::AllRead);
            }
        }
    }

    async fn follow(
        &self,
        Connection { client, follow, .. }: &Connection,
        from: &[(MemberId, Position)],
    ) -> Result<Reply, tokio_postgres::Error> {
        let members: Vec<i32> = from.iter().map(|(member, _)| member.get().into()).collect();
        let incarnations: Vec<i64> = from.iter().map(|(_, at)| signed(at.incarnation)).collect();
        let numbers: Vec<i64> = from.iter().map(|(_, at)| signed(at.number)).collect();
        let end = tokio::time::Instant::now() + FOLLOW_FOR;
        let read: [&(dyn ToSql + Sync); 5] =
            [&self.own.name, &members, &incarnations, &numbers, &i64::from(READ_ENTRIES)];
        loop {
            let rows = client.query(follow, &read).await?;
            if !rows.is_empty() || tokio::time::Instant::now() >= end {
                let mut found: BTreeMap<MemberId, Vec<Entry>> = BTreeMap::new();
                for row in &rows {
                    let entry = Entry::from_bytes(position(row, 1), row.get(3));
                    if let (Some(member), Some(entry)) = (member(row), entry) {
                        found.entry(member).or_default().push(entry);
                    }
                }
                return Ok(Reply::Entries(found.into_iter().collect()));
            }
            tokio::time::sleep(FOLLOW_EVERY).await;
        }
    }

    /// Appends an entry in two round trips: first where the log ends, then the rest. Pipelined statements are
    /// executed in order, and none after a failure.
    async fn append(
        &self,
        connected: &Connection,
        entry: &Entry,
    ) -> Result<Result<Reply, String>, tokio_postgres::Error> {
        let Connection { client, last, put, append, .. } = connected;
        let newest = changes::of_entry(entry, self.own.max_lifetime);
        let contacts: Vec<i64> = newest.keys().map(|contact| contact.cast_signed()).collect();
        let versions: Vec<i64> = newest.values().map(|kept| kept.version.to_bits().cast_signed()).collect();
        let until: Vec<i64> = newest.values().map(|kept| signed(kept.until_ms)).collect();
        let changes: Vec<&[u8]> = newest.values().map(|kept| &kept.record[..]).collect();
        let (own, at) = (i32::from(self.own.member.get()), entry.position);
        let (incarnation, number) = (signed(at.incarnation), signed(at.number));
        let of_member: [&(dyn ToSql + Sync); 2] = [&self.own.name, &own];
        let ((), last) = tokio::try_join!(biased; client.batch_execute("BEGIN"), client.query_opt(last, &of_member))?;
        let end = last.map_or(Position::BEGIN, |last| position(&last, 0));
        if end != entry.after && end != at {
            client.batch_execute("ROLLBACK").await?;
            return Ok(Err(self.own.log_mismatch(end, entry.after)));
        }
        let entry = entry.to_bytes();
        let changes: [&(dyn ToSql + Sync); 6] = [&self.own.name, &own, &contacts, &versions, &until, &changes];
        let entry: [&(dyn ToSql + Sync); 5] = [&self.own.name, &own, &incarnation, &number, &entry];
        tokio::try_join!(
            biased;
            client.execute(put, &changes),
            client.execute(append, &entry),
            client.batch_execute("COMMIT")
        )?;
        if at.number % CUT_EVERY == 1 {
            let oldest = signed(at.number.saturating_sub(LOG_ENTRIES.into()));
            client.execute(CUT, &[&self.own.name, &own, &incarnation, &oldest]).await?;
            let store_ms = signed(self.own.store_ms());
            client.execute(FORGET, &[&self.own.name, &own, &store_ms]).await?;
        }
        Ok(Ok(Reply::Appended(at)))
    }

    async fn write_heartbeat(&self, client: &Client) -> Result<Reply, tokio_postgres::Error> {
        let rows = client.query(ALIVE, &[&self.own.name]).await?;
        let beat = self.own.next_heartbeat();
        let (own, address) = (i32::from(self.own.member.get()), self.own.address.to_string());
        let own: [&(dyn ToSql + Sync); 6] =
            [&self.own.name, &own, &signed(self.own.incarnation), &signed(beat), &address, &self.own.key];
        client.execute(HEARTBEAT, &own).await?;
        let alive = |row: &Row| {
            let (incarnation, beat): (i64, i64) = (row.get(1), row.get(2));
            let (address, key): (&str, &str) = (row.get(3), row.get(4));
            let (incarnation, beat) = (incarnation.cast_unsigned(), beat.cast_unsigned());
            Some(LiveMember {
                member: member(row)?,
                incarnation,
                heartbeat: beat,
                address: address.parse().ok()?,
                key: key.to_owned(),
            })
        };
        Ok(Reply::Heartbeats(rows.iter().filter_map(alive).collect()))
    }

    async fn execute_on(
        &self,
        connected: &Connection,
        request: &Request,
        show: &dyn Fn(&[u8]),
    ) -> Result<Reply, EngineError> {
        let client = &connected.client;
        let reply = match request {
            Request::Ends => self.ends(client).await,
            Request::ReadAll => self.read_all(client, show).await,
            Request::Follow(from) => self.follow(connected, from).await,
            Request::Heartbeat => self.write_heartbeat(client).await,
            Request::Append(entry) => match self.append(connected, entry).await {
                Ok(Ok(reply)) => Ok(reply),
                Ok(Err(why)) => return Err(EngineError::Failed { engine: self.own.engines(), why }),
                Err(error) => Err(error),
            },
        };
        reply.map_err(|error| EngineError::Failed { engine: self.own.engines(), why: describe(&error) })
    }
}

impl Engine for Postgres {
    async fn execute(&self, request: &Request, show: &dyn Fn(&[u8])) -> Result<Reply, EngineError> {
        let (epoch, connected) = self.connection(self.slot_for(request)).await?;
        // Reading the whole state has no limit as a whole; each page has its own timeout.
        let patience = if matches!(request, Request::ReadAll) { Duration::MAX } else { ENGINE_TIMEOUT };
        let reply =
            tokio::time::timeout(patience, self.execute_on(&connected, request, show)).await.unwrap_or_else(|_| {
                Err(EngineError::Failed { engine: self.own.engines(), why: "it does not answer".to_owned() })
            });
        if is_connection_lost(&reply) {
            self.own.invalidate(epoch);
        }
        reply
    }
}

/// Connects to the first writable engine.
pub(crate) async fn connect_to_one(engines: &[EngineAddress]) -> Result<Client, EngineError> {
    let mut why = Vec::new();
    for engine in engines {
        // A hung server accepts connections but does not answer.
        let connecting = tokio::time::timeout(ENGINE_TIMEOUT, connect(engine)).await;
        match connecting.unwrap_or_else(|_| Err("it does not answer".to_owned())) {
            Ok(client) => return Ok(client),
            Err(error) => why.push(format!("{}: {error}", engine.authority)),
        }
    }
    Err(EngineError::Unreachable(why.join("; ")))
}

/// Connects to an engine if it is writable.
async fn connect(engine: &EngineAddress) -> Result<Client, String> {
    let connecting = config(engine).connect(NoTls).await;
    let (client, connection) = connecting.map_err(|error| describe(&error))?;
    tokio::task::spawn_local(async move { drop(connection.await) });
    let state = client.query_one(STATE, &[]).await.map_err(|error| describe(&error))?;
    let (is_replica, has_tables): (bool, bool) = (state.get(0), state.get(1));
    if is_replica {
        return Err("it is a read-only standby".to_owned());
    }
    if !has_tables {
        client.batch_execute(TABLES).await.map_err(|error| describe(&error))?;
    }
    Ok(client)
}

fn config(engine: &EngineAddress) -> Config {
    let mut config = Config::new();
    let (host, port) = engine.authority.rsplit_once(':').unwrap_or((&engine.authority, "5432"));
    config
        .connect_timeout(ENGINE_TIMEOUT)
        .application_name("strowger")
        .host(host.trim_matches(['[', ']']))
        .port(port.parse().unwrap_or(5_432))
        .dbname(&engine.database);
    if let Some((user, password)) = &engine.password {
        config.password(password);
        config.user(user.as_deref().unwrap_or("strowger"));
    }
    config
}

fn member(row: &Row) -> Option<MemberId> {
    let number: i32 = row.get(0);
    MemberId::new(u16::try_from(number).ok()?)
}

fn position(row: &Row, column: usize) -> Position {
    let (incarnation, number): (i64, i64) = (row.get(column), row.get(column + 1));
    Position { incarnation: incarnation.cast_unsigned(), number: number.cast_unsigned() }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Describes a database error with its cause.
fn describe(error: &tokio_postgres::Error) -> String {
    match (error.as_db_error(), std::error::Error::source(error)) {
        (Some(error), _) => error.message().to_owned(),
        (None, Some(cause)) => format!("{error}: {cause}"),
        (None, None) => error.to_string(),
    }
}
