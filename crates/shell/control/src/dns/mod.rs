//! DNS resolution (RFC 3263) on its own thread, so that workers never block.
//!
//! [`DnsResolver::ask`] takes a query and a function for the answer. Equal queries in progress share their lookups.
//! The cache is elsewhere: workers read [`strowger_locate::NameCache`] directly.

mod records;
mod resolver_loop;
mod rfc3263;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use strowger_foundation::Transport;
use strowger_locate::{LocateError, LocateQuery, LocateResult};
use tokio::sync::mpsc;

use records::Hickory;
use resolver_loop::{LookupReply, Request, ResolverLoop};

/// Maximum number of queries queued for the resolver's thread; further ones are answered [`LocateError::NoAnswer`] at
/// once.
pub const MAX_QUEUED: usize = 4_096;

/// Maximum number of askers waiting for answers to all queries; further ones are answered [`LocateError::NoAnswer`]
/// at once.
pub const MAX_WAITING: usize = 65_536;

/// Maximum number of queries in progress, each with a few sockets; others wait, within their timeout.
pub const MAX_IN_FLIGHT: usize = 128;

/// Default port of name servers.
const DNS_PORT: u16 = 53;

/// Receives an answer and its lifetime (from the TTLs, unclamped). Runs on the resolver's thread, or on the asker's
/// if the resolver is full, so it must not block.
pub type Reply = Box<dyn FnOnce(LocateResult, Duration) + Send>;

/// A server in an SRV record (RFC 2782), or an address of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Host name in lower case, without a final dot; or an address as in a URI.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Transport of the record.
    pub transport: Transport,
    /// Priority; lower ones are used first.
    pub priority: u16,
    /// Weight among servers of the same priority.
    pub weight: u16,
}

/// Servers of a domain under the preferred transport, or addresses of a host; at least one.
pub type ServersAnswer = Result<Vec<Server>, LocateError>;

/// Receives the servers and their lifetime, like [`Reply`]. Dropped if the resolver ends.
pub type ServersReply = Box<dyn FnOnce(ServersAnswer, Duration) + Send>;

/// Settings of the resolver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsConfig {
    /// Name servers; empty for those of the system (`/etc/resolv.conf`).
    pub servers: Vec<SocketAddr>,
    /// Time after which an unanswered query is answered [`LocateError::NoAnswer`].
    pub timeout: Duration,
    /// Number of attempts within that time, at least one.
    pub attempts: u32,
    /// Transports and address families that this server can send over.
    pub reach: SendableTransports,
}

impl DnsConfig {
    /// Creates the default settings: the system's name servers, two attempts within two seconds.
    #[must_use]
    pub const fn new(reach: SendableTransports) -> Self {
        Self { servers: Vec::new(), timeout: Duration::from_secs(2), attempts: 2, reach }
    }

    /// Parses a name server as written in the configuration: `192.0.2.53`, `192.0.2.53:5353`, `[2001:db8::53]:53`.
    ///
    /// # Errors
    /// The problem, and what to write instead.
    pub fn server(text: &str) -> Result<SocketAddr, String> {
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        bare.parse::<IpAddr>().map(|address| SocketAddr::new(address, DNS_PORT)).or_else(|_| text.parse()).map_err(
            |_| format!("{text:?} is not a name server: write its address, such as 192.0.2.53 or [2001:db8::53]:53"),
        )
    }
}

/// Transports and address families that this server can send over: those of its listeners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendableTransports {
    /// One bit per transport, in the order of [`PREFERRED`]: for IPv4, for IPv6.
    bits: [u8; 2],
}

/// Transports in order of preference; the first is the default if neither URI nor DNS names one.
const PREFERRED: [Transport; 5] = [Transport::Udp, Transport::Tcp, Transport::Tls, Transport::Ws, Transport::Wss];

impl SendableTransports {
    /// Returns what listeners with these transports and addresses can reach.
    #[must_use]
    pub fn of(listeners: impl IntoIterator<Item = (Transport, SocketAddr)>) -> Self {
        let mut reach = Self::default();
        for (transport, address) in listeners {
            reach.bits[usize::from(address.is_ipv6())] |= bit(transport);
        }
        reach
    }

    /// Whether the server can send over `transport` to an address of this family.
    #[must_use]
    pub fn has(&self, transport: Transport, ipv6: bool) -> bool {
        self.bits[usize::from(ipv6)] & bit(transport) != 0
    }

    /// Returns the transports of either family, the preferred one first.
    pub fn transports(self) -> impl Iterator<Item = Transport> {
        PREFERRED.into_iter().filter(move |transport| self.has(*transport, false) || self.has(*transport, true))
    }
}

fn bit(transport: Transport) -> u8 {
    let place = PREFERRED.iter().position(|other| *other == transport);
    place.map_or(0, |place| 1 << place)
}

/// Counters of the resolver since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DnsCounts {
    /// Queries received.
    pub queries: u64,
    /// Queries that joined an equal one in progress.
    pub coalesced: u64,
    /// Queries refused because too many were waiting ([`MAX_QUEUED`], [`MAX_WAITING`]) or the resolver had stopped.
    pub refused: u64,
    /// Lookups that found an answer.
    pub answered: u64,
    /// Lookups of names that do not exist or that this server cannot reach.
    pub not_found: u64,
    /// Lookups without an answer in time.
    pub timeouts: u64,
}

#[derive(Debug, Default)]
struct Counters {
    queries: AtomicU64,
    coalesced: AtomicU64,
    refused: AtomicU64,
    answered: AtomicU64,
    not_found: AtomicU64,
    timeouts: AtomicU64,
}

