//! Runs every file of the fuzz corpora through its target, as a regression test for what fuzzing found.

#![expect(clippy::disallowed_macros, reason = "a test says what it skipped and how much it compared")]

#[path = "../../../../fuzz/src/bodies.rs"]
#[allow(unreachable_pub, dead_code, reason = "shared with the fuzz targets, where it is a library's module")]
mod bodies;

use std::fs;
use std::path::Path;

#[test]
fn every_corpus_file_passes() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus");
    for (target, body) in bodies::ALL {
        let folder = corpora.join(target);
        let mut replayed = 0;
        for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.expect("a folder can be listed").path();
            let data = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            println!("{}", path.display());
            body(&data);
            replayed += 1;
        }
        assert!(replayed > 0, "the corpus of {target} is empty");
    }
}

/// Runs each file through every other target too: input that is unusual for one parser is unusual for others.
#[test]
fn corpus_files_pass_all_targets() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus");
    for folder in fs::read_dir(corpora).expect("the corpora are checked in") {
        for file in fs::read_dir(folder.expect("listed").path()).expect("a folder") {
            let data = fs::read(file.expect("listed").path()).expect("a file");
            bodies::ALL.iter().for_each(|(_, body)| body(&data));
        }
    }
}
