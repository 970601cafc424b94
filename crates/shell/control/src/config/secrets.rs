//! Passwords and keys stored outside the configuration file.

use std::path::{Path, PathBuf};

use super::error::{Fault, Source};
use super::values::Password;
use super::{Config, ConfigError, ConfigSource};

/// Maximum length of a password read from a file, in bytes.
const MAX_PASSWORD: usize = 1024;

impl Config {
    /// Like [`load`](Self::load), and reads passwords from files and the environment, as a server needs. Other
    /// commands may run where these cannot be read.
    ///
    /// # Errors
    /// The file cannot be read or has faults.
    pub fn load_with_secrets<'a>(wanted: impl Into<ConfigSource<'a>>) -> Result<(Self, Option<PathBuf>), ConfigError> {
        let loaded = Self::load_secrets(wanted.into(), true)?;
        loaded.0.check_role()?;
        Ok(loaded)
    }

    /// Like [`load_with_secrets`](Self::load_with_secrets), but allows missing environment variables, which may be
    /// set for the server only.
    ///
    /// # Errors
    /// The file cannot be read or has faults.
    pub fn load_for_check<'a>(wanted: impl Into<ConfigSource<'a>>) -> Result<(Self, Option<PathBuf>), ConfigError> {
        Self::load_secrets(wanted.into(), false)
    }

    fn load_secrets(wanted: ConfigSource<'_>, with_variables: bool) -> Result<(Self, Option<PathBuf>), ConfigError> {
        let (mut config, read) = Self::load_any(wanted)?;
        match config.read_secrets(with_variables) {
            Ok(()) => Ok((config, read)),
            Err(fault) => {
                let text = read.as_ref().and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
                Err(ConfigError { file: read, ..Source::new(&text).place(fault) })
            }
        }
    }

    /// Reads passwords and keys from their sources.
    fn read_secrets(&mut self, with_variables: bool) -> Result<(), Fault> {
        if let Some(path) = &self.trace.hep.auth_key_file {
            let key = read_file(path).map_err(|message| Fault::new("trace.hep.auth_key_file", message))?;
            self.trace.hep.auth_key = Some(key);
        }
        for (index, trunk) in self.trunks.iter_mut().enumerate() {
            if let Some(path) = &trunk.password_file {
                let fault = |message| Fault::new(format!("trunk[{index}].password_file"), message);
                trunk.password = Some(read_file(path).map_err(fault)?);
            }
            if let Some(name) = trunk.password_env.as_ref().filter(|_| with_variables) {
                let value = std::env::var(name).ok().filter(|value| !value.is_empty()).ok_or_else(|| {
                    let message = format!("{name} is not set in the server's environment; set it to the password");
                    Fault::new(format!("trunk[{index}].password_env"), message)
                })?;
                trunk.password = Some(Password(value));
            }
        }
        Ok(())
    }
}

/// Returns the first line of a file as a password.
fn read_file(path: &Path) -> Result<Password, String> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| {
        format!("{shown} cannot be read: {error}; write the password into it, readable by this user only")
    })?;
    let line = text.lines().next().unwrap_or_default();
    if line.is_empty() || line.len() > MAX_PASSWORD {
        return Err(format!("the first line of {shown} is not a password of 1 to {MAX_PASSWORD} bytes; correct it"));
    }
    Ok(Password(line.to_owned()))
}
