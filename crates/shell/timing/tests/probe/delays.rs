//! Delays of known length before and after the receive call.

use std::net::UdpSocket;
use std::time::Duration;

use strowger_timing::{MessageType, MethodName, PacketRecord, Part, Target};

use crate::support::{assert_close, median_us, start, stop, work};

/// Packets for each delay.
const PACKETS: usize = 200;

/// Sends packets to an echo program, which waits before it receives and before it answers; returns their records.
fn echo(payload: &[u8], before_receive: Duration, before_send: Duration) -> Option<Vec<PacketRecord>> {
    let [server, client] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    client.connect(server.local_addr().unwrap()).unwrap();
    let probe = start(Target::Port(server.local_addr().unwrap().port()))?;
    let mut buffer = [0; 2_000];
    // The process is known from its first packet on.
    for _ in 0..=PACKETS {
        client.send(payload).unwrap();
        work(before_receive);
        let (length, peer) = server.recv_from(&mut buffer).unwrap();
        work(before_send);
        server.send_to(&buffer[..length], peer).unwrap();
        client.recv(&mut buffer).unwrap();
    }
    let records = stop(probe);
    assert!(records.len() >= PACKETS, "{} records of {PACKETS} packets", records.len());
    Some(records)
}

#[test]
fn waiting_in_the_socket_is_found() {
    for micros in [50, 200, 1_000] {
        let Some(records) = echo(b"x", Duration::from_micros(micros), Duration::ZERO) else { return };
        assert_close("K_sockq", median_us(&records, Part::SocketQueue), f64::from(micros as u32));
    }
}

#[test]
fn time_in_the_program_is_found() {
    for micros in [50, 200, 1_000] {
        let Some(records) = echo(b"x", Duration::ZERO, Duration::from_micros(micros)) else { return };
        assert_close("T_app", median_us(&records, Part::Application), f64::from(micros as u32));
    }
}

#[test]
fn sip_messages_have_their_type_and_other_packets_none() {
    let response = format!("SIP/2.0 180 Ringing\r\nVia: {}\r\nCSeq: 1 INVITE\r\n\r\n", "x".repeat(700));
    for (payload, message) in [
        (response.as_bytes(), MessageType::Response(180, MethodName::Invite)),
        (b"BYE sip:a@example.com SIP/2.0\r\n\r\n", MessageType::Request(MethodName::Bye)),
        (b"\r\n\r\n", MessageType::KeepAlive),
        (b"\x16\x03", MessageType::Other),
        (b"", MessageType::KeepAlive),
    ] {
        let Some(records) = echo(payload, Duration::ZERO, Duration::ZERO) else { return };
        for record in &records {
            assert_eq!((record.message, record.length as usize), (message, payload.len()));
            assert_eq!((record.batch, record.is_stream), (1, false));
        }
    }
}
