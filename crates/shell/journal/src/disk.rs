//! What the journal needs of a disk, so that a simulated one can stand in its place.

use std::io;

/// A folder of files. Threads share it by `clone`.
///
/// What was appended is durable after [`DiskFile::sync`]; what was created, renamed or removed is durable after
/// [`Disk::sync_folder`]. Until then a loss of power may undo it, wholly or in part, in any order.
pub trait Disk: Clone + Send + 'static {
    /// A file that is written.
    type File: DiskFile;

    /// The names of all files.
    fn list(&self) -> io::Result<Vec<String>>;

    /// A file from its beginning, in place of what `into` had.
    fn read(&self, name: &str, at_most: u64, into: &mut Vec<u8>) -> io::Result<()>;

    /// How long a file is, in bytes.
    fn len(&self, name: &str) -> io::Result<u64>;

    /// A new file; `AlreadyExists` if there is one of that name.
    fn create(&self, name: &str) -> io::Result<Self::File>;

    /// Cuts a file. It is not synced.
    fn truncate(&self, name: &str, len: u64) -> io::Result<()>;

    /// Gives a file another name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes names durable: those created, renamed and removed so far.
    fn sync_folder(&self) -> io::Result<()>;

    /// How a person finds this file, for messages.
    fn path_of(&self, name: &str) -> String;
}

/// A file of the journal that is written to its end and nowhere else.
pub trait DiskFile: Send + 'static {
    /// Adds bytes at the end. After an error any part of them may be there.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes durable what was appended. After an error it is unknown what is durable, and a second try proves nothing: the
    /// system reports an error once and may forget the data.
    fn sync(&mut self) -> io::Result<()>;
}

/// What can be done with a disk.
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
    /// The operation in the words of a message: "cannot … the file".
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
