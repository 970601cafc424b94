//! Cost of a durable group of records: Strowger's journal, fjall and SQLite side by side. Writes `bench/JOURNAL.md`.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use rusqlite::{Connection, params};
use rustix::time::{ClockId, clock_gettime};
use strowger_bench::register::report::replace;
use strowger_journal::{Folder, Journal, Settings, Stamp};

/// Bytes per record: the full state of an address with one contact.
const RECORD: usize = 160;
/// Number of addresses, written repeatedly in random order.
const ADDRESSES: u64 = 100_000;
/// Records per group, and number of measured groups.
const GROUPS: [(u64, usize); 4] = [(1, 3_000), (10, 3_000), (100, 2_000), (1000, 500)];

#[derive(Debug, Parser)]
#[command(about = "Cost of a durable group of records; a report, not a test")]
struct Arguments {
    /// A folder on the measured disk.
    #[arg(default_value = ".")]
    folder: PathBuf,
    /// File for the report, in addition to standard output.
    #[arg(long)]
    output: Option<PathBuf>,
}

/// Makes a group of records durable.
trait GroupStore {
    /// Returns the name in the table.
    fn name(&self) -> String;
    fn commit(&mut self, group: &[(String, Vec<u8>)]);
}

fn main() {
    let arguments = Arguments::parse();
    let mut report = String::new();
    report.push_str(
        "Each group of records of 160 bytes is written and synced before the next one begins. SQLite: WAL, `synchronous \
         = FULL`, one transaction a group, upsert by address. fjall: one keyspace, one batch a group, \
         `PersistMode::SyncData`. CPU time is that of the whole process, including the library's threads. The three \
         stores alternate, with group sizes as the outer loop; the table has the median of three rounds by rate.\n\n",
    );
    report.push_str(&circumstances(&arguments.folder));
    report.push_str(
        "\n| records in a group | | records/s | CPU µs a record | commit p50 ms | commit p99 ms |\n|---:|---|---:|---:|---:|---:|\n",
    );
    for (size, groups) in GROUPS {
        let mut rows: [Vec<Figures>; 3] = Default::default();
        for _ in 0..3 {
            rows[0].push(measure(&mut StrowgerJournal::new(&arguments.folder), size, groups));
            rows[1].push(measure(&mut Fjall::new(&arguments.folder), size, groups));
            rows[2].push(measure(&mut Sqlite::new(&arguments.folder), size, groups));
        }
        for mut figures in rows {
            figures.sort_by(|one, other| one.rate.total_cmp(&other.rate));
            let Figures { name, rate, cpu_us, p50, p99 } = &figures[1];
            let (p50, p99) = (p50.as_secs_f64() * 1e3, p99.as_secs_f64() * 1e3);
            let _ = writeln!(report, "| {size} | {name} | {rate:.0} | {cpu_us:.2} | {p50:.2} | {p99:.2} |");
        }
    }
    print!("{report}");
    let file = arguments.output.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("JOURNAL.md"));
    replace(&file, "journal", &report).expect("the report can be written");
}

struct Figures {
    name: String,
    rate: f64,
    cpu_us: f64,
    p50: Duration,
    p99: Duration,
}

