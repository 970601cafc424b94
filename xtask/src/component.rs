//! A library that the binary contains.

use std::collections::BTreeSet;
use std::path::PathBuf;

/// Library in the binary.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Component {
    /// Name.
    pub name: String,
    /// Version.
    pub version: String,
    /// Package URL, which identifies it in databases of vulnerabilities.
    pub purl: String,
    /// SPDX expression of its licence.
    pub licence: String,
    /// Repository or home page.
    pub repository: Option<String>,
    /// Checksum of the package in the registry.
    pub checksum: Option<Checksum>,
    /// Its authors, as the package names them.
    pub authors: Vec<String>,
    /// Folder with its sources.
    pub folder: PathBuf,
    /// File with the text of its licence, if it is not in the folder under a usual name.
    pub licence_file: Option<PathBuf>,
    /// Package URLs of what it contains or uses.
    pub uses: BTreeSet<String>,
}

/// Checksum of a package, in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Checksum {
    /// Of `Cargo.lock`.
    Sha256(String),
    /// Of the npm registry.
    Sha512(String),
}
