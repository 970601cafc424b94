//! Predictions of `strowger plan` beside the measurements, as Markdown.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::observation::{circumstances, types_at};

/// A pair of measurements: a profile is fitted to one and predicts the other.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Base name of files and plots.
    pub name: &'static str,
    title: &'static str,
    about: &'static str,
    /// Measurements that the fit uses; without file name extension.
    pub seen: &'static str,
    /// Measurements that the fit does not use.
    pub unseen: &'static str,
}

/// All parts, in the order of presentation.
pub const PARTS: [Part; 5] = [
    Part {
        name: "waits",
        title: "The wait for one thread",
        about: "One thread that never sleeps (`--architecture event-based --timing --awake`). Calls \
                arrive as a Poisson process, and each message is preceded by a pause, exponentially \
                distributed with a mean of 20 ms, so that messages arrive as independently as M/G/1 assumes.",
        seen: "waits-seen",
        unseen: "waits-unseen",
    },
    Part {
        name: "waits-asleep",
        title: "The same for a thread that sleeps",
        about: "An idle thread sleeps (`--timing` alone). Waking it is part of the service of the message \
                that finds it asleep, so E[X] falls as the load, and with it the thesis's α, rises.",
        seen: "waits-asleep-seen",
        unseen: "waits-asleep-unseen",
    },
    Part {
        name: "waits-at-once",
        title: "Where M/G/1 does not hold",
        about: "The thread that never sleeps, predicted by the profile of the first table, but for calls without \
                pauses: 180 and 200, and ACK and BYE, arrive back to back, each in response to something the server has \
                just sent. Arrivals are then not a Poisson process, and messages wait longer than the model predicts.",
        seen: "waits-seen",
        unseen: "waits-at-once",
    },
    Part {
        name: "pools",
        title: "What thread pools drop",
        about: "Thread pools of the [architectures](ARCHITECTURES.md) on one core (`--architecture thread-pool \
                --threads c --receive-buffer 1000`). Runs at loads with almost no drops give E[X₁] and β(λ, c); \
                M/M/c/K then predicts the drops of other runs, including those of a pool of three that is in no fit.",
        seen: "pools-seen",
        unseen: "pools-unseen",
    },
    Part {
        name: "kamailio",
        title: "What Kamailio's children drop",
        about: "Debian's Kamailio with c children on one core, stateful.",
        seen: "kamailio-seen",
        unseen: "kamailio-unseen",
    },
];

/// Paths of programs and folders.
#[derive(Clone, Debug)]
pub struct Paths {
    /// The `strowger` binary.
    pub strowger: PathBuf,
    /// Folder of the measured tables.
    pub tables: PathBuf,
    /// Folder for plots; `None` draws none.
    pub pictures: Option<PathBuf>,
}

/// Description of the results.
#[derive(Debug, Default)]
pub struct Description {
    /// Full text.
    pub text: String,
    /// Summary for the documents: whether the models meet their goals.
    pub summary: String,
}

/// Runs `strowger plan` and describes all measured parts.
///
/// # Errors
/// If `strowger plan` fails, or files cannot be read.
pub fn describe(places: &Paths) -> Result<Description, String> {
    let (mut text, mut summary) = (String::new(), String::new());
    if let Some(pictures) = &places.pictures {
        std::fs::create_dir_all(pictures).map_err(|error| format!("{}: {error}", pictures.display()))?;
    }
    let (mut around, mut summed_up) = (String::new(), String::new());
    for part in PARTS {
        let file = |name: &str| places.tables.join(format!("{name}.csv"));
        let (seen, unseen) = (file(part.seen), file(part.unseen));
        if !seen.is_file() || !unseen.is_file() {
            continue;
        }
        let plot = places.pictures.as_ref().map(|folder| folder.join(format!("models-{}.svg", part.name)));
        let (seen_files, unseen_files) = ([seen], [unseen.clone()]);
        let files = PlanFiles { name: part.name, seen: &seen_files, unseen: &unseen_files, plot: plot.as_deref() };
        let found = predict(&places.strowger, files)?;
        let own = circumstances(&unseen).map_err(|error| format!("{}: {error}", unseen.display()))?;
        let has_waits = found["rows"].as_array().into_iter().flatten().any(|row| row["wait_s"]["measured"].is_number());
        let room = if has_waits { String::new() } else { room(&found) };
        let _ = write!(text, "## {}\n\n{}{room}\n\n{}", part.title, part.about, news(&mut around, &own));
        text.push_str(&commands(&part));
        if part.name == "waits" {
            text.push_str(&types(&unseen)?);
        }
        if has_waits {
            text.push_str(&waits_table(&found));
            if part.name != "waits-at-once" {
                let _ = write!(summary, "{}:\n\n{}{}", part.title, news(&mut summed_up, &own), waits_table(&found));
            }
        } else {
            let table = one_percent(&found);
            let _ = write!(text, "{}The rate at which 1 % is dropped:\n\n{table}", drops_table(&found));
            let title = format!("{}, the rate at which 1 % is dropped", part.title);
            let _ = write!(summary, "{title}:\n\n{}{table}", news(&mut summed_up, &own));
        }
        if places.pictures.is_some() {
            let _ = write!(text, "![{}](plots/models-{}.svg)\n\n", part.title, part.name);
        }
    }
    Ok(Description { summary, text })
}

