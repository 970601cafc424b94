//! Which web pages may connect (RFC 6455 §10.2).

use std::fmt;

/// The origins of web pages that may open a WebSocket.
///
/// A browser sends the origin of the page and a page cannot change it. So a list keeps scripts of other sites from
/// using a visitor's network or client certificate. Programs outside a browser send no origin or any; they are not
/// restricted by this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedOrigins {
    /// `None`: all.
    listed: Option<Box<[Box<str>]>>,
}

impl AllowedOrigins {
    /// Allows pages of any site.
    #[must_use]
    pub fn any() -> Self {
        Self { listed: None }
    }

    /// Allows the listed origins, such as `https://phone.example.com`; `*` allows all. An empty list allows no browser.
    ///
    /// # Errors
    /// An entry that no browser would send; it would never match.
    pub fn new<'a>(list: impl IntoIterator<Item = &'a str>) -> Result<Self, OriginError> {
        let mut listed = Vec::new();
        let mut is_any = false;
        for entry in list {
            is_any |= entry == "*";
            if entry != "*" {
                check_entry(entry)?;
                listed.push(entry.into());
            }
        }
        Ok(Self { listed: (!is_any).then(|| listed.into_boxed_slice()) })
    }

    /// Returns whether a request with this Origin may open a WebSocket.
    #[must_use]
    pub fn allows(&self, origin: Option<&[u8]>) -> bool {
        match (&self.listed, origin) {
            (None, _) | (_, None) => true,
            (Some(list), Some(origin)) => list.iter().any(|entry| entry.as_bytes().eq_ignore_ascii_case(origin)),
        }
    }
}

/// Checks for `scheme://host` or `scheme://host:port` without the scheme's default port, which browsers omit.
fn check_entry(entry: &str) -> Result<(), OriginError> {
    if entry == "null" {
        return Ok(());
    }
    let Some((scheme, host)) = entry.split_once("://") else { return Err(OriginError::Scheme(entry.into())) };
    let is_default = |port: &str, of: &str| scheme.eq_ignore_ascii_case(of) && host.ends_with(port);
    if scheme.is_empty() || host.is_empty() {
        Err(OriginError::Scheme(entry.into()))
    } else if !entry.bytes().all(|byte| byte.is_ascii_graphic()) || host.contains(['/', '?', '#', '@', '*', ',']) {
        Err(OriginError::NotOnlyHost(entry.into()))
    } else if is_default(":443", "https") || is_default(":80", "http") {
        Err(OriginError::DefaultPort(entry.into()))
    } else {
        Ok(())
    }
}

/// Why a configured origin would never match. The operator has to correct it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OriginError {
    /// The scheme is missing.
    Scheme(Box<str>),
    /// Something other than a host and a port follows the scheme.
    NotOnlyHost(Box<str>),
    /// The port is the scheme's default.
    DefaultPort(Box<str>),
}

impl fmt::Display for OriginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scheme(entry) => write!(f, "origin {entry:?} has no scheme: write it as https://phone.example.com"),
            Self::NotOnlyHost(entry) => {
                write!(f, "origin {entry:?} is more than scheme, host and port: write it as https://phone.example.com")
            }
            Self::DefaultPort(entry) => {
                write!(f, "origin {entry:?} names the default port, which browsers omit: remove the port")
            }
        }
    }
}

impl std::error::Error for OriginError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_pages_may_connect() {
        let list = AllowedOrigins::new(["https://phone.example.com", "http://[::1]:8080"]).expect("valid");
        assert!(list.allows(Some(b"https://phone.example.com")) && list.allows(Some(b"HTTP://[::1]:8080")));
        assert!(list.allows(None), "not a browser");
        for other in ["https://evil.example", "http://phone.example.com", "https://phone.example.com:444", "null", ""] {
            assert!(!list.allows(Some(other.as_bytes())), "{other}");
        }
        assert!(!AllowedOrigins::new([]).expect("valid").allows(Some(b"https://phone.example.com")));
        assert!(AllowedOrigins::new(["null", "*"]).expect("valid").allows(Some(b"https://any.example")));
        assert!(AllowedOrigins::any().allows(Some(b"null")));
    }

    #[test]
    fn entries_that_never_match_are_refused() {
        for (entry, expected) in [
            ("phone.example.com", "no scheme"),
            ("://x", "no scheme"),
            ("https://", "no scheme"),
            ("https://phone.example.com/", "more than"),
            ("https://*.example.com", "more than"),
            ("https://a b", "more than"),
            ("https://phone.example.com:443", "default port"),
            ("HTTP://phone.example.com:80", "default port"),
        ] {
            let error = AllowedOrigins::new([entry]).expect_err(entry).to_string();
            assert!(error.contains(expected) && error.contains(entry), "{error}");
        }
        assert!(AllowedOrigins::new(["http://x:443", "https://x:80", "https://[::443]"]).is_ok());
    }
}
