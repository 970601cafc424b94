//! JavaScript of others that the administration page contains, as `crates/shell/page/vendor.json` lists it.

use std::fs;
use std::path::Path;

use data_encoding::{BASE64, HEXLOWER};
use serde_json::Value;

use crate::component::{Checksum, Component};

/// The list, and the folder of the files that it names.
const LIST: &str = "crates/shell/page/vendor.json";
const FOLDER: &str = "crates/shell/page/web/vendor";
/// Name of the file in each package that is its licence.
const LICENCE: &str = "LICENSE";

/// Reads the packages.
///
/// # Errors
/// The list is not as expected; the text says where.
pub(crate) fn read(root: &Path) -> Result<Vec<Component>, String> {
    let text = fs::read_to_string(root.join(LIST)).map_err(|error| format!("{LIST}: {error}"))?;
    let list: Value = serde_json::from_str(&text).map_err(|error| format!("{LIST}: {error}"))?;
    let packages = list["packages"].as_array().filter(|packages| !packages.is_empty());
    let packages = packages.ok_or_else(|| format!("{LIST} has no packages"))?;
    packages.iter().map(|package| component(root, package)).collect()
}

fn component(root: &Path, package: &Value) -> Result<Component, String> {
    let text = |value: &Value, key: &str| {
        value[key].as_str().map(str::to_owned).ok_or_else(|| format!("{LIST}: there is no {key} in {value}"))
    };
    let field = |key| text(package, key);
    let (name, version, integrity) = (field("name")?, field("version")?, field("integrity")?);
    let sum = integrity.strip_prefix("sha512-").and_then(|sum| BASE64.decode(sum.as_bytes()).ok());
    let sum = sum.ok_or_else(|| format!("{LIST}: the integrity of {name} is not sha512- and base64: {integrity}"))?;
    let files = package["files"].as_array().into_iter().flatten();
    let licence_file = files.filter(|file| file["original"] == LICENCE).map(|file| text(file, "file")).next();
    let licence_file = licence_file.ok_or_else(|| format!("{LIST}: {name} has no file with its licence"))??;
    let folder = root.join(FOLDER);
    Ok(Component {
        purl: format!("pkg:npm/{name}@{version}"),
        licence: field("license")?,
        repository: Some(field("repository")?),
        checksum: Some(Checksum::Sha512(HEXLOWER.encode(&sum))),
        licence_file: Some(folder.join(licence_file)),
        folder,
        name,
        version,
        ..Component::default()
    })
}
