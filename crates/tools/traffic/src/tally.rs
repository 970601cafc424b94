//! Outcomes of scripts, transactions and users: the parts of a report besides calls.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::engine::{CallRole, LATE_AT_MEDIAN, LATE_AT_P99, LATE_OF, PhaseReport, Plan};
use crate::meter::{OutcomeCounts, ResponseClass, TransactionCounts, Transactions};
use crate::output::percent_of;
use crate::script::MethodId;
use crate::time_histogram::{TimeHistogram, times_json};
use crate::workload::CONFORMING;

pub use crate::engine::ScriptOutcomes;

/// Divisor: lateness above a tenth of a time is not small relative to it.
const LATE_SHARE: u32 = 10;

impl PhaseReport {
    /// Adds the transactions of both ends to those of the end that began the sessions, so that a rule on transactions
    /// covers all.
    pub(crate) fn gather_transactions(&mut self) {
        let (first, second) = match self.role {
            CallRole::Caller => (&mut self.caller, &mut self.callee),
            CallRole::Callee => (&mut self.callee, &mut self.caller),
        };
        first.transactions.merge(&std::mem::take(&mut second.transactions));
    }

    /// Returns the transactions of both ends by method, with their outcomes.
    #[must_use]
    pub const fn transactions(&self) -> &Transactions {
        &self.meter().transactions
    }

    /// Returns whether the users were served sufficiently: [`CONFORMING`] of their transactions must succeed; false
    /// without any transaction. `None` if the phase has no users' activities.
    #[must_use]
    pub fn is_conforming(&self) -> Option<bool> {
        let sum = self.transactions().sum();
        self.users.map(|_| sum.all > 0 && sum.share() >= CONFORMING)
    }

    /// Returns a warning if times measured from sending flatter the server, because calls began late and not by
    /// little relative to those times.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let meter = self.meter();
        let late = meter.lateness.quantile(0.99);
        if meter.lateness.count() < LATE_OF || late <= LATE_AT_MEDIAN {
            return None;
        }
        let is_flattered = |(verb, from_due): (&MethodId, &TimeHistogram)| {
            let (sent, due) = (meter.answer(*verb, ResponseClass::Success)?.quantile(0.99), from_due.quantile(0.99));
            // Calls that began late but were answered fast are not at the slow end.
            (late > sent / LATE_SHARE && due.saturating_sub(sent) > sent / LATE_SHARE).then(|| {
                format!(
                    "calls began {late:.1?} late at p99, which times from transmission do not include; from its due time, {} to 2xx \
                     took {:.1?} at p99, not {sent:.1?}",
                    verb.as_str(),
                    due
                )
            })
        };
        meter.from_due.iter().find_map(is_flattered)
    }

    /// Returns the outcomes of the scripts that ran.
    pub(crate) fn script_outcomes(&self, plan: &Plan) -> Vec<ScriptOutcomes> {
        let callee = plan.callee.as_ref().map(|callee| &callee.side);
        let ends = [(CallRole::Caller, plan.caller.as_ref(), &self.caller), (CallRole::Callee, callee, &self.callee)];
        let mut all = Vec::new();
        for (who, side, meter) in ends {
            let Some(side) = side else { continue };
            let ran = side.scripts.iter().zip(&meter.scripts).filter(|(_, accounts)| accounts.sent > 0);
            for (script, accounts) in ran {
                // A replay has a script for each call, all with one name.
                let known =
                    all.iter_mut().find(|known: &&mut ScriptOutcomes| known.who == who && known.name == script.name);
                match known {
                    Some(known) => known.accounts.merge(accounts),
                    None => all.push(ScriptOutcomes { who, name: script.name.clone(), accounts: *accounts }),
                }
            }
        }
        all
    }
}

/// Adds `scripts`, `transactions` and, for users, `users`.
pub(crate) fn extend(phase: &PhaseReport, top: &mut Map<String, Value>) {
    let scripts = phase.scripts.iter().map(|script| {
        let OutcomeCounts { sent, carried, lost, failed, unfinished, .. } = script.accounts;
        json!({ "end": end_name(script.who), "script": script.name, "sent": sent, "carried": carried, "lost": lost,
            "failed": failed, "unfinished": unfinished })
    });
    top.insert("scripts".to_owned(), scripts.collect());
    let from_due = phase
        .from_due()
        .map(|(verb, times)| json!({ "method": verb.as_str(), "answer": "2xx", "us": times_json(times) }));
    top.insert("answers_from_due".to_owned(), from_due.collect());
    top.insert("caution".to_owned(), json!(phase.warning()));
    let limits = json!({ "p50": LATE_AT_MEDIAN.as_micros(), "p99": LATE_AT_P99.as_micros() });
    top.insert("lateness_limits_us".to_owned(), limits);
    let transactions = phase.transactions();
    let mut methods: Map<String, Value> =
        transactions.iter().map(|(verb, ends)| (verb.as_str().to_owned(), ends_json(ends))).collect();
    methods.insert("sum".to_owned(), ends_json(transactions.sum()));
    top.insert("transactions".to_owned(), Value::Object(methods));
    if let (Some(count), Some(is_conforming)) = (phase.users, phase.is_conforming()) {
        let sum = transactions.sum();
        let share = if sum.all == 0 { 0.0 } else { sum.share() };
        top.insert(
            "users".to_owned(),
            json!({ "count": count, "conforming": is_conforming, "share": share, "needed": CONFORMING }),
        );
    }
}

