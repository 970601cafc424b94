//! RFC 3263 against a real name server.

#[path = "../../../../interop/src/bind9.rs"]
#[allow(dead_code, unreachable_pub, reason = "it is a part of another crate, which uses all of it")]
mod bind9;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bind9::Bind9;
use strowger_control::dns::{DnsConfig, DnsResolver, NameServers, SendableTransports};
use strowger_foundation::Transport;
use strowger_locate::{CandidateList, LocateError, LocateQuery, LocateResult};

/// Generous timeout for tests that do not measure time.
const PATIENCE: Duration = Duration::from_secs(20);

/// Negative TTL of the test zone, in s.
const NEGATIVE_TTL_S: u32 = 47;

const ZONE: &str = r#"
; All steps: order, then preference; a service that nobody has; an address that only counts for TCP.
naptr           IN NAPTR 50 50 "s" "SIPS+D2T" "" _sips._tcp.naptr
naptr           IN NAPTR 90 50 "s" "SIP+D2T"  "" _sip._tcp.naptr
naptr           IN NAPTR 100 50 "s" "SIP+D2U" "" _sip._udp.other
naptr           IN NAPTR 10 50 "u" "E2U+sip" "!^.*$!sip:x@y!" .
_sip._tcp.naptr 120 IN SRV 10 0 5070 one
_sip._tcp.naptr 120 IN SRV 20 0 5071 two
_sip._udp.other IN SRV 0 0 5080 two
_sip._udp.naptr IN SRV 0 0 9999 two
one             60 IN A 127.0.0.2
two             IN A 127.0.0.3
; Without NAPTR.
weights           IN A 127.0.0.9
_sip._udp.weights IN SRV 1 40 5061 one
_sip._udp.weights IN SRV 1 40 5062 one
_sip._udp.weights IN SRV 1 20 5063 two
; Not there, or not by UDP.
gone           IN A 127.0.0.9
_sip._udp.gone IN SRV 0 0 0 .
half           IN A 127.0.0.9
_sip._udp.half IN SRV 0 0 0 .
_sip._tcp.half IN SRV 0 0 5060 one
; An alias, and a target that does not exist.
alias          IN CNAME really
really         20 IN CNAME one
broken         IN A 127.0.0.9
_sip._udp.broken IN SRV 1 0 5060 nowhere
_sip._udp.broken IN SRV 2 0 5061 one
; Both families.
both           IN A 127.0.0.4
both           IN AAAA ::1
six            IN AAAA ::1
; A pool, of which one server is a spare.
_sip._udp.pool 30 IN SRV 0 3 5061 one
_sip._udp.pool 30 IN SRV 0 1 5062 Two
_sip._udp.pool 30 IN SRV 1 1 5063 two
_sip._tcp.pool IN SRV 0 0 5064 one
; More than a datagram holds.
$GENERATE 1-90 _sip._udp.many IN SRV "$ 0 $ a-long-name-so-that-the-answer-does-not-fit-$"
$GENERATE 1-90 a-long-name-so-that-the-answer-does-not-fit-$ IN A 127.0.1.$
"#;

fn zone() -> Bind9 {
    Bind9::start("example.com", NEGATIVE_TTL_S, ZONE)
}

fn reach(transports: &[Transport], families: &[SocketAddr]) -> SendableTransports {
    SendableTransports::of(
        transports.iter().flat_map(|transport| families.iter().map(|address| (*transport, *address))),
    )
}

fn v4() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 5060).into()
}

fn v6() -> SocketAddr {
    (Ipv6Addr::LOCALHOST, 5060).into()
}

fn resolver(server: SocketAddr, reach: SendableTransports) -> DnsResolver {
    let config = DnsConfig { servers: vec![server], ..DnsConfig::new(reach) };
    DnsResolver::start(&config).expect("a thread can be started")
}

fn udp_and_tcp(server: &Bind9) -> DnsResolver {
    resolver(server.address(), reach(&[Transport::Udp, Transport::Tcp], &[v4()]))
}

fn host(name: &str) -> LocateQuery {
    LocateQuery::new(format!("{name}.example.com").as_bytes(), None, None, false)
}

