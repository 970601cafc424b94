//! Protection against web pages: a page of another site must neither call the API nor show it.
//!
//! A page whose name's address was changed to ours in the DNS (rebinding) sends its own name as Host. So Host has to be
//! an address or a name that only we decide about.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use crate::problem::Problem;
use crate::shared::Shared;

/// Header fields of every answer that has no such field of its own.
const FIELDS: [(HeaderName, &str); 6] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (header::CACHE_CONTROL, "no-store"),
];

/// Checks Host and Origin, and adds header fields for browsers.
pub(crate) async fn protect(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let mut response = match check(request.headers(), request.uri(), &shared.backend.hosts()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    for (name, value) in FIELDS {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

fn check(headers: &HeaderMap, uri: &Uri, names: &[String]) -> Result<(), Problem> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    // A request may also name the host in its first line (RFC 9112 §3.2.2).
    let host = uri.authority().map(Authority::as_str).or_else(|| text(header::HOST));
    let Some(host) = host.filter(|_| headers.get_all(header::HOST).iter().count() < 2) else {
        return Err(Problem::new(StatusCode::BAD_REQUEST, "the request needs one Host field"));
    };
    if !is_allowed_host(host, names) {
        let why = "this server is not known under the name in Host; use its address, or add the name to admin.hosts";
        return Err(Problem::new(StatusCode::FORBIDDEN, why));
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    if origin.is_some_and(|(_, from)| from.eq_ignore_ascii_case(host)) {
        return Ok(());
    }
    Err(Problem::new(StatusCode::FORBIDDEN, "pages of other sites may not use this server"))
}

/// Whether a server with these names may be addressed by this Host.
#[must_use]
pub(crate) fn is_allowed_host(host: &str, names: &[String]) -> bool {
    let without_port = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let is_address = match without_port.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(address) => matches!(address.parse(), Ok(IpAddr::V6(_))),
        None => matches!(without_port.parse(), Ok(IpAddr::V4(_))),
    };
    let name = without_port.strip_suffix('.').unwrap_or(without_port);
    is_address || name.eq_ignore_ascii_case("localhost") || names.iter().any(|own| own.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_an_address_or_a_known_name() {
        let names = ["sip.example.com".to_owned()];
        for good in [
            "127.0.0.1",
            "127.0.0.1:8060",
            "[::1]:8060",
            "[::1]",
            "192.0.2.1:1",
            "localhost:8060",
            "LOCALHOST",
            "localhost.",
            "sip.example.com",
            "SIP.example.com:443",
        ] {
            assert!(is_allowed_host(good, &names), "{good}");
        }
        for bad in [
            "",
            ":8060",
            "evil.example",
            "evil.example:8060",
            "127.0.0.1.evil.example",
            "sip.example.com.evil.example",
            "localhost@evil.example",
            "::1",
            "[127.0.0.1]",
            "[evil]",
            "127.0.0.1:x",
        ] {
            assert!(!is_allowed_host(bad, &names), "{bad}");
        }
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        let checked = |fields: &[(&str, &str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in fields {
                headers.append(HeaderName::try_from(*name).expect("a name"), value.parse().expect("a value"));
            }
            check(&headers, &Uri::from_static("/"), &[]).map_or_else(|problem| problem.status, |()| 200)
        };
        let host = ("host", "127.0.0.1:8060");
        assert_eq!(checked(&[host]), 200);
        assert_eq!(checked(&[host, ("origin", "http://127.0.0.1:8060")]), 200);
        assert_eq!(checked(&[host, ("origin", "https://127.0.0.1:8060")]), 200);
        for origin in ["http://evil.example", "http://127.0.0.1:8061", "http://localhost:8060", "null", ""] {
            assert_eq!(checked(&[host, ("origin", origin)]), 403, "{origin}");
        }
        assert_eq!(checked(&[("host", "evil.example"), ("origin", "http://evil.example")]), 403);
        assert_eq!(checked(&[]), 400);
        assert_eq!(checked(&[host, ("host", "localhost")]), 400);
    }
}
