//! `strowger ctl rebalance`: shows the clusters' load and moves users between clusters.

mod file;

use std::io::{self, Write as _};
use std::path::Path;

use serde_json::json;
use strowger_control::config::{Config, ConfigSource, default_file};
use strowger_control::protocol::{ClusterShare, Clusters, Request, Response, Share, WeightProposal};
use strowger_control::socket;

use crate::cli::ctl::RebalanceArguments;
use crate::failure::Failure;
use crate::reload::reload_all;
use crate::table::{print_json, print_line, print_table};
use crate::text::{clock, number};

/// Shows the clusters and executes the command.
pub(crate) fn run(
    wanted: ConfigSource<'_>,
    socket: &Path,
    arguments: &RebalanceArguments,
    is_json: bool,
) -> Result<(), Failure> {
    let reweighing = WeightProposal { weights: arguments.weights.clone(), even: arguments.even };
    let is_asked = reweighing != WeightProposal::default();
    if arguments.write && !is_asked {
        return Err(Failure::Usage("--write: give clusters and weights, such as a=120, or --even".to_owned()));
    }
    let clusters = match socket::ask(socket, &Request::Clusters(reweighing)).map_err(Failure::No)? {
        Response::Clusters(clusters) => clusters,
        Response::Error(message) => return Err(Failure::No(message)),
        _ => return Err(Failure::No("the server sent an unexpected answer".to_owned())),
    };
    if is_json {
        print_json(&json!(clusters))?;
    } else {
        print(&clusters)?;
    }
    if !arguments.write {
        if is_asked && !is_json {
            print_line("nothing was changed; --write applies the change")?;
        }
        return Ok(());
    }
    if let Some(left) = clusters.moving_s.filter(|_| !arguments.force) {
        return Err(Failure::No(format!(
            "users of the last move may not have registered again for another {}, and would not be found in their previous cluster; \
             wait, or use --force",
            clock(left as f64)
        )));
    }
    let file = wanted.file.unwrap_or_else(|| default_file());
    write(file, &clusters.clusters)?;
    print_line(&format!("{}: changed", file.display()))?;
    reload_all(wanted, false)
}

fn print(clusters: &Clusters) -> io::Result<()> {
    let is_thought = clusters.moves.is_some();
    let knows_users = clusters.clusters.iter().any(|cluster| cluster.now.users > 0);
    let users = |share: &Share| if knows_users { number(share.users) } else { "-".to_owned() };
    let row = |cluster: &ClusterShare| {
        let Share { weight, share, requests, calls, load, .. } = cluster.now;
        let members = match cluster.in_service {
            Some(in_service) => format!("{in_service} of {}", cluster.members),
            None => cluster.members.to_string(),
        };
        [
            cluster.name.clone(),
            members,
            weight.to_string(),
            percent(share),
            users(&cluster.now),
            number(calls),
            number(requests),
            percent(load),
        ]
    };
    let heading = ["CLUSTER", "MEMBERS", "WEIGHT", "SHARE", "USERS", "CALLS", "REQUESTS", "LOAD"];
    if is_thought {
        let row = |cluster: &ClusterShare| {
            let [name, members, weight, share, users, _, _, load] = row(cluster);
            let then = cluster.then.unwrap_or_default();
            [
                name,
                members,
                format!("{weight} -> {}", then.weight),
                format!("{share} -> {}", percent(then.share)),
                users,
                format!("{load} -> {}", percent(then.load)),
            ]
        };
        let rows: Vec<_> = clusters.clusters.iter().map(row).collect();
        print_table(["CLUSTER", "MEMBERS", "WEIGHT", "SHARE", "USERS", "LOAD"], &rows)?;
    } else {
        let rows: Vec<_> = clusters.clusters.iter().map(row).collect();
        print_table(heading, &rows)?;
    }
    explain(clusters)
}