fn measure(subject: &mut dyn GroupStore, size: u64, groups: usize) -> Figures {
    let mut dice = 0x2545_f491_4f6c_dd1d_u64;
    let mut group: Vec<(String, Vec<u8>)> = (0..size).map(|_| (String::new(), vec![b'x'; RECORD])).collect();
    let mut times = Vec::with_capacity(groups);
    let mut cpu = Duration::ZERO;
    for round in 0..groups + 20 {
        for (aor, record) in &mut group {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            *aor = format!("user{:06}@example.com", dice % ADDRESSES);
            record[..8].copy_from_slice(&dice.to_le_bytes());
        }
        let (cpu_before, before) = (cpu_time(), Instant::now());
        subject.commit(&group);
        let took = before.elapsed();
        if round >= 20 {
            times.push(took);
            cpu += cpu_time() - cpu_before;
        }
    }
    let all: Duration = times.iter().sum();
    let records = size as f64 * groups as f64;
    times.sort_unstable();
    Figures {
        name: subject.name(),
        rate: records / all.as_secs_f64(),
        cpu_us: cpu.as_secs_f64() * 1e6 / records,
        p50: times[times.len() / 2],
        p99: times[times.len() * 99 / 100],
    }
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn temporary(folder: &Path) -> tempfile::TempDir {
    tempfile::Builder::new().prefix(".strowger-bench-").tempdir_in(folder).expect("the folder can be written to")
}

struct StrowgerJournal {
    journal: Journal<Folder>,
    now: u64,
    _folder: tempfile::TempDir,
}

impl StrowgerJournal {
    fn new(folder: &Path) -> Self {
        let temporary = temporary(folder);
        let folder = Folder::open(&temporary.path().join("journal")).expect("the folder can be made");
        let (journal, _) =
            Journal::open(folder, Settings::new([7; 16]), None, |_| Stamp::default()).expect("the journal opens");
        Self { journal, now: 0, _folder: temporary }
    }
}

impl GroupStore for StrowgerJournal {
    fn name(&self) -> String {
        "**journal**".into()
    }

    fn commit(&mut self, group: &[(String, Vec<u8>)]) {
        for (_, record) in group {
            self.journal.push(record).expect("it has room");
        }
        self.now += 1;
        self.journal.commit(Stamp { store_ms: self.now, ..Stamp::default() }).expect("it is committed");
    }
}

struct Fjall {
    database: Database,
    keyspace: Keyspace,
    _folder: tempfile::TempDir,
}

impl Fjall {
    fn new(folder: &Path) -> Self {
        let temporary = temporary(folder);
        let database = Database::builder(temporary.path()).open().expect("it opens");
        let keyspace = database.keyspace("locations", KeyspaceCreateOptions::default).expect("it opens");
        Self { database, keyspace, _folder: temporary }
    }
}

impl GroupStore for Fjall {
    fn name(&self) -> String {
        "fjall 3.1".into()
    }

    fn commit(&mut self, group: &[(String, Vec<u8>)]) {
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        for (aor, record) in group {
            batch.insert(&self.keyspace, aor.as_str(), record.as_slice());
        }
        batch.commit().expect("it is committed");
    }
}

struct Sqlite {
    connection: Connection,
    _folder: tempfile::TempDir,
}

impl Sqlite {
    fn new(folder: &Path) -> Self {
        let temporary = temporary(folder);
        let connection = Connection::open(temporary.path().join("locations.db")).expect("it opens");
        connection.pragma_update(None, "journal_mode", "WAL").expect("it has a WAL");
        connection.pragma_update(None, "synchronous", "FULL").expect("it syncs");
        let table = "CREATE TABLE locations (aor TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID";
        connection.execute(table, []).expect("a table can be made");
        Self { connection, _folder: temporary }
    }
}

impl GroupStore for Sqlite {
    fn name(&self) -> String {
        format!("SQLite {}", rusqlite::version())
    }

    fn commit(&mut self, group: &[(String, Vec<u8>)]) {
        let transaction = self.connection.transaction().expect("it begins");
        let upsert = "INSERT INTO locations VALUES (?1, ?2) ON CONFLICT (aor) DO UPDATE SET record = excluded.record";
        let mut statement = transaction.prepare_cached(upsert).expect("it is SQL");
        for (aor, record) in group {
            statement.execute(params![aor, record]).expect("it is written");
        }
        drop(statement);
        transaction.commit().expect("it is committed");
    }
}

/// Returns the machine, the disk and the versions.
fn circumstances(folder: &Path) -> String {
    let say = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
    };
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = processor.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let disk = say("df", &["--output=fstype,source", &folder.display().to_string()]);
    format!(
        "- Machine: {}, {} cores, a virtual machine shared with other work\n- Disk: {}\n- Linux {}; {}; release build\n\
         - Date: {}\n- Command: `cargo run --release -p strowger-bench --bin journal`\n",
        model.map_or("a processor", |(_, name)| name),
        thread::available_parallelism().map_or(1, usize::from),
        disk.lines().last().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" on "),
        say("uname", &["-r"]),
        say("rustc", &["--version"]),
        say("date", &["-u", "+%Y-%m-%d"]),
    )
}
