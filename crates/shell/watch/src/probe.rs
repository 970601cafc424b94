//! Probe of a server: one OPTIONS request (RFC 3261 §11) and its final response.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, timeout_at};

use crate::plan::{Server, Transport};

/// T1 of RFC 3261 §17: delay of the first retransmission; it doubles after each.
const T1: Duration = Duration::from_millis(500);
/// Maximum size of a response, in bytes.
const MAX_RESPONSE: usize = 65_535;

/// Probes a server. Returns the status of its final response, or `None` without one within `timeout`.
pub async fn send_probe(server: &Server, timeout: Duration) -> Option<u16> {
    let branch = random();
    let deadline = Instant::now() + timeout;
    let asked = async {
        match server.transport {
            Transport::Udp => over_udp(server.address, &branch).await,
            Transport::Tcp => over_tcp(server.address, &branch).await,
        }
    };
    // An ICMP error or a refused connection also counts as no answer.
    timeout_at(deadline, asked).await.ok()?.ok()
}

async fn over_udp(to: SocketAddr, branch: &str) -> io::Result<u16> {
    let any = if to.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(to).await?;
    let request = request("UDP", socket.local_addr()?, to, branch);
    let mut buffer = vec![0; MAX_RESPONSE];
    let mut pause = T1;
    loop {
        socket.send(request.as_bytes()).await?;
        let next = Instant::now() + pause;
        pause *= 2;
        while let Ok(received) = timeout_at(next, socket.recv(&mut buffer)).await {
            let text = String::from_utf8_lossy(buffer.get(..received?).unwrap_or_default());
            if let Some(status) = final_status(&text, branch) {
                return Ok(status);
            }
        }
    }
}

async fn over_tcp(to: SocketAddr, branch: &str) -> io::Result<u16> {
    let mut stream = TcpStream::connect(to).await?;
    stream.write_all(request("TCP", stream.local_addr()?, to, branch).as_bytes()).await?;
    let mut received = Vec::new();
    while received.len() < MAX_RESPONSE {
        if stream.read_buf(&mut received).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let text = String::from_utf8_lossy(&received);
        // Provisional responses may come first; none has a body.
        let messages = text.split_inclusive("\r\n\r\n").filter(|message| message.ends_with("\r\n\r\n"));
        if let Some(status) = messages.filter_map(|message| final_status(message, branch)).next() {
            return Ok(status);
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

fn request(transport: &str, local: SocketAddr, to: SocketAddr, branch: &str) -> String {
    format!(
        "OPTIONS sip:{to} SIP/2.0\r\nVia: SIP/2.0/{transport} {local};branch=z9hG4bK{branch};rport\r\nMax-Forwards: 70\r\n\
         From: <sip:watch@{local}>;tag={branch}\r\nTo: <sip:{to}>\r\nCall-ID: {branch}\r\nCSeq: 1 OPTIONS\r\n\
         Content-Length: 0\r\n\r\n"
    )
}

/// Returns the status of a final response to the request with this branch.
fn final_status(text: &str, branch: &str) -> Option<u16> {
    let status = text.strip_prefix("SIP/2.0 ")?.split(' ').next()?.parse().ok()?;
    let is_ours = text.lines().any(|line| line.contains(branch));
    ((200..700).contains(&status) && is_ours).then_some(status)
}

/// Returns a random token, unique per request.
fn random() -> String {
    let mut bytes = [0; 8];
    // Without entropy a probe may take the answer to another one as its own; the server is alive either way.
    getrandom::fill(&mut bytes).unwrap_or_default();
    format!("{:016x}", u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_matching_final_response_counts() {
        let text = |status: &str| format!("{status}\r\nVia: SIP/2.0/UDP 192.0.2.9:1;branch=z9hG4bKabc\r\n\r\n");
        assert_eq!(final_status(&text("SIP/2.0 200 OK"), "abc"), Some(200));
        assert_eq!(final_status(&text("SIP/2.0 503 Service Unavailable"), "abc"), Some(503));
        for other in ["SIP/2.0 100 Trying", "SIP/2.0 999 Odd", "SIP/2.0 OK", "OPTIONS sip:a SIP/2.0", ""] {
            assert_eq!(final_status(&text(other), "abc"), None, "{other}");
        }
        assert_eq!(final_status(&text("SIP/2.0 200 OK"), "abd"), None, "another's");
    }

    /// Probes a server over a real socket; `serve` answers.
    async fn ask_at(
        transport: Transport,
        address: SocketAddr,
        serve: impl Future<Output = io::Result<()>>,
    ) -> Option<u16> {
        let server = Server { transport, address };
        let (status, served) = tokio::join!(send_probe(&server, Duration::from_secs(10)), serve);
        served.expect("it has answered");
        status
    }

    /// Returns the response to `request` with this status line.
    fn response(request: &[u8], status: &str) -> Vec<u8> {
        let request = String::from_utf8_lossy(request);
        let (_, fields) = request.split_once("\r\n").expect("a request has a first line");
        format!("SIP/2.0 {status}\r\n{fields}").into_bytes()
    }

    #[tokio::test]
    async fn a_datagram_is_resent_until_the_final_response() {
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
        let address = socket.local_addr().expect("bound");
        let serve = async {
            let mut buffer = [0; 2_048];
            let (length, first) = socket.recv_from(&mut buffer).await?;
            socket.send_to(b"no SIP", first).await?;
            socket.send_to(&response(&buffer[..length], "100 Trying"), first).await?;
            let (length, second) = socket.recv_from(&mut buffer).await?;
            assert_eq!(first, second);
            socket.send_to(&response(&buffer[..length], "404 Not Found"), second).await?;
            Ok(())
        };
        assert_eq!(ask_at(Transport::Udp, address, serve).await, Some(404));
    }

    #[tokio::test]
    async fn a_tcp_response_may_arrive_in_pieces() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a socket");
        let address = listener.local_addr().expect("bound");
        let serve = async {
            let (mut stream, _) = listener.accept().await?;
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                stream.read_buf(&mut request).await?;
            }
            stream.write_all(&response(&request, "100 Trying")).await?;
            let last = response(&request, "200 OK");
            let (first, second) = last.split_at(20);
            stream.write_all(first).await?;
            stream.flush().await?;
            stream.write_all(second).await?;
            Ok(())
        };
        assert_eq!(ask_at(Transport::Tcp, address, serve).await, Some(200));
    }

    #[tokio::test]
    async fn a_closed_port_gives_no_answer() {
        let address = UdpSocket::bind("127.0.0.1:0").await.and_then(|socket| socket.local_addr()).expect("a free port");
        for transport in [Transport::Udp, Transport::Tcp] {
            assert_eq!(send_probe(&Server { transport, address }, Duration::from_secs(10)).await, None);
        }
    }
}
