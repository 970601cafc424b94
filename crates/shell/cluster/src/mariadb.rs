//! MariaDB and MySQL.
//!
//! The tables are those of PostgreSQL. Each row belongs to one member, and only that member writes it. Members may
//! therefore use different servers that replicate each other: two-way, in a circle or with Galera. No row is written
//! on two servers.

use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Opts, OptsBuilder, Params, Row, TxOpts, Value};
use strowger_members::{Entry, Kind, LiveMember, Position, Reply, Request};
use strowger_registrar::MemberId;
use tokio::sync::{Mutex, MutexGuard};

use crate::EngineAddress;
use crate::changes::{self, StoredChange};
use crate::context::{
    CUT_EVERY, ENGINE_TIMEOUT, EngineContext, FOLLOW_EVERY, FOLLOW_FOR, LOG_ENTRIES, PAGE_TIMEOUT, READ_CHANGES,
    READ_ENTRIES,
};
use crate::engine::{Engine, EngineError, is_connection_lost};

/// Maximum number of changes written by one statement; a power of two.
const WRITE_CHANGES: usize = 512;

const TABLES: [&str; 3] = [
    "CREATE TABLE IF NOT EXISTS strowger_log (
        cluster VARCHAR(64) CHARACTER SET ascii, member INT, incarnation BIGINT UNSIGNED, number BIGINT UNSIGNED,
        entry LONGBLOB NOT NULL, PRIMARY KEY (cluster, member, incarnation, number)) ENGINE = InnoDB",
    "CREATE TABLE IF NOT EXISTS strowger_changes (
        cluster VARCHAR(64) CHARACTER SET ascii, member INT, contact BIGINT UNSIGNED, version BIGINT UNSIGNED NOT NULL,
        until_ms BIGINT UNSIGNED NOT NULL, `change` BLOB NOT NULL, PRIMARY KEY (cluster, member, contact)) ENGINE = InnoDB",
    "CREATE TABLE IF NOT EXISTS strowger_members (
        cluster VARCHAR(64) CHARACTER SET ascii, member INT, incarnation BIGINT UNSIGNED NOT NULL,
        beat BIGINT UNSIGNED NOT NULL, address VARCHAR(64) CHARACTER SET ascii NOT NULL,
        `key` VARCHAR(64) CHARACTER SET ascii NOT NULL, PRIMARY KEY (cluster, member)) ENGINE = InnoDB",
];
/// Checks that the table exists that is created last.
const CHECK_TABLES: &str = "SELECT 1 FROM strowger_members LIMIT 0";
const NO_SUCH_TABLE: u16 = 1_146;
const MEMBERS: &str = "SELECT DISTINCT member FROM strowger_log WHERE cluster = ?";
const LAST: &str = "SELECT member, incarnation, number FROM strowger_log WHERE cluster = ? AND member = ?
    ORDER BY incarnation DESC, number DESC LIMIT 1";
const READ: &str = "SELECT member, contact, `change` FROM strowger_changes
    WHERE cluster = ? AND (member > ? OR (member = ? AND contact > ?)) AND until_ms > ?
    ORDER BY member, contact LIMIT ?";
const FOLLOW: &str = "SELECT member, incarnation, number, entry FROM strowger_log
    WHERE cluster = ? AND member = ? AND (incarnation > ? OR (incarnation = ? AND number > ?))
    ORDER BY incarnation, number LIMIT ?";
const PUT: &str = "INSERT INTO strowger_changes (cluster, member, contact, version, until_ms, `change`) VALUES ";
const ON_DUPLICATE: &str = " ON DUPLICATE KEY UPDATE
    until_ms = IF(version <= VALUES(version), VALUES(until_ms), until_ms),
    `change` = IF(version <= VALUES(version), VALUES(`change`), `change`),
    version = GREATEST(version, VALUES(version))";
const APPEND: &str = "INSERT IGNORE INTO strowger_log VALUES (?, ?, ?, ?, ?)";
const CUT: &str = "DELETE FROM strowger_log
    WHERE cluster = ? AND member = ? AND (incarnation < ? OR (incarnation = ? AND number < ?))";
