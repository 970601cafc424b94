//! Who sends a request.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use axum::extract::{ConnectInfo, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{Extensions, StatusCode};
use strowger_control::caller::Caller;

use crate::problem::Problem;
use crate::tokens::Bearer;

/// Who sends a request, for its handler.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) bearer: Bearer,
    pub(crate) address: IpAddr,
}

impl Client {
    pub(crate) fn caller(&self) -> Caller {
        Caller::Token { name: self.bearer.name.clone(), address: self.address }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Client {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let client = parts.extensions.get::<Self>().cloned();
        client.ok_or_else(|| Problem::new(StatusCode::UNAUTHORIZED, "this needs a token"))
    }
}

/// Returns the client's address.
pub(crate) fn address(extensions: &Extensions) -> IpAddr {
    peer(extensions).ip().to_canonical()
}

/// Returns the client's address and port.
pub(crate) fn peer(extensions: &Extensions) -> SocketAddr {
    let peer = extensions.get::<ConnectInfo<SocketAddr>>();
    peer.map_or(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)), |ConnectInfo(peer)| *peer)
}
