//! A run's report as one self-contained page: styles, plots and figures are in it, and it has no script.

use super::charts::{self, PlottedRun};
use super::data::{Confidence, RunReport};
use super::format::{bytes, date, float, grouped, micros, number, percent, seconds};
use super::page::{Page, Tone, pairs};
use super::plot::escape;
use super::tables;

/// Share of calls, in percent, that may be missing from a run that still counts as fair.
const FAIR_UP_TO: f64 = 1.0;

/// Calls that may be in progress after the last arrival without a remark, in seconds of arrivals.
const BEHIND_UP_TO: f64 = 1.0;

/// Returns the page.
#[must_use]
pub fn page(run: &RunReport) -> String {
    let mut page = Page::new("Load report", &run.workload, &facts(run));
    let (tone, sentence, more) = verdict(run);
    page.verdict(tone, &sentence, &more);
    page.tiles(&tiles(run));
    page.wide("Outcome of the calls", &tables::accounts(run));
    page.heading("Over time");
    let latency = match run.latency() {
        Some(row) => format!("Latency, {} → {}", row.method, row.answer),
        None => "Latency".to_owned(),
    };
    let all = [PlottedRun { run, name: "share of calls within this time", colour: 4 }];
    page.cards(vec![
        ("Phones registered".to_owned(), charts::registered(run)),
        ("Load, calls a second".to_owned(), charts::load(run)),
        (latency.clone(), charts::latency(run)),
        (format!("{latency}: percentiles"), charts::percentiles(&all)),
        (format!("{latency}: distribution"), charts::distribution(run)),
        ("CPUs used by the server".to_owned(), charts::processors(run)),
        ("Memory of the server".to_owned(), charts::memory(run)),
        ("Calls in progress".to_owned(), charts::going_on(run)),
        ("Delays of the generator".to_owned(), charts::lateness(run)),
    ]);
    page.heading("Figures");
    if let Some(answers) = tables::answers(run) {
        page.wide("From requests to answers", &answers);
    }
    if let Some(scripts) = tables::scripts(run) {
        page.wide("Calls by behaviour", &scripts);
    }
    let declared = || pairs(run.declared.iter().map(|(name, value)| (name.as_str(), value.clone())));
    page.cards(vec![
        ("Calls under load".to_owned(), run.calls.as_ref().map(tables::calls)),
        ("Phones after the power cut".to_owned(), run.recovery.as_ref().map(tables::recovery)),
        ("Metrics of RFC 6076".to_owned(), tables::metrics(&run.rfc6076)),
        ("Handshakes".to_owned(), tables::handshakes(run)),
        ("The server".to_owned(), run.server.as_ref().map(tables::server)),
        ("Messages".to_owned(), tables::messages(run)),
        ("The generator".to_owned(), Some(tables::generator(run))),
        ("Completed requests".to_owned(), tables::transactions(run)),
        ("Comparison with the recording".to_owned(), tables::record(run)),
        ("Declared parameters".to_owned(), (!run.declared.is_empty()).then(declared)),
    ]);
    if !run.samples.is_empty() {
        let lines = |sample: &String| sample.replace("\r\n", "\n");
        let samples: String =
            run.samples.iter().map(|sample| format!("<pre>{}</pre>", escape(lines(sample).trim_end()))).collect();
        page.wide(&format!("Unexpected messages: the first of {}", grouped(run.unexpected)), &samples);
    }
    page.end(
        "Rates are of the measured phase, after the warm-up. Times run from the first transmission of a request until the kernel \
         received its response, or, for \"from due\", from the scheduled arrival of the call; histograms are accurate to 1 %.",
    )
}

/// Returns the conditions of a run.
pub(super) fn facts(run: &RunReport) -> Vec<String> {
    let machine = &run.machine;
    let cores =
        if machine.processors > 0 { format!("{} × {}", machine.processors, machine.processor) } else { String::new() };
    vec![
        if run.to.is_empty() { String::new() } else { format!("to {}", run.to) },
        if run.arrivals.is_empty() { String::new() } else { format!("arrivals {}", run.arrivals) },
        seconds(run.elapsed_s),
        format!("seed {}", run.seed),
        if machine.ended_at_s > 0 { date(machine.ended_at_s) } else { String::new() },
        cores,
        if machine.kernel.is_empty() { String::new() } else { format!("Linux {}", machine.kernel) },
    ]
}

