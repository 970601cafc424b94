//! Disk interface of the journal, so that tests can simulate a disk.

use std::io;

/// A folder of files. Threads share it by `clone`.
///
/// Appended data is durable after [`DiskFile::sync`]; created, renamed and removed names are durable after
/// [`Disk::sync_folder`]. Until then a loss of power may undo any part of it, in any order.
pub trait Disk: Clone + Send + 'static {
    /// A file open for writing.
    type File: DiskFile;

    /// Returns the names of all files.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Reads a file from its beginning, replacing the contents of `into`.
    fn read(&self, name: &str, at_most: u64, into: &mut Vec<u8>) -> io::Result<()>;

    /// Returns the length of a file in bytes.
    fn len(&self, name: &str) -> io::Result<u64>;

    /// Creates a file; fails with `AlreadyExists` if the name is taken.
    fn create(&self, name: &str) -> io::Result<Self::File>;

    /// Truncates a file without syncing it.
    fn truncate(&self, name: &str, len: u64) -> io::Result<()>;

    /// Renames a file.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes all created, renamed and removed names durable.
    fn sync_folder(&self) -> io::Result<()>;

    /// Returns the path of a file, for messages.
    fn path_of(&self, name: &str) -> String;
}

/// An append-only file of the journal.
pub trait DiskFile: Send + 'static {
    /// Appends bytes. After an error, any part of them may be in the file.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes appended bytes durable. After an error it is unknown what is durable, and a second attempt proves
    /// nothing: the system reports an error once and may discard the data.
    fn sync(&mut self) -> io::Result<()>;
}

/// A disk operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// [`Disk::list`].
    List,
    /// [`Disk::read`].
    Read,
    /// [`Disk::len`].
    Len,
    /// [`Disk::create`].
    Create,
    /// [`DiskFile::append`].
    Append,
    /// [`DiskFile::sync`].
    Sync,
    /// [`Disk::truncate`].
    Truncate,
    /// [`Disk::rename`].
    Rename,
    /// [`Disk::remove`].
    Remove,
    /// [`Disk::sync_folder`].
    SyncFolder,
}

impl Operation {
    /// Returns the operation as used in messages: "cannot … the file".
    pub(crate) const fn verb(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Read => "read",
            Self::Len => "look at",
            Self::Create => "make",
            Self::Append => "write",
            Self::Sync | Self::SyncFolder => "sync",
            Self::Truncate => "cut",
            Self::Rename => "rename",
            Self::Remove => "remove",
        }
    }
}
