//! Completions of shells and manual pages, both made from the definition of the command line.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use clap::{Command, CommandFactory as _};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::cli::Cli;
use crate::failure::Failure;

/// Title of the pages' section with the examples of `--help`, instead of the generator's.
const NOTES: (&str, &str) = ("\n.SH EXTRA\n", "\n.SH NOTES\n");

/// Prints the completions of `shell`.
pub(crate) fn print_completions(shell: Shell) -> Result<(), Failure> {
    // The generator panics if it cannot write, so it writes to memory.
    let mut completions = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "strowger", &mut completions);
    io::stdout().write_all(&completions).map_err(Failure::Output)
}

/// Writes a page for each command into `folder`.
pub(crate) fn write_pages(folder: &Path) -> Result<(), Failure> {
    let mut top = Cli::command().disable_help_subcommand(true);
    top.build();
    fs::create_dir_all(folder).and_then(|()| write_page(&top, folder)).map_err(|error| {
        Failure::No(format!("the pages cannot be written into {}: {error}; name another folder", folder.display()))
    })
}

/// Writes the pages of `command` and of those below it.
fn write_page(command: &Command, folder: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_page(below, folder)?;
    }
    let source = concat!("Strowger ", env!("CARGO_PKG_VERSION"));
    let page = Man::new(command.clone()).source(source).manual("Strowger");
    let mut text = Vec::new();
    page.render(&mut text)?;
    let text = String::from_utf8_lossy(&text).replace(NOTES.0, NOTES.1);
    fs::write(folder.join(page.get_filename()), text)
}
