//! Tests of RFC 3263 against records defined here; tests with a real name server are in the crate's `tests` folder.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hickory_resolver::proto::rr::rdata::{A, AAAA, NAPTR, SRV};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use strowger_foundation::Transport;
use strowger_locate::{LocateError, LocateQuery, LocateResult, MAX_HOPS};
use tokio::time::Instant;

use super::records::{RecordAnswer, RecordError, RecordLookup};
use super::rfc3263::{Locator, addresses, locate, servers};
use super::{DnsConfig, DnsResolver, SendableTransports, ServersAnswer};

const NEGATIVE: Duration = Duration::from_secs(33);

#[derive(Clone, Default)]
struct Zone {
    records: HashMap<(Name, RecordType), Vec<RData>>,
    lacking: HashMap<(Name, RecordType), RecordError>,
    /// Queries that are never answered.
    silent: Vec<(Name, RecordType)>,
    no_servers: bool,
    asked: Arc<Mutex<Vec<(String, RecordType)>>>,
}

impl RecordLookup for Zone {
    async fn look_up(&self, name: Name, kind: RecordType) -> Result<RecordAnswer, RecordError> {
        self.asked.lock().unwrap().push((name.to_string(), kind));
        let key = (name.clone(), kind);
        if self.silent.contains(&key) {
            std::future::pending::<()>().await;
        }
        match (self.records.get(&key), self.lacking.get(&key)) {
            (Some(records), _) => {
                let records = records.iter().map(|data| Record::from_rdata(name.clone(), 100, data.clone())).collect();
                Ok(RecordAnswer { records, ttl: Duration::from_secs(100) })
            }
            (None, Some(lacking)) => Err(*lacking),
            (None, None) => Err(RecordError::None(Some(NEGATIVE))),
        }
    }

    fn has_servers(&self) -> bool {
        !self.no_servers
    }
}

fn name(text: &str) -> Name {
    Name::from_str(&format!("{text}.example.com.")).unwrap()
}

impl Zone {
    fn with(mut self, at: &str, data: RData) -> Self {
        self.records.entry((name(at), data.record_type())).or_default().push(data);
        self
    }

    fn a(self, at: &str, last: u8) -> Self {
        self.with(at, RData::A(A(Ipv4Addr::new(192, 0, 2, last))))
    }

    fn aaaa(self, at: &str) -> Self {
        self.with(at, RData::AAAA(AAAA(Ipv6Addr::LOCALHOST)))
    }

    fn srv(self, at: &str, port: u16, target: &str) -> Self {
        self.with(at, RData::SRV(SRV::new(0, 0, port, name(target))))
    }

    fn naptr(self, at: &str, order: u16, service: &str, to: &str) -> Self {
        let [flags, services, regexp] = [b"S", service.as_bytes(), b""].map(Box::from);
        self.with(at, RData::NAPTR(NAPTR::new(order, 0, flags, services, regexp, name(to))))
    }

    fn lacks(mut self, at: &str, kind: RecordType, lacking: RecordError) -> Self {
        self.lacking.insert((name(at), kind), lacking);
        self
    }

    fn silent(mut self, at: &str, kind: RecordType) -> Self {
        self.silent.push((name(at), kind));
        self
    }

    fn weighed(self, at: &str, priority: u16, weight: u16, target: &str) -> Self {
        self.with(at, RData::SRV(SRV::new(priority, weight, 5060, name(target))))
    }

