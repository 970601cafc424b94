//! Runs every file of the fuzz corpora through its target, as a regression test for what fuzzing found.

#[path = "../../../../fuzz/src/wire_bodies.rs"]
#[allow(unreachable_pub, dead_code, reason = "shared with the fuzz targets, where it is a library's module")]
mod wire_bodies;

use std::fs;
use std::path::Path;

#[test]
fn every_corpus_file_passes() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus");
    for (target, body) in wire_bodies::ALL {
        let folder = corpora.join(target);
        let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let replayed = entries.map(|entry| body(&fs::read(entry.expect("listed").path()).expect("a file"))).count();
        assert!(replayed > 0, "the corpus of {target} is empty");
    }
}
