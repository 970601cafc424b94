//! Who sends a request.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use axum::extract::ConnectInfo;
use axum::http::Extensions;
use strowger_control::caller::Caller;

use crate::tokens::Bearer;

/// Who sends a request: a token, from an address.
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

/// Returns the client's address.
pub(crate) fn address(extensions: &Extensions) -> IpAddr {
    peer(extensions).ip().to_canonical()
}

/// Returns the client's address and port.
pub(crate) fn peer(extensions: &Extensions) -> SocketAddr {
    let peer = extensions.get::<ConnectInfo<SocketAddr>>();
    peer.map_or(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)), |ConnectInfo(peer)| *peer)
}
