//! Options of TLS.

use std::path::PathBuf;
use std::sync::Arc;

use strowger_net::{CertificateFiles, ResumptionOfClients, TlsContext, TlsSettings};

use crate::engine::{Plan, PlanError};
use crate::handshakes::NOT_CHECKED;

/// Certificates and sessions, for TLS and secure WebSockets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecureOptions {
    /// Authorities of the server's certificate; `None` for the system's.
    pub ca: Option<PathBuf>,
    /// Our certificate, which callees need that are called directly, and callers if the server asks for one.
    pub certificate: Option<PathBuf>,
    /// Its key.
    pub key: Option<PathBuf>,
    /// Whether the server's certificate is accepted unchecked.
    pub is_unverified: bool,
    /// Whether each handshake is a full one.
    pub has_no_resumption: bool,
}

impl SecureOptions {
    /// Loads the files, if the plan's transport is secure.
    pub(crate) fn apply(&self, plan: &mut Plan) -> Result<(), PlanError> {
        if !plan.transport.is_secure() {
            let is_given = *self != Self::default();
            return if is_given { Err(PlanError(NEEDLESS.to_owned())) } else { Ok(()) };
        }
        let certificates = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => {
                vec![CertificateFiles { certificate: certificate.clone(), key: key.clone() }]
            }
            (None, None) => Vec::new(),
            _ => return Err(PlanError("--certificate and --key belong together; give both".to_owned())),
        };
        let settings = TlsSettings {
            certificates,
            ca: self.ca.clone(),
            resumption: if self.has_no_resumption { ResumptionOfClients::Off } else { ResumptionOfClients::Many },
            trusts_any_server: self.is_unverified,
            ..TlsSettings::default()
        };
        let context = TlsContext::new(&settings).map_err(|error| PlanError(error.to_string()))?;
        plan.tls = Some(Arc::new(context));
        Ok(())
    }

    /// Returns what a report declares about a plan over this transport.
    pub(crate) fn declared(&self, plan: &Plan) -> Vec<(String, String)> {
        let mut list = Vec::new();
        if plan.transport.is_secure() {
            let verified = match (self.is_unverified, &self.ca) {
                (true, _) => NOT_CHECKED.to_owned(),
                (false, Some(ca)) => format!("checked against {}", ca.display()),
                (false, None) => "checked against the authorities of the system".to_owned(),
            };
            list.push(("server certificate".to_owned(), verified));
            let resumption = if self.has_no_resumption { "off: each handshake is a full one" } else { "on" };
            list.push(("resumption".to_owned(), resumption.to_owned()));
        }
        list
    }
}

const NEEDLESS: &str =
    "--ca, --certificate, --key, --no-verify and --resumption are for TLS; begin the target with tls: or wss:";
