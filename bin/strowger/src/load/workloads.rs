//! `strowger load workloads`: lists the values of `--workload`.

use std::io::Write as _;

use clap::Args;
use serde_json::{Value, json};
use strowger_traffic::workload::{NamedWorkload, Parameter, WORKLOADS, names};

use crate::failure::Failure;
use crate::table::print_json;

#[derive(Debug, Args)]
pub(crate) struct WorkloadsArguments {
    /// Only this workload, with all its parameters
    name: Option<String>,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

impl WorkloadsArguments {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let shown: Vec<&NamedWorkload> = match &self.name {
            None => WORKLOADS.iter().collect(),
            Some(name) => {
                let found = NamedWorkload::find(name);
                let found = found
                    .ok_or_else(|| Failure::Usage(format!("there is no workload '{name}'; workloads: {}", names())))?;
                vec![found]
            }
        };
        if self.json {
            return Ok(print_json(&Value::Array(shown.into_iter().map(as_json).collect()))?);
        }
        let text: Vec<_> = shown.into_iter().map(as_text).collect();
        std::io::stdout().write_all(text.join("\n").as_bytes()).map_err(Failure::Output)
    }
}

fn as_json(known: &NamedWorkload) -> Value {
    let parameters = known.parameters.iter().map(|Parameter { name, default, about, is_ours }| {
        json!({ "name": name, "default": default, "about": about, "is_ours": is_ours })
    });
    json!({ "name": known.name, "about": known.about, "paper": known.paper, "is_model": known.is_model,
        "parameters": parameters.collect::<Vec<_>>() })
}

fn as_text(known: &NamedWorkload) -> String {
    let mut text = format!("{}: {}\n", known.name, known.about);
    if !known.paper.is_empty() {
        text.push_str(&format!("    from: {}\n", known.paper));
    }
    if known.is_model {
        text.push_str("    its model time can be accelerated: --speed N\n");
    }
    let name_width = known.parameters.iter().map(|parameter| parameter.name.len()).max().unwrap_or(0);
    let value_width = known.parameters.iter().map(|parameter| parameter.default.len()).max().unwrap_or(0);
    for Parameter { name, default, about, is_ours } in known.parameters {
        let whose = if *is_ours && !known.paper.is_empty() { " (default not from the paper)" } else { "" };
        text.push_str(&format!("    --set {name:<name_width$} = {default:<value_width$}  {about}{whose}\n"));
    }
    text
}
