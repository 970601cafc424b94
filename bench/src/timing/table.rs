//! The tables, as Markdown.

use std::fmt::Write as _;

use serde_json::Value;
use strowger_timing::{MessageReport, Part};

use super::figures::{mean_us, row};
use super::loaded::ECHO_WORK_US;
use super::program::Program;
use super::results::Results;
use super::thesis;
use crate::models::describe::{cell, drops_table, error, one_percent, room, rows, verdict};
use crate::proxy::figures::middle;

/// Parts of the thesis, in the order of the tables.
const PARTS: [Part; 5] = [Part::Stack, Part::SocketQueue, Part::Copy, Part::Application, Part::Send];

/// Returns the tables of the parts that were measured. `drops` is the validation of the drops.
#[must_use]
pub fn all(results: &Results, drops: Option<&Value>) -> String {
    let mut text = String::new();
    if !results.injections.is_empty() {
        text.push_str(&injections(results));
    }
    if !results.agreements.is_empty() {
        text.push_str(&agreements(results));
    }
    if !results.overheads.is_empty() {
        text.push_str(&overheads(results));
    }
    if !results.baselines.is_empty() {
        text.push_str(&baselines(results));
    }
    if !results.loaded.is_empty() {
        text.push_str(&loaded(results));
    }
    if !results.processes.is_empty() || drops.is_some() {
        text.push_str(&processes(results, drops));
    }
    text
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.filter(|value| value.is_finite()).map_or_else(|| "–".to_owned(), |value| format!("{value:.digits$}"))
}

fn mean(of: &MessageReport, part: Part) -> String {
    number(mean_us(of, part), 2)
}

const fn yes(holds: bool) -> &'static str {
    if holds { "yes" } else { "**no**" }
}

fn injections(results: &Results) -> String {
    let mut text = String::from(
        "## Injected delays\n\nThe echo program never sleeps here. It waits before it receives a packet (a part of \
         K_sockq) or before it sends one (T_app), or the device lets packets leave at a limited rate (`tbf`), so that \
         the second of two packets waits (K_snd). Stamps are those of the kernel on arrival and of the echo program \
         before and after its calls: for K_sockq they include K_stack, and so does the probe's figure here. K_stack \
         itself cannot be delayed on this kernel: it has neither `netem` nor a queue to user space.\n\n\
         | delay | injected µs | by stamps µs | by the probe µs | error µs | error % | packets stamped | probed | within 5 % |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---|\n",
    );
    for one in &results.injections {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| {} | {:.0} | {:.2} | {:.2} | {:+.2} | {:+.1} | {} | {} | {} |",
            one.stage,
            one.injected_us,
            one.stamped_us,
            one.probed_us,
            one.error_us(),
            one.error_percent(),
            one.packets.0,
            one.packets.1,
            yes(one.error_percent().abs() <= 5.0),
        );
    }
    text.push('\n');
    text
}

fn agreements(results: &Results) -> String {
    let mut text = String::from(
        "## The server's own stamps\n\nThe probe and `strowger ctl timing` at the same time, over all message types. \
         Loads are shares of the rate \
         at which it would be fully busy if a packet always took as long as at a moderate load.\n\n\
         | load % | calls/s | part | the server's mean µs | the probe's | error µs | error % | the server's median µs | the probe's | within 5 % or 1 µs |\n\
         |---:|---:|---|---:|---:|---:|---:|---:|---:|---|\n",
    );
    for one in &results.agreements {
        for compared in one.compared() {
            let _ = writeln!(
                text,
                "| {:.0} | {:.0} | {} | {:.2} | {:.2} | {:+.2} | {:+.1} | {:.2} | {:.2} | {} |",
                100.0 * one.load,
                one.calls_per_s,
                compared.part.name(),
                compared.own.0,
                compared.probed.0,
                compared.error_us(),
                compared.error_percent(),
                compared.own.1,
                compared.probed.1,
                yes(compared.holds()),
            );
        }
    }
    text.push('\n');
    text
}

fn overheads(results: &Results) -> String {
    let mut text = String::from(
        "## What the probe costs\n\nPackets per second at saturation, in alternating runs; the probe itself runs on the \
         generator's core.\n\n\
         | program | packets/s without | with | cost % | processors of the probe | packets seen % |\n\
         |---|---:|---:|---:|---:|---:|\n",
    );
    for one in &results.overheads {
        let (without, with) = one.medians().unzip();
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} |",
            one.program,
            number(without, 0),
            number(with, 0),
            number(one.percent(), 1),
            number(middle(one.own_cpu.clone()), 3),
            number(middle(one.seen.iter().map(|share| 100.0 * share).collect()), 1),
        );
    }
    text.push('\n');
    text
}