const FORGET: &str = "DELETE FROM strowger_changes WHERE cluster = ? AND member = ? AND until_ms <= ?";
const HEARTBEAT: &str = "REPLACE INTO strowger_members VALUES (?, ?, ?, ?, ?, ?)";
const ALIVE: &str = "SELECT member, incarnation, beat, address, `key` FROM strowger_members WHERE cluster = ?";

/// A connection, if established.
type ConnectionSlot = Mutex<Option<Connection>>;

/// A connection with its engine and epoch.
struct Connection {
    connection: Conn,
    engine: String,
    epoch: u64,
}

/// A MariaDB engine: one of several servers that replace each other.
pub(crate) struct MariaDb {
    own: EngineContext,
    /// Connections for following logs, for transactions, for the whole state, and for everything else.
    follows: ConnectionSlot,
    appends: ConnectionSlot,
    reads: ConnectionSlot,
    commands: ConnectionSlot,
}

impl MariaDb {
    pub(crate) fn new(own: EngineContext) -> Self {
        Self {
            own,
            follows: Mutex::new(None),
            appends: Mutex::new(None),
            reads: Mutex::new(None),
            commands: Mutex::new(None),
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

    async fn connection<'s>(
        &self,
        slot: &'s ConnectionSlot,
    ) -> Result<MutexGuard<'s, Option<Connection>>, EngineError> {
        let (mut slot, epoch) = (slot.lock().await, self.own.epoch());
        if slot.as_ref().is_some_and(|connected| connected.epoch == epoch) {
            return Ok(slot);
        }
        let (connection, engine) = connect_to_one(&self.own.engines).await?;
        *slot = Some(Connection { connection, engine, epoch });
        Ok(slot)
    }

    async fn ends(&self, connection: &mut Conn) -> mysql_async::Result<Reply> {
        let members: Vec<u16> = connection.exec(MEMBERS, (&self.own.name,)).await?;
        let mut ends = Vec::new();
        for number in members {
            let last: Option<(u16, u64, u64)> = connection.exec_first(LAST, (&self.own.name, number)).await?;
            let end = last.and_then(|(member, incarnation, number)| {
                Some((MemberId::new(member)?, Position { incarnation, number }))
            });
            ends.extend(end);
        }
        Ok(Reply::Ends(ends))
    }

    async fn read_all(&self, connection: &mut Conn, show: &dyn Fn(&[u8])) -> mysql_async::Result<Reply> {
        let store_ms = self.own.store_ms();
        let (mut member, mut contact) = (0_u16, 0_u64);
        loop {
            let from = (&self.own.name, member, member, contact, store_ms, READ_CHANGES);
            let Ok(rows) = tokio::time::timeout(PAGE_TIMEOUT, connection.exec(READ, from)).await else {
                return Ok(Reply::Failed { request: Kind::ReadAll, why: "the database stopped answering".to_owned() });
            };
            let rows: Vec<(u16, u64, Vec<u8>)> = rows?;
            rows.iter().for_each(|(_, _, change)| show(change));
            match rows.last() {
                Some(last) => (member, contact) = (last.0, last.1),
                None => return Ok(Reply::AllRead),
            }
        }
    }

    async fn follow(&self, connection: &mut Conn, from: &[(MemberId, Position)]) -> mysql_async::Result<Reply> {
        let end = tokio::time::Instant::now() + FOLLOW_FOR;
        loop {
            let mut found = Vec::new();
            for (member, at) in from {
                let from = (&self.own.name, member.get(), at.incarnation, at.incarnation, at.number, READ_ENTRIES);
                let rows: Vec<(u16, u64, u64, Vec<u8>)> = connection.exec(FOLLOW, from).await?;
                let entry = |(_, incarnation, number, bytes): (u16, u64, u64, Vec<u8>)| {
                    Entry::from_bytes(Position { incarnation, number }, &bytes)
                };
                let entries: Vec<_> = rows.into_iter().filter_map(entry).collect();
                if !entries.is_empty() {
                    found.push((*member, entries));
                }
            }
            if !found.is_empty() || tokio::time::Instant::now() >= end {
                return Ok(Reply::Entries(found));
            }
            tokio::time::sleep(FOLLOW_EVERY).await;
        }
    }

