//! Warnings about the files that the server writes: who can read them, and whether the server can.

use std::fs::{self, Metadata};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use strowger_control::config::Config;

/// Permissions of everybody to read, and to write.
const OTHERS_READ: u32 = 0o004;
const OTHERS_WRITE: u32 = 0o002;
/// Permission of everybody to use what is in a folder.
const OTHERS_ENTER: u32 = 0o001;
/// Maximum number of files that are looked at: a folder that was named by mistake may have any number.
const MAX_FILES: usize = 10_000;

/// Returns warnings: each a key and the problem with its remedy. What does not exist yet, or cannot be seen by this user, is no
/// subject here.
pub(super) fn warnings(config: &Config) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let data = &config.server.data;
    if let Ok(folder) = fs::metadata(data)
        && folder.is_dir()
    {
        found.extend(of_data(config, &folder).into_iter().map(|what| ("server.data".to_owned(), what)));
    }
    if let Some(file) = &config.cdr.file
        && fs::metadata(file).is_ok_and(|one| one.is_file() && has(&one, OTHERS_READ))
    {
        let file = file.display();
        let what = format!("every user of this machine can read who called whom in {file}; chmod o= {file}");
        found.push(("cdr.file".to_owned(), what));
    }
    found
}

fn of_data(config: &Config, folder: &Metadata) -> Vec<String> {
    let data = config.server.data.display();
    let mut found = Vec::new();
    if has(folder, OTHERS_WRITE) {
        found.push(format!("every user of this machine can replace the files in {data}; chmod o-w {data}"));
    }
    let files: Vec<(PathBuf, Metadata)> = written_by_server(config);
    // The key has a warning of its own.
    let is_exposed = |path: &Path, one: &Metadata| path != config.key_file() && has(one, OTHERS_READ);
    let exposed = files.iter().filter(|(path, one)| one.is_file() && is_exposed(path, one));
    if has(folder, OTHERS_ENTER)
        && let Some((more, path)) = first_of(exposed)
    {
        found.push(format!(
            "every user of this machine can read {}{more}, which has secrets; chmod -R o= {data}",
            path.display()
        ));
    }
    let foreign = files.iter().filter(|(_, one)| one.uid() != folder.uid());
    if let Some((more, path)) = first_of(foreign) {
        found.push(format!(
            "{}{more} does not belong to the owner of {data}, the server's user, who may be unable to write it; chown -R \
             --reference={data} {data}",
            path.display()
        ));
    }
    found
}

/// Returns the files of the data folder and of the journal.
fn written_by_server(config: &Config) -> Vec<(PathBuf, Metadata)> {
    let in_folder = |folder: &Path| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.filter_map(|entry| Some((entry.path(), entry.metadata().ok()?))).collect::<Vec<_>>()
    };
    let mut found = in_folder(&config.server.data);
    found.extend(in_folder(&config.journal_folder()));
    found.truncate(MAX_FILES);
    // What else is there is not the server's.
    found.retain(|(path, one)| one.is_file() || one.is_dir() && *path == config.journal_folder());
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    found
}

fn has(one: &Metadata, permission: u32) -> bool {
    one.permissions().mode() & permission != 0
}

/// Returns the first path, and how many more there are as text.
fn first_of<'a>(files: impl Iterator<Item = &'a (PathBuf, Metadata)>) -> Option<(String, &'a Path)> {
    let mut files = files.map(|(path, _)| path.as_path());
    let first = files.next()?;
    let more = match files.count() {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    Some((more, first))
}
