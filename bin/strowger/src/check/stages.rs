//! Output of `strowger check` about the two stages.

use serde_json::{Value, json};
use strowger_balancer::SLOTS;
use strowger_control::config::{Config, SecondStage};

/// Lists the servers of each stage and marks this one; `None` if the configuration is for one server.
pub(super) fn shown(config: &Config) -> Option<String> {
    if !config.has_stages() {
        return None;
    }
    let first: Vec<String> = config
        .first_stage
        .iter()
        .map(|server| match server.address {
            Some(address) => format!("{} at {address}", server.name),
            None => server.name.clone(),
        })
        .collect();
    let mut lines = vec![format!("first: {}", if first.is_empty() { "none".to_owned() } else { first.join(", ") })];
    let shares = shares(config);
    let clusters = config.second_stage.iter().zip(shares);
    lines.extend(clusters.map(|(cluster, share)| {
        let before = if cluster.weight_before() == cluster.weight {
            String::new()
        } else {
            format!(", was {}", cluster.weight_before())
        };
        format!(
            "{}: {:.1} % of the users (weight {}{before}): {}",
            cluster.name,
            share * 100.0,
            cluster.weight,
            members(cluster)
        )
    }));
    let moved = config.partition().moved(&config.partition_before());
    if moved > 0.0 {
        lines.push(format!(
            "{:.1} % of the users have moved; they are looked up in their previous cluster until they register again",
            moved * 100.0
        ));
    }
    lines.push(match config.role() {
        Some(role) => format!("this is {}", role.name),
        None => "--as NAME shows the role of one server".to_owned(),
    });
    Some(lines.join("\n"))
}

pub(super) fn in_json(config: &Config) -> Value {
    if !config.has_stages() {
        return Value::Null;
    }
    let clusters = config.second_stage.iter().zip(shares(config));
    let clusters: Vec<Value> = clusters
        .map(|(cluster, share)| json!({ "name": cluster.name, "weight": cluster.weight, "share": share }))
        .collect();
    let moved = config.partition().moved(&config.partition_before());
    json!({ "name": config.role().map(|role| &role.name), "clusters": clusters, "moved": moved })
}

/// Returns each cluster's share of the users, from 0 to 1.
fn shares(config: &Config) -> Vec<f64> {
    config.partition().slots().iter().map(|slots| f64::from(*slots) / SLOTS as f64).collect()
}

fn members(cluster: &SecondStage) -> String {
    let listed = cluster.members.iter().map(|member| format!("{} at {}", member.name, member.address));
    listed.chain(cluster.targets.iter().map(ToString::to_string)).collect::<Vec<_>>().join(", ")
}