/// Returns the main sentence and remarks on it.
pub(super) fn verdict(run: &RunReport) -> (Tone, String, Vec<String>) {
    let missing = 100.0 * (1.0 - run.carried_share);
    let (mut tone, sentence) = match (run.sent, run.carried) {
        (0, _) => (Tone::Bad, "No call was made.".to_owned()),
        (sent, carried) if sent == carried && run.refused == 0 => {
            (Tone::Good, format!("All {} calls were carried, {} per second.", grouped(sent), number(run.carried_per_s)))
        }
        (sent, carried) => {
            let tone = if missing <= FAIR_UP_TO { Tone::Fair } else { Tone::Bad };
            let share = percent(100.0 * run.carried_share);
            (tone, format!("{} of {} calls were carried: {share} %.", grouped(carried), grouped(sent)))
        }
    };
    let mut more = Vec::new();
    if let Some(row) = run.latency() {
        more.push(format!(
            "Latency of {} → {}: median {}, p99 {}, maximum {}.",
            row.method,
            row.answer,
            micros(row.us.p50),
            micros(row.us.p99),
            micros(row.us.max)
        ));
    }
    if let Some(why) = &run.caution {
        tone = worse(tone);
        more.push(format!("Caution: {why}."));
    }
    if run.callee.service_drops > 0 {
        tone = worse(tone);
        let count = grouped(run.callee.service_drops);
        more.push(format!("{count} messages were dropped because the queue of the emulated server was full."));
    }
    if run.generator.forgotten > 0 {
        tone = worse(tone);
        let count = grouped(run.generator.forgotten);
        more.push(format!("{count} calls were removed too early: their retransmissions counted as new calls."));
    }
    let behind = charts::behind(run);
    if float(behind) > BEHIND_UP_TO * run.offered_per_s {
        more.push(format!("When the last call began, {} were in progress.", grouped(behind)));
    }
    if run.repeats_sent > run.sent / 100 {
        tone = worse(tone);
        more.push(format!("{} messages had to be retransmitted.", grouped(run.repeats_sent)));
    }
    if let Some(why) = &run.generator.bottleneck {
        tone = Tone::Bad;
        more.push(format!("The generator was the bottleneck, so these figures do not describe the server: {why}."));
    }
    if let Some(why) = &run.broken_off {
        tone = Tone::Bad;
        more.push(format!("The run was aborted: {why}."));
    } else if run.was_stopped {
        more.push("Stopped early: the figures cover the time until then.".to_owned());
    }
    if run.server.as_ref().is_some_and(|server| !server.successors.is_empty()) {
        more.push("Another process replaced the server’s during the run.".to_owned());
    }
    if run.server.as_ref().is_some_and(|server| server.is_gone) {
        tone = Tone::Bad;
        more.push("The server’s process ended before the run did.".to_owned());
    }
    (tone, sentence, more)
}

/// Returns a lower tone: good becomes fair.
fn worse(tone: Tone) -> Tone {
    if tone == Tone::Good { Tone::Fair } else { tone }
}

fn tiles(run: &RunReport) -> Vec<(&'static str, String, String)> {
    let plus_minus =
        run.confidence.get("carried_per_s").map(|confidence| within(confidence, run.carried_per_s)).unwrap_or_default();
    let mut lost = format!("{} lost, {} failed", grouped(run.lost), grouped(run.failed));
    if run.unfinished > 0 {
        lost.push_str(&format!(", {} unfinished", grouped(run.unfinished)));
    }
    let mut tiles = vec![
        ("offered", format!("{}/s", number(run.offered_per_s)), format!("{} calls", grouped(run.offered))),
        ("carried", format!("{}/s", number(run.carried_per_s)), plus_minus),
        ("carried of sent", format!("{} %", percent(100.0 * run.carried_share)), lost),
    ];
    if let Some(row) = run.latency() {
        tiles.push(("median latency", micros(row.us.p50), format!("{} → {}", row.method, row.answer)));
        tiles.push(("99th percentile", micros(row.us.p99), format!("longest {}", micros(row.us.max))));
    }
    if let Some(server) = &run.server {
        let busy = format!("{:.2} processors", server.processors);
        tiles.push(("server CPU a call", micros(server.cpu_us_per_call), busy));
        tiles.push(("server memory", bytes(float(server.peak_bytes)), server.name.clone()));
    }
    tiles
}

/// Returns the confidence interval, with its mean if that differs because calls were carried after the last arrival.
fn within(confidence: &Confidence, shown: f64) -> String {
    let Confidence { mean, half_width, level, .. } = *confidence;
    let hint = if confidence.is_correlated { ", short run" } else { "" };
    let is_other = (mean - shown).abs() > half_width;
    let mean = if is_other { format!("until the last began {} ", number(mean)) } else { String::new() };
    format!("{mean}± {} ({:.0} %{hint})", number(half_width), 100.0 * level)
}

#[cfg(test)]
mod tests {
    use quick_xml::Reader;
    use quick_xml::events::Event;

    use super::super::phase_data::example_run;
    use super::*;

    /// Returns the names of all elements; fails if they are not properly nested.
    fn elements(html: &str) -> Vec<String> {
        let mut reader = Reader::from_str(html);
        reader.config_mut().check_end_names = true;
        let (mut names, mut depth) = (Vec::new(), 0);
        loop {
            match reader.read_event().expect("well-formed") {
                Event::Start(tag) => {
                    depth += 1;
                    names.push(tag.name().as_ref().to_string());
                }
                Event::Empty(tag) => names.push(tag.name().as_ref().to_string()),
                Event::End(_) => depth -= 1,
                Event::Eof => break,
                _ => {}
            }
        }
        assert_eq!(depth, 0);
        names
    }

