//! The HTTP listener's metrics: they are the counters of `ctl status`, and scrapes are limited.

mod common;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::thread;

use common::PATIENCE;
use common::server::Server;
use strowger_metrics::{COUNTERS, Kind};

const LISTEN: &str = "[admin]\nlisten = \"127.0.0.1:0\"\n";

/// Returns the address of the HTTP listener, from the log.
fn http(server: &Server) -> SocketAddr {
    let log = server.log();
    let (_, after) = log.split_once("metrics at http://").unwrap_or_else(|| panic!("no listener: {log}"));
    after.split('/').next().and_then(|address| address.parse().ok()).unwrap_or_else(|| panic!("{log}"))
}

/// Sends a request with these header fields, and returns head and body of the response.
fn fetch(address: SocketAddr, start: &str, fields: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("settable");
    let request = format!("{start} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{fields}\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("a response in text");
    let (head, body) = response.split_once("\r\n\r\n").expect("a head");
    (head.to_owned(), body.to_owned())
}

fn scrape(server: &Server) -> String {
    let (head, body) = fetch(http(server), "GET /metrics", "");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("content-type: text/plain; version=0.0.4"), "{head}");
    body
}

/// Returns the value of a sample.
fn value(text: &str, sample: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' ')?.parse().ok())
}

/// The name that a sample of this counter has.
fn sample(counter: &strowger_metrics::Counter) -> String {
    let suffix = match counter.kind {
        Kind::Counter => "_total",
        Kind::Bytes => "_bytes_total",
        Kind::Gauge => "",
    };
    let label = counter.label.map(|(label, value)| format!("{{{label}=\"{value}\"}}")).unwrap_or_default();
    format!("strowger_{}{suffix}{label}", counter.metric())
}

#[test]
fn counters_of_status_docs_and_metrics_are_the_same() {
    let server = Server::start(LISTEN);
    let status = server.status();
    let text = scrape(&server);
    let mut told: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for (part, counters) in status["counters"].as_object().expect("parts") {
        for (name, count) in counters.as_object().expect("counters") {
            told.insert((part, name), count.as_u64().expect("a number"));
        }
    }
    for counter in COUNTERS {
        assert!(told.remove(&(counter.part, counter.name)).is_some(), "{counter:?} is not in `ctl status`");
        assert!(value(&text, &sample(counter)).is_some(), "{counter:?} is not in the metrics");
    }
    assert!(told.is_empty(), "add to the metrics crate's COUNTERS: {told:?}");
    // The reference has the same counters in the same order, with the same meanings.
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operating/counters.md");
    let reference = std::fs::read_to_string(path).expect("it is published");
    let mut rows = Vec::new();
    for section in reference.split("\n## ").skip(1) {
        let part = section.lines().next().unwrap_or_default();
        let is_part = COUNTERS.iter().any(|counter| counter.part == part);
        let cells = section.lines().filter(|_| is_part).filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
        rows.extend(cells.map(|(name, rest)| (part, name, plain(rest.split(" | ").next().unwrap_or_default()))));
    }
    let own: Vec<_> = COUNTERS.iter().map(|counter| (counter.part, counter.name, counter.help.to_owned())).collect();
    for (row, own) in rows.iter().zip(&own) {
        assert_eq!(row, own, "counters.md and the metrics crate's COUNTERS differ");
    }
    assert_eq!(rows.len(), own.len());
}

/// Removes code marks and the targets of links.
fn plain(text: &str) -> String {
    let mut parts = text.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    let rest = parts.map(|part| part.split_once(')').map_or("", |(_, after)| after));
    rest.fold(first, |all, part| all + part).replace(['`', '['], "")
}