fn baselines(results: &Results) -> String {
    let mut text = String::from(
        "## Without load\n\nMeans at so few calls that packets do not meet, as in the thesis's table 4.3. An idle \
         program sleeps: K_sockq is then the time until it runs, of which *waking up* is the part after the kernel has \
         woken it.\n\n\
         | program | message | packets | K_stack µs | K_sockq µs | waking up µs | K_copy µs | T_sip µs | K_snd µs | thesis: K_stack | K_sockq | K_snd |\n\
         |---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for one in Program::ALL.iter().filter_map(|program| results.baseline(*program)) {
        for of in one.report.messages.iter().chain([&one.report.all]) {
            let all = (of.message == "all").then_some(&thesis::UNLOADED_ALL);
            let known = thesis::UNLOADED.iter().find(|row| row.message == of.message).or(all);
            let known = known.filter(|_| one.program != Program::Echo);
            let parts = [Part::Stack, Part::SocketQueue, Part::WakeUp, Part::Copy, Part::Application, Part::Send];
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} |",
                one.program,
                of.message,
                of.packets,
                parts.map(|part| mean(of, part)).join(" | "),
                number(known.map(|row| row.stack_us), 1),
                number(known.map(|row| row.socket_queue_us), 1),
                number(known.map(|row| row.send_us), 2),
            );
        }
    }
    let _ = write!(text, "\nThe thesis's K_copy is {} µs for all messages.\n\n", thesis::COPY_US);
    text
}

fn loaded(results: &Results) -> String {
    let mut text = String::from(
        "## Under load\n\nCalls arrive as a Poisson process, and each message is preceded by a random pause, so that \
         messages arrive independently. Loads are shares of the rate at which the program would be fully busy \
         if a packet always took as long as at a moderate load.\n\n",
    );
    for program in Program::ALL {
        if results.loaded(program).is_empty() {
            continue;
        }
        let _ = write!(text, "### {}\n\n{}", title(program), receive_table(results, program));
        if let Some(prediction) = results.prediction(program) {
            let _ = write!(
                text,
                "What `strowger plan fit` makes of the logs of some loads, and `strowger plan validate` of the others, \
                 which the fit has not seen:\n\n{}![{}](plots/timing-{}.svg)\n\n",
                predictions(&prediction.validation),
                title(program),
                program.file_name(),
            );
        }
    }
    text.push_str(&thesis_loaded());
    text
}

fn title(program: Program) -> String {
    match program {
        Program::Strowger => "Strowger, one worker".to_owned(),
        Program::Kamailio => "Kamailio, one process".to_owned(),
        Program::Echo => format!("Echo program with {ECHO_WORK_US} µs of work on a packet"),
    }
}

/// Returns K_rcv by message type and load, as table 4.1, and the other parts of all messages.
fn receive_table(results: &Results, program: Program) -> String {
    let runs = results.loaded(program);
    let line = |name: &str, cell: &dyn Fn(&super::loaded::LoadedRun) -> String| {
        let cells: Vec<String> = runs.iter().map(|run| cell(run)).collect();
        format!("| {name} | {} |\n", cells.join(" | "))
    };
    let mut text = line("load %", &|run| format!("{:.0}", 100.0 * run.load));
    let _ = writeln!(text, "|---|{}", "---:|".repeat(runs.len()));
    let per = if program == Program::Echo { "packets/s" } else { "calls/s" };
    text.push_str(&line(&format!("{per} offered"), &|run| {
        format!("{:.0}{}", run.rate, if run.is_late { " (generator late)" } else { "" })
    }));
    text.push_str(&line("λ, packets/s", &|run| format!("{:.0}", run.report.packets_per_s)));
    text.push_str(&line("CPU %", &|run| number(run.report.cpu.map(|cpu| 100.0 * cpu), 1)));
    text.push_str(&line("packets per receive call", &|run| format!("{:.2}", run.report.packets_per_receive)));
    let first = runs.first().map(|run| &run.report.messages).into_iter().flatten();
    let types: Vec<&str> = first.map(|of| of.message.as_str()).collect();
    for message in types.iter().filter(|_| types.len() > 1) {
        text.push_str(&line(&format!("K_rcv of {message}, µs"), &|run| {
            row(&run.report, message).map_or_else(|| "–".to_owned(), |of| mean(of, Part::Receive))
        }));
    }
    for part in [&[Part::Receive][..], &PARTS, &[Part::ReceiveBatch, Part::SendBatch]].concat() {
        if runs.iter().any(|run| mean_us(&run.report.all, part).is_some()) {
            text.push_str(&line(&format!("{}, µs", part.name()), &|run| mean(&run.report.all, part)));
        }
    }
    text.push('\n');
    text
}

fn predictions(validation: &Value) -> String {
    let mut text = String::from(
        "| λ, packets/s | α(λ) | E[X] predicted µs | measured | ρ predicted % | CPU % | W predicted µs | measured | error % | within 15 % or 5 µs |\n\
         |---:|---:|---:|---:|---:|---:|---:|---:|---:|---|\n",
    );
    for row in rows(validation, "rows") {
        let pair = |name: &str, scale: f64, digits: usize| {
            let of = &row[name];
            format!("{} | {}", cell(&of["predicted"], scale, digits), cell(&of["measured"], scale, digits))
        };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} |",
            cell(&row["rate_per_s"], 1.0, 0),
            cell(&row["alpha"], 1.0, 2),
            pair("service_s", 1e6, 2),
            pair("rho", 100.0, 1),
            pair("wait_s", 1e6, 2),
            error(&row["wait_s"]),
            verdict(&row["wait_holds"]),
        );
    }
    text.push('\n');
    text
}

