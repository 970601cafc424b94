//! The files of the page.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::LazyLock;

use axum::body::Bytes;
use data_encoding::HEXLOWER;
use flate2::Compression;
use flate2::write::GzEncoder;
use rust_embed::RustEmbed;
use sha2::{Digest as _, Sha256};

#[derive(RustEmbed)]
#[folder = "web/"]
struct Embedded;

/// The page itself. The other files are its assets.
const INDEX: &str = "index.html";
/// Stands in the page for [`Files::build`].
const BUILD: &str = "BUILD";
/// Stands in the page for the list of its modules. A browser would otherwise find each one only after it has read the
/// module that imports it.
const PRELOADS: &str = "PRELOADS";
/// Scripts that the page loads before its modules.
const NO_MODULES: [&str; 2] = ["theme.js", "vendor/uplot.js"];

/// All files, compressed at the first request.
pub(crate) static FILES: LazyLock<Files> = LazyLock::new(Files::read);

/// The page and its assets.
pub(crate) struct Files {
    /// The page.
    pub(crate) index: File,
    /// Names this set of files in the addresses of the assets, so that browsers may keep each forever.
    pub(crate) build: String,
    assets: BTreeMap<String, File>,
}

/// A file as it is served.
pub(crate) struct File {
    pub(crate) content_type: &'static str,
    /// SHA-256 of the content in hexadecimal.
    pub(crate) hash: String,
    pub(crate) plain: Bytes,
    /// The content as gzip; none if that is not smaller.
    pub(crate) gzip: Option<Bytes>,
}

impl Files {
    fn read() -> Self {
        let names = Embedded::iter().filter(|name| name != INDEX);
        let assets: BTreeMap<String, File> = names
            .filter_map(|name| {
                let content = Embedded::get(&name)?.data;
                Some((name.to_string(), File::new(&name, content.into_owned())))
            })
            .collect();
        let build = build(&assets);
        let page = Embedded::get(INDEX).map(|page| page.data.into_owned()).unwrap_or_default();
        let page = String::from_utf8_lossy(&page).replace(PRELOADS, &preloads(&assets)).replace(BUILD, &build);
        Self { index: File::new(INDEX, page.into_bytes()), build, assets }
    }

    /// Returns the asset with this name, such as `views/users.js`.
    pub(crate) fn asset(&self, name: &str) -> Option<&File> {
        self.assets.get(name)
    }
}

impl File {
    fn new(name: &str, content: Vec<u8>) -> Self {
        let gzip = gzip(&content).filter(|gzip| gzip.len() < content.len());
        Self {
            content_type: content_type(name),
            hash: HEXLOWER.encode(&Sha256::digest(&content)),
            plain: content.into(),
            gzip: gzip.map(Bytes::from),
        }
    }
}

/// Returns a name that changes with every asset.
fn build(assets: &BTreeMap<String, File>) -> String {
    let mut all = Sha256::new();
    for (name, file) in assets {
        all.update(format!("{name} {}\n", file.hash));
    }
    HEXLOWER.encode(&all.finalize()[..8])
}

fn preloads(assets: &BTreeMap<String, File>) -> String {
    let is_module = |name: &&String| content_type(name) == SCRIPT && !NO_MODULES.contains(&name.as_str());
    let link = |name: &String| format!("<link rel=\"modulepreload\" href=\"/assets/{BUILD}/{name}\">");
    assets.keys().filter(is_module).map(link).collect::<Vec<_>>().join("\n  ")
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

fn content_type(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js" | "mjs") => SCRIPT,
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    }
}

fn gzip(content: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(content).ok()?;
    encoder.finish().ok()
}
