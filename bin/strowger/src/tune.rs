//! `strowger tune`: what the host's scheduler and sockets should be for a SIP server.

mod show;

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::json;
use strowger_control::config::Span;
use strowger_tune::{
    Applied, DEFAULT_STATE, DROP_IN_HEADER, Demand, DropInKind, Host, LONGEST_WAIT, Program, Proposal, Request,
    StateFile, Target, apply, describe, propose, topics, undo,
};

use crate::failure::Failure;
use crate::table::{print_json, print_line};

/// Programs that are looked for with `--for auto`, in this order.
const KNOWN: [&str; 3] = ["strowger", "kamailio", "opensips"];

#[derive(Debug, Args)]
pub(crate) struct TuneArguments {
    /// Names of tunings to apply until the next start of the machine or server, or all; each former value is recorded
    #[arg(long, value_name = "all|NAME,…", value_delimiter = ',')]
    apply: Vec<String>,
    /// Restores all values that were changed, the latest first
    #[arg(long, conflicts_with_all = ["apply", "write", "explain"])]
    undo: bool,
    /// Writes files that last instead of changing anything: of sysctl.d, of the server's systemd unit, or of tmpfiles.d;
    /// all tunings, or those of --apply
    #[arg(long, value_enum, num_args = 1, value_name = "KIND")]
    write: Option<FileKind>,
    /// Folder for the file of --write [default: the system's]
    #[arg(value_name = "DIR", requires = "write")]
    folder: Option<PathBuf>,
    /// Prints the long reason of a tuning, with its source
    #[arg(long, value_name = "NAME", conflicts_with_all = ["apply", "write"])]
    explain: Option<String>,
    /// The server: the number of its first process
    #[arg(long, value_name = "PID", conflicts_with = "name")]
    pid: Option<u32>,
    /// The server: the name of its first process
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The program for which to tune; auto: the one that runs
    #[arg(long = "for", value_enum, default_value_t = Wanted::Auto)]
    program: Wanted,
    /// Calls per second that the server has to carry, which buffers depend on
    #[arg(long, value_name = "CALLS/S", default_value_t = 1_000.0)]
    rate: f64,
    /// Longest wait of a packet that is worth keeping, which buffers depend on
    #[arg(long, value_name = "TIME", default_value_t = Span(LONGEST_WAIT))]
    longest_wait: Span,
    /// File in which former values are recorded
    #[arg(long, value_name = "FILE", default_value = DEFAULT_STATE)]
    state: PathBuf,
    /// Reads and changes files below this folder instead of those of this machine
    #[arg(long, value_name = "DIR", hide = true)]
    root: Option<PathBuf>,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Wanted {
    Auto,
    Strowger,
    Kamailio,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FileKind {
    Sysctl,
    Systemd,
    Tmpfiles,
}

pub(crate) fn run(arguments: &TuneArguments) -> Result<(), Failure> {
    if !(arguments.rate >= 0.0 && arguments.rate.is_finite()) {
        return Err(Failure::Usage("--rate: give calls per second, such as 500".to_owned()));
    }
    let host = arguments.root.as_deref().map_or_else(Host::running, Host::below);
    if arguments.undo {
        return restore(&host, arguments);
    }
    check_names(&arguments.apply)?;
    let request = request(&host, arguments)?;
    let proposals = propose(&host, &request);
    if let Some(name) = &arguments.explain {
        return explain(name, &proposals, arguments.json);
    }
    if let Some(kind) = arguments.write {
        return write(kind, &selected(&proposals, &arguments.apply), &request, arguments);
    }
    if !arguments.apply.is_empty() {
        return change(&host, &selected(&proposals, &arguments.apply), arguments);
    }
    if arguments.json {
        return Ok(print_json(&show::as_json(&describe(&host), &request, &proposals))?);
    }
    Ok(show::print(&describe(&host), &request, &proposals)?)
}

fn check_names(names: &[String]) -> Result<(), Failure> {
    let is_known = |name: &String| name == "all" || topics().iter().any(|topic| topic.name == *name);
    names.iter().find(|name| !is_known(name)).map_or(Ok(()), |name| Err(unknown(name)))
}

fn unknown(name: &str) -> Failure {
    let names: Vec<&str> = topics().iter().map(|topic| topic.name).collect();
    Failure::Usage(format!("there is no tuning {name:?}; choose of {}", names.join(", ")))
}

fn request(host: &Host, arguments: &TuneArguments) -> Result<Request, Failure> {
    let target = target(host, arguments)?;
    let program = match arguments.program {
        Wanted::Strowger => Program::Strowger,
        Wanted::Kamailio => Program::Kamailio,
        Wanted::Auto => target.as_ref().map_or(Program::Strowger, |target| target.program),
    };
    let demand = Demand { calls_per_s: arguments.rate, longest_wait: arguments.longest_wait.0 };
    Ok(Request { target, program, demand })
}

fn target(host: &Host, arguments: &TuneArguments) -> Result<Option<Target>, Failure> {
    if let Some(pid) = arguments.pid {
        let found = Target::of(host, pid);
        return found.map(Some).ok_or_else(|| Failure::No(format!("there is no process {pid}")));
    }
    let names: Vec<&str> = match (&arguments.name, arguments.program) {
        (Some(name), _) => vec![name.as_str()],
        (None, Wanted::Auto) => KNOWN.to_vec(),
        (None, Wanted::Strowger) => vec!["strowger"],
        (None, Wanted::Kamailio) => vec!["kamailio"],
    };
    for name in &names {
        let pids = Target::named(host, name);
        if let [first, second, ..] = pids[..] {
            return Err(Failure::Usage(format!(
                "several processes are named {name}, such as {first} and {second}; choose one with --pid"
            )));
        }
        if let Some(target) = pids.first().and_then(|pid| Target::of(host, *pid)) {
            return Ok(Some(target));
        }
    }
    match &arguments.name {
        Some(name) => Err(Failure::No(format!("no process is named {name}"))),
        None => Ok(None),
    }
}

/// Returns the proposals of these names; all recommended ones if there is no name, or for `all`.
fn selected<'p>(proposals: &'p [Proposal], names: &[String]) -> Vec<&'p Proposal> {
    let has_all = names.is_empty() || names.iter().any(|name| name == "all");
    let is_named = |proposal: &&Proposal| names.iter().any(|name| name == proposal.topic.name);
    proposals.iter().filter(|proposal| has_all && proposal.is_recommended || is_named(proposal)).collect()
}

