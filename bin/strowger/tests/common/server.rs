//! The binary as a server process.

use std::fs::File;
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::thread;

use serde_json::Value;

use super::{Folder, PATIENCE, free_address, poll, signal};

/// A server on a free loopback port, with its folder.
pub(crate) struct Server {
    pub(crate) folder: Folder,
    pub(crate) child: Child,
    pub(crate) address: SocketAddr,
}

impl Server {
    /// Starts a server on a free loopback port, with `more` in its configuration.
    pub(crate) fn start(more: &str) -> Self {
        let (folder, address) = Self::prepare(more);
        let mut child = run(&mut folder.command(&["serve"]), &folder);
        // A process forked by another test inherits the socket that tested the port, until it executes its program.
        let _answers_or_has_ended = poll(|| {
            let has_ended = child.try_wait().expect("our child").is_some();
            (has_ended || folder.run(&["ctl", "status"]).code == Some(0)).then_some(())
        });
        let log = std::fs::read_to_string(folder.path().join("log")).expect("a log");
        if log.contains("is in use by another process") {
            child = run(&mut folder.command(&["serve"]), &folder);
        }
        Self { folder, child, address }.ready()
    }

    /// Returns a folder with a configuration, and the address that a server would listen on there.
    pub(crate) fn prepare(more: &str) -> (Folder, SocketAddr) {
        let address = free_address();
        // Tests run several servers at a time, which cannot share the default address.
        let admin = if more.contains("admin") { "" } else { "admin.listen = \"off\"\n" };
        let config =
            format!("{admin}server.listen = [\"udp:{address}\"]\nserver.workers = 2\nauth.require = []\n{more}");
        (Folder::new(&config), address)
    }

    /// Starts the server in `folder` with this command, possibly through another program.
    pub(crate) fn started_by(mut command: Command, folder: Folder, address: SocketAddr) -> Self {
        let child = run(&mut command, &folder);
        Self { folder, child, address }.ready()
    }

    /// Starts another server in the same folder after this one has ended.
    pub(crate) fn restart(self) -> Self {
        let mut old = self;
        assert!(old.child.try_wait().expect("our child").is_some(), "it has not ended");
        old.child = run(&mut old.folder.command(&["serve"]), &old.folder);
        old.ready()
    }

    fn ready(self) -> Self {
        self.until("it answers", || self.folder.run(&["ctl", "status"]).code == Some(0));
        self
    }

    pub(crate) fn status(&self) -> Value {
        self.folder.run(&["ctl", "status", "--json"]).json()
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).expect("a log")
    }

    pub(crate) fn until(&self, what: &str, mut done: impl FnMut() -> bool) {
        assert!(poll(|| done().then_some(())).is_some(), "not in time: {what}\n{}", self.log());
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(&self.child, name);
    }

    /// Sends a request whose start line and headers are `head`; returns the first final response.
    pub(crate) fn ask(&self, socket: &UdpSocket, head: &str) -> String {
        socket.set_read_timeout(Some(PATIENCE)).expect("settable");
        let local = socket.local_addr().expect("bound");
        let via = format!("Via: SIP/2.0/UDP {local};branch=z9hG4bK-{}", head.len());
        let (start, rest) = head.split_once('\n').expect("a start line");
        let text = format!("{start}\n{via}\n{rest}\nMax-Forwards: 70\nContent-Length: 0\n\n").replace('\n', "\r\n");
        socket.send_to(text.as_bytes(), self.address).expect("sent");
        loop {
            let mut buffer = [0; 4096];
            let length = socket.recv(&mut buffer).unwrap_or_else(|error| panic!("{error}: {}", self.log()));
            let response = String::from_utf8_lossy(&buffer[..length]).into_owned();
            if !response.starts_with("SIP/2.0 1") {
                return response;
            }
        }
    }

    /// Returns the exit code after the server has ended by itself.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        let status = poll(|| self.child.try_wait().expect("our child"));
        status.unwrap_or_else(|| panic!("it does not end\n{}", self.log())).code()
    }
}

/// Starts the process, appending to an earlier server's log.
fn run(command: &mut Command, folder: &Folder) -> Child {
    let log = File::options().create(true).append(true).open(folder.path().join("log")).expect("a file");
    command.stderr(log).stdout(Stdio::null()).spawn().expect("it starts")
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        if thread::panicking() {
            eprintln!("--- log ---\n{}", self.log());
        }
    }
}
