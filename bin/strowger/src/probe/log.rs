//! The log of packets.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use strowger_timing::{LogFooter, LogHeader, PacketRecord};

use crate::failure::Failure;
use crate::utc;

/// Bytes that wait for the disk. While it is slow, the probe's own bounded buffer fills, and lost events are counted.
const BUFFER: usize = 1 << 20;

/// A log that is being written.
pub(super) struct PacketLog {
    file: BufWriter<File>,
    path: PathBuf,
    line: String,
}

impl PacketLog {
    /// Creates the file with its header.
    pub(super) fn create(path: &Path, program: &str) -> Result<Self, Failure> {
        let file = File::create(path).map_err(|error| refused(path, &error))?;
        let mut log = Self { file: BufWriter::with_capacity(BUFFER, file), path: path.to_owned(), line: String::new() };
        log.append(&header(program).text())?;
        Ok(log)
    }

    /// Writes a packet.
    pub(super) fn write(&mut self, record: &PacketRecord) -> Result<(), Failure> {
        let mut line = std::mem::take(&mut self.line);
        line.clear();
        record.append_to_log(&mut line);
        let written = self.append(&line);
        self.line = line;
        written
    }

    /// Writes the end.
    pub(super) fn finish(mut self, footer: &LogFooter) -> Result<(), Failure> {
        self.append(&footer.text())?;
        self.file.flush().map_err(|error| refused(&self.path, &error))
    }

    fn append(&mut self, text: &str) -> Result<(), Failure> {
        self.file.write_all(text.as_bytes()).map_err(|error| refused(&self.path, &error))
    }
}

fn header(program: &str) -> LogHeader {
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let load = read("/proc/loadavg");
    LogHeader {
        program: program.to_owned(),
        kernel: format!("Linux {} {}", read("/proc/sys/kernel/osrelease").trim(), std::env::consts::ARCH),
        date: utc::rfc3339(now_ms()),
        load: load.split_ascii_whitespace().take(3).collect::<Vec<_>>().join(" "),
        processors: std::thread::available_parallelism().map_or(1, usize::from),
    }
}

/// Returns milliseconds since 1970-01-01 UTC.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn refused(path: &Path, error: &io::Error) -> Failure {
    Failure::No(format!("{}: the log cannot be written: {error}; the measurement ended", path.display()))
}
