//! What of a faulty file can be relied on: who only wants to ask a running server need not wait until all of it is right.

use serde::de::DeserializeOwned;
use toml::Table;

use super::{Config, ConfigError, ConfigSource, Control, Server};

/// What is looked for. Text that cannot be read must not speak of it: another server could be asked, or told, otherwise.
const LOOKED_FOR: [&str; 5] = ["server", "data", "domains", "control", "socket"];

impl Config {
    /// As [`load`](Self::load), but of a file with faults what can be relied on, with the faults beside it: where the control
    /// socket is, and which addresses and domains are the server's. All else may be missing then.
    ///
    /// # Errors
    /// The file cannot be read, or its faults leave open where the socket is.
    pub fn load_leniently<'a>(wanted: impl Into<ConfigSource<'a>>) -> Result<(Self, Option<ConfigError>), ConfigError> {
        let wanted = wanted.into();
        let Some((path, text)) = super::read(wanted.file)? else { return Ok((Self::default(), None)) };
        let faults = match Self::parse(&text) {
            Ok(config) => {
                let config = config.of(wanted).and_then(|config| config.needs_role().map(|()| config));
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
    // Values that do not fit each other keep nobody from reading them.
    if let Ok(config) = toml::from_str(text) {
        return Some(config);
    }
    let table = readable(text)?;
    let (server, control): (Server, Control) = (section(&table, "server")?, section(&table, "control")?);
    Some(Config { server, control, ..Config::default() })
}

/// A section without a fault, or one that is not there.
fn section<T: DeserializeOwned + Default>(table: &Table, name: &str) -> Option<T> {
    table.get(name).map_or_else(|| Some(T::default()), |section| section.clone().try_into().ok())
}

/// The text as TOML up to the line that keeps it from being one, where nothing from there on can matter.
fn readable(text: &str) -> Option<Table> {
    let error = match toml::from_str(text) {
        Ok(table) => return Some(table),
        Err(error) => error,
    };
    let before = text.get(..error.span()?.start)?;
    let line = before.rfind('\n').map_or(0, |end| end + 1);
    let (sound, rest) = text.split_at_checked(line)?;
    let is_silent = !LOOKED_FOR.iter().any(|word| rest.contains(word));
    toml::from_str(sound).ok().filter(|_| is_silent)
}