fn thesis_loaded() -> String {
    let mut text = String::from(
        "### The thesis's tables 4.1 and 4.4\n\nOpenSIPS with one process on one core of 2009:\n\n\
         | calls/s | K_rcv µs | α(λ) | E[X] µs | ρ % | W predicted µs | measured |\n|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for one in thesis::LOADED {
        let _ = writeln!(
            text,
            "| {:.0} | {:.2} | {:.1} | {:.2} | {:.1} | {:.2} | {:.2} |",
            one.calls_per_s,
            one.receive_us,
            one.alpha,
            one.service_us,
            100.0 * one.rho,
            one.predicted_us,
            one.measured_us,
        );
    }
    text.push('\n');
    text
}

fn processes(results: &Results, drops: Option<&Value>) -> String {
    let mut text = String::from("## Kamailio's processes on one core\n\n");
    if let Some(first) = results.processes.first() {
        let _ = write!(
            text,
            "At {:.0} calls/s, means over all messages:\n\n\
             | c | K_rcv µs | K_stack µs | K_sockq µs | waking up µs | K_copy µs | T_sip µs | K_snd µs | CPU % |\n\
             |---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
            first.calls_per_s
        );
        let parts =
            [Part::Receive, Part::Stack, Part::SocketQueue, Part::WakeUp, Part::Copy, Part::Application, Part::Send];
        for one in &results.processes {
            let cpu = number(one.report.cpu.map(|cpu| 100.0 * cpu), 1);
            let means = parts.map(|part| mean(&one.report.all, part)).join(" | ");
            let _ = writeln!(text, "| {} | {means} | {cpu} |", one.count);
        }
        text.push('\n');
    }
    if let Some(drops) = drops {
        let _ = write!(
            text,
            "Drops beside M/M/c/K.{} Runs with almost no drops give E[X₁] and β(λ, c); the others are predicted. β is \
             the excess of a packet's time over that with one process.\n\n{}The rate at which 1 % is dropped:\n\n{}\
             ![What Kamailio's processes drop](plots/timing-processes.svg)\n\n",
            room(drops),
            drops_table(drops),
            one_percent(drops),
        );
    }
    text.push_str(
        "The thesis's tables 5.2 to 5.6, where its measured drops are nearest to 1 % (K = 200):\n\n\
         | c | calls/s | β | dropped, predicted % | measured |\n|---:|---:|---:|---:|---:|\n",
    );
    for one in thesis::THREADS {
        let _ = writeln!(
            text,
            "| {} | {:.0} | {:.3} | {:.2} | {:.2} |",
            one.count,
            one.calls_per_s,
            one.beta,
            100.0 * one.predicted,
            100.0 * one.measured
        );
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::results::tests::some;
    use super::*;

    #[test]
    fn each_part_has_its_table() {
        let drops =
            json!({ "rows": [{ "servers": 4, "queue": 204, "rate_per_s": 600.0, "beta": 1.25 }], "one_percent": [] });
        let text = all(&some(), Some(&drops));
        assert!(text.contains("| before receiving | 50 | 51.00 | 51.00 | +0.00 | +0.0 | 500 | 500 | yes |"), "{text}");
        assert!(text.contains("| 10 | 1000 | K_rcv | 19.50 | 19.60 | +0.10 | +0.5 |"), "{text}");
        assert!(text.contains("| Kamailio | 80000 | 76000 | 5.0 | 0.070 | 100.0 |"), "{text}");
        assert!(
            text.contains("| Kamailio | INVITE | 10 | 1.00 | 8.00 | – | 0.50 | 20.00 | 3.00 | 2.6 | 8.3 | 6.15 |"),
            "{text}"
        );
        assert!(text.contains("| echo | all | 20 | 1.00 | 8.00 | – | 0.50 | 20.00 | 3.00 | – | – | – |"), "{text}");
        assert!(text.contains("| load % | 10 | 50 | 90 |\n|---|---:|---:|---:|\n"), "{text}");
        assert!(text.contains("| K_rcv of INVITE, µs | 19.50 | 59.50 | 99.50 |"), "{text}");
        assert!(text.contains("| 500 | 1.50 | 20.00 | 21.00 | 50.0 | 52.0 | 20.00 | 22.00 | -9.1 | yes |"), "{text}");
        assert!(text.contains("| 4 | 39.50 |") && text.contains("| 4 | 204 | 600 | 1.250 |"), "{text}");
        assert!(text.contains("| 16 | 900 | 2.956 | 0.87 | 0.87 |"), "{text}");
    }

    #[test]
    fn what_was_not_measured_has_no_table() {
        assert_eq!(all(&Results::default(), None), "");
    }
}
