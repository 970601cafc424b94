//! Former names of keys and values in a configuration.

use std::time::Duration;

use strowger_control::config::values::StoreUrl;
use strowger_control::config::{
    Cluster, Config, ConfigSource, Durability, Policy, Segmentation, Span, Steering, TransactionCost,
};

/// Each former name, with the line, key and message of its warning.
const FILE: &str = r#"
[server]
spread = "packets" # a comment
segmentation = "unwatched"
[store]
users = "postgresql://u:p@192.0.2.10/strowger"
[tcp]
message_time = "7s"
[cluster]
member = 1
store = "redis://192.0.2.10:6379"
promise = "disk"
[overload]
between_servers = false
[proxy]
unrouted = 603
[[balancer]]
name = "first"
targets = ["sip:192.0.2.1"]
[[balancer]]
name = "second"
policy = "least-work"
work = { INVITE = 2, "*" = 1 }
targets = ["sip:192.0.2.2"]
"#;

const STAGES: &str = r#"
[[first_stage]]
name = "s1"
address = "192.0.2.1:5060"
[[second_stage]]
name = "a"
members = [{ name = "a1", address = "192.0.2.11:5060" }]
[[second_stage]]
name = "b"
was = 20
store = "redis://192.0.2.10:6379"
promise = "engine"
members = [{ name = "b1", address = "192.0.2.21:5060" }]
"#;

/// Returns the warnings about a file with this text, without its path.
fn warnings(text: &str) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("strowger.toml");
    std::fs::write(&file, text).expect("written");
    let path = file.display().to_string();
    let shown = |warning: &strowger_control::config::ConfigError| {
        warning.to_string().strip_prefix(&path).expect("the warning begins with the file").to_owned()
    };
    Config::former_names(&file).iter().map(shown).collect()
}

#[test]
fn former_names_are_read() {
    let config = Config::parse(FILE).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((config.server.steering, config.server.segmentation), (Steering::Packets, Segmentation::Auto));
    assert_eq!(config.shared_users().len(), 1);
    assert_eq!(config.tcp.message_timeout, Span(Duration::from_secs(7)));
    assert_eq!(config.cluster.as_ref().map(Cluster::durability), Some(Durability::Disk));
    assert!(!config.overload.feedback);
    assert_eq!(config.proxy.unrouted_status, 603);
    let [first, second] = config.balancers.as_slice() else { panic!("two balancers") };
    assert_eq!((first.transaction_cost.is_none(), second.policy), (true, Policy::LeastWork));
    assert!(matches!(&second.transaction_cost, Some(TransactionCost::Table(costs)) if costs.len() == 2));

    let stages = Config::parse(STAGES).unwrap_or_else(|error| panic!("{error}"));
    let [a, b] = stages.second_stage.as_slice() else { panic!("two clusters") };
    assert_eq!((a.previous_weight, a.durability), (None, None));
    assert_eq!((b.previous_weight, b.durability), (Some(20), Some(Durability::Engine)));
}

#[test]
fn warnings_name_file_line_and_present_name() {
    assert_eq!(
        warnings(FILE),
        [
            ":3: server.spread: this key is called server.steering now; rename it",
            r#":4: server.segmentation: "unwatched" is called "auto" now; change it"#,
            ":6: store.users: this key is called store.shared_users now; rename it",
            ":8: tcp.message_time: this key is called tcp.message_timeout now; rename it",
            ":12: cluster.promise: this key is called cluster.durability now; rename it",
            ":14: overload.between_servers: this key is called overload.feedback now; rename it",
            ":16: proxy.unrouted: this key is called proxy.unrouted_status now; rename it",
            ":23: balancer[1].work: this key is called balancer[1].transaction_cost now; rename it",
        ]
    );
    assert_eq!(
        warnings(STAGES),
        [
            ":10: second_stage[1].was: this key is called second_stage[1].previous_weight now; rename it",
            ":12: second_stage[1].promise: this key is called second_stage[1].durability now; rename it",
        ]
    );
    assert_eq!(
        warnings("server = { spread = \"peers\" }\nproxy.unrouted = 403\nbalancer = [{ name = \"x\", work = \"2\" }]"),
        [
            ":1: server.spread: this key is called server.steering now; rename it",
            ":2: proxy.unrouted: this key is called proxy.unrouted_status now; rename it",
            ":3: balancer[0].work: this key is called balancer[0].transaction_cost now; rename it",
        ]
    );
    let present = "server = { steering = \"peers\", segmentation = \"auto\" }\nproxy.unrouted_status = 403\n";
    assert!(warnings(present).is_empty() && Config::parse(present).is_ok());
}

