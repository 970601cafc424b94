//! Runs every file of the fuzz corpus through its target, as a regression test for what fuzzing found.

#[path = "../../../../fuzz/src/api_bodies.rs"]
#[allow(unreachable_pub, reason = "shared with the fuzz targets, where it is a library's module")]
mod api_bodies;

use std::fs;
use std::path::Path;

#[test]
fn every_corpus_file_passes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus/api");
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let replayed =
        entries.map(|entry| api_bodies::api(&fs::read(entry.expect("listed").path()).expect("a file"))).count();
    assert!(replayed > 0, "the corpus is empty");
}
