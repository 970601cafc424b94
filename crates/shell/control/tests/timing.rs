//! Server and client of a measurement over the control socket.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use strowger_control::protocol::{Request, Response, TimingRequest, TimingUpdate};
use strowger_control::socket::{ControlSocket, Handler, TimingSource, timing};
use strowger_timing::{MessageType, Part, PartTimes, TimingHistograms, TimingReport};

/// A server in which each report has one packet more.
struct Fake {
    ended: Sender<()>,
    is_off: bool,
}

struct Source {
    histograms: TimingHistograms,
    ended: Sender<()>,
}

impl Handler for Fake {
    fn handle(&self, _: Request) -> Response {
        Response::Followed
    }

    fn timing(&self, _: &TimingRequest) -> Result<Box<dyn TimingSource>, String> {
        if self.is_off {
            return Err("timing is off".to_owned());
        }
        Ok(Box::new(Source { histograms: TimingHistograms::default(), ended: self.ended.clone() }))
    }
}

impl TimingSource for Source {
    fn report(&mut self) -> Result<TimingReport, String> {
        let mut times = PartTimes::default();
        times.set(Part::Receive, 1_000);
        self.histograms.record(MessageType::Other, &times);
        let (messages, all) = self.histograms.report();
        Ok(TimingReport { messages, all, drops: BTreeMap::new(), ..TimingReport::default() })
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.ended.send(()).expect("the test listens");
    }
}

fn open(folder: &Path, is_off: bool) -> (ControlSocket, PathBuf, Receiver<()>) {
    let path = folder.join("control.sock");
    let (ended, heard) = channel();
    let socket = ControlSocket::open(&path, Arc::new(Fake { ended, is_off })).expect("free");
    (socket, path, heard)
}

fn collect(path: &Path, request: TimingRequest, at_most: usize) -> Result<Vec<TimingUpdate>, String> {
    let mut updates = Vec::new();
    timing(path, request, |update| {
        updates.push(update);
        if updates.len() < at_most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(updates)
}

#[test]
fn a_period_ends_with_one_report_that_has_the_histograms() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_socket, path, heard) = open(folder.path(), false);
    let begun = Instant::now();
    let request = TimingRequest { for_ms: Some(350), every_ms: Some(100), ..TimingRequest::default() };
    let updates = collect(&path, request, usize::MAX).expect("updates");
    assert!(begun.elapsed() >= Duration::from_millis(350));
    let (last, before) = updates.split_last().expect("one at least");
    assert!(last.is_last && before.iter().all(|update| !update.is_last));
    assert_eq!((before.len(), last.report.all.packets), (3, 4));
    let has_histograms = |update: &TimingUpdate| !update.report.all.parts["k_rcv"].histogram.is_empty();
    assert!(has_histograms(last) && !before.iter().any(has_histograms));
    heard.recv().expect("the measurement was dropped");
}

#[test]
fn without_a_period_it_goes_on_until_the_client_leaves() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_socket, path, heard) = open(folder.path(), false);
    let updates =
        collect(&path, TimingRequest { every_ms: Some(100), ..TimingRequest::default() }, 3).expect("updates");
    assert_eq!(updates.len(), 3);
    heard.recv_timeout(Duration::from_secs(10)).expect("the server notices");
}

#[test]
fn a_client_that_waits_for_the_end_only_is_missed_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_socket, path, heard) = open(folder.path(), false);
    let stream = std::os::unix::net::UnixStream::connect(&path).expect("it listens");
    std::io::Write::write_all(&mut &stream, b"{\"command\":\"timing\",\"for_ms\":600000}\n").expect("sent");
    drop(stream);
    heard.recv_timeout(Duration::from_secs(10)).expect("the server notices");
}

#[test]
fn a_refusal_is_the_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_socket, path, _heard) = open(folder.path(), true);
    assert_eq!(collect(&path, TimingRequest::default(), 1), Err("timing is off".to_owned()));
}
