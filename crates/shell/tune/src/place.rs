//! Places where a value is set: a file of the kernel, a thread, a process.

use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};
use strowger_net::Scheduling;

use crate::host::Host;
use crate::kernel::FileLimit;

/// How the text of a file shows its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// It is the value.
    Plain,
    /// A list of choices with the chosen one in brackets: `always [madvise] never`.
    Choice,
    /// The name of a group before the value: `/autogroup-25 nice 0`.
    Autogroup,
}

/// A process or thread: its number, and when it started, because numbers are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Number of the process.
    pub process: u32,
    /// Number of the thread; that of the process for its first thread.
    pub thread: u32,
    /// Start, in clock ticks since boot.
    pub started: u64,
}

/// Place of a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "place", rename_all = "kebab-case")]
pub enum Place {
    /// A file.
    File {
        /// Its path.
        path: String,
        /// How it shows the value.
        form: Form,
    },
    /// Policy, nice value and slice of a thread.
    Scheduling(Task),
    /// Cores of a thread.
    Cores(Task),
    /// Limit on open files of a process.
    OpenFiles(Task),
}

impl Place {
    /// A file that contains the value and nothing else.
    #[must_use]
    pub fn file(path: impl Into<String>) -> Self {
        Self::File { path: path.into(), form: Form::Plain }
    }

    /// Returns the current value.
    ///
    /// # Errors
    /// If it cannot be read. [`io::ErrorKind::NotFound`] also means that the process has ended.
    pub fn read(&self, host: &Host) -> io::Result<String> {
        match self {
            Self::File { path, form } => form.value(&host.read(path)?).ok_or_else(|| io::ErrorKind::InvalidData.into()),
            Self::Scheduling(task) => {
                task.check(host)?;
                Ok(host.kernel().scheduling(task.thread)?.to_string())
            }
            Self::Cores(task) => {
                task.check(host)?;
                Ok(host.kernel().cores(task.thread)?.to_string())
            }
            Self::OpenFiles(task) => {
                task.check(host)?;
                Ok(write_limit(host.kernel().file_limit(task.process)?))
            }
        }
    }

    /// Sets the value.
    ///
    /// # Errors
    /// If the kernel refuses, or the text is no value of this place.
    pub fn write(&self, host: &Host, value: &str) -> io::Result<()> {
        match self {
            Self::File { path, form } => host.write(path, &form.text(host, &host.read(path)?, value)),
            Self::Scheduling(task) => {
                task.check(host)?;
                let scheduling: Scheduling = value.parse().map_err(invalid)?;
                host.kernel().set_scheduling(task.thread, &scheduling)
            }
            Self::Cores(task) => {
                task.check(host)?;
                host.kernel().set_cores(task.thread, &value.parse().map_err(invalid)?)
            }
            Self::OpenFiles(task) => {
                task.check(host)?;
                host.kernel().set_file_limit(task.process, read_limit(value).ok_or(io::ErrorKind::InvalidInput)?)
            }
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, .. } => f.write_str(path),
            Self::Scheduling(task) => write!(f, "scheduling of {task}"),
            Self::Cores(task) => write!(f, "cores of {task}"),
            Self::OpenFiles(task) => write!(f, "limit on open files of process {}", task.process),
        }
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.process == self.thread {
            return write!(f, "process {}", self.process);
        }
        write!(f, "thread {} of process {}", self.thread, self.process)
    }
}

impl Task {
    /// Returns a running thread.
    #[must_use]
    pub fn find(host: &Host, process: u32, thread: u32) -> Option<Self> {
        Some(Self { process, thread, started: started(host, process, thread)? })
    }

    /// Checks that the thread still runs, and that its number is not of another one.
    fn check(&self, host: &Host) -> io::Result<()> {
        let is_same = started(host, self.process, self.thread) == Some(self.started);
        if is_same { Ok(()) } else { Err(io::Error::new(io::ErrorKind::NotFound, "it has ended")) }
    }
}

/// Position of the start time in `/proc/PID/stat`, counted after the name; see proc(5).
const START_FIELD: usize = 19;

