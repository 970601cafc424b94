//! The API's state and router.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use tokio::sync::Semaphore;

use crate::authentication::authenticate;
use crate::backend::Backend;
use crate::browser::protect;
use crate::client::address;
use crate::document;
use crate::problem::Problem;
use crate::rate::Verdict;
use crate::roles::Roles;
use crate::routes;
use crate::shared::{MAX_TRACES, Shared};
use crate::tokens::{KnownTokens, TokenFile};

/// The administration API of a server.
pub struct Api {
    backend: Arc<dyn Backend>,
    tokens: TokenFile,
}

impl Api {
    /// Returns the API of a server whose tokens are in this file.
    #[must_use]
    pub fn new(backend: Arc<dyn Backend>, tokens: TokenFile) -> Self {
        Self { backend, tokens }
    }

    /// Returns the OpenAPI document (3.1).
    #[must_use]
    pub fn document() -> utoipa::openapi::OpenApi {
        document::finished(routes::all().into_openapi())
    }

    /// Returns the router for a listener, with the routes of `pages` beside the API. Requests of pages need no token,
    /// but pass the other checks, with a limit of their own.
    pub fn router(self, pages: Router) -> Router {
        let (routes, document) = routes::all().split_for_parts();
        let document = document::finished(document);
        let shared = Arc::new(Shared {
            backend: self.backend,
            tokens: KnownTokens::new(self.tokens),
            roles: Roles::of(&document),
            traces: Arc::new(Semaphore::new(MAX_TRACES)),
            document: document.to_json().unwrap_or_default(),
            limits: Mutex::default(),
        });
        let pages = pages
            .method_not_allowed_fallback(other_method)
            .layer(middleware::from_fn_with_state(Arc::clone(&shared), limit_files));
        routes
            .route_layer(middleware::from_fn_with_state(Arc::clone(&shared), authenticate))
            .with_state(Arc::clone(&shared))
            .method_not_allowed_fallback(other_method)
            .fallback(unknown_path)
            .layer(middleware::from_fn_with_state(Arc::clone(&shared), limit_requests))
            .merge(pages)
            .layer(middleware::from_fn_with_state(shared, protect))
    }
}

/// Refuses a client that sends too many requests.
async fn limit_requests(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Result<Response, Problem> {
    let verdict = shared.limits().on_request(address(request.extensions()), Instant::now());
    pass(verdict, request, next).await
}

/// Refuses a client that loads too many files of the page.
async fn limit_files(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Result<Response, Problem> {
    let verdict = shared.limits().on_file(address(request.extensions()), Instant::now());
    pass(verdict, request, next).await
}

async fn pass(verdict: Verdict, request: Request, next: Next) -> Result<Response, Problem> {
    match verdict {
        Verdict::Allowed => Ok(next.run(request).await),
        Verdict::Wait(time) => {
            let why = "too many requests from this address; send fewer";
            Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, why).retry_after(time.as_secs_f64().ceil() as u64))
        }
    }
}

async fn unknown_path() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "there is nothing at this path; /api/v1/openapi.json describes what there is")
}

/// Answers a method that a path does not have. The router adds Allow.
async fn other_method(method: Method) -> Response {
    if method == Method::OPTIONS {
        return StatusCode::NO_CONTENT.into_response();
    }
    let why = "this path does not have this method; the field Allow names those that it has";
    let mut response = Problem::new(StatusCode::METHOD_NOT_ALLOWED, why).into_response();
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
