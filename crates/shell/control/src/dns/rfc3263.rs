//! Location of servers for a host name: RFC 3263 §4.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use hickory_resolver::proto::rr::rdata::{NAPTR, SRV};
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use strowger_foundation::Transport;
use strowger_locate::{Candidate, CandidateList, Hop, LocateError, LocateQuery, LocateResult, MAX_HOPS};
use tokio::time::{Instant, timeout_at};

use super::records::{RecordAnswer, RecordError, RecordLookup};
use super::{SendableTransports, Server, ServersAnswer};

/// Maximum number of NAPTR records followed.
const MAX_SERVICES: usize = 8;

/// Maximum number of SRV records followed, the best first.
const MAX_TARGETS: usize = 32;

/// Maximum number of addresses of a host followed, per family.
const MAX_ADDRESSES: usize = strowger_balancer::MAX_MEMBERS;

/// Lifetime of an incomplete answer.
const PARTIAL_TTL: Duration = Duration::from_secs(10);

/// Lifetime of the answer that something is not a host name or is not reachable; longer than any cache keeps it.
const PERMANENT_TTL: Duration = Duration::from_secs(86_400);

/// Resources for locating servers.
pub(super) struct Locator<R> {
    pub(super) records: R,
    pub(super) reach: SendableTransports,
    /// Time at which missing parts are given up; the answer uses the rest.
    pub(super) deadline: Instant,
}

/// Locates the next hops of `question`. Also returns the lifetime: the smallest TTL of the lookups.
pub(super) async fn locate<R: RecordLookup>(locator: &Locator<R>, question: &LocateQuery) -> (LocateResult, Duration) {
    let allowed = allowed(question, locator.reach);
    let (Some(host), Some(&first)) = (host_name(&question.host), allowed.first()) else {
        return (Err(LocateError::NoSuchName), PERMANENT_TTL);
    };
    let mut way = PendingLookup { locator, ttl: Duration::MAX, is_incomplete: false };
    //= rfc3263#4.2
    //= rfc3263#4.1:port
    let candidates = if let Some(port) = question.port {
        way.at_host(&host, first, port).await
    } else if !locator.records.has_servers() {
        way.at_host(&host, first, first.default_port()).await
    } else {
        way.by_services(&host, question, &allowed).await
    };
    way.finish(candidates)
}

/// Returns the servers in the SRV records of the domain in `question`, under the preferred transport that has some,
/// and their lifetime. An incomplete answer is no answer.
pub(super) async fn servers<R: RecordLookup>(
    locator: &Locator<R>,
    question: &LocateQuery,
) -> (ServersAnswer, Duration) {
    let allowed = allowed(question, locator.reach);
    let Some(host) = host_name(&question.host).filter(|_| !allowed.is_empty()) else {
        return (Err(LocateError::NoSuchName), PERMANENT_TTL);
    };
    let mut way = PendingLookup { locator, ttl: Duration::MAX, is_incomplete: false };
    let services = way.services(&host, question, &allowed).await;
    let targets = if way.is_incomplete { Targets::default() } else { way.srv(&services).await };
    let first = targets.list.first().map(|target| target.rank);
    let of_first = targets.list.into_iter().filter(|target| Some(target.rank) == first);
    let found: Vec<Server> = of_first.map(|Target { transport, srv, .. }| server(transport, &srv)).collect();
    way.answer(found)
}

/// Returns every reachable address of the host in `question`, each as a server, and their lifetime. Without an answer
/// for one family, there is no answer.
pub(super) async fn addresses<R: RecordLookup>(
    locator: &Locator<R>,
    question: &LocateQuery,
) -> (ServersAnswer, Duration) {
    let reach = locator.reach;
    let transport = question.transport.unwrap_or_default();
    let wanted = [true, false].map(|ipv6| reach.has(transport, ipv6));
    let Some(host) = host_name(&question.host).filter(|_| wanted != [false, false]) else {
        return (Err(LocateError::NoSuchName), PERMANENT_TTL);
    };
    let mut way = PendingLookup { locator, ttl: Duration::MAX, is_incomplete: false };
    let all = way.addresses(vec![(&host, wanted)], MAX_ADDRESSES).await;
    let port = question.port.unwrap_or(transport.default_port());
    let reached = all.into_iter().flatten().filter(|address| is_one_host(*address));
    let found = reached.map(|address| server_at(transport, SocketAddr::new(address, port))).collect();
    way.answer(found)
}

