//! The host whose settings are read and changed: its files, below a root, and its kernel.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::kernel::{Kernel, NoKernel, RunningKernel};

/// A host.
#[derive(Debug)]
pub struct Host {
    root: PathBuf,
    kernel: Box<dyn Kernel>,
    is_running: bool,
}

impl Host {
    /// This machine.
    #[must_use]
    pub fn running() -> Self {
        Self { root: PathBuf::from("/"), kernel: Box::new(RunningKernel), is_running: true }
    }

    /// A copy of a machine's `/proc` and `/sys` below a folder. Nothing is known of its processes but what files say.
    #[must_use]
    pub fn below(root: &Path) -> Self {
        Self::with_kernel(root, Box::new(NoKernel))
    }

    /// The same with another kernel, for tests.
    #[must_use]
    pub fn with_kernel(root: &Path, kernel: Box<dyn Kernel>) -> Self {
        Self { root: root.to_owned(), kernel, is_running: false }
    }

    /// Returns the kernel for system calls.
    #[must_use]
    pub fn kernel(&self) -> &dyn Kernel {
        self.kernel.as_ref()
    }

    /// Returns whether this is the machine on which this program runs. Files of another one are plain files, which do
    /// not change their form as those of a kernel do.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.is_running
    }

    /// Returns the text of a file.
    ///
    /// # Errors
    /// If there is no such file, or it may not be read.
    pub fn read(&self, path: &str) -> io::Result<String> {
        fs::read_to_string(self.place(path))
    }

    /// Returns the text of a file without surrounding space, if it can be read.
    #[must_use]
    pub fn text(&self, path: &str) -> Option<String> {
        Some(self.read(path).ok()?.trim().to_owned())
    }

    /// Returns the number in a file, if it can be read.
    #[must_use]
    pub fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// Returns the name to which a symbolic link points.
    #[must_use]
    pub fn link(&self, path: &str) -> Option<String> {
        Some(fs::read_link(self.place(path)).ok()?.to_string_lossy().into_owned())
    }

    /// Returns whether there is a file or folder of this path.
    #[must_use]
    pub fn has(&self, path: &str) -> bool {
        self.place(path).exists()
    }

    /// Returns the names in a folder, sorted; none if it cannot be read.
    #[must_use]
    pub fn list(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.place(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort_by(|one, other| (one.len(), one).cmp(&(other.len(), other)));
        names
    }

    /// Overwrites an existing file with one write, as the kernel's files need.
    ///
    /// # Errors
    /// If there is no such file, it may not be written, or the kernel rejects the text.
    pub fn write(&self, path: &str, text: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).truncate(true).open(self.place(path))?;
        file.write_all(text.as_bytes())
    }

    fn place(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }
}
