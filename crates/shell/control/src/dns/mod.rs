//! The DNS for a server whose workers never wait: RFC 3263 on a thread of its own.
//!
//! [`DnsResolver::ask`] takes a question and a function for its answer. Equal questions that are asked while one of them is
//! under way share its look-ups. There is no cache here: that is [`strowger_locate::Names`], which the workers read themselves.

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
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use strowger_foundation::Transport;
use strowger_locate::{LocateError, LocateQuery, LocateResult};
use tokio::sync::mpsc;

use records::Hickory;
use resolver_loop::{LookupReply, Request, ResolverLoop};

/// Questions that wait to be taken up by the resolver's thread at most; further ones are answered [`Failure::NoAnswer`] at once.
pub const MAX_QUEUED: usize = 4_096;

/// Askers that wait for an answer at most, all questions together; further ones are answered [`Failure::NoAnswer`] at once.
pub const MAX_WAITING: usize = 65_536;

/// Questions that are under way at the same time at most, each with a few sockets; others wait for them, within their time.
pub const MAX_IN_FLIGHT: usize = 128;

/// The port of name servers.
const DNS_PORT: u16 = 53;

/// What takes an answer: it, and how long it may be kept (by its TTLs; unclamped). Runs on the resolver's thread, or on the
/// asker's own where the resolver takes no more, so it must not block.
pub type Reply = Box<dyn FnOnce(LocateResult, Duration) + Send>;

/// One server of a service, as its SRV record has it (RFC 2782), or one address of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// The name of its host, in lower case, without a final dot; or an address, as URIs have it.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The transport that the record is of.
    pub transport: Transport,
    /// Those of a lower one are used first.
    pub priority: u16,
    /// The share among those of the same priority.
    pub weight: u16,
}

/// The servers of a domain, all that the preferred transport has, or the addresses of a host; at least one.
pub type ServersAnswer = Result<Vec<Server>, LocateError>;

/// What takes such an answer; as [`Reply`]. It is dropped where the resolver ends.
pub type ServersReply = Box<dyn FnOnce(ServersAnswer, Duration) + Send>;

/// How names are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsConfig {
    /// The name servers to ask; empty: those of the system (`/etc/resolv.conf`).
    pub servers: Vec<SocketAddr>,
    /// After so long a question that has no answer is answered [`Failure::NoAnswer`].
    pub timeout: Duration,
    /// How often a query is begun within that time, at least once.
    pub attempts: u32,
    /// What this server can send to.
    pub reach: Reach,
}

impl DnsConfig {
    /// The system's name servers, two attempts within two seconds.
    #[must_use]
    pub const fn new(reach: Reach) -> Self {
        Self { servers: Vec::new(), timeout: Duration::from_secs(2), attempts: 2, reach }
    }

    /// Reads a name server as it is written in the configuration: `192.0.2.53`, `192.0.2.53:5353`, `[2001:db8::53]:53`.
    ///
    /// # Errors
    /// What is wrong with it, and what to write instead.
    pub fn server(text: &str) -> Result<SocketAddr, String> {
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        bare.parse::<IpAddr>()
            .map(|address| SocketAddr::new(address, DNS_PORT))
            .or_else(|_| text.parse())
            .map_err(|_| format!("{text:?} is no name server: write its address, as 192.0.2.53 or [2001:db8::53]:53"))
    }
}

/// The transports and address families on which this server can send: those of its listeners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// A bit for each transport, in the order of [`PREFERRED`]: by IPv4, by IPv6.
    bits: [u8; 2],
}

/// The transports, the one first that is used where neither URI nor DNS say which.
const PREFERRED: [Transport; 5] = [Transport::Udp, Transport::Tcp, Transport::Tls, Transport::Ws, Transport::Wss];

impl Reach {
    /// What listeners with these transports and addresses reach.
    #[must_use]
    pub fn of(listeners: impl IntoIterator<Item = (Transport, SocketAddr)>) -> Self {
        let mut reach = Self::default();
        for (transport, address) in listeners {
            reach.bits[usize::from(address.is_ipv6())] |= bit(transport);
        }
        reach
    }

    /// Whether something can be sent over `transport` to an address of this family.
    #[must_use]
    pub fn has(&self, transport: Transport, ipv6: bool) -> bool {
        self.bits[usize::from(ipv6)] & bit(transport) != 0
    }

    /// The transports of either family, the preferred one first.
    pub fn transports(self) -> impl Iterator<Item = Transport> {
        PREFERRED.into_iter().filter(move |transport| self.has(*transport, false) || self.has(*transport, true))
    }
}

fn bit(transport: Transport) -> u8 {
    let place = PREFERRED.iter().position(|other| *other == transport);
    place.map_or(0, |place| 1 << place)
}

