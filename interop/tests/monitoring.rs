//! A real Prometheus scrapes a server that carries calls, with the alerts and the dashboard of this repository.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use strowger_interop::{
    Answerer, Certificate, Config, Load, PATIENCE, Program, Prometheus, free_port, poll, wait_until,
};

fn monitoring(file: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../docs/operating/monitoring", file].iter().collect()
}

fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, free_port()).into()
}

fn dashboard() -> Value {
    let text = std::fs::read_to_string(monitoring("grafana-dashboard.json")).expect("it is published");
    serde_json::from_str(&text).expect("JSON")
}

/// Returns the expression of a query or an annotation, with the variables of the dashboard replaced.
fn expression(of: &Value) -> String {
    let text = of["expr"].as_str().expect("an expression");
    text.replace("$job", "strowger").replace("$instance", ".*").replace("$__rate_interval", "1m")
}

/// Returns the titles of panels and their queries.
fn queries(dashboard: &Value) -> Vec<(String, String)> {
    let panels = dashboard["panels"].as_array().expect("panels").iter();
    let of_panel = |panel: &Value| {
        let title = panel["title"].as_str().expect("a title").to_owned();
        let targets = panel["targets"].as_array().cloned().unwrap_or_default();
        targets.iter().map(|target| (title.clone(), expression(target))).collect::<Vec<_>>()
    };
    panels.flat_map(of_panel).collect()
}

#[test]
fn prometheus_sees_the_calls_of_a_load_run_and_the_end_of_the_server() {
    if !Program::Prometheus.available() {
        return;
    }
    let targets = [(); 2].map(|()| Answerer::start("udp", loopback(), ""));
    let uris: Vec<_> = targets.iter().map(Answerer::uri).collect();
    let http = loopback();
    let more = format!(
        "[admin]\nlisten = \"{http}\"\n[[balancer]]\nname = \"pool\"\npolicy = \"round-robin\"\ntargets = {uris:?}\n\
         [[route]]\nmatch = {{ domain = \"pool.test\" }}\naction = \"proxy\"\nbalance = \"pool\"\n"
    );
    let server = Config { more, ..Config::open() }.start();
    let prometheus = Prometheus::start(&monitoring("strowger.rules.yml"), http);
    wait_until("the server is up", || prometheus.value("up{job=\"strowger\"}") == Some(1.0));

    let load = Load::start(&format!(
        "--to udp:{} --callee remote --domain pool.test --users 20 --rate 50 --time 4s --drain 20s --seed 7 --set hold=none",
        server.address()
    ));
    let report = load.finish(Duration::from_secs(60));
    let sent = report.count("sent");
    assert!(sent > 100, "{}", report.text());
    #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
    let sent = sent as f64;
    wait_until("the calls are counted", || prometheus.value("strowger_shards_calls_answered_total") == Some(sent));
    assert_eq!(prometheus.value("strowger_shards_calls_total"), Some(sent));
    wait_until("the calls have ended", || prometheus.value("strowger_calls") == Some(0.0));
    let setup = "strowger_call_setup_seconds";
    wait_until("their setup is counted", || {
        prometheus.value(&format!("{setup}_count{{result=\"answered\"}}")) == Some(sent)
    });
    let median = prometheus.value(&format!("histogram_quantile(0.5, {setup}_bucket)"));
    assert!(median.is_some_and(|seconds| seconds < 1.0), "{median:?}");
    // Each target has an INVITE and a BYE of every second call.
    let of_targets = prometheus.query("strowger_target_requests_total{balancer=\"pool\"}");
    assert_eq!((of_targets.len(), of_targets.iter().map(|(_, count)| count).sum::<f64>()), (2, 2.0 * sent));
    let invites = prometheus.value("strowger_request_processing_seconds_count{method=\"INVITE\"}");
    assert!(invites >= Some(sent), "{invites:?} of {sent}, and retransmissions");
    let median =
        prometheus.value("histogram_quantile(0.5, strowger_request_processing_seconds_bucket{method=\"INVITE\"})");
    assert!(median.is_some_and(|seconds| (1e-6..0.1).contains(&seconds)), "{median:?}");

    let is_evaluated = || {
        let groups = prometheus.get("/api/v1/rules");
        let rules = groups["groups"][0]["rules"].as_array().expect("rules").clone();
        rules.len() == 22 && rules.iter().all(|rule| rule["health"] == "ok")
    };
    wait_until("the alerts are evaluated", is_evaluated);
    assert_eq!(prometheus.get("/api/v1/alerts")["alerts"], Value::Array(Vec::new()), "nothing is wrong");

    drop(server);
    wait_until("the end of the server is noticed", || {
        let alerts = prometheus.get("/api/v1/alerts");
        alerts["alerts"]
            .as_array()
            .is_some_and(|all| all.iter().any(|one| one["labels"]["alertname"] == "StrowgerDown"))
    });
}

