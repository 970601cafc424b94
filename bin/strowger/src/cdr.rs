//! Call detail records: one line of JSON per ended call, appended to a file, and one row in a database.
//!
//! A separate thread writes them, so a full or slow disk delays no calls. Records that cannot be written are retried
//! while the queue has room; lost records are counted. `docs/operating/cdr.md` describes the fields.

mod database;
mod line;
mod recent;

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::Errno;
use strowger_calls::CallRecord;
use strowger_control::protocol::{self, EndedCall};
use strowger_net::Clock;
use strowger_sql::DatabaseUrl;

pub(crate) use database::CallsDatabase;
use line::{json, line_of};
use recent::RecentCalls;

/// Maximum number of records waiting for the disk.
const QUEUE: usize = 16_384;
/// Bytes of lines per write.
const BATCH: usize = 64 * 1024;
/// Delay before a retry after a failure.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Time to collect records before a write. Waking the thread for each record would take CPU time from calls.
const GATHERED_FOR: Duration = Duration::from_millis(20);

/// Commands to the thread.
enum CdrCommand {
    Write(Arc<CallRecord>),
    /// Reopens the file under this name, after a reload or a log rotation.
    Reopen(Option<PathBuf>),
}

/// State shared by both sides.
#[derive(Default)]
struct Shared {
    lost: AtomicU64,
    is_stopping: AtomicBool,
    /// A file that was named while the queue was full.
    next: Mutex<Option<Option<PathBuf>>>,
}

/// Handle of the writer. Dropping it writes the waiting records as far as possible without delay.
pub(crate) struct Cdr {
    database: RwLock<Option<CallsDatabase>>,
    recent: Mutex<RecentCalls>,
    clock: Clock,
    orders: Option<SyncSender<CdrCommand>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Cdr {
    /// Starts the thread; without a `path` it writes nothing until it gets one. With `databases`, starts another
    /// thread that writes to the first writable one.
    pub(crate) fn start(path: Option<&Path>, databases: Vec<DatabaseUrl>, clock: Clock) -> io::Result<Self> {
        let database = RwLock::new(start_database(databases, clock)?);
        let (orders, received) = mpsc::sync_channel(QUEUE);
        let shared = Arc::new(Shared::default());
        let writer = Writer::new(path.map(Path::to_owned), clock, Arc::clone(&shared));
        let thread = thread::Builder::new().name("cdr".to_owned()).spawn(move || writer.run(&received))?;
        let recent = Mutex::default();
        Ok(Self { database, recent, clock, orders: Some(orders), shared, thread: Some(thread) })
    }

    /// Starts to write to other databases.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn prepare_database(&self, databases: Vec<DatabaseUrl>) -> io::Result<Option<CallsDatabase>> {
        start_database(databases, self.clock)
    }

    /// Writes to another database from now on; the earlier one still gets what was written before.
    pub(crate) fn set_database(&self, database: Option<CallsDatabase>) {
        let mut place = self.database.write().unwrap_or_else(PoisonError::into_inner);
        let earlier = std::mem::replace(&mut *place, database);
        drop(place);
        if let Some(earlier) = earlier {
            self.shared.lost.fetch_add(earlier.lost(), Ordering::Relaxed);
            earlier.detach();
        }
    }

    fn database(&self) -> RwLockReadGuard<'_, Option<CallsDatabase>> {
        self.database.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues `record` for writing. Never blocks.
    pub(crate) fn write(&self, record: Arc<CallRecord>) {
        self.recent().push(Arc::clone(&record));
        if let Some(database) = &*self.database() {
            database.write(Arc::clone(&record));
        }
        let Some(orders) = &self.orders else { return };
        if orders.try_send(CdrCommand::Write(record)).is_err() {
            let lost = self.shared.lost.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
            // Logs the loss often enough to be seen, without flooding the log.
            if lost.is_power_of_two() {
                tracing::error!("call records arrive faster than they can be written: {lost} were lost");
            }
        }
    }

    /// Returns the latest records, or those of a user: at most `limit`, the most recent first, and whether there are more.
    pub(crate) fn latest(&self, user: Option<&str>, limit: usize) -> (Vec<EndedCall>, bool) {
        let recent = self.recent();
        let found: Vec<_> = recent.iter(user).take(limit.saturating_add(1)).cloned().collect();
        drop(recent);
        let now = self.clock.pair();
        (found.iter().take(limit).map(|record| line_of(record, &now)).collect(), found.len() > limit)
    }

