//! Server and client of the control socket.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use strowger_control::protocol::{BackupReport, BackupRequest, Reloaded, Request, Response, Status};
use strowger_control::socket::{ControlSocket, Handler, MAX_CONNECTIONS, MAX_REQUEST, ask, backup, is_running};

struct Fake;

impl Handler for Fake {
    fn handle(&self, request: Request) -> Response {
        match request {
            Request::Status => Response::Status(Box::new(Status { registrations: 7, ..Status::default() })),
            Request::Registrations { .. } => Response::Error("refused\nfor a test".to_owned()),
            Request::Unregister { .. }
            | Request::Calls { .. }
            | Request::Follow { .. }
            | Request::CheckReload
            | Request::CallSetups
            | Request::EndCall { .. }
            | Request::Trace(_)
            | Request::Timing(_)
            | Request::Backup(_)
            | Request::Upgrade(_)
            | Request::Targets { .. }
            | Request::Clusters(_)
            | Request::Drain { .. }
            | Request::Undrain { .. }
            | Request::AddTarget(_)
            | Request::RemoveTarget { .. }
            | Request::Bans { .. }
            | Request::EndedCalls { .. }
            | Request::Failures { .. }
            | Request::AddBan(_)
            | Request::RemoveBan { .. } => Response::Error("not in this test".to_owned()),
            Request::Reload => Response::Reloaded(Reloaded { result: "done".to_owned(), changes: Vec::new() }),
        }
    }

    fn backup(&self, request: &BackupRequest, progress: &mut dyn FnMut(u64, u64)) -> Result<BackupReport, String> {
        if !request.overwrite {
            return Err(format!("{} exists", request.file.display()));
        }
        progress(1, 2);
        Ok(BackupReport { users: 3, ..BackupReport::default() })
    }
}

fn open(path: &Path) -> Result<ControlSocket, String> {
    ControlSocket::open(path, Arc::new(Fake))
}

fn line(stream: &UnixStream) -> String {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).expect("an answer");
    line
}

#[test]
fn the_socket_answers_and_is_owner_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("data/control.sock");
    let socket = open(&path).expect("free");
    let mode = |path: &Path| std::fs::metadata(path).expect("it exists").permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().expect("a folder"))), (0o660, 0o700));
    let Response::Status(status) = ask(&path, &Request::Status).expect("answered") else { panic!("a status") };
    assert_eq!(status.registrations, 7);
    assert_eq!(
        ask(&path, &Request::Reload),
        Ok(Response::Reloaded(Reloaded { result: "done".to_owned(), changes: Vec::new() }))
    );
    let request = Request::Registrations { user: Some("alice@example.com".to_owned()), limit: 3 };
    assert_eq!(ask(&path, &request), Ok(Response::Error("refused\nfor a test".to_owned())));
    drop(socket);
    assert!(!path.exists());
    let error = ask(&path, &Request::Status).expect_err("nobody is there");
    assert!(error.starts_with("no server is running: nothing answers at "), "{error}");
}

#[test]
fn a_backup_reports_progress_and_needs_a_running_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("control.sock");
    let order = |overwrite| BackupRequest { file: "/x/y.backup".into(), overwrite };
    assert_eq!((backup(&path, order(true), |_, _| panic!("nobody")), is_running(&path)), (Ok(None), Ok(false)));
    let socket = open(&path).expect("free");
    assert_eq!(is_running(&path), Ok(true));
    let mut seen = Vec::new();
    let report = backup(&path, order(true), |done, of| seen.push((done, of)));
    assert_eq!((report, seen), (Ok(Some(BackupReport { users: 3, ..BackupReport::default() })), vec![(1, 2)]));
    assert_eq!(backup(&path, order(false), |_, _| {}), Err("/x/y.backup exists".to_owned()));
    drop(socket);
    drop(std::os::unix::net::UnixListener::bind(&path).expect("what a dead server leaves behind"));
    assert_eq!(is_running(&path), Ok(false));
}

#[test]
fn a_live_socket_is_not_shared_and_a_stale_one_is_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("control.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).expect("bound"));
    let socket = open(&path).expect("what was left behind is cleared away");
    let error = open(&path).expect_err("one runs");
    assert!(error.starts_with("another server is already running"), "{error}");
    drop(socket);
    std::fs::write(&path, "precious").expect("written");
    let error = open(&path).expect_err("no socket");
    assert!(error.contains("exists and is not a socket"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).expect("untouched"), "precious");
}

#[test]
fn invalid_requests_get_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("control.sock");
    let _socket = open(&path).expect("free");
    let mut stream = UnixStream::connect(&path).expect("connected");
    stream.write_all(b"{\"command\":\"explode\"}\n").expect("sent");
    assert!(line(&stream).starts_with("{\"error\":\"this is not a valid request: "));
    stream.write_all(b"{\"command\":\"status\"}\n").expect("the connection goes on");
    assert!(line(&stream).starts_with("{\"status\":{"));
    stream.write_all(&vec![b' '; usize::try_from(MAX_REQUEST).expect("small")]).expect("sent");
    assert!(line(&stream).contains("one line of up to 16384 bytes"));
    assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0, "the connection is closed");
}

#[test]
fn connections_are_bounded() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("control.sock");
    let _socket = open(&path).expect("free");
    let open: Vec<UnixStream> = (0..MAX_CONNECTIONS)
        .map(|_| {
            let mut stream = UnixStream::connect(&path).expect("connected");
            stream.write_all(b"{\"command\":\"reload\"}\n").expect("sent");
            assert!(line(&stream).contains("done"));
            stream
        })
        .collect();
    let error = line(&UnixStream::connect(&path).expect("connected"));
    assert!(error.contains("16 connections are open"), "{error}");
    drop(open);
}
