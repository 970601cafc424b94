//! The configuration that the server runs with, for other threads than the one that owns the server.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use strowger_control::config::Config;

/// A shared copy of the configuration, replaced at each reload.
#[derive(Clone, Debug)]
pub(crate) struct RunningConfig(Arc<RwLock<Running>>);

#[derive(Clone, Debug)]
struct Running {
    config: Arc<Config>,
    file: Option<PathBuf>,
}

impl RunningConfig {
    /// `file` is the one that the configuration was read from, if there was one.
    pub(crate) fn new(config: &Config, file: Option<&Path>) -> Self {
        Self(Arc::new(RwLock::new(Running::new(config, file))))
    }

    pub(crate) fn replace(&self, config: &Config, file: Option<&Path>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Running::new(config, file);
    }

    pub(crate) fn current(&self) -> Arc<Config> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner).config)
    }

    /// Returns the file that the configuration was read from.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).file.clone()
    }
}

impl Running {
    fn new(config: &Config, file: Option<&Path>) -> Self {
        Self { config: Arc::new(config.clone()), file: file.map(Path::to_owned) }
    }
}
