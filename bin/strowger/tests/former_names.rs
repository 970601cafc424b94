//! Former names of configuration keys and options.

mod common;

use common::Folder;
use common::server::Server;

#[test]
fn check_names_the_present_key() {
    let folder = Folder::new("");
    folder.write("old.toml", "[server]\nspread = \"packets\"\nworkers = 1\n");
    let ran = folder.run(&["check", "-c", "old.toml"]);
    let expected = "strowger: warning: old.toml:2: server.spread: this key is called server.steering now; rename it\n\
                    strowger: warning: old.toml:2: server.steering: packets has no effect";
    assert!(ran.err.starts_with(expected), "{ran:?}");
    let json = folder.run(&["check", "-c", "old.toml", "--json"]).json();
    assert_eq!(json["configuration"]["server"]["steering"], "packets");
    assert!(json["warnings"][0].as_str().is_some_and(|warning| warning.contains("server.steering now")), "{json}");

    folder.write("both.toml", "[server]\nspread = \"packets\"\nsteering = \"peers\"\n");
    let error = folder.run(&["check", "-c", "both.toml"]).refused(2);
    assert_eq!(
        error,
        "both.toml:2: server.spread: this is the former name of server.steering, which is there too; remove spread"
    );
}

#[test]
fn start_and_reload_name_the_present_key() {
    let warning = |line: usize, of: &str| format!("strowger.toml:{line}: {of} now; rename it");
    let server = Server::start("proxy.unrouted = 403\n");
    let unrouted = warning(5, "proxy.unrouted: this key is called proxy.unrouted_status");
    assert_eq!(server.log().matches(&unrouted).count(), 1, "{}", server.log());

    let config = std::fs::read_to_string(server.folder.path().join("strowger.toml")).expect("it is there");
    server.folder.write("strowger.toml", &format!("{config}overload.between_servers = false\n"));
    server.folder.run(&["ctl", "reload"]).ok();
    let feedback = warning(6, "overload.between_servers: this key is called overload.feedback");
    server.until("it is logged", || server.log().matches(&unrouted).count() == 2 && server.log().contains(&feedback));
}

#[test]
fn former_options_work_and_are_not_shown() {
    let folder = Folder::new("");
    for (arguments, error) in [
        (&["load", "run", "--awake", "--callee", "there"][..], "need --to"),
        (&["load", "run", "--awake", "--callee", "here", "--rate", "none"], "--rate"),
        (&["load", "replay", "none.pcap", "--side", "caller", "--callee", "here"], "--side both"),
        (&["load", "search", "--over", "users"], "--workload users"),
        (&["load", "sipstone", "--known", "none=1"], "is not a test of SIPstone"),
        (&["import", "kamailio", "mysql://u@192.0.2.1/k", "--patience", "soon"], "'soon'"),
    ] {
        let ran = folder.run(arguments);
        assert!(ran.code == Some(2) && ran.err.contains(error), "{arguments:?}: {ran:?}");
        assert!(!ran.err.contains("unexpected argument") && !ran.err.contains("possible values"), "{ran:?}");
    }
    for (command, former) in [
        (&["load", "run"][..], &["--awake", "- there:", "- here:"][..]),
        (&["load", "search"], &["--over"]),
        (&["load", "sipstone"], &["--known"]),
        (&["import", "kamailio"], &["--patience"]),
    ] {
        let help = folder.run(&[command, &["--help"]].concat()).ok();
        assert!(former.iter().all(|former| !help.contains(former)), "{command:?}: {help}");
    }
}
