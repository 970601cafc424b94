//! The socket to media engines: one for each address family, shared by all workers and opened when first needed. A
//! thread for each reads the answers and passes them to the workers.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use strowger_foundation::ShardId;
use strowger_media::{MAX_REPLY, shard_of};

use crate::worker_handle::WorkerHandle;

/// How often a reader looks whether it has to stop.
const STOP_INTERVAL: Duration = Duration::from_millis(100);
/// Longest time that sending may take. It takes longer than a moment only if the system has no buffer left.
const SEND_TIMEOUT: Duration = Duration::from_millis(1);

/// The socket.
#[derive(Debug)]
pub(crate) struct MediaSocket {
    shared: Arc<Shared>,
    /// By family: IPv4, IPv6. `None` if it cannot be opened.
    sockets: [OnceLock<Option<UdpSocket>>; 2],
    readers: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    workers: Vec<Arc<WorkerHandle>>,
    /// The worker that has sent the last command of each shard: it has the shard, or knows where it is.
    senders: Vec<AtomicU16>,
    is_stopping: AtomicBool,
}

impl MediaSocket {
    pub(crate) fn new(workers: Vec<Arc<WorkerHandle>>, shards: u16) -> Self {
        let senders = (0..shards).map(|_| AtomicU16::new(0)).collect();
        let shared = Arc::new(Shared { workers, senders, is_stopping: AtomicBool::new(false) });
        Self { shared, sockets: [OnceLock::new(), OnceLock::new()], readers: Mutex::default() }
    }

    /// Sends a command of a shard, which `worker` has. Returns whether it has left; if not, the shard repeats it.
    pub(crate) fn send(&self, worker: usize, shard: ShardId, engine: SocketAddr, command: &[u8]) -> bool {
        let sender = self.shared.senders.get(usize::from(shard.0));
        sender.into_iter().for_each(|sender| sender.store(u16::try_from(worker).unwrap_or(0), Ordering::Relaxed));
        let family = usize::from(engine.is_ipv6());
        let socket = self.sockets.get(family).and_then(|socket| socket.get_or_init(|| self.open(engine)).as_ref());
        socket.is_some_and(|socket| socket.send_to(command, engine).is_ok())
    }

    fn open(&self, engine: SocketAddr) -> Option<UdpSocket> {
        self.try_open(engine)
            .inspect_err(|error| tracing::error!(%engine, %error, "the socket to media engines cannot be opened; free descriptors or ports, then restart"))
            .ok()
    }

    fn try_open(&self, engine: SocketAddr) -> io::Result<UdpSocket> {
        let any: SocketAddr =
            if engine.is_ipv6() { (Ipv6Addr::UNSPECIFIED, 0).into() } else { (Ipv4Addr::UNSPECIFIED, 0).into() };
        let socket = UdpSocket::bind(any)?;
        socket.set_read_timeout(Some(STOP_INTERVAL))?;
        socket.set_write_timeout(Some(SEND_TIMEOUT))?;
        let (reader, shared) = (socket.try_clone()?, Arc::clone(&self.shared));
        let name = if engine.is_ipv6() { "media-v6" } else { "media-v4" };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || shared.read(&reader))?;
        self.readers.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(socket)
    }
}

impl Drop for MediaSocket {
    fn drop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::Release);
        for thread in self.readers.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn read(&self, socket: &UdpSocket) {
        let mut buffer = vec![0; MAX_REPLY];
        while !self.is_stopping.load(Ordering::Acquire) {
            // Errors are time-outs, or reports about engines that the shards find silent themselves.
            let Ok((length, engine)) = socket.recv_from(&mut buffer) else { continue };
            let engine = SocketAddr::new(engine.ip().to_canonical(), engine.port());
            let message = buffer.get(..length).unwrap_or(&[]);
            let Some(shard) = shard_of(message) else { continue };
            let Some(sender) = self.senders.get(usize::from(shard.0)) else { continue };
            let worker = self.workers.get(usize::from(sender.load(Ordering::Relaxed)));
            worker.into_iter().for_each(|worker| worker.notify_media(shard, engine, message.into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use mio::{Poll, Token};
    use strowger_media::Cookie;

    use super::*;
    use crate::handover::WorkerWaker;

    #[test]
    fn answers_go_to_the_worker_that_has_sent_the_command() {
        let polls = [(); 3].map(|()| Poll::new().expect("a poll"));
        let workers: Vec<_> = polls
            .iter()
            .map(|poll| {
                let waker = WorkerWaker::new(poll.registry(), Token(0)).expect("a waker");
                Arc::new(WorkerHandle::new(waker, Arc::default()))
            })
            .collect();
        let socket = MediaSocket::new(workers.clone(), 48);
        let engine = UdpSocket::bind("127.0.0.1:0").expect("bound");
        let address = engine.local_addr().expect("an address");
        let shard = ShardId(17);
        let command = format!("{} ping", Cookie { shard, nonce: 1, serial: 2 }.to_text());
        assert!(socket.send(2, shard, address, command.as_bytes()));
        let mut buffer = [0; 100];
        let (length, server) = engine.recv_from(&mut buffer).expect("the command");
        assert_eq!(&buffer[..length], command.as_bytes());
        // Neither of these is an answer.
        engine.send_to(b"nonsense", server).expect("sent");
        engine.send_to(command.replace("0011", "ffff").as_bytes(), server).expect("sent");
        engine.send_to(command.as_bytes(), server).expect("sent");
        let mail = loop {
            match workers[2].take_mailbox() {
                Some(mail) => break mail.media,
                None => thread::yield_now(),
            }
        };
        assert_eq!(mail, [(shard, address, command.into_bytes().into())]);
        assert!(workers[..2].iter().all(|worker| worker.take_mailbox().is_none()));
    }
}
