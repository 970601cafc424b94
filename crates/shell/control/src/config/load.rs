//! Which file is read, and for which server of it.

use std::io;
use std::path::{Path, PathBuf};

use super::error::{Fault, Source as ConfigText};
use super::{Config, ConfigError, ConfigSource, host_name};

/// Default file in the current directory, read if it exists and no other is named.
pub const DEFAULT_FILE: &str = "strowger.toml";

/// The configuration file of the server that the machine runs as a service, if there is no [`DEFAULT_FILE`].
pub const SYSTEM_FILE: &str = "/etc/strowger/strowger.toml";

impl Config {
    /// Loads `file`, or the first of [`DEFAULT_FILE`] and [`SYSTEM_FILE`] that exists, or the defaults. Also returns
    /// the path of the file read.
    ///
    /// # Errors
    /// The file cannot be read or has faults.
    pub fn load<'a>(wanted: impl Into<ConfigSource<'a>>) -> Result<(Self, Option<PathBuf>), ConfigError> {
        let loaded = Self::load_any(wanted.into())?;
        loaded.0.check_role()?;
        Ok(loaded)
    }

    /// Returns warnings about former names in a file that was loaded. None of them prevents a start.
    #[must_use]
    pub fn former_names(file: &Path) -> Vec<ConfigError> {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        ConfigText::new(&text).warnings().into_iter().map(|warning| warning.in_file(file)).collect()
    }

    /// Like [`load`](Self::load), but accepts a file for several servers without a selected one.
    pub(super) fn load_any(wanted: ConfigSource<'_>) -> Result<(Self, Option<PathBuf>), ConfigError> {
        let Some((path, text)) = read(wanted.file)? else { return Ok((Self::default().of(wanted)?, None)) };
        match Self::parse(&text).and_then(|config| config.of(wanted)) {
            Ok(config) => Ok((config, Some(path))),
            Err(error) => Err(error.in_file(&path)),
        }
    }

    /// Returns the configuration of the selected server, or the whole file if only the host name is known and no
    /// server has it.
    pub(super) fn of(self, wanted: ConfigSource<'_>) -> Result<Self, ConfigError> {
        let fault = |Fault { key, message }| ConfigError { file: None, line: None, key, message, others: Vec::new() };
        match wanted.member {
            Some(name) if self.has_stages() => self.for_member(name).map_err(fault),
            Some(name) => {
                let message = format!(
                    "--as {name}: the configuration is for one server, and has no [[first_stage]] or [[second_stage]]"
                );
                Err(fault(Fault::new("", message)))
            }
            None if self.has_stages() => Ok(self.for_member(&host_name()).unwrap_or(self)),
            None => Ok(self),
        }
    }

    /// Checks that a server is selected if the file is for several.
    pub(super) fn check_role(&self) -> Result<(), ConfigError> {
        if !self.has_stages() || self.role.is_some() {
            return Ok(());
        }
        let names = self.stage_names().join(", ");
        let message = format!("the configuration is for several servers; choose one with --as NAME: {names}");
        Err(ConfigError { file: None, line: None, key: String::new(), message, others: Vec::new() })
    }
}

/// Returns the configuration file that is used if none is named: the first that exists, else [`DEFAULT_FILE`].
#[must_use]
pub fn default_file() -> &'static Path {
    let system = Path::new(SYSTEM_FILE);
    // A folder that this user may not search has the file, as far as one can tell.
    let has_system = system.try_exists().unwrap_or(true);
    if has_system && !Path::new(DEFAULT_FILE).exists() { system } else { Path::new(DEFAULT_FILE) }
}

/// Reads the configuration file. Returns `None` if none is named and no default file exists.
pub(super) fn read(file: Option<&Path>) -> Result<Option<(PathBuf, String)>, ConfigError> {
    let path = file.unwrap_or_else(|| default_file()).to_owned();
    let error = match std::fs::read_to_string(&path) {
        Ok(text) => return Ok(Some((path, text))),
        Err(error) if file.is_none() && error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => error,
    };
    let message = match error.kind() {
        io::ErrorKind::NotFound => "the file does not exist; give an existing one with -c".to_owned(),
        io::ErrorKind::InvalidData => "this is not valid TOML: it is not UTF-8".to_owned(),
        io::ErrorKind::PermissionDenied if file.is_none() => {
            "cannot be read: it belongs to the server of this machine; run the command as root, or give another file with -c"
                .to_owned()
        }
        _ => format!("cannot be read: {error}; give this user read permission"),
    };
    Err(ConfigError { file: Some(path), line: None, key: String::new(), message, others: Vec::new() })
}
