//! Certificates of the server: loaded, reloaded when their files change, and watched for their expiry.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use strowger_control::config::{self, Config};
use strowger_control::protocol::Certificate;
use strowger_net::{CertificateFiles, CertificateStatus, ClientCertificates, TlsContext, TlsSettings};

use crate::failure::Failure;
use crate::files;
use crate::text::count;

/// Interval at which the files are checked for changes.
const CHECK_EVERY: Duration = Duration::from_secs(5);
/// Interval at which an approaching expiry is logged.
const WARN_EVERY: Duration = Duration::from_secs(24 * 3600);
/// Days before its expiry from which a certificate is warned about.
pub(crate) const WARN_DAYS: i64 = 30;
/// The same for a list of revoked certificates. Authorities issue a new one every few days or weeks.
const WARN_DAYS_LIST: i64 = 2;

/// The certificates, if any listener needs them.
pub(crate) struct Certificates {
    context: Option<Arc<TlsContext>>,
    settings: TlsSettings,
    /// When the files were last changed.
    stamps: Vec<Option<FileStamp>>,
    next_check: Instant,
    next_warning: Instant,
}

impl Certificates {
    /// Loads the certificates of the configuration.
    pub(crate) fn load(config: &Config) -> Result<Self, Failure> {
        let settings = settings_of(config);
        // Before they are read: what changes meanwhile is read again.
        let stamps = stamps(&settings);
        let context = config.uses_tls().then(|| TlsContext::new(&settings)).transpose();
        let context = context.map_err(|error| Failure::No(format!("tls: {error}")))?.map(Arc::new);
        let now = Instant::now();
        let mut certificates = Self { context, settings, stamps, next_check: now, next_warning: now };
        certificates.warn();
        Ok(certificates)
    }

    /// Returns what the listeners need.
    pub(crate) const fn context(&self) -> Option<&Arc<TlsContext>> {
        self.context.as_ref()
    }

    /// Checks the certificates of a new configuration.
    pub(crate) fn check(&self, config: &Config) -> Result<(), String> {
        let is_needed = config.uses_tls() || self.context.is_some();
        let checked = is_needed.then(|| TlsContext::new(&settings_of(config))).transpose();
        checked.map(drop).map_err(|error| format!("tls: {error}"))
    }

    /// Returns what the listeners of a new configuration need.
    pub(crate) fn prepare(&self, config: &Config) -> Result<Option<Arc<TlsContext>>, String> {
        if self.context.is_some() || !config.uses_tls() {
            return Ok(self.context.clone());
        }
        let context = TlsContext::new(&settings_of(config)).map_err(|error| format!("tls: {error}"))?;
        Ok(Some(Arc::new(context)))
    }

    /// Loads the certificates of a new configuration into what was [prepared](Self::prepare) for it; connections that
    /// exist keep theirs.
    pub(crate) fn reload(&mut self, config: &Config, prepared: Option<Arc<TlsContext>>) -> Result<(), String> {
        let settings = settings_of(config);
        let stamps = stamps(&settings);
        if let Some(context) = &self.context {
            load_again(context, &settings)?;
        }
        self.context = prepared;
        (self.settings, self.stamps, self.next_warning) = (settings, stamps, Instant::now());
        self.warn();
        Ok(())
    }

    /// Loads files that have changed, and warns of an expiry.
    pub(crate) fn follow(&mut self) {
        let now = Instant::now();
        let Some(context) = self.context.as_ref().filter(|_| now >= self.next_check) else { return };
        self.next_check = now + CHECK_EVERY;
        let stamps = stamps(&self.settings);
        if stamps != self.stamps {
            match load_again(context, &self.settings) {
                Ok(()) => {
                    let all = count(self.settings.certificates.len() as u64, "certificate");
                    tracing::info!("tls: the files have changed; loaded {all}");
                    self.next_warning = now;
                }
                // While one of two files is replaced, they do not match.
                Err(error) => tracing::error!("the files of [tls] have changed, but are not used: {error}"),
            }
            self.stamps = stamps;
        }
        self.warn();
    }

    fn warn(&mut self) {
        let now = Instant::now();
        if self.context.is_none() || now < self.next_warning {
            return;
        }
        self.next_warning = now + WARN_EVERY;
        for Certificate { file, domains, expires_days } in self.status() {
            let of = domains.join(", ");
            match expires_days {
                Some(days @ ..0) => {
                    tracing::error!("tls: {file} ({of}) expired {}; renew it", count(days.unsigned_abs(), "day ago"));
                }
                Some(days @ ..=WARN_DAYS) => {
                    tracing::warn!("tls: {file} ({of}) expires in {}; renew it", count(days.unsigned_abs(), "day"));
                }
                _ => {}
            }
        }
        self.warn_of_list();
    }

