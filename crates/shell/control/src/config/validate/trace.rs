//! Constraints of `[trace]`.

use super::{count, text_fits};
use crate::config::error::Fault;
use crate::config::{Config, Hep, Otlp, Trace};

/// Maximum number of methods that are not traced.
const MAX_METHODS: usize = 32;
/// Maximum length of a name or key, in bytes.
const MAX_TEXT: usize = 255;
/// Maximum number of header fields of a request, and of a value's length.
const MAX_HEADERS: usize = 16;
const MAX_HEADER: usize = 4096;
/// Header fields that the server writes.
const OWN_HEADERS: [&str; 6] =
    ["Host", "Content-Type", "Content-Length", "Transfer-Encoding", "Connection", "User-Agent"];

impl Config {
    pub(super) fn validate_trace(&self) -> Result<(), Fault> {
        let Trace { node, hep, otlp } = &self.trace;
        if node.as_ref().is_some_and(|node| !text_fits(node, MAX_TEXT)) {
            return Err(Fault::new("trace.node", format!("is not one line of 1 to {MAX_TEXT} bytes; shorten it")));
        }
        validate_hep(hep)?;
        validate_otlp(otlp)
    }
}

fn validate_hep(hep: &Hep) -> Result<(), Fault> {
    if hep.to.is_none() && *hep != Hep::default() {
        let message = "the section has no collector; give its address, such as \"udp:192.0.2.60:9060\"";
        return Err(Fault::new("trace.hep.to", message));
    }
    count("trace.hep.except", hep.except.len(), MAX_METHODS)?;
    if hep.auth_key.is_some() && hep.auth_key_file.is_some() {
        return Err(Fault::new("trace.hep.auth_key_file", "auth_key is also given; remove one of them"));
    }
    if hep.auth_key.as_ref().is_some_and(|key| !text_fits(key.expose(), MAX_TEXT)) {
        return Err(Fault::new("trace.hep.auth_key", format!("is not one line of 1 to {MAX_TEXT} bytes; correct it")));
    }
    share("trace.hep.sample", hep.sample)
}

fn validate_otlp(otlp: &Otlp) -> Result<(), Fault> {
    if otlp.to.is_none() && *otlp != Otlp::default() {
        let message = "the section has no collector; give its URL, such as \"http://127.0.0.1:4318\"";
        return Err(Fault::new("trace.otlp.to", message));
    }
    if !text_fits(&otlp.service, MAX_TEXT) {
        return Err(Fault::new("trace.otlp.service", format!("is not one line of 1 to {MAX_TEXT} bytes; shorten it")));
    }
    count("trace.otlp.headers", otlp.headers.len(), MAX_HEADERS)?;
    let is_token =
        |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    for (name, value) in &otlp.headers {
        if !is_token(name) || !text_fits(value.expose(), MAX_HEADER) || !value.expose().is_ascii() {
            let message = format!("{name:?} is not a header field with one line of 1 to {MAX_HEADER} ASCII characters");
            return Err(Fault::new("trace.otlp.headers", message + "; correct it"));
        }
        if OWN_HEADERS.iter().any(|own| own.eq_ignore_ascii_case(name)) {
            return Err(Fault::new("trace.otlp.headers", format!("{name} is set by the server itself; remove it")));
        }
    }
    share("trace.otlp.sample", otlp.sample)
}

fn share(key: &str, share: f64) -> Result<(), Fault> {
    if (0.0..=1.0).contains(&share) {
        return Ok(());
    }
    Err(Fault::new(key, format!("{share} is not a share from 0 to 1; write 0.1 for every tenth call")))
}