/// Two members over UDP and TLS, with trunks and a balancer. A part of their calls finds a trunk's first target dead.
#[test]
fn every_query_of_the_dashboard_has_data_while_a_server_is_used() {
    if !(Program::Prometheus.available() && Program::OpenSsl.available()) {
        return;
    }
    let certificate = Certificate::new("example.com", Ipv4Addr::LOCALHOST.into());
    let target = Answerer::start("udp", loopback(), "");
    let carrier = Config::default().start();
    let (http, peers) = (loopback(), [loopback(), loopback()].map(|peer| peer.to_string()));
    let member = |number: usize, http: &str| {
        let mut more = format!("[cluster]\npeers = {peers:?}\nlisten = \"{}\"\nmember = {number}\n", peers[number - 1]);
        more.push_str(&format!("[admin]\nlisten = \"{http}\"\n{}", certificate.section()));
        more.push_str(&format!(
            "[[trunk]]\nname = \"carrier\"\ntargets = [\"sip:{}\", {{ uri = \"{}\", priority = 1 }}]\n\
             [[trunk]]\nname = \"account\"\ntargets = [\"sip:{}\"]\nregister = true\nusername = \"alice\"\n\
             password = \"secret of alice\"\nfrom = \"sip:alice@example.com\"\n\
             [[balancer]]\nname = \"pool\"\npolicy = \"round-robin\"\ntargets = [\"{}\"]\n\
             [[route]]\nmatch = {{ domain = \"pool.test\" }}\naction = \"proxy\"\nbalance = \"pool\"\n\
             [[route]]\nmatch = {{ domain = \"trunk.test\" }}\naction = \"proxy\"\ntrunk = \"carrier\"\n",
            loopback(),
            target.uri(),
            carrier.address(),
            target.uri()
        ));
        let listeners = vec![format!("tls:{}", loopback())];
        Config { more, listeners, key: Some(*b"a key of members"), ..Config::open() }.start()
    };
    let (server, _other) = (member(1, &http.to_string()), member(2, "off"));
    let prometheus = Prometheus::start(&monitoring("strowger.rules.yml"), http);
    let calls = |domain: &str| {
        Load::start(&format!(
            "--to udp:{} --callee remote --domain {domain} --users 20 --rate 20 --time 60s --seed 7 --set hold=none",
            server.address()
        ))
    };
    let loads = ["pool.test", "trunk.test"].map(calls);
    let queries = queries(&dashboard());
    assert!(queries.len() > 40, "{}", queries.len());
    // A quantile of nothing is not a number.
    let is_empty = |query: &str| !prometheus.query(query).iter().any(|(_, value)| value.is_finite());
    let empty = || queries.iter().filter(|(_, query)| is_empty(query)).collect::<Vec<_>>();
    let all = poll(PATIENCE, || empty().is_empty().then_some(()));
    assert!(all.is_some(), "panels and their queries without data: {:#?}\n{}", empty(), server.status());
    for annotation in dashboard()["annotations"]["list"].as_array().expect("annotations") {
        // A server that has not been restarted has none, but an error in it fails the test.
        drop(prometheus.query(&expression(annotation)));
    }
    for load in loads {
        drop(load.end(PATIENCE));
    }
}