    fn recent(&self) -> MutexGuard<'_, RecentCalls> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reopens the file, so that a renamed one is released.
    pub(crate) fn reopen(&self, path: Option<&Path>) {
        let path = path.map(Path::to_owned);
        let Some(orders) = &self.orders else { return };
        if orders.try_send(CdrCommand::Reopen(path.clone())).is_err() {
            *self.shared.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(path);
        }
    }

    /// Returns the state of the database, if there is one.
    pub(crate) fn database_status(&self) -> Option<protocol::Database> {
        self.database().as_ref().map(CallsDatabase::status)
    }

    /// Returns the number of records lost for the file and the database.
    pub(crate) fn lost(&self) -> u64 {
        let of_database = self.database().as_ref().map_or(0, CallsDatabase::lost);
        self.shared.lost.load(Ordering::Relaxed).wrapping_add(of_database)
    }
}

fn start_database(databases: Vec<DatabaseUrl>, clock: Clock) -> io::Result<Option<CallsDatabase>> {
    if databases.is_empty() { Ok(None) } else { CallsDatabase::start(databases, clock).map(Some) }
}

impl Drop for Cdr {
    fn drop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::Relaxed);
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// State of the thread.
struct Writer {
    path: Option<PathBuf>,
    file: Option<File>,
    clock: Clock,
    /// Whole lines, and how much of them is written.
    lines: Vec<u8>,
    written: usize,
    records: u64,
    is_failing: bool,
    shared: Arc<Shared>,
}

impl Writer {
    fn new(path: Option<PathBuf>, clock: Clock, shared: Arc<Shared>) -> Self {
        Self { path, file: None, clock, lines: Vec::new(), written: 0, records: 0, is_failing: false, shared }
    }

    fn run(mut self, orders: &Receiver<CdrCommand>) {
        // Reports a file that cannot be opened at the start instead of at the first call.
        self.flush();
        loop {
            let order = if self.is_failing {
                match orders.recv_timeout(RETRY_AFTER) {
                    Err(RecvTimeoutError::Timeout) => {
                        self.retry();
                        continue;
                    }
                    order => order.ok(),
                }
            } else {
                orders.recv().ok()
            };
            let Some(order) = order else { break };
            self.on_order(order);
            if !self.shared.is_stopping.load(Ordering::Relaxed) {
                thread::sleep(GATHERED_FOR);
            }
            self.catch_up(orders);
            while !self.has_room() && !self.shared.is_stopping.load(Ordering::Relaxed) {
                thread::sleep(RETRY_AFTER);
                self.retry();
            }
        }
        self.flush();
        if self.records > 0 {
            tracing::error!("{} call records were not written", self.records);
        }
    }

    /// Writes all waiting records as far as possible.
    fn catch_up(&mut self, orders: &Receiver<CdrCommand>) {
        while self.has_room() {
            let Ok(order) = orders.try_recv() else { break };
            self.on_order(order);
            if !self.has_room() {
                self.flush();
            }
        }
        self.flush();
    }

    fn has_room(&self) -> bool {
        self.lines.len() < BATCH
    }

    fn on_order(&mut self, order: CdrCommand) {
        match order {
            CdrCommand::Write(record) if self.path.is_some() => {
                self.lines.extend_from_slice(json(&record, &self.clock.pair()).as_bytes());
                self.records += 1;
            }
            CdrCommand::Write(_) => {}
            CdrCommand::Reopen(path) => {
                // Earlier records belong to the old file.
                self.flush();
                self.forget_file();
                self.path = path;
                self.flush();
            }
        }
    }

    /// Retries with the file that has the name, because the old one may be on a lost disk. If it is the same file, a
    /// partial last line is continued.
    fn retry(&mut self) {
        if let Some(path) = self.shared.next.lock().unwrap_or_else(PoisonError::into_inner).take() {
            self.path = path;
        }
        let inode = |metadata: io::Result<Metadata>| metadata.map(|metadata| (metadata.dev(), metadata.ino())).ok();
        let open = self.file.as_ref().and_then(|file| inode(file.metadata()));
        if open.is_none() || open != self.path.as_ref().and_then(|path| inode(fs::metadata(path))) {
            self.forget_file();
        }
        self.flush();
    }

    fn forget_file(&mut self) {
        self.file = None;
        // A line that the old file has in part is written whole to the new one.
        let done = self.lines.get(..self.written).and_then(|done| done.iter().rposition(|byte| *byte == b'\n'));
        if let Some(end) = done {
            self.lines.drain(..=end);
        }
        self.written = 0;
    }

