//! Spans of calls over OTLP, decoded by the definitions of OpenTelemetry.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message as _;
use strowger_interop::{
    Answerer, Config, Load, OpenTelemetryCollector, PATIENCE, Phone, Program, free_port, poll, wait_until,
};

/// A collector that takes everything.
struct Collector {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
}

impl Collector {
    fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("bound");
        let requests = Arc::<Mutex<Vec<ExportTraceServiceRequest>>>::default();
        let taken = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                while let Some(request) = read(&stream) {
                    taken.lock().unwrap_or_else(PoisonError::into_inner).push(request);
                    let answer =
                        b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n";
                    if (&stream).write_all(answer).is_err() {
                        break;
                    }
                }
            }
        });
        Self { address, requests }
    }

    fn requests(&self) -> Vec<ExportTraceServiceRequest> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn spans(&self) -> Vec<Span> {
        let requests = self.requests();
        let resources = requests.iter().flat_map(|request| &request.resource_spans);
        resources.flat_map(|resource| &resource.scope_spans).flat_map(|scope| scope.spans.clone()).collect()
    }
}

/// Reads a request; `None` at the end of the connection.
fn read(stream: &TcpStream) -> Option<ExportTraceServiceRequest> {
    let (mut reader, mut head) = (BufReader::new(stream), String::new());
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let head = head.to_ascii_lowercase();
    assert!(head.starts_with("post /v1/traces http/1.1\r\n"), "{head}");
    assert!(head.contains("\r\ncontent-type: application/x-protobuf\r\n"), "{head}");
    assert!(head.contains("\r\nauthorization: bearer of-the-test\r\n"), "{head}");
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).expect("a length");
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("the body");
    Some(ExportTraceServiceRequest::decode(&body[..]).expect("valid by the definitions"))
}

fn attributes(pairs: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |value: &Option<AnyValue>| match value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        other => panic!("{other:?}"),
    };
    pairs.iter().map(|pair| (pair.key.clone(), text(&pair.value))).collect()
}

#[test]
fn a_call_is_a_trace_with_its_parts() {
    if !Program::Baresip.available() {
        return;
    }
    let collector = Collector::start();
    let more = format!(
        "[cdr]\nfile = \"cdr.json\"\n[trace]\nnode = \"edge-1\"\n[trace.otlp]\nto = \"http://{}\"\n\
         headers = {{ Authorization = \"Bearer of-the-test\" }}\n",
        collector.address
    );
    let server = Config { more, ..Config::default() }.start();
    let (mut alice, mut bob) = (Phone::start("alice"), Phone::start("bob"));
    assert_eq!(alice.register(&server, "secret of alice").kind, "REGISTER_OK");
    assert_eq!(bob.register(&server, "secret of bob").kind, "REGISTER_OK");
    alice.call(&mut bob);

    let spans = poll(PATIENCE, || Some(collector.spans()).filter(|spans| spans.iter().any(|span| span.name == "call")));
    let spans = spans.unwrap_or_else(|| panic!("no call: {:#?}", collector.spans()));
    let named = |name: &str| {
        let found: Vec<_> = spans.iter().filter(|span| span.name == name).collect();
        assert_eq!(found.len(), 1, "{name}: {spans:#?}");
        found[0].clone()
    };
    let call = named("call");
    assert_eq!((call.kind, call.parent_span_id.len(), call.trace_id.len()), (SpanKind::Server as i32, 0, 16));
    for part in ["challenge", "branch", "ringing", "talking"].map(named) {
        assert_eq!((&part.trace_id, &part.parent_span_id), (&call.trace_id, &call.span_id), "{part:?}");
        // Times of messages and of records are converted by other readings of the clocks.
        assert!(call.start_time_unix_nano <= part.start_time_unix_nano + 1_000_000, "{part:?}");
        assert!(part.start_time_unix_nano <= part.end_time_unix_nano, "{part:?}");
        assert!(part.end_time_unix_nano <= call.end_time_unix_nano + 1_000_000, "{part:?}");
    }
    let told = attributes(&call.attributes);
    assert_eq!(told["sip.call.end_reason"], "caller hung up");
    assert_eq!((told["network.protocol.name"].as_str(), told["network.transport"].as_str()), ("sip", "udp"));
    assert_eq!(attributes(&named("challenge").attributes)["sip.response.status_code"], "407");
    let branch = attributes(&named("branch").attributes);
    assert_eq!((branch["server.address"].as_str(), branch["sip.response.status_code"].as_str()), ("127.0.0.1", "200"));

    let record = poll(PATIENCE, || server.records().pop()).expect("a record of the call");
    let talked_s = (named("talking").end_time_unix_nano - named("talking").start_time_unix_nano) as f64 / 1e9;
    assert!((talked_s - record["talk_s"].as_f64().expect("seconds")).abs() < 0.01, "{talked_s} {record}");
    assert_eq!(told["sip.call_id"], record["call_id"].as_str().expect("a text"));

    let requests = collector.requests();
    let resource = requests[0].resource_spans[0].resource.as_ref().expect("a resource");
    let resource = attributes(&resource.attributes);
    assert_eq!((resource["service.name"].as_str(), resource["service.instance.id"].as_str()), ("strowger", "edge-1"));
    let all = format!("{requests:?}");
    assert!(!all.contains("alice@") && !all.contains("bob@"), "no user is named: {all}");
    let counters = server.status()["counters"]["otlp"].clone();
    assert_eq!(
        (&counters["sent"], &counters["dropped"], &counters["failed"]),
        (&spans.len().into(), &0.into(), &0.into())
    );
}

#[test]
fn the_opentelemetry_collector_understands_every_span() {
    let Some(collector) = OpenTelemetryCollector::start() else { return };
    let answerer = Answerer::start("udp", (Ipv4Addr::LOCALHOST, free_port()).into(), "");
    let more = format!(
        "[trace]\nnode = \"edge-1\"\n[trace.otlp]\nto = \"http://{}\"\n\
         [[route]]\nmatch = {{ domain = \"pool.test\" }}\naction = \"proxy\"\ntargets = [\"{}\"]\n",
        collector.address(),
        answerer.uri()
    );
    let server = Config { more, ..Config::open() }.start();
    let load = Load::start(&format!(
        "--to udp:{} --callee remote --domain pool.test --users 5 --rate 20 --calls 20 --seed 7 --set hold=none",
        server.address()
    ));
    assert_eq!(load.finish(PATIENCE).count("carried"), 20);
    let named = |name: &str| {
        let printed = collector.printed();
        printed
            .lines()
            .filter(|line| {
                line.split_once(':').is_some_and(|(key, value)| key.trim() == "Name" && value.trim() == name)
            })
            .count()
    };
    // A branch, its ringing and the talk of each call.
    for name in ["call", "branch", "ringing", "talking"] {
        wait_until("all spans are printed", || named(name) == 20);
    }
    let printed = collector.printed();
    for expected in
        ["service.name: Str(strowger)", "service.instance.id: Str(edge-1)", "sip.call.end_reason: Str(caller hung up)"]
    {
        assert!(printed.contains(expected), "{expected}: {printed}");
    }
    wait_until("all are confirmed", || server.status()["counters"]["otlp"]["sent"] == 80);
    let counters = server.status()["counters"]["otlp"].clone();
    assert_eq!((&counters["dropped"], &counters["failed"]), (&0.into(), &0.into()));
}
