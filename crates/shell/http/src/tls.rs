//! TLS of the listener: one certificate, which is loaded again when its files change.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

/// Interval at which the files are checked for changes.
const CHECK_EVERY: Duration = Duration::from_secs(5);

/// The certificate of a listener.
#[derive(Debug)]
pub struct HttpTls {
    certificate: PathBuf,
    key: PathBuf,
    current: Mutex<Current>,
}

#[derive(Debug)]
struct Current {
    config: Arc<ServerConfig>,
    stamps: [Option<Stamp>; 2],
    next_check: Instant,
}

/// What changes when a file, or the file behind its path, does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: (u64, u64),
    changed: (i64, i64),
    written: (i64, i64),
}

impl HttpTls {
    /// Loads a certificate with those that lead to its authority, and its key, both as PEM.
    ///
    /// # Errors
    /// A file cannot be read or used; the text names it and says what to do.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, String> {
        // Before they are read: what changes meanwhile is read again.
        let stamps = [certificate, key].map(stamp);
        let config = Arc::new(load(certificate, key)?);
        let current = Current { config, stamps, next_check: Instant::now() + CHECK_EVERY };
        Ok(Self { certificate: certificate.to_owned(), key: key.to_owned(), current: Mutex::new(current) })
    }

    /// Returns what accepts a connection, with the current certificate.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if now >= current.next_check {
            current.next_check = now + CHECK_EVERY;
            let stamps = [&self.certificate, &self.key].map(|path| stamp(path));
            if stamps != current.stamps {
                current.stamps = stamps;
                match load(&self.certificate, &self.key) {
                    Ok(config) => {
                        current.config = Arc::new(config);
                        tracing::info!("admin.tls: the files have changed; loaded the certificate");
                    }
                    // While one of two files is replaced, they do not match.
                    Err(why) => tracing::error!("admin.tls: the files have changed, but are not used: {why}"),
                }
            }
        }
        TlsAcceptor::from(Arc::clone(&current.config))
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let data = fs::metadata(path).ok()?;
    let (changed, written) = ((data.ctime(), data.ctime_nsec()), (data.mtime(), data.mtime_nsec()));
    Some(Stamp { inode: (data.dev(), data.ino()), changed, written })
}

fn load(certificate: &Path, key: &Path) -> Result<ServerConfig, String> {
    let (shown, shown_key) = (certificate.display(), key.display());
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(|error| format!("{shown} cannot be read: {error}; it must be a certificate as PEM"))?;
    if chain.is_empty() {
        return Err(format!("{shown} has no certificate; it must be a certificate as PEM"));
    }
    let mode = fs::metadata(key).map_err(|error| format!("{shown_key} cannot be read: {error}"))?.permissions().mode();
    if mode & 0o077 != 0 {
        let mode = mode & 0o777;
        return Err(format!(
            "{shown_key} is a private key that other users may read (mode {mode:03o}); run: chmod 600 {shown_key}"
        ));
    }
    let private = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| format!("{shown_key} cannot be read: {error}; it must be the private key as PEM"))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS cannot be used: {error}; please report it"))?;
    let config = versions.with_no_client_auth().with_single_cert(chain, private);
    let mut config =
        config.map_err(|error| format!("{shown} and {shown_key} cannot be used: {error}; they must match"))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
