//! Files of the server's data folder.
//!
//! Root runs commands on behalf of the server's user, and the server must be able to read and write what they leave.
//! So whatever is created here belongs to the owner of its folder. Users other than root create files for themselves.
//!
//! Only what was created by the same call changes its owner, and no symbolic link is followed on the way: the owner of the
//! folder could otherwise make root give a file away that is elsewhere.

#![forbid(unsafe_code)]

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// Creates a file for the owner of its folder, readable and writable by the owner only.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`] if there is one, also a symbolic link; other errors of the system.
pub fn create(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)?;
    let given = give_to_owner_of(folder_of(path), &file);
    // It would lock out the server.
    given.inspect_err(|_| drop(fs::remove_file(path)))?;
    Ok(file)
}

/// Replaces a temporary file that a command which was killed has left, and then creates it like [`create`].
///
/// # Errors
/// Those of [`create`].
pub fn create_temporary(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    create(path)
}

/// Opens a file for writing, unchanged if there is one, and otherwise creates it like [`create`].
///
/// # Errors
/// Those of the system.
pub fn open_or_create(path: &Path) -> io::Result<File> {
    match create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => OpenOptions::new().write(true).open(path),
        result => result,
    }
}

/// Creates a folder and those above it, if missing. Only its owner may enter a new folder, which belongs to the owner of the
/// folder around it.
///
/// # Errors
/// Those of the system.
pub fn create_folder(path: &Path) -> io::Result<()> {
    if path.as_os_str().is_empty() || fs::metadata(path).is_ok_and(|found| found.is_dir()) {
        return Ok(());
    }
    let parent = folder_of(path);
    if parent != path {
        create_folder(parent).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Errno::NOTDIR.into(),
            _ => error,
        })?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {}
        // By another process, a moment ago.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => return Ok(()),
        Err(error) => return Err(error),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let created = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    give_to_owner_of(parent, &created)
}

/// Returns the folder of a file.
#[must_use]
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
        None => path,
    }
}

/// Gives what was just created to the owner of the folder.
fn give_to_owner_of(folder: &Path, created: &File) -> io::Result<()> {
    let owner = fs::metadata(folder)?;
    let is_same = |own: &Metadata| own.uid() == owner.uid() && own.gid() == owner.gid();
    if is_same(&created.metadata()?) {
        return Ok(());
    }
    match fchown(created, Some(owner.uid()), Some(owner.gid())) {
        // Users other than root create it for themselves, as does root without this capability.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    use super::*;

    const SERVER: u32 = 5060;

    /// Returns a folder of another user; `None` if this user is not root.
    fn folder_of_server() -> Option<tempfile::TempDir> {
        let folder = tempfile::tempdir().expect("a folder");
        if chown(folder.path(), Some(SERVER), Some(SERVER)).is_err() {
            eprintln!("skipped: only root can create files for another user");
            return None;
        }
        Some(folder)
    }

    fn owner(path: &Path) -> (u32, u32) {
        let found = fs::symlink_metadata(path).expect("it is there");
        (found.uid(), found.gid())
    }

    #[test]
    fn new_files_and_folders_belong_to_the_owner_of_their_folder() {
        let Some(folder) = folder_of_server() else { return };
        let inner = folder.path().join("data/journal");
        create_folder(&inner).expect("created");
        create_folder(&inner).expect("it is there");
        let lock = inner.join("lock");
        drop((open_or_create(&lock).expect("created"), open_or_create(&lock).expect("opened")));
        let part = inner.join("part");
        drop((create_temporary(&part).expect("created"), create_temporary(&part).expect("replaced")));
        for path in [&*inner, inner.parent().expect("data"), &*lock, &*part] {
            assert_eq!(owner(path), (SERVER, SERVER), "{}", path.display());
            let mode = fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
            assert_eq!(mode, if path.is_dir() { 0o700 } else { 0o600 }, "{}", path.display());
        }
        let again = create(&lock).expect_err("it is there");
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn files_elsewhere_keep_their_owner() {
        let Some(folder) = folder_of_server() else { return };
        let elsewhere = tempfile::tempdir().expect("a folder");
        let secret = elsewhere.path().join("secret");
        fs::write(&secret, "root's").expect("written");
        let before = owner(&secret);
        let link = folder.path().join("lock");
        symlink(&secret, &link).expect("linked");
        assert!(create(&link).is_err());
        drop(open_or_create(&link).expect("opened"));
        assert_eq!((owner(&secret), fs::read_to_string(&secret).expect("there")), (before, "root's".to_owned()));
        drop(create_temporary(&link).expect("the link is replaced"));
        assert_eq!((owner(&secret), owner(&link)), (before, (SERVER, SERVER)));
    }

    #[test]
    fn a_folder_below_a_file_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        drop(create(&file).expect("created"));
        assert!(create_folder(&file).is_err() && create_folder(&file.join("deeper")).is_err());
        assert!(create_folder(Path::new("")).is_ok(), "the current folder");
    }
}