    /// Looks up servers over UDP and TCP on IPv4, in virtual time.
    fn servers(&self, question: &LocateQuery) -> (ServersAnswer, Duration) {
        let reach = SendableTransports::of(
            [Transport::Udp, Transport::Tcp].map(|transport| (transport, (Ipv4Addr::LOCALHOST, 0).into())),
        );
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let deadline = Instant::now() + Duration::from_secs(2);
            servers(&Locator { records: self.clone(), reach, deadline }, question).await
        })
    }

    /// Looks up a host's addresses, in virtual time.
    fn addresses(
        &self,
        question: &LocateQuery,
        listeners: &[SocketAddr],
    ) -> (Result<Vec<String>, LocateError>, Duration) {
        let reach = SendableTransports::of(listeners.iter().map(|address| (Transport::Udp, *address)));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let (answer, ttl) = runtime.block_on(async {
            let deadline = Instant::now() + Duration::from_secs(2);
            addresses(&Locator { records: self.clone(), reach, deadline }, question).await
        });
        let shown =
            |one: super::Server| format!("{} {}:{} {}/{}", one.transport, one.host, one.port, one.priority, one.weight);
        (answer.map(|all| all.into_iter().map(shown).collect()), ttl)
    }

    fn hosts(&self, question: &LocateQuery) -> Vec<String> {
        let text = |server: super::Server| {
            let super::Server { host, port, transport, priority, weight } = server;
            format!("{transport} {host}:{port} {priority}/{weight}")
        };
        self.servers(question).0.expect("it is there").into_iter().map(text).collect()
    }

    /// Locates in virtual time.
    fn locate(&self, question: &LocateQuery, transports: &[Transport], ipv6: bool) -> (LocateResult, Duration) {
        let families: &[SocketAddr] = &[(Ipv4Addr::LOCALHOST, 0).into(), (Ipv6Addr::LOCALHOST, 0).into()];
        let families = &families[..1 + usize::from(ipv6)];
        let pairs = transports.iter().flat_map(|transport| families.iter().map(|address| (*transport, *address)));
        let reach = SendableTransports::of(pairs);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let deadline = Instant::now() + Duration::from_secs(2);
            let located = locate(&Locator { records: self.clone(), reach, deadline }, question).await;
            assert!(Instant::now() <= deadline + Duration::from_millis(1), "in time");
            located
        })
    }

    fn hops(&self, question: &LocateQuery, transports: &[Transport], ipv6: bool) -> Vec<String> {
        let (answer, _) = self.locate(question, transports, ipv6);
        let located = answer.expect("it is there");
        let hops = located.candidates.iter().flat_map(|candidate| &candidate.hops);
        hops.map(|hop| format!("{} {}", hop.transport, hop.address)).collect()
    }
}

fn question(transport: Option<Transport>, secure: bool) -> LocateQuery {
    LocateQuery::new(b"h.example.com", None, transport, secure)
}

const ALL: &[Transport] = &[Transport::Udp, Transport::Tcp, Transport::Tls, Transport::Ws, Transport::Wss];

#[test]
fn multicast_unspecified_and_port_zero_are_skipped() {
    let zone = Zone::default().srv("_sip._udp.h", 0, "a").srv("_sip._udp.h", 5070, "b").a("a", 1).a("b", 2);
    let evil = [Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST, Ipv4Addr::new(224, 0, 1, 75)];
    let zone = evil.into_iter().fold(zone, |zone, address| zone.with("b", RData::A(A(address))));
    assert_eq!(zone.hops(&question(None, false), ALL, false), ["UDP 192.0.2.2:5070"]);
    let (answer, _) = Zone::default().with("h", RData::A(A(evil[0]))).locate(&question(None, false), ALL, false);
    assert_eq!(answer, Err(LocateError::NoSuchName));
}

#[test]
fn kept_dns_records_are_bounded() {
    let zone = (0..2000).fold(Zone::default(), |zone, port| zone.srv("_sip._udp.h", 1024 + port, "t"));
    let zone = (0..200).fold(zone, |zone, last| zone.a("t", last));
    let (answer, _) = zone.locate(&question(None, false), ALL, false);
    let located = answer.expect("it is there");
    assert_eq!(located.candidates.len(), 32);
    assert!(located.candidates.iter().all(|candidate| candidate.hops.len() == MAX_HOPS));
    assert_eq!(zone.asked.lock().unwrap().iter().filter(|(_, kind)| *kind == RecordType::A).count(), 1);
}

#[test]
fn overlong_names_are_not_queried() {
    let mut config = DnsConfig::new(SendableTransports::of([(Transport::Udp, (Ipv4Addr::LOCALHOST, 5060).into())]));
    // Nothing listens there, and nothing is sent there.
    config.servers = vec![(Ipv4Addr::LOCALHOST, 1).into()];
    let resolver = DnsResolver::start(&config).expect("a thread");
    let answer = Arc::new(Mutex::new(None));
    let slot = Arc::clone(&answer);
    let question = LocateQuery::new(&[b'a'; 60_000], None, None, false);
    resolver.ask(question, Box::new(move |answer, _| *slot.lock().unwrap() = Some(answer)));
    assert_eq!(answer.lock().unwrap().take(), Some(Err(LocateError::NoSuchName)), "at once");
    assert_eq!((resolver.counts().queries, resolver.counts().not_found), (1, 1));
}

