//! The metrics of a server that has everything, and the files that name them.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use strowger_control::protocol::{
    Balancer, CallSetup, Certificate, Checkpoint, Cluster, Database, DestinationSetup, Disk, MediaEngine, Member,
    Outage, Peer, SetupTimes, Status, Store, Target, Trunk, WorkerLoad,
};
use strowger_metrics::{BOUNDS_NS, COUNTERS, Counter, Format, HttpConnections, Process, Scrape};
use strowger_timing::{HistogramRecorder, MessageType, MethodName, Part};

fn docs(file: &str) -> String {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../../../docs/operating", file].iter().collect();
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A scrape in which nothing is missing.
fn full() -> Scrape {
    let mut status = Status {
        version: "1.2.3".to_owned(),
        loads: vec![WorkerLoad { shards: 16, load: 0.25, awake: false }],
        store: Some(Store { state: "ok".to_owned(), disk: Some(disk()), ..Store::default() }),
        cluster: Some(cluster()),
        users_database: Some(Database::default()),
        calls_database: Some(Database { trouble: Some("no answer".to_owned()), ..Database::default() }),
        trunks: vec![trunk("good", "registered"), trunk("bad \"one\"\n", "refused")],
        outages: vec![outage("192.0.2.1"), outage("192.0.2.2")],
        balancers: vec![Balancer { name: "pstn".to_owned(), ..Balancer::default() }],
        media: vec![MediaEngine { address: ([192, 0, 2, 9], 2223).into(), is_up: true }; 2],
        certificates: vec![Certificate { file: "a.pem".to_owned(), expires_days: Some(2), ..Certificate::default() }],
        ..Status::default()
    };
    for Counter { part, name, .. } in COUNTERS {
        status.counters.entry((*part).to_owned()).or_default().insert((*name).to_owned(), 7);
    }
    let mut counts = vec![0; 19];
    (counts[0], counts[18]) = (3, 1);
    let setup = SetupTimes { counts, sum_s: 200.0 };
    status.call_setup = CallSetup { ringing: setup.clone(), cancelled: setup, ..CallSetup::default() };
    let of = |trunk: Option<&str>, target: Option<&str>| DestinationSetup {
        trunk: trunk.map(str::to_owned),
        set: target.map(|_| "pstn".to_owned()),
        target: target.map(str::to_owned),
        setup: status.call_setup.clone(),
        response: status.call_setup.ringing.clone(),
    };
    let setups = vec![of(Some("good"), None), of(None, Some("sip:192.0.2.1")), of(Some("good"), None)];
    status.counters.get_mut("shards").expect("a part").insert("calls".to_owned(), 9);
    Scrape {
        status,
        targets: vec![target(), target()],
        setups,
        times: times(),
        process: process(),
        http: HttpConnections::default(),
    }
}

fn disk() -> Disk {
    Disk { checkpoint: Checkpoint { last_s: Some(3.0), ..Checkpoint::default() }, ..Disk::default() }
}

fn cluster() -> Cluster {
    Cluster { members: vec![Member::default()], peers: vec![Peer::default()], ..Cluster::default() }
}

fn trunk(name: &str, state: &str) -> Trunk {
    Trunk {
        name: name.to_owned(),
        state: state.to_owned(),
        since_s: 1.5,
        expires_s: Some(60.0),
        last_answer: Some(200),
        next_try_s: None,
    }
}

/// An outage of one of a name's addresses.
fn outage(address: &str) -> Outage {
    Outage { uri: Some("sip:gw.example".to_owned()), address: address.to_owned(), since_s: 4.0, ..Outage::default() }
}

fn target() -> Target {
    Target {
        set: "pstn".to_owned(),
        uri: "sip:192.0.2.1".to_owned(),
        state: "up".to_owned(),
        capacity: Some(10),
        response_time_ms: Some(12.5),
        ..Target::default()
    }
}

fn times() -> Vec<strowger_timing::TypeBuckets> {
    let mut recorder = HistogramRecorder::default();
    for message in
        [MessageType::Request(MethodName::Invite), MessageType::Response(180, MethodName::Invite), MessageType::Other]
    {
        let index = recorder.index_of(message);
        recorder.count(index);
        Part::ALL.into_iter().for_each(|part| recorder.record(index, part, 30_000, 1));
    }
    recorder.recorded().buckets(&BOUNDS_NS)
}

fn process() -> Process {
    Process { resident_bytes: Some(1), open_files: Some(2), max_files: Some(3), ..Process::default() }
}

/// Names of families in a text, without the suffixes of their samples.
fn families(text: &str) -> BTreeSet<String> {
    text.lines().filter_map(|line| Some(line.strip_prefix("# TYPE ")?.split(' ').next()?.to_owned())).collect()
}

/// Returns the names of metrics that a file mentions.
fn mentioned(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c: char| !is_part(c));
    let own = |word: &&str| word.starts_with("strowger_") || word.starts_with("process_");
    words.filter(own).filter(|word| !word.ends_with('_')).map(str::to_owned).collect()
}

fn known(word: &str, families: &BTreeSet<String>) -> bool {
    let suffixes = ["", "_bucket", "_sum", "_count"];
    suffixes.into_iter().any(|suffix| word.strip_suffix(suffix).is_some_and(|name| families.contains(name)))
}

