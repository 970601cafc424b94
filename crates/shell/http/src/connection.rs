//! One connection of a client.

use std::net::SocketAddr;
use std::pin::pin;

use axum::Router;
use axum::extract::ConnectInfo;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tower_service::Service as _;

use crate::limits::HttpLimits;
use crate::long_response::LongResponse;

/// Answers the requests of a connection until it ends. Once `replaced` ends, the response in progress is the last. Errors
/// concern the client alone and are not reported.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    peer: SocketAddr,
    router: Router,
    limits: HttpLimits,
    replaced: impl Future<Output = ()>,
) {
    let long = LongResponse::default();
    let of_requests = long.clone();
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(peer));
        request.extensions_mut().insert(of_requests.clone());
        // A router is always ready.
        router.clone().call(request)
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(limits.buffer)
        .max_headers(limits.headers);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    let is_ended = tokio::select! {
        ended = timeout(limits.connection, connection.as_mut()) => ended.is_ok(),
        () = replaced => false,
    };
    if is_ended {
        return;
    }
    connection.as_mut().graceful_shutdown();
    drop(timeout(limits.closing + long.time_left(), connection).await);
}