fn ask(resolver: &DnsResolver, question: LocateQuery) -> (LocateResult, Duration) {
    let (said, answer) = mpsc::channel();
    resolver.ask(question, Box::new(move |answer, ttl| said.send((answer, ttl)).unwrap_or_default()));
    answer.recv_timeout(PATIENCE).expect("every question is answered")
}

/// Formats the servers in the order in which they are tried, with rank, priority and weight.
fn servers(located: &CandidateList) -> Vec<String> {
    let text = |candidate: &strowger_locate::Candidate| {
        let hops: Vec<String> = candidate.hops.iter().map(|hop| format!("{} {}", hop.transport, hop.address)).collect();
        format!("{}/{}/{} {}", candidate.rank, candidate.priority, candidate.weight, hops.join(", "))
    };
    let mut all: Vec<String> = located.candidates.iter().map(text).collect();
    all.sort();
    all
}

fn found(resolver: &DnsResolver, question: LocateQuery) -> Vec<String> {
    let asked = format!("{question:?}");
    match ask(resolver, question) {
        (Ok(located), _) => servers(&located),
        (Err(failure), _) => panic!("{asked}: {failure:?}"),
    }
}

//= rfc3263#4.1:naptr
#[test]
fn naptr_leads_to_srv_and_srv_to_addresses() {
    if !Bind9::available() {
        return;
    }
    let server = zone();
    let resolver = udp_and_tcp(&server);
    let (answer, ttl) = ask(&resolver, host("naptr"));
    // TCP comes before UDP here; TLS is not available; SRV names missing in NAPTR are not queried.
    let wanted = ["0/10/0 TCP 127.0.0.2:5070", "0/20/0 TCP 127.0.0.3:5071", "1/0/0 UDP 127.0.0.3:5080"];
    assert_eq!(servers(&answer.expect("it is there")), wanted);
    assert_eq!(ttl, Duration::from_secs(60), "the smallest on the way is that of an address");

    let udp_only = resolver_for_udp(&server);
    assert_eq!(found(&udp_only, host("naptr")), ["0/0/0 UDP 127.0.0.3:5080"]);
}

fn resolver_for_udp(server: &Bind9) -> DnsResolver {
    resolver(server.address(), reach(&[Transport::Udp], &[v4()]))
}

//= rfc3263#4.1:transport-of-uri
#[test]
fn uri_transport_and_port_win() {
    if !Bind9::available() {
        return;
    }
    let server = zone();
    let resolver = udp_and_tcp(&server);
    let tcp = LocateQuery { transport: Some(Transport::Tcp), ..host("naptr") };
    assert_eq!(found(&resolver, tcp), ["0/10/0 TCP 127.0.0.2:5070", "0/20/0 TCP 127.0.0.3:5071"]);
    let udp = LocateQuery { transport: Some(Transport::Udp), ..host("naptr") };
    assert_eq!(found(&resolver, udp), ["0/0/0 UDP 127.0.0.3:9999"]);
    // A port selects the host itself, although it has SRV records.
    let port = LocateQuery { port: Some(5099), ..host("weights") };
    assert_eq!(found(&resolver, port), ["0/0/0 UDP 127.0.0.9:5099"]);
    let both = LocateQuery { port: Some(5099), transport: Some(Transport::Tcp), ..host("weights") };
    assert_eq!(found(&resolver, both), ["0/0/0 TCP 127.0.0.9:5099"]);
    // No SRV records for TCP: the host over TCP.
    let other = LocateQuery { transport: Some(Transport::Tcp), ..host("weights") };
    assert_eq!(found(&resolver, other), ["0/0/0 TCP 127.0.0.9:5060"]);
    // TLS is required.
    let secure = LocateQuery { is_secure: true, ..host("naptr") };
    assert_eq!(ask(&resolver, secure).0, Err(LocateError::NoSuchName));
}

