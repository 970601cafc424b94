//! A client of the administration API.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use serde_json::Value;
use socket2::{Domain, Socket, Type};

use super::server::Server;
use super::{Folder, PATIENCE};

/// Configuration of a listener on a free port.
pub(crate) const LISTEN: &str = "[admin]\nlisten = \"127.0.0.1:0\"\n";

/// A client with a token.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) server: SocketAddr,
    pub(crate) token: Option<String>,
    /// Address that it sends from: limits are per address.
    pub(crate) from: Ipv4Addr,
}

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Client {
    /// Returns a client with a new token of this role.
    pub(crate) fn of(server: &Server, role: &str) -> Self {
        Self { token: Some(new_token(&server.folder, role, role)), ..Self::without_token(server) }
    }

    pub(crate) fn without_token(server: &Server) -> Self {
        Self { server: address(server), token: None, from: Ipv4Addr::LOCALHOST }
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "", None)
    }

    pub(crate) fn delete(&self, path: &str) -> Answer {
        self.send("DELETE", path, "", None)
    }

    /// Sends a request without a body.
    pub(crate) fn ask(&self, method: &str, path: &str) -> Answer {
        self.send(method, path, "", None)
    }

    /// Sends a request with JSON.
    pub(crate) fn json(&self, method: &str, path: &str, body: &Value) -> Answer {
        self.send(method, path, "Content-Type: application/json\r\n", Some(&body.to_string()))
    }

    /// Sends a request with these header fields.
    pub(crate) fn send(&self, method: &str, path: &str, fields: &str, body: Option<&str>) -> Answer {
        let mut stream = self.open(method, path, fields, body);
        let mut text = Vec::new();
        // A server that refuses a large body closes the connection without reading it.
        drop(stream.read_to_end(&mut text));
        let text = String::from_utf8(text).expect("UTF-8");
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{method} {path}: no answer: {text}"));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    /// Sends a request and returns the connection with its answer.
    pub(crate) fn open(&self, method: &str, path: &str, fields: &str, body: Option<&str>) -> TcpStream {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.bind(&SocketAddr::from((self.from, 0)).into()).expect("an address of this machine");
        socket.connect(&self.server.into()).expect("it listens");
        let mut stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(PATIENCE)).expect("settable");
        let token = self.token.as_ref().map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        let host = if fields.to_ascii_lowercase().contains("host:") {
            String::new()
        } else {
            format!("Host: {}\r\n", self.server)
        };
        let length = body.map(|body| format!("Content-Length: {}\r\n", body.len())).unwrap_or_default();
        let head = format!("{method} {path} HTTP/1.1\r\n{host}Connection: close\r\n{token}{fields}{length}\r\n");
        drop(stream.write_all(format!("{head}{}", body.unwrap_or_default()).as_bytes()));
        stream
    }
}

impl Answer {
    /// Asserts the status and returns the JSON of the body.
    #[track_caller]
    pub(crate) fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        if self.body.is_empty() {
            return Value::Null;
        }
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Asserts that this is a problem with this status and returns it.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16) -> Value {
        let problem = self.expect(status);
        assert!(self.head.contains("content-type: application/problem+json"), "{self:?}");
        assert_eq!((&problem["type"], &problem["status"]), (&"about:blank".into(), &status.into()), "{self:?}");
        assert!(problem["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{self:?}");
        problem
    }
}

/// Returns the address of the listener, from the log.
pub(crate) fn address(server: &Server) -> SocketAddr {
    let log = server.log();
    let (_, after) = log.split_once("administration at http://").unwrap_or_else(|| panic!("no listener: {log}"));
    after.split('/').next().and_then(|address| address.parse().ok()).unwrap_or_else(|| panic!("{log}"))
}

/// Makes a token.
pub(crate) fn new_token(folder: &Folder, name: &str, role: &str) -> String {
    folder.run(&["token", "add", name, "--role", role]).ok().trim_end().to_owned()
}
