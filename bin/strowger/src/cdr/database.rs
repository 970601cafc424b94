//! Database rows of ended calls.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use strowger_calls::CallRecord;
use strowger_control::protocol;
use strowger_net::Clock;
use strowger_sql::{Database, DatabaseUrl, Dialect, SqlError, Value};

use super::line::line_of;
use crate::database_failure::DatabaseFailure;

/// Maximum number of records waiting for the thread, and for the database.
const QUEUE: usize = 16_384;
const WAITING: usize = 65_536;
/// Maximum number of rows per statement.
const AT_ONCE: usize = 500;
/// Time to collect records, and delay before a retry after a failure.
const GATHERED_FOR: Duration = Duration::from_millis(200);
const RETRY_AFTER: Duration = Duration::from_secs(1);

const COLUMNS: [&str; 16] = [
    "id",
    "started",
    "answered",
    "ended",
    "setup_s",
    "talk_s",
    "reason",
    "status",
    "caller",
    "callee",
    "call_id",
    "source",
    "target",
    "source_trunk",
    "target_trunk",
    "target_uri",
];
/// Columns that are timestamps.
const TIMES: [&str; 3] = ["started", "answered", "ended"];

/// Maximum time to write waiting records at shutdown.
const STOP_LIMIT: Duration = Duration::from_secs(2);

/// Handle of the writer. Dropping it writes waiting records for at most [`STOP_LIMIT`].
pub(crate) struct CallsDatabase {
    records: Option<SyncSender<Arc<CallRecord>>>,
    shared: Arc<Shared>,
    databases: Vec<String>,
    /// Disconnects when the thread ends.
    ended: Mutex<Receiver<()>>,
    is_detached: bool,
}

/// State shared by both sides.
#[derive(Default)]
struct Shared {
    lost: AtomicU64,
    is_stopping: AtomicBool,
    trouble: DatabaseFailure,
}

impl CallsDatabase {
    pub(super) fn start(urls: Vec<DatabaseUrl>, clock: Clock) -> io::Result<Self> {
        let (records, received) = mpsc::sync_channel(QUEUE);
        let shared = Arc::new(Shared::default());
        let databases = urls.iter().map(ToString::to_string).collect();
        let run = format!("{:x}", clock.pair().real.0);
        let writer = Writer {
            urls,
            run,
            number: 0,
            clock,
            waiting: VecDeque::new(),
            connection: None,
            shared: Arc::clone(&shared),
        };
        let (end, ended) = mpsc::channel();
        thread::Builder::new().name("cdr-database".to_owned()).spawn(move || {
            writer.run(&received);
            drop(end);
        })?;
        Ok(Self { records: Some(records), shared, databases, ended: Mutex::new(ended), is_detached: false })
    }

    /// Queues a record. Never blocks.
    pub(super) fn write(&self, record: Arc<CallRecord>) {
        if self.records.as_ref().is_some_and(|records| records.try_send(record).is_err()) {
            self.shared.lose(1);
        }
    }

    pub(super) fn status(&self) -> protocol::Database {
        self.shared.trouble.status(self.databases.clone())
    }

    pub(super) fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }

    /// Lets the thread write the waiting records and end, without waiting for it.
    pub(super) fn detach(mut self) {
        self.shared.is_stopping.store(true, Ordering::Relaxed);
        self.records = None;
        self.is_detached = true;
    }
}

impl Drop for CallsDatabase {
    fn drop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::Relaxed);
        self.records = None;
        if self.is_detached {
            return;
        }
        let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        if ended.recv_timeout(STOP_LIMIT) == Err(RecvTimeoutError::Timeout) {
            tracing::error!("the call record database does not answer: pending call records are not written");
        }
    }
}

impl Shared {
    fn lose(&self, records: u64) {
        let before = self.lost.fetch_add(records, Ordering::Relaxed);
        // Logs the loss often enough to be seen, without flooding the log.
        if before.wrapping_add(records).ilog2() != before.max(1).ilog2() || before == 0 {
            tracing::error!("{} call records could not be written to their database", before.wrapping_add(records));
        }
    }
}

/// State of the thread.
struct Writer {
    urls: Vec<DatabaseUrl>,
    /// Id that distinguishes rows of this process from others.
    run: String,
    number: u64,
    clock: Clock,
    waiting: VecDeque<[Value; COLUMNS.len()]>,
    /// Connection; `None` after a failed attempt.
    connection: Option<Database>,
    shared: Arc<Shared>,
}