#[test]
fn weights_hold_over_ten_thousand_calls() {
    if !Bind9::available() {
        return;
    }
    let server = zone();
    let (answer, _) = ask(&udp_and_tcp(&server), host("weights"));
    let located = answer.expect("it is there");
    let mut first = [0_u32; 3];
    for call in 0..10_000 {
        let mut order = smallvec::SmallVec::new();
        located.order(call, |_| false, &mut order);
        assert_eq!(order.len(), 3);
        first[usize::from(order[0].address.port() - 5061)] += 1;
    }
    for (count, share) in first.into_iter().zip([4_000_u32, 4_000, 2_000]) {
        assert!(count.abs_diff(share) <= 200, "{first:?}");
    }
}

#[test]
fn a_missing_service_is_not_tried() {
    if !Bind9::available() {
        return;
    }
    let server = zone();
    let resolver = udp_and_tcp(&server);
    assert_eq!(ask(&resolver, host("gone")).0, Err(LocateError::NoSuchName));
    assert_eq!(found(&resolver, host("half")), ["1/0/0 TCP 127.0.0.2:5060"]);
    assert_eq!(found(&resolver, host("broken")), ["0/2/0 UDP 127.0.0.2:5061"]);
}

#[test]
fn a_missing_name_is_reported_with_its_ttl() {
    if !Bind9::available() {
        return;
    }
    let server = zone();
    let resolver = udp_and_tcp(&server);
    let negative = Duration::from_secs(u64::from(NEGATIVE_TTL_S));
    assert_eq!(ask(&resolver, host("nobody")), (Err(LocateError::NoSuchName), negative));
    // Not valid host names, so DNS is not queried.
    for name in [&b"no such name"[..], b"", b"a..b", b"\xff", &[b'a'; 300]] {
        let (answer, _) = ask(&resolver, LocateQuery::new(name, None, None, false));
        assert_eq!(answer, Err(LocateError::NoSuchName), "{name:?}");
    }
}

#[test]
fn cnames_are_followed() {
    if !Bind9::available() {
        return;
    }
    let server = zone();
    let (answer, ttl) = ask(&udp_and_tcp(&server), host("alias"));
    assert_eq!(servers(&answer.expect("it is there")), ["0/0/0 UDP 127.0.0.2:5060"]);
    assert_eq!(ttl, PATIENCE, "the alias has the smallest");
}

#[test]
fn addresses_match_the_available_families() {
    if !Bind9::available() {
        return;
    }
    let server = zone();
    let with = |families: &[SocketAddr]| resolver(server.address(), reach(&[Transport::Udp], families));
    let both = with(&[v4(), v6()]);
    assert_eq!(found(&both, host("both")), ["0/0/0 UDP [::1]:5060, UDP 127.0.0.4:5060"]);
    assert_eq!(found(&both, host("six")), ["0/0/0 UDP [::1]:5060"]);
    assert_eq!(found(&with(&[v4()]), host("both")), ["0/0/0 UDP 127.0.0.4:5060"]);
    assert_eq!(found(&with(&[v6()]), host("both")), ["0/0/0 UDP [::1]:5060"]);
    assert_eq!(ask(&with(&[v4()]), host("six")).0, Err(LocateError::NoSuchName));
    // The address family may differ by transport.
    let mixed = SendableTransports::of([(Transport::Udp, v4()), (Transport::Tcp, v6())]);
    let mixed = resolver(server.address(), mixed);
    let tcp = LocateQuery { transport: Some(Transport::Tcp), ..host("both") };
    assert_eq!(found(&mixed, tcp), ["0/0/0 TCP [::1]:5060"]);
    assert_eq!(found(&mixed, host("both")), ["0/0/0 UDP 127.0.0.4:5060"]);
}

#[test]
fn a_truncated_answer_is_fetched_over_tcp_and_capped() {
    if !Bind9::available() {
        return;
    }
    let server = zone();
    let (answer, _) = ask(&udp_and_tcp(&server), host("many"));
    let located = answer.expect("it is there");
    let priorities: Vec<u16> = located.candidates.iter().map(|candidate| candidate.priority).collect();
    assert_eq!(priorities, (1..=32).collect::<Vec<u16>>());
}

