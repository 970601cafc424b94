//! Differences between two configurations.

use serde_json::{Map, Value};

use super::Config;
use crate::protocol::{ConfigChange, KeyChange};

/// Lists of tables whose entries have names.
const NAMED: [&str; 5] = ["trunk", "balancer", "first_stage", "second_stage", "members"];

impl Config {
    /// Returns what `new` changes, on a machine with `cores`. A default that is written out is no change.
    #[must_use]
    pub fn changes(&self, new: &Self, cores: usize) -> Vec<ConfigChange> {
        let mut changes = Changes::default();
        changes.compare_tables("", &self.effective(cores), &new.effective(cores));
        for (key, is_same) in self.secrets(new) {
            let is_known = |change: &ConfigChange| change.key.starts_with(&key);
            if !is_same && !changes.0.iter().any(is_known) {
                changes.add(&key, KeyChange::Changed);
            }
        }
        changes.0
    }

    /// Returns the values with their effective defaults.
    fn effective(&self, cores: usize) -> Map<String, Value> {
        let mut config = self.clone();
        config.server.key_file = Some(self.key_file());
        config.server.workers = Some(self.workers(cores));
        config.server.min_workers = Some(self.min_workers(self.workers(cores)));
        config.store.url = Some(self.store_url());
        config.store.mode = Some(self.store_mode());
        config.control.socket = Some(self.control_socket());
        if let Some(cluster) = &mut config.cluster {
            cluster.durability = Some(cluster.durability());
        }
        match serde_json::to_value(config) {
            Ok(Value::Object(values)) => values,
            _ => Map::new(),
        }
    }

    /// Returns the keys that may contain secrets, which the values do not show, and whether they are the same in `new`.
    fn secrets(&self, new: &Self) -> Vec<(String, bool)> {
        let store = |config: &Self| config.cluster.as_ref().map(|cluster| cluster.store.clone());
        let database = |config: &Self| config.kamailio.as_ref().map(|kamailio| kamailio.database.clone());
        let mut keys = vec![
            ("store.shared_users".to_owned(), self.store.shared_users == new.store.shared_users),
            ("cluster.store".to_owned(), store(self) == store(new)),
            ("kamailio.database".to_owned(), database(self) == database(new)),
            ("cdr.database".to_owned(), self.cdr.database == new.cdr.database),
        ];
        let (trace, other) = (&self.trace, &new.trace);
        keys.push(("trace.hep.auth_key".to_owned(), trace.hep.auth_key == other.hep.auth_key));
        keys.push(("trace.otlp.headers".to_owned(), trace.otlp.headers == other.otlp.headers));
        for cluster in &self.second_stage {
            let other = new.second_stage.iter().find(|other| other.name == cluster.name);
            let is_same = other.is_none_or(|other| other.store == cluster.store);
            keys.push((format!("second_stage.{}.store", cluster.name), is_same));
        }
        for trunk in &self.trunks {
            let other = new.trunks.iter().find(|other| other.name == trunk.name);
            let is_same = other.is_none_or(|other| other.password == trunk.password);
            keys.push((format!("trunk.{}.password", trunk.name), is_same));
        }
        keys
    }
}

#[derive(Default)]
struct Changes(Vec<ConfigChange>);

impl Changes {
    fn add(&mut self, key: &str, change: KeyChange) {
        self.0.push(ConfigChange { key: key.to_owned(), change });
    }

    fn compare_tables(&mut self, prefix: &str, before: &Map<String, Value>, after: &Map<String, Value>) {
        let added = after.keys().filter(|key| !before.contains_key(*key));
        for key in before.keys().chain(added) {
            let whole = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
            let [before, after] = [before, after].map(|table| table.get(key).unwrap_or(&Value::Null));
            if before != after {
                self.compare(&whole, key, before, after);
            }
        }
    }

    fn compare(&mut self, key: &str, name: &str, before: &Value, after: &Value) {
        let nothing = Map::new();
        match (before, after) {
            (Value::Object(before), Value::Object(after)) => self.compare_tables(key, before, after),
            (Value::Object(before), Value::Null) => self.compare_tables(key, before, &nothing),
            (Value::Null, Value::Object(after)) => self.compare_tables(key, &nothing, after),
            // An empty list may differ from none.
            (Value::Null, Value::Array(list)) | (Value::Array(list), Value::Null) if list.is_empty() => {
                self.add(key, KeyChange::Value { before: shown(before), after: shown(after) });
            }
            (Value::Array(_) | Value::Null, Value::Array(_) | Value::Null) => {
                let [before, after] = [before, after].map(|list| list.as_array().map_or(&[][..], Vec::as_slice));
                let is_table = |list: &[Value]| list.iter().all(Value::is_object);
                if NAMED.contains(&name) {
                    self.compare_named(key, before, after);
                } else if name == "route" || (name == "certificates" && is_table(before) && is_table(after)) {
                    self.compare_numbered(key, before, after);
                } else {
                    self.compare_lists(key, before, after);
                }
            }
            _ => self.add(key, KeyChange::Value { before: shown(before), after: shown(after) }),
        }
    }

    /// Compares tables that have names.
    fn compare_named(&mut self, key: &str, before: &[Value], after: &[Value]) {
        let name = |table: &Value| table.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let find = |list: &[Value], wanted: &str| list.iter().find(|table| name(table) == wanted).cloned();
        for old in before {
            let whole = format!("{key}.{}", name(old));
            match find(after, &name(old)) {
                Some(Value::Object(new)) => {
                    if let Value::Object(old) = old {
                        self.compare_tables(&whole, old, &new);
                    }
                }
                _ => self.add(&whole, KeyChange::Removed),
            }
        }
        for new in after.iter().filter(|new| find(before, &name(new)).is_none()) {
            self.add(&format!("{key}.{}", name(new)), KeyChange::Added);
        }
    }

    /// Compares tables that are known by their place.
    fn compare_numbered(&mut self, key: &str, before: &[Value], after: &[Value]) {
        for index in 0..before.len().max(after.len()) {
            let change = match (before.get(index), after.get(index)) {
                (Some(old), Some(new)) if old == new => continue,
                (Some(_), Some(_)) => KeyChange::Changed,
                (Some(_), None) => KeyChange::Removed,
                (None, _) => KeyChange::Added,
            };
            self.add(&format!("{key}[{index}]"), change);
        }
    }

    fn compare_lists(&mut self, key: &str, before: &[Value], after: &[Value]) {
        let without = |list: &[Value], other: &[Value]| -> Vec<String> {
            list.iter().filter(|value| !other.contains(value)).filter_map(shown).collect()
        };
        self.add(key, KeyChange::List { added: without(after, before), removed: without(before, after) });
    }
}

/// Returns a value as an operator would write it; `None` for none.
fn shown(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}
