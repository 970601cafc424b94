//! Memory and limits of the process.

use crate::apply::Change;
use crate::host::Host;
use crate::kernel::FileLimit;
use crate::place::{Form, Place};
use crate::proposal::{Group, Proposal, Request, Topic};
use crate::target::Program;

const THP_FILE: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
/// Open files that are proposed: as in the unit file of this server.
const FILES: u64 = 1_048_576;
/// Below this, TCP connections of a busy server do not fit.
const FEW_FILES: u64 = 65_536;

pub(crate) static HUGE_PAGES: Topic = Topic {
    name: "huge-pages",
    group: Group::Memory,
    title: "transparent huge pages",
    gain: "some percent of the work on large location tables, which are larger than the TLB",
    risk: "with \"madvise\" none: only programs that ask for huge pages get them",
    explanation: "Strowger's allocator asks for huge pages once its private memory has reached 64 MiB, which works with \
        \"madvise\" and \"always\". With \"always\" also small processes get them, such as each of Kamailio's, and the kernel \
        may pause an allocation to make room for one. With \"never\" nobody gets any.",
};

pub(crate) static OPEN_FILES: Topic = Topic {
    name: "open-files",
    group: Group::Limits,
    title: "limit on open files of the server",
    gain: "connections are not refused; nothing for UDP, which needs one file for a listener",
    risk: "none; a million open files take memory only when they are opened",
    explanation: "Each TCP connection is an open file. Strowger raises its limit to the hard one by itself, other programs \
        keep the soft one of 1,024 unless they are configured (open_files_limit in Kamailio).",
};

pub(crate) static TOPICS: [&Topic; 2] = [&HUGE_PAGES, &OPEN_FILES];

/// Returns the proposals on memory and limits.
pub(crate) fn advise(host: &Host, request: &Request) -> Vec<Proposal> {
    huge_pages(host, request).into_iter().chain(open_files(host, request)).collect()
}

fn huge_pages(host: &Host, request: &Request) -> Option<Proposal> {
    let place = Place::File { path: THP_FILE.to_owned(), form: Form::Choice };
    let current = place.read(host).ok().filter(|current| current != "madvise")?;
    let proposal = Proposal::new(&HUGE_PAGES, current.clone(), "madvise").by(vec![Change::new(place, "madvise")]);
    Some(match (current.as_str(), request.program) {
        ("never", Program::Strowger) => proposal.because("the server asks for them once it is large"),
        ("never", _) => return None,
        _ => proposal.because("the kernel may pause an allocation to make one").optional(),
    })
}

fn open_files(host: &Host, request: &Request) -> Option<Proposal> {
    let target = request.target.as_ref()?;
    let limits = target.processes.iter().filter_map(|task| {
        let limit = host.kernel().file_limit(task.process).ok()?;
        let in_force = if request.program == Program::Strowger { limit.hard } else { limit.soft };
        in_force.filter(|files| *files < FEW_FILES).map(|files| (*task, limit, files))
    });
    let limits: Vec<_> = limits.collect();
    let lowest = limits.iter().map(|(_, _, files)| *files).min()?;
    let changes = limits
        .iter()
        .map(|(task, FileLimit { hard, .. }, _)| {
            let hard = hard.map_or_else(|| "unlimited".to_owned(), |hard| hard.max(FILES).to_string());
            Change::new(Place::OpenFiles(*task), format!("{FILES}:{hard}"))
        })
        .collect();
    let proposal = Proposal::new(&OPEN_FILES, lowest.to_string(), FILES.to_string())
        .because("each TCP connection is an open file")
        .by(changes)
        .in_unit(format!("LimitNOFILE={FILES}"));
    Some(proposal)
}
