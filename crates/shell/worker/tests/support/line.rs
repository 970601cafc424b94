//! The far end of a connection, plain or over TLS.

#![allow(dead_code, reason = "each test file uses a part")]

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Deref;
use std::sync::{Arc, LazyLock, Mutex};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection};
use strowger_net::{CertificateFiles, ClientCertificates, TlsContext, TlsSettings};

#[path = "../../../net/tests/support/authority.rs"]
pub(crate) mod authority;

use authority::Authority;

/// The certificates of all tests of a process.
pub(crate) struct Certificates {
    pub(crate) authority: Mutex<Authority>,
    /// Of the server and of far ends that it calls.
    pub(crate) own: CertificateFiles,
}

pub(crate) static CERTIFICATES: LazyLock<Certificates> = LazyLock::new(|| {
    let mut authority = Authority::new();
    let own = authority.issue(&["127.0.0.1", "example.com"]);
    Certificates { authority: Mutex::new(authority), own }
});

/// Returns settings with the server's certificate and our authority.
pub(crate) fn settings() -> TlsSettings {
    let ca = CERTIFICATES.authority.lock().expect("no panic").ca.clone();
    TlsSettings { certificates: vec![CERTIFICATES.own.clone()], ca: Some(ca), ..TlsSettings::default() }
}

pub(crate) fn context() -> Arc<TlsContext> {
    let settings = TlsSettings { client_certificates: ClientCertificates::Optional, ..settings() };
    Arc::new(TlsContext::new(&settings).expect("sound files"))
}

/// Returns the configuration of a client that trusts our authority, with an optional certificate.
pub(crate) fn client_config(own: Option<&CertificateFiles>) -> ClientConfig {
    let ca = fs::read(&CERTIFICATES.authority.lock().expect("no panic").ca).expect("a file");
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&ca).expect("PEM")).expect("an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
    let builder = builder.with_root_certificates(roots);
    match own {
        Some(files) => {
            let (chain, key) = load(files);
            builder.with_client_auth_cert(chain, key).expect("a pair")
        }
        None => builder.with_no_client_auth(),
    }
}

fn load(files: &CertificateFiles) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let chain = CertificateDer::pem_file_iter(&files.certificate).expect("a file").map(|one| one.expect("PEM"));
    (chain.collect(), PrivateKeyDer::from_pem_file(&files.key).expect("a key"))
}

/// Returns the configuration of a far end that the server calls.
pub(crate) fn server_config(files: &CertificateFiles) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
    let (chain, key) = load(files);
    builder.with_no_client_auth().with_single_cert(chain, key).expect("a pair")
}

/// A blocking connection; its socket can be used as such.
pub(crate) struct Line {
    stream: TcpStream,
    tls: Option<Box<Connection>>,
}

impl Line {
    pub(crate) fn plain(stream: TcpStream) -> Self {
        Self { stream, tls: None }
    }

    /// Makes a handshake as client, as far as that is possible.
    pub(crate) fn secure(stream: TcpStream) -> Self {
        static CONFIG: LazyLock<Arc<ClientConfig>> = LazyLock::new(|| Arc::new(client_config(None)));
        let mut line = Self::client(stream, &CONFIG, "127.0.0.1");
        // What is wrong shows at the first read.
        let _ = line.handshake();
        line
    }

    pub(crate) fn client(stream: TcpStream, config: &Arc<ClientConfig>, name: &str) -> Self {
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        let tls = ClientConnection::new(Arc::clone(config), name).expect("a session");
        Self { stream, tls: Some(Box::new(tls.into())) }
    }

    /// Makes a handshake as server.
    pub(crate) fn accepted(stream: TcpStream, config: Arc<ServerConfig>) -> Self {
        let tls = ServerConnection::new(config).expect("a session");
        let mut line = Self { stream, tls: Some(Box::new(tls.into())) };
        let _ = line.handshake();
        line
    }

    pub(crate) fn handshake(&mut self) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        while tls.is_handshaking() {
            tls.complete_io(&mut self.stream)?;
        }
        Ok(())
    }

    /// Sends bytes over TLS without the last ones of their record.
    pub(crate) fn write_partly(&mut self, bytes: &[u8]) {
        self.handshake().expect("a sound handshake");
        let tls = self.tls.as_mut().expect("a secure line");
        tls.writer().write_all(bytes).expect("room");
        let mut record = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut record).expect("memory");
        }
        self.stream.write_all(&record[..record.len() - 1]).expect("loopback takes it");
    }

    pub(crate) fn tls(&self) -> &Connection {
        self.tls.as_ref().expect("a secure line")
    }

    pub(crate) fn connect(address: SocketAddr, is_secure: bool) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        Ok(if is_secure { Self::secure(stream) } else { Self::plain(stream) })
    }
}

impl Deref for Line {
    type Target = TcpStream;

    fn deref(&self) -> &TcpStream {
        &self.stream
    }
}

impl Read for Line {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return self.stream.read(buffer) };
        loop {
            match tls.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
            tls.complete_io(&mut self.stream)?;
        }
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return self.stream.write(bytes) };
        while tls.is_handshaking() {
            tls.complete_io(&mut self.stream)?;
        }
        let count = tls.writer().write(bytes)?;
        while tls.wants_write() {
            tls.write_tls(&mut self.stream)?;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Reads exactly `expected`.
#[track_caller]
pub(crate) fn expect(line: &mut Line, expected: &str) {
    let mut read = vec![0; expected.len()];
    line.read_exact(&mut read).expect("bytes in time");
    assert_eq!(String::from_utf8_lossy(&read), expected);
}