impl Writer {
    fn run(mut self, records: &Receiver<Arc<CallRecord>>) {
        // Reports an unusable database at the start instead of at the first call.
        self.flush();
        loop {
            match records.recv_timeout(if self.connection.is_none() { RETRY_AFTER } else { GATHERED_FOR }) {
                Ok(record) => {
                    self.take(&record);
                    if !self.shared.is_stopping.load(Ordering::Relaxed) {
                        thread::sleep(GATHERED_FOR);
                    }
                    while let Ok(record) = records.try_recv() {
                        self.take(&record);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.flush();
        }
        self.flush();
        if !self.waiting.is_empty() {
            tracing::error!("{} call records were not written to their database", self.waiting.len());
        }
    }

    fn take(&mut self, record: &CallRecord) {
        if self.waiting.len() >= WAITING {
            self.waiting.pop_front();
            self.shared.lose(1);
        }
        self.number += 1;
        let row = row(format!("{}-{}", self.run, self.number), line_of(record, &self.clock.pair()));
        self.waiting.push_back(row);
    }

    fn flush(&mut self) {
        match self.try_flush() {
            Ok(()) => {
                if self.shared.trouble.end().is_some() {
                    tracing::info!("call records are written to their database again");
                }
            }
            Err(error) => {
                self.connection = None;
                if self.shared.trouble.begin(&error.to_string()).is_none() {
                    tracing::error!("call records cannot be written to their database: {error}; retrying every second");
                }
            }
        }
    }

    fn try_flush(&mut self) -> Result<(), SqlError> {
        let place = match &mut self.connection {
            Some(place) => place,
            None => self.connection.insert(opened(&self.urls)?),
        };
        while !self.waiting.is_empty() {
            let rows = self.waiting.len().min(AT_ONCE);
            let values: Vec<Value> = self.waiting.iter().take(rows).flatten().cloned().collect();
            place.execute(&insert(place.dialect(), rows), &values)?;
            self.waiting.drain(..rows);
        }
        Ok(())
    }
}

fn opened(urls: &[DatabaseUrl]) -> Result<Database, SqlError> {
    let mut database = Database::connect_to_writable(urls, Database::TIMEOUT)?;
    database.batch(match database.dialect() {
        Dialect::Postgres => include_str!("postgresql.sql"),
        _ => include_str!("mariadb.sql"),
    })?;
    Ok(database)
}

/// Returns a statement that inserts rows unless they exist: it may be unknown whether an earlier one was executed.
fn insert(dialect: Dialect, rows: usize) -> String {
    // Converts text to a time, whatever type the server infers for the parameter.
    let place = |column: &&str| match dialect {
        Dialect::Postgres if TIMES.contains(column) => "CAST(CAST(? AS TEXT) AS TIMESTAMP) AT TIME ZONE 'UTC'",
        _ => "?",
    };
    let row = format!("({})", COLUMNS.iter().map(place).collect::<Vec<_>>().join(", "));
    let (ignore, conflict) = match dialect {
        Dialect::Postgres => ("", " ON CONFLICT DO NOTHING"),
        _ => ("IGNORE ", ""),
    };
    format!(
        "INSERT {ignore}INTO strowger_calls ({}) VALUES {}{conflict}",
        COLUMNS.join(", "),
        vec![row; rows].join(", ")
    )
}

fn row(id: String, line: protocol::EndedCall) -> [Value; COLUMNS.len()] {
    // Databases reject text with a zero byte.
    let text = |text: String| Value::from(text.replace('\0', "\u{fffd}"));
    [
        id.into(),
        time(&line.start),
        line.answer.as_deref().map_or(Value::Null, time),
        time(&line.end),
        line.setup_s.into(),
        line.talk_s.into(),
        line.reason.into(),
        line.status.map(i64::from).into(),
        text(line.caller),
        text(line.callee),
        text(line.call_id),
        text(line.source),
        line.target.map_or(Value::Null, text),
        line.source_trunk.map_or(Value::Null, text),
        line.target_trunk.map_or(Value::Null, text),
        line.target_uri.map_or(Value::Null, text),
    ]
}

/// Converts an RFC 3339 time in UTC to a form that all databases read as UTC.
fn time(rfc3339: &str) -> Value {
    Value::from(rfc3339.trim_end_matches('Z').replace('T', " "))
}
