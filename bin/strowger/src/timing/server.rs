//! `strowger ctl timing`: the times that a running server has measured of its own packets.

use std::io::{self, Write as _};
use std::ops::ControlFlow;
use std::path::Path;

use clap::Args;
use serde_json::json;
use strowger_control::config::Span;
use strowger_control::protocol::{TimingRequest, TimingUpdate};
use strowger_control::socket;
use strowger_timing::TimingReport;

use super::live::LiveView;
use super::output::PictureArguments;
use super::text::text;
use super::timeline::{TimePoint, Timeline};
use crate::failure::Failure;
use crate::table::print_json;

/// Interval between updates of the live view and points of the plots, ms.
const INTERVAL_MS: u64 = 1_000;

/// Arguments of `strowger ctl timing`.
#[derive(Debug, Args)]
pub(crate) struct ServerTimingArguments {
    /// Time for which packets are measured
    #[arg(long, value_name = "TIME", default_value = "5s", conflicts_with_all = ["since_start", "watch"])]
    duration: Span,
    /// Includes all packets since the server started
    #[arg(long)]
    since_start: bool,
    /// Updates the table every second, until Ctrl-C
    #[arg(long, conflicts_with_all = ["html", "svg"])]
    watch: bool,
    #[command(flatten)]
    pictures: PictureArguments,
}

/// Prints the times of the server whose control socket is at `path`.
pub(crate) fn run(path: &Path, arguments: &ServerTimingArguments, as_json: bool) -> Result<(), Failure> {
    let ServerTimingArguments { duration, since_start, watch, pictures } = arguments;
    let length = u64::try_from(duration.0.as_millis()).unwrap_or(u64::MAX);
    let for_ms = if *since_start { 0 } else { length };
    let request = TimingRequest {
        for_ms: (!watch).then_some(for_ms),
        every_ms: (*watch || for_ms > INTERVAL_MS).then_some(INTERVAL_MS),
        since_start: *since_start,
    };
    let mut display = Display::new(as_json, *watch);
    let mut shown = Ok(());
    let on_update = |update| {
        shown = display.show(update);
        if shown.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    socket::timing(path, request, on_update).map_err(Failure::No)?;
    shown?;
    let Display { last, timeline, .. } = display;
    if as_json {
        print_json(&json!(last))?;
    } else {
        write!(io::stdout().lock(), "{}", text(&last))?;
    }
    pictures.write(&last, &timeline)
}

/// Shows updates as they come, and keeps the last one.
struct Display {
    as_json: bool,
    is_watching: bool,
    view: LiveView,
    last: TimingReport,
    timeline: Timeline,
}

impl Display {
    fn new(as_json: bool, is_watching: bool) -> Self {
        let (view, timeline) = (LiveView::on_standard_error(), Timeline::default());
        Self { as_json, is_watching, view, last: TimingReport::default(), timeline }
    }

    fn show(&mut self, TimingUpdate { report, is_last }: TimingUpdate) -> io::Result<()> {
        let point = TimePoint::between(&self.last, &report);
        if is_last {
            self.view.clear()?;
        } else if !self.as_json {
            self.view.show(&report, &point)?;
        } else if self.is_watching {
            let mut out = io::stdout().lock();
            writeln!(out, "{}", json!(report))?;
            out.flush()?;
        }
        self.timeline.push(point);
        self.last = report;
        Ok(())
    }
}
