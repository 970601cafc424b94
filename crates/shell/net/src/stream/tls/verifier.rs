//! Checks of the peer's certificate.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DistinguishedName, Error, OtherError, RootCertStore};
use webpki::{
    EndEntityCert, ExpirationPolicy, KeyUsage, OwnedCertRevocationList, RevocationOptionsBuilder, UnknownStatusPolicy,
    VerifiedPath, anchor_from_trusted_cert,
};

use super::constraints::permits;
use super::identity::{SubjectNames, domain_of, identities, speaks_for};
use super::signatures::verify_signatures;

/// Checks that a chain leads to a trusted authority, is valid now and not revoked.
pub(super) struct ChainVerifier {
    roots: RootCertStore,
    revoked: Vec<webpki::CertRevocationList<'static>>,
    algorithms: WebPkiSupportedAlgorithms,
    hints: Vec<DistinguishedName>,
    /// Whether a client must have a certificate.
    is_mandatory: bool,
}

impl fmt::Debug for ChainVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChainVerifier").field("roots", &self.roots.len()).finish_non_exhaustive()
    }
}

impl ChainVerifier {
    pub(super) fn new(
        roots: RootCertStore,
        revoked: Vec<OwnedCertRevocationList>,
        algorithms: WebPkiSupportedAlgorithms,
        is_mandatory: bool,
    ) -> Self {
        let revoked = revoked.into_iter().map(webpki::CertRevocationList::from).collect();
        let hints = roots.subjects();
        Self { roots, revoked, algorithms, hints, is_mandatory }
    }

    fn verify(
        &self,
        leaf: &EndEntityCert<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
        usage: KeyUsage,
    ) -> Result<(), Error> {
        let lists: Vec<_> = self.revoked.iter().collect();
        // A list says nothing about the certificates of other authorities. An expired one lacks what its authority
        // has revoked since.
        let revocation = RevocationOptionsBuilder::new(&lists).ok().map(|options| {
            let options = options.with_status_policy(UnknownStatusPolicy::Allow);
            options.with_expiration_policy(ExpirationPolicy::Enforce).build()
        });
        let path = leaf
            .verify_for_usage(self.algorithms.all, &self.roots.roots, intermediates, now, usage, revocation, None)
            .map_err(explain)?;
        check_uri_domains(leaf, &path)
    }
}

/// Refuses a certificate with a `sip` URI whose domain an authority of its chain may not name.
fn check_uri_domains(leaf: &EndEntityCert<'_>, path: &VerifiedPath<'_>) -> Result<(), Error> {
    for domain in leaf.valid_uri_names().filter_map(domain_of) {
        let allows = |constraints: &[u8]| permits(constraints, domain);
        let of_anchor = path.anchor().name_constraints.as_ref();
        let is_allowed = of_anchor.is_none_or(|constraints| allows(constraints))
            && path.intermediate_certificates().all(|authority| {
                let der = authority.der();
                anchor_from_trusted_cert(&der).is_ok_and(|authority| {
                    authority.name_constraints.as_ref().is_none_or(|constraints| allows(constraints))
                })
            });
        if !is_allowed {
            let misissued = ForeignDomain(domain.to_owned());
            return Err(Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(misissued)))));
        }
    }
    Ok(())
}

/// A certificate for a domain that its authority may not name.
#[derive(Debug)]
struct ForeignDomain(String);

impl fmt::Display for ForeignDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "its authority may not issue certificates for {} (name constraints)", self.0)
    }
}

impl std::error::Error for ForeignDomain {}

/// Converts an error of the chain into one that is told to the peer by its alert.
fn explain(error: webpki::Error) -> Error {
    let error = match error {
        webpki::Error::CertExpired { time, not_after } => CertificateError::ExpiredContext { time, not_after },
        webpki::Error::CertNotValidYet { time, not_before } => {
            CertificateError::NotValidYetContext { time, not_before }
        }
        // An authority of the same name is trusted, but has another key.
        webpki::Error::UnknownIssuer | webpki::Error::InvalidSignatureForPublicKey => CertificateError::UnknownIssuer,
        webpki::Error::CertRevoked => CertificateError::Revoked,
        webpki::Error::CrlExpired { time, next_update } => {
            CertificateError::ExpiredRevocationListContext { time, next_update }
        }
        webpki::Error::BadDer | webpki::Error::BadDerTime => CertificateError::BadEncoding,
        other => CertificateError::Other(OtherError(Arc::new(other))),
    };
    Error::InvalidCertificate(error)
}

fn parse<'a>(certificate: &'a CertificateDer<'_>) -> Result<EndEntityCert<'a>, Error> {
    EndEntityCert::try_from(certificate).map_err(explain)
}

/// A valid certificate that does not speak for the domain that was called.
#[derive(Debug)]
struct WrongDomain {
    wanted: String,
    found: Vec<String>,
}

impl fmt::Display for WrongDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.found[..] {
            [] => write!(f, "it speaks for no domain, so not for {}", self.wanted),
            found => write!(f, "it speaks for {}, not for {}", found.join(", "), self.wanted),
        }
    }
}

impl std::error::Error for WrongDomain {}

/// Checks the certificate of a server by the rules of RFC 5922 §7.3.
#[derive(Debug)]
pub(super) struct ServerVerifier(pub(super) Arc<ChainVerifier>);

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let leaf = parse(end_entity)?;
        self.0.verify(&leaf, intermediates, now, KeyUsage::server_auth())?;
        let (uris, dns): (Vec<_>, Vec<_>) = (leaf.valid_uri_names().collect(), leaf.valid_dns_names().collect());
        let names = SubjectNames { uris: &uris, dns: &dns };
        //= rfc5922#7.3
        let is_it = match server_name {
            ServerName::DnsName(name) => speaks_for(&names, name.as_ref()),
            address => leaf.verify_is_valid_for_subject_name(address).is_ok(),
        };
        if is_it {
            return Ok(ServerCertVerified::assertion());
        }
        let found = identities(&names).into_iter().map(str::to_owned).collect();
        let wrong = WrongDomain { wanted: server_name.to_str().into_owned(), found };
        Err(Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(wrong)))))
    }

    verify_signatures!(|verifier| verifier.0.algorithms);
}

/// Checks the certificate of a client, if it has one. Which domains it speaks for is for others to judge.
#[derive(Debug)]
pub(super) struct ClientVerifier(pub(super) Arc<ChainVerifier>);

impl ClientCertVerifier for ClientVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.0.is_mandatory
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.0.hints
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.0.verify(&parse(end_entity)?, intermediates, now, KeyUsage::client_auth())?;
        Ok(ClientCertVerified::assertion())
    }

    verify_signatures!(|verifier| verifier.0.algorithms);
}
