//! `strowger load sipstone`: runs the five tests of SIPstone and computes the score.

use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use strowger_traffic::options::{Options, Target};
use strowger_traffic::search::{Rule, SearchVariable, Verdict};
use strowger_traffic::workload::Workload;
use strowger_traffic::workload::sipstone::{LASTS, PARTS, SUCCESS, SipstoneTest, WITHIN, score};

use super::arguments::{TrafficArguments, target};
use super::search::{SearchMethodArguments, rule};
use super::series::Series;
use crate::failure::Failure;
use crate::files::write;

/// Placeholder for the workload.
const TESTS: &str = "sipstone";

#[derive(Debug, Args)]
#[command(mut_arg("workload", |workload| {
    // The tests define the workloads.
    workload.hide(true).default_value(TESTS).value_parser([TESTS])
}))]
#[command(mut_arg("time", |time| time.help("How long each probe is [default: 60s]")))]
#[command(mut_arg("sf", |sf| sf.hide(true)))]
pub(crate) struct SipstoneArguments {
    #[command(flatten)]
    traffic: TrafficArguments,
    #[command(flatten)]
    how: SearchMethodArguments,
    /// Rule that must hold instead of a test's own, success(2s)=95%; may be repeated
    #[arg(long = "rule", value_name = "RULE", value_parser = rule)]
    rules: Vec<Rule>,
    /// Only this test: registration, outbound, proxy-480, redirect, proxy-200; may be repeated
    #[arg(long, value_name = "TEST", value_parser = part)]
    only: Vec<SipstoneTest>,
    /// Rate of a test that was measured before, such as redirect=5120; may be repeated
    #[arg(long, alias = "known", value_name = "TEST=RATE", value_parser = with_number)]
    rate_of: Vec<(SipstoneTest, f64)>,
    /// Weight of a test [default: equal weights]; may be repeated
    #[arg(long, value_name = "TEST=WEIGHT", value_parser = with_number)]
    weight: Vec<(SipstoneTest, f64)>,
    /// Another target for a test, such as redirect=udp:127.0.0.1:5062; may be repeated
    #[arg(long, value_name = "TEST=TARGET", value_parser = with_target)]
    at: Vec<(SipstoneTest, Target)>,
    /// Writes the score and each test's search as JSON; - is standard output
    #[arg(long, visible_alias = "score-json", value_name = "FILE")]
    json: Option<PathBuf>,
}

fn part(text: &str) -> Result<SipstoneTest, String> {
    let found = PARTS.into_iter().find(|part| part.workload == text || part.name == text);
    found.ok_or_else(|| {
        let names = PARTS.map(|part| part.workload).join(", ");
        format!("'{text}' is not a test of SIPstone; the tests are {names}")
    })
}

fn with_number(text: &str) -> Result<(SipstoneTest, f64), String> {
    let (name, number) = text.split_once('=').ok_or_else(|| format!("'{text}' has no number; write redirect=2"))?;
    let number: Option<f64> = number.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
    Ok((part(name)?, number.ok_or_else(|| format!("'{text}' has a number below 0 or none"))?))
}

fn with_target(text: &str) -> Result<(SipstoneTest, Target), String> {
    let (name, at) =
        text.split_once('=').ok_or_else(|| format!("'{text}' has no target; write redirect=udp:HOST:PORT"))?;
    Ok((part(name)?, target(at).map_err(|error| error.to_string())?))
}

/// Result of a test.
struct TestResult {
    part: SipstoneTest,
    rate: Option<f64>,
    report: Value,
}