    async fn append(&self, connection: &mut Conn, entry: &Entry) -> mysql_async::Result<Result<Reply, String>> {
        let (own, at) = (self.own.member.get(), entry.position);
        let newest: Vec<(u64, StoredChange)> = changes::of_entry(entry, self.own.max_lifetime).into_iter().collect();
        let mut transaction = connection.start_transaction(TxOpts::default()).await?;
        let last: Option<(u16, u64, u64)> = transaction.exec_first(LAST, (&self.own.name, own)).await?;
        let end = last.map_or(Position::BEGIN, |(_, incarnation, number)| Position { incarnation, number });
        if end != entry.after && end != at {
            transaction.rollback().await?;
            return Ok(Err(self.own.log_mismatch(end, entry.after)));
        }
        for changes in power_of_two_chunks(&newest) {
            let rows = vec!["(?, ?, ?, ?, ?, ?)"; changes.len()].join(", ");
            let values = changes.iter().flat_map(|(contact, kept)| {
                let (version, record) = (kept.version.to_bits(), &kept.record[..]);
                let of_contact = [(*contact).into(), version.into(), kept.until_ms.into(), record.into()];
                [Value::from(&self.own.name), own.into()].into_iter().chain(of_contact)
            });
            transaction.exec_drop(format!("{PUT}{rows}{ON_DUPLICATE}"), Params::Positional(values.collect())).await?;
        }
        transaction.exec_drop(APPEND, (&self.own.name, own, at.incarnation, at.number, entry.to_bytes())).await?;
        transaction.commit().await?;
        if at.number % CUT_EVERY == 1 {
            let oldest = at.number.saturating_sub(LOG_ENTRIES.into());
            connection.exec_drop(CUT, (&self.own.name, own, at.incarnation, at.incarnation, oldest)).await?;
            connection.exec_drop(FORGET, (&self.own.name, own, self.own.store_ms())).await?;
        }
        Ok(Ok(Reply::Appended(at)))
    }

    async fn write_heartbeat(&self, connection: &mut Conn) -> mysql_async::Result<Reply> {
        let rows: Vec<(u16, u64, u64, String, String)> = connection.exec(ALIVE, (&self.own.name,)).await?;
        let beat = self.own.next_heartbeat();
        let (own, address) = (self.own.member.get(), self.own.address.to_string());
        connection
            .exec_drop(HEARTBEAT, (&self.own.name, own, self.own.incarnation, beat, address, &self.own.key))
            .await?;
        let alive = |(member, incarnation, beat, address, key): (u16, u64, u64, String, String)| {
            Some(LiveMember {
                member: MemberId::new(member)?,
                incarnation,
                heartbeat: beat,
                address: address.parse().ok()?,
                key,
            })
        };
        Ok(Reply::Heartbeats(rows.into_iter().filter_map(alive).collect()))
    }

    async fn execute_on(
        &self,
        mut slot: MutexGuard<'_, Option<Connection>>,
        request: &Request,
        show: &dyn Fn(&[u8]),
    ) -> Result<Reply, EngineError> {
        let Some(Connection { connection, engine, .. }) = &mut *slot else {
            return Err(EngineError::Unreachable("the connection is gone".to_owned()));
        };
        let reply = match request {
            Request::Ends => self.ends(connection).await,
            Request::ReadAll => self.read_all(connection, show).await,
            Request::Follow(from) => self.follow(connection, from).await,
            Request::Heartbeat => self.write_heartbeat(connection).await,
            Request::Append(entry) => match self.append(connection, entry).await {
                Ok(Ok(reply)) => Ok(reply),
                Ok(Err(why)) => return Err(EngineError::Failed { engine: engine.clone(), why }),
                Err(error) => Err(error),
            },
        };
        reply.map_err(|error| EngineError::Failed { engine: engine.clone(), why: error.to_string() })
    }
}