//= rfc3263#4.1:sips-services
//= rfc3263#4.1:sips-kept
#[test]
fn a_sips_uri_uses_tls_only() {
    let zone = Zone::default()
        .naptr("h", 1, "SIP+D2U", "_sip._udp.h")
        .naptr("h", 2, "SIPS+D2T", "_sips._tcp.h")
        .srv("_sip._udp.h", 5060, "one")
        .srv("_sips._tcp.h", 5061, "one")
        .a("one", 1);
    assert_eq!(zone.hops(&question(None, true), ALL, false), ["TLS 192.0.2.1:5061"]);
    assert_eq!(zone.hops(&question(Some(Transport::Tcp), true), ALL, false), ["TLS 192.0.2.1:5061"]);
    assert_eq!(zone.locate(&question(Some(Transport::Udp), true), ALL, false).0, Err(LocateError::NoSuchName));
    // The same without service records.
    let plain = Zone::default().a("h", 1);
    assert_eq!(plain.hops(&question(None, true), ALL, false), ["TLS 192.0.2.1:5061"]);
    // A sip URI may use TLS if the domain offers it, but does not require it.
    assert_eq!(zone.hops(&question(None, false), ALL, false), ["UDP 192.0.2.1:5060", "TLS 192.0.2.1:5061"]);
    plain.hops(&question(None, false), ALL, false);
    let asked = plain.asked.lock().unwrap();
    assert_eq!(asked.iter().filter(|(name, _)| name.starts_with("_sips._tcp")).count(), 1, "{asked:?}");
}

#[test]
fn websockets_query_no_srv_records() {
    let zone = Zone::default().a("h", 1);
    assert_eq!(zone.hops(&question(Some(Transport::Ws), false), ALL, false), ["WS 192.0.2.1:80"]);
    assert_eq!(zone.hops(&question(Some(Transport::Ws), true), ALL, false), ["WSS 192.0.2.1:443"]);
    assert!(zone.asked.lock().unwrap().iter().all(|(_, kind)| *kind == RecordType::A));
}

//= rfc3263#4.1:unknown-services
#[test]
fn srv_is_queried_when_naptr_has_no_usable_service() {
    let zone = Zone::default().naptr("h", 1, "SIPS+D2T", "_sips._tcp.h").srv("_sip._tcp.h", 5070, "one").a("one", 1);
    let ours = &[Transport::Udp, Transport::Tcp];
    assert_eq!(zone.hops(&question(None, false), ours, false), ["TCP 192.0.2.1:5070"]);
}

#[test]
fn a_shared_srv_target_is_queried_once() {
    let zone = Zone::default().srv("_sip._udp.h", 5060, "one").srv("_sip._tcp.h", 5060, "one").a("one", 1);
    assert_eq!(zone.hops(&question(None, false), ALL, false), ["UDP 192.0.2.1:5060", "TCP 192.0.2.1:5060"]);
    let asked = zone.asked.lock().unwrap();
    assert_eq!(asked.iter().filter(|(_, kind)| *kind == RecordType::A).count(), 1, "{asked:?}");
}

//= rfc3263#4.1:port
#[test]
fn a_timeout_for_one_address_family_keeps_the_other() {
    let zone = Zone::default().a("h", 1).aaaa("h").silent("h", RecordType::AAAA);
    let (answer, ttl) = zone.locate(&question(None, false), ALL, true);
    assert_eq!(answer.expect("it is there").candidates[0].hops.len(), 1);
    assert_eq!(ttl, Duration::from_secs(10), "it is asked again soon");
    assert_eq!(zone.hops(&LocateQuery { port: Some(7), ..question(None, false) }, ALL, true), ["UDP 192.0.2.1:7"]);
}

//= rfc3263#4.1:default
#[test]
fn an_unanswered_query_fails_the_lookup() {
    let there = || Zone::default().a("h", 1);
    let no_answer = (Err(LocateError::NoAnswer), Duration::ZERO);
    let ask = |zone: Zone| zone.locate(&question(None, false), ALL, false);
    assert_eq!(ask(there().silent("h", RecordType::NAPTR)), no_answer);
    assert_eq!(ask(there().lacks("h", RecordType::NAPTR, RecordError::NoAnswer)), no_answer);
    assert_eq!(ask(there().silent("_sip._udp.h", RecordType::SRV)), no_answer);
    assert_eq!(ask(Zone::default().silent("h", RecordType::A)), no_answer);
    // A server that does not support NAPTR has no NAPTR records.
    let old = there().lacks("h", RecordType::NAPTR, RecordError::NotImplemented);
    assert_eq!(old.hops(&question(None, false), ALL, false), ["UDP 192.0.2.1:5060"]);
}

#[test]
fn hosts_file_is_used_without_name_servers() {
    let zone = Zone { no_servers: true, ..Zone::default().a("h", 1) };
    assert_eq!(zone.hops(&question(None, false), ALL, false), ["UDP 192.0.2.1:5060"]);
    assert_eq!(*zone.asked.lock().unwrap(), [("h.example.com.".to_owned(), RecordType::A)]);
}

#[test]
fn the_smallest_ttl_includes_negative_answers() {
    let (_, ttl) = Zone::default().a("h", 1).locate(&question(None, false), ALL, false);
    assert_eq!(ttl, NEGATIVE);
    let (_, ttl) = Zone::default().srv("_sip._udp.h", 1, "one").a("one", 1).locate(
        &question(Some(Transport::Udp), false),
        ALL,
        false,
    );
    assert_eq!(ttl, Duration::from_secs(100));
}

