//! `strowger load search`: finds the highest rate, or the largest number of users, that satisfies rules.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use strowger_traffic::options::Options;
use strowger_traffic::search::{
    Probe, ProbeResult, Rule, RuleError, Search, SearchReport, SearchVariable, Settings, comes_at, rfc7502_down,
};

use super::arguments::{TrafficArguments, above_zero, time};
use super::monitor::MonitorArguments;
use super::series::Series;
use crate::failure::Failure;
use crate::files::{both, write};

/// Default length of a probe, and its number of sessions under RFC 7502.
const PROBE: Duration = Duration::from_secs(10);
const RFC_SESSIONS: u64 = 50_000;

#[derive(Debug, Args)]
pub(crate) struct SearchArguments {
    #[command(flatten)]
    traffic: TrafficArguments,
    /// Rule that must hold; may be repeated [default: success(2s)=99.99%; transactions=99.99% over users;
    /// success=100% with --rfc7502]
    #[arg(long = "rule", value_name = "RULE", value_parser = rule)]
    rules: Vec<Rule>,
    /// Variable of the search
    #[arg(long, alias = "over", value_enum, default_value_t = SearchVariableArgument::Rate)]
    vary: SearchVariableArgument,
    /// Writes the result and all probes as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    how: SearchMethodArguments,
}

/// Parameters of a search, whatever its variable.
#[derive(Debug, Args)]
pub(super) struct SearchMethodArguments {
    /// Initial value, in calls per second or users [default: 100]
    #[arg(long, value_name = "N", value_parser = above_zero)]
    start: Option<f64>,
    /// Maximum value to try
    #[arg(long, value_name = "N", value_parser = above_zero)]
    max: Option<f64>,
    /// Length of each probe [default: 10s; for a model of users, as defined there]
    #[arg(long, value_parser = time)]
    time: Option<Duration>,
    /// Number of calls per probe, instead of a time [default with --rfc7502: 50000]
    #[arg(short = 'm', long, conflicts_with = "time")]
    calls: Option<u64>,
    /// Initial period of each probe that is not measured
    #[arg(long, value_parser = time, value_name = "TIME")]
    warm_up: Option<Duration>,
    /// Relative increase while the rules hold [default: 50%; RFC 7502: 10%]
    #[arg(long, value_name = "SHARE", value_parser = weight)]
    up: Option<f64>,
    /// Relative decrease until the rules hold [default: 50%; RFC 7502: half of --up, at least 10%]
    #[arg(long, value_name = "SHARE", value_parser = weight)]
    down: Option<f64>,
    /// Maximum relative distance between success and failure at the end
    #[arg(long, default_value = "1%", value_name = "SHARE", value_parser = weight)]
    precision: f64,
    /// Number of successful runs that confirm the result [default: 3; RFC 7502: 1]
    #[arg(long, value_name = "N")]
    confirm: Option<u32>,
    /// Number of retries before a failure counts [default: 1; RFC 7502: 0]
    #[arg(long, value_name = "N")]
    retries: Option<u32>,
    /// Uses only the algorithm of RFC 7502, §4.10: steps of a tenth until ten successes bring no higher rate
    #[arg(long, conflicts_with = "precision")]
    rfc7502: bool,
    /// Maximum number of probes [default: 80; RFC 7502: 200]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_probes: Option<u32>,
    /// Pause between probes
    #[arg(long, default_value = "2s", value_parser = time, value_name = "TIME")]
    settle: Duration,
    #[command(flatten)]
    onlook: MonitorArguments,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SearchVariableArgument {
    /// Calls per second
    Rate,
    /// Users, who call at random times (--workload users)
    Users,
}

pub(super) fn rule(text: &str) -> Result<Rule, RuleError> {
    Rule::parse(text)
}

fn weight(text: &str) -> Result<f64, String> {
    let percent =
        text.strip_suffix('%').and_then(|text| text.trim().parse::<f64>().ok()).map(|percent| percent / 100.0);
    let share = percent.or_else(|| text.parse().ok()).filter(|share| *share > 0.0 && *share <= 1.0);
    share.ok_or_else(|| format!("'{text}' is not a share above 0 and at most 100%; write it as 10% or 0.1"))
}

impl SearchArguments {
    const fn variable(&self) -> SearchVariable {
        match self.vary {
            SearchVariableArgument::Rate => SearchVariable::Rate,
            SearchVariableArgument::Users => SearchVariable::Users,
        }
    }

    fn rules(&self) -> Result<Vec<Rule>, Failure> {
        let usual = match self.vary {
            _ if !self.rules.is_empty() => return Ok(self.rules.clone()),
            _ if self.how.rfc7502 => "success=100%",
            // Without a time limit, an unboundedly growing queue would be a success.
            SearchVariableArgument::Rate => "success(2s)=99.99%",
            SearchVariableArgument::Users => "transactions=99.99%",
        };
        Ok(vec![Rule::parse(usual).map_err(|error| Failure::Usage(error.to_string()))?])
    }

    /// Checks that the number of users can be varied.
    fn check_users(&self, base: &Options) -> Result<(), Failure> {
        let wrong = |what: String| Err(Failure::Usage(what));
        if base.workload.activities.is_empty() {
            return wrong(format!(
                "in the workload {} the number of users does not determine the number of calls; use --workload users",
                base.workload.name
            ));
        }
        if base.users_file.is_some() {
            return wrong("--users-file fixes the number of users; omit it to vary them".to_owned());
        }
        if let Some(users) = self.traffic.users {
            return wrong(format!(
                "--vary users varies the number of users, but --users {users} fixes it; give the first number with --start {users}"
            ));
        }
        Ok(())
    }

