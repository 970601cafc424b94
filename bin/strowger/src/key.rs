//! The server's secret key, which signs branches, nonces and Record-Routes. The key is stored so that a dialog
//! survives a restart: phones send back values that were signed before it.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use strowger_control::config::Config;
use strowger_foundation::TagKey;

use crate::failure::Failure;

const BYTES: usize = 16;

/// Reads the server's key, or creates it from `fresh` if the configuration names no file.
pub(crate) fn of_server(config: &Config, fresh: [u8; BYTES]) -> Result<[u8; BYTES], Failure> {
    let path = config.key_file();
    if let Some(key) = read(&path)? {
        return Ok(key);
    }
    // A new key would differ from the other server's.
    if config.server.key_file.is_some() {
        return Err(Failure::Usage(missing(&path)));
    }
    match write(&path, &fresh) {
        Ok(()) => Ok(fresh),
        // Another server on this machine has created it at the same moment.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            read(&path)?.ok_or_else(|| unwritable(&path, &error))
        }
        Err(error) => Err(unwritable(&path, &error)),
    }
}

/// Reads the key of the server that this process takes over from. It exists, if the configuration is that server's.
pub(crate) fn of_predecessor(config: &Config) -> Result<[u8; BYTES], Failure> {
    let path = config.key_file();
    read(&path)?.ok_or_else(|| match config.server.key_file {
        Some(_) => Failure::Usage(missing(&path)),
        None => Failure::No(format!(
            "{}, the key, does not exist: server.data is not that of the running server; restart the server to change it",
            path.display()
        )),
    })
}

/// Returns the message for a missing key file that the configuration names.
pub(crate) fn missing(path: &Path) -> String {
    let shown = path.display();
    format!(
        "server.key_file: {shown} does not exist; copy it from the other server, or create it: `head -c {BYTES} /dev/urandom > {shown}`"
    )
}

/// Reads a key file, if it exists: bytes, or pairs of hexadecimal digits.
pub(crate) fn read(path: &Path) -> Result<Option<[u8; BYTES]>, Failure> {
    let shown = path.display();
    match fs::read(path) {
        Ok(bytes) => key_in(&bytes).map(Some).ok_or_else(|| {
            Failure::No(format!(
                "{shown} is not a key of {BYTES} bytes; remove it, and a new one is created (phones must then end open calls \
                 without the server)"
            ))
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::No(format!("{shown} cannot be read: {error}; make this user its owner"))),
    }
}

fn key_in(bytes: &[u8]) -> Option<[u8; BYTES]> {
    if let Ok(key) = bytes.try_into() {
        return Some(key);
    }
    let text = std::str::from_utf8(bytes).ok()?.trim_end();
    if text.len() != 2 * BYTES || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    u128::from_str_radix(text, 16).ok().map(u128::to_be_bytes)
}

/// Returns a value that distinguishes keys without revealing them.
pub(crate) fn fingerprint(key: &[u8; BYTES]) -> String {
    let hash = TagKey::new(*key).derive("fingerprint").hash64(&[]);
    format!("{:08x}", hash >> 32)
}

/// Installs `key` as the server's key. Returns the new path of a previous one.
pub(crate) fn restore(path: &Path, key: &[u8]) -> Result<Option<PathBuf>, Failure> {
    let aside = match fs::read(path) {
        Ok(there) if key_in(&there).is_some_and(|there| there == key) => return Ok(None),
        Ok(_) => Some(keep_aside(path).map_err(|error| unwritable(path, &error))?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(unwritable(path, &error)),
    };
    write(path, key).map_err(|error| unwritable(path, &error))?;
    Ok(aside)
}

fn keep_aside(path: &Path) -> io::Result<PathBuf> {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let of_file = path.file_name().unwrap_or_default().to_string_lossy();
    let name = |time_s: u64| path.with_file_name(format!("{of_file}.before-{time_s}"));
    let aside = (now_s..).map(name).find(|aside| !aside.exists()).unwrap_or_else(|| name(now_s));
    fs::rename(path, &aside)?;
    Ok(aside)
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Failure::No(format!("{} cannot be created: {error}; check that this user may write there", path.display()))
}

fn write(path: &Path, key: &[u8]) -> io::Result<()> {
    let folder = strowger_files::folder_of(path);
    strowger_files::create_folder(folder)?;
    let unnamed = path.with_added_extension(format!("{}.new", std::process::id()));
    let written = write_unnamed(&unnamed, key)
        // The file appears complete and replaces no existing one.
        .and_then(|()| fs::hard_link(&unnamed, path));
    let _ = fs::remove_file(&unnamed);
    written?;
    File::open(folder)?.sync_all()
}

fn write_unnamed(path: &Path, key: &[u8]) -> io::Result<()> {
    let mut file = strowger_files::create_temporary(path)?;
    file.write_all(key)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn config(data: &Path, more: &str) -> Config {
        Config::parse(&format!("[server]\ndata = {data:?}\n{more}")).expect("sound")
    }

    #[test]
    fn a_key_is_made_once_and_a_broken_one_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().join("data");
        let config = config(&data, "");
        assert_eq!(of_server(&config, [7; BYTES]).ok(), Some([7; BYTES]));
        assert_eq!(of_server(&config, [8; BYTES]).ok(), Some([7; BYTES]), "it is kept");
        fs::write(data.join("key"), b"short").expect("writable");
        assert!(of_server(&config, [8; BYTES]).is_err());
    }

    #[test]
    fn a_configured_key_is_read_and_never_created() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("shared");
        let config = config(folder.path(), &format!("key_file = {file:?}"));
        let error = of_server(&config, [7; BYTES]).expect_err("there is none").to_string();
        assert!(error.contains("copy it from the other server, or create it: `head -c 16 /dev/urandom > "), "{error}");
        assert!(!file.exists());
        fs::write(&file, [9; BYTES]).expect("writable");
        assert_eq!(of_server(&config, [7; BYTES]).ok(), Some([9; BYTES]));
        fs::write(&file, "000102030405060708090a0b0c0d0e0F\n").expect("writable");
        let key = of_server(&config, [7; BYTES]).expect("hexadecimal");
        assert_eq!(key, std::array::from_fn(|at| u8::try_from(at).expect("small")));
        assert_eq!(restore(&file, &key).ok(), Some(None), "it is the same, in other letters");
        for bad in ["000102030405060708090a0b0c0d0e0", "+00102030405060708090a0b0c0d0e0f", ""] {
            fs::write(&file, bad).expect("writable");
            assert!(of_server(&config, [7; BYTES]).is_err(), "{bad}");
        }
    }

    #[test]
    fn fingerprints_tell_keys_apart() {
        let [one, other] = [1, 2].map(|byte| fingerprint(&[byte; BYTES]));
        assert!(one.len() == 8 && one != other);
    }

    #[test]
    fn a_key_is_restored_and_the_old_one_is_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("data").join("key");
        assert_eq!(restore(&path, &[1; BYTES]).ok(), Some(None), "there was none");
        assert_eq!(restore(&path, &[1; BYTES]).ok(), Some(None), "it is the same");
        let aside = restore(&path, &[2; BYTES]).ok().flatten().expect("another was there");
        assert_eq!(fs::read(&aside).expect("kept"), [1; BYTES]);
        assert_eq!(read(&path).ok(), Some(Some([2; BYTES])));
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
