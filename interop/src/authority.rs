//! Certificates made with `openssl`: an authority, what it issues, and what no peer should accept.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::Program;

/// Settings of `openssl ca`.
const SETTINGS: &str = "[ca]\ndefault_ca = authority\n[authority]\ndatabase = index.txt\nnew_certs_dir = .\n\
                        certificate = ca.pem\nprivate_key = ca.key\nserial = serial\ndefault_md = sha256\n\
                        default_days = 365\ndefault_crl_days = 30\npolicy = any\nunique_subject = no\n\
                        crlnumber = crlnumber\ncrl_extensions = list\ncopy_extensions = copy\n\
                        [any]\ncommonName = supplied\n[list]\nauthorityKeyIdentifier = keyid:always\n";

/// A certificate with its key.
#[derive(Clone, Debug)]
pub struct IssuedCertificate {
    /// PEM file of the certificate.
    pub certificate: PathBuf,
    /// PEM file of its key, readable by its owner only.
    pub key: PathBuf,
}

/// An authority whose files are removed with it.
#[derive(Debug)]
pub struct Authority {
    folder: TempDir,
}

impl Authority {
    /// Makes an authority. Returns `None` if `openssl` is not installed.
    ///
    /// # Panics
    /// If it is missing and `STROWGER_REQUIRE_INTEROP=1`.
    #[must_use]
    pub fn new() -> Option<Authority> {
        let folder = tempfile::Builder::new().prefix("authority-").tempdir().expect("a temporary folder");
        if !Program::OpenSsl.available() {
            return None;
        }
        let authority = Authority { folder };
        for (name, contents) in [("ca.cnf", SETTINGS), ("index.txt", ""), ("serial", "01\n"), ("crlnumber", "01\n")] {
            fs::write(authority.path(name), contents).expect("a file");
        }
        let is_authority = "basicConstraints=critical,CA:TRUE";
        let usage = "keyUsage=critical,keyCertSign,cRLSign";
        let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "ca.key"];
        let what = ["req", "-x509", "-subj", "/CN=an authority", "-days", "365", "-out", "ca.pem"];
        authority.run(what.iter().chain(&key).chain(&["-addext", is_authority, "-addext", usage]));
        Some(authority)
    }

    /// Returns the PEM file of its certificate.
    #[must_use]
    pub fn ca(&self) -> PathBuf {
        self.path("ca.pem")
    }

    /// Issues a certificate. `subject` is the value of a subjectAltName, such as `DNS:example.com,IP:127.0.0.1`.
    ///
    /// # Panics
    /// If `openssl` fails.
    #[must_use]
    pub fn issue(&self, name: &str, subject: &str) -> IssuedCertificate {
        self.issue_with(name, subject, &[])
    }

    /// Issues a certificate that has expired.
    ///
    /// # Panics
    /// If `openssl` fails.
    #[must_use]
    pub fn issue_expired(&self, name: &str, subject: &str) -> IssuedCertificate {
        self.issue_with(name, subject, &["-startdate", "20200101000000Z", "-enddate", "20210101000000Z"])
    }

    fn issue_with(&self, name: &str, subject: &str, validity: &[&str]) -> IssuedCertificate {
        let [request, certificate, key] = ["csr", "pem", "key"].map(|kind| format!("{name}.{kind}"));
        self.request(&["-new", "-out", &request], &key, name, subject);
        let sign = ["ca", "-batch", "-notext", "-config", "ca.cnf", "-in", &request, "-out", &certificate];
        self.run(sign.iter().chain(validity));
        IssuedCertificate { certificate: self.path(&certificate), key: self.path(&key) }
    }

    /// Makes a certificate that nobody but itself has signed.
    ///
    /// # Panics
    /// If `openssl` fails.
    #[must_use]
    pub fn self_signed(&self, name: &str, subject: &str) -> IssuedCertificate {
        let [certificate, key] = ["pem", "key"].map(|kind| format!("{name}.{kind}"));
        self.request(&["-x509", "-days", "365", "-out", &certificate], &key, name, subject);
        IssuedCertificate { certificate: self.path(&certificate), key: self.path(&key) }
    }

    /// Revokes a certificate and returns the file with the new list.
    ///
    /// # Panics
    /// If `openssl` fails.
    #[must_use]
    pub fn revoke(&self, certificate: &IssuedCertificate) -> PathBuf {
        let file = certificate.certificate.display().to_string();
        self.run(["ca", "-config", "ca.cnf", "-revoke", &file]);
        self.run(["ca", "-config", "ca.cnf", "-gencrl", "-out", "crl.pem"]);
        self.path("crl.pem")
    }

    /// Returns the section `[tls]` of a server with this certificate that trusts the authority, with further keys.
    #[must_use]
    pub fn section(&self, own: &IssuedCertificate, more: &str) -> String {
        let IssuedCertificate { certificate, key } = own;
        let ca = self.ca();
        format!("\n[tls]\ncertificates = [{{ certificate = {certificate:?}, key = {key:?} }}]\nca = {ca:?}\n{more}\n")
    }

    fn request(&self, what: &[&str], key: &str, name: &str, subject: &str) {
        let subject = format!("subjectAltName={subject}");
        let leaf = ["-addext", "basicConstraints=critical,CA:FALSE", "-addext", &subject];
        let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key];
        let name = format!("/CN={name}");
        self.run(["req", "-subj", &name].iter().chain(what).chain(&key).chain(&leaf));
    }

    fn run(&self, words: impl IntoIterator<Item = impl AsRef<OsStr>>) {
        let done = Command::new("openssl").args(words).current_dir(self.folder.path()).output().expect("it runs");
        assert!(done.status.success(), "openssl: {}", String::from_utf8_lossy(&done.stderr));
    }

    fn path(&self, name: &str) -> PathBuf {
        Path::new(self.folder.path()).join(name)
    }
}