    /// Warns of a list of revoked certificates that is about to expire.
    fn warn_of_list(&self) {
        let Some(file) = self.settings.crl.as_ref().map(|file| file.display()) else { return };
        match self.context.as_ref().and_then(|context| context.next_update()).map(days_until) {
            Some(..0) => tracing::error!(
                "tls: {file} (tls.crl) has expired; certificates of its authority are refused until you renew it"
            ),
            Some(days @ ..=WARN_DAYS_LIST) => tracing::warn!(
                "tls: {file} (tls.crl) expires in {}, and certificates of its authority are refused from then on; \
                 renew it",
                count(days.unsigned_abs(), "day")
            ),
            _ => {}
        }
    }

    /// Returns the certificates in use.
    pub(crate) fn status(&self) -> Vec<Certificate> {
        let all = self.context.as_ref().map(|context| context.certificates()).unwrap_or_default();
        all.into_iter().map(shown).collect()
    }
}

/// Reads the files as a server would, for `strowger check`. Returns the certificates; none if no listener needs any, or
/// if this user may not read a file, which is a warning: the server may run as another one.
pub(crate) fn check(config: &Config, warnings: &mut Vec<String>) -> Result<Vec<Certificate>, Failure> {
    let settings = settings_of(config);
    if !config.uses_tls() {
        return Ok(Vec::new());
    }
    if let Some(file) = files_of(&settings).find(|file| files::is_forbidden(file)) {
        let file = file.display();
        warnings.push(format!("tls: {file} may not be read by this user, so the certificates were not checked"));
        return Ok(Vec::new());
    }
    let context = TlsContext::new(&settings).map_err(|error| Failure::Usage(format!("tls: {error}")))?;
    let certificates: Vec<_> = context.certificates().into_iter().map(shown).collect();
    warnings.extend(certificates.iter().filter(|one| is_due(one)).map(|one| format!("tls: {}", line(one))));
    Ok(certificates)
}

/// Whether a certificate has expired or soon will.
pub(crate) fn is_due(certificate: &Certificate) -> bool {
    certificate.expires_days.is_some_and(|days| days <= WARN_DAYS)
}

/// Describes a certificate in a line.
pub(crate) fn line(certificate: &Certificate) -> String {
    let Certificate { file, domains, expires_days } = certificate;
    let until = match expires_days {
        None => "expiry unknown".to_owned(),
        Some(days @ ..0) => format!("EXPIRED {} days ago: renew it", days.unsigned_abs()),
        Some(days @ ..=WARN_DAYS) => format!("EXPIRES IN {days} DAYS: renew it"),
        Some(days) => format!("expires in {days} days"),
    };
    format!("{}, {until} ({file})", domains.join(", "))
}

/// Returns the number of full days until `at`, negative from then on.
fn days_until(at: SystemTime) -> i64 {
    const DAY: u64 = 24 * 3600;
    let days = |span: Duration| i64::try_from(span.as_secs() / DAY).unwrap_or(i64::MAX);
    match at.duration_since(SystemTime::now()) {
        Ok(left) => days(left),
        Err(over) => -1 - days(over.duration()),
    }
}

fn shown(certificate: CertificateStatus) -> Certificate {
    let expires_days = certificate.not_after.map(days_until);
    Certificate { file: certificate.file.display().to_string(), domains: certificate.domains, expires_days }
}

/// Returns the settings of the configuration.
pub(crate) fn settings_of(config: &Config) -> TlsSettings {
    let tls = &config.tls;
    let files =
        |one: &config::Certificate| CertificateFiles { certificate: one.certificate.clone(), key: one.key.clone() };
    TlsSettings {
        certificates: tls.certificates.iter().map(files).collect(),
        client_certificates: match tls.client_certificates {
            config::ClientCertificates::Off => ClientCertificates::Off,
            config::ClientCertificates::Optional => ClientCertificates::Optional,
            config::ClientCertificates::Required => ClientCertificates::Required,
        },
        ca: tls.ca.clone(),
        crl: tls.crl.clone(),
        is_13_only: tls.min_version == config::TlsVersion::V13,
        ciphers: tls.ciphers.clone(),
        ..TlsSettings::default()
    }
}

/// What changes when a file, its mode or the file behind its path does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp {
    inode: (u64, u64),
    written: (i64, i64),
    changed: (i64, i64),
}

/// Reads the files into a context that is in use.
fn load_again(context: &TlsContext, settings: &TlsSettings) -> Result<(), String> {
    files_of(settings).try_for_each(|file| files::refuse_pipe(file)).map_err(|why| format!("tls: {why}"))?;
    context.reload(settings).map_err(|error| format!("tls: {error}"))
}

/// Returns the files that are read.
fn files_of(settings: &TlsSettings) -> impl Iterator<Item = &PathBuf> {
    let own = settings.certificates.iter().flat_map(|one| [&one.certificate, &one.key]);
    own.chain(&settings.ca).chain(&settings.crl)
}

/// Returns the stamp of each file.
fn stamps(settings: &TlsSettings) -> Vec<Option<FileStamp>> {
    let stamp = |path: &PathBuf| {
        let data = std::fs::metadata(Path::new(path)).ok()?;
        let (written, changed) = ((data.mtime(), data.mtime_nsec()), (data.ctime(), data.ctime_nsec()));
        Some(FileStamp { inode: (data.dev(), data.ino()), written, changed })
    };
    files_of(settings).map(stamp).collect()
}