/// Returns the conditions of a measurement if they differ from the last ones.
fn news(last: &mut String, own: &str) -> String {
    if own == last {
        return String::new();
    }
    own.clone_into(last);
    format!("{own}\n\n")
}

/// Returns the capacity of the socket in packets as a sentence: K without the c in service.
#[must_use]
pub fn room(found: &Value) -> String {
    let first = &found["rows"][0];
    let room =
        first["queue"].as_u64().zip(first["servers"].as_u64()).map(|(queue, servers)| queue.saturating_sub(servers));
    room.map(|room| format!(" The socket has room for {room} packets.")).unwrap_or_default()
}

/// Returns the commands that reproduce the results.
fn commands(part: &Part) -> String {
    let Part { name, seen, unseen, .. } = part;
    format!(
        "```\nstrowger plan fit bench/models/{seen}.csv --output {name}.json\n\
         strowger plan validate bench/models/{unseen}.csv --profile {name}.json\n```\n\n"
    )
}

/// Files of a fit and its validation.
#[derive(Clone, Copy, Debug)]
pub struct PlanFiles<'a> {
    /// Name of the profile.
    pub name: &'a str,
    /// Measurements that the fit uses.
    pub seen: &'a [PathBuf],
    /// Measurements that it does not use.
    pub unseen: &'a [PathBuf],
    /// File for a plot of the validation.
    pub plot: Option<&'a Path>,
}

/// Fits a profile and returns the output of its validation.
///
/// # Errors
/// If `strowger plan` fails.
pub fn predict(strowger: &Path, files: PlanFiles<'_>) -> Result<Value, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let profile = folder.path().join("profile.json");
    let mut fit = Command::new(strowger);
    fit.args(["plan", "fit"]).args(files.seen).args(["--name", files.name, "--output"]).arg(&profile);
    said(&mut fit)?;
    let mut validate = Command::new(strowger);
    validate.args(["plan", "validate"]).args(files.unseen).arg("--profile").arg(&profile).arg("--json");
    if let Some(plot) = files.plot {
        validate.arg("--plot").arg(plot);
    }
    serde_json::from_slice(&said(&mut validate)?).map_err(|error| format!("{validate:?}: {error}"))
}

fn said(command: &mut Command) -> Result<Vec<u8>, String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// Formats a number of JSON, multiplied by `scale`.
pub(crate) fn cell(value: &Value, scale: f64, digits: usize) -> String {
    value.as_f64().map_or_else(|| "–".to_owned(), |value| format!("{:.digits$}", scale * value))
}

/// Returns (predicted − measured)/measured, in percent.
pub(crate) fn error(pair: &Value) -> String {
    let both = pair["predicted"].as_f64().zip(pair["measured"].as_f64()).filter(|(_, measured)| *measured > 0.0);
    both.map_or_else(|| "–".to_owned(), |(predicted, measured)| format!("{:+.1}", 100.0 * (predicted / measured - 1.0)))
}

pub(crate) const fn verdict(value: &Value) -> &'static str {
    match value {
        Value::Bool(true) => "yes",
        Value::Bool(false) => "**no**",
        _ => "",
    }
}

pub(crate) fn rows(found: &Value, name: &str) -> Vec<Value> {
    found[name].as_array().cloned().unwrap_or_default()
}

fn types(file: &Path) -> Result<String, String> {
    let mut text = String::from(
        "CPU time by message type, at a load of about one half:\n\n| message | share % | E[X] µs | Var[X]/E[X]² |\n|---|---:|---:|---:|\n",
    );
    for (message, share, service, scv) in types_at(file, 0.5).map_err(|error| format!("{}: {error}", file.display()))? {
        let _ = writeln!(text, "| {message} | {:.1} | {service} | {scv} |", 100.0 * share);
    }
    text.push('\n');
    Ok(text)
}

