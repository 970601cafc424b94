//! `[server]`: listeners, domains and workers.

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strowger_foundation::Transport;

use super::Span;
use super::values::{Affinity, Domain, ListenAddress, Spin};

/// Maximum number of workers of one server.
pub const MAX_WORKERS: u16 = 256;

/// `[server]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Server {
    /// Transport, address and port of each listener. 0.0.0.0 and [::] create one listener for each address of their
    /// family that the machine has at start.
    pub listen: Vec<ListenAddress>,
    /// Domains whose users the server serves. Each listening address is an alias of the first one.
    pub domains: Vec<Domain>,
    /// Folder of the server's data, relative to the working directory.
    pub data: PathBuf,
    /// File of the server's signing key. Servers that share requests need the same key. Default: DATA/key, which is
    /// created if missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
    /// Number of threads that process messages. Default: one per core.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub workers: Option<u16>,
    /// Minimum number of workers with work; the others join under load. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub min_workers: Option<u16>,
    /// CPU affinity of the workers: none (the system schedules them), auto (each on its own core), or a list of
    /// cores, one per worker.
    pub affinity: Affinity,
    /// Distribution of datagrams to workers: peers (all datagrams of a peer go to one worker, which preserves their
    /// order) or packets (any worker, so that a single busy peer uses all of them).
    pub steering: Steering,
    /// Whether messages of equal length to one peer leave as one packet that the kernel splits: never, auto (not
    /// while a packet capture is open) or always. Joining is cheaper if a few peers get most of the traffic, but a
    /// capture on this machine shows the joined packet.
    pub segmentation: Segmentation,
    /// Maximum time for which a worker polls for the next message before it sleeps, if messages usually follow that
    /// soon. 0s: never; always: a worker with shards does not sleep, which occupies a core and avoids wake-ups.
    pub spin: Spin,
    /// Whether the times of packets are measured, for `strowger ctl timing`. Takes at most 2 % of the CPU time.
    pub timing: bool,
}

impl Default for Server {
    fn default() -> Self {
        //= rfc3261#18.2.1:default-ports
        let any = |transport| ListenAddress { transport, address: ([0, 0, 0, 0], 5060).into() };
        let listen = vec![any(Transport::Udp), any(Transport::Tcp)];
        Self {
            listen,
            domains: vec![Domain("localhost".to_owned())],
            data: PathBuf::from("data"),
            key_file: None,
            workers: None,
            min_workers: None,
            affinity: Affinity::None,
            steering: Steering::Peers,
            segmentation: Segmentation::Auto,
            spin: Spin::UpTo(Span(Duration::from_micros(10))),
            timing: true,
        }
    }
}

/// `server.steering`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
#[expect(missing_docs, reason = "`Server::steering` says what they mean")]
pub enum Steering {
    Peers,
    Packets,
}

/// `server.segmentation`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
#[expect(missing_docs, reason = "`Server::segmentation` says what they mean")]
pub enum Segmentation {
    Never,
    Auto,
    Always,
}
