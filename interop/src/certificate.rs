//! Self-signed certificates.

use std::io::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// A self-signed certificate and its key, made by `openssl` as docs/operating/tls.md says.
#[derive(Debug)]
pub struct Certificate {
    folder: TempDir,
}

impl Certificate {
    /// Makes a certificate for a domain and an address.
    ///
    /// # Panics
    /// If `openssl` fails: check [`Program::OpenSsl`](crate::Program::OpenSsl) first.
    #[must_use]
    pub fn new(domain: &str, address: IpAddr) -> Certificate {
        let folder = tempfile::Builder::new().prefix("certificate-").tempdir().expect("a temporary folder");
        let certificate = Certificate { folder };
        certificate.renew(domain, address);
        certificate
    }

    /// Replaces the certificate and its key.
    ///
    /// # Panics
    /// If `openssl` fails.
    pub fn renew(&self, domain: &str, address: IpAddr) {
        let names = format!("subjectAltName=DNS:{domain},IP:{address}");
        let mut openssl = Command::new("openssl");
        openssl.args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "365",
        ]);
        openssl.args(["-subj", "/CN=test", "-addext", &names, "-addext", "basicConstraints=critical,CA:FALSE"]);
        openssl.arg("-keyout").arg(self.key()).arg("-out").arg(self.file());
        let made = openssl.stderr(Stdio::null()).status().expect("openssl starts");
        assert!(made.success(), "openssl makes no certificate: {made}");
    }

    /// Returns the certificate's file.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.folder.path().join("certificate.pem")
    }

    /// Returns the key's file.
    #[must_use]
    pub fn key(&self) -> PathBuf {
        self.folder.path().join("key.pem")
    }

    /// Returns the configuration of a server with this certificate.
    #[must_use]
    pub fn section(&self) -> String {
        format!("\n[tls]\ncertificates = [{{ certificate = {:?}, key = {:?} }}]\n", self.file(), self.key())
    }
}

/// Returns the SHA-256 of the public key of a key file, in base64. A [`Browser`](crate::Browser) trusts certificates by it.
///
/// # Panics
/// If `openssl` fails.
#[must_use]
pub fn key_hash(key: &Path) -> String {
    let public = openssl(&["pkey", "-pubout", "-outform", "DER", "-in", &key.display().to_string()], &[]);
    let hash = openssl(&["dgst", "-sha256", "-binary"], &public);
    let text = openssl(&["base64", "-A"], &hash);
    String::from_utf8(text).expect("base64 is text")
}

fn openssl(arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut command = Command::new("openssl");
    let mut child =
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("openssl starts");
    child.stdin.take().expect("it has an input").write_all(input).expect("openssl reads its input");
    let output = child.wait_with_output().expect("openssl ends");
    assert!(output.status.success(), "`openssl {arguments:?}`: {}", output.status);
    output.stdout
}
