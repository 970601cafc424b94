//! Loop of the thread without an engine: exchanges messages with the peers.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use strowger_foundation::Timestamp;
use strowger_members::{PeerOutput, Peers, Process};
use strowger_registrar::{Cursor, Version};
use tokio::net::UdpSocket;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Notify, watch};

use crate::pause::PausePoint;
use crate::process_start::process_start_ms;
use crate::report::Reporter;
use crate::sink::EngineBatch;
use crate::table::SharedState;
use crate::{ClusterConfig, PeerTransportConfig};

/// Maximum sleep, and the interval of status updates.
const REPORT_EVERY: Duration = Duration::from_millis(100);
/// Maximum number of datagrams and batches handled in a row.
const MAX_BATCH: usize = 64;
/// Maximum size of a datagram, in bytes.
const MAX_DATAGRAM: usize = 65_536;

/// State of the thread.
pub(crate) struct PeerLoop {
    table: SharedState,
    socket: UdpSocket,
    peers: Peers,
    reporter: Reporter,
    next_report: Timestamp,
    is_loaded: bool,
    buffer: Vec<u8>,
    /// Notified when nonces have been used.
    wake: Arc<Notify>,
    /// Configured peers.
    wanted: watch::Receiver<Vec<SocketAddr>>,
}

impl PeerLoop {
    pub(crate) fn new(
        config: &ClusterConfig,
        peers: &PeerTransportConfig,
        wanted: watch::Receiver<Vec<SocketAddr>>,
        reporter: Reporter,
    ) -> io::Result<Self> {
        let table = SharedState::new(config);
        let wake = Arc::new(Notify::new());
        table.set_waker(&wake);
        let socket = peers.socket.try_clone()?;
        socket.set_nonblocking(true)?;
        let socket = UdpSocket::from_std(socket)?;
        let listen = socket.local_addr()?;
        let core = strowger_members::PeersConfig {
            process: Process { member: config.member, started_ms: process_start_ms() },
            address: config.address,
            listen,
            peers: others(&peers.peers, listen),
            key: peers.key,
            limits: peers.limits,
        };
        let peers = Peers::new(table.now(), core);
        let (next_report, buffer) = (table.now(), vec![0; MAX_DATAGRAM]);
        Ok(Self { table, socket, peers, reporter, next_report, is_loaded: false, buffer, wake, wanted })
    }

    pub(crate) async fn run(
        mut self,
        mut batches: UnboundedReceiver<EngineBatch>,
        mut pauses: PausePoint,
        stop: &Notify,
    ) {
        loop {
            self.update_loaded();
            self.send_nonce_uses();
            self.drain_outputs().await;
            self.report();
            let now = self.table.now();
            let sleep = self.peers.poll_timeout().saturating_since(now).min(REPORT_EVERY);
            tokio::select! {
                () = stop.notified() => return self.end(batches).await,
                pause = pauses.wanted() => if !pauses.hold(pause, stop).await {
                    return;
                },
                Some(handed) = batches.recv() => self.forward(handed, &mut batches),
                () = self.wake.notified() => {}
                Ok(()) = self.wanted.changed() => self.change_peers(),
                _ = self.socket.readable() => self.receive(),
                () = tokio::time::sleep(sleep) => self.peers.handle_timeout(self.table.now()),
            }
        }
    }

    /// Sends what is left once, without waiting for answers.
    async fn end(mut self, mut batches: UnboundedReceiver<EngineBatch>) {
        while let Ok(handed) = batches.try_recv() {
            self.forward(handed, &mut batches);
        }
        self.drain_outputs().await;
    }

    /// Records that this server's own disk has been read, so that the table waits only for the peers.
    fn update_loaded(&mut self) {
        if !self.is_loaded && self.table.locations.pending_sources() <= 1 {
            self.is_loaded = true;
            self.peers.handle_loaded(self.table.now());
        }
    }

    fn change_peers(&mut self) {
        let Ok(listen) = self.socket.local_addr() else { return };
        let wanted = others(&self.wanted.borrow_and_update(), listen);
        self.peers.set_peers(self.table.now(), &wanted);
    }

    /// Sends the used nonces.
    fn send_nonce_uses(&mut self) {
        let now = self.table.now();
        while let Some(uses) = self.table.nonces.poll_uses(now) {
            self.peers.handle_nonce_uses(now, uses);
        }
    }

    /// Forwards accepted changes. Nobody waits for them.
    fn forward(&mut self, first: EngineBatch, more: &mut UnboundedReceiver<EngineBatch>) {
        let rest = (1..MAX_BATCH).map_while(|_| more.try_recv().ok());
        let mut records = Vec::new();
        for handed in std::iter::once(first).chain(rest) {
            records.extend(handed.records);
            handed.waiter.finish(true);
        }
        self.peers.handle_changes(self.table.now(), &records);
    }

    fn receive(&mut self) {
        for _ in 0..MAX_BATCH {
            // An error of a datagram socket concerns an earlier datagram; its retransmission handles that.
            let Ok((length, from)) = self.socket.try_recv_from(&mut self.buffer) else { return };
            let datagram = self.buffer.get(..length).unwrap_or_default();
            self.peers.handle_datagram(self.table.now(), from, datagram);
        }
    }

    /// Processes the outputs of the peers.
    async fn drain_outputs(&mut self) {
        while let Some(output) = self.peers.poll_output() {
            match output {
                PeerOutput::Send { to, bytes } => {
                    // A failed send is treated as a lost datagram.
                    let _ = self.socket.send_to(&bytes, to).await;
                }
                PeerOutput::Apply(records) => self.apply(&records),
                PeerOutput::NoncesAcknowledged { member, until } => {
                    self.table.nonces.confirm_uses(Some(member.get()), until);
                }
                PeerOutput::Synced => {
                    self.table.locations.complete_source();
                    tracing::info!("cluster: synchronized, {} registrations", self.table.locations.len());
                }
                PeerOutput::ReadTable { peer, from } => self.read(peer, from),
            }
        }
    }

    /// Applies changes of another member, and republishes those that conflict with a newer local version and were
    /// restamped.
    fn apply(&mut self, records: &[Box<[u8]>]) {
        let known: Vec<_> = records.iter().filter_map(|record| self.table.put(record)).collect();
        if !known.is_empty() {
            self.peers.handle_changes(self.table.now(), &known);
        }
    }

    fn read(&mut self, peer: usize, from: Cursor) {
        let now = self.table.now();
        let is_wanted = |version: Version| self.peers.must_announce(now, peer, version);
        let mut records = Vec::new();
        let next = self.table.locations.copy_changes(now, from, &is_wanted, &mut records);
        self.peers.handle_table_part(now, peer, &records, next);
    }

    fn report(&mut self) {
        let now = self.table.now();
        if now >= self.next_report {
            self.next_report = now + REPORT_EVERY;
            self.reporter.report(now, self.peers.status(now));
        }
    }
}

/// Removes this member's own address: all members may be configured with the same list.
fn others(peers: &[SocketAddr], own: SocketAddr) -> Vec<SocketAddr> {
    peers.iter().copied().filter(|peer| *peer != own).collect()
}
