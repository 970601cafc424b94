//! Which token a request has, and whether its role is enough.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use strowger_control::protocol::Change;
use tokio::task::spawn_blocking;

use crate::body::check_size;
use crate::client::{Client, address, peer};
use crate::problem::Problem;
use crate::rate::Verdict;
use crate::shared::Shared;
use crate::tokens::{Bearer, Role};

/// Lets a request pass if its token has the role that the operation needs.
pub(crate) async fn authenticate(
    State(shared): State<Arc<Shared>>,
    path: MatchedPath,
    mut request: Request,
    next: Next,
) -> Result<Response, Problem> {
    // Without an operation of this method the answer is 405.
    if let Some(Some(needed)) = shared.roles.needed(request.method(), path.as_str()) {
        let (address, peer) = (address(request.extensions()), peer(request.extensions()));
        let bearer = match presented(request.headers()).and_then(|secret| shared.tokens.find(secret)) {
            Some(bearer) => bearer,
            None if request.headers().contains_key(header::AUTHORIZATION) => return Err(refuse(&shared, peer).await),
            None => return Err(no_token()),
        };
        let client = Client { bearer, address };
        if client.bearer.role < needed {
            return Err(too_small(&shared, &client, needed, &request));
        }
        request.extensions_mut().insert(client);
    }
    check_size(request.headers())?;
    Ok(next.run(request).await)
}

/// Returns the token of a request.
fn presented(headers: &HeaderMap) -> Option<&str> {
    let (scheme, secret) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| secret.trim())
}

fn no_token() -> Problem {
    let why = "this needs a token: send `Authorization: Bearer TOKEN`; `strowger token add NAME` makes one";
    Problem::new(StatusCode::UNAUTHORIZED, why)
}

/// Refuses a wrong token.
async fn refuse(shared: &Arc<Shared>, peer: SocketAddr) -> Problem {
    let report = {
        let shared = Arc::clone(shared);
        move || shared.backend.on_wrong_token(peer)
    };
    // It fails only while the server ends.
    drop(spawn_blocking(report).await);
    // A valid token is accepted nevertheless, so that nobody locks out others behind the same address.
    match shared.limits().on_wrong_token(peer.ip().to_canonical(), Instant::now()) {
        Verdict::Allowed => {
            let why =
                "the token is not valid; `strowger token list` shows which exist, `strowger token add NAME` makes one";
            Problem::new(StatusCode::UNAUTHORIZED, why)
        }
        Verdict::Wait(time) => {
            let why = "too many requests with an invalid token; correct it, and try again later";
            Problem::new(StatusCode::TOO_MANY_REQUESTS, why).retry_after(time.as_secs_f64().ceil() as u64)
        }
    }
}

fn too_small(shared: &Shared, client: &Client, needed: Role, request: &Request) -> Problem {
    let Bearer { name, role } = &client.bearer;
    let why = format!(
        "this needs the role {needed}, but the token {name} has the role {role}; `strowger token add NAME --role {needed}` \
         makes one that may"
    );
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let change = Change::new("request", format!("{} {}", request.method(), request.uri().path()));
        shared.backend.handler().audit(&client.caller(), &change, Some(&format!("needs the role {needed}")));
    }
    Problem::new(StatusCode::FORBIDDEN, why)
}