fn started(host: &Host, process: u32, thread: u32) -> Option<u64> {
    let text = host.read(&format!("/proc/{process}/task/{thread}/stat")).ok()?;
    text.rsplit(')').next()?.split_whitespace().nth(START_FIELD)?.parse().ok()
}

impl Form {
    /// Returns the value in a file's text.
    fn value(self, text: &str) -> Option<String> {
        let text = text.trim_end();
        match self {
            Self::Plain => Some(text.to_owned()),
            Self::Choice => Some(text.split_once('[')?.1.split_once(']')?.0.to_owned()),
            // Empty for a process of no session: its group has no nice value.
            Self::Autogroup => Some(text.rsplit_once(' ')?.1.to_owned()),
        }
    }

    /// Returns the text to write for a value. A kernel brings it into form; a plain file has to be written as the
    /// kernel would show it.
    fn text(self, host: &Host, old: &str, value: &str) -> String {
        let end = if old.ends_with('\n') { "\n" } else { "" };
        if host.is_running() {
            return format!("{value}\n");
        }
        match self {
            Self::Plain => format!("{value}{end}"),
            Self::Choice => {
                let mark = |choice: &str| if choice == value { format!("[{choice}]") } else { choice.to_owned() };
                let choices = old.split_whitespace().map(|choice| mark(choice.trim_matches(['[', ']'])));
                format!("{}{end}", choices.collect::<Vec<_>>().join(" "))
            }
            Self::Autogroup => {
                let name = old.split(' ').next().unwrap_or_default();
                format!("{name} nice {value}{end}")
            }
        }
    }
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

fn write_limit(limit: FileLimit) -> String {
    let write = |value: Option<u64>| value.map_or_else(|| "unlimited".to_owned(), |value| value.to_string());
    format!("{}:{}", write(limit.soft), write(limit.hard))
}

fn read_limit(text: &str) -> Option<FileLimit> {
    let read = |text: &str| if text == "unlimited" { Some(None) } else { text.parse().ok().map(Some) };
    let (soft, hard) = text.split_once(':')?;
    Some(FileLimit { soft: read(soft)?, hard: read(hard)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_of_a_file_is_read_and_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let host = Host::below(folder.path());
        let cases = [
            (Form::Plain, "4096\t87380\t6291456\n", "4096\t87380\t6291456", "1\n"),
            (Form::Plain, "212992", "212992", "1"),
            (Form::Choice, "[1] 2 3\n", "1", "[1] 2 3\n"),
            (Form::Choice, "always [madvise] 1\n", "madvise", "always madvise [1]\n"),
            (Form::Autogroup, "/autogroup-25 nice -5\n", "-5", "/autogroup-25 nice 1\n"),
        ];
        for (form, text, value, after) in cases {
            std::fs::write(folder.path().join("f"), text).expect("written");
            let place = Place::File { path: "/f".to_owned(), form };
            assert_eq!(place.read(&host).expect(text), value);
            place.write(&host, "1").expect(text);
            assert_eq!(host.read("/f").expect(text), after);
            place.write(&host, value).expect(text);
            assert_eq!(host.read("/f").expect(text), text);
        }
        let place = Place::File { path: "/f".to_owned(), form: Form::Choice };
        std::fs::write(folder.path().join("f"), "no choice").expect("written");
        assert_eq!(place.read(&host).expect_err("no brackets").kind(), io::ErrorKind::InvalidData);
        let place = Place::File { path: "/f".to_owned(), form: Form::Autogroup };
        std::fs::write(folder.path().join("f"), "").expect("written");
        assert_eq!(place.read(&host).expect_err("no session").kind(), io::ErrorKind::InvalidData);
        assert_eq!(Place::file("/none").write(&host, "1").expect_err("no file").kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn limits_are_written_and_read() {
        for text in ["1024:unlimited", "unlimited:unlimited", "1024:524288"] {
            assert_eq!(write_limit(read_limit(text).expect(text)), text);
        }
        assert_eq!((read_limit("1"), read_limit("a:b")), (None, None));
    }
}
