//! Keep-alives of STUN between SIP datagrams (RFC 5626 §4.4.2).

use std::net::{SocketAddr, UdpSocket as Phone};

use strowger_net::{BufferSizes, UdpSocket};
use strowger_shard::MAX_AMPLIFICATION;

use super::support::{DEADLINE, with_siblings};
use super::{ask, config, launch, options, snapshot, spin_until};
use crate::FleetConfig;

/// Length of the headers of IP and UDP, in bytes.
const HEADERS: [usize; 2] = [28, 48];

/// A Binding request with some attributes.
fn binding(transaction: u8, attributes: &[u8]) -> Vec<u8> {
    let mut request = vec![0, 1, 0, u8::try_from(attributes.len()).expect("short"), 0x21, 0x12, 0xA4, 0x42];
    request.extend_from_slice(&[transaction; 12]);
    request.extend_from_slice(attributes);
    request
}

fn exchange(phone: &Phone, request: &[u8]) -> Vec<u8> {
    phone.send(request).expect("loopback takes it");
    let mut buffer = [0; 512];
    let length = phone.recv(&mut buffer).expect("a response");
    buffer[..length].to_vec()
}

//= rfc5626#5.4:stun
//= rfc5626#6:keep-alive
//= rfc5626#8:same-port
#[test]
fn binding_requests_are_answered_between_messages() {
    for (number, host) in ["127.0.0.1", "::1"].into_iter().enumerate() {
        let local = SocketAddr::new(host.parse().expect("an address"), 0);
        let sockets = with_siblings(vec![UdpSocket::bind(local, BufferSizes::DEFAULT).expect("a free port").into()], 2);
        let server = sockets[0][0].local_addr();
        let snapshot = snapshot(&sockets[0]);
        let fleet = launch(FleetConfig { ..config(sockets, snapshot) }).expect("threads");
        let phone = Phone::bind(local).expect("a free port");
        phone.connect(server).expect("a loopback address");
        phone.set_read_timeout(Some(DEADLINE)).expect("a sound socket");
        assert_eq!(ask(&phone, "0-before"), "0-before shard 0 life 0 count 1");

        let request = binding(7, &[]);
        let response = exchange(&phone, &request);
        assert_eq!((&response[..2], &response[4..20]), (&[1, 1][..], &request[4..20]), "the same transaction");
        let port = phone.local_addr().expect("bound").port() ^ 0x2112;
        assert_eq!(response[20..22], [0, 0x20], "XOR-MAPPED-ADDRESS");
        assert_eq!(response[26..28], port.to_be_bytes());
        let on_wire = [&response, &request].map(|datagram| datagram.len() + HEADERS[number]);
        assert!(on_wire[0] <= MAX_AMPLIFICATION * on_wire[1], "{on_wire:?}");

        let unknown = exchange(&phone, &binding(8, &[0, 0x77, 0, 0]));
        assert_eq!(unknown[..2], [1, 0x11], "an attribute that must be understood");
        assert!(unknown.len() <= MAX_AMPLIFICATION * 24);

        // An indication, a response, and bytes that only begin like STUN, get nothing.
        let mut indication = binding(9, &[]);
        indication[1] = 0x11;
        phone.send(&indication).expect("loopback takes it");
        phone.send(&response).expect("loopback takes it");
        phone.send(&[0, 1, 2, 3]).expect("loopback takes it");
        assert_eq!(ask(&phone, "0-after"), "0-after shard 0 life 0 count 2");
        // A message may follow line ends.
        phone.send(&[b"\r\n", &options("0-late")[..]].concat()).expect("loopback takes it");
        spin_until(|| {
            let worker = fleet.status().total.worker;
            (worker.stun_answered, worker.stun_ignored, worker.keep_alives) == (2, 2, 0) && worker.malformed >= 1
        });
    }
}