/// Returns the table of waits of a validation.
#[must_use]
pub fn waits_table(found: &Value) -> String {
    let mut text = String::from(
        "| calls/s | λ, packets/s | E[X] predicted µs | measured | ρ predicted % | measured | W predicted µs | measured | error % | within 15 % or 5 µs |\n\
         |---:|---:|---:|---:|---:|---:|---:|---:|---:|---|\n",
    );
    for row in rows(found, "rows") {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            cell(&row["calls_per_s"], 1.0, 0),
            cell(&row["rate_per_s"], 1.0, 0),
            cell(&row["service_s"]["predicted"], 1e6, 2),
            cell(&row["service_s"]["measured"], 1e6, 2),
            cell(&row["rho"]["predicted"], 100.0, 1),
            cell(&row["rho"]["measured"], 100.0, 1),
            cell(&row["wait_s"]["predicted"], 1e6, 2),
            cell(&row["wait_s"]["measured"], 1e6, 2),
            error(&row["wait_s"]),
            verdict(&row["wait_holds"]),
        );
    }
    text.push('\n');
    text
}

/// Returns the table of drops of a validation.
#[must_use]
pub fn drops_table(found: &Value) -> String {
    let mut text = String::from(
        "| c | K | λ, packets/s | β | E[X_c] predicted µs | measured | ρ predicted % | CPU % | dropped, predicted % | measured |\n\
         |---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for row in rows(found, "rows") {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            cell(&row["servers"], 1.0, 0),
            cell(&row["queue"], 1.0, 0),
            cell(&row["rate_per_s"], 1.0, 0),
            cell(&row["beta"], 1.0, 3),
            cell(&row["service_s"]["predicted"], 1e6, 2),
            cell(&row["service_s"]["measured"], 1e6, 2),
            cell(&row["rho"]["predicted"], 100.0, 1),
            cell(&row["rho"]["measured"], 100.0, 1),
            cell(&row["drops"]["predicted"], 100.0, 3),
            cell(&row["drops"]["measured"], 100.0, 3),
        );
    }
    text.push('\n');
    text
}

/// Returns the table of the rates at which 1 % is dropped.
#[must_use]
pub fn one_percent(found: &Value) -> String {
    let mut text =
        String::from("| c | predicted, packets/s | measured | error % | within 10 % |\n|---:|---:|---:|---:|---|\n");
    let judged = rows(found, "one_percent");
    let mut others: Vec<u64> = rows(found, "rows").iter().filter_map(|row| row["servers"].as_u64()).collect();
    others.dedup();
    others.retain(|servers| judged.iter().all(|row| row["servers"].as_u64() != Some(*servers)));
    for servers in others {
        let _ = writeln!(text, "| {servers} | | not between two of the rates | | **not judged** |");
    }
    for row in judged {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} |",
            cell(&row["servers"], 1.0, 0),
            cell(&row["rate_per_s"]["predicted"], 1.0, 0),
            cell(&row["rate_per_s"]["measured"], 1.0, 0),
            error(&row["rate_per_s"]),
            verdict(&row["holds"]),
        );
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn predictions_stand_beside_measurements() {
        let found = json!({
            "rows": [{ "servers": 1, "queue": 200, "rate_per_s": 600.0, "calls_per_s": 100.0, "beta": 1.0, "alpha": 1.0,
                "service_s": { "predicted": 2e-5, "measured": 2.5e-5 }, "rho": { "predicted": 0.012, "measured": null },
                "wait_s": { "predicted": 1.1e-6, "measured": 1e-6 }, "drops": { "predicted": 0.0, "measured": null },
                "wait_holds": true }],
            "one_percent": [{ "servers": 2, "rate_per_s": { "predicted": 900.0, "measured": 1_000.0 }, "holds": false }],
        });
        let waits = waits_table(&found);
        assert!(waits.contains("| 100 | 600 | 20.00 | 25.00 | 1.2 | – | 1.10 | 1.00 | +10.0 | yes |"), "{waits}");
        let drops = drops_table(&found);
        assert!(drops.contains("| 1 | 200 | 600 | 1.000 | 20.00 | 25.00 | 1.2 | – | 0.000 | – |"), "{drops}");
        assert!(one_percent(&found).contains("| 2 | 900 | 1000 | -10.0 | **no** |"), "{}", one_percent(&found));
        assert!(one_percent(&found).contains("| 1 | | not between"), "{}", one_percent(&found));
        assert_eq!(room(&found), " The socket has room for 199 packets.");
        assert_eq!(room(&json!({ "rows": [{ "servers": 1, "queue": null }] })), "");
    }

    #[test]
    fn changed_conditions_are_printed_above_their_tables() {
        let mut last = String::new();
        let said = ["one", "one", "another", "one"].map(|own| news(&mut last, own));
        assert_eq!(said, ["one\n\n", "", "another\n\n", "one\n\n"]);
    }
}
