//! Output of `strowger tune`.

use std::io::{self, Write as _};
use std::path::Path;

use serde_json::{Value, json};
use strowger_tune::{Action, Applied, Group, Program, Proposal, Record, Request, Target, Topic, Undone};

use crate::text::count;

/// Width of the longest line of text.
const WIDTH: usize = 110;
/// Longest current or proposed value in the table.
const LONGEST: usize = 24;
/// Indent of the further lines of a labelled text.
const LABEL: &str = "      ";

/// Prints the proposals as a table, by group.
pub(crate) fn print(host: &str, request: &Request, proposals: &[Proposal]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{host}")?;
    writeln!(out, "{}", subject(request))?;
    if request.target.as_ref().is_some_and(|target| target.is_in_other_network) {
        let pid = request.target.as_ref().map_or(0, Target::pid);
        writeln!(out, "It is in another network namespace: for its sockets and net.* settings run")?;
        writeln!(out, "  nsenter -t {pid} -n strowger tune --pid {pid}")?;
    }
    if proposals.is_empty() {
        return writeln!(out, "\nNothing to change.");
    }
    let widths = Widths::of(proposals);
    let mut group: Option<Group> = None;
    for proposal in proposals {
        if group != Some(proposal.topic.group) {
            writeln!(out, "\n{}", proposal.topic.group.to_string().to_uppercase())?;
            group = Some(proposal.topic.group);
        }
        row(&mut out, proposal, &widths)?;
    }
    let recommended: Vec<&str> = names(proposals, |proposal| proposal.is_recommended && is_change(proposal));
    writeln!(out)?;
    writeln!(
        out,
        "Nothing was changed. (optional): only by name; --explain has gain and risk. (by hand): not of the host."
    )?;
    if !recommended.is_empty() {
        writeln!(out, "  strowger tune --apply all           {}", recommended.join(", "))?;
        writeln!(out, "  strowger tune --undo                restores the former values")?;
        writeln!(out, "  strowger tune --write sysctl        a file that lasts; also systemd, tmpfiles")?;
    }
    writeln!(out, "  strowger tune --explain NAME        the long reason, with its source")
}

fn is_change(proposal: &Proposal) -> bool {
    !proposal.changes().is_empty()
}

fn names(proposals: &[Proposal], is_wanted: fn(&Proposal) -> bool) -> Vec<&'static str> {
    proposals.iter().filter(|proposal| is_wanted(proposal)).map(|proposal| proposal.topic.name).collect()
}

fn subject(request: &Request) -> String {
    let demand = &request.demand;
    let load =
        format!("{} calls/s, packets worth keeping for {} ms", demand.calls_per_s, demand.longest_wait.as_millis());
    let Some(target) = &request.target else {
        let program = match request.program {
            Program::Kamailio => "Kamailio",
            Program::OpenSips => "OpenSIPS",
            Program::Strowger => "Strowger",
            Program::Other => "a server",
        };
        return format!("For {program}, which is not running (its own settings are not shown): {load}");
    };
    let sizes = format!(
        "{}, {}, {}",
        count(target.processes.len() as u64, "process"),
        count(target.threads.len() as u64, "thread"),
        count(target.sockets.len() as u64, "UDP socket")
    );
    format!("For {} (process {}: {sizes}): {load}", target.name, target.pid())
}

struct Widths {
    name: usize,
    current: usize,
    proposed: usize,
}

impl Widths {
    fn of(proposals: &[Proposal]) -> Self {
        let widest = |text: fn(&Proposal) -> &str| {
            proposals.iter().map(|proposal| text(proposal).chars().count()).max().unwrap_or(0)
        };
        Self {
            name: widest(|proposal| proposal.topic.name),
            current: widest(|proposal| &proposal.current).min(LONGEST),
            proposed: widest(|proposal| &proposal.proposed).min(LONGEST),
        }
    }
}

