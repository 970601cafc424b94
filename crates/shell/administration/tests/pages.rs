//! Files of the page beside the API.

#[path = "../../../../fuzz/src/api_bodies.rs"]
#[allow(unreachable_pub, dead_code, reason = "shared with the fuzz targets, where it is a library's module")]
mod api_bodies;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use axum::routing::get;
use strowger_administration::{Api, TokenFile};
use tower::ServiceExt as _;

async fn status(router: &Router, method: Method, path: &str) -> StatusCode {
    let request = Request::builder().method(method).uri(path).header(header::HOST, "localhost");
    let request = request.body(Body::empty()).expect("a request");
    router.clone().oneshot(request).await.expect("infallible").status()
}

#[tokio::test]
async fn loading_the_page_takes_nothing_from_the_limit_of_requests() {
    let folder = tempfile::tempdir().expect("a folder");
    let pages = Router::new().route("/", get(|| async { "page" })).route("/assets/{*file}", get(|| async { "file" }));
    let tokens = TokenFile::in_folder(folder.path());
    let router = Api::new(Arc::new(api_bodies::Idle), tokens).router(pages);
    // Several browsers behind one address, without a cache.
    for _ in 0..10 {
        assert_eq!(status(&router, Method::GET, "/").await, StatusCode::OK);
        for file in 0..60 {
            assert_eq!(status(&router, Method::GET, &format!("/assets/{file}.js")).await, StatusCode::OK);
        }
    }
    assert_eq!(status(&router, Method::GET, "/api/v1/openapi.json").await, StatusCode::OK);
    assert_eq!(status(&router, Method::POST, "/").await, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(status(&router, Method::GET, "/nothing").await, StatusCode::NOT_FOUND);
    let mut flood = 0;
    while status(&router, Method::GET, "/api/v1/openapi.json").await == StatusCode::OK {
        flood += 1;
        assert!(flood < 10_000, "requests are limited");
    }
}
