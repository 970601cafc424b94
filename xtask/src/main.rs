//! Repository checks that no other tool makes: `cargo xtask check`.

mod circles;
mod code;
mod deps;
mod docs;
mod files;
mod modules;
mod rules;
mod sample;
mod source;
mod specs;
mod violation;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use violation::{Violation, report};

const USAGE: &str = "\
cargo xtask COMMAND

  check    every check below
  deps     who depends on whom: one direction, and nothing with I/O, clocks, async or entropy behind the core
  circles  no files of a crate import each other, apart from a module and its children
  source   unsafe only where it may stand, the core's bans, lengths of files, reasons for ignored tests, no local paths
  docs     links lead somewhere, and functions that ARCHITECTURE.md names exist
  specs    requirements of RFCs in specs/ are cited at their code and at a test, or stand in specs/deviations.md
  sample SEED   twenty names and twenty paragraphs drawn at random, for a reader who does not know the code

Exit codes: 0 all is well, 1 a rule is broken, 2 the command is wrong or could not run.";

type Check = (&'static str, fn(&Path) -> Result<Vec<Violation>, String>);

const CHECKS: [Check; 5] = [
    ("deps", deps::check),
    ("circles", circles::check),
    ("source", source::check),
    ("docs", docs::check),
    ("specs", specs::check),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let wanted = match arguments.as_slice() {
        [one] if one == "help" || one == "--help" => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        [command, seed] if command == "sample" => return sample(seed),
        [one] => one.as_str(),
        _ => "",
    };
    let chosen: Vec<_> = CHECKS.iter().filter(|(name, _)| wanted == "check" || wanted == *name).collect();
    if chosen.is_empty() {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    }
    let mut code = ExitCode::SUCCESS;
    for (name, check) in chosen {
        match check(&root()) {
            Ok(found) if found.is_empty() => println!("{name}: ok"),
            Ok(found) => {
                eprint!("{}", report(&found));
                eprintln!("{name}: {} broken", found.len());
                code = ExitCode::from(1);
            }
            Err(error) => {
                eprintln!("{name}: {error}");
                return ExitCode::from(2);
            }
        }
    }
    code
}

fn sample(seed: &str) -> ExitCode {
    let printed =
        seed.parse().map_err(|_| format!("{seed}: a seed is a number")).and_then(|seed| sample::print(&root(), seed));
    let Err(error) = printed else { return ExitCode::SUCCESS };
    eprintln!("sample: {error}");
    ExitCode::from(2)
}

/// Returns the workspace's root.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}
