//! A balancer whose targets are reached over TLS. Before each target stands a server of ours that takes its calls over
//! TLS. Skipped if `openssl` is not installed.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use strowger_interop::{Answerer, Authority, Config, Load, PATIENCE, Route, Server, free_port, poll};

/// Each target knows only its own calls and refuses requests of others: re-INVITEs, UPDATEs, INFOs, refreshes and
/// BYEs from either side.
#[test]
fn calls_stay_with_one_target_over_tls() {
    let Some(authority) = Authority::new() else { return };
    let own = authority.issue("server", "IP:127.0.0.1");
    let section = authority.section(&own, "");
    let over_tls = |config: Config| {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let more = config.more + &section;
        (Config { listeners: vec![format!("tls:{address}")], more, users: Vec::new(), ..config }.start(), address)
    };
    let words = "--workload mid-call --set every=uniform(min=20ms,max=100ms) --set from-callee=50%";
    let place = |number| (Ipv4Addr::new(127, 0, 9, number), free_port()).into();
    let targets: Vec<_> = (1..=4).map(|number| Answerer::start_in(None, "udp", place(number), words)).collect();
    let fronts: Vec<(Server, SocketAddr)> = targets
        .iter()
        .map(|target| {
            let route = Route { domain: "pool.test", action: "proxy", targets: vec![target.uri()] };
            over_tls(Config { routes: vec![route], ..Config::open() })
        })
        .collect();
    let uris: Vec<_> = fronts.iter().map(|(_, address)| format!("sip:{address};transport=tls")).collect();
    let more = format!(
        "\n[[balancer]]\nname = \"pool\"\ntargets = {uris:?}\npolicy = \"least-calls\"\n\n[[route]]\n\
         match = {{ domain = \"pool.test\" }}\nbalance = \"pool\"\n"
    );
    let (server, _) = over_tls(Config { more, ..Config::open() });
    let to = server.address();
    let words =
        format!("--to udp:{to} --callee remote --domain pool.test --rate 40 --calls 160 --drain 40s --seed 3 {words}");
    let report = Load::start_in(None, &words).finish(Duration::from_secs(80));
    assert_eq!((report.count("sent"), report.count("carried")), (160, 160), "{}", report.text());
    server.wait_until_at_rest();
    let connections = || server.status()["counters"]["connections"].clone();
    let is_right = || connections()["opened"] == 4 && connections()["tls_failures"] == 0;
    assert!(poll(PATIENCE, || is_right().then_some(())).is_some(), "one to each: {}", connections());
    for target in targets {
        let (address, report) = (target.address(), target.end());
        assert!(report.callee("answered") > 10, "{address}: {}", report.text());
        assert_eq!(report.callee("failed") + report.callee("lost"), 0, "{address}: {}", report.text());
    }
}
