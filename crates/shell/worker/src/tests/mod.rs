//! Tests of the event loop over loopback sockets, with scripted shards.

mod allocations;
mod fleet;
mod framing;
mod migration;
mod overload;
mod proxy_headers;
mod scripted_shard;
mod single;
mod sockets;
mod stream_turns;
mod stun;
#[path = "streams.rs"]
mod tcp_streams;
mod timing;
mod tls;
mod tls_names;
#[path = "streams.rs"]
#[expect(clippy::duplicate_mod, reason = "the same tests over TLS")]
mod tls_streams;
mod web_sockets;

#[path = "../../tests/support/line.rs"]
mod line;
#[path = "../../tests/support/mod.rs"]
mod support;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket as Phone};
use std::sync::Arc;

use strowger_locate::Outages;
use strowger_net::{StreamSocket, TlsContext};
use strowger_registrar::Locations;
use strowger_shard::{ProvenSources, Snapshot};

use self::scripted_shard::ScriptedShardFactory;
use self::support::{DEADLINE, bind, config, listen, phone, receive, sockets, spin_for, spin_until, with_siblings};
use crate::kernel_filter::SharedMemory;
use crate::shard_factory::SharedTables;
use crate::{Fleet, FleetConfig, Socket};

/// Opens sockets for a number of workers: listener 0 for datagrams, listener 1 for connections.
fn sockets_and_listener(workers: usize) -> Vec<Vec<Socket>> {
    with_siblings(vec![bind(), listen()], workers)
}

/// The same with a listener for connections over TLS.
fn sockets_and_tls(workers: usize, tls: Arc<TlsContext>) -> Vec<Vec<Socket>> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = StreamSocket::bind_tls(address, tls).expect("loopback has a free port");
    with_siblings(vec![bind(), listener.into()], workers)
}

fn snapshot(sockets: &[Socket]) -> Arc<Snapshot> {
    Arc::new(support::snapshot(sockets))
}

fn tables() -> SharedTables {
    SharedTables {
        locations: Arc::new(Locations::new(1, 1)),
        outages: Arc::new(Outages::new(1)),
        proven: Arc::new(ProvenSources::new(1)),
    }
}

/// Starts a fleet of scripted shards.
fn launch(config: FleetConfig) -> io::Result<Fleet> {
    Fleet::launch(config, ScriptedShardFactory, tables(), SharedMemory::default())
}

fn options(call_id: &str) -> Vec<u8> {
    format!(
        "OPTIONS sip:example.com SIP/2.0\r\nVia: SIP/2.0/UDP 127.0.0.1:5060;branch=z9hG4bK{call_id}\r\n\
         To: <sip:example.com>\r\nFrom: <sip:a@example.com>;tag=1\r\nCall-ID: {call_id}\r\nCSeq: 1 OPTIONS\r\n\
         Max-Forwards: 70\r\nAuthorization: secret\r\nContent-Length: 0\r\n\r\n"
    )
    .into_bytes()
}

/// Sends a request and returns the response.
fn ask(phone: &Phone, call_id: &str) -> String {
    phone.send(&options(call_id)).expect("loopback takes it");
    receive(phone)
}
