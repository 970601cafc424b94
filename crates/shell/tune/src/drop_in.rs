//! Proposals as files for the next start of the machine: sysctl.d, a drop-in of a systemd unit, tmpfiles.d.

use crate::apply::Wanted;
use crate::place::Place;
use crate::proposal::{Proposal, Request};
use crate::target::{Program, Target};

/// First line of each file; a file without it is not overwritten.
pub const DROP_IN_HEADER: &str = "# Written by `strowger tune`; delete this file to undo it.";

/// Section of a unit's drop-in.
const SECTION: &str = "[Service]";

/// DropInKind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropInKind {
    /// Settings below `/proc/sys`.
    Sysctl,
    /// Settings of the server's processes.
    Systemd,
    /// Settings below `/sys`.
    Tmpfiles,
}

/// A file to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropIn {
    /// Path.
    pub path: String,
    /// Text.
    pub text: String,
    /// Command that makes it count.
    pub then: String,
    /// Names of the tunings whose settings an earlier run wrote and this one keeps.
    pub kept: Vec<String>,
}

impl DropInKind {
    /// Returns the path of the file, in `folder` instead of the usual one if it is given.
    #[must_use]
    pub fn path(self, folder: Option<&str>, request: &Request) -> String {
        match self {
            Self::Sysctl => format!("{}/90-strowger.conf", folder.unwrap_or("/etc/sysctl.d")),
            Self::Tmpfiles => format!("{}/90-strowger.conf", folder.unwrap_or("/etc/tmpfiles.d")),
            Self::Systemd => {
                let usual = format!("/etc/systemd/system/{}.d", unit(request));
                format!("{}/90-strowger-tune.conf", folder.unwrap_or(&usual))
            }
        }
    }

    /// Returns the file for these proposals, in `folder` instead of the usual one if it is given; `None` if no proposal
    /// belongs into such a file.
    ///
    /// What is in force already is not proposed, so the settings of `existing`, the text that an earlier run wrote, are
    /// kept, except for those that the proposals set anew.
    #[must_use]
    pub fn file(
        self,
        folder: Option<&str>,
        existing: Option<&str>,
        proposals: &[&Proposal],
        request: &Request,
    ) -> Option<DropIn> {
        let blocks: Vec<Block> = proposals.iter().filter_map(|proposal| self.block(proposal)).collect();
        if blocks.is_empty() {
            return None;
        }
        let path = self.path(folder, request);
        let then = match self {
            Self::Sysctl => format!("sysctl --load {path}"),
            Self::Tmpfiles => format!("systemd-tmpfiles --create {path}"),
            Self::Systemd => format!("systemctl daemon-reload && systemctl restart {}", quoted(&unit(request))),
        };
        let earlier = self.earlier(existing.unwrap_or_default(), &blocks);
        let kept = earlier.iter().filter_map(Block::name).map(str::to_owned).collect();
        let mut text = format!("{DROP_IN_HEADER}\n");
        if self == Self::Systemd {
            text.push_str(SECTION);
            text.push('\n');
        }
        for line in earlier.iter().chain(&blocks).flat_map(|block| block.comment.iter().chain(&block.lines)) {
            text.push_str(line);
            text.push('\n');
        }
        Some(DropIn { path, text, then, kept })
    }

    fn block(self, proposal: &Proposal) -> Option<Block> {
        let lines = match self {
            Self::Sysctl => file_lines(proposal, "/proc/sys/", sysctl),
            Self::Tmpfiles => file_lines(proposal, "/sys/", tmpfile),
            Self::Systemd => proposal.unit_lines.clone(),
        };
        let comment = format!("# {}: {} (was {})", proposal.topic.name, proposal.reason, proposal.current);
        (!lines.is_empty()).then_some(Block { comment: Some(comment), lines })
    }

    /// Returns the blocks of a file without the settings of `new`.
    fn earlier(self, text: &str, new: &[Block]) -> Vec<Block> {
        let is_new = |line: &String| {
            let mut lines = new.iter().flat_map(|block| &block.lines);
            lines.any(|other| self.setting(other) == self.setting(line))
        };
        let mut blocks = vec![Block::default()];
        for line in text.lines().filter(|line| *line != DROP_IN_HEADER && *line != SECTION && !line.trim().is_empty()) {
            if line.starts_with('#') {
                blocks.push(Block { comment: Some(line.to_owned()), lines: Vec::new() });
            } else if let Some(block) = blocks.last_mut() {
                block.lines.push(line.to_owned());
            }
        }
        for block in &mut blocks {
            block.lines.retain(|line| !is_new(line));
        }
        blocks.retain(|block| !block.lines.is_empty());
        blocks
    }

    /// Returns the name of what a line sets.
    fn setting(self, line: &str) -> &str {
        let name = match self {
            Self::Tmpfiles => line.split_whitespace().nth(1),
            Self::Sysctl | Self::Systemd => line.split('=').next(),
        };
        name.unwrap_or(line).trim()
    }
}

/// The settings of a tuning in a file.
#[derive(Debug, Default)]
struct Block {
    /// The line above them; `None` for lines that this command did not write.
    comment: Option<String>,
    lines: Vec<String>,
}

impl Block {
    /// Returns the name of the tuning.
    fn name(&self) -> Option<&str> {
        Some(self.comment.as_ref()?.strip_prefix("# ")?.split_once(':')?.0)
    }
}

fn unit(request: &Request) -> String {
    let own = request.target.as_ref().and_then(|target| target.unit()).map(str::to_owned);
    let usual = match request.program {
        Program::Kamailio => "kamailio.service".to_owned(),
        Program::OpenSips => "opensips.service".to_owned(),
        Program::Strowger => "strowger.service".to_owned(),
        Program::Other => {
            let name = request.target.as_ref().map_or_else(|| "server".to_owned(), Target::file_name);
            format!("{name}.service")
        }
    };
    own.unwrap_or(usual)
}

/// Returns a word as a shell reads it. Names of units may have backslashes, as systemd-escape(1) makes them.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.:@".contains(letter);
    if word.chars().all(is_plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

fn file_lines(proposal: &Proposal, root: &str, line: fn(&str, &str) -> String) -> Vec<String> {
    let changes = proposal.changes().iter().filter_map(|change| match (&change.place, &change.value) {
        (Place::File { path, .. }, Wanted::Exactly(value)) => path.starts_with(root).then(|| line(path, value)),
        _ => None,
    });
    changes.collect()
}

fn sysctl(path: &str, value: &str) -> String {
    let name = path.trim_start_matches("/proc/sys/");
    // A name with dots of its own, as of a VLAN, stays in the form with slashes, which sysctl.d(5) allows.
    let name = if name.contains('.') { name.to_owned() } else { name.replace('/', ".") };
    format!("{name} = {}", value.replace('\t', " "))
}

fn tmpfile(path: &str, value: &str) -> String {
    format!("w {path} - - - - {value}")
}
