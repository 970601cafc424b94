//! Files of the repository with their contents.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Text file.
#[derive(Debug)]
pub(crate) struct File {
    /// Path from the root, with `/`.
    pub path: String,
    /// Content.
    pub text: String,
}

/// Folders that are never part of the repository.
const NOT_OURS: [&str; 3] = ["target", ".git", "data"];

/// Returns every text file that is in the repository or would be after `git add`; without git, every file that is not
/// a build product.
///
/// # Errors
/// The folder cannot be read; the text says why.
pub(crate) fn read_all(root: &Path) -> Result<Vec<File>, String> {
    let mut paths = listed_by_git(root).map_or_else(|| walked(root), Ok)?;
    paths.sort();
    let text = |path: String| fs::read_to_string(root.join(&path)).ok().map(|text| File { path, text });
    Ok(paths.into_iter().filter_map(text).collect())
}

fn listed_by_git(root: &Path) -> Option<Vec<String>> {
    if !root.join(".git").exists() {
        return None;
    }
    let listing = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").args(listing).current_dir(root).output().ok()?;
    let names = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| names.split_terminator('\0').map(str::to_owned).collect())
}

fn walked(root: &Path) -> Result<Vec<String>, String> {
    let mut paths = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        for entry in entries.flatten() {
            let path = entry.path();
            let name = entry.file_name();
            if path.is_dir() && !NOT_OURS.iter().any(|other| name == *other) {
                folders.push(path);
            } else if path.is_file()
                && let Ok(relative) = path.strip_prefix(root)
            {
                paths.push(relative.to_string_lossy().replace('\\', "/"));
            }
        }
    }
    Ok(paths)
}
