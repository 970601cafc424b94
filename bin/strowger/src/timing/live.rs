//! A table that is redrawn in place on a terminal; elsewhere a line for each interval.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};

use strowger_timing::{Part, TimingReport};

use super::text::{micros, rate, text};
use super::timeline::TimePoint;

/// Shows reports while they grow. On a terminal the table is redrawn; elsewhere each interval is one line.
#[derive(Debug)]
pub(crate) struct LiveView {
    is_terminal: bool,
    /// Whether something was drawn on the terminal.
    is_drawn: bool,
}

impl LiveView {
    /// Creates a view on standard error, so that standard output stays free for the result.
    pub(crate) fn on_standard_error() -> Self {
        Self { is_terminal: io::stderr().is_terminal(), is_drawn: false }
    }

    /// Shows the report so far, and what the last interval added.
    pub(crate) fn show(&mut self, report: &TimingReport, last: &TimePoint) -> io::Result<()> {
        let mut out = io::stderr().lock();
        let line = line(last);
        if !self.is_terminal {
            return writeln!(out, "{line}");
        }
        self.is_drawn = true;
        let size = rustix::termios::tcgetwinsize(io::stderr());
        let (rows, width) = size.map_or((24, 80), |size| (usize::from(size.ws_row), usize::from(size.ws_col)));
        // From the top left corner; each line and what is below the last one is cleared.
        let mut screen = "\x1b[H".to_owned();
        for row in std::iter::once(line.as_str()).chain(text(report).lines()).take(rows.saturating_sub(1)) {
            // Writing to a String cannot fail.
            let _ = write!(screen, "{}\x1b[K\r\n", row.chars().take(width).collect::<String>());
        }
        screen.push_str("\x1b[J");
        out.write_all(screen.as_bytes())?;
        out.flush()
    }

    /// Removes the table, so that a final one can be printed.
    pub(crate) fn clear(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.is_drawn) {
            let mut out = io::stderr().lock();
            out.write_all(b"\x1b[H\x1b[J")?;
            out.flush()?;
        }
        Ok(())
    }
}

/// Formats an interval as one line.
fn line(point: &TimePoint) -> String {
    let mut text = format!("{:6.1} s  {:>8} packets/s", point.at_s, rate(point.packets_per_s));
    for part in [Part::Receive, Part::SocketQueue, Part::Application, Part::Send] {
        if let Some(mean) = point.mean_us(part) {
            // Writing to a String cannot fail.
            let _ = write!(text, "  {} {} µs", part.name(), micros(mean));
        }
    }
    if let Some(queue) = point.queue {
        let _ = write!(text, "  queue {}", micros(queue));
    }
    if let Some(cpu) = point.cpu {
        let _ = write!(text, "  processors {cpu:.2}");
    }
    if point.drops > 0 {
        let _ = write!(text, "  drops {}", point.drops);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_one_line() {
        let point = TimePoint {
            at_s: 3.0,
            packets_per_s: 5_999.6,
            means_us: vec![(Part::SocketQueue, 12.34), (Part::Application, 150.0)],
            cpu: Some(0.456),
            drops: 3,
            ..TimePoint::default()
        };
        assert_eq!(
            line(&point),
            "   3.0 s     6,000 packets/s  K_sockq 12.3 µs  T_sip 150 µs  processors 0.46  drops 3"
        );
    }
}