fn server_at(transport: Transport, address: SocketAddr) -> Server {
    let host = match address.ip() {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    };
    Server { host, port: address.port(), transport, priority: 0, weight: 1 }
}

fn server(transport: Transport, srv: &SRV) -> Server {
    let host = srv.target.to_ascii().trim_end_matches('.').to_ascii_lowercase();
    Server { host, port: srv.port, transport, priority: srv.priority, weight: srv.weight }
}

/// Returns the available transports that fit the URI, the preferred one first.
fn allowed(question: &LocateQuery, reach: SendableTransports) -> Vec<Transport> {
    let fits = |transport: Transport| match (question.transport, question.is_secure) {
        //= rfc3263#4.1:sips-services
        (Some(Transport::Tcp | Transport::Tls), true) | (None, true) => transport == Transport::Tls,
        (Some(Transport::Ws | Transport::Wss), true) => transport == Transport::Wss,
        (Some(Transport::Udp), true) => false,
        //= rfc3263#4.1:transport-of-uri
        (Some(named), false) => transport == named,
        //= rfc3263#4.1:sips-kept
        (None, false) => matches!(transport, Transport::Udp | Transport::Tcp | Transport::Tls),
    };
    reach.transports().filter(|transport| fits(*transport)).collect()
}

/// Returns the fully qualified name; `None` if the text cannot be one.
fn host_name(host: &[u8]) -> Option<Name> {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    if host.is_empty() || !host.iter().all(plain) {
        return None;
    }
    let mut name = Name::from_ascii(str::from_utf8(host).ok()?).ok()?;
    name.set_fqdn(true);
    Some(name)
}

/// An SRV name to query.
struct Service {
    transport: Transport,
    name: Name,
}

/// An SRV record.
struct Target {
    rank: u16,
    transport: Transport,
    srv: SRV,
}

/// Answers for the SRV names.
#[derive(Default)]
struct Targets {
    list: Vec<Target>,
    /// Whether any name had records, even ones that deny the service.
    any: bool,
}

/// Addresses of a name, IPv6 first, as in RFC 7984 §3 and RFC 6724.
type Addresses = Vec<IpAddr>;

/// A location in progress.
struct PendingLookup<'a, R> {
    locator: &'a Locator<R>,
    /// Smallest TTL so far.
    ttl: Duration,
    /// Whether some lookup has not been answered.
    is_incomplete: bool,
}

