//! Times from a capture: sessions begin when those of the recorded traffic began.

use std::path::Path;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};

use crate::law::LawError;
use crate::replay::{Capture, gaps, opening};
use crate::script::{Kind, MethodId};

/// Parses `FILE[,method=METHOD][,speed=N]` and returns the gaps between requests that begin something, in
/// nanoseconds. Retransmissions, other hops of the same request, requests inside dialogs, and answers to challenges
/// do not count.
pub(super) fn parse(inner: &str) -> Result<Arc<[u64]>, LawError> {
    let wrong = |what: &str| LawError(format!("{what}; a trace is trace(FILE.pcap[,method=INVITE][,speed=2])"));
    let mut parts = inner.split(',').map(str::trim);
    let file = parts.next().filter(|file| !file.is_empty()).ok_or_else(|| wrong("a trace needs a file"))?;
    let (mut method, mut speed) = (None, 1.0);
    for part in parts {
        match part.split_once('=') {
            Some(("method", name)) => {
                let found = MethodId::ALL.into_iter().find(|verb| verb.as_str().eq_ignore_ascii_case(name));
                method = Some(found.ok_or_else(|| wrong(&format!("'{name}' is not a known method")))?);
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
        let what = method.map_or("initial request", MethodId::as_str);
        return Err(LawError(format!("{file} has no {what}; skipped: {}", capture.skipped)));
    }
    Ok(gaps(&instants, speed).into())
}

/// Returns when sessions began in a capture; only those of one method, if one is given.
fn instants(capture: &Capture, method: Option<MethodId>) -> Vec<u64> {
    let mut seen = HashSet::with_hasher(FixedState::with_seed(1));
    // CSeq of the request that was challenged last, by Call-ID and method.
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
