//! `tshark`, which tells what Wireshark reads in a packet capture.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::Program;

/// A message: time in seconds with nine decimals, source, destination, first line, Call-ID and CSeq.
pub type SeenMessage = [String; 6];

/// Returns the messages in the output of `ctl trace --json`. The last line may be incomplete and is left out then.
///
/// # Panics
/// If a line is no message.
#[must_use]
pub fn traced_messages(text: &str) -> Vec<SeenMessage> {
    let told = |line: &str| {
        let one: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let text = |key: &str| one[key].as_str().unwrap_or_else(|| panic!("{key}: {one}")).to_owned();
        let local = text("local").split_once(':').expect("a listener").1.to_owned();
        let (source, destination) = if one["sent"] == true { (local, text("peer")) } else { (text("peer"), local) };
        let ns = one["unix_ns"].as_u64().expect("a time");
        let time = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
        [time, source, destination, text("start"), text("call_id"), text("cseq")]
    };
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(told).collect()
}

/// A packet capture, read by `tshark`.
#[derive(Debug)]
pub struct Tshark<'a> {
    file: &'a Path,
    options: Vec<String>,
}

impl<'a> Tshark<'a> {
    /// Reads this capture.
    #[must_use]
    pub fn read(file: &'a Path) -> Self {
        Self { file, options: Vec::new() }
    }

    /// Adds an option, such as `-d udp.port==9060,hep`.
    #[must_use]
    pub fn option(mut self, name: &str, value: &str) -> Self {
        self.options.extend([name.to_owned(), value.to_owned()]);
        self
    }

    /// Returns these fields of each packet that the display filter lets pass; a field that a packet lacks is empty.
    ///
    /// # Panics
    /// If `tshark` does not understand the capture, the filter or a field.
    #[must_use]
    pub fn fields(&self, filter: &str, fields: &[&str]) -> Vec<Vec<String>> {
        let output = Command::new(Program::Tshark.path())
            // No settings of the user who runs the tests.
            .env("HOME", "/nonexistent")
            .arg("-n")
            .args(&self.options)
            .arg("-r")
            .arg(self.file)
            .args(["-Y", filter, "-T", "fields", "-E", "separator=/t", "-E", "occurrence=f"])
            .args(fields.iter().flat_map(|field| ["-e", *field]))
            .output()
            .expect("tshark starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "tshark: {errors}");
        let text = String::from_utf8_lossy(&output.stdout);
        text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
    }

    /// Returns the messages that `tshark` finds.
    ///
    /// # Panics
    /// If `tshark` does not understand the capture.
    #[must_use]
    pub fn messages(&self) -> Vec<SeenMessage> {
        let fields = [
            "frame.time_epoch",
            "ip.src",
            "ip.dst",
            "udp.srcport",
            "udp.dstport",
            "tcp.srcport",
            "tcp.dstport",
            "exported_pdu.src_port",
            "exported_pdu.dst_port",
            "sip.Request-Line",
            "sip.Status-Line",
            "sip.Call-ID",
            "sip.CSeq",
        ];
        let messages = self.fields("sip", &fields).into_iter().map(|row| {
            let row: [String; 13] = row.try_into().expect("a column for each field");
            let [time, source, destination, u1, u2, t1, t2, e1, e2, request, status, call_id, cseq] = row;
            let (from, to) = (format!("{source}:{u1}{t1}{e1}"), format!("{destination}:{u2}{t2}{e2}"));
            [time, from, to, request + &status, call_id, cseq]
        });
        messages.collect()
    }
}
