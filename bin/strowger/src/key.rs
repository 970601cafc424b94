//! The server's secret key, from which branches, nonces and Record-Routes are signed. It is kept, so that a dialog outlives a
//! restart: the phones send back what was signed before.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use crate::failure::Failure;

const NAME: &str = "key";
const BYTES: usize = 16;

/// Reads the key of the data folder, or makes one there out of `fresh`.
pub(crate) fn of_folder(data: &Path, fresh: [u8; BYTES]) -> Result<[u8; BYTES], Failure> {
    let path = data.join(NAME);
    let shown = path.display();
    match fs::read(&path) {
        Ok(bytes) => bytes.try_into().map_err(|_| {
            Failure::No(format!(
                "{shown} is not a key of {BYTES} bytes; remove it and a new one is made (calls that are open then must be \
                 ended by the phones alone)"
            ))
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => match write(data, &path, fresh) {
            Ok(()) => Ok(fresh),
            Err(error) => Err(Failure::No(format!("{shown} cannot be made: {error}; may this user write there?"))),
        },
        Err(error) => Err(Failure::No(format!("{shown} cannot be read: {error}; it must belong to this user"))),
    }
}

fn write(data: &Path, path: &Path, key: [u8; BYTES]) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(data)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(&key)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
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
}
