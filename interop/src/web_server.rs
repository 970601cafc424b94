//! A web server for the pages of tests.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use socket2::SockRef;

use crate::namespace::Namespace;

/// Serves some files at `http://127.0.0.1:PORT`, which browsers treat as securely as `https`, until it is dropped.
#[derive(Debug)]
pub struct WebServer {
    port: u16,
    ended: Arc<AtomicBool>,
    listener: TcpListener,
}

/// A file of a [`WebServer`].
#[derive(Clone, Debug)]
pub struct WebFile {
    /// Path in the URL, for example `/page.html`.
    pub path: &'static str,
    /// Media type, for example `text/html`.
    pub media_type: &'static str,
    /// Contents.
    pub text: String,
}

impl WebServer {
    /// Starts a server of these files, optionally in a network namespace.
    ///
    /// # Panics
    /// If there is no free port.
    #[must_use]
    pub fn start(files: Vec<WebFile>, network: Option<&Namespace>) -> WebServer {
        let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let listener = network.map_or_else(bind, |network| network.inside(bind));
        let port = listener.local_addr().expect("a bound socket has an address").port();
        let ended = Arc::new(AtomicBool::new(false));
        let (accepting, is_over) = (listener.try_clone().expect("a descriptor"), Arc::clone(&ended));
        thread::spawn(move || {
            let files: Arc<[WebFile]> = files.into();
            while !is_over.load(Ordering::Relaxed) {
                let Ok((stream, _)) = accepting.accept() else { continue };
                let files = Arc::clone(&files);
                // Browsers open connections in advance. One that goes away is its own affair.
                thread::spawn(move || serve(&stream, &files));
            }
        });
        WebServer { port, ended, listener }
    }

    /// Returns the origin, for example `http://127.0.0.1:20000`.
    #[must_use]
    pub fn origin(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts.
        let _ = SockRef::from(&self.listener).shutdown(Shutdown::Both);
    }
}

/// Answers one request and closes the connection.
fn serve(stream: &TcpStream, files: &[WebFile]) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
    let path = request.split(' ').nth(1).unwrap_or_default();
    let file = files.iter().find(|file| file.path == path);
    let (status, media_type, text) =
        file.map_or(("404 Not Found", "text/plain", ""), |file| ("200 OK", file.media_type, &file.text));
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {media_type}; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    let mut stream = stream;
    stream.write_all(head.as_bytes())?;
    stream.write_all(text.as_bytes())?;
    stream.shutdown(Shutdown::Write)
}
