//! Reload of the configuration.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Response to [`Request::Reload`](super::Request::Reload) and [`Request::CheckReload`](super::Request::CheckReload).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(from = "Forms")]
pub struct Reloaded {
    /// Summary in one line.
    pub result: String,
    /// The changes, by key.
    pub changes: Vec<ConfigChange>,
}

/// A changed key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConfigChange {
    /// The key, such as `registrar.expires.max`, `trunk.pstn.expires` or `route[2]`.
    pub key: String,
    /// What has changed. Secrets are never shown.
    #[serde(flatten)]
    pub change: KeyChange,
}

/// A change of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "change", rename_all = "kebab-case")]
pub enum KeyChange {
    /// A single value; none for a key without a value.
    Value {
        /// The value before.
        before: Option<String>,
        /// The value now.
        after: Option<String>,
    },
    /// A list of values. Both are empty if only their order has changed.
    List {
        /// Values that were added.
        added: Vec<String>,
        /// Values that were removed.
        removed: Vec<String>,
    },
    /// A new table of a list.
    Added,
    /// A table of a list that is gone.
    Removed,
    /// Changed, but not shown: a secret, or a table without a name.
    Changed,
}

impl fmt::Display for Reloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.result)
    }
}

impl fmt::Display for ConfigChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.key)?;
        match &self.change {
            KeyChange::Value { before, after } => {
                let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".to_owned());
                write!(f, "{} → {}", shown(before), shown(after))
            }
            KeyChange::List { added, removed } => match (added.as_slice(), removed.as_slice()) {
                ([], []) => f.write_str("in another order"),
                (added, []) => write!(f, "added {}", added.join(", ")),
                ([], removed) => write!(f, "removed {}", removed.join(", ")),
                (added, removed) => write!(f, "added {}; removed {}", added.join(", "), removed.join(", ")),
            },
            KeyChange::Added => f.write_str("added"),
            KeyChange::Removed => f.write_str("removed"),
            KeyChange::Changed => f.write_str("changed"),
        }
    }
}

/// The forms of the response: a server of an earlier version sends the summary alone.
#[derive(Deserialize)]
#[serde(untagged)]
enum Forms {
    Summary(String),
    Whole {
        result: String,
        #[serde(default)]
        changes: Vec<ConfigChange>,
    },
}

impl From<Forms> for Reloaded {
    fn from(form: Forms) -> Self {
        match form {
            Forms::Summary(result) => Self { result, changes: Vec::new() },
            Forms::Whole { result, changes } => Self { result, changes },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_server_sends_the_summary_alone() {
        let read: Reloaded = serde_json::from_str("\"reloaded a.toml\"").expect("valid");
        assert_eq!(read, Reloaded { result: "reloaded a.toml".to_owned(), changes: Vec::new() });
    }

    #[test]
    fn changes_survive_the_socket_and_are_shown_in_one_line() {
        let strings = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let change = |key: &str, change| ConfigChange { key: key.to_owned(), change };
        let changes = vec![
            change("server.listen", KeyChange::List { added: strings(&["udp:127.0.0.1:5070"]), removed: Vec::new() }),
            change("registrar.expires.max", KeyChange::Value { before: Some("2h".into()), after: Some("1h".into()) }),
            change("cdr.file", KeyChange::Value { before: None, after: Some("calls.json".into()) }),
            change("auth.require", KeyChange::List { added: strings(&["BYE"]), removed: strings(&["INVITE"]) }),
            change("auth.algorithms", KeyChange::List { added: Vec::new(), removed: Vec::new() }),
            change("route[2]", KeyChange::Changed),
        ];
        let sent = Reloaded { result: "reloaded".to_owned(), changes };
        let text = serde_json::to_string(&sent).expect("text");
        assert!(
            text.contains(r#"{"key":"registrar.expires.max","change":"value","before":"2h","after":"1h"}"#),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<Reloaded>(&text).expect("valid"), sent);
        let lines: Vec<_> = sent.changes.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "server.listen: added udp:127.0.0.1:5070",
                "registrar.expires.max: 2h → 1h",
                "cdr.file: none → calls.json",
                "auth.require: added BYE; removed INVITE",
                "auth.algorithms: in another order",
                "route[2]: changed",
            ]
        );
    }
}
