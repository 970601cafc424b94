//! Connections through HAProxy, which tells the client's address (PROXY protocol 1 and 2), over TCP and WebSocket.
//! Skipped if `haproxy` is not installed.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use socket2::{Domain, Socket, Type};
use strowger_interop::{Config, PATIENCE, Process, Program, Server, free_port, poll};
use tempfile::TempDir;

/// Address of the clients. That of the balancer is another one of the loopback network.
const CLIENT: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

struct Balanced {
    _server: Server,
    _balancer: Process,
    _folder: TempDir,
    /// Where HAProxy listens, with version 1 for TCP and version 2 for WebSockets.
    tcp: SocketAddr,
    web_socket: SocketAddr,
}

fn start() -> Option<Balanced> {
    if !Program::HaProxy.available() {
        return None;
    }
    let [tcp, web_socket, own_tcp, own_web_socket] =
        [(); 4].map(|()| SocketAddr::from((Ipv4Addr::LOCALHOST, free_port())));
    let more =
        "\n[tcp]\nproxy_protocol_from = [\"127.0.0.1\"]\n[websocket]\norigins = [\"https://phone.example.com\"]\n";
    let listeners = vec![format!("tcp:{own_tcp}"), format!("ws:{own_web_socket}")];
    let server = Config { listeners, more: more.to_owned(), ..Config::default() }.start();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("haproxy.cfg");
    let config = format!(
        "defaults\n    mode tcp\n    timeout connect 5s\n    timeout client 60s\n    timeout server 60s\n\
         listen sip\n    bind {tcp}\n    server one {own_tcp} send-proxy\n\
         listen web\n    bind {web_socket}\n    server one {own_web_socket} send-proxy-v2\n"
    );
    fs::write(&file, config).expect("the folder is ours");
    let arguments = ["-db", "-f"].map(str::to_owned).into_iter().chain([file.display().to_string()]);
    let balancer =
        Process::start(&Program::HaProxy.path(), &arguments.collect::<Vec<_>>(), folder.path().join("haproxy.log"));
    Some(Balanced { _server: server, _balancer: balancer, _folder: folder, tcp, web_socket })
}

/// Connects from the address of the clients, once the balancer listens.
fn connect(to: SocketAddr) -> TcpStream {
    let stream = poll(PATIENCE, || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.bind(&SocketAddr::from((CLIENT, 0)).into()).expect("an address of this machine");
        socket.connect(&to.into()).ok().map(|()| TcpStream::from(socket))
    });
    let stream = stream.expect("haproxy listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a sound socket");
    stream
}

fn options(transport: &str) -> String {
    format!(
        "OPTIONS sip:example.com SIP/2.0\r\nVia: SIP/2.0/{transport} client.invalid;rport;branch=z9hG4bKproxied\r\n\
         To: <sip:example.com>\r\nFrom: <sip:a@example.com>;tag=1\r\nCall-ID: proxied\r\nCSeq: 1 OPTIONS\r\n\
         Max-Forwards: 70\r\nContent-Length: 0\r\n\r\n"
    )
}

/// Reads until what has been read ends with an empty line.
fn read_head(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("more in time");
        read.extend_from_slice(&byte);
    }
    String::from_utf8_lossy(&read).into_owned()
}

#[track_caller]
fn expect_from(response: &str, client: SocketAddr) {
    assert!(response.contains("SIP/2.0 200 OK\r\n"), "{response}");
    for param in [format!(";received={}", client.ip()), format!(";rport={}", client.port())] {
        assert!(response.contains(&param), "no {param} in {response}");
    }
}

#[test]
fn the_server_sees_the_clients_of_a_balancer() {
    let Some(balanced) = start() else { return };
    let mut stream = connect(balanced.tcp);
    stream.write_all(options("TCP").as_bytes()).expect("it is open");
    let client = stream.local_addr().expect("it is bound");
    expect_from(&read_head(&mut stream), client);

    let mut stream = connect(balanced.web_socket);
    let request = "GET /sip HTTP/1.1\r\nHost: sip.example.com\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                   Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                   Sec-WebSocket-Protocol: sip\r\nOrigin: https://phone.example.com\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("it is open");
    let response = read_head(&mut stream);
    assert!(response.starts_with("HTTP/1.1 101 "), "{response}");
    let message = options("WS");
    // A mask of zeros changes nothing.
    let mut frame = vec![0x81, 0x80 | 126];
    frame.extend_from_slice(&u16::try_from(message.len()).expect("short").to_be_bytes());
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(message.as_bytes());
    stream.write_all(&frame).expect("it is open");
    let client = stream.local_addr().expect("it is bound");
    expect_from(&read_head(&mut stream), client);
}