    #[test]
    fn the_page_is_well_formed_and_self_contained() {
        let html = page(&RunReport::from_json(&example_run(10, 20)).expect("a report"));
        let names = elements(&html);
        assert_eq!(names.iter().filter(|name| *name == "svg").count(), 8, "all plots");
        for wanted in ["script", "link", "img", "iframe", "object"] {
            assert!(!names.iter().any(|name| name == wanted), "{wanted}");
        }
        for outside in ["http:", "https:", "//", "url(", "@import", "src=", "href="] {
            assert!(!html.contains(outside), "{outside}");
        }
        assert!(html.contains("prefers-color-scheme: dark"));
    }

    #[test]
    fn two_runs_share_one_page() {
        let [a, b] = [20, 10].map(|millis| RunReport::from_json(&example_run(10, millis)).expect("a report"));
        let comparison = super::super::compare(&a, &b).named(&["<old>".to_owned(), "new".to_owned()]);
        let html = super::super::comparison_page(&a, &b, &comparison);
        let names = elements(&html);
        assert_eq!(names.iter().filter(|name| *name == "svg").count(), 6, "all plots");
        assert!(html.contains("&lt;old&gt;") && html.contains("class=\"good\">better") && !html.contains("NaN"));
        let empty = super::super::comparison_page(&RunReport::default(), &b, &comparison);
        assert!(elements(&empty).contains(&"table".to_owned()) && !empty.contains("NaN"));
    }

    #[test]
    fn the_page_shows_the_measurements() {
        let html = page(&RunReport::from_json(&example_run(10, 20)).expect("a report"));
        for wanted in [
            "proxy-200",
            "poisson at 10/s",
            "SER",
            "99.8",
            "refused with 503",
            "strowger (4711)",
            "0.30",
            "p99",
            "sigma",
        ] {
            assert!(html.contains(wanted), "{wanted}");
        }
        assert!(html.contains("SIP/2.0 200 &lt;b&gt;&amp;&quot;OK&quot;&lt;/b&gt;"), "samples are no markup");
        assert!(!html.contains("NaN") && !html.contains("inf"), "no number without a value");
    }

    #[test]
    fn mixes_transactions_and_records_have_tables() {
        let row = |end: &str, script: &str, sent: u64| serde_json::json!({ "end": end, "script": script, "sent": sent, "carried": sent });
        let mut report = example_run(10, 20);
        report["scripts"] =
            serde_json::json!([row("caller", "calls", 30), row("caller", "garbage", 10), row("callee", "callee", 40)]);
        report["transactions"] =
            serde_json::json!({ "BYE": { "all": 8, "succeeded": 7, "failed": 1, "share": 0.875 } });
        let differs = serde_json::json!([{ "method": "INVITE", "recorded": "200", "got": "486", "count": 3 }]);
        report["record"] = serde_json::json!({ "same": 77, "differs": differs });
        report["samples"] = serde_json::json!(["OPTIONS sip:x SIP/2.0\r\nCSeq: none\r\n\r\n"]);
        let html = page(&RunReport::from_json(&report).expect("a report"));
        elements(&html);
        for wanted in ["caller: garbage</td><td>25 %", "callee</td><td>100 %", "87.5 %", "INVITE: 200 → 486</td><td>3"]
        {
            assert!(html.contains(wanted), "{wanted}");
        }
        assert!(html.contains("<pre>OPTIONS sip:x SIP/2.0\nCSeq: none</pre>"));
    }

    #[test]
    fn flattering_results_get_a_warning() {
        let mut report = example_run(10, 20);
        let due = serde_json::json!({ "method": "INVITE", "answer": "2xx", "us": { "count": 600, "p99": 9e6 } });
        report["answers_from_due"] = serde_json::json!([due]);
        report["caution"] = "calls began 9s late".into();
        report["callee"] = serde_json::json!({ "service_drops": 221 });
        report["generator"]["forgotten"] = 12.into();
        report["generator"]["handed_over"] = 4_711.into();
        let html = page(&RunReport::from_json(&report).expect("a report"));
        elements(&html);
        for wanted in [
            "Caution: calls began 9s late.",
            "INVITE → 2xx, from due</td><td>600",
            "9 s",
            "221 messages were dropped",
            "12 calls were removed too early",
            "4\u{202f}711",
        ] {
            assert!(html.contains(wanted), "{wanted}");
        }
        assert!(html.contains("verdict fair") || html.contains("verdict bad"), "that is not wholly good");
    }

    #[test]
    fn an_empty_run_gives_a_page() {
        let html = page(&RunReport::default());
        assert!(elements(&html).contains(&"table".to_owned()));
        assert!(!html.contains("NaN"));
        let report = serde_json::json!({ "offered": 3, "carried": 0, "workload": "<x>", "was_stopped": true,
            "generator": { "bottleneck": "too <slow>" } });
        let html = page(&RunReport::from_json(&report).expect("a short one"));
        elements(&html);
        assert!(
            html.contains("Stopped early") && html.contains("too &lt;slow&gt;") && html.contains("<h1>&lt;x&gt;</h1>")
        );
    }
}
