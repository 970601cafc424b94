//! TLS over TCP: settings, certificates, and sessions.

mod clients;
mod constraints;
mod der;
mod files;
mod identity;
mod reason;
mod records;
mod session;
mod signatures;
mod validity;
mod verifier;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use rustls::client::ClientConnection;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::ServerName;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, ServerConnection, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ServerConfig, SupportedCipherSuite, SupportedProtocolVersion, version};
use webpki::OwnedCertRevocationList;

pub use clients::ResumptionOfClients;
pub use files::{CertificateFiles, CertificateStatus};
pub use identity::{SubjectNames, identities, is_same_domain, speaks_for};
pub(super) use session::TlsSession;

use clients::AnyServer;
use files::Loaded;
use verifier::{ChainVerifier, ClientVerifier, ServerVerifier};

/// Number of tickets for a client of TLS 1.3. It needs one to come back.
const TICKETS: usize = 1;

/// Whether clients are asked for a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientCertificates {
    /// They are not.
    #[default]
    Off,
    /// They are, and one that is presented must be valid.
    Optional,
    /// Only clients with a valid certificate are let in.
    Required,
}

/// Settings of TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsSettings {
    /// Our certificates. The first is for clients that name no server, or one that no certificate has.
    pub certificates: Vec<CertificateFiles>,
    /// Whether clients need a certificate.
    pub client_certificates: ClientCertificates,
    /// Authorities of peers' certificates; `None` for the system's.
    pub ca: Option<PathBuf>,
    /// Certificates that are revoked.
    pub crl: Option<PathBuf>,
    /// Whether TLS 1.2 is refused.
    pub is_13_only: bool,
    /// Names of the cipher suites in order; empty for all that are safe.
    pub ciphers: Vec<String>,
    /// How connections that we open continue earlier sessions.
    pub resumption: ResumptionOfClients,
    /// Whether the certificates of servers that we call are not checked. Only for programs that measure.
    pub trusts_any_server: bool,
}

/// A setting that cannot be used. Says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsError {
    file: Option<PathBuf>,
    message: String,
}

impl TlsError {
    fn new(file: &Path, message: String) -> Self {
        Self { file: Some(file.to_owned()), message }
    }

