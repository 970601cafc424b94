//! `cargo xtask notices`: the licences of everything in the binary, with their texts.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::component::Component;
use crate::components::Contents;

/// Beginnings of the names of files with licences, in lower case.
const NAMES: [&str; 6] = ["license", "licence", "copying", "notice", "unlicense", "copyright"];
/// Maximum number of folders between a bundled source and its licence.
const MAX_ABOVE: usize = 2;

/// Returns a list of the components, and then each text once, with the components that it is for.
///
/// # Errors
/// A component has no text of its licence; the text says which.
pub(crate) fn text(root: &Path, contents: &Contents) -> Result<String, String> {
    let mut printed = String::from("Strowger contains the libraries below. Their licences follow.\n\n");
    let mut holders: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for component in &contents.components {
        let name = format!("{} {}", component.name, component.version);
        printed.push_str(&format!("{name}: {}\n", component.licence));
        for licence in texts(root, component)? {
            holders.entry(licence).or_default().push(name.clone());
        }
    }
    for (licence, names) in holders {
        printed.push_str(&format!("\n{}\n{}\n\n{licence}\n", "-".repeat(79), names.join(", ")));
    }
    Ok(printed)
}

/// Returns the texts of a component's licence.
fn texts(root: &Path, component: &Component) -> Result<Vec<String>, String> {
    // The public domain has no text.
    if component.licence == "blessing" {
        return Ok(vec![format!("{} is in the public domain.", component.name)]);
    }
    if let Some(file) = &component.licence_file {
        let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        return Ok(vec![tidy(&text)]);
    }
    let is_bundled = !component.purl.starts_with("pkg:cargo/");
    let folders = component.folder.ancestors().take(if is_bundled { MAX_ABOVE + 1 } else { 1 });
    if let Some(found) = folders.map(licences_in).find(|found| !found.is_empty()) {
        return Ok(found);
    }
    match component.licence.as_str() {
        "MIT" | "MIT OR Apache-2.0" | "Apache-2.0 OR MIT" => {
            let own = root.join("LICENSE-MIT");
            let text = fs::read_to_string(&own).map_err(|error| format!("{}: {error}", own.display()))?;
            let body = text.split_once("\n\nPermission").map_or("", |(_, body)| body);
            let holders =
                if component.authors.is_empty() { "its authors".to_owned() } else { component.authors.join(", ") };
            Ok(vec![tidy(&format!("MIT License\n\nCopyright (c) {holders}\n\nPermission{body}"))])
        }
        other => Err(format!(
            "{} {} ({other}) has no file with its licence in {}; print its text in notices.rs",
            component.name,
            component.version,
            component.folder.display()
        )),
    }
}

fn licences_in(folder: &Path) -> Vec<String> {
    let mut paths: Vec<_> = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let is_licence = |path: &&std::path::PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        path.is_file() && NAMES.iter().any(|start| name.starts_with(start))
    };
    paths.iter().filter(is_licence).filter_map(|path| fs::read_to_string(path).ok()).map(|text| tidy(&text)).collect()
}

/// Removes differences that nobody sees, so that equal texts are printed once.
fn tidy(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_component_has_a_text() {
        let root = crate::root();
        let contents =
            crate::components::read(&root, &["--features".to_owned(), "ebpf".to_owned()]).expect("cargo runs");
        let printed = text(&root, &contents).expect("every licence has a text");
        for expected in
            ["\ntokio 1.", ": MIT OR Apache-2.0\n", "sqlite is in the public domain.", "TERMS AND CONDITIONS"]
        {
            assert!(printed.contains(expected), "{expected}");
        }
        for (name, holder) in [("mimalloc", "Daan Leijen"), ("preact", "Jason Miller"), ("uplot", "Leon Sorokin")] {
            assert!(printed.contains(holder), "{name}'s licence");
        }
        assert!(
            printed.contains("\nhtm 3.") && printed.contains("\npreact 11."),
            "the administration page's libraries"
        );
    }

    #[test]
    fn a_component_without_a_text_is_named() {
        let component = Component { name: "lost".to_owned(), licence: "ISC".to_owned(), ..Component::default() };
        let error = texts(&crate::root(), &component).expect_err("there is no file");
        assert!(error.starts_with("lost ") && error.contains("ISC"), "{error}");
    }
}