    fn flush(&mut self) {
        let Some(path) = self.path.clone() else {
            self.lines.clear();
            (self.written, self.records, self.is_failing) = (0, 0, false);
            return;
        };
        match self.try_flush(&path) {
            Ok(()) => {
                if std::mem::take(&mut self.is_failing) {
                    let lost = self.shared.lost.load(Ordering::Relaxed);
                    tracing::info!("call records are written to {} again; {lost} were lost in total", path.display());
                }
                self.lines.clear();
                (self.written, self.records) = (0, 0);
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_failing, true) {
                    let why = explained(&error);
                    tracing::error!(
                        "call records cannot be written to {}: {why}; retrying every second",
                        path.display()
                    );
                }
            }
        }
    }

    fn try_flush(&mut self, path: &Path) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(open(path)?),
        };
        while let Some(rest) = self.lines.get(self.written..).filter(|rest| !rest.is_empty()) {
            match file.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Opens the file. A pipe without a reader, or with a slow one, fails instead of blocking the thread, which the server
/// waits for when it stops.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    OpenOptions::new().append(true).create(true).mode(0o640).custom_flags(flags).open(path)
}

/// Returns why a write failed, in words for pipes too.
fn explained(error: &io::Error) -> String {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NXIO | Errno::PIPE) => "it is a pipe that no program reads; start the reader".to_owned(),
        Some(Errno::AGAIN) => "it is a pipe whose reader is too slow".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::time::Instant;

    use strowger_calls::{Calls, Limits};
    use strowger_foundation::{Flow, ListenerId, TagKey, Timestamp, Transport};
    use strowger_message::Message;
    use strowger_net::{ClockPair, RealNanos};

    fn record(call_id: &str) -> Arc<CallRecord> {
        let mut calls = Calls::new(&TagKey::new([1; 16]), Limits::default());
        let message = |start: &str, method: &str, to: &str| {
            format!(
                "{start}\r\nVia: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK1\r\nFrom: <sip:alice@example.com>;tag=a\r\n\
                 To: <sip:bob@example.com>{to}\r\nCall-ID: {call_id}\r\nCSeq: 1 {method}\r\nContent-Length: 0\r\n\r\n"
            )
        };
        let peer = "[2001:db8::1]:5060".parse().expect("an address");
        let flow = Flow::new(ListenerId(0), Transport::Tcp, peer);
        let invite = message("INVITE sip:bob@example.com SIP/2.0", "INVITE", "");
        let invite = Message::parse(invite.as_bytes()).expect("valid");
        let key = calls.begin(Timestamp::from_millis(1000), &invite, &flow).expect("noted");
        let answer = message("SIP/2.0 200 OK", "INVITE", ";tag=b");
        let answer = Message::parse(answer.as_bytes()).expect("valid");
        let target = "192.0.2.2:5062".parse().expect("an address");
        calls.set_target_trunk(key, Some("pstn"), b"sip:+4930@192.0.2.2;user=phone");
        let target = Flow::new(ListenerId(0), Transport::Udp, target);
        calls.handle_answer(Timestamp::from_millis(4250), key, &answer, &target);
        let bye = message("BYE sip:bob@example.com SIP/2.0", "BYE", ";tag=b");
        calls.handle_bye(Timestamp::from_millis(64_250), &Message::parse(bye.as_bytes()).expect("valid"));
        Arc::new(calls.poll_record().expect("ended"))
    }

    fn lines(path: &Path) -> Vec<serde_json::Value> {
        let text = fs::read_to_string(path).unwrap_or_default();
        assert!(text.is_empty() || text.ends_with('\n'), "{text:?}");
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    fn until(what: &str, mut done: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !done() {
            assert!(Instant::now() < deadline, "not in time: {what}");
            // The other thread and the disk give no signal.
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn lines_are_complete() {
        let now = ClockPair { monotonic: Timestamp::from_millis(65_000), real: RealNanos(1_767_323_045_678_000_000) };
        let expected = "{\"start\":\"2026-01-02T03:03:01.678Z\",\"answer\":\"2026-01-02T03:03:04.928Z\",\
             \"end\":\"2026-01-02T03:04:04.928Z\",\"setup_s\":3.25,\"talk_s\":60.0,\"reason\":\"caller hung up\",\
             \"status\":200,\"caller\":\"sip:alice@example.com\",\"callee\":\"sip:bob@example.com\",\
             \"call_id\":\"c1@192.0.2.1\",\"source\":\"tcp:[2001:db8::1]:5060\",\"target\":\"192.0.2.2:5062\",\
             \"source_trunk\":null,\"target_trunk\":\"pstn\",\"target_uri\":\"sip:+4930@192.0.2.2\"}\n";
        assert_eq!(json(&record("c1@192.0.2.1"), &now), expected);
    }

    #[test]
    fn a_moved_file_is_reopened_on_request() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, moved) = (folder.path().join("cdr.json"), folder.path().join("cdr.json.1"));
        let cdr = Cdr::start(Some(&path), Vec::new(), Clock::start()).expect("a thread");
        cdr.write(record("c1"));
        until("the first line", || lines(&path).len() == 1);
        fs::rename(&path, &moved).expect("moved");
        cdr.write(record("c2"));
        cdr.reopen(Some(&path));
        cdr.write(record("c3"));
        drop(cdr);
        assert_eq!(lines(&moved).iter().map(|line| line["call_id"].clone()).collect::<Vec<_>>(), ["c1", "c2"]);
        assert_eq!(lines(&path)[0]["call_id"], "c3");
    }

    #[test]
    fn failed_writes_are_retried() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("not-yet/cdr.json");
        let cdr = Cdr::start(Some(&path), Vec::new(), Clock::start()).expect("a thread");
        cdr.write(record("c1"));
        cdr.write(record("c2"));
        fs::create_dir(folder.path().join("not-yet")).expect("made");
        until("both lines", || lines(&path).len() == 2);
        assert_eq!(cdr.lost(), 0);
    }

    #[test]
    fn shutdown_does_not_wait_for_a_full_disk() {
        let cdr = Cdr::start(Some(Path::new("/dev/full")), Vec::new(), Clock::start()).expect("a thread");
        // Fills the batch, so that the thread only retries.
        (0..500).for_each(|_| cdr.write(record("c1")));
        let begin = Instant::now();
        drop(cdr);
        assert!(begin.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn a_pipe_without_a_reader_blocks_nothing_and_gets_all_records_once_it_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("cdr.pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, 0o600.into()).expect("a pipe");
        let begin = Instant::now();
        let cdr = Cdr::start(Some(&path), Vec::new(), Clock::start()).expect("a thread");
        cdr.write(record("c0"));
        drop(cdr);
        assert!(begin.elapsed() < Duration::from_secs(10), "the server stops");
        let cdr = Cdr::start(Some(&path), Vec::new(), Clock::start()).expect("a thread");
        cdr.write(record("c1"));
        let reader = path.clone();
        let read = thread::spawn(move || {
            let mut line = String::new();
            io::BufRead::read_line(&mut io::BufReader::new(File::open(reader).expect("a reader")), &mut line)
                .map(|_| line)
        });
        let line = read.join().expect("no panic").expect("a line");
        assert!(line.contains("\"call_id\":\"c1\""), "{line}");
        assert_eq!(cdr.lost(), 0);
    }

    #[test]
    fn without_a_file_nothing_is_written_until_one_is_set() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("cdr.json");
        let cdr = Cdr::start(None, Vec::new(), Clock::start()).expect("a thread");
        cdr.write(record("c1"));
        cdr.reopen(Some(&path));
        cdr.write(record("c2"));
        drop(cdr);
        assert_eq!(lines(&path).len(), 1);
    }

    #[test]
    fn one_turn_writes_all_waiting_records() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("cdr.json");
        let mut writer = Writer::new(Some(path.clone()), Clock::start(), Arc::default());
        let (orders, received) = mpsc::sync_channel(QUEUE);
        for _ in 0..1_000 {
            orders.try_send(CdrCommand::Write(record("c1"))).expect("room");
        }
        writer.catch_up(&received);
        assert_eq!(lines(&path).len(), 1_000, "several times what is written at once");
    }

    #[test]
    fn a_full_disk_makes_no_half_lines() {
        let mut writer = Writer::new(Some("/dev/full".into()), Clock::start(), Arc::default());
        writer.on_order(CdrCommand::Write(record("c1")));
        writer.flush();
        assert!(writer.is_failing && writer.records == 1);
        // A partial write, a full disk, and then a new file.
        writer.written = 10;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("cdr.json");
        writer.path = Some(path.clone());
        writer.retry();
        assert_eq!(lines(&path).len(), 1);
        assert!(!writer.is_failing && writer.lines.is_empty());
    }
}
