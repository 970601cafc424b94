//! The server's secret key, from which branches, nonces and Record-Routes are signed. It is kept, so that a dialog outlives a
//! restart: the phones send back what was signed before.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::failure::Failure;

const NAME: &str = "key";
const BYTES: usize = 16;

/// Reads the key of the data folder, or makes one there out of `fresh`.
pub(crate) fn of_folder(data: &Path, fresh: [u8; BYTES]) -> Result<[u8; BYTES], Failure> {
    if let Some(key) = read(data)? {
        return Ok(key);
    }
    let path = data.join(NAME);
    match write(data, &path, &fresh) {
        Ok(()) => Ok(fresh),
        Err(error) => Err(unwritable(&path, &error)),
    }
}

/// The key of the data folder, where it has one.
pub(crate) fn read(data: &Path) -> Result<Option<[u8; BYTES]>, Failure> {
    let path = data.join(NAME);
    let shown = path.display();
    match fs::read(&path) {
        Ok(bytes) => bytes.try_into().map(Some).map_err(|_| {
            Failure::No(format!(
                "{shown} is not a key of {BYTES} bytes; remove it and a new one is made (calls that are open then must be \
                 ended by the phones alone)"
            ))
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::No(format!("{shown} cannot be read: {error}; it must belong to this user"))),
    }
}

/// Makes `key` the key of the data folder; says where another one is now that was there.
pub(crate) fn restore(data: &Path, key: &[u8]) -> Result<Option<PathBuf>, Failure> {
    let path = data.join(NAME);
    let aside = match fs::read(&path) {
        Ok(there) if there == key => return Ok(None),
        Ok(_) => Some(keep_aside(&path).map_err(|error| unwritable(&path, &error))?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(unwritable(&path, &error)),
    };
    write(data, &path, key).map_err(|error| unwritable(&path, &error))?;
    Ok(aside)
}

fn keep_aside(path: &Path) -> io::Result<PathBuf> {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let name = |time_s: u64| path.with_file_name(format!("{NAME}.before-{time_s}"));
    let aside = (now_s..).map(name).find(|aside| !aside.exists()).unwrap_or_else(|| name(now_s));
    fs::rename(path, &aside)?;
    Ok(aside)
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Failure::No(format!("{} cannot be made: {error}; may this user write there?", path.display()))
}

fn write(data: &Path, path: &Path, key: &[u8]) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(data)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(key)?;
    // The superuser restores for the server's user.
    let folder = fs::metadata(data)?;
    match fchown(&file, Some(folder.uid()), Some(folder.gid())) {
        Err(error) if error.kind() != io::ErrorKind::PermissionDenied => return Err(error),
        _ => {}
    }
    file.sync_all()?;
    File::open(data)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_key_is_made_once_and_a_broken_one_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().join("data");
        assert_eq!(of_folder(&data, [7; BYTES]).ok(), Some([7; BYTES]));
        assert_eq!(of_folder(&data, [8; BYTES]).ok(), Some([7; BYTES]), "it is kept");
        fs::write(data.join(NAME), b"short").expect("writable");
        assert!(of_folder(&data, [8; BYTES]).is_err());
    }

    #[test]
    fn a_key_comes_back_and_the_one_that_was_there_is_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().join("data");
        assert_eq!(restore(&data, &[1; BYTES]).ok(), Some(None), "there was none");
        assert_eq!(restore(&data, &[1; BYTES]).ok(), Some(None), "it is the same");
        let aside = restore(&data, &[2; BYTES]).ok().flatten().expect("another was there");
        assert_eq!(fs::read(&aside).expect("kept"), [1; BYTES]);
        assert_eq!(read(&data).ok(), Some(Some([2; BYTES])));
        let mode = fs::metadata(data.join(NAME)).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
