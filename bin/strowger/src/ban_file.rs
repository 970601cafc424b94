//! The file of bans in the data folder, by which they outlast a restart.

use std::fs;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use strowger_ban::{Ban, BanCause, MAX_BANNED};
use strowger_foundation::{Timestamp, WallTime, source_bits};

/// First line of the file; another one belongs to a version that this one does not know.
const HEADER: &str = "# Addresses banned by strowger: address, begin and end in s since 1970, number of bans, cause";
/// Maximum size of the file in bytes: [`MAX_BANNED`] lines, with room to spare.
const MAX_SIZE: u64 = 128 * MAX_BANNED as u64;

/// A time of both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub(crate) monotonic: Timestamp,
    pub(crate) wall: WallTime,
}

impl Now {
    /// Returns the seconds since 1970, rounded up for the future.
    fn to_seconds(self, at: Timestamp) -> u64 {
        if at >= self.monotonic {
            let left = at.saturating_since(self.monotonic).as_nanos().div_ceil(1_000_000_000);
            self.wall.0.saturating_add(u64::try_from(left).unwrap_or(u64::MAX))
        } else {
            self.wall.0.saturating_sub(self.monotonic.saturating_since(at).as_secs())
        }
    }

    /// What was before the monotonic clock began becomes its beginning.
    fn at_seconds(self, seconds: u64) -> Timestamp {
        match seconds.checked_sub(self.wall.0) {
            Some(left) => self.monotonic + Duration::from_secs(left),
            None => {
                let age = Duration::from_secs(self.wall.0.saturating_sub(seconds));
                Timestamp::ZERO + self.monotonic.saturating_since(Timestamp::ZERO).saturating_sub(age)
            }
        }
    }
}

/// Returns the text of the file.
pub(crate) fn text<'b>(bans: impl Iterator<Item = &'b Ban>, now: Now) -> String {
    let mut text = format!("{HEADER}\n");
    for ban in bans {
        let (address, _) = ban.network();
        let until = ban.until.map_or_else(|| "-".to_owned(), |until| now.to_seconds(until).to_string());
        let cause = cause(ban.cause);
        text.push_str(&format!("{address} {} {until} {} {cause}\n", now.to_seconds(ban.since), ban.number));
    }
    text
}

pub(crate) const fn cause(cause: BanCause) -> &'static str {
    match cause {
        BanCause::Failures => "failures",
        BanCause::Operator => "operator",
    }
}

/// Reads the bans in the text of a file.
///
/// # Errors
/// The first line that cannot be read.
fn parse(text: &str, now: Now) -> Result<Vec<Ban>, String> {
    if text.lines().next() != Some(HEADER) {
        return Err("it is not a file of bans that this version can read".to_owned());
    }
    let read = |line: &str| -> Option<Ban> {
        let mut words = line.split(' ');
        let mut word = || words.next();
        let source = source_bits(word()?.parse::<IpAddr>().ok()?);
        let since = now.at_seconds(word()?.parse().ok()?);
        let until = match word()? {
            "-" => None,
            seconds => Some(now.at_seconds(seconds.parse().ok()?)),
        };
        let number = word()?.parse().ok()?;
        let cause = match word()? {
            "failures" => BanCause::Failures,
            "operator" => BanCause::Operator,
            _ => return None,
        };
        Some(Ban { source, cause, since, until, number })
    };
    let lines = text.lines().skip(1).filter(|line| !line.is_empty());
    lines.map(|line| read(line).ok_or_else(|| format!("{line:?} is not a ban"))).collect()
}

/// Reads the file; nothing if it does not exist.
///
/// # Errors
/// The reason, with a remedy.
pub(crate) fn load(path: &Path, now: Now) -> Result<Vec<Ban>, String> {
    let shown = path.display();
    let size = match fs::metadata(path) {
        Ok(found) => found.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("{shown} cannot be read: {error}; make this user its owner")),
    };
    if size > MAX_SIZE {
        return Err(format!("{shown} is larger than {MAX_SIZE} bytes; remove it"));
    }
    let text = fs::read_to_string(path);
    let text = text.map_err(|error| format!("{shown} cannot be read: {error}; make this user its owner"))?;
    parse(&text, now).map_err(|why| format!("{shown}: {why}; correct or remove it"))
}

/// Replaces the file.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn save(path: &Path, text: &str) -> io::Result<()> {
    strowger_files::create_folder(strowger_files::folder_of(path))?;
    let new = path.with_added_extension("new");
    let write = || -> io::Result<()> {
        let mut file = strowger_files::create_temporary(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    write().inspect_err(|_| drop(fs::remove_file(&new)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Now = Now { monotonic: Timestamp::from_millis(5_000), wall: WallTime(1_000) };

    #[test]
    fn bans_survive_a_restart() {
        let ban = |address: &str, since, until: Option<u64>, number, cause| Ban {
            source: source_bits(address.parse().expect("an address")),
            cause,
            since: Timestamp::from_millis(since),
            until: until.map(Timestamp::from_millis),
            number,
        };
        let bans = [
            ban("192.0.2.7", 4_000, Some(65_000), 3, BanCause::Failures),
            ban("2001:db8::7", 5_000, None, 0, BanCause::Operator),
        ];
        let text = text(bans.iter(), NOW);
        assert_eq!(
            text.lines().skip(1).collect::<Vec<_>>(),
            ["192.0.2.7 999 1060 3 failures", "2001:db8:: 1000 - 0 operator"]
        );
        assert_eq!(parse(&text, NOW).expect("readable"), bans);
        // Another process a minute later, whose clock has just begun.
        let later = Now { monotonic: Timestamp::ZERO, wall: WallTime(1_060) };
        let [first, second]: [Ban; 2] = parse(&text, later).expect("readable").try_into().expect("two");
        assert_eq!((first.since, first.until), (Timestamp::ZERO, Some(Timestamp::ZERO)), "it has ended");
        assert_eq!((second.since, second.until), (Timestamp::ZERO, None));
    }

    #[test]
    fn a_broken_file_is_named_with_its_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("data/bans");
        assert_eq!(load(&path, NOW), Ok(Vec::new()));
        save(&path, &format!("{HEADER}\n192.0.2.7 1 soon 3 failures\n")).expect("written");
        let why = load(&path, NOW).expect_err("broken");
        assert!(why.ends_with("\"192.0.2.7 1 soon 3 failures\" is not a ban; correct or remove it"), "{why}");
        save(&path, "other\n").expect("written");
        assert!(load(&path, NOW).is_err());
        assert_eq!(fs::read_dir(folder.path().join("data")).expect("there").count(), 1, "no other file is left");
    }
}