/// Name servers that the resolver queries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameServers {
    /// Servers from the configuration.
    Configured(Vec<SocketAddr>),
    /// Servers from the system's file.
    System(PathBuf, Vec<SocketAddr>),
    /// No servers, with the reason. Only names in the hosts file are found.
    Nobody(String),
}

impl fmt::Display for NameServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |servers: &[SocketAddr]| servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        match self {
            Self::Configured(servers) => f.write_str(&list(servers)),
            Self::System(file, servers) => write!(f, "{} ({})", list(servers), file.display()),
            Self::Nobody(reason) => write!(f, "nobody: {reason}"),
        }
    }
}

/// A running resolver. Dropping it answers pending queries with [`LocateError::NoAnswer`] and ends its thread.
pub struct DnsResolver {
    requests: Option<mpsc::Sender<Request>>,
    thread: Option<JoinHandle<()>>,
    counters: Arc<Counters>,
    source: NameServers,
    is_retired: Arc<AtomicBool>,
}

impl DnsResolver {
    /// Starts the thread. A missing name server is not an error, because some servers need none; see
    /// [`DnsResolver::source`] and the log.
    ///
    /// # Errors
    /// The system provides no thread or no event queue.
    pub fn start(config: &DnsConfig) -> io::Result<Self> {
        Self::start_with(config, Arc::default())
    }

    /// Starts a resolver that continues the counters of this one. [Retire](Self::retire) this one once nobody asks it.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub fn successor(&self, config: &DnsConfig) -> io::Result<Self> {
        Self::start_with(config, Arc::clone(&self.counters))
    }

    /// Makes dropping this resolver answer pending queries properly, within their timeout, instead of at once. The
    /// dropping thread does not wait for that.
    pub fn retire(&self) {
        self.is_retired.store(true, Ordering::Release);
    }

    fn start_with(config: &DnsConfig, counters: Arc<Counters>) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let (records, source) = Hickory::new(config)?;
        match &source {
            NameServers::Nobody(reason) => {
                tracing::warn!(%reason, "no DNS server is configured: host names cannot be resolved");
            }
            source => tracing::info!(%source, "name servers"),
        }
        let (requests, queue) = mpsc::channel(MAX_QUEUED);
        let is_retired = Arc::new(AtomicBool::new(false));
        let desk = ResolverLoop::new(records, config, Arc::clone(&counters), Arc::clone(&is_retired));
        let thread = thread::Builder::new().name("dns".to_owned()).spawn(move || runtime.block_on(desk.run(queue)))?;
        Ok(Self { requests: Some(requests), thread: Some(thread), counters, source, is_retired })
    }

    /// Resolves `question`. `reply` is called once, within the configured timeout. Never blocks; if too many queries
    /// are waiting, `reply` is called with [`LocateError::NoAnswer`] before this returns.
    pub fn ask(&self, question: LocateQuery, reply: Reply) {
        if !question.is_valid_name() {
            // Keeps anything but names out of the queues.
            self.counters.queries.fetch_add(1, Ordering::Relaxed);
            self.counters.not_found.fetch_add(1, Ordering::Relaxed);
            return reply(Err(LocateError::NoSuchName), Duration::ZERO);
        }
        self.request(Request { question, reply: LookupReply::Location(reply) });
    }

    /// Queries the servers in the SRV records of the question's domain, under its transport, or else the one
    /// preferred by NAPTR records or by default. `reply` is called as with [`ask`](Self::ask).
    pub fn ask_for_servers(&self, question: LocateQuery, reply: ServersReply) {
        self.request(Request { question, reply: LookupReply::Servers(reply) });
    }

    /// Queries the addresses of the question's host, each returned as a server at the question's port. `reply` is
    /// called as with [`ask`](Self::ask).
    pub fn ask_for_addresses(&self, question: LocateQuery, reply: ServersReply) {
        self.request(Request { question, reply: LookupReply::Addresses(reply) });
    }

    fn request(&self, request: Request) {
        self.counters.queries.fetch_add(1, Ordering::Relaxed);
        let Some(requests) = &self.requests else { return };
        if let Err(error) = requests.try_send(request) {
            self.counters.refused.fetch_add(1, Ordering::Relaxed);
            let (mpsc::error::TrySendError::Full(request) | mpsc::error::TrySendError::Closed(request)) = error;
            request.reply.refuse();
        }
    }

    /// Returns the name servers, for the startup message.
    #[must_use]
    pub const fn source(&self) -> &NameServers {
        &self.source
    }

    /// Returns the counters since the start.
    #[must_use]
    pub fn counts(&self) -> DnsCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { queries, coalesced, refused, answered, not_found, timeouts } = &*self.counters;
        DnsCounts {
            queries: read(queries),
            coalesced: read(coalesced),
            refused: read(refused),
            answered: read(answered),
            not_found: read(not_found),
            timeouts: read(timeouts),
        }
    }
}

impl fmt::Debug for DnsResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DnsResolver")
            .field("source", &self.source)
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}

impl Drop for DnsResolver {
    fn drop(&mut self) {
        // Closing the queue ends the thread's loop.
        self.requests = None;
        if self.is_retired.load(Ordering::Acquire) {
            return;
        }
        // The last owner may be a reply that runs on the resolver's thread.
        let thread = self.thread.take().filter(|handle| handle.thread().id() != thread::current().id());
        if let Some(thread) = thread {
            // The panic hook has already reported a panic.
            let _ = thread.join();
        }
    }
}