#[test]
fn metrics_follow_the_traffic_and_name_no_users() {
    let server = Server::start(LISTEN);
    let phone = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let head = format!(
        "REGISTER sip:localhost SIP/2.0\nFrom: <sip:somebody@localhost>;tag=1\nTo: <sip:somebody@localhost>\n\
         Call-ID: 1\nCSeq: 1 REGISTER\nContact: <sip:{}>",
        phone.local_addr().expect("bound")
    );
    assert!(server.ask(&phone, &head).starts_with("SIP/2.0 200 "));
    server.until("the registration is counted", || {
        let text = scrape(&server);
        value(&text, "strowger_shards_registered_total") == Some(1.0)
            && value(&text, "strowger_registrations") == Some(1.0)
            && value(&text, "strowger_requests_total{method=\"REGISTER\"}") == Some(1.0)
    });
    let text = scrape(&server);
    assert!(!text.contains("somebody"), "{text}");
    assert_eq!(value(&text, "strowger_request_processing_seconds_count{method=\"REGISTER\"}"), Some(1.0));
    assert_eq!(value(&text, "strowger_worker_load_ratio{worker=\"2\"}"), None, "there are two workers");
    assert!(value(&text, "strowger_worker_load_ratio{worker=\"1\"}").is_some(), "{text}");
    assert!(value(&text, "process_resident_memory_bytes").is_some_and(|bytes| bytes > 1e6), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("strowger_build_info{version=")).count(), 1);
    // The format that recent scrapers ask for.
    let (head, text) = fetch(http(&server), "GET /metrics", "Accept: application/openmetrics-text; version=1.0.0\r\n");
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{head}");
    assert!(text.contains("# TYPE strowger_shards_registered counter\n") && text.ends_with("# EOF\n"), "{text}");
}

#[test]
fn scrapes_are_valid_for_promtool() {
    let server = Server::start(LISTEN);
    let text = scrape(&server);
    let promtool =
        Command::new("promtool").args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut promtool = match promtool {
        Ok(promtool) => promtool,
        Err(_) if std::env::var("STROWGER_REQUIRE_INTEROP").is_ok_and(|value| value == "1") => {
            panic!("promtool is not installed (apt-get install prometheus)")
        }
        Err(_) => return eprintln!("skipped: promtool is not installed (apt-get install prometheus)"),
    };
    promtool.stdin.take().expect("piped").write_all(text.as_bytes()).expect("it reads");
    let found = promtool.wait_with_output().expect("it ends");
    let told = String::from_utf8_lossy(&found.stderr);
    assert!(found.status.success() && told.is_empty(), "{told}");
}

#[test]
fn only_known_addresses_may_read() {
    let server = Server::start("[admin]\nlisten = \"127.0.0.1:0\"\nmetrics_from = [\"192.0.2.0/24\"]\n");
    let (head, body) = fetch(http(&server), "GET /metrics", "");
    assert!(head.starts_with("HTTP/1.1 403 ") && body.contains("127.0.0.1 may not read"), "{head}\n{body}");
    for (start, status) in [("GET /x", "404"), ("POST /metrics", "405"), ("GET /metrics/../x", "404")] {
        let (head, _) = fetch(http(&server), start, "Content-Length: 0\r\n");
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{start}: {head}");
    }
}

#[test]
fn many_scrapers_cause_one_scrape_a_second() {
    let server = Server::start(LISTEN);
    let address = http(&server);
    let texts: Vec<String> = thread::scope(|scope| {
        let scrapers: Vec<_> = (0..16).map(|_| scope.spawn(|| fetch(address, "GET /metrics", "").1)).collect();
        scrapers.into_iter().map(|scraper| scraper.join().expect("a response")).collect()
    });
    // Each real scrape has its own uptime. On a busy machine a few seconds may pass.
    let mut uptimes: Vec<_> = texts.iter().filter_map(|text| value(text, "strowger_uptime_seconds")).collect();
    assert_eq!(uptimes.len(), 16);
    uptimes.dedup();
    uptimes.sort_by(f64::total_cmp);
    uptimes.dedup();
    let apart = uptimes.windows(2).all(|pair| pair[1] - pair[0] > 0.99);
    assert!(apart, "{uptimes:?}");
}

#[test]
fn a_listener_that_cannot_be_opened_stops_the_start() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound");
    let (folder, _) = Server::prepare(&format!("[admin]\nlisten = \"{address}\"\n"));
    let ran = folder.run(&["serve"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let expected = format!("the HTTP listener {address} cannot be opened");
    assert!(ran.err.contains(&expected) && ran.err.contains("[admin] listen"), "{ran:?}");
}
