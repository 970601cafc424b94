//! What a browser gets.

use std::future::poll_fn;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode, header};
use tower_service::Service as _;

/// Maximum number of bytes of the whole page, as they are transferred.
const MAX_BYTES: usize = 300_000;

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Answer {
    fn header(&self, name: header::HeaderName) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("a text"))
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a text")
    }
}

fn ask(method: &str, path: &str, fields: &[(header::HeaderName, &str)]) -> Answer {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let mut router: Router = strowger_page::router();
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in fields {
            request = request.header(name, *value);
        }
        let request = request.body(Body::empty()).expect("a request");
        poll_fn(|context| <Router as tower_service::Service<Request<Body>>>::poll_ready(&mut router, context))
            .await
            .expect("a router is always ready");
        let response = router.call(request).await.expect("an answer");
        let (head, body) = response.into_parts();
        let body = to_bytes(body, usize::MAX).await.expect("a body").to_vec();
        Answer { status: head.status, headers: head.headers, body }
    })
}

fn get(path: &str) -> Answer {
    ask("GET", path, &[])
}

/// Returns the addresses of all files that the page names.
fn assets() -> Vec<String> {
    let page = get("/");
    let quoted = page.text().split('"').skip(1).step_by(2);
    quoted.filter(|quoted| quoted.starts_with("/assets/")).map(str::to_owned).collect()
}

#[test]
fn the_page_and_its_files_are_small() {
    let gzip = [(header::ACCEPT_ENCODING, "br, gzip;q=0.8")];
    let mut bytes = ask("GET", "/", &gzip).body.len();
    let mut plain = get("/").body.len();
    for asset in assets() {
        let answer = ask("GET", &asset, &gzip);
        assert_eq!(answer.status, StatusCode::OK, "{asset}");
        bytes += answer.body.len();
        plain += get(&asset).body.len();
    }
    println!("the page has {bytes} bytes as gzip and {plain} without");
    assert!(bytes < plain && plain <= MAX_BYTES, "{bytes} as gzip, {plain} without");
}

#[test]
fn every_answer_limits_what_the_browser_does() {
    let all = assets();
    assert!(all.len() > 30, "{all:?}");
    for path in all.iter().map(String::as_str).chain(["/"]) {
        let answer = get(path);
        assert_eq!(answer.status, StatusCode::OK, "{path}");
        let policy = answer.header(header::CONTENT_SECURITY_POLICY);
        assert!(policy.starts_with("default-src 'self';") && !policy.contains("unsafe"), "{path}: {policy}");
        assert_eq!(answer.header(header::X_CONTENT_TYPE_OPTIONS), "nosniff", "{path}");
        let is_script = path.ends_with(".js") || path.ends_with(".mjs");
        assert_eq!(answer.header(header::CONTENT_TYPE).starts_with("text/javascript"), is_script, "{path}");
    }
}

#[test]
fn browsers_keep_what_has_not_changed() {
    let page = get("/");
    assert_eq!(page.header(header::CACHE_CONTROL), "no-cache");
    let asset = assets().pop().expect("an asset");
    assert!(get(&asset).header(header::CACHE_CONTROL).contains("immutable"));

    for coding in ["", "gzip"] {
        let first = ask("GET", "/", &[(header::ACCEPT_ENCODING, coding)]);
        assert_eq!(first.header(header::CONTENT_ENCODING), coding);
        let tag = first.header(header::ETAG);
        let known = format!("\"other\", W/{tag}");
        let second = ask("GET", "/", &[(header::ACCEPT_ENCODING, coding), (header::IF_NONE_MATCH, &known)]);
        assert_eq!((second.status, second.body.len()), (StatusCode::NOT_MODIFIED, 0));
        assert_eq!(second.header(header::ETAG), tag);
    }
    let other = ask("GET", "/", &[(header::IF_NONE_MATCH, "\"other\"")]);
    assert_eq!((other.status, other.body), (StatusCode::OK, page.body));
}

#[test]
fn a_head_has_no_body_and_other_methods_are_refused() {
    let head = ask("HEAD", "/", &[]);
    assert_eq!((head.status, head.body.len()), (StatusCode::OK, 0));
    assert_eq!(ask("POST", "/", &[]).status, StatusCode::METHOD_NOT_ALLOWED);
}

#[test]
fn no_other_file_can_be_read() {
    let asset = assets().pop().expect("an asset");
    let build = asset.split('/').nth(2).expect("a build");
    for path in ["/assets/0123456789abcdef/app.js", "/assets/../Cargo.toml"].map(str::to_owned).into_iter().chain(
        ["missing.js", "../Cargo.toml", "..%2fCargo.toml", "%2fetc%2fpasswd", "index.html", "views"]
            .map(|name| format!("/assets/{build}/{name}")),
    ) {
        assert_eq!(get(&path).status, StatusCode::NOT_FOUND, "{path}");
    }
}
