//! Waiting and service times of messages at a single-threaded server, from the reports of the timed shell twenty
//! times a second.

use serde::Deserialize;

use crate::register::rounds::median;

/// Windows left out after the first and before the last one with load: the load builds up to its full rate.
const LEFT_OUT: (usize, usize) = (20, 2);

/// The server's counts up to a point in time.
#[derive(Debug, Deserialize)]
struct Line {
    at_ns: u64,
    messages: Vec<Sum>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
struct Sum {
    message: String,
    count: u64,
    wait_ns: u64,
    service_ns: u64,
    service_ns2: f64,
}

/// Messages of one type.
#[derive(Clone, Debug, PartialEq)]
pub struct TypeTiming {
    /// Name of the type.
    pub message: String,
    /// Number of messages in all windows.
    pub count: u64,
    /// E\[X_i\] in µs: the median over windows.
    pub service_us: f64,
    /// Var\[X_i\]/E\[X_i\]²: the median over windows.
    pub scv: f64,
}

/// A server's own measurements in windows between two reports. Uses medians over windows, because one window in which
/// the whole machine paused would outweigh all others.
#[derive(Clone, Debug, PartialEq)]
pub struct Timing {
    /// Number of windows.
    pub windows: usize,
    /// λ: packets per second.
    pub packets_per_s: f64,
    /// W, in µs.
    pub wait_us: f64,
    /// Share of time that the thread was busy.
    pub busy: f64,
    /// Times per message type.
    pub types: Vec<TypeTiming>,
}

/// Measurements between two reports.
struct Window {
    seconds: f64,
    sums: Vec<Sum>,
}

impl Window {
    #[expect(clippy::cast_precision_loss, reason = "counts of a moment")]
    fn total(&self, of: fn(&Sum) -> u64) -> f64 {
        self.sums.iter().map(of).sum::<u64>() as f64
    }

    fn rate(&self) -> f64 {
        self.total(|sum| sum.count) / self.seconds
    }
}

/// Parses the server's reports.
///
/// # Errors
/// If there was no load, or not for long enough.
pub fn read(lines: &[String]) -> Result<Timing, String> {
    let lines: Vec<Line> = lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let mut windows: Vec<Window> = lines.windows(2).filter_map(|pair| between(pair.first()?, pair.get(1)?)).collect();
    let usual = median(windows.iter().map(Window::rate).filter(|rate| *rate > 0.0).collect());
    let is_on = |window: &Window| window.rate() > usual / 2.0;
    let ends = windows.iter().position(is_on).zip(windows.iter().rposition(is_on));
    let (first, last) = ends.ok_or("the server measured nothing")?;
    windows.truncate((last + 1).saturating_sub(LEFT_OUT.1));
    windows.drain(..(first + LEFT_OUT.0).min(windows.len()));
    windows.retain(|window| window.rate() > 0.0);
    if windows.is_empty() {
        return Err("the server measured too little".to_owned());
    }
    let of = |value: &dyn Fn(&Window) -> f64| median(windows.iter().map(value).collect());
    Ok(Timing {
        windows: windows.len(),
        packets_per_s: of(&Window::rate),
        wait_us: of(&|window| window.total(|sum| sum.wait_ns) / window.total(|sum| sum.count) / 1e3),
        busy: of(&|window| window.total(|sum| sum.service_ns) / 1e9 / window.seconds),
        types: types(&windows),
    })
}

#[expect(clippy::cast_precision_loss, reason = "counts of a run")]
fn types(windows: &[Window]) -> Vec<TypeTiming> {
    let Some(first) = windows.first() else { return Vec::new() };
    let row = |message: &String| {
        let own = || {
            windows.iter().flat_map(|window| &window.sums).filter(move |sum| sum.message == *message && sum.count > 0)
        };
        let mean = |sum: &Sum| sum.service_ns as f64 / sum.count as f64;
        let scv = |sum: &Sum| (sum.service_ns2 / sum.count as f64 / mean(sum).powi(2) - 1.0).max(0.0);
        TypeTiming {
            message: message.clone(),
            count: own().map(|sum| sum.count).sum(),
            service_us: median(own().map(mean).collect()) / 1e3,
            scv: median(own().map(scv).collect()),
        }
    };
    let named = first.sums.iter().filter(|sum| sum.count > 0).map(|sum| &sum.message);
    named.map(row).collect()
}

/// Returns the difference between two reports.
#[expect(clippy::cast_precision_loss, reason = "a time of milliseconds")]
fn between(before: &Line, after: &Line) -> Option<Window> {
    let seconds = after.at_ns.checked_sub(before.at_ns)? as f64 / 1e9;
    let sums = after.messages.iter().map(|sum| {
        let none = Sum::default();
        let old = before.messages.iter().find(|old| old.message == sum.message).unwrap_or(&none);
        Sum {
            message: sum.message.clone(),
            count: sum.count - old.count,
            wait_ns: sum.wait_ns - old.wait_ns,
            service_ns: sum.service_ns - old.service_ns,
            service_ns2: sum.service_ns2 - old.service_ns2,
        }
    });
    (seconds > 0.0).then(|| Window { seconds, sums: sums.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(window: u64, count: u64) -> String {
        // Each INVITE waits 1 µs and takes 20 µs or 40 µs alternately; each is followed by an ACK that waits 3 µs and
        // takes 10 µs.
        format!(
            "{{\"at_ns\":{},\"messages\":[{{\"message\":\"INVITE\",\"count\":{count},\"wait_ns\":{},\"service_ns\":{},\
             \"service_ns2\":{}}},{{\"message\":\"ACK\",\"count\":{count},\"wait_ns\":{},\"service_ns\":{},\"service_ns2\":{}}}]}}",
            window * 50_000_000,
            count * 1_000,
            count * 30_000,
            count * 1_000_000_000,
            count * 3_000,
            count * 10_000,
            count * 100_000_000,
        )
    }

    #[test]
    fn windows_under_load_give_waits_and_moments() {
        // No load, then 40 windows of load that builds up in the first, then no load.
        let counts = [0, 0, 0].into_iter().chain((0..40).map(|window| 60 + 100 * window)).chain([3_960, 3_960, 3_960]);
        let mut lines: Vec<String> = (0_u64..).zip(counts).map(|(window, count)| line(window, count)).collect();
        lines.insert(3, "something else".to_owned());
        let found = read(&lines).expect("windows");
        assert_eq!((found.windows, found.packets_per_s, found.wait_us), (18, 4_000.0, 2.0));
        assert!((found.busy - 0.08).abs() < 1e-9, "{found:?}");
        let invite = &found.types[0];
        assert_eq!((invite.message.as_str(), invite.count, invite.service_us), ("INVITE", 1_800, 30.0));
        assert!((invite.scv - 1.0 / 9.0).abs() < 1e-9, "{found:?}");
        assert_eq!((found.types[1].service_us, found.types[1].scv), (10.0, 0.0));
        assert!(read(&lines[..2]).is_err());
    }
}