    fn general(message: String) -> Self {
        Self { file: None, message }
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) => write!(f, "{} {}", file.display(), self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for TlsError {}

/// What connections need: certificates, authorities, keys of tickets. Shared by all workers; connections that exist
/// keep what they began with when it is [reloaded](Self::reload).
#[derive(Debug)]
pub struct TlsContext {
    current: RwLock<Arc<Current>>,
}

#[derive(Debug)]
struct Current {
    server: Option<Arc<ServerConfig>>,
    client: Arc<ClientConfig>,
    certificates: Vec<CertificateStatus>,
    /// When the first of the lists of revoked certificates expires.
    next_update: Option<SystemTime>,
}

impl TlsContext {
    /// Loads the files of `settings`.
    ///
    /// # Errors
    /// The first file or value that cannot be used.
    pub fn new(settings: &TlsSettings) -> Result<Self, TlsError> {
        Ok(Self { current: RwLock::new(Arc::new(Current::load(settings)?)) })
    }

    /// Loads everything again, for new connections. If that fails, nothing changes.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn reload(&self, settings: &TlsSettings) -> Result<(), TlsError> {
        let loaded = Arc::new(Current::load(settings)?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = loaded;
        Ok(())
    }

    /// Returns our certificates.
    #[must_use]
    pub fn certificates(&self) -> Vec<CertificateStatus> {
        self.current().certificates.clone()
    }

    /// Returns when the first of the lists of revoked certificates expires, if there is one. Afterwards, certificates
    /// of its authority are refused.
    #[must_use]
    pub fn next_update(&self) -> Option<SystemTime> {
        self.current().next_update
    }

    fn current(&self) -> Arc<Current> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Begins the session of an accepted connection.
    pub(super) fn accept(&self) -> Result<TlsSession, rustls::Error> {
        let current = self.current();
        let Some(server) = &current.server else { return Err(rustls::Error::General("no certificate".to_owned())) };
        Ok(TlsSession::new(ServerConnection::new(Arc::clone(server))?.into()))
    }

    /// Begins the session of a connection to `host`, whose certificate must speak for that name or address.
    pub(super) fn connect(&self, host: &str) -> Result<TlsSession, rustls::Error> {
        let name = match identity::literal(host) {
            Some(ip) => ServerName::from(ip),
            None => ServerName::try_from(host.to_owned())
                .map_err(|_| rustls::Error::General(format!("{host} is not a name that a certificate can have")))?,
        };
        Ok(TlsSession::new(ClientConnection::new(Arc::clone(&self.current().client), name)?.into()))
    }
}

impl Current {
    fn load(settings: &TlsSettings) -> Result<Self, TlsError> {
        let provider = Arc::new(provider(&settings.ciphers)?);
        let versions: &[&SupportedProtocolVersion] =
            if settings.is_13_only { &[&version::TLS13] } else { &[&version::TLS13, &version::TLS12] };
        let loaded: Vec<Loaded> =
            settings.certificates.iter().map(|files| files::load(files, &provider)).collect::<Result<_, _>>()?;
        let roots = files::authorities(settings.ca.as_deref())?;
        let (revoked, next_update) = settings.crl.as_deref().map(revoked).transpose()?.unwrap_or_default();
        let is_mandatory = settings.client_certificates == ClientCertificates::Required;
        let algorithms = provider.signature_verification_algorithms;
        let chain = Arc::new(ChainVerifier::new(roots, revoked, algorithms, is_mandatory));
        let unusable =
            |error: rustls::Error| TlsError::general(format!("TLS cannot be used with these settings: {error}"));
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(versions);
        let client = client.map_err(unusable)?.dangerous();
        let client = match settings.trusts_any_server {
            false => client.with_custom_certificate_verifier(Arc::new(ServerVerifier(Arc::clone(&chain)))),
            true => client.with_custom_certificate_verifier(Arc::new(AnyServer(algorithms))),
        };
        let resolver = Arc::new(Resolver(loaded.clone()));
        let mut client = client.with_client_cert_resolver(Arc::clone(&resolver) as _);
        client.resumption = settings.resumption.store();
        let server = match loaded.is_empty() {
            true => None,
            false => {
                let server = ServerConfig::builder_with_provider(provider).with_protocol_versions(versions);
                let server = server.map_err(unusable)?;
                let server = match settings.client_certificates {
                    ClientCertificates::Off => server.with_client_cert_verifier(WebPkiClientVerifier::no_client_auth()),
                    _ => server.with_client_cert_verifier(Arc::new(ClientVerifier(chain))),
                };
                let mut server = server.with_cert_resolver(resolver);
                server.session_storage = Arc::new(NoServerSessionStorage {});
                server.ticketer = ring::Ticketer::new().map_err(unusable)?;
                server.send_tls13_tickets = TICKETS;
                Some(Arc::new(server))
            }
        };
        let certificates = loaded.into_iter().map(|one| one.status).collect();
        Ok(Self { server, client: Arc::new(client), certificates, next_update })
    }
}

/// Returns the cryptography with the named suites, or all.
fn provider(ciphers: &[String]) -> Result<CryptoProvider, TlsError> {
    let mut provider = ring::default_provider();
    if ciphers.is_empty() {
        return Ok(provider);
    }
    let all = std::mem::take(&mut provider.cipher_suites);
    for name in ciphers {
        let known = |suite: &&SupportedCipherSuite| name_of(suite).eq_ignore_ascii_case(name);
        let Some(suite) = all.iter().find(known) else {
            let names: Vec<_> = all.iter().map(name_of).collect();
            return Err(TlsError::general(format!("{name:?} is not a cipher suite; known are {}", names.join(", "))));
        };
        provider.cipher_suites.push(*suite);
    }
    Ok(provider)
}

/// Returns the name of a suite as registered at IANA.
fn name_of(suite: &SupportedCipherSuite) -> String {
    let name = format!("{:?}", suite.suite());
    name.strip_prefix("TLS13_").map_or(name.clone(), |rest| format!("TLS_{rest}"))
}

/// Reads lists of revoked certificates, and when the first of them expires.
fn revoked(file: &Path) -> Result<(Vec<OwnedCertRevocationList>, Option<SystemTime>), TlsError> {
    let parse = |list: rustls::pki_types::CertificateRevocationListDer<'_>| {
        OwnedCertRevocationList::from_der(&list)
            .map_err(|error| TlsError::new(file, format!("is not a usable list of revoked certificates: {error}; its authority must write version 2 with a CRL number and a nextUpdate")))
    };
    let lists = files::revoked(file)?;
    let first_to_expire = lists.iter().filter_map(|list| validity::next_update(list)).min();
    Ok((lists.into_iter().map(parse).collect::<Result<_, _>>()?, first_to_expire))
}

/// Selects the certificate by the name that the client asks for.
#[derive(Debug)]
struct Resolver(Vec<Loaded>);

impl Resolver {
    fn named(&self, wanted: &str) -> Option<&Loaded> {
        let exact = |one: &&Loaded| one.dns.iter().any(|name| name.eq_ignore_ascii_case(wanted));
        let domain = |one: &&Loaded| one.status.domains.iter().any(|name| name.eq_ignore_ascii_case(wanted));
        let parent = wanted.split_once('.').map(|(_, parent)| parent);
        let wildcard = |one: &&Loaded| {
            one.dns.iter().any(|name| parent.is_some_and(|parent| name.strip_prefix("*.") == Some(parent)))
        };
        self.0.iter().find(exact).or_else(|| self.0.iter().find(domain)).or_else(|| self.0.iter().find(wildcard))
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let named = hello.server_name().and_then(|wanted| self.named(wanted));
        named.or_else(|| self.0.first()).map(|one| Arc::clone(&one.certified))
    }
}

impl rustls::client::ResolvesClientCert for Resolver {
    fn resolve(&self, _: &[&[u8]], _: &[rustls::SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.first().map(|one| Arc::clone(&one.certified))
    }

    fn has_certs(&self) -> bool {
        !self.0.is_empty()
    }
}
