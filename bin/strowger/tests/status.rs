//! Output of `ctl status` about a server's dependencies: its trunks and DNS.

mod common;

use std::net::{Ipv4Addr, UdpSocket};

use common::PATIENCE;
use common::server::Server;
use serde_json::Value;

/// Answers the next REGISTER.
fn answer(carrier: &UdpSocket, status: &str) {
    let mut buffer = [0; 4096];
    let (length, server) = carrier.recv_from(&mut buffer).expect("a request in time");
    let request = String::from_utf8(buffer[..length].to_vec()).expect("text");
    assert!(request.starts_with("REGISTER sip:127.0.0.1"), "{request}");
    let kept = ["Via: ", "From: ", "To: ", "Call-ID: ", "CSeq: ", "Contact: "];
    let kept: Vec<_> = request.lines().filter(|line| kept.iter().any(|name| line.starts_with(name))).collect();
    let response = format!("SIP/2.0 {status}\r\n{}\r\nContent-Length: 0\r\n\r\n", kept.join("\r\n"));
    carrier.send_to(response.as_bytes(), server).expect("loopback takes it");
}

/// Compares the counters with the document that explains them.
#[test]
fn every_counter_is_explained() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operating/counters.md");
    let text = std::fs::read_to_string(path).expect("it is published");
    let server = Server::start("");
    let status = server.status();
    let parts = status["counters"].as_object().expect("parts");
    let mut explained = 0;
    for (part, counters) in parts {
        let section = text.split("\n## ").find(|section| section.lines().next() == Some(part.as_str()));
        let section = section.unwrap_or_else(|| panic!("{part} has no section"));
        let rows: Vec<&str> = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
        for name in counters.as_object().expect("counters").keys() {
            assert!(rows.contains(&name.as_str()), "{part}.{name} is not explained");
        }
        explained += rows.len();
        assert_eq!(
            rows.len(),
            counters.as_object().map_or(0, serde_json::Map::len),
            "{part}: some are no more: {rows:?}"
        );
    }
    assert!(explained > 80, "{explained}");
}

#[test]
fn trunks_are_shown_with_their_registrations() {
    let carriers = [(); 2].map(|()| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port"));
    let ports = carriers.each_ref().map(|carrier| {
        carrier.set_read_timeout(Some(PATIENCE)).expect("settable");
        carrier.local_addr().expect("bound").port()
    });
    let trunk = |name: &str, port: u16| {
        format!(
            "[[trunk]]\nname = \"{name}\"\ntargets = [\"sip:127.0.0.1:{port}\"]\nusername = \"4930123\"\n\
             password = \"hush\"\nregister = true\n"
        )
    };
    let trunks = trunk("good", ports[0]) + &trunk("bad", ports[1]);
    let server = Server::start(&trunks);
    answer(&carriers[0], "200 OK");
    answer(&carriers[1], "403 Forbidden");
    server.until("both trunks are settled", || {
        let status = server.status();
        let states = status["trunks"].as_array().into_iter().flatten().map(|trunk| &trunk["state"]);
        states.eq(["refused", "registered"])
    });
    let status = server.status();
    let [bad, good] = [&status["trunks"][0], &status["trunks"][1]];
    assert_eq!((&bad["name"], &bad["last_answer"], &bad["expires_s"]), (&"bad".into(), &403.into(), &Value::Null));
    assert!(bad["next_try_s"].as_f64().is_some_and(|wait| wait > 600.0), "{bad}");
    assert_eq!((&good["name"], &good["last_answer"]), (&"good".into(), &200.into()));
    assert!(good["expires_s"].as_f64().is_some_and(|left| left > 3000.0), "{good}");
    for (part, name) in [("dns", "queries"), ("names", "entries"), ("targets", "avoided")] {
        assert_eq!(status["counters"][part][name], 0, "literal addresses are not asked for");
    }
    let text = server.folder.run(&["ctl", "status"]).ok();
    assert!(text.contains("bad: refused (403) for 0:00:"), "{text}");
    assert!(text.contains("good: registered for 0:00:") && text.contains(", expires in 0:59:"), "{text}");
    assert!(!text.contains("hush"), "{text}");
}

#[test]
fn awake_workers_are_shown() {
    let server = Server::start("server.spin = \"always\"\n");
    server.until("the shards are where they belong", || {
        let loads = &server.status()["loads"];
        loads.as_array().is_some_and(|loads| loads.iter().any(|worker| worker["shards"] != 0))
    });
    let shown = server.folder.run(&["ctl", "status"]).ok();
    assert!(shown.contains(" % busy, always awake"), "{shown}");
    assert!(server.log().contains("workers with shards busy-poll"), "{}", server.log());
}
