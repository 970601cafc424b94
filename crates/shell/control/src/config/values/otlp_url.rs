//! The address of a collector of OpenTelemetry.

use std::fmt;
use std::str::FromStr;

use strowger_message::HostPort;

/// URL of a collector, such as `http://127.0.0.1:4318`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtlpUrl {
    /// Host and port.
    pub authority: String,
    /// Path of requests. Default: `/v1/traces`.
    pub path: String,
}

const DEFAULT_PORT: u16 = 4318;
const DEFAULT_PATH: &str = "/v1/traces";

impl FromStr for OtlpUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fault = |what: &str| format!("{text:?} {what}; write a URL such as \"http://127.0.0.1:4318\"");
        if text.starts_with("https:") {
            return Err(fault("is not supported: run a collector on this machine, which sends over TLS"));
        }
        let rest = text.strip_prefix("http://").ok_or_else(|| fault("does not begin with http://"))?;
        let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        if authority.contains('@') {
            return Err("a URL with a password is not supported; write trace.otlp.headers".to_owned());
        }
        let place = HostPort::parse(authority.as_bytes()).ok_or_else(|| fault("has no host name or address"))?;
        let authority = match place.port {
            Some(_) => authority.to_owned(),
            None => format!("{authority}:{DEFAULT_PORT}"),
        };
        if !path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
            return Err(fault("has a path with spaces or other characters that are not allowed"));
        }
        // As the specification of OTLP says: a base URL gets the path of the signal.
        let path = if path.trim_end_matches('/').is_empty() { DEFAULT_PATH } else { path };
        Ok(Self { authority, path: path.to_owned() })
    }
}

impl fmt::Display for OtlpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_get_the_port_and_path_of_otlp() {
        for (written, meant) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("http://tempo.example.com", "http://tempo.example.com:4318/v1/traces"),
            ("http://[2001:db8::1]/", "http://[2001:db8::1]:4318/v1/traces"),
            ("http://gateway:80/otlp/v1/traces", "http://gateway:80/otlp/v1/traces"),
        ] {
            assert_eq!(written.parse::<OtlpUrl>().map(|url| url.to_string()).as_deref(), Ok(meant));
        }
        for (bad, told) in [
            ("https://tempo.example.com", "sends over TLS"),
            ("127.0.0.1:4318", "does not begin with http://"),
            ("http://", "has no host"),
            ("http://me:secret@tempo", "trace.otlp.headers"),
            ("http://tempo/a b", "has a path"),
        ] {
            let error = bad.parse::<OtlpUrl>().expect_err(bad);
            assert!(error.contains(told) && !error.contains("secret"), "{bad}: {error}");
        }
    }
}