#[test]
fn a_key_under_both_names_is_an_error() {
    let both = "[server]\nsteering = \"peers\"\nspread = \"peers\"\n\n[overload]\nbetween_servers = true\nfeedback = false\n\
                [[balancer]]\nname = \"x\"\ntargets = [\"sip:192.0.2.1\"]\npolicy = \"least-work\"\nwork = \"2\"\n\
                transaction_cost = \"2\"\n[proxy]\nunrouted_status = 200\n";
    let error = Config::parse(both).expect_err("which is meant is unclear");
    assert_eq!(error.line, Some(3));
    assert_eq!(
        error.to_string(),
        "server.spread: this is the former name of server.steering, which is there too; remove spread\n\
         overload.between_servers: this is the former name of overload.feedback, which is there too; remove \
         between_servers\n\
         balancer[0].work: this is the former name of balancer[0].transaction_cost, which is there too; remove work\n\
         proxy.unrouted_status: 200 is not 403, 404 or 603; choose one of them"
    );
}

/// Errors have the present name and the line of the text.
#[test]
fn values_of_former_names_are_checked() {
    for (text, line, expected) in [
        ("\n\n[server]\nspread = \"pears\"", 4, r#"server.steering: unknown value "pears"; did you mean "peers"?"#),
        ("[proxy]\nunrouted = 200", 2, "proxy.unrouted_status: 200 is not 403, 404 or 603; choose one of them"),
        ("[tcp]\n\nmessage_time = 3", 3, "tcp.message_timeout: invalid type: integer `3`, expected a duration"),
        ("[server]\nspread = \"peers\"\nlisen = []", 3, r#"server.lisen: unknown key "lisen"; did you mean "listen"?"#),
        (
            "[[balancer]]\n[[balancer]]\nwork = \"3\"",
            3,
            "balancer[1].transaction_cost: \"3\" is not a transaction cost;",
        ),
    ] {
        let error = Config::parse(text).expect_err(text);
        assert!(
            error.line == Some(line) && error.to_string().starts_with(expected),
            "{text}: {:?} {error}",
            error.line
        );
    }
}

/// A key of another section that has the same name is left alone.
#[test]
fn names_are_former_only_in_their_section() {
    let error = Config::parse("[server]\nwas = 1").expect_err("no such key");
    assert!(error.to_string().starts_with("server.was: unknown key"), "{error}");
    let error = Config::parse("spread = \"peers\"").expect_err("no such key");
    assert!(error.to_string().starts_with("spread: unknown key"), "{error}");
}

/// Clients find the server of a file with former names and a fault elsewhere.
#[test]
fn a_faulty_file_with_former_names_is_read_leniently() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("strowger.toml");
    for fault in ["[proxy]\nfrobnicate = 1\n", "half a line"] {
        std::fs::write(&file, format!("[server]\ndata = \"/var/lib/lb\"\nspread = \"packets\"\n{fault}"))
            .expect("written");
        let (config, told) = Config::load_leniently(ConfigSource::from(Some(file.as_path()))).expect("it can be read");
        assert!(told.is_some(), "{fault}");
        assert_eq!(config.server.steering, Steering::Packets, "{fault}");
        assert_eq!(config.store_url(), StoreUrl::Sqlite("/var/lib/lb/strowger.db".into()), "{fault}");
    }
}