fn domain(transport: Option<Transport>) -> LocateQuery {
    LocateQuery::new(b"sip.example.com", None, transport, false)
}

//= rfc3263#4.1:transport-of-uri
//= rfc3263#4.1:naptr
#[test]
fn servers_are_of_one_transport_with_their_weights() {
    let zone = Zone::default().weighed("_sip._udp.sip", 10, 3, "One").weighed("_sip._udp.sip", 20, 0, "two").weighed(
        "_sip._tcp.sip",
        0,
        0,
        "three",
    );
    assert_eq!(zone.hosts(&domain(None)), ["UDP one.example.com:5060 10/3", "UDP two.example.com:5060 20/0"]);
    assert_eq!(zone.hosts(&domain(Some(Transport::Tcp))), ["TCP three.example.com:5060 0/0"]);
    assert_eq!(zone.servers(&domain(None)).1, NEGATIVE, "so soon there may be a NAPTR record");
    let zone = zone.naptr("sip", 10, "SIP+D2T", "_sip._tcp.sip").naptr("sip", 20, "SIP+D2U", "_sip._udp.sip");
    assert_eq!(zone.hosts(&domain(None)), ["TCP three.example.com:5060 0/0"], "as the domain prefers");
    assert_eq!(zone.hosts(&domain(Some(Transport::Udp))).len(), 2);
}

#[test]
fn servers_are_all_or_none() {
    let zone = Zone::default().weighed("_sip._tcp.sip", 0, 0, "three");
    assert_eq!(zone.hosts(&domain(None)), ["TCP three.example.com:5060 0/0"]);
    let owed = zone.clone().lacks("_sip._udp.sip", RecordType::SRV, RecordError::NoAnswer);
    assert_eq!(owed.servers(&domain(None)), (Err(LocateError::NoAnswer), Duration::ZERO), "there may be some by UDP");
    let silent = zone.silent("_sip._tcp.sip", RecordType::SRV);
    assert_eq!(silent.servers(&domain(None)).0, Err(LocateError::NoAnswer));
    assert_eq!(
        Zone::default().a("sip", 1).servers(&domain(None)).0,
        Err(LocateError::NoSuchName),
        "an address is no service"
    );
    let decided = Zone::default().with("_sip._udp.sip", RData::SRV(SRV::new(0, 0, 0, Name::root())));
    assert_eq!(decided.servers(&domain(Some(Transport::Udp))).0, Err(LocateError::NoSuchName), "decidedly not there");
    let no_name = LocateQuery::new(b"exa mple.com", None, None, false);
    assert_eq!(Zone::default().servers(&no_name).0, Err(LocateError::NoSuchName));
}

#[test]
fn each_reachable_address_of_a_host_is_one_server() {
    let (v4, v6) = ((Ipv4Addr::LOCALHOST, 0).into(), (Ipv6Addr::LOCALHOST, 0).into());
    let host = |port| LocateQuery::new(b"pods.example.com", port, Some(Transport::Udp), false);
    let zone = Zone::default().a("pods", 1).a("pods", 2).aaaa("pods");
    let (found, ttl) = zone.addresses(&host(Some(5070)), &[v4]);
    assert_eq!(found, Ok(vec!["UDP 192.0.2.1:5070 0/1".to_owned(), "UDP 192.0.2.2:5070 0/1".to_owned()]));
    assert_eq!(ttl, Duration::from_secs(100));
    let (found, _) = zone.addresses(&host(None), &[v4, v6]);
    assert_eq!(found.map(|all| all.len()), Ok(3), "of both families");
    let (found, _) = zone.addresses(&host(None), &[v6]);
    assert_eq!(found, Ok(vec!["UDP [::1]:5060 0/1".to_owned()]), "as URIs have it");
    let owed = zone.clone().silent("pods", RecordType::AAAA);
    assert_eq!(Zone::default().addresses(&host(None), &[v4]).0, Err(LocateError::NoSuchName));
    let owed =
        Zone { records: owed.records.into_iter().filter(|((_, kind), _)| *kind == RecordType::A).collect(), ..owed };
    assert_eq!(owed.addresses(&host(None), &[v4, v6]), (Err(LocateError::NoAnswer), Duration::ZERO), "all or none");
    assert_eq!(
        owed.addresses(&host(None), &[v4]).0.map(|all| all.len()),
        Ok(2),
        "what is not reached is not asked for"
    );
    let many = (0..=255).fold(Zone::default(), |zone, last| zone.a("pods", last));
    let (found, _) = many.addresses(&host(None), &[v4]);
    assert_eq!(found.map(|all| all.len()), Ok(256), "more than one request would try");
}
