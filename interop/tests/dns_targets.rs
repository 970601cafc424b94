//! Targets of a balancer that are the addresses of one name, as in a Kubernetes headless service. They change by zone
//! updates while calls are in progress. Skipped if `named` is not installed.

use std::net::Ipv4Addr;
use std::time::Duration;

use strowger_interop::bind9::Bind9;
use strowger_interop::{Answerer, Config, Load, Server, ZoneUpdater, free_port, wait_until};

const HOST: &str = "sip.example.com";
const TTL_S: u32 = 1;

fn pod(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 10, number)
}

/// Returns the URIs of the targets that get calls.
fn targets(server: &Server) -> Vec<String> {
    let targets = server.targets();
    let named = targets.iter().filter(|target| target["origin"].is_string());
    named.map(|target| target["uri"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn pods_come_and_go_and_no_call_fails() {
    if !Bind9::available() {
        return;
    }
    let port = free_port();
    let mut pods: Vec<Option<Answerer<'_>>> =
        (1..=3).map(|number| Some(Answerer::start("udp", (pod(number), port).into(), ""))).collect();
    let uri = |number: u8| format!("sip:{}:{port}", pod(number));
    let zone = Bind9::start("example.com", 1, &format!("sip {TTL_S} IN A {}\nsip {TTL_S} IN A {}\n", pod(1), pod(2)));
    let updates = ZoneUpdater::of(&zone);
    let more = format!(
        "[dns]\nservers = [\"{}\"]\n[[balancer]]\nname = \"pods\"\npolicy = \"least-calls\"\nslow_start = \"0s\"\n\
         targets = [\"dns:{HOST}:{port}\"]\n[[route]]\nmatch = {{ domain = \"pool.test\" }}\nbalance = \"pods\"\n",
        zone.address()
    );
    let server = Config { more, ..Config::open() }.start();
    assert_eq!(targets(&server), [uri(1), uri(2)]);

    let load = Load::start(&format!(
        "--to udp:{} --callee remote --domain pool.test --rate 100 --time 6s --drain 40s --seed 3 \
         --set hold=uniform(min=0s,max=1s)",
        server.address()
    ));
    wait_until("calls run", || server.targets().iter().any(|target| target["calls"] != 0));
    updates.set_addresses(HOST, TTL_S, &[pod(1), pod(2), pod(3)]);
    wait_until("the third has calls", || {
        server.targets().iter().any(|target| target["uri"] == uri(3).as_str() && target["calls"] != 0)
    });
    // A terminating pod is removed first. Its calls continue until their parties hang up.
    updates.set_addresses(HOST, TTL_S, &[pod(2), pod(3)]);
    wait_until("the first is no target any more", || targets(&server) == [uri(2), uri(3)]);
    wait_until("its calls have ended", || server.targets().iter().all(|target| target["uri"] != uri(1).as_str()));
    let gone = pods[0].take().expect("it runs").end();
    updates.set_addresses(HOST, TTL_S, &[pod(2)]);
    wait_until("the third is no target any more", || targets(&server) == [uri(2)]);
    let report = load.finish(Duration::from_secs(60));
    let (sent, carried) = (report.count("sent"), report.count("carried"));
    assert!(sent > 300 && carried == sent, "{}", report.text());
    let answered: Vec<u64> = [gone]
        .into_iter()
        .chain(pods.into_iter().flatten().map(Answerer::end))
        .map(|report| report.callee("answered"))
        .collect();
    println!("{sent} calls, all carried; answered by each pod: {answered:?}");
    assert!(answered.iter().all(|calls| *calls > 10) && answered.iter().sum::<u64>() == sent, "{answered:?}");

    // The known addresses stay in use when DNS returns an empty answer.
    updates.set_addresses(HOST, TTL_S, &[]);
    wait_until("that is told", || server.log().contains("DNS returned no servers; its targets are unchanged"));
    assert_eq!(targets(&server), [uri(2)]);
}
