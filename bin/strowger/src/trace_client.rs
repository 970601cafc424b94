//! `strowger ctl trace`: shows a trace, or writes it to a packet capture.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde_json::json;
use strowger_control::ladder::Ladder;
use strowger_control::protocol::{TraceEvent, TraceFilter, TraceRequest, TracedMessage};
use strowger_control::socket;
use strowger_foundation::{Transport, base64url};
use strowger_telemetry::{CapturedMessage, PcapngWriter};

use crate::cli::ctl::TraceArguments;
use crate::failure::Failure;
use crate::text::count;

/// Width of a ladder in columns.
const WIDTH: usize = 100;

/// Prints a trace as its events arrive.
pub(crate) fn follow(path: &Path, arguments: &TraceArguments, as_json: bool) -> Result<(), Failure> {
    let TraceArguments { what, time, count, messages, pcap } = arguments;
    let user = what.user.clone().map(TraceFilter::User);
    let call_id = what.call_id.clone().map(TraceFilter::CallId);
    let Some(filter) = user.or(call_id).or(what.ip.map(TraceFilter::Ip)) else {
        return Err(Failure::Usage("name a user, a Call-ID or an address".to_owned()));
    };
    let for_ms = time.map(|time| u64::try_from(time.0.as_millis()).unwrap_or(u64::MAX));
    let request = TraceRequest { filter, for_ms, count: *count, messages: *messages, bytes: pcap.is_some() };
    let writes_to_stdout = pcap.as_deref().is_some_and(is_stdout);
    if writes_to_stdout && as_json {
        let why = "--pcap - and --json would both write to standard output: name a file for the capture";
        return Err(Failure::Usage(why.to_owned()));
    }
    let mut capture = pcap.as_deref().map(Capture::create).transpose()?;
    let mut ladder = Ladder::new(WIDTH);
    let mut printed = Ok(());
    let ended = socket::trace(path, request, |mut event| {
        if event == TraceEvent::Started {
            eprintln!("strowger: waiting for messages; Ctrl-C ends the trace");
        }
        printed = capture.as_mut().map_or(Ok(()), |capture| capture.add(&event)).and_then(|()| {
            if let TraceEvent::Message(message) = &mut event {
                message.bytes = None;
            }
            match (writes_to_stdout, as_json) {
                (true, _) => Ok(()),
                (false, true) => Ok(print_event(&event)?),
                (false, false) => Ok(print_rung(&mut ladder, &event)?),
            }
        });
        if printed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    printed?;
    if let Some(Capture { name: Some(name), messages, .. }) = capture {
        eprintln!("strowger: {} written to {name}", self::count(messages, "message"));
    }
    ended.map_err(Failure::No)
}

/// A packet capture being written.
struct Capture {
    /// The file; none for standard output.
    name: Option<String>,
    writer: PcapngWriter<Box<dyn Write>>,
    messages: u64,
}

/// Whether a capture goes to standard output.
fn is_stdout(file: &Path) -> bool {
    file == Path::new("-")
}

impl Capture {
    fn create(file: &Path) -> Result<Self, Failure> {
        let name = (!is_stdout(file)).then(|| file.display().to_string());
        let open = || -> io::Result<PcapngWriter<Box<dyn Write>>> {
            let out: Box<dyn Write> = if is_stdout(file) { Box::new(io::stdout()) } else { Box::new(private(file)?) };
            PcapngWriter::new(out, concat!("strowger ", env!("CARGO_PKG_VERSION")))
        };
        match open() {
            Ok(writer) => Ok(Self { name, writer, messages: 0 }),
            Err(error) => Err(failed(name.as_deref(), error)),
        }
    }

    fn add(&mut self, event: &TraceEvent) -> Result<(), Failure> {
        match event {
            TraceEvent::Message(message) => {
                let bytes = message.bytes.as_deref().and_then(decoded);
                let captured = bytes.as_deref().and_then(|bytes| captured(message, bytes));
                let captured = captured.ok_or_else(|| {
                    Failure::No("the server does not send the bytes of messages; upgrade and restart it".to_owned())
                })?;
                self.messages += 1;
                self.writer.write(&captured).map_err(|error| failed(self.name.as_deref(), error))
            }
            TraceEvent::Lost(count) => {
                self.writer.lost(*count);
                Ok(())
            }
            TraceEvent::Started | TraceEvent::Ended => Ok(()),
        }
    }
}

fn failed(name: Option<&str>, error: io::Error) -> Failure {
    match name {
        Some(name) => {
            Failure::No(format!("the capture cannot be written to {name}: {error}; choose another file (--pcap)"))
        }
        // The program behind the pipe may have ended.
        None => Failure::Output(error),
    }
}

/// Creates or empties a file that only this user can read, because it has the contents of messages.
fn private(file: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(file)
}

fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = vec![0; base64url::decoded_len(text.len())];
    base64url::decode(text.as_bytes(), &mut bytes).map(|()| bytes)
}

fn captured<'a>(message: &TracedMessage, bytes: &'a [u8]) -> Option<CapturedMessage<'a>> {
    // The listener is written as udp:192.0.2.1:5060.
    let local: SocketAddr = message.local.split_once(':')?.1.parse().ok()?;
    Some(CapturedMessage {
        unix_ns: message.unix_ns,
        is_sent: message.sent,
        transport: Transport::from_token(message.transport.as_bytes())?,
        local,
        peer: message.peer,
        bytes,
        cut: message.cut,
    })
}

/// Prints one line of JSON for each message or loss.
fn print_event(event: &TraceEvent) -> io::Result<()> {
    let line = match event {
        TraceEvent::Message(message) => json!(message),
        TraceEvent::Lost(count) => json!({ "lost": count }),
        TraceEvent::Started | TraceEvent::Ended => return Ok(()),
    };
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

fn print_rung(ladder: &mut Ladder, event: &TraceEvent) -> io::Result<()> {
    let text = match event {
        TraceEvent::Message(message) => ladder.message(message),
        TraceEvent::Lost(count) => ladder.lost(*count),
        TraceEvent::Started | TraceEvent::Ended => return Ok(()),
    };
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