fn explain(name: &str, proposals: &[Proposal], is_json: bool) -> Result<(), Failure> {
    let topic = topics().into_iter().find(|topic| topic.name == name).ok_or_else(|| unknown(name))?;
    let proposal = proposals.iter().find(|proposal| proposal.topic.name == name);
    if is_json {
        return Ok(print_json(&show::topic_as_json(topic, proposal))?);
    }
    Ok(show::explain(topic, proposal)?)
}

fn change(host: &Host, proposals: &[&Proposal], arguments: &TuneArguments) -> Result<(), Failure> {
    let is_possible = |proposal: &&&Proposal| !proposal.changes().is_empty();
    let possible: Vec<&&Proposal> = proposals.iter().filter(is_possible).collect();
    let mut results: Vec<(&Proposal, Vec<Applied>)> = Vec::new();
    if !possible.is_empty() {
        let mut state = StateFile::open(&arguments.state, host).map_err(|error| Failure::No(error.to_string()))?;
        for proposal in possible {
            let applied = apply(host, &mut state, proposal.topic.name, proposal.changes());
            results.push((proposal, applied.map_err(|error| Failure::No(error.to_string()))?));
        }
        if state.last().is_none() {
            state.remove().map_err(|error| Failure::No(error.to_string()))?;
        }
    }
    let by_hand: Vec<&&Proposal> = proposals.iter().filter(|proposal| proposal.changes().is_empty()).collect();
    if arguments.json {
        print_json(&show::applied_as_json(&results, &by_hand))?;
    } else {
        show::applied(&results, &by_hand, &arguments.state)?;
    }
    let failed = results.iter().flat_map(|(_, applied)| applied).filter(|one| one.outcome.is_err()).count();
    if failed > 0 {
        return Err(Failure::No(format!("{failed} values could not be set; the others are")));
    }
    Ok(())
}

fn restore(host: &Host, arguments: &TuneArguments) -> Result<(), Failure> {
    let failure = |error: strowger_tune::TuneError| Failure::No(error.to_string());
    let state = StateFile::open_existing(&arguments.state, host).map_err(failure)?;
    let undone = state.map_or(Ok(Vec::new()), |state| undo(host, state)).map_err(failure)?;
    if arguments.json {
        print_json(&show::undone_as_json(&undone))?;
    } else {
        show::undone(&undone, &arguments.state)?;
    }
    let failed = undone.iter().filter(|(_, what)| matches!(what, strowger_tune::Undone::Failed(_))).count();
    if failed > 0 {
        let file = arguments.state.display();
        return Err(Failure::No(format!("{failed} values could not be restored; {file} keeps their former values")));
    }
    Ok(())
}

fn write(kind: FileKind, proposals: &[&Proposal], request: &Request, arguments: &TuneArguments) -> Result<(), Failure> {
    let kind = match kind {
        FileKind::Sysctl => DropInKind::Sysctl,
        FileKind::Systemd => DropInKind::Systemd,
        FileKind::Tmpfiles => DropInKind::Tmpfiles,
    };
    let folder = arguments.folder.as_ref().map(|folder| folder.display().to_string());
    let path = kind.path(folder.as_deref(), request);
    let old = match fs::read(&path) {
        Ok(old) => Some(old)
            .filter(|old| old.starts_with(DROP_IN_HEADER.as_bytes()))
            .and_then(|old| String::from_utf8(old).ok()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some(String::new()),
        Err(error) => {
            let what = "run this as root, or give another folder";
            return Err(Failure::No(format!("{path} cannot be read: {error}; {what}")));
        }
    };
    let Some(file) = kind.file(folder.as_deref(), old.as_deref(), proposals, request) else {
        print_line("no proposal belongs into such a file; nothing was written")?;
        return Ok(print_line("(what is in force already is not proposed: write before --apply, or --undo first)")?);
    };
    if old.is_none() {
        return Err(Failure::No(format!("{path} exists and is not of this command; move it away first")));
    }
    let path = Path::new(&file.path);
    let cannot = |error: std::io::Error| {
        Failure::No(format!("{} cannot be written: {error}; run this as root, or give another folder", file.path))
    };
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(cannot)?;
    }
    fs::write(path, &file.text).map_err(cannot)?;
    if arguments.json {
        return Ok(print_json(&json!({ "file": file.path, "text": file.text, "then": file.then, "kept": file.kept }))?);
    }
    print_line(&format!("{} written; nothing else was changed", file.path))?;
    if !file.kept.is_empty() {
        print_line(&format!("kept from before: {}", file.kept.join(", ")))?;
    }
    Ok(print_line(&format!("apply it now: {}", file.then))?)
}