#[test]
fn identical_queries_share_one_lookup() {
    if !Bind9::available() {
        return;
    }
    let server = zone();
    let resolver = udp_and_tcp(&server);
    let (said, answers) = mpsc::channel();
    for _ in 0..500 {
        let said = said.clone();
        resolver.ask(host("naptr"), Box::new(move |answer, _| said.send(answer).unwrap_or_default()));
    }
    for _ in 0..500 {
        let answer = answers.recv_timeout(PATIENCE).expect("every question is answered");
        assert_eq!(answer.expect("it is there").candidates.len(), 3);
    }
    let counts = resolver.counts();
    assert_eq!((counts.queries, counts.coalesced + counts.answered), (500, 500), "{counts:?}");
    assert!(counts.answered <= 3, "{counts:?}");
}

#[test]
fn a_thousand_names_at_once_are_all_found() {
    if !Bind9::available() {
        return;
    }
    let server = Bind9::start("example.com", 5, "$GENERATE 0-999 h$ IN A 127.0.0.2\n");
    // Only completeness is tested; the machine may be busy.
    let reach = reach(&[Transport::Udp, Transport::Tcp], &[v4()]);
    let config = DnsConfig { servers: vec![server.address()], timeout: PATIENCE, attempts: 8, ..DnsConfig::new(reach) };
    let resolver = DnsResolver::start(&config).expect("a thread can be started");
    let (said, answers) = mpsc::channel();
    for number in 0..1_000 {
        let said = said.clone();
        resolver.ask(host(&format!("h{number}")), Box::new(move |answer, _| said.send(answer).unwrap_or_default()));
    }
    for _ in 0..1_000 {
        let answer = answers.recv_timeout(2 * PATIENCE).expect("every question is answered");
        assert_eq!(servers(&answer.expect("it is there")), ["0/0/0 UDP 127.0.0.2:5060"]);
    }
}

#[test]
fn a_dead_dns_server_times_out_and_is_queried_again_later() {
    if !Bind9::available() {
        return;
    }
    let mut server = zone();
    let resolver = udp_and_tcp(&server);
    assert_eq!(found(&resolver, host("one")), ["0/0/0 UDP 127.0.0.2:5060"]);
    server.stop();
    let begun = Instant::now();
    assert_eq!(ask(&resolver, host("one")), (Err(LocateError::NoAnswer), Duration::ZERO));
    let took = begun.elapsed();
    assert!(took < Duration::from_millis(2_000), "{took:?}");
    server.start_again();
    assert_eq!(found(&resolver, host("one")), ["0/0/0 UDP 127.0.0.2:5060"]);
}

#[test]
fn a_second_name_server_takes_over() {
    if !Bind9::available() {
        return;
    }
    let (mut first, second) = (zone(), zone());
    let reach = reach(&[Transport::Udp], &[v4()]);
    let servers = vec![first.address(), second.address()];
    let resolver =
        DnsResolver::start(&DnsConfig { servers, ..DnsConfig::new(reach) }).expect("a thread can be started");
    assert_eq!(found(&resolver, host("one")), ["0/0/0 UDP 127.0.0.2:5060"]);
    first.stop();
    assert_eq!(found(&resolver, host("two")), ["0/0/0 UDP 127.0.0.3:5060"]);
}

#[test]
fn open_queries_are_answered_on_drop() {
    // Nothing listens there.
    let silent = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let address = silent.local_addr().expect("it is bound");
    let resolver = resolver(address, reach(&[Transport::Udp], &[v4()]));
    let (said, answers) = mpsc::channel();
    resolver.ask(host("one"), Box::new(move |answer, _| said.send(answer).unwrap_or_default()));
    drop(resolver);
    assert_eq!(answers.recv(), Ok(Err(LocateError::NoAnswer)));
}

#[test]
fn a_retired_resolver_still_answers_what_it_was_asked() {
    let server = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    server.set_read_timeout(Some(PATIENCE)).expect("settable");
    let address = server.local_addr().expect("it is bound");
    let resolver = resolver(address, reach(&[Transport::Udp], &[v4()]));
    let successor = resolver.successor(&DnsConfig::new(reach(&[Transport::Udp], &[v4()]))).expect("a thread");
    let (said, answers) = mpsc::channel();
    resolver.ask(host("one"), Box::new(move |answer, _| said.send(answer).unwrap_or_default()));
    let mut query = [0; 512];
    let mut received = server.recv_from(&mut query).expect("it asks");
    resolver.retire();
    drop(resolver);
    // Nothing exists, says the server to each question.
    let answer = loop {
        let (length, from) = received;
        query[2] |= 0x80;
        query[3] = 3;
        server.send_to(&query[..length], from).expect("sent");
        match answers.recv_timeout(Duration::from_millis(50)) {
            Ok(answer) => break answer,
            Err(_) => received = server.recv_from(&mut query).expect("it asks on"),
        }
    };
    assert_eq!(answer, Err(LocateError::NoSuchName));
    assert_eq!((successor.counts().queries, successor.counts().not_found), (1, 1), "the counters go on");
}

