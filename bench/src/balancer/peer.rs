//! The balancer processes.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use super::contender::{Contender, ExtraConfig, Layout};
use super::{BALANCER, ITS};
use crate::proxy::peer::{RunningServer, launch};

/// Shared memory of Kamailio's processes, in MiB: more than its calls need at saturation, and enough for a million
/// calls.
pub const SHARED_MIB: u32 = 8_192;

/// Starts a balancer in front of targets, in its own folder, and waits until it answers. `before` is a command
/// prefix; if it is empty, the balancer is pinned to its core.
///
/// # Errors
/// If it cannot be started or exits. The error includes the end of its log.
pub fn start(
    contender: Contender,
    (binary, folder): (&Path, &Path),
    layout: Layout,
    more: &ExtraConfig,
    before: &[&str],
) -> Result<RunningServer, String> {
    let wrong = |error: std::io::Error| error.to_string();
    let words: Vec<OsString> = match contender.algorithm() {
        None => {
            fs::write(folder.join("strowger.toml"), contender.configuration(layout, more)).map_err(wrong)?;
            vec![binary.into(), "serve".into(), "-c".into(), "strowger.toml".into()]
        }
        Some(algorithm) => {
            let list = folder.join("dispatcher.list");
            fs::write(&list, contender.list(layout)).map_err(wrong)?;
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("kamailio/dispatcher.cfg");
            let memory = SHARED_MIB.to_string();
            // -DD keeps the first process in the foreground, so that it and its children can be found and ended.
            let words = ["kamailio", "-DD", "-E", "-x", "fm", "-X", "fm", "-m", &memory, "-M", "64", "-f"];
            let mut words: Vec<OsString> = words.iter().map(OsString::from).collect();
            words.extend([file.into(), "-Y".into(), folder.into(), "-l".into(), format!("udp:{BALANCER}").into()]);
            words.extend(["-A".into(), format!("ALGORITHM={algorithm}").into()]);
            words.extend(["-A".into(), format!("LIST=\"{}\"", list.display()).into()]);
            if contender == Contender::KamailioCallLoad {
                words.extend(["-A".into(), "CALL_LOAD".into()]);
            }
            words
        }
    };
    let its_core = ["taskset", "-c", ITS];
    let before = if before.is_empty() { &its_core[..] } else { before };
    launch(before, words, folder, BALANCER)
}