impl SipstoneArguments {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let base = self.traffic.options_of(&PARTS.map(|part| part.workload).join(","))?;
        if base.scenario.is_some() {
            return Err(Failure::Usage("SIPstone uses its own tests; omit --sf".to_owned()));
        }
        if base.to.is_none() {
            return Err(Failure::Usage("SIPstone measures a server; give its address with --to".to_owned()));
        }
        let mut series = self.how.series(&[self.json.as_deref()])?;
        let mut tested = Vec::new();
        for part in PARTS {
            let weight = of(&self.weight, part).unwrap_or(part.weight);
            let part = SipstoneTest { weight, ..part };
            if let Some(rate) = of(&self.rate_of, part) {
                tested.push(TestResult { part, rate: Some(rate), report: Value::Null });
            } else if self.only.is_empty() || self.only.iter().any(|only| only.workload == part.workload) {
                let (one, is_stopped) = self.test(&base, part, &mut series)?;
                tested.push(one);
                if is_stopped {
                    break;
                }
            } else {
                tested.push(TestResult { part, rate: None, report: Value::Null });
            }
        }
        self.conclude(&tested)
    }

    /// Returns the highest rate of a test, and whether a signal ended it.
    fn test(&self, base: &Options, part: SipstoneTest, series: &mut Series<'_>) -> Result<(TestResult, bool), Failure> {
        let wrong = |what: String| Failure::Usage(what);
        let workload = Workload::parse(part.workload, &self.traffic.end.set_for(part.workload), 1.0)
            .map_err(|error| wrong(error.to_string()))?;
        let to = of(&self.at, part).or_else(|| base.to.clone());
        let options = Options { workload, to, time: Some(LASTS), ..base.clone() };
        let rules = match &*self.rules {
            [] => vec![rule(part.rule).map_err(|error| wrong(error.to_string()))?],
            rules => rules.to_vec(),
        };
        series.begin_anew();
        series.line(&format!("SIPstone: {}", part.name))?;
        let (report, ended) = self.how.search(&options, (self.how.settings(SearchVariable::Rate)?, rules), series);
        ended?;
        match report.sentence() {
            Ok(sentence) | Err(sentence) => series.line(&sentence)?,
        }
        // If the generator or --max is the limit, the server's rate is unknown.
        let rate = report.result.at.filter(|_| report.result.verdict == Verdict::Found);
        Ok((TestResult { part, rate, report: report.to_json() }, series.is_stopped()))
    }

    fn conclude(&self, tested: &[TestResult]) -> Result<(), Failure> {
        let rates: Option<Vec<_>> = tested.iter().map(|one| Some((one.part, one.rate?))).collect();
        let score = rates.filter(|rates| rates.len() == PARTS.len()).and_then(|rates| score(&rates));
        if let Some(file) = &self.json {
            let parts: Vec<_> = tested
                .iter()
                .map(|one| {
                    json!({ "test": one.part.name, "workload": one.part.workload, "weight": one.part.weight,
                        "rate": one.rate, "search": one.report })
                })
                .collect();
            let weights = if self.weight.is_empty() { "equal (ours)" } else { "set" };
            let value = json!({ "sipstone_a": score, "weights": weights, "success": SUCCESS,
                "within_s": WITHIN.as_secs_f64(), "tests": parts });
            write(file, &format!("{value:#}\n"))?;
        }
        let mut text = String::new();
        for one in tested {
            let rate = one.rate.map_or_else(|| "not known".to_owned(), |rate| format!("{rate:.1}/s"));
            text.push_str(&format!("{:<16} {:>12}  weight {}\n", one.part.name, rate, one.part.weight));
        }
        if let Some(score) = score {
            text.push_str(&format!("SIPstone-A       {score:>10.1}/s\n"));
        }
        // A file on standard output must contain nothing else.
        let is_piped = self.json.as_ref().is_some_and(|file| file.as_os_str() == "-");
        if is_piped {
            eprint!("{text}");
        } else {
            std::io::stdout().write_all(text.as_bytes()).map_err(Failure::Output)?;
        }
        score.map(|_| ()).ok_or_else(|| {
            let missing: Vec<_> = PARTS
                .iter()
                .filter(|part| !tested.iter().any(|one| one.part.workload == part.workload && one.rate.is_some()))
                .map(|part| part.workload)
                .collect();
            Failure::No(format!(
                "the score needs a rate of {}; measure it, or give it with --rate-of {}=RATE",
                missing.join(", "),
                missing.first().copied().unwrap_or("TEST")
            ))
        })
    }
}

fn of<T: Clone>(all: &[(SipstoneTest, T)], part: SipstoneTest) -> Option<T> {
    all.iter().rev().find(|(one, _)| one.workload == part.workload).map(|(_, value)| value.clone())
}
