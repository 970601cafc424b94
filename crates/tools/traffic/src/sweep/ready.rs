//! Waiting for a server that has just been started.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use strowger_foundation::Transport;

use crate::options::Target;

/// Timeout of a request, and interval between requests.
const EACH: Duration = Duration::from_millis(250);

/// Sends OPTIONS to `target` until anything answers.
///
/// # Errors
/// If nothing has answered within `limit`, or `is_stopped` returns true; the text names the remedy.
pub fn await_answer(target: &Target, limit: Duration, is_stopped: &dyn Fn() -> bool) -> Result<(), String> {
    let begun = Instant::now();
    let mut last = None;
    let mut number = 0_u32;
    while begun.elapsed() < limit && !is_stopped() {
        let asked_at = Instant::now();
        number += 1;
        match ask(target, number) {
            Ok(()) => return Ok(()),
            Err(error) => last = Some(error),
        }
        // Without a listener the error comes at once, before the interval is over.
        std::thread::sleep(EACH.saturating_sub(asked_at.elapsed()));
    }
    let why = last.map(|error| format!(" ({error})")).unwrap_or_default();
    Err(format!(
        "nothing answered OPTIONS at {}:{} within {limit:?}{why}; check that the command of --restart starts a server there; \
         --restart-wait extends the wait",
        target.transport.as_str().to_ascii_lowercase(),
        target.address
    ))
}

fn ask(target: &Target, number: u32) -> io::Result<()> {
    let mut answer = [0; 4_096];
    let length = if target.transport == Transport::Udp {
        let any: SocketAddr = if target.address.is_ipv4() { ([0; 4], 0).into() } else { ([0_u16; 8], 0).into() };
        let socket = UdpSocket::bind(any)?;
        socket.connect(target.address)?;
        socket.set_read_timeout(Some(EACH))?;
        socket.send(&options(target, socket.local_addr()?, number))?;
        socket.recv(&mut answer)?
    } else {
        let mut stream = TcpStream::connect_timeout(&target.address, EACH)?;
        stream.set_read_timeout(Some(EACH))?;
        stream.write_all(&options(target, stream.local_addr()?, number))?;
        stream.read(&mut answer)?
    };
    if length > 0 { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

//= rfc3261#11
// OPTIONS outside a dialog queries a server's capabilities.
fn options(Target { transport, address, .. }: &Target, local: SocketAddr, number: u32) -> Vec<u8> {
    let (ip, mark) = (address.ip(), crate::engine::entropy());
    let host = if address.is_ipv6() { format!("[{ip}]") } else { ip.to_string() };
    let transport = transport.as_str();
    format!(
        "OPTIONS sip:{host} SIP/2.0\r\nVia: SIP/2.0/{transport} {local};rport;branch=z9hG4bK{mark:016x}\r\nMax-Forwards: 70\r\n\
         From: <sip:load@{host}>;tag={mark:016x}\r\nTo: <sip:{host}>\r\nCall-ID: {mark:016x}-{number}\r\nCSeq: {number} OPTIONS\r\n\
         Contact: <sip:load@{local}>\r\nContent-Length: 0\r\n\r\n"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_answer_ends_the_wait() {
        let server = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let target = Target::new(Transport::Udp, server.local_addr().expect("bound"));
        let thread = std::thread::spawn(move || {
            let mut bytes = [0; 4_096];
            // A server that is not ready yet loses the first request.
            let (_, _) = server.recv_from(&mut bytes).expect("a first");
            let (length, peer) = server.recv_from(&mut bytes).expect("another");
            server.send_to(b"SIP/2.0 404 Not Found\r\n\r\n", peer).expect("loopback");
            String::from_utf8_lossy(&bytes[..length]).into_owned()
        });
        await_answer(&target, Duration::from_secs(20), &|| false).expect("an answer");
        let request = thread.join().expect("it ends");
        assert!(
            request.starts_with("OPTIONS sip:127.0.0.1 SIP/2.0\r\nVia: SIP/2.0/UDP 0.0.0.0:")
                || request.contains("Via: SIP/2.0/UDP 127.0.0.1:"),
            "{request}"
        );
    }

    #[test]
    fn waiting_is_bounded_and_can_be_stopped() {
        let free = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port");
        for transport in [Transport::Udp, Transport::Tcp] {
            let target = Target::new(transport, free);
            let error = await_answer(&target, Duration::from_millis(1), &|| false).expect_err("nobody");
            assert!(error.contains("--restart") && error.contains(&free.to_string()), "{error}");
            assert!(await_answer(&target, Duration::from_secs(3_600), &|| true).is_err());
        }
    }
}
