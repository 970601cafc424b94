//! Repository checks that no other tool makes: `cargo xtask check`.

mod circles;
mod code;
mod component;
mod components;
mod deps;
mod docs;
mod files;
mod modules;
mod notices;
mod rules;
mod sample;
mod sbom;
mod source;
mod specs;
mod vendored;
mod violation;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

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
  sbom [OPTIONS]      what the binary contains, as CycloneDX; SOURCE_DATE_EPOCH sets its time
  notices [OPTIONS]   the licences of what the binary contains, with their texts
                      OPTIONS are those of the build, such as --features ebpf

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
        [command, options @ ..] if command == "sbom" => return print("sbom", sbom(options)),
        [command, options @ ..] if command == "notices" => return print("notices", notices(options)),
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
    print("sample", printed.map(|()| String::new()))
}

/// Prints what a command has made, or why it has not.
fn print(command: &str, made: Result<String, String>) -> ExitCode {
    match made {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{command}: {error}");
            ExitCode::from(2)
        }
    }
}

fn sbom(options: &[String]) -> Result<String, String> {
    let time = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(time) => time.parse().map_err(|_| format!("SOURCE_DATE_EPOCH={time}: this is not a number of seconds"))?,
        Err(_) => SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
    };
    let document = sbom::document(&components::read(&root(), options)?, time);
    serde_json::to_string_pretty(&document).map(|text| text + "\n").map_err(|error| error.to_string())
}

fn notices(options: &[String]) -> Result<String, String> {
    notices::text(&root(), &components::read(&root(), options)?)
}

/// Returns the workspace's root.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}