impl<R: RecordLookup> PendingLookup<'_, R> {
    fn finish(self, candidates: Vec<Candidate>) -> (LocateResult, Duration) {
        let located = CandidateList::new(candidates);
        let ttl = if self.ttl == Duration::MAX { Duration::ZERO } else { self.ttl };
        match (located.candidates.is_empty(), self.is_incomplete) {
            (false, false) => (Ok(Arc::new(located)), ttl),
            (false, true) => (Ok(Arc::new(located)), ttl.min(PARTIAL_TTL)),
            (true, false) => (Err(LocateError::NoSuchName), ttl),
            (true, true) => (Err(LocateError::NoAnswer), Duration::ZERO),
        }
    }

    /// Returns all of `found`, or no answer if a lookup is incomplete.
    fn answer(self, found: Vec<Server>) -> (ServersAnswer, Duration) {
        let ttl = if self.ttl == Duration::MAX { Duration::ZERO } else { self.ttl };
        match (found.is_empty(), self.is_incomplete) {
            (_, true) => (Err(LocateError::NoAnswer), Duration::ZERO),
            (true, false) => (Err(LocateError::NoSuchName), ttl),
            (false, false) => (Ok(found), ttl),
        }
    }

    /// Looks up NAPTR if the URI leaves the transport open, then SRV, then addresses (RFC 3263 §4.1, §4.2).
    async fn by_services(&mut self, host: &Name, question: &LocateQuery, allowed: &[Transport]) -> Vec<Candidate> {
        let services = self.services(host, question, allowed).await;
        if self.is_incomplete {
            // Without an answer for NAPTR, the next steps could lead to the wrong server.
            return Vec::new();
        }
        let transport = services.first().map(|service| service.transport);
        let mut targets = self.srv(&services).await;
        targets.list.truncate(MAX_TARGETS);
        match (targets.any, transport.or(allowed.first().copied())) {
            //= rfc3263#4.2
            //= rfc3263#4.1:default
            (false, Some(transport)) if !self.is_incomplete => {
                self.at_host(host, transport, transport.default_port()).await
            }
            _ => self.at_targets(&targets.list).await,
        }
    }

    /// Returns the SRV names to query, the best first: from NAPTR records, or else one per transport.
    async fn services(&mut self, host: &Name, question: &LocateQuery, allowed: &[Transport]) -> Vec<Service> {
        //= rfc3263#4.1:naptr
        let found = if question.transport.is_none() { self.naptr(host, allowed).await } else { Vec::new() };
        if !found.is_empty() {
            return found;
        }
        //= rfc3263#4.1
        allowed.iter().filter_map(|transport| service(host, *transport, question)).collect()
    }

    /// Returns the services that the domain offers and this server can use, the best first.
    async fn naptr(&mut self, host: &Name, allowed: &[Transport]) -> Vec<Service> {
        let Some(found) = self.ask(host, RecordType::NAPTR).await else {
            return Vec::new();
        };
        let mut records: Vec<&NAPTR> = found
            .records
            .iter()
            .filter_map(|record| match &record.data {
                RData::NAPTR(naptr) => Some(naptr),
                _ => None,
            })
            .collect();
        records.sort_by_key(|naptr| (naptr.order, naptr.preference));
        let usable = |naptr: &&NAPTR| {
            //= rfc3263#4.1:unknown-services
            let transport = naptr_transport(&naptr.services).filter(|transport| allowed.contains(transport))?;
            // RFC 3263 uses no records with a regular expression or an address result.
            let fits =
                naptr.flags.eq_ignore_ascii_case(b"s") && naptr.regexp.is_empty() && !naptr.replacement.is_root();
            fits.then(|| Service { transport, name: naptr.replacement.clone() })
        };
        records.iter().filter_map(usable).take(MAX_SERVICES).collect()
    }

    /// Returns the SRV records of `services`, in the order of the services, the best first.
    async fn srv(&mut self, services: &[Service]) -> Targets {
        let locator = self.locator;
        let questions = services.iter().map(|service| ask(locator, &service.name, RecordType::SRV)).collect();
        let answers = join_all(questions).await;
        let mut targets = Targets::default();
        for ((rank, service), answer) in (0_u16..).zip(services).zip(answers) {
            let Some(found) = self.take(answer) else { continue };
            targets.any = true;
            for record in found.records {
                //= rfc2782#Target
                // A target of "." says that the service is not available.
                if let RData::SRV(srv) = record.data
                    && !srv.target.is_root()
                {
                    targets.list.push(Target { rank, transport: service.transport, srv });
                }
            }
        }
        targets.list.sort_by_key(|target| (target.rank, target.srv.priority));
        targets
    }

    /// Returns the candidates for SRV records, querying each name once.
    async fn at_targets(&mut self, targets: &[Target]) -> Vec<Candidate> {
        let mut names: BTreeMap<&Name, Addresses> = BTreeMap::new();
        for target in targets {
            names.entry(&target.srv.target).or_default();
        }
        let reach = self.locator.reach;
        let wanted = |name: &Name, ipv6: bool| {
            let mut of_name = targets.iter().filter(|target| target.srv.target == *name);
            of_name.any(|target| reach.has(target.transport, ipv6))
        };
        let questions = names.keys().map(|name| (*name, [wanted(name, true), wanted(name, false)])).collect();
        for (addresses, found) in names.values_mut().zip(self.addresses(questions, MAX_HOPS).await) {
            *addresses = found;
        }
        let candidate = |target: &Target| {
            let Target { rank, transport, srv } = target;
            let addresses = names.get(&srv.target)?;
            let hops = hops(addresses, *transport, srv.port, reach);
            Some(Candidate { rank: *rank, priority: srv.priority, weight: srv.weight, hops })
        };
        targets.iter().filter_map(candidate).collect()
    }

    /// Returns the host itself as the only candidate.
    async fn at_host(&mut self, host: &Name, transport: Transport, port: u16) -> Vec<Candidate> {
        let reach = self.locator.reach;
        let wanted = [true, false].map(|ipv6| reach.has(transport, ipv6));
        let found = self.addresses(vec![(host, wanted)], MAX_HOPS).await;
        let addresses: Addresses = found.into_iter().flatten().collect();
        vec![Candidate { rank: 0, priority: 0, weight: 0, hops: hops(&addresses, transport, port, reach) }]
    }

    /// Returns the addresses of each name, at most `most` per family, queried concurrently. The flags say whether
    /// IPv6 and IPv4 are wanted.
    async fn addresses(&mut self, names: Vec<(&Name, [bool; 2])>, most: usize) -> Vec<Addresses> {
        let mut places = Vec::new();
        let mut questions = Vec::new();
        for (place, (name, wanted)) in names.iter().enumerate() {
            for (kind, _) in [RecordType::AAAA, RecordType::A].into_iter().zip(wanted).filter(|(_, wanted)| **wanted) {
                places.push(place);
                questions.push(ask(self.locator, name, kind));
            }
        }
        let mut all = vec![Addresses::new(); names.len()];
        for (place, answer) in places.into_iter().zip(join_all(questions).await) {
            let records = self.take(answer).map_or_else(Vec::new, |found| found.records);
            if let Some(addresses) = all.get_mut(place) {
                addresses.extend(records.iter().filter_map(|record| record.data.ip_addr()).take(most));
            }
        }
        all
    }

    async fn ask(&mut self, name: &Name, kind: RecordType) -> Option<RecordAnswer> {
        let answer = ask(self.locator, name, kind).await;
        self.take(answer)
    }

    /// Takes an answer and updates the smallest TTL.
    fn take(&mut self, answer: Result<RecordAnswer, RecordError>) -> Option<RecordAnswer> {
        match answer {
            Ok(found) => {
                self.ttl = self.ttl.min(found.ttl);
                return Some(found);
            }
            Err(RecordError::None(ttl)) => self.ttl = self.ttl.min(ttl.unwrap_or(Duration::MAX)),
            Err(RecordError::NotImplemented) => {}
            Err(RecordError::NoAnswer) => self.is_incomplete = true,
        }
        None
    }
}

