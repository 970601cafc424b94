//! A log with one line a packet, as the traces of the thesis.
//!
//! The file is a table of comma-separated values. Lines that begin with `#` describe the measurement: `# name: value`.
//! Those above the table are known at the start ([`LogHeader`]), those below it at the end ([`LogFooter`]). Times are
//! ns; moments are of the monotonic clock. A value that was not measured is empty.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::part::Part;
use crate::record::PacketRecord;

/// The first line of a log.
pub const LOG_TITLE: &str = "# strowger packet log 1";

/// Columns before those of the parts.
const COLUMNS: [&str; 11] = [
    "arrived_ns",
    "received_ns",
    "ready_ns",
    "thread",
    "port",
    "transport",
    "length_bytes",
    "message",
    "batch",
    "sent",
    "queue",
];

/// What is known of a measurement when it begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogHeader {
    /// The program: name, processes and ports.
    pub program: String,
    /// Kernel and architecture.
    pub kernel: String,
    /// Beginning of the measurement in UTC, RFC 3339.
    pub date: String,
    /// Load averages of the machine over 1, 5 and 15 minutes.
    pub load: String,
    /// Number of processors of the machine.
    pub processors: usize,
}

/// What is known of a measurement when it has ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogFooter {
    /// Length of the measurement, s.
    pub seconds: f64,
    /// Processors in use by the program.
    pub cpu: Option<f64>,
    /// Number of events that the probe lost; some packets are missing or incomplete then.
    pub lost_events: u64,
    /// Number of packets dropped, by cause.
    pub drops: BTreeMap<String, u64>,
}

impl LogHeader {
    /// Returns the lines above the table and its first line.
    #[must_use]
    pub fn text(&self) -> String {
        let parts = Part::ALL.into_iter().map(|part| format!("{}_ns", part.key()));
        let columns: Vec<String> = COLUMNS.into_iter().map(str::to_owned).chain(parts).collect();
        format!(
            "{LOG_TITLE}\n# program: {}\n# kernel: {}\n# date: {}\n# load: {}\n# processors: {}\n{}\n",
            one_line(&self.program),
            one_line(&self.kernel),
            self.date,
            self.load.trim(),
            self.processors,
            columns.join(",")
        )
    }
}

impl LogFooter {
    /// Returns the lines below the table.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("# seconds: {:.6}\n", self.seconds);
        // Writing to a String cannot fail.
        if let Some(cpu) = self.cpu {
            let _ = writeln!(text, "# cpu: {cpu:.4}");
        }
        let _ = writeln!(text, "# lost events: {}", self.lost_events);
        let _ = writeln!(text, "# drops: {}", self.drops.values().sum::<u64>());
        for (cause, count) in &self.drops {
            let _ = writeln!(text, "# drops by {}: {count}", one_line(cause).replace(':', " "));
        }
        text
    }
}

impl PacketRecord {
    /// Appends the record's line of a log.
    pub fn append_to_log(&self, text: &mut String) {
        let transport = if self.is_stream { "tcp" } else { "udp" };
        let number = |text: &mut String, value: Option<u64>| {
            if let Some(value) = value {
                let _ = write!(text, "{value}");
            }
            text.push(',');
        };
        number(text, self.arrived_ns);
        number(text, Some(self.received_ns));
        number(text, self.ready_ns);
        let _ = write!(
            text,
            "{},{},{transport},{},{},{},{},",
            self.thread, self.port, self.length, self.message, self.batch, self.sent
        );
        number(text, self.queue.map(u64::from));
        for part in Part::ALL {
            number(text, self.times.get(part));
        }
        text.pop();
        text.push('\n');
    }
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message_type::MessageType;
    use crate::part::PartTimes;

    #[test]
    fn a_log_has_a_line_for_each_packet() {
        let header = LogHeader { program: "echo\n7".to_owned(), processors: 2, ..LogHeader::default() };
        let mut text = header.text();
        let mut times = PartTimes::default();
        times.set(Part::Stack, 900);
        times.set(Part::Receive, 5_000);
        let record = PacketRecord {
            arrived_ns: Some(1_000),
            received_ns: 6_000,
            thread: 7,
            port: 5060,
            is_stream: false,
            length: 400,
            message: MessageType::of(b"BYE sip:a@b SIP/2.0\r\n\r\n"),
            times,
            batch: 1,
            sent: 2,
            ready_ns: None,
            queue: Some(3),
        };
        record.append_to_log(&mut text);
        let drops = [("a: b".to_owned(), 2), ("c".to_owned(), 3)].into();
        text.push_str(&LogFooter { seconds: 1.5, cpu: Some(0.25), lost_events: 0, drops }.text());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..2], [LOG_TITLE, "# program: echo 7"]);
        assert_eq!(lines[7], "1000,6000,,7,5060,udp,400,BYE,1,2,3,900,,,,5000,,,,,,,");
        assert_eq!(lines[6].split(',').count(), lines[7].split(',').count());
        assert_eq!(lines[8..11], ["# seconds: 1.500000", "# cpu: 0.2500", "# lost events: 0"]);
        assert_eq!(lines[11..], ["# drops: 5", "# drops by a  b: 2", "# drops by c: 3"]);
    }
}
