//! Certificates, keys and lists of revoked certificates in PEM files.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, RootCertStore};

use super::TlsError;
use super::identity::{SubjectNames, identities};
use super::validity::not_after;

/// A certificate of ours with its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// PEM file with the certificate and the chain that leads to its authority.
    pub certificate: PathBuf,
    /// PEM file with the private key.
    pub key: PathBuf,
}

/// What an operator wants to know of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateStatus {
    /// Its file.
    pub file: PathBuf,
    /// The domains that it speaks for.
    pub domains: Vec<String>,
    /// When it expires; `None` if that cannot be read.
    pub not_after: Option<SystemTime>,
}

/// A loaded certificate.
#[derive(Clone, Debug)]
pub(super) struct Loaded {
    pub(super) certified: Arc<CertifiedKey>,
    pub(super) status: CertificateStatus,
    /// All DNS names, by which a client may ask for it.
    pub(super) dns: Vec<String>,
}

/// Loads a certificate and its key.
pub(super) fn load(files: &CertificateFiles, provider: &CryptoProvider) -> Result<Loaded, TlsError> {
    let chain = certificates(&files.certificate)?;
    check_mode(&files.key)?;
    let key =
        PrivateKeyDer::from_pem_file(&files.key).map_err(|error| unreadable(&files.key, "private key", &error))?;
    let key = provider.key_provider.load_private_key(key).map_err(|error| {
        TlsError::new(&files.key, format!("is not a key that TLS can use: {error}; use an ECDSA P-256 or RSA key"))
    })?;
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
        Err(_) => {
            let certificate = files.certificate.display();
            return Err(TlsError::new(
                &files.key,
                format!("is not the key of {certificate}; name the two that belong together"),
            ));
        }
    }
    let leaf = certified.cert.first().map(AsRef::as_ref).unwrap_or_default();
    let (domains, dns) = names(leaf);
    let status = CertificateStatus { file: files.certificate.clone(), domains, not_after: not_after(leaf) };
    Ok(Loaded { certified: Arc::new(certified), status, dns })
}

/// Returns the SIP domains of a certificate, and its DNS names.
pub(super) fn names(certificate: &[u8]) -> (Vec<String>, Vec<String>) {
    let der = CertificateDer::from(certificate);
    let Ok(parsed) = webpki::EndEntityCert::try_from(&der) else { return (Vec::new(), Vec::new()) };
    let (uris, dns): (Vec<_>, Vec<_>) = (parsed.valid_uri_names().collect(), parsed.valid_dns_names().collect());
    let owned = |names: Vec<&str>| names.into_iter().map(str::to_ascii_lowercase).collect::<Vec<_>>();
    let domains = owned(identities(&SubjectNames { uris: &uris, dns: &dns }));
    (domains, owned(dns))
}

/// Reads the certificates of a file, at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(chain) if chain.is_empty() => Err(unreadable(path, "certificate", &pem::Error::NoItemsFound)),
        Ok(chain) => Ok(chain),
        Err(error) => Err(unreadable(path, "certificate", &error)),
    }
}

/// Reads the authorities that are trusted: those of `file`, or the system's.
pub(super) fn authorities(file: Option<&Path>) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    let Some(file) = file else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return Ok(roots);
    };
    for certificate in certificates(file)? {
        roots.add(certificate).map_err(|error| {
            TlsError::new(file, format!("has a certificate that cannot be an authority: {error}; remove it"))
        })?;
    }
    Ok(roots)
}

/// Reads lists of revoked certificates.
pub(super) fn revoked(file: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let lists = CertificateRevocationListDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    // Without a list, every revoked certificate would be accepted.
    let lists = lists.and_then(|lists| if lists.is_empty() { Err(pem::Error::NoItemsFound) } else { Ok(lists) });
    lists.map_err(|error| unreadable(file, "list of revoked certificates", &error))
}

fn unreadable(path: &Path, what: &str, error: &pem::Error) -> TlsError {
    match error {
        pem::Error::Io(error) => TlsError::new(path, format!("cannot be read: {error}")),
        pem::Error::NoItemsFound => TlsError::new(path, format!("contains no {what} in PEM form")),
        other => TlsError::new(path, format!("is damaged: {other}")),
    }
}

/// Refuses a key that other users can read.
fn check_mode(path: &Path) -> Result<(), TlsError> {
    const OTHERS: u32 = 0o077;
    let mode = fs::metadata(path)
        .map_err(|error| TlsError::new(path, format!("cannot be read: {error}")))?
        .permissions()
        .mode();
    if mode & OTHERS == 0 {
        return Ok(());
    }
    let shown = path.display();
    Err(TlsError::new(
        path,
        format!("is a private key that other users may read (mode {:03o}); run: chmod 600 {shown}", mode & 0o777),
    ))
}
