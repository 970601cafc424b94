//! Former names of keys and values. They are still read, with a warning that says the new name.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Renamed keys: the former and the present name.
const KEYS: [(&str, &str); 9] = [
    ("server.spread", "server.steering"),
    ("store.users", "store.shared_users"),
    ("tcp.message_time", "tcp.message_timeout"),
    ("cluster.promise", "cluster.durability"),
    ("second_stage.promise", "second_stage.durability"),
    ("second_stage.was", "second_stage.previous_weight"),
    ("overload.between_servers", "overload.feedback"),
    ("balancer.work", "balancer.transaction_cost"),
    ("proxy.unrouted", "proxy.unrouted_status"),
];

/// Renamed values: the key, the former and the present value.
const VALUES: [(&str, &str, &str); 1] = [("server.segmentation", "unwatched", "auto")];

/// A former name in a text.
pub(super) struct FormerName {
    /// Position of the key or value.
    pub(super) offset: usize,
    /// The key as it is in the text, such as `second_stage[0].was`.
    pub(super) key: String,
    /// What is wrong, and the remedy.
    pub(super) message: String,
    /// Whether the key is there under its present name too, so that it is unclear which one is meant.
    pub(super) is_ambiguous: bool,
}

/// Changes former names into present ones. Positions stay those in the text.
pub(super) fn replace(document: &mut DeTable<'_>) -> Vec<FormerName> {
    let mut found = Vec::new();
    for (former, present) in KEYS {
        for_each_table(document, former, "", &mut |table, prefix, name| {
            found.extend(replace_key(table, prefix, name, present));
        });
    }
    for (key, former, present) in VALUES {
        for_each_table(document, key, "", &mut |table, prefix, name| {
            found.extend(replace_value(table, prefix, name, (former, present)));
        });
    }
    found.sort_by_key(|name| name.offset);
    found
}

fn replace_key(table: &mut DeTable<'_>, prefix: &str, former: &str, present: &str) -> Option<FormerName> {
    let (mut name, value) = table.remove_entry(former)?;
    let offset = name.span().start;
    let key = format!("{prefix}{former}");
    let present = present.rsplit('.').next().unwrap_or(present);
    let is_ambiguous = table.contains_key(present);
    let message = if is_ambiguous {
        format!("this is the former name of {prefix}{present}, which is there too; remove {former}")
    } else {
        *name.get_mut() = present.to_owned().into();
        table.insert(name, value);
        format!("this key is called {prefix}{present} now; rename it")
    };
    Some(FormerName { offset, key, message, is_ambiguous })
}

fn replace_value(
    table: &mut DeTable<'_>,
    prefix: &str,
    name: &str,
    (former, present): (&str, &str),
) -> Option<FormerName> {
    let value = table.get_mut(name).filter(|value| value.get_ref().as_str() == Some(former))?;
    let offset = value.span().start;
    *value.get_mut() = DeValue::String(present.to_owned().into());
    let message = format!("\"{former}\" is called \"{present}\" now; change it");
    Some(FormerName { offset, key: format!("{prefix}{name}"), message, is_ambiguous: false })
}

/// Calls `visit` with each table that may have `key`, the table's prefix in keys and the last part of `key`. Sections
/// may be arrays of tables.
fn for_each_table<'i>(
    table: &mut DeTable<'i>,
    key: &str,
    prefix: &str,
    visit: &mut impl FnMut(&mut DeTable<'i>, &str, &str),
) {
    let Some((section, rest)) = key.split_once('.') else { return visit(table, prefix, key) };
    match table.get_mut(section).map(Spanned::get_mut) {
        Some(DeValue::Table(inner)) => for_each_table(inner, rest, &format!("{prefix}{section}."), visit),
        Some(DeValue::Array(items)) => {
            for (index, item) in items.iter_mut().enumerate() {
                if let DeValue::Table(inner) = item.get_mut() {
                    for_each_table(inner, rest, &format!("{prefix}{section}[{index}]."), visit);
                }
            }
        }
        _ => {}
    }
}
