//! Reading faulty configuration files. A client of a running server needs only a few correct keys.

use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::error::{Source, nearest};
use super::{Config, ConfigError, ConfigSource, Control, Server};

/// Keys and sections to look for. Unreadable text must not contain them: it could point to another server.
const LOOKED_FOR: [&str; 5] = ["server", "data", "domains", "control", "socket"];

impl Config {
    /// Like [`load`](Self::load), but from a faulty file returns what is reliable, together with the faults: the
    /// location of the control socket, and the server's addresses and domains. Everything else may be missing.
    ///
    /// # Errors
    /// The file cannot be read, or its faults leave the location of the socket unknown.
    pub fn load_leniently<'a>(wanted: impl Into<ConfigSource<'a>>) -> Result<(Self, Option<ConfigError>), ConfigError> {
        let wanted = wanted.into();
        let Some((path, text)) = super::load::read(wanted.file)? else { return Ok((Self::default(), None)) };
        let faults = match Self::parse(&text) {
            Ok(config) => {
                let config = config.of(wanted).and_then(|config| config.check_role().map(|()| config));
                return Ok((config.map_err(|error| error.in_file(&path))?, None));
            }
            Err(faults) => faults.in_file(&path),
        };
        match salvaged(&text) {
            Some(config) => match config.of(wanted) {
                Ok(config) => Ok((config, Some(faults))),
                Err(_) => Err(faults),
            },
            None => Err(faults),
        }
    }
}

fn salvaged(text: &str) -> Option<Config> {
    // Values that contradict each other are still readable.
    if let Ok(config) = Source::new(text).read() {
        return Some(config);
    }
    let table = readable(text)?;
    let control: Control = section(&table, "control")?;
    let server = section(&table, "server").or_else(|| sound_keys(table.get("server")?, control.socket.is_some()))?;
    Some(Config { server, control, ..Config::default() })
}

/// Returns the keys of `[server]` without a fault; none if the folder of the socket is unknown and may be in one of the
/// others.
fn sound_keys(section: &Value, is_socket_known: bool) -> Option<Server> {
    let is_sound = |(key, value): &(&String, &Value)| {
        Table::from_iter([((*key).clone(), (*value).clone())]).try_into::<Server>().is_ok()
    };
    let (sound, faulty): (Vec<_>, Vec<_>) = section.as_table()?.iter().partition(is_sound);
    let is_folder = |key: &str| nearest(key, &["data"]).is_some();
    let is_known = is_socket_known
        || sound.iter().any(|(key, _)| *key == "data")
        || !faulty.iter().any(|(key, _)| is_folder(key.as_str()));
    let sound: Table = sound.into_iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    sound.try_into().ok().filter(|_| is_known)
}

/// Returns a section that has no fault or is absent.
fn section<T: DeserializeOwned + Default>(table: &Table, name: &str) -> Option<T> {
    table.get(name).map_or_else(|| Some(T::default()), |section| section.clone().try_into().ok())
}

/// Parses the text up to the first invalid line, if nothing after it can matter.
fn readable(text: &str) -> Option<Table> {
    let error = match Source::new(text).read() {
        Ok(table) => return Some(table),
        Err(error) => error,
    };
    let before = text.get(..error.span()?.start)?;
    let line = before.rfind('\n').map_or(0, |end| end + 1);
    let (sound, rest) = text.split_at_checked(line)?;
    let is_silent = !LOOKED_FOR.iter().any(|word| rest.contains(word));
    Source::new(sound).read().ok().filter(|_| is_silent)
}
