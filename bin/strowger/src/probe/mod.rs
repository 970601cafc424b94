//! `strowger probe`: measures the packet times of any server on this machine.

mod arguments;
mod log;
mod measurement;
mod packets;
mod threads;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use strowger_timing::TimingReport;

pub(crate) use arguments::ProbeArguments;

use crate::failure::Failure;
use crate::files::{is_piped, ready, write};
use crate::table;
use crate::timing::{LiveView, TimePoint, Timeline, text};
use measurement::Measurement;

/// Interval at which packets are collected and queues are sampled.
const BEAT: Duration = Duration::from_millis(10);

pub(crate) fn run(arguments: &ProbeArguments) -> Result<(), Failure> {
    let pictures = &arguments.pictures;
    ready(&[arguments.json.as_deref(), pictures.html.as_deref(), pictures.svg.as_deref(), arguments.log.as_deref()])?;
    let is_stopped = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&is_stopped)).map_err(Failure::Output)?;
    }
    let mut measurement = Measurement::start(arguments)?;
    let (report, timeline) = observe(&mut measurement, arguments, &is_stopped)?;
    let threads = threads::text(&measurement.threads(), report.seconds, arguments.top);
    pictures.write(&report, &timeline)?;
    let is_json_piped = arguments.json.as_deref().is_some_and(is_piped);
    if let Some(file) = &arguments.json {
        write(file, &format!("{:#}\n", json!(report)))?;
    }
    if !is_json_piped {
        table::print_line(&format!("{}{threads}", text(&report)))?;
    }
    if report.all.packets == 0 {
        return Err(Failure::No(format!(
            "no packet arrived in {:.1} s; measure while there is traffic (for example `strowger load run`), or longer \
             (--duration)",
            report.seconds
        )));
    }
    Ok(())
}

/// Measures until the duration is over, a signal arrives, or the program ends.
fn observe(
    measurement: &mut Measurement,
    arguments: &ProbeArguments,
    is_stopped: &AtomicBool,
) -> Result<(TimingReport, Timeline), Failure> {
    let begun = Instant::now();
    let interval = arguments.interval.0.max(BEAT);
    let mut live = (!arguments.quiet).then(LiveView::on_standard_error);
    let (mut timeline, mut previous, mut next) = (Timeline::default(), TimingReport::default(), interval);
    loop {
        measurement.collect(BEAT)?;
        let elapsed = begun.elapsed();
        let is_last = elapsed >= arguments.duration.0 || is_stopped.load(Ordering::SeqCst) || measurement.is_over();
        if elapsed < next && !is_last {
            continue;
        }
        next += interval;
        let seconds = elapsed.as_secs_f64();
        let report = if is_last { measurement.finish(seconds)? } else { measurement.report(seconds) };
        let point = TimePoint::between(&previous, &report);
        if let Some(live) = &mut live {
            live.show(&report, &point)?;
        }
        // A short rest of an interval says little.
        if !is_last || point.seconds >= interval.as_secs_f64() / 2.0 {
            timeline.push(point);
        }
        previous = report;
        if is_last {
            if let Some(live) = &mut live {
                live.clear()?;
            }
            return Ok((previous, timeline));
        }
    }
}