impl Engine for MariaDb {
    async fn execute(&self, request: &Request, show: &dyn Fn(&[u8])) -> Result<Reply, EngineError> {
        let slot = self.connection(self.slot_for(request)).await?;
        let epoch = slot.as_ref().map_or(0, |connected| connected.epoch);
        // Reading the whole state has no limit as a whole; each page has its own timeout.
        let patience = if matches!(request, Request::ReadAll) { Duration::MAX } else { ENGINE_TIMEOUT };
        let reply = tokio::time::timeout(patience, self.execute_on(slot, request, show)).await.unwrap_or_else(|_| {
            Err(EngineError::Failed { engine: self.own.engines(), why: "it does not answer".to_owned() })
        });
        if is_connection_lost(&reply) {
            self.own.invalidate(epoch);
        }
        reply
    }
}

/// Splits into chunks with power-of-two lengths. This keeps the number of different statements small and the
/// connection keeps them prepared: preparing one takes longer than executing it.
fn power_of_two_chunks<T>(mut rest: &[T]) -> impl Iterator<Item = &[T]> {
    std::iter::from_fn(move || {
        let size = 1 << rest.len().checked_ilog2()?;
        let (part, others) = rest.split_at(size.min(WRITE_CHANGES));
        rest = others;
        Some(part)
    })
}

/// Connects to the first writable engine and returns its name too.
pub(crate) async fn connect_to_one(engines: &[EngineAddress]) -> Result<(Conn, String), EngineError> {
    let mut why = Vec::new();
    for engine in engines {
        // A hung server accepts connections but does not answer.
        let connecting = tokio::time::timeout(ENGINE_TIMEOUT, connect(engine)).await;
        match connecting.unwrap_or_else(|_| Err("it does not answer".to_owned())) {
            Ok(connection) => return Ok((connection, engine.authority.clone())),
            Err(error) => why.push(format!("{}: {error}", engine.authority)),
        }
    }
    Err(EngineError::Unreachable(why.join("; ")))
}

/// Connects to an engine if it is writable.
async fn connect(engine: &EngineAddress) -> Result<Conn, String> {
    let said = |error: mysql_async::Error| error.to_string();
    let (host, port) = engine.authority.rsplit_once(':').unwrap_or((&engine.authority, "3306"));
    let (user, password) = engine.password.clone().unwrap_or_default();
    let database = if engine.database.is_empty() { "strowger" } else { &engine.database };
    let opts = OptsBuilder::default()
        .ip_or_hostname(host.trim_matches(['[', ']']))
        .tcp_port(port.parse().unwrap_or(3_306))
        .user(user)
        .pass(Some(password).filter(|password| !password.is_empty()))
        .db_name(Some(database))
        .prefer_socket(false);
    let mut connection = Conn::new(Opts::from(opts)).await.map_err(said)?;
    let row: Option<Row> = connection.query_first("SELECT @@global.read_only").await.map_err(said)?;
    if row.and_then(|row| row.get::<u8, _>(0)) == Some(1) {
        return Err("it is read-only".to_owned());
    }
    make_tables(&mut connection).await.map_err(said)?;
    Ok(connection)
}

/// Creates missing tables. A Galera node that has lost the others refuses the check.
async fn make_tables(connection: &mut Conn) -> mysql_async::Result<()> {
    match connection.query_drop(CHECK_TABLES).await {
        Err(mysql_async::Error::Server(error)) if error.code == NO_SUCH_TABLE => {}
        looked => return looked,
    }
    for table in TABLES {
        connection.query_drop(table).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_chunked_by_powers_of_two() {
        let sizes = |count: usize| power_of_two_chunks(&vec![(); count]).map(<[()]>::len).collect::<Vec<_>>();
        assert_eq!(sizes(0), [0_usize; 0]);
        assert_eq!(sizes(7), [4, 2, 1]);
        assert_eq!(sizes(1_300), [512, 512, 256, 16, 4]);
        let numbers: Vec<usize> = (0..777).collect();
        assert_eq!(power_of_two_chunks(&numbers).flatten().copied().collect::<Vec<_>>(), numbers);
    }
}
