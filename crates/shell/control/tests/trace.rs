//! Server and client of a trace over the control socket.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use strowger_control::protocol::{Reloaded, Request, Response, TraceEvent, TraceFilter, TraceRequest, TracedMessage};
use strowger_control::socket::{ControlSocket, Handler, TraceSource, ask, trace};

/// Sends the same messages to each trace, then nothing.
struct Fake {
    refuses: bool,
    ended: Mutex<Sender<()>>,
}

struct Source {
    events: VecDeque<TraceEvent>,
    ended: Sender<()>,
}

impl Handler for Fake {
    fn handle(&self, _: Request) -> Response {
        Response::Reloaded(Reloaded { result: "as ever".to_owned(), changes: Vec::new() })
    }

    fn trace(&self, request: &TraceRequest) -> Result<Box<dyn TraceSource>, String> {
        if self.refuses {
            return Err("4 traces run already".to_owned());
        }
        let TraceFilter::CallId(call_id) = &request.filter else { return Err("another filter".to_owned()) };
        let mut events: VecDeque<_> =
            (0..5).map(|number| TraceEvent::Message(Box::new(message(call_id, number)))).collect();
        events.insert(2, TraceEvent::Lost(3));
        Ok(Box::new(Source { events, ended: self.ended.lock().expect("unbroken").clone() }))
    }
}

impl TraceSource for Source {
    fn poll(&mut self, wait: Duration) -> Option<TraceEvent> {
        let event = self.events.pop_front();
        if event.is_none() {
            std::thread::park_timeout(wait);
        }
        event
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.ended.send(()).expect("the test listens");
    }
}

fn message(call_id: &str, number: u64) -> TracedMessage {
    TracedMessage {
        time: "2026-01-02T03:04:05.678Z".to_owned(),
        unix_ns: 1_767_323_045_678_000_000,
        at_us: number,
        sent: false,
        transport: "UDP".to_owned(),
        local: "192.0.2.2:5060".to_owned(),
        peer: "192.0.2.1:5060".parse().expect("an address"),
        start: "INVITE sip:bob@example.com SIP/2.0".to_owned(),
        cseq: "1 INVITE".to_owned(),
        call_id: call_id.to_owned(),
        length: 1,
        lines: None,
        bytes: None,
        cut: 0,
    }
}

fn request(for_ms: Option<u64>, count: Option<u64>) -> TraceRequest {
    TraceRequest { filter: TraceFilter::CallId("c".to_owned()), for_ms, count, messages: false, bytes: false }
}

/// A server, its socket and a channel that receives a message for each ended trace.
fn open(folder: &Path, refuses: bool) -> (ControlSocket, PathBuf, Receiver<()>) {
    let path = folder.join("control.sock");
    let (ended, heard) = channel();
    let socket = ControlSocket::open(&path, Arc::new(Fake { refuses, ended: Mutex::new(ended) })).expect("free");
    (socket, path, heard)
}

fn collect(path: &Path, request: TraceRequest, at_most: usize) -> Result<Vec<TraceEvent>, String> {
    let mut events = Vec::new();
    trace(path, request, |event| {
        events.push(event);
        if events.len() < at_most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(events)
}

#[test]
fn a_trace_ends_after_its_message_count_and_other_requests_go_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_socket, path, heard) = open(folder.path(), false);
    let events = collect(&path, request(None, Some(3)), usize::MAX).expect("told");
    let expected = [
        TraceEvent::Started,
        TraceEvent::Message(Box::new(message("c", 0))),
        TraceEvent::Message(Box::new(message("c", 1))),
        TraceEvent::Lost(3),
        TraceEvent::Message(Box::new(message("c", 2))),
    ];
    assert_eq!(events, expected);
    heard.recv().expect("the trace was dropped");
    assert_eq!(
        ask(&path, &Request::Status),
        Ok(Response::Reloaded(Reloaded { result: "as ever".to_owned(), changes: Vec::new() }))
    );
}

#[test]
fn a_trace_ends_after_its_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_socket, path, heard) = open(folder.path(), false);
    let begin = Instant::now();
    let events = collect(&path, request(Some(50), None), usize::MAX).expect("told");
    assert_eq!(events.len(), 7);
    assert!(begin.elapsed() >= Duration::from_millis(50));
    heard.recv().expect("the trace was dropped");
}

#[test]
fn a_trace_ends_when_its_client_goes_away() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_socket, path, heard) = open(folder.path(), false);
    assert_eq!(collect(&path, request(None, None), 7).expect("told").len(), 7);
    heard.recv_timeout(Duration::from_secs(10)).expect("nothing is told any more, and yet it is noticed");
}

#[test]
fn a_trace_ends_when_another_process_has_the_socket() {
    let folder = tempfile::tempdir().expect("a folder");
    let (socket, path, heard) = open(folder.path(), false);
    let mut socket = Some(socket);
    let mut events = Vec::new();
    let why = trace(&path, request(None, None), |event| {
        events.push(event);
        if events.len() == 2 {
            socket.take().into_iter().for_each(ControlSocket::abandon);
        }
        ControlFlow::Continue(())
    });
    assert_eq!(events.len(), 7, "what is there is told before the end");
    let why = why.expect_err("it has not ended by a limit");
    assert!(why.contains("another process serves now"), "{why}");
    heard.recv().expect("the trace was dropped");
    assert!(path.exists(), "the file is the other process's");
}

#[test]
fn an_error_is_shown() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_socket, path, _heard) = open(folder.path(), true);
    assert_eq!(collect(&path, request(None, None), 9), Err("4 traces run already".to_owned()));
    let error = collect(&folder.path().join("nowhere"), request(None, None), 9).expect_err("nobody is there");
    assert!(error.starts_with("no server is running"), "{error}");
}
