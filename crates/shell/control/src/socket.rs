//! The control socket. Anyone who may open its file may send requests.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::ops::ControlFlow;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use socket2::{Domain, SockAddr, Socket, Type};

use strowger_timing::TimingReport;

use crate::caller::Caller;
use crate::protocol::{
    BackupEvent, BackupReport, BackupRequest, Change, Request, Response, TimingRequest, TimingUpdate, TraceEvent,
    TraceRequest, UpgradeReport, UpgradeRequest,
};

/// Maximum number of simultaneous connections. A further one receives an error and is closed.
pub const MAX_CONNECTIONS: usize = 16;
/// Maximum size of a request, in bytes. The longest path, escaped, fits.
pub const MAX_REQUEST: u64 = 16_384;
/// Maximum size of a response, in bytes: [`MAX_LISTED`](crate::protocol::MAX_LISTED) contacts of the longest kind.
const MAX_RESPONSE: u64 = 64 * 1024 * 1024;
/// Time that either side waits for the other.
const IO_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that a client waits for an upgrade. The server gives up earlier.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(280);
/// Interval at which an idle trace checks that its client is still connected.
const TRACE_TICK: Duration = Duration::from_millis(250);
/// Interval between progress reports of a backup.
const PROGRESS_TICK: Duration = Duration::from_millis(100);
/// Backlog of the listening socket.
const BACKLOG: i32 = 16;

/// Handler of requests, called by several threads.
pub trait Handler: Send + Sync + 'static {
    /// Answers one request; may block.
    fn handle(&self, request: Request) -> Response;

    /// Starts a trace. The caller enforces its limits.
    ///
    /// # Errors
    /// The reason, as text for the client.
    fn trace(&self, _request: &TraceRequest) -> Result<Box<dyn TraceSource>, String> {
        Err("this server does not support traces".to_owned())
    }

    /// Starts a measurement of the times of packets.
    ///
    /// # Errors
    /// The reason, as text for the client.
    fn timing(&self, _request: &TimingRequest) -> Result<Box<dyn TimingSource>, String> {
        Err("this server does not measure the times of packets".to_owned())
    }

    /// Writes a backup and reports to `progress` at least once a second. The backup completes even if the client
    /// disconnects.
    ///
    /// # Errors
    /// The reason, as text for the client.
    fn backup(&self, _request: &BackupRequest, _progress: &mut dyn FnMut(u64, u64)) -> Result<BackupReport, String> {
        Err("this server does not support backups".to_owned())
    }

    /// Hands over to another process, and returns once that serves.
    ///
    /// # Errors
    /// The reason, as text for the client. This process then goes on.
    fn upgrade(&self, _request: &UpgradeRequest) -> Result<UpgradeReport, String> {
        Err("this server cannot be upgraded while it runs".to_owned())
    }

    /// Writes a line of the audit log: a change that a client has asked for, and why it failed, if it did.
    fn audit(&self, _caller: &Caller, _change: &Change, _failure: Option<&str>) {}
}

/// A running trace; dropping it ends it.
pub trait TraceSource: Send {
    /// Returns the next message or loss, waiting at most `wait`.
    fn poll(&mut self, wait: Duration) -> Option<TraceEvent>;
}

/// A running measurement of the times of packets.
pub trait TimingSource: Send {
    /// Returns the times since its beginning.
    ///
    /// # Errors
    /// The reason, as text for the client.
    fn report(&mut self) -> Result<TimingReport, String>;
}

/// Listening control socket. Dropping it removes the file and ends its thread; open connections end by themselves.
#[derive(Debug)]
pub struct ControlSocket {
    path: PathBuf,
    listener: Arc<UnixListener>,
    /// Ends the thread when it is closed.
    end: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
    /// Whether the file is another process's. Traces and measurements end then.
    is_abandoned: Arc<AtomicBool>,
}