    pub(super) fn run(&self) -> Result<(), Failure> {
        let (settings, rules) = (self.how.settings(self.variable())?, self.rules()?);
        let base = self.traffic.options()?;
        if settings.variable == SearchVariable::Users {
            self.check_users(&base)?;
        }
        let mut series = self.how.series(&[self.json.as_deref()])?;
        let (report, ended) = self.how.search(&base, (settings, rules), &mut series);
        let file = self.json.as_ref();
        let written = file.map_or(Ok(()), |file| write(file, &format!("{:#}\n", report.to_json())));
        let judged = match report.sentence() {
            // The error is reported after the partial result.
            _ if ended.is_err() && report.probes.is_empty() => ended,
            Err(sentence) if ended.is_err() => series.line(&sentence).and(ended),
            Ok(sentence) => series.line(&sentence).and(ended),
            Err(sentence) => Err(Failure::No(sentence)),
        };
        both(written, judged)
    }
}

impl SearchMethodArguments {
    pub(super) fn settings(&self, over: SearchVariable) -> Result<Settings, Failure> {
        let start = self.start.unwrap_or(100.0);
        let usual = if self.rfc7502 {
            let usual = Settings::rfc7502(over, start);
            Settings { down: self.up.map_or(usual.down, rfc7502_down), ..usual }
        } else {
            Settings { precision: Some(self.precision), ..Settings::new(over, start) }
        };
        let settings = Settings {
            up: self.up.unwrap_or(usual.up),
            down: self.down.unwrap_or(usual.down),
            max: self.max.unwrap_or(usual.max),
            confirm: self.confirm.unwrap_or(usual.confirm),
            retries: self.retries.unwrap_or(usual.retries),
            max_probes: self.max_probes.unwrap_or(usual.max_probes),
            ..usual
        };
        let wrong = |what: &str| Err(Failure::Usage(what.to_owned()));
        if settings.max < settings.start {
            return wrong("--max is below --start; lower --start");
        }
        if settings.down >= 1.0 {
            return wrong("--down 100% would reduce the value to 0; use less");
        }
        //= rfc7502#4.10
        // "if w is small (say, 0.10) and r is small (say, <= 9), the algorithm will not converge since it uses floor()"
        if self.rfc7502 && settings.start * settings.up < 1.0 {
            return wrong(
                "RFC 7502 uses whole steps, and --up of such a low --start rounds to 0; raise --start (to 10 at \
                 10%) or --up",
            );
        }
        if over == SearchVariable::Users
            && (settings.start.fract() != 0.0 || settings.max.is_finite() && settings.max.fract() != 0.0)
        {
            return wrong("the number of users must be an integer; correct --start or --max");
        }
        Ok(settings)
    }

    /// Returns the options of a probe.
    fn options(&self, base: &Options, over: SearchVariable, probe: Probe) -> Options {
        // Each probe has different arrivals, so that the result does not depend on one sequence.
        let mut options = Options { seed: base.seed.wrapping_add(u64::from(probe.number)), ..base.clone() };
        match over {
            SearchVariable::Rate => options.rate = probe.at,
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is whole, and saturates")]
            SearchVariable::Users => options.users = probe.at as u32,
        }
        let is_of_users = !base.workload.activities.is_empty();
        options.calls =
            self.calls.or_else(|| (self.rfc7502 && self.time.is_none() && !is_of_users).then_some(RFC_SESSIONS));
        options.time =
            self.time.or_else(|| (options.calls.is_none() && !is_of_users).then_some(base.time.unwrap_or(PROBE)));
        options.warm_up = self.warm_up.unwrap_or(options.warm_up);
        options
    }

    /// Prepares the runs of a search and its output files.
    pub(super) fn series(&self, files: &[Option<&Path>]) -> Result<Series<'_>, Failure> {
        Series::begin(&self.onlook, self.settle, files)
    }

    /// Runs the search and returns its report with the outcome.
    pub(super) fn search(
        &self,
        base: &Options,
        (settings, rules): (Settings, Vec<Rule>),
        series: &mut Series<'_>,
    ) -> (SearchReport, Result<(), Failure>) {
        let mut search = Search::new(settings);
        let mut report = SearchReport {
            workload: base.workload.name.clone(),
            to: String::new(),
            result: search.result(),
            probes: Vec::new(),
            rules,
            settings,
        };
        let ended = self.probe(base, series, &mut search, &mut report);
        report.result = search.result();
        (report, ended)
    }

    /// Runs probes until the search or a signal ends.
    fn probe(
        &self,
        base: &Options,
        series: &mut Series<'_>,
        search: &mut Search,
        report: &mut SearchReport,
    ) -> Result<(), Failure> {
        let Settings { variable: over, .. } = *search.settings();
        while let Some(probe) = search.next_probe() {
            let options = self.options(base, over, probe);
            series.status(&format!(
                "{:>3}  {:<7}  {:>12}  …",
                probe.number,
                probe.stage.to_string(),
                over.show(probe.at)
            ));
            let comes = |plan: &_| if over == SearchVariable::Rate { comes_at(plan, probe.at) } else { Ok(()) };
            let Some((ran, about)) = series.run(&options, &comes)? else { break };
            if ran.was_stopped {
                break;
            }
            if report.probes.is_empty() {
                (report.workload, report.to) = (about.workload, about.to);
                series.line(&format!("{} to {}, seed {}", report.workload, report.to, base.seed))?;
            }
            let probed = ProbeResult::judge(probe, over, &report.rules, &ran, options.seed);
            series.line(&probed.to_string())?;
            search.handle_outcome(probed.outcome);
            report.probes.push(probed);
        }
        Ok(())
    }
}