/// Prints details that are not in the table.
fn explain(clusters: &Clusters) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if let Some(moves) = clusters.moves {
        writeln!(out, "{} of the users would move", percent(moves))?;
    }
    if let Some(left) = clusters.moving_s {
        let moved = percent(clusters.moved);
        writeln!(
            out,
            "{moved} of the users have moved; until they register, within {}, they are looked up in their previous cluster",
            clock(left as f64)
        )?;
    }
    if clusters.busiest > 0.05 {
        let busiest = percent(clusters.busiest);
        writeln!(
            out,
            "{busiest} of the load belongs to one hash slot, which no weight can split: one of its users gets many calls"
        )?;
    }
    Ok(())
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Writes the weights into the configuration and leaves everything else unchanged.
fn write(file: &Path, clusters: &[ClusterShare]) -> Result<(), Failure> {
    let shown = file.display();
    let text =
        std::fs::read_to_string(file).map_err(|error| Failure::No(format!("{shown} cannot be read: {error}")))?;
    let changed = with_weights(&text, clusters).map_err(|why| Failure::No(format!("{shown}: {why}")))?;
    Config::parse(&changed).map_err(|error| Failure::No(format!("{shown}, after the change: {error}")))?;
    file::replace(file, &changed).map_err(|error| Failure::No(format!("{shown} cannot be written: {error}")))
}

/// Returns `text` with new weights, next to the previous ones.
fn with_weights(text: &str, clusters: &[ClusterShare]) -> Result<String, String> {
    let mut document: toml_edit::DocumentMut = text.parse().map_err(|error| format!("is not valid TOML: {error}"))?;
    let tables = document.get_mut("second_stage").and_then(toml_edit::Item::as_array_of_tables_mut);
    let tables = tables.ok_or("has no [[second_stage]]; write each cluster as a table of its own with this heading")?;
    for cluster in clusters {
        let named = |table: &&mut toml_edit::Table| {
            table.get("name").and_then(toml_edit::Item::as_str) == Some(cluster.name.as_str())
        };
        let table = tables.iter_mut().find(named).ok_or_else(|| format!("has no cluster {}", cluster.name))?;
        let weight = cluster.then.map_or(cluster.now.weight, |then| then.weight);
        table["weight"] = toml_edit::value(i64::from(weight));
        // Its former name. Both would be an error.
        table.remove("was");
        if weight == cluster.now.weight {
            table.remove("previous_weight");
        } else {
            table["previous_weight"] = toml_edit::value(i64::from(cluster.now.weight));
        }
    }
    Ok(document.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(name: &str, now: u16, then: u16) -> ClusterShare {
        let of = |weight| Share { weight, ..Share::default() };
        ClusterShare { name: name.to_owned(), now: of(now), then: Some(of(then)), ..ClusterShare::default() }
    }

    #[test]
    fn only_weights_are_changed_in_the_file() {
        let text = "# ours\n[server]\ndomains = [\"example.com\"] # all\n\n[[second_stage]]\nname = \"a\" # east\n\
                    members = []\n\n[[second_stage]]\nname   = \"b\"\nweight = 50\nwas = 20\n";
        let changed = with_weights(text, &[share("a", 100, 80), share("b", 50, 50)]).expect("it can be");
        assert_eq!(
            changed,
            "# ours\n[server]\ndomains = [\"example.com\"] # all\n\n[[second_stage]]\nname = \"a\" # east\nmembers = []\n\
             weight = 80\nprevious_weight = 100\n\n[[second_stage]]\nname   = \"b\"\nweight = 50\n"
        );
        let again = with_weights(text, &[share("b", 50, 40)]).expect("it can be");
        assert!(again.ends_with("weight = 40\nprevious_weight = 50\n"), "{again}");
        assert!(with_weights(text, &[share("c", 1, 2)]).is_err());
        assert!(with_weights("[server]\n", &[share("a", 1, 2)]).is_err());
    }
}