/// A control socket whose clients wait until it is [served](Self::serve).
#[derive(Debug)]
pub struct BoundControlSocket {
    path: PathBuf,
    listener: OwnedFd,
    /// Whether the file is removed if nobody serves it.
    is_new: bool,
    /// Path of the socket that this one replaces.
    former: Option<PathBuf>,
}

impl BoundControlSocket {
    /// Creates the socket at `path` with mode 0660.
    ///
    /// # Errors
    /// Another server answers there, something else has the name, or the system refuses it. The text names the
    /// remedy.
    pub fn bind(path: &Path) -> Result<Self, String> {
        remove_stale_socket(path)?;
        let listener = listen(path).map_err(|error| {
            format!(
                "the control socket {} cannot be created: {error}; choose another in [control] socket",
                path.display()
            )
        })?;
        Ok(Self { path: path.to_owned(), listener: OwnedFd::from(listener), is_new: true, former: None })
    }

    /// Takes the socket that another process has opened and will [abandon](ControlSocket::abandon). If that is not at
    /// `path`, opens one there; the other is removed when this one is served.
    ///
    /// # Errors
    /// Those of [`bind`](Self::bind), if there is another path.
    pub fn take_over(path: &Path, listener: OwnedFd) -> Result<Self, String> {
        let address = UnixListener::from(listener.try_clone().map_err(|error| error.to_string())?).local_addr().ok();
        let former = address.as_ref().and_then(|address| address.as_pathname()).unwrap_or(path);
        let is_same = former == path
            || fs::canonicalize(former).is_ok_and(|one| fs::canonicalize(path).is_ok_and(|two| one == two));
        if is_same {
            return Ok(Self { path: path.to_owned(), listener, is_new: false, former: None });
        }
        let mut bound = Self::bind(path)?;
        bound.former = Some(former.to_owned());
        Ok(bound)
    }

    /// Passes requests to `handler`.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn serve(mut self, handler: Arc<dyn Handler>) -> Result<ControlSocket, String> {
        let failed = |error| format!("the control socket's thread cannot be started: {error}");
        let listener = Arc::new(UnixListener::from(self.listener.try_clone().map_err(failed)?));
        listener.set_nonblocking(true).map_err(failed)?;
        let (end, ended) = UnixStream::pair().map_err(failed)?;
        let (accepting, is_abandoned) = (Arc::clone(&listener), Arc::<AtomicBool>::default());
        let shared = Arc::clone(&is_abandoned);
        let serve = move || accept(&accepting, &ended, &handler, &shared);
        let thread = thread::Builder::new().name("control".to_owned()).spawn(serve).map_err(failed)?;
        self.is_new = false;
        if let Some(former) = &self.former {
            // If this fails, the next server there removes the file.
            let _ = fs::remove_file(former);
        }
        Ok(ControlSocket { path: self.path.clone(), listener, end: Some(end), thread: Some(thread), is_abandoned })
    }
}