#[test]
fn queries_beyond_the_limit_fail_at_once() {
    let silent = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let address = silent.local_addr().expect("it is bound");
    let resolver = resolver(address, reach(&[Transport::Udp], &[v4()]));
    let (said, answers) = mpsc::channel();
    let begun = Instant::now();
    let total = 100_000;
    for number in 0..total {
        let said = said.clone();
        resolver.ask(host(&format!("h{number}")), Box::new(move |answer, _| said.send(answer).unwrap_or_default()));
    }
    for _ in 0..total {
        let answer = answers.recv_timeout(PATIENCE).expect("every question is answered");
        assert_eq!(answer, Err(LocateError::NoAnswer));
    }
    let counts = resolver.counts();
    assert!(counts.refused > 0, "{counts:?}");
    assert_eq!(counts.refused + counts.timeouts, total, "{counts:?}");
    // All answers arrived within the timeout plus the time to send the queries.
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn the_port_of_a_name_server_is_optional() {
    let read = |text: &str| DnsConfig::server(text).map(|address| address.to_string());
    assert_eq!(read("192.0.2.53").as_deref(), Ok("192.0.2.53:53"));
    assert_eq!(read("127.0.0.1:5353").as_deref(), Ok("127.0.0.1:5353"));
    assert_eq!(read("2001:db8::53").as_deref(), Ok("[2001:db8::53]:53"));
    assert_eq!(read("[2001:db8::53]").as_deref(), Ok("[2001:db8::53]:53"));
    assert_eq!(read("[2001:db8::53]:5353").as_deref(), Ok("[2001:db8::53]:5353"));
    assert!(read("dns.example.com").is_err_and(|error| error.contains("192.0.2.53")));
    assert!(matches!(
        resolver(v4(), SendableTransports::default()).source(),
        NameServers::Configured(servers) if servers[..] == [v4()]
    ));
}

#[test]
fn pool_servers_are_listed_by_name_until_dns_stops() {
    if !Bind9::available() {
        return;
    }
    let mut server = zone();
    let resolver = udp_and_tcp(&server);
    let servers = |question: LocateQuery| {
        let (said, answer) = mpsc::channel();
        resolver.ask_for_servers(question, Box::new(move |answer, ttl| said.send((answer, ttl)).unwrap_or_default()));
        let (answer, ttl) = answer.recv_timeout(PATIENCE).expect("every question is answered");
        let text = |one: &strowger_control::dns::Server| {
            format!("{} {}:{} {}/{}", one.transport, one.host, one.port, one.priority, one.weight)
        };
        let mut all: Vec<String> = answer.iter().flatten().map(text).collect();
        all.sort();
        (answer.map(|_| all), ttl)
    };
    let by_tcp = LocateQuery::new(b"pool.example.com", None, Some(Transport::Tcp), false);
    assert_eq!(servers(by_tcp).0, Ok(vec!["TCP one.example.com:5064 0/0".to_owned()]));
    let (found, ttl) = servers(host("pool"));
    let wanted = ["one.example.com:5061 0/3", "two.example.com:5062 0/1", "two.example.com:5063 1/1"];
    assert_eq!(found, Ok(wanted.map(|one| format!("UDP {one}")).to_vec()));
    assert_eq!(ttl, Duration::from_secs(30));
    assert_eq!(servers(host("many")).0.map(|all| all.len()), Ok(90), "none is left out");
    assert_eq!(servers(host("nothing")).0, Err(LocateError::NoSuchName));
    server.stop();
    assert_eq!(servers(host("pool")).0, Err(LocateError::NoAnswer));
}