fn row(out: &mut impl io::Write, proposal: &Proposal, widths: &Widths) -> io::Result<()> {
    let Widths { name, current, proposed } = *widths;
    let mark = match (&proposal.action, proposal.is_recommended) {
        (Action::ByHand(_), _) => " (by hand)",
        (Action::Changes(_), false) => " (optional)",
        (Action::Changes(_), true) => "",
    };
    writeln!(
        out,
        "  {:name$}  {:>current$} → {:proposed$}  {}{mark}",
        proposal.topic.name, proposal.current, proposal.proposed, proposal.reason
    )?;
    if !proposal.is_recommended && is_change(proposal) {
        return Ok(());
    }
    let indent = " ".repeat(name + 4);
    for (label, text) in [("gain", proposal.gain.as_str()), ("risk", proposal.topic.risk)] {
        paragraph(out, &format!("{label}: {text}"), (&indent, LABEL))?;
    }
    match &proposal.action {
        Action::ByHand(how) => paragraph(out, &format!("how:  {how}"), (&indent, LABEL)),
        Action::Changes(_) => Ok(()),
    }
}

/// Writes a text in lines that fit.
fn paragraph(out: &mut impl io::Write, text: &str, (indent, further): (&str, &str)) -> io::Result<()> {
    let mut line = String::new();
    for word in text.split(' ') {
        let is_full = indent.len() + line.chars().count() + 1 + word.chars().count() > WIDTH;
        if is_full && !line.is_empty() {
            writeln!(out, "{indent}{line}")?;
            line = further.to_owned();
        } else if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    writeln!(out, "{indent}{line}")
}

/// Prints the long reason of a tuning.
pub(crate) fn explain(topic: &Topic, proposal: Option<&Proposal>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}: {}\n", topic.name, topic.title)?;
    for part in topic.explanation.split('\n') {
        paragraph(&mut out, part, ("", ""))?;
        writeln!(out)?;
    }
    let gain = proposal.map_or(topic.gain, |proposal| proposal.gain.as_str());
    paragraph(&mut out, &format!("gain: {gain}"), ("", LABEL))?;
    paragraph(&mut out, &format!("risk: {}", topic.risk), ("", LABEL))?;
    let Some(proposal) = proposal else {
        return writeln!(out, "here: nothing is proposed on this host");
    };
    let here = format!("here: {} → {}, because {}", proposal.current, proposal.proposed, proposal.reason);
    paragraph(&mut out, &here, ("", LABEL))?;
    match &proposal.action {
        Action::ByHand(how) => writeln!(out, "how:  {how}"),
        Action::Changes(changes) => {
            for change in changes.iter().take(MANY_CHANGES) {
                writeln!(out, "      {}", change.place)?;
            }
            if changes.len() > MANY_CHANGES {
                writeln!(out, "      and {} more", changes.len() - MANY_CHANGES)?;
            }
            Ok(())
        }
    }
}

/// Number of places that an explanation shows.
const MANY_CHANGES: usize = 8;

/// Prints what was applied.
pub(crate) fn applied(results: &[(&Proposal, Vec<Applied>)], by_hand: &[&&Proposal], state: &Path) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let mut has_changed = false;
    for (proposal, all) in results {
        let changed = all.iter().filter(|one| matches!(one.outcome, Ok(true))).count();
        has_changed |= changed > 0;
        let Proposal { topic, current, proposed, .. } = proposal;
        let text = match changed {
            0 => "nothing changed".to_owned(),
            1 => "changed".to_owned(),
            many => format!("changed in {many} places"),
        };
        writeln!(out, "{}: {current} → {proposed}: {text}", topic.name)?;
        for one in all {
            if let Err(error) = &one.outcome {
                writeln!(out, "  {error}")?;
            }
        }
    }
    for proposal in by_hand {
        if let Action::ByHand(how) = &proposal.action {
            writeln!(out, "{}: by hand: {how}", proposal.topic.name)?;
        }
    }
    if results.is_empty() && by_hand.is_empty() {
        return writeln!(out, "nothing to change");
    }
    if has_changed {
        writeln!(out, "former values: {}; strowger tune --undo restores them", state.display())?;
    }
    Ok(())
}

