//! Atomic replacement of a file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::Path;

/// Replaces the contents of a file atomically: readers find the old or the new text. Keeps owner and permissions. The
/// text may contain passwords, so the temporary file is not readable by others.
pub(super) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let path = fs::canonicalize(path)?;
    let there = fs::metadata(&path)?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    let new = path.with_file_name(name);
    let written = write(&new, text, &there).and_then(|()| fs::rename(&new, &path));
    if written.is_err() {
        // Best effort: the original error is reported.
        drop(fs::remove_file(&new));
    }
    written?;
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

fn write(new: &Path, text: &str, like: &fs::Metadata) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(new)?;
    file.write_all(text.as_bytes())?;
    let is_other = |own: &fs::Metadata| own.uid() != like.uid() || own.gid() != like.gid();
    if is_other(&file.metadata()?) {
        fchown(&file, Some(like.uid()), Some(like.gid()))?;
    }
    file.set_permissions(like.permissions())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn permissions_stay_and_no_files_are_left() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("strowger.toml");
        fs::write(&path, "old").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("set");
        replace(&path, "new").expect("replaced");
        assert_eq!(fs::read_to_string(&path).expect("there"), "new");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 1);
        assert!(replace(&folder.path().join("missing"), "new").is_err());
    }
}
