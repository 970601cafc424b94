//! A certificate authority for tests, with its files in a folder of their own.

#![allow(dead_code, reason = "each test file uses a part")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, NameConstraints, RevokedCertParams, SanType,
    SerialNumber, date_time_ymd,
};
use strowger_net::CertificateFiles;
use tempfile::TempDir;

/// An authority whose files are removed with it.
pub(crate) struct Authority {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
    /// The certificate of the authority.
    pub(crate) ca: PathBuf,
    count: u64,
}

impl Authority {
    pub(crate) fn new() -> Self {
        Self::limited_to(&[])
    }

    /// Makes an authority for these domains and those below them only; without any, for all.
    pub(crate) fn limited_to(domains: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "an authority of tests");
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let permitted: Vec<_> = domains.iter().map(|domain| GeneralSubtree::DnsName((*domain).to_owned())).collect();
        params.name_constraints = (!permitted.is_empty())
            .then(|| NameConstraints { permitted_subtrees: permitted, excluded_subtrees: Vec::new() });
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        let ca = folder.path().join("ca.pem");
        fs::write(&ca, certificate.pem()).expect("a file");
        Self { folder, issuer: Issuer::new(params, key), ca, count: 0 }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Issues a certificate for names and addresses; those with a colon are URIs.
    pub(crate) fn issue(&mut self, names: &[&str]) -> CertificateFiles {
        self.issue_with(names, |_| {})
    }

    /// Issues a certificate that has expired.
    pub(crate) fn issue_expired(&mut self, names: &[&str]) -> CertificateFiles {
        self.issue_with(names, |params| params.not_after = date_time_ymd(2020, 1, 1))
    }

    pub(crate) fn issue_with(
        &mut self,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> CertificateFiles {
        self.count += 1;
        let is_uri = |name: &&&str| name.starts_with("sip");
        let plain: Vec<String> = names.iter().filter(|name| !is_uri(name)).map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(plain).expect("names");
        let uris = names.iter().filter(is_uri);
        params.subject_alt_names.extend(uris.map(|uri| SanType::URI((*uri).try_into().expect("ASCII"))));
        params.serial_number = Some(SerialNumber::from(self.count));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        self.write(&certificate.pem(), &key)
    }

    /// Makes a certificate that nobody but itself has signed.
    pub(crate) fn self_signed(&mut self, names: &[&str]) -> CertificateFiles {
        self.count += 1;
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().expect("a key");
        let certificate = CertificateParams::new(names).and_then(|params| params.self_signed(&key)).expect("names");
        self.write(&certificate.pem(), &key)
    }

    /// Writes a list of revoked certificates, by the order of their issue from 1.
    pub(crate) fn revoke(&self, serials: &[u64]) -> PathBuf {
        self.revoke_until(serials, 2099)
    }

    /// Writes such a list that expires at the beginning of a year.
    pub(crate) fn revoke_until(&self, serials: &[u64], year: i32) -> PathBuf {
        let revoked = serials.iter().map(|serial| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: date_time_ymd(2024, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2024, 1, 1),
            next_update: date_time_ymd(year, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let path = self.folder.path().join("crl.pem");
        let list = list.signed_by(&self.issuer).expect("a list");
        fs::write(&path, list.pem().expect("text")).expect("a file");
        path
    }

    fn write(&self, certificate: &str, key: &KeyPair) -> CertificateFiles {
        let path = |what| self.folder.path().join(format!("{}-{what}.pem", self.count));
        let files = CertificateFiles { certificate: path("certificate"), key: path("key") };
        fs::write(&files.certificate, certificate).expect("a file");
        fs::write(&files.key, key.serialize_pem()).expect("a file");
        fs::set_permissions(&files.key, fs::Permissions::from_mode(0o600)).expect("our file");
        files
    }
}
