//! The listener with a certificate.

use std::fs::{self, Permissions};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use strowger_http::axum::Router;
use strowger_http::axum::routing::get;
use strowger_http::{HttpCounters, HttpLimits, HttpServer, HttpTls};

const PATIENCE: Duration = Duration::from_secs(20);

/// Writes a new certificate and its key, and returns the certificate.
fn write_certificate(folder: &Path) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    // The key first, as a renewal might.
    fs::write(folder.join("new.key"), made.signing_key.serialize_pem()).expect("written");
    fs::set_permissions(folder.join("new.key"), Permissions::from_mode(0o600)).expect("our file");
    fs::rename(folder.join("new.key"), folder.join("admin.key")).expect("renamed");
    fs::write(folder.join("admin.pem"), made.cert.pem()).expect("written");
    made.cert.der().clone()
}

fn load(folder: &Path) -> Result<HttpTls, String> {
    HttpTls::load(&folder.join("admin.pem"), &folder.join("admin.key"))
}

/// Sends a request over TLS, trusting only this certificate.
fn fetch(server: &HttpServer, trusted: &CertificateDer<'static>) -> std::io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).expect("a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
    let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
    let stream = TcpStream::connect(server.address())?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let name = ServerName::try_from("localhost").expect("a name");
    let mut stream = StreamOwned::new(ClientConnection::new(config, name).expect("a client"), stream);
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    Ok(response)
}

#[test]
fn requests_are_encrypted_and_a_renewed_certificate_is_used() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = write_certificate(folder.path());
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let router = Router::new().route("/", get(|| async { "hello" }));
    let tls = Some(load(folder.path()).expect("a certificate"));
    let server = HttpServer::start(listener, tls, router, HttpLimits::default(), Arc::<HttpCounters>::default());
    let server = server.expect("it starts");
    let response = fetch(&server, &first).expect("trusted");
    assert!(response.starts_with("HTTP/1.1 200 ") && response.ends_with("hello"), "{response}");
    let mut plain = TcpStream::connect(server.address()).expect("it listens");
    plain.set_read_timeout(Some(PATIENCE)).expect("settable");
    plain.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
    let mut response = Vec::new();
    drop(plain.read_to_end(&mut response));
    assert!(!response.starts_with(b"HTTP"), "{response:?}");
    let second = write_certificate(folder.path());
    let deadline = Instant::now() + PATIENCE;
    while fetch(&server, &second).is_err() {
        assert!(Instant::now() < deadline, "the new certificate is not used");
        thread::sleep(Duration::from_millis(100));
    }
    assert!(fetch(&server, &first).is_err());
}

#[test]
fn unusable_files_are_named_with_a_remedy() {
    let folder = tempfile::tempdir().expect("a folder");
    let why = |what: &str| load(folder.path()).expect_err(what);
    assert!(why("no files").contains("admin.pem"));
    write_certificate(folder.path());
    let key = folder.path().join("admin.key");
    fs::set_permissions(&key, Permissions::from_mode(0o640)).expect("our file");
    assert!(why("others may read the key").contains("chmod 600"));
    fs::set_permissions(&key, Permissions::from_mode(0o600)).expect("our file");
    assert!(load(folder.path()).is_ok());
    fs::write(&key, "nonsense").expect("written");
    assert!(why("no key").contains("must be the private key as PEM"));
    let other = tempfile::tempdir().expect("a folder");
    write_certificate(other.path());
    fs::copy(other.path().join("admin.key"), &key).expect("copied");
    assert!(why("another key").contains("must match"));
    fs::write(folder.path().join("admin.pem"), "").expect("written");
    assert!(why("no certificate").contains("must be a certificate as PEM"));
}
