//! The certificate of the HTTP listener.

use strowger_control::config::Admin;
use strowger_http::HttpTls;

use crate::failure::Failure;
use crate::files;

/// Loads the listener's certificate, if it has one.
pub(crate) fn load(config: &Admin) -> Result<Option<HttpTls>, String> {
    let Some(files) = config.tls.as_ref().filter(|_| config.address().is_some()) else { return Ok(None) };
    let loaded = HttpTls::load(&files.certificate, &files.key);
    loaded.map(Some).map_err(|why| format!("admin.tls: {why}"))
}

/// Reads the certificate as a server would, for `strowger check`. That this user may not read a file is a warning: the
/// server may run as another one.
pub(crate) fn check(config: &Admin, warnings: &mut Vec<String>) -> Result<(), Failure> {
    let Some(tls) = config.tls.as_ref().filter(|_| config.address().is_some()) else { return Ok(()) };
    if let Some(file) = [&tls.certificate, &tls.key].into_iter().find(|file| files::is_forbidden(file)) {
        let file = file.display();
        warnings.push(format!("admin.tls: {file} may not be read by this user, so the certificate was not checked"));
        return Ok(());
    }
    load(config).map(drop).map_err(Failure::Usage)
}
