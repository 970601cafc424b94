//! Which keys a reload may change, and what has changed.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;
use strowger_control::config::{Config, Reload, reload_of};

/// Returns all keys of the published schema; those of lists of tables with the list's name.
fn keys() -> BTreeSet<String> {
    let schema: Value = serde_json::from_str(&Config::schema()).expect("JSON");
    let mut keys = BTreeSet::new();
    walk(&schema, &schema, "", &mut keys);
    keys
}

fn walk(schema: &Value, place: &Value, key: &str, keys: &mut BTreeSet<String>) {
    if let Some(name) = place["$ref"].as_str() {
        let name = name.rsplit('/').next().expect("a name");
        return walk(schema, &schema["$defs"][name], key, keys);
    }
    let choices = ["anyOf", "oneOf", "allOf"].iter().filter_map(|kind| place[kind].as_array()).flatten();
    let properties = place["properties"].as_object();
    if properties.is_none() {
        keys.insert(key.to_owned());
    }
    for (name, property) in properties.into_iter().flatten() {
        let whole = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
        walk(schema, property, &whole, keys);
    }
    choices.for_each(|choice| walk(schema, choice, key, keys));
    if place["items"].is_object() {
        walk(schema, &place["items"], key, keys);
    }
}

#[test]
fn each_key_is_applied_live_or_needs_a_restart_for_a_reason() {
    let keys = keys();
    assert!(keys.len() > 150, "{keys:?}");
    for key in keys.iter().filter(|key| !key.is_empty()) {
        let section = !key.contains('.') && keys.iter().any(|other| other.starts_with(&format!("{key}.")));
        let reload = reload_of(key);
        assert!(section || reload.is_some(), "{key}: add it to config/reload.rs");
        if let Some(Reload::Restart(why)) = reload {
            assert!(!why.is_empty() && !why.ends_with('.'), "{key}: {why}");
        }
    }
    assert_eq!(reload_of("tcp.idles"), None);
    assert_eq!(reload_of("trunk.pstn.expires"), Some(Reload::Live));
    assert_eq!(reload_of("route[2]"), Some(Reload::Live));
}

/// The reference marks the keys that need a restart.
#[test]
fn the_reference_says_the_same() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/operating/configuration.md");
    let text = std::fs::read_to_string(Path::new(file)).expect("it is published");
    let mut section = String::new();
    let mut compared = 0;
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            section = title.trim_matches('`').trim_matches(['[', ']']).to_owned();
        }
        let Some(key) = line.strip_prefix("| `").and_then(|rest| rest.split('`').next()) else { continue };
        let Some(reload) = reload_of(&format!("{section}.{key}")) else { continue };
        let marked = line.contains("| **restart");
        assert_eq!(marked, matches!(reload, Reload::Restart(_)), "{section}.{key}: {line}");
        compared += 1;
    }
    assert!(compared > 100, "{compared}");
    assert!(!text.contains("All keys require a **restart**"));
}

fn changes(old: &str, new: &str) -> Vec<String> {
    let parse = |text: &str| Config::parse(text).unwrap_or_else(|error| panic!("{error}"));
    parse(old).changes(&parse(new), 4).iter().map(ToString::to_string).collect()
}

#[test]
fn changes_name_keys_and_values() {
    let trunk = "[[trunk]]\nname = \"pstn\"\ntargets = [\"sip:192.0.2.1\"]\nusername = \"u\"\npassword = \"secret\"\n";
    let route = "[[route]]\nmatch = { prefix = \"+49\" }\ntrunk = \"pstn\"\n";
    let hep = "[trace.hep]\nto = \"udp:192.0.2.60:9060\"\nauth_key = \"secret\"\n";
    let otlp = "[trace.otlp]\nto = \"http://127.0.0.1:4318\"\nheaders = { key = \"secret\" }\n";
    for (old, new, expected) in [
        ("", "", &[][..]),
        // Defaults that are written out.
        ("", "[server]\nworkers = 4\nmin_workers = 1\n[registrar.expires]\nmax = \"2h\"\n", &[]),
        ("", "[store]\nmode = \"write-through\"\nurl = \"sqlite:data/strowger.db\"\n", &[]),
        ("", "[control]\nsocket = \"data/control.sock\"\n", &[]),
        ("", "[registrar.expires]\nmax = \"1h\"\n", &["registrar.expires.max: 2h → 1h"]),
        ("", "[cdr]\nfile = \"calls.json\"\n", &["cdr.file: none → calls.json"]),
        (
            "",
            "[server]\nlisten = [\"udp:0.0.0.0:5060\", \"udp:127.0.0.1:5070\"]\n",
            &["server.listen: added udp:127.0.0.1:5070; removed tcp:0.0.0.0:5060"],
        ),
        ("", "[auth]\nrequire = [\"INVITE\", \"REGISTER\"]\n", &["auth.require: in another order"]),
        ("", "[server]\naffinity = [0, 1]\n", &["server.affinity: none → [0,1]"]),
        (trunk, "", &["trunk.pstn: removed"]),
        ("", trunk, &["trunk.pstn: added"]),
        (trunk, &trunk.replace("secret", "sesame"), &["trunk.pstn.password: changed"]),
        (hep, &hep.replace("secret", "sesame"), &["trace.hep.auth_key: changed"]),
        (otlp, &otlp.replace("secret", "sesame"), &["trace.otlp.headers: changed"]),
        (
            trunk,
            &trunk.replace("192.0.2.1", "192.0.2.2"),
            &["trunk.pstn.targets: added sip:192.0.2.2; removed sip:192.0.2.1"],
        ),
        (trunk, &format!("{trunk}{route}"), &["route[0]: added"]),
        (&format!("{trunk}{route}"), &format!("{trunk}{}", route.replace("+49", "+44")), &["route[0]: changed"]),
        (
            "[cdr]\ndatabase = \"postgresql://u:one@192.0.2.1/calls\"\n",
            "[cdr]\ndatabase = \"postgresql://u:two@192.0.2.1/calls\"\n",
            &["cdr.database: changed"],
        ),
        (
            "",
            "[media]\nengines = [\"udp:192.0.2.1:2223\"]\nwhen = \"nat\"\n",
            &["media.engines: added udp:192.0.2.1:2223", "media.when: never → nat"],
        ),
    ] {
        let told = changes(old, new);
        assert_eq!(told, expected, "{new}");
        assert!(!told.iter().any(|line| line.contains("secret") || line.contains("sesame")), "{told:?}");
    }
}