#[test]
fn alerts_dashboard_and_reference_name_metrics_that_exist() {
    let families = families(&full().encode(Format::Prometheus));
    for file in ["monitoring.md", "monitoring/strowger.rules.yml", "monitoring/grafana-dashboard.json", "counters.md"] {
        let unknown: Vec<_> = mentioned(&docs(file)).into_iter().filter(|word| !known(word, &families)).collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?} do not exist");
    }
}

#[test]
fn the_manual_says_how_many_alerts_there_are() {
    let alerts = docs("monitoring/strowger.rules.yml").lines().filter(|line| line.contains("- alert: ")).count();
    assert!(docs("monitoring.md").contains(&format!(" has {alerts} alerts.")), "{alerts}");
}

#[test]
fn every_metric_is_in_the_reference() {
    let of_counters: BTreeSet<String> = COUNTERS
        .iter()
        .flat_map(|counter| ["", "_total", "_bytes_total"].map(|end| format!("strowger_{}{end}", counter.metric())))
        .collect();
    let reference = mentioned(&docs("monitoring.md"));
    let families = families(&full().encode(Format::Prometheus));
    let missing: Vec<_> =
        families.iter().filter(|name| !of_counters.contains(*name) && !reference.contains(*name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(families.len() > 150, "{}", families.len());
}

#[test]
fn the_text_has_each_series_once_and_escapes_names() {
    let text = full().encode(Format::Prometheus);
    let mut seen = BTreeSet::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').expect("a value");
        assert!(seen.insert(series), "{series} is there twice");
        assert!(value.parse::<f64>().is_ok(), "{line}");
    }
    for expected in [
        "strowger_trunk_registered{trunk=\"good\"} 1",
        "strowger_trunk_registered{trunk=\"bad \\\"one\\\"\\n\"} 0",
        "strowger_calls 2",
        "strowger_media_engine_up{engine=\"192.0.2.9:2223\"} 1",
        "strowger_calls_database_up 0",
        "strowger_next_hop_outage_seconds{uri=\"sip:gw.example\",balancer=\"\",trunk=\"\"} 4.0",
        "strowger_target_up{balancer=\"pstn\",target=\"sip:192.0.2.1\"} 1",
        "strowger_tls_certificate_expires_seconds{file=\"a.pem\"} 172800.0",
        "strowger_responses_total{method=\"INVITE\",code=\"180\"} 1",
        "strowger_connections_received_bytes_total 7",
        "strowger_call_ringing_seconds_bucket{le=\"0.001\"} 3",
        "strowger_call_setup_seconds_bucket{result=\"cancelled\",le=\"131.072\"} 3",
        "strowger_call_setup_seconds_count{result=\"cancelled\"} 4",
        "strowger_trunk_call_setup_seconds_count{trunk=\"good\",result=\"cancelled\"} 8",
        "strowger_trunk_call_ringing_seconds_bucket{trunk=\"good\",le=\"0.001\"} 6",
        "strowger_trunk_response_seconds_count{trunk=\"good\"} 8",
        "strowger_trunk_response_seconds_bucket{trunk=\"good\",le=\"0.001\"} 6",
        "strowger_target_response_seconds_sum{balancer=\"pstn\",target=\"sip:192.0.2.1\"} 200.0",
        "strowger_target_call_setup_seconds_count{balancer=\"pstn\",target=\"sip:192.0.2.1\",result=\"cancelled\"} 4",
        "strowger_packet_time_seconds_count{part=\"t_sip\"} 3",
    ] {
        assert!(text.lines().any(|line| line == expected), "{expected} is missing in\n{text}");
    }
}

#[test]
fn targets_beyond_the_limit_are_counted() {
    let many = (0..strowger_metrics::MAX_TARGETS + 5).map(|n| Target { uri: format!("sip:{n}"), ..target() });
    let text = Scrape { targets: many.collect(), ..Scrape::default() }.encode(Format::OpenMetrics);
    assert!(text.contains("strowger_omitted_targets 5\n"), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("strowger_target_up{")).count(), 1_000);
}

#[test]
fn promtool_finds_nothing_to_complain_about() {
    let text = full().encode(Format::Prometheus);
    let Some(promtool) = promtool(&["check", "metrics"], &text) else { return };
    assert_eq!(promtool, "");
}

#[test]
fn promtool_accepts_the_alerts_and_their_tests() {
    for (command, file) in [
        (["check", "rules"], "strowger.rules.yml"),
        (["test", "rules"], "strowger.rules.test.yml"),
        (["check", "config"], "prometheus.yml"),
    ] {
        let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../../../docs/operating/monitoring", file].iter().collect();
        let path = path.display().to_string();
        let arguments: Vec<&str> = command.into_iter().chain([path.as_str()]).collect();
        if promtool(&arguments, "").is_none() {
            return;
        }
    }
}

/// Runs `promtool` and returns what it complains about; `None` if it is not installed.
fn promtool(arguments: &[&str], input: &str) -> Option<String> {
    let mut command = Command::new("promtool");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            let is_required = std::env::var("STROWGER_REQUIRE_INTEROP").is_ok_and(|value| value == "1");
            assert!(!is_required, "promtool: {error} (apt-get install prometheus)");
            eprintln!("skipped: promtool is not installed (apt-get install prometheus)");
            return None;
        }
    };
    child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("it reads");
    let found = child.wait_with_output().expect("it ends");
    let told = String::from_utf8_lossy(&found.stderr).into_owned();
    let shown = String::from_utf8_lossy(&found.stdout);
    assert!(found.status.success(), "promtool {arguments:?}: {shown}{told}");
    Some(told)
}
