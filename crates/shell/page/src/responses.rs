//! Responses with a file: caching, compression and what a browser may do with the page.

use axum::extract::Path;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::files::{FILES, File};

/// What a browser may load: scripts, styles, pictures and data of this server only, no script or style within the page,
/// and no text that becomes markup (trusted types). Nobody may show the page in a frame.
const POLICY: &str = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";
/// The page is asked for each time; its answer is short if it has not changed.
const ASK_EACH_TIME: &str = "no-cache";
/// The address of an asset changes with its content.
const KEEP: &str = "public, max-age=31536000, immutable";

pub(crate) async fn index(headers: HeaderMap) -> Response {
    serve(&FILES.index, ASK_EACH_TIME, &headers)
}

pub(crate) async fn asset(Path((build, name)): Path<(String, String)>, headers: HeaderMap) -> Response {
    match FILES.asset(&name) {
        Some(file) if build == FILES.build => serve(file, KEEP, &headers),
        Some(_) => refuse("this file belongs to a page of another version of the server; load the page again\n"),
        None => refuse("the page has no such file\n"),
    }
}

fn refuse(why: &'static str) -> Response {
    (StatusCode::NOT_FOUND, [(header::CACHE_CONTROL, "no-store")], why).into_response()
}

fn serve(file: &File, caching: &'static str, asked: &HeaderMap) -> Response {
    let gzip = file.gzip.as_ref().filter(|_| accepts_gzip(asked));
    // Each form of a file has its own tag (RFC 9110 §8.8.3.3).
    let tag = format!("\"{}{}\"", file.hash, if gzip.is_some() { "-gzip" } else { "" });
    let is_known = has(asked, header::IF_NONE_MATCH, |known| known.trim_start_matches("W/") == tag || known == "*");
    let body = match gzip {
        _ if is_known => None,
        Some(gzip) => Some(gzip.clone()),
        None => Some(file.plain.clone()),
    };
    let mut response = match body {
        Some(body) => ([(header::CONTENT_TYPE, file.content_type)], body).into_response(),
        None => StatusCode::NOT_MODIFIED.into_response(),
    };
    let headers = response.headers_mut();
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, tag);
    }
    if gzip.is_some() && !is_known {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    for (name, value) in [
        (header::CACHE_CONTROL, caching),
        (header::VARY, "Accept-Encoding"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

fn accepts_gzip(asked: &HeaderMap) -> bool {
    has(asked, header::ACCEPT_ENCODING, |coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let is_refused = weight.trim().strip_prefix("q=").is_some_and(|q| q.trim().parse() == Ok(0.0_f32));
        name.trim().eq_ignore_ascii_case("gzip") && !is_refused
    })
}

/// Whether one of the elements of a list field is `wanted`.
fn has(asked: &HeaderMap, name: HeaderName, wanted: impl Fn(&str) -> bool) -> bool {
    let fields = asked.get_all(name).into_iter().filter_map(|field| field.to_str().ok());
    fields.flat_map(|field| field.split(',')).any(|element| wanted(element.trim()))
}
