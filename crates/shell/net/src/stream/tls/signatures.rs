//! Checks of the signatures of a handshake.

/// Defines the methods of a verifier that check signatures: as `rustls` does, with the algorithms of the verifier.
macro_rules! verify_signatures {
    (|$verifier:ident| $algorithms:expr) => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &rustls::pki_types::CertificateDer<'_>,
            signature: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            let $verifier = self;
            rustls::crypto::verify_tls12_signature(message, certificate, signature, &$algorithms)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &rustls::pki_types::CertificateDer<'_>,
            signature: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            let $verifier = self;
            rustls::crypto::verify_tls13_signature(message, certificate, signature, &$algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
            let $verifier = self;
            $algorithms.supported_schemes()
        }
    };
}

pub(super) use verify_signatures;
