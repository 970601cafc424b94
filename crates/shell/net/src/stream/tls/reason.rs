//! Why a session failed, for the operator.

use rustls::{AlertDescription, CertificateError, Error, PeerIncompatible};

/// Returns why a session failed. The subject is the peer.
pub(super) fn reason_of(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(cause) => format!("its certificate is refused: {}", certificate(cause)),
        Error::NoCertificatesPresented => "it has no certificate, but tls.client_certificates requires one".to_owned(),
        Error::AlertReceived(alert) => format!("it refused: {}", alert_of(*alert)),
        Error::PeerIncompatible(cause) => {
            format!("it has no version or cipher suite in common: {}", incompatible(cause))
        }
        Error::InvalidMessage(_) => format!("it does not speak TLS: {error}"),
        _ => error.to_string(),
    }
}

fn certificate(cause: &CertificateError) -> String {
    match cause {
        CertificateError::UnknownIssuer => {
            "no trusted authority signed it (tls.ca), or the peer does not send the whole chain".to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "it has expired; the peer must renew it, or the clock of this machine is wrong".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet; the clock of this machine or of the peer is wrong".to_owned()
        }
        CertificateError::Revoked => "it is revoked (tls.crl)".to_owned(),
        CertificateError::ExpiredRevocationList | CertificateError::ExpiredRevocationListContext { .. } => {
            "the list of revoked certificates of its authority has expired (tls.crl); renew that file".to_owned()
        }
        CertificateError::Other(cause) => cause.0.to_string(),
        other => other.to_string(),
    }
}

/// Returns what an alert usually means.
fn alert_of(alert: AlertDescription) -> String {
    let meaning = match alert {
        AlertDescription::CertificateRequired => "it wants a certificate of ours (tls.certificates)",
        AlertDescription::UnknownCA | AlertDescription::BadCertificate | AlertDescription::CertificateUnknown => {
            "it does not trust our certificate (tls.certificates)"
        }
        AlertDescription::CertificateExpired => "our certificate has expired (tls.certificates)",
        AlertDescription::ProtocolVersion | AlertDescription::HandshakeFailure => {
            "no version or cipher suite in common (tls.min_version, tls.ciphers)"
        }
        AlertDescription::UnrecognisedName => "it has no certificate for the name that we called",
        _ => return format!("alert {alert:?}"),
    };
    format!("{meaning}; alert {alert:?}")
}

fn incompatible(cause: &PeerIncompatible) -> String {
    match cause {
        PeerIncompatible::SupportedVersionsExtensionRequired | PeerIncompatible::Tls12NotOffered => {
            "its versions are too old (tls.min_version)".to_owned()
        }
        other => format!("{other:?}"),
    }
}