/// Runs one lookup, which ends early enough to use the results of the others.
async fn ask<R: RecordLookup>(
    locator: &Locator<R>,
    name: &Name,
    kind: RecordType,
) -> Result<RecordAnswer, RecordError> {
    timeout_at(locator.deadline, locator.records.look_up(name.clone(), kind))
        .await
        .unwrap_or(Err(RecordError::NoAnswer))
}

/// Returns the SRV name of a transport at `host`; `None` for WebSocket (RFC 7118 §10 uses no SRV), and for TLS unless
/// the URI requires it.
fn service(host: &Name, transport: Transport, question: &LocateQuery) -> Option<Service> {
    let prefix = match transport {
        Transport::Udp => "_sip._udp",
        Transport::Tcp => "_sip._tcp",
        Transport::Tls if question.is_secure || question.transport.is_some() => "_sips._tcp",
        Transport::Tls | Transport::Ws | Transport::Wss => return None,
    };
    let mut name = Name::from_ascii(prefix).ok()?.append_domain(host).ok()?;
    name.set_fqdn(true);
    Some(Service { transport, name })
}

/// Returns the transport of a NAPTR record's service field (RFC 3263 §4.1, §8.1; RFC 7118 §10).
fn naptr_transport(services: &[u8]) -> Option<Transport> {
    const SERVICES: [(&[u8], Transport); 3] =
        [(b"SIP+D2U", Transport::Udp), (b"SIP+D2T", Transport::Tcp), (b"SIPS+D2T", Transport::Tls)];
    SERVICES.into_iter().find(|(name, _)| services.eq_ignore_ascii_case(name)).map(|(_, transport)| transport)
}

fn hops(
    addresses: &[IpAddr],
    transport: Transport,
    port: u16,
    reach: SendableTransports,
) -> smallvec::SmallVec<[Hop; 2]> {
    let reached = addresses.iter().filter(|address| port != 0 && is_one_host(**address));
    let reached = reached.filter(|address| reach.has(transport, address.is_ipv6()));
    // A request tries no more hops.
    reached.take(MAX_HOPS).map(|address| Hop::new(transport, SocketAddr::new(*address, port))).collect()
}

/// Whether an address is a unicast host address. A domain's owner can publish any address; requests to multicast or
/// unspecified addresses must not leave.
fn is_one_host(address: IpAddr) -> bool {
    let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    !(address.is_unspecified() || address.is_multicast() || is_broadcast)
}

/// Runs the futures concurrently and returns their results in order.
async fn join_all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut running: Vec<Pin<Box<F>>> = futures.into_iter().map(Box::pin).collect();
    let mut done: Vec<Option<F::Output>> = running.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (future, place) in running.iter_mut().zip(&mut done) {
            if place.is_none()
                && let Poll::Ready(answer) = future.as_mut().poll(context)
            {
                *place = Some(answer);
            }
        }
        if done.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}
