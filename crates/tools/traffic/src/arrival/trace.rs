//! The instants of a capture: sessions begin when those of recorded traffic began.

use std::path::Path;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};

use crate::law::LawError;
use crate::replay::{Capture, gaps, opening};
use crate::script::{Kind, MethodId};

/// Reads `FILE[,method=METHOD][,speed=N]`: the gaps between the requests that begin something, in nanoseconds. Retransmissions
/// and other hops of the same request, requests inside dialogs and the answers to challenges begin nothing.
pub(super) fn parse(inner: &str) -> Result<Arc<[u64]>, LawError> {
    let wrong = |what: &str| LawError(format!("{what}; a trace is trace(FILE.pcap[,method=INVITE][,speed=2])"));
    let mut parts = inner.split(',').map(str::trim);
    let file = parts.next().filter(|file| !file.is_empty()).ok_or_else(|| wrong("a trace needs a file"))?;
    let (mut method, mut speed) = (None, 1.0);
    for part in parts {
        match part.split_once('=') {
            Some(("method", name)) => {
                let found = MethodId::ALL.into_iter().find(|verb| verb.as_str().eq_ignore_ascii_case(name));
                method = Some(found.ok_or_else(|| wrong(&format!("'{name}' is no method that is known here")))?);
            }
            Some(("speed", number)) => {
                let number = number.parse::<f64>().ok().filter(|number| *number > 0.0 && number.is_finite());
                speed = number.ok_or_else(|| wrong("the speed is a number above zero"))?;
            }
            _ => return Err(wrong(&format!("'{part}' is neither method=… nor speed=…"))),
        }
    }
    let capture = Capture::read(Path::new(file)).map_err(|error| LawError(error.0))?;
    let instants = instants(&capture, method);
    if instants.is_empty() {
        let what = method.map_or("request that begins anything", MethodId::as_str);
        return Err(LawError(format!("{file} has no {what}; skipped in it: {}", capture.skipped)));
    }
    Ok(gaps(&instants, speed).into())
}

/// When sessions began in a capture; of one method, where one is given.
fn instants(capture: &Capture, method: Option<MethodId>) -> Vec<u64> {
    let mut seen = HashSet::with_hasher(FixedState::with_seed(1));
    // By Call-ID and method, the request that was challenged last.
    let mut challenged: HashMap<(&[u8], MethodId), u32, FixedState> = HashMap::with_hasher(FixedState::with_seed(2));
    let mut instants = Vec::new();
    for message in &capture.messages {
        let Some(opening) = opening(message) else { continue };
        match opening.kind {
            Kind::Response(401 | 407) => {
                challenged.insert((opening.call_id, opening.method), opening.number);
            }
            Kind::Request(verb) if verb.takes_number() && !opening.is_in_dialog => {
                let is_first = seen.insert((opening.call_id, verb, opening.number));
                let before = challenged.get(&(opening.call_id, verb));
                let is_answer = opening.has_credentials && before.is_some_and(|before| opening.number > *before);
                if is_first && !is_answer && method.is_none_or(|method| method == verb) {
                    instants.push(message.at);
                }
            }
            _ => {}
        }
    }
    instants
}