/// Returns remarks for people: events outside the accounts of calls that affect their meaning.
pub(crate) fn notes(phase: &PhaseReport) -> String {
    let mut text = String::new();
    let PhaseReport { service_drops, forgotten, .. } = *phase;
    // Writing to a String cannot fail.
    if service_drops > 0 {
        let accounts = match phase.role {
            CallRole::Callee => ", and no count above includes them",
            CallRole::Caller => "",
        };
        let _ = writeln!(
            text,
            "  {service_drops} messages were DROPPED because the queue of the emulated server was full{accounts}"
        );
    }
    if forgotten > 0 {
        let _ = writeln!(
            text,
            "  {forgotten} calls were REMOVED too early, because there were too many: their retransmissions counted as new calls"
        );
    }
    text
}

/// Returns the times from when requests were due, for people.
pub(crate) fn from_due(phase: &PhaseReport) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    for (verb, times) in phase.from_due() {
        let _ = writeln!(
            text,
            "  {:<8} from due {:>9}  mean {:>9.1?}  p50 {:>9.1?}  p99 {:>9.1?}  max {:>9.1?}",
            verb.as_str(),
            times.count(),
            times.mean(),
            times.quantile(0.5),
            times.quantile(0.99),
            times.max()
        );
    }
    if let Some(why) = phase.warning() {
        let _ = writeln!(text, "  CAUTION: {why}");
    }
    text
}

/// Returns outcomes for people: of scripts if there are several, and of users.
pub(crate) fn text(phase: &PhaseReport) -> String {
    let mut text = String::new();
    let of = |who| phase.scripts.iter().filter(move |script| script.who == who);
    let is_mixed = of(phase.role).count() > 1;
    // Writing to a String cannot fail.
    for script in of(phase.role).filter(|_| is_mixed) {
        let OutcomeCounts { sent, carried, lost, failed, unfinished, .. } = script.accounts;
        let sum: u64 = of(phase.role).map(|script| script.accounts.sent).sum();
        let _ = writeln!(
            text,
            "  {:<22} {sent:>9} ({:>6.2} %)  carried {carried}, lost {lost}, failed {failed}, unfinished {unfinished}",
            script.name,
            100.0 * share(sent, sum),
        );
    }
    let Some(users) = phase.users else { return text };
    let transactions = phase.transactions();
    for (verb, ends) in transactions.iter() {
        let _ = writeln!(
            text,
            "  {:<8} transactions {:>9}, {} failed, {} unanswered at the end ({} % succeeded)",
            verb.as_str(),
            ends.all,
            ends.failed(),
            ends.open,
            percent_of(ends.succeeded, ends.all)
        );
    }
    let sum = transactions.sum();
    let verdict = if phase.is_conforming() == Some(true) { "conforming" } else { "NOT conforming" };
    let _ = match sum.all {
        0 => writeln!(text, "  {users} users: {verdict}; no transaction was started"),
        all => writeln!(
            text,
            "  {users} users: {verdict}; {} % of {all} transactions succeeded, {:.2} % must",
            percent_of(sum.succeeded, all),
            100.0 * CONFORMING
        ),
    };
    let unfinished = phase.meter().began.unfinished;
    if unfinished > 0 {
        let _ = writeln!(text, "  {unfinished} calls were still in progress at the end and do not count as failures");
    }
    text
}

fn ends_json(ends: TransactionCounts) -> Value {
    json!({ "all": ends.all, "succeeded": ends.succeeded, "failed": ends.failed(), "unanswered": ends.open,
        "share": ends.share() })
}

const fn end_name(who: CallRole) -> &'static str {
    match who {
        CallRole::Caller => "caller",
        CallRole::Callee => "callee",
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn share(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { part as f64 / all as f64 }
}
