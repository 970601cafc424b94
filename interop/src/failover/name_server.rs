//! A name server for the SRV records of an edge proxy.

use std::net::SocketAddr;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

use crate::Server;
use crate::bind9::Bind9;
use crate::machine::Machine;

/// Zone of the servers' names.
pub(super) const ZONE: &str = "cluster.test";

/// A name server on a machine. It lives no longer than the thread that started it.
#[derive(Debug)]
pub(super) struct NameServer {
    pub(super) address: SocketAddr,
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl NameServer {
    /// Starts a name server whose SRV records prefer the first server.
    pub(super) fn start(machine: &Machine, servers: &[Server]) -> NameServer {
        let record = |(number, server): (usize, &Server)| {
            let address = server.address();
            let (priority, port, ip) = (10 * number, address.port(), address.ip());
            format!("_sip._udp IN SRV {priority} 0 {port} m{number}\nm{number} IN A {ip}\n")
        };
        let records: String = servers.iter().enumerate().map(record).collect();
        let (tell, told) = channel();
        let (end, ended) = channel::<()>();
        let machine = machine.clone();
        let thread = thread::spawn(move || {
            machine.inside(move || {
                let named = Bind9::start(ZONE, 5, &records);
                // The receiver may have given up.
                let _ = tell.send(named.address());
                let _ = ended.recv();
            });
        });
        let address = told.recv().expect("the name server starts");
        NameServer { address, end: Some(end), thread: Some(thread) }
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.end.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