/// What the resolver has done since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DnsCounts {
    /// Questions asked.
    pub asked: u64,
    /// Of these: joined to an equal one that was under way.
    pub shared: u64,
    /// Refused since too many waited ([`MAX_QUEUED`], [`MAX_WAITING`]), or the resolver had stopped.
    pub refused: u64,
    /// Looked up and found.
    pub found: u64,
    /// Looked up: no such name, or nothing there that this server can reach.
    pub missing: u64,
    /// Looked up, without an answer in time.
    pub unanswered: u64,
}

#[derive(Debug, Default)]
struct Counters {
    asked: AtomicU64,
    shared: AtomicU64,
    refused: AtomicU64,
    found: AtomicU64,
    missing: AtomicU64,
    unanswered: AtomicU64,
}

/// Whom the resolver asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameServers {
    /// These servers, as configured.
    Configured(Vec<SocketAddr>),
    /// These, as the system's file says.
    System(PathBuf, Vec<SocketAddr>),
    /// Nobody, for this reason: only names of the hosts file are found.
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

/// A running resolver; dropping it answers what is still open with [`Failure::NoAnswer`] and ends its thread.
pub struct DnsResolver {
    requests: Option<mpsc::Sender<Request>>,
    thread: Option<JoinHandle<()>>,
    counters: Arc<Counters>,
    source: NameServers,
}

impl DnsResolver {
    /// Starts the thread. That no name server is known is no error: a server that needs none shall start; see
    /// [`DnsResolver::source`], and the log.
    ///
    /// # Errors
    /// When the system gives no thread or no event queue.
    pub fn start(config: &DnsConfig) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let (records, source) = Hickory::new(config)?;
        match &source {
            NameServers::Nobody(reason) => tracing::warn!(%reason, "no name server: host names cannot be located"),
            source => tracing::info!(%source, "name servers"),
        }
        let (requests, queue) = mpsc::channel(MAX_QUEUED);
        let counters = Arc::new(Counters::default());
        let desk = ResolverLoop::new(records, config, Arc::clone(&counters));
        let thread = thread::Builder::new().name("dns".to_owned()).spawn(move || runtime.block_on(desk.run(queue)))?;
        Ok(Self { requests: Some(requests), thread: Some(thread), counters, source })
    }

    /// Has `question` answered: `reply` is called once, within the configured time. Never blocks; where too many wait
    /// already, `reply` is called with [`Failure::NoAnswer`] before this returns.
    pub fn ask(&self, question: LocateQuery, reply: Reply) {
        if !question.is_valid_name() {
            // So no queue holds more than names.
            self.counters.asked.fetch_add(1, Ordering::Relaxed);
            self.counters.missing.fetch_add(1, Ordering::Relaxed);
            return reply(Err(LocateError::NoSuchName), Duration::ZERO);
        }
        self.request(Request { question, reply: LookupReply::Location(reply) });
    }

    /// Has it answered which servers the SRV records of the question's domain name: those of its transport, else of the one
    /// that NAPTR records or we prefer. `reply` is called as with [`ask`](Self::ask).
    pub fn ask_for_servers(&self, question: LocateQuery, reply: ServersReply) {
        self.request(Request { question, reply: LookupReply::Servers(reply) });
    }

    /// Has it answered which addresses the question's host has, each as a server of its own at the question's port. `reply` is
    /// called as with [`ask`](Self::ask).
    pub fn ask_for_addresses(&self, question: LocateQuery, reply: ServersReply) {
        self.request(Request { question, reply: LookupReply::Addresses(reply) });
    }

    fn request(&self, request: Request) {
        self.counters.asked.fetch_add(1, Ordering::Relaxed);
        let Some(requests) = &self.requests else { return };
        if let Err(error) = requests.try_send(request) {
            self.counters.refused.fetch_add(1, Ordering::Relaxed);
            let (mpsc::error::TrySendError::Full(request) | mpsc::error::TrySendError::Closed(request)) = error;
            request.reply.refuse();
        }
    }

    /// Whom it asks, for the start's message.
    #[must_use]
    pub const fn source(&self) -> &NameServers {
        &self.source
    }

    /// What it has done since its start.
    #[must_use]
    pub fn counts(&self) -> DnsCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { asked, shared, refused, found, missing, unanswered } = &*self.counters;
        DnsCounts {
            asked: read(asked),
            shared: read(shared),
            refused: read(refused),
            found: read(found),
            missing: read(missing),
            unanswered: read(unanswered),
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
        // The last owner may be a reply, which runs on the thread itself.
        let thread = self.thread.take().filter(|handle| handle.thread().id() != thread::current().id());
        if let Some(thread) = thread {
            // Its panic was reported by the panic hook already.
            let _ = thread.join();
        }
    }
}
