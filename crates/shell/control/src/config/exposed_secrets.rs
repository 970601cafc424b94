//! Warnings about secrets that other users of the machine can read.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use toml::Value;

use super::{Config, DEFAULT_FILE};

/// Permission of everybody to read.
const OTHERS_READ: u32 = 0o004;

/// Names of keys whose values are secrets.
const SECRETS: [&str; 2] = ["password", "auth_key"];

/// The table whose values may all be secrets: headers that a collector wants.
const HEADERS: &str = "trace.otlp.headers";

impl Config {
    /// Returns warnings about secrets that everybody can read, in the configuration `file` (the default one if none) or in
    /// files that it names: each a key and the problem with its remedy. Files that do not exist or cannot be read are no
    /// subject here.
    #[must_use]
    pub fn exposure_warnings(&self, file: Option<&Path>) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let file = file.unwrap_or(Path::new(DEFAULT_FILE));
        if is_exposed(file)
            && let Some(key) = fs::read_to_string(file).ok().and_then(|text| first_secret(&text))
        {
            let shown = file.display();
            let what = format!("every user of this machine can read this secret; chmod o= {shown}");
            found.push((key, what));
        }
        let mut tell = |key: String, path: &Path| {
            if is_exposed(path) {
                let shown = path.display();
                found.push((key, format!("every user of this machine can read {shown}; chmod o= {shown}")));
            }
        };
        tell("server.key_file".to_owned(), &self.key_file());
        if let Some(path) = &self.trace.hep.auth_key_file {
            tell("trace.hep.auth_key_file".to_owned(), path);
        }
        for (index, trunk) in self.trunks.iter().enumerate() {
            if let Some(path) = &trunk.password_file {
                tell(format!("trunk[{index}].password_file"), path);
            }
        }
        found
    }
}

/// Whether everybody can read a file.
fn is_exposed(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & OTHERS_READ != 0)
}

/// Returns the key of the first secret in a configuration: one of [`SECRETS`], a header, or a URL with a password.
fn first_secret(text: &str) -> Option<String> {
    secret_in(&Value::Table(text.parse().ok()?), "")
}

fn secret_in(value: &Value, key: &str) -> Option<String> {
    match value {
        Value::Table(table) => table.iter().find_map(|(name, value)| {
            let inner = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
            let is_secret = SECRETS.contains(&name.as_str()) || key == HEADERS;
            let is_set = value.as_str().is_some_and(|text| !text.is_empty());
            if is_secret && is_set { Some(inner) } else { secret_in(value, &inner) }
        }),
        Value::Array(items) => {
            items.iter().enumerate().find_map(|(index, item)| secret_in(item, &format!("{key}[{index}]")))
        }
        Value::String(text) => has_password(text).then(|| key.to_owned()),
        _ => None,
    }
}

/// Whether a text is a URL with a password: `scheme://user:password@host`.
fn has_password(text: &str) -> bool {
    let Some((_, rest)) = text.split_once("://") else { return false };
    let Some((user, _)) = rest.rsplit_once('@') else { return false };
    user.split_once(':').is_some_and(|(_, password)| !password.is_empty())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn warnings(folder: &Path, text: &str, mode: u32) -> Vec<String> {
        let file: PathBuf = folder.join("strowger.toml");
        fs::write(&file, text).expect("our folder");
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("our file");
        let (config, _) = Config::load(Some(&*file)).expect("a configuration");
        config.exposure_warnings(Some(&file)).into_iter().map(|(key, _)| key).collect()
    }

    #[test]
    fn secrets_that_everybody_can_read_are_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = folder.path();
        let data = format!("[server]\ndata = \"{}/data\"\n", at.display());
        let trunk = "[[trunk]]\nname = \"carrier\"\ntargets = [\"sip:192.0.2.1\"]\nusername = \"u\"\n";
        let password = format!("{data}{trunk}password = \"hush\"\n");
        assert_eq!(warnings(at, &password, 0o644), ["trunk[0].password"]);
        assert_eq!(warnings(at, &password, 0o640), [""; 0]);
        assert_eq!(warnings(at, &data, 0o644), [""; 0], "no secret");
        let url = format!("{data}[cdr]\ndatabase = [\"postgresql://u:hush@192.0.2.1/calls\"]\n");
        assert_eq!(warnings(at, &url, 0o644), ["cdr.database[0]"]);
        let hep = format!("{data}[trace.hep]\nto = \"udp:192.0.2.1:9060\"\nauth_key = \"hush\"\n");
        assert_eq!(warnings(at, &hep, 0o644), ["trace.hep.auth_key"]);
        let otlp = "[trace.otlp]\nto = \"http://192.0.2.1:4318\"\nheaders = { x-key = \"hush\" }\n";
        assert_eq!(warnings(at, &format!("{data}{otlp}"), 0o644), ["trace.otlp.headers.x-key"]);
        let harmless = format!("{data}[cdr]\ndatabase = [\"postgresql://u@192.0.2.1/calls\"]\n");
        assert_eq!(warnings(at, &harmless, 0o644), [""; 0]);
        let file = at.join("password");
        fs::write(&file, "hush\n").expect("our folder");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("our file");
        let named = format!("{data}{trunk}password_file = \"{}\"\n", file.display());
        assert_eq!(warnings(at, &named, 0o644), ["trunk[0].password_file"]);
    }
}