/// Prints what was undone.
pub(crate) fn undone(all: &[(Record, Undone)], state: &Path) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if all.is_empty() {
        return writeln!(out, "nothing to undo: {} records no change", state.display());
    }
    for (record, undone) in all {
        let Record { tuning, place, former, applied } = record;
        let text = match undone {
            Undone::Restored => format!("{former} again"),
            Undone::Unchanged => format!("was {former} already"),
            Undone::ChangedByOthers(found) => {
                format!("{former} again; had been changed to {found} by others meanwhile, not {applied}")
            }
            Undone::Ended => "the process has ended".to_owned(),
            Undone::Restarted => "ended with the restart of the machine".to_owned(),
            Undone::Failed(error) => format!("NOT restored: {error}"),
        };
        writeln!(out, "{tuning}: {place}: {text}")?;
    }
    Ok(())
}

pub(crate) fn as_json(host: &str, request: &Request, proposals: &[Proposal]) -> Value {
    let target = request.target.as_ref().map(|target| {
        json!({
            "name": target.name,
            "pid": target.pid(),
            "processes": target.processes.len(),
            "threads": target.threads.len(),
            "sockets": target.sockets.iter().map(|socket| json!({
                "port": socket.port,
                "buffer_bytes": socket.buffer_bytes,
                "queued_bytes": socket.queued_bytes,
                "drops": socket.drops,
            })).collect::<Vec<_>>(),
            "other_network": target.is_in_other_network,
        })
    });
    json!({
        "host": host,
        "target": target,
        "calls_per_s": request.demand.calls_per_s,
        "longest_wait_s": request.demand.longest_wait.as_secs_f64(),
        "proposals": proposals.iter().map(proposal_as_json).collect::<Vec<_>>(),
    })
}

fn proposal_as_json(proposal: &Proposal) -> Value {
    let how = match &proposal.action {
        Action::ByHand(how) => Some(how),
        Action::Changes(_) => None,
    };
    json!({
        "name": proposal.topic.name,
        "group": proposal.topic.group,
        "title": proposal.topic.title,
        "current": proposal.current,
        "proposed": proposal.proposed,
        "reason": proposal.reason,
        "gain": proposal.gain,
        "risk": proposal.topic.risk,
        "recommended": proposal.is_recommended,
        "by_hand": how,
        "places": proposal.changes().iter().map(|change| change.place.to_string()).collect::<Vec<_>>(),
    })
}

pub(crate) fn topic_as_json(topic: &Topic, proposal: Option<&Proposal>) -> Value {
    json!({
        "name": topic.name,
        "group": topic.group,
        "title": topic.title,
        "explanation": topic.explanation,
        "gain": topic.gain,
        "risk": topic.risk,
        "proposal": proposal.map(proposal_as_json),
    })
}

pub(crate) fn applied_as_json(results: &[(&Proposal, Vec<Applied>)], by_hand: &[&&Proposal]) -> Value {
    let row = |one: &Applied| {
        json!({
            "place": one.place.to_string(),
            "former": one.former,
            "value": one.value,
            "changed": one.outcome.as_ref().is_ok_and(|is_changed| *is_changed),
            "error": one.outcome.as_ref().err().map(ToString::to_string),
        })
    };
    let of = |(proposal, all): &(&Proposal, Vec<Applied>)| json!({ "name": proposal.topic.name, "changes": all.iter().map(row).collect::<Vec<_>>() });
    json!({
        "applied": results.iter().map(of).collect::<Vec<_>>(),
        "by_hand": by_hand.iter().map(|proposal| proposal_as_json(proposal)).collect::<Vec<_>>(),
    })
}

pub(crate) fn undone_as_json(all: &[(Record, Undone)]) -> Value {
    let row = |(record, undone): &(Record, Undone)| {
        let (result, detail) = match undone {
            Undone::Restored => ("restored", None),
            Undone::Unchanged => ("unchanged", None),
            Undone::ChangedByOthers(found) => ("changed by others", Some(found.clone())),
            Undone::Ended => ("ended", None),
            Undone::Restarted => ("restarted", None),
            Undone::Failed(error) => ("failed", Some(error.to_string())),
        };
        json!({
            "name": record.tuning,
            "place": record.place.to_string(),
            "former": record.former,
            "applied": record.applied,
            "result": result,
            "detail": detail,
        })
    };
    json!({ "undone": all.iter().map(row).collect::<Vec<_>>() })
}