impl Drop for BoundControlSocket {
    fn drop(&mut self) {
        if self.is_new {
            // If this fails, the next server removes the file.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl ControlSocket {
    /// Creates the socket at `path` and passes requests to `handler`.
    ///
    /// # Errors
    /// Those of [`BoundControlSocket::bind`] and [`BoundControlSocket::serve`].
    pub fn open(path: &Path, handler: Arc<dyn Handler>) -> Result<Self, String> {
        BoundControlSocket::bind(path)?.serve(handler)
    }

    /// Returns another descriptor of the socket, for the process that takes it over.
    ///
    /// # Errors
    /// When the process has no file descriptor left.
    pub fn to_handover(&self) -> io::Result<OwnedFd> {
        self.listener.as_fd().try_clone_to_owned()
    }

    /// Leaves the socket to the process that has taken it over. Traces and measurements end, because this process no
    /// longer reads what they wait for.
    pub fn abandon(self) {
        self.is_abandoned.store(true, Ordering::Release);
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        if !self.is_abandoned.load(Ordering::Acquire) {
            // If this fails, the next server removes the file.
            let _ = fs::remove_file(&self.path);
        }
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// Removes the socket left by a killed server and creates the directory.
fn remove_stale_socket(path: &Path) -> Result<(), String> {
    let shown = path.display();
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|error| format!("the folder {} cannot be created: {error}", folder.display()))?;
    }
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    if !found.file_type().is_socket() {
        return Err(format!("{shown} exists and is not a socket; choose another path in [control] socket"));
    }
    if UnixStream::connect(path).is_ok() {
        return Err(format!(
            "another server is already running: it answers at {shown}; stop it, or give this one its own [server] data"
        ));
    }
    fs::remove_file(path).map_err(|error| format!("{shown}, left by an earlier server, cannot be removed: {error}"))
}

/// Creates the listener. The mode is set before anybody can connect, without changing the process's umask.
fn listen(path: &Path) -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    fs::set_permissions(path, Permissions::from_mode(0o660))?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

/// Accepts connections until the other end of `ended` is closed.
fn accept(listener: &UnixListener, ended: &UnixStream, handler: &Arc<dyn Handler>, is_abandoned: &Arc<AtomicBool>) {
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let mut polled = [PollFd::new(ended, PollFlags::IN), PollFd::new(listener, PollFlags::IN)];
        let _ = rustix::event::poll(&mut polled, None);
        let [is_ended, _] = &polled;
        if !is_ended.revents().is_empty() {
            return;
        }
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => continue,
            Err(_) => {
                // Out of file descriptors: retrying at once would not help.
                thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        let place = ConnectionGuard::take(&open);
        let (handler, is_abandoned) = (Arc::clone(handler), Arc::clone(is_abandoned));
        let serve = move || match place {
            Some(_place) => drop(serve_connection(&stream, &*handler, &is_abandoned)),
            None => {
                drop(answer(&stream, &Response::Error(format!("{MAX_CONNECTIONS} connections are open; try again"))));
            }
        };
        drop(thread::Builder::new().name("control-client".to_owned()).spawn(serve));
    }
}

/// Guard that counts one of [`MAX_CONNECTIONS`].
struct ConnectionGuard(Arc<AtomicUsize>);

impl ConnectionGuard {
    fn take(open: &Arc<AtomicUsize>) -> Option<Self> {
        let place = Self(Arc::clone(open));
        (open.fetch_add(1, Ordering::AcqRel) < MAX_CONNECTIONS).then_some(place)
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

fn serve_connection(stream: &UnixStream, handler: &dyn Handler, is_abandoned: &AtomicBool) -> io::Result<()> {
    stream.set_read_timeout(Some(IO_TIMEOUT))?;
    stream.set_write_timeout(Some(IO_TIMEOUT))?;
    let caller = caller(stream);
    let audit = |change: Option<Change>, failure: Option<&str>| {
        change.iter().for_each(|change| handler.audit(&caller, change, failure));
    };
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        reader.by_ref().take(MAX_REQUEST).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(());
        }
        if line.last() != Some(&b'\n') {
            return answer(stream, &Response::Error(format!("a request is one line of up to {MAX_REQUEST} bytes")));
        }
        let request: Request = match serde_json::from_slice(&line) {
            Ok(request) => request,
            Err(error) => {
                answer(stream, &Response::Error(format!("this is not a valid request: {error}")))?;
                continue;
            }
        };
        let change = request.change();
        let response = match request {
            Request::Trace(request) => {
                return stream_trace(stream, handler, &request, is_abandoned, |failure| audit(change, failure));
            }
            Request::Timing(request) => return stream_timing(stream, handler, &request, is_abandoned),
            Request::Backup(request) => back_up(stream, handler, &request),
            Request::Upgrade(request) => may_upgrade(&caller, &request)
                .and_then(|()| handler.upgrade(&request))
                .map_or_else(Response::Error, Response::Upgraded),
            request => handler.handle(request),
        };
        audit(change, response.failure());
        answer(stream, &response)?;
    }
}

/// Streams messages until a limit is reached or the client disconnects; then the connection ends.
fn stream_trace(
    stream: &UnixStream,
    handler: &dyn Handler,
    request: &TraceRequest,
    is_abandoned: &AtomicBool,
    audit: impl FnOnce(Option<&str>),
) -> io::Result<()> {
    let started = handler.trace(request);
    audit(started.as_ref().err().map(String::as_str));
    let mut source = match started {
        Ok(source) => source,
        Err(why) => return answer(stream, &Response::Error(why)),
    };
    answer(stream, &Response::Trace(TraceEvent::Started))?;
    let deadline = request.for_ms.and_then(|limit| Instant::now().checked_add(Duration::from_millis(limit)));
    let mut left = request.count.unwrap_or(u64::MAX);
    while left > 0 {
        let wait = deadline.map_or(TRACE_TICK, |deadline| deadline.saturating_duration_since(Instant::now()));
        if wait.is_zero() {
            break;
        }
        // What the queue has is sent before the end.
        let wait = if is_abandoned.load(Ordering::Acquire) { Duration::ZERO } else { wait.min(TRACE_TICK) };
        match source.poll(wait) {
            Some(event) => {
                left = left.saturating_sub(u64::from(matches!(event, TraceEvent::Message(_))));
                answer(stream, &Response::Trace(event))?;
            }
            None if has_gone(stream)? => return Ok(()),
            None if is_abandoned.load(Ordering::Acquire) => return answer(stream, &moved()),
            None => {}
        }
    }
    answer(stream, &Response::Trace(TraceEvent::Ended))
}

/// Sends the times of packets until the period ends or the client disconnects; then the connection ends.
fn stream_timing(
    stream: &UnixStream,
    handler: &dyn Handler,
    request: &TimingRequest,
    is_abandoned: &AtomicBool,
) -> io::Result<()> {
    let mut source = match handler.timing(request) {
        Ok(source) => source,
        Err(why) => return answer(stream, &Response::Error(why)),
    };
    let mut next = Instant::now();
    let end = request.for_ms.and_then(|length| next.checked_add(Duration::from_millis(length)));
    loop {
        // A measurement without an end has an interval.
        next = request.next_update(next).into_iter().chain(end).min().unwrap_or(next);
        while let left @ 1.. = next.saturating_duration_since(Instant::now()).as_nanos() {
            thread::sleep(TRACE_TICK.min(Duration::from_nanos(u64::try_from(left).unwrap_or(u64::MAX))));
            if has_gone(stream)? {
                return Ok(());
            }
            if is_abandoned.load(Ordering::Acquire) {
                return answer(stream, &moved());
            }
        }
        let is_last = end.is_some_and(|end| next >= end);
        let mut report = match source.report() {
            Ok(report) => report,
            Err(why) => return answer(stream, &Response::Error(why)),
        };
        if !is_last {
            report.remove_histograms();
        }
        answer(stream, &Response::Timing(Box::new(TimingUpdate { report, is_last })))?;
        if is_last {
            return Ok(());
        }
    }
}

/// Returns the last response of a stream whose server was upgraded.
fn moved() -> Response {
    Response::Error("the server was upgraded, and another process serves now; run the command again".to_owned())
}

fn back_up(stream: &UnixStream, handler: &dyn Handler, request: &BackupRequest) -> Response {
    let mut told: Option<Instant> = None;
    let done = handler.backup(request, &mut |done, of| {
        if told.is_none_or(|told| told.elapsed() >= PROGRESS_TICK) {
            told = Some(Instant::now());
            // The backup continues without its client.
            drop(answer(stream, &Response::Backup(BackupEvent::Progress { done, of })));
        }
    });
    done.map_or_else(Response::Error, |report| Response::Backup(BackupEvent::Done(report)))
}

/// Returns who is connected. The process may have ended already.
fn caller(stream: &UnixStream) -> Caller {
    let peer = rustix::net::sockopt::socket_peercred(stream).ok();
    Caller::Process { uid: peer.map(|peer| peer.uid.as_raw()), pid: peer.map(|peer| peer.pid.as_raw_nonzero().get()) }
}

/// Checks that the caller may start this program as the server's user.
fn may_upgrade(caller: &Caller, request: &UpgradeRequest) -> Result<(), String> {
    let own = rustix::process::geteuid().as_raw();
    match (&request.binary, caller) {
        (None, _) => Ok(()),
        (Some(_), Caller::Process { uid: Some(uid), .. }) if *uid == 0 || *uid == own => Ok(()),
        (Some(_), _) => Err(
            "only root and the server's user may name the program, since it runs as that user; leave out --binary to \
             start the installed one"
                .to_owned(),
        ),
    }
}

/// Returns whether the client has closed the connection. Data sent during a trace also ends it.
fn has_gone(mut stream: &UnixStream) -> io::Result<bool> {
    stream.set_nonblocking(true)?;
    let read = stream.read(&mut [0]);
    stream.set_nonblocking(false)?;
    Ok(!read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock))
}

fn answer(mut stream: &UnixStream, response: &Response) -> io::Result<()> {
    let mut line = serde_json::to_vec(response)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Sends a request to the server whose control socket is at `path`.
///
/// # Errors
/// The reason for having no response, with a remedy. A refusal by the server is a [`Response::Error`].
pub fn ask(path: &Path, request: &Request) -> Result<Response, String> {
    let stream = connect(path)?;
    let response = exchange(&stream, request).map_err(|error| silent(path, &error))?;
    // Clients on this machine show the reason, whatever its kind.
    Ok(match response {
        Response::NotFound(why) | Response::Conflict(why) | Response::Busy(why) => Response::Error(why),
        response => response,
    })
}

/// Requests a trace from the server whose control socket is at `path` and passes events to `on_event`, until the
/// trace ends or `on_event` stops it.
///
/// # Errors
/// The reason why there is no trace or why it ended before its limits, with a remedy.
pub fn trace(
    path: &Path,
    request: TraceRequest,
    mut on_event: impl FnMut(TraceEvent) -> ControlFlow<()>,
) -> Result<(), String> {
    let stream = connect(path)?;
    let failed = |error| silent(path, &error);
    send(&stream, &Request::Trace(request)).map_err(failed)?;
    let mut reader = BufReader::new(&stream);
    let mut patience = Some(IO_TIMEOUT);
    loop {
        // The first response comes at once. After it, silence is not an error.
        stream.set_read_timeout(patience.take()).map_err(failed)?;
        match receive(&mut reader).map_err(failed)? {
            Response::Trace(TraceEvent::Ended) => return Ok(()),
            Response::Trace(event) => {
                if on_event(event).is_break() {
                    return Ok(());
                }
            }
            Response::Error(why) => return Err(why),
            other => return Err(format!("the server sent an unexpected answer: {other:?}")),
        }
    }
}

/// Requests a measurement of the times of packets from the server whose control socket is at `path` and passes updates
/// to `on_update`, until the last one or until `on_update` stops it.
///
/// # Errors
/// The reason why there is no measurement or why it ended early, with a remedy.
pub fn timing(
    path: &Path,
    request: TimingRequest,
    mut on_update: impl FnMut(TimingUpdate) -> ControlFlow<()>,
) -> Result<(), String> {
    let stream = connect(path)?;
    let failed = |error| silent(path, &error);
    let wait = IO_TIMEOUT.saturating_add(request.longest_silence());
    send(&stream, &Request::Timing(request)).map_err(failed)?;
    stream.set_read_timeout(Some(wait)).map_err(failed)?;
    let mut reader = BufReader::new(&stream);
    loop {
        match receive(&mut reader).map_err(failed)? {
            Response::Timing(update) => {
                let is_last = update.is_last;
                if on_update(*update).is_break() || is_last {
                    return Ok(());
                }
            }
            Response::Error(why) => return Err(why),
            other => return Err(format!("the server sent an unexpected answer: {other:?}")),
        }
    }
}

/// Requests a backup from the server whose control socket is at `path` and reports to `on_progress`. Returns `None`
/// if no server runs.
///
/// # Errors
/// The reason why there is no backup, or why the outcome is unknown, with a remedy.
pub fn backup(
    path: &Path,
    request: BackupRequest,
    mut on_progress: impl FnMut(u64, u64),
) -> Result<Option<BackupReport>, String> {
    let stream = match UnixStream::connect(path) {
        Err(error) if is_not_listening(&error) => return Ok(None),
        result => result.map_err(|error| unreachable(path, &error))?,
    };
    let failed = |error| silent(path, &error);
    send(&stream, &Request::Backup(request)).map_err(failed)?;
    let mut reader = BufReader::new(&stream);
    // A slow disk may need more time.
    stream.set_read_timeout(Some(IO_TIMEOUT * 6)).map_err(failed)?;
    loop {
        match receive(&mut reader).map_err(failed)? {
            Response::Backup(BackupEvent::Progress { done, of }) => on_progress(done, of),
            Response::Backup(BackupEvent::Done(report)) => return Ok(Some(report)),
            Response::Error(why) => return Err(why),
            other => return Err(format!("the server sent an unexpected answer: {other:?}")),
        }
    }
}

/// Requests an upgrade from the server whose control socket is at `path`. The inner error is the server's reason to go
/// on as before.
///
/// # Errors
/// The reason why no server was asked, or why the outcome is unknown, with a remedy.
pub fn upgrade(path: &Path, request: UpgradeRequest) -> Result<Result<UpgradeReport, String>, String> {
    let stream = connect(path)?;
    let failed = |error| silent(path, &error);
    send(&stream, &Request::Upgrade(request)).map_err(failed)?;
    stream.set_read_timeout(Some(UPGRADE_TIMEOUT)).map_err(failed)?;
    match receive(&mut BufReader::new(&stream)).map_err(failed)? {
        Response::Upgraded(report) => Ok(Ok(report)),
        Response::Error(why) => Ok(Err(why)),
        other => Err(format!("the server sent an unexpected answer: {other:?}")),
    }
}

/// Returns whether a server answers at `path`.
///
/// # Errors
/// The answer is unknown; the text names the remedy.
pub fn is_running(path: &Path) -> Result<bool, String> {
    match UnixStream::connect(path) {
        Ok(_) => Ok(true),
        Err(error) if is_not_listening(&error) => Ok(false),
        Err(error) => Err(unreachable(path, &error)),
    }
}

fn connect(path: &Path) -> Result<UnixStream, String> {
    UnixStream::connect(path).map_err(|error| unreachable(path, &error))
}

fn is_not_listening(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

fn unreachable(path: &Path, error: &io::Error) -> String {
    let shown = shown(path);
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => format!(
            "no server is running: nothing answers at {shown}; start one with `strowger serve`, or give its configuration \
             with -c. A server whose control.socket was changed in the file has the former one until it reloads the \
             file (SIGHUP): name that with --socket"
        ),
        io::ErrorKind::PermissionDenied => {
            format!("no permission to open the control socket {shown}; run this as the user that runs the server")
        }
        _ => format!("the control socket {shown} cannot be opened: {error}"),
    }
}

fn silent(path: &Path, error: &io::Error) -> String {
    format!("the server at {} does not answer: {error}; see its log", shown(path))
}

fn shown(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

fn exchange(stream: &UnixStream, request: &Request) -> io::Result<Response> {
    stream.set_read_timeout(Some(IO_TIMEOUT))?;
    send(stream, request)?;
    receive(&mut BufReader::new(stream))
}

fn send(mut stream: &UnixStream, request: &Request) -> io::Result<()> {
    stream.set_write_timeout(Some(IO_TIMEOUT))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)
}

fn receive(reader: &mut BufReader<&UnixStream>) -> io::Result<Response> {
    let mut line = Vec::new();
    reader.take(MAX_RESPONSE).read_until(b'\n', &mut line)?;
    if line.last() != Some(&b'\n') {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection"));
    }
    Ok(serde_json::from_slice(&line)?)
}
