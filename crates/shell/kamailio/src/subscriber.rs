//! The table `subscriber`.

use data_encoding::HEXLOWER_PERMISSIVE;
use strowger_directory::Ha1s;
use strowger_sql::Row;
use strowger_store::{Address, ha1s};

use crate::row::{BadRow, text};
use crate::versions::Table;

/// Domain and realm of subscribers whose row does not have them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Domain of rows without one.
    pub domain: String,
    /// Realm of the hashes; `None` for each subscriber's domain.
    pub realm: Option<String>,
}

/// A row of `subscriber`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscriber {
    /// Address of record.
    pub address: Address,
    /// Realm of the hashes.
    pub realm: String,
    /// Password hashes, from the row's password if it has one, else from its hash columns.
    pub ha1: Ha1s,
    /// Whether the row has the password.
    pub has_password: bool,
    /// Whether the row's password does not match its `ha1`. The password is used.
    pub has_hash_mismatch: bool,
}

impl Subscriber {
    /// Parses a row; `identity` provides what is missing.
    ///
    /// # Errors
    /// [`BadRow`] if it has no address, or neither password nor hash.
    pub fn read(row: &Row, identity: &Identity) -> Result<Self, BadRow> {
        let username = text(row, "username").unwrap_or_default();
        let domain = Some(text(row, "domain").unwrap_or_default()).filter(|domain| !domain.is_empty());
        let domain = domain.unwrap_or(&identity.domain);
        let bad = |why: String| BadRow { table: Table::Subscriber, row: format!("{username}@{domain}"), why };
        let address = Address::parse(&format!("{username}@{domain}")).map_err(|error| bad(error.to_string()))?;
        let realm = identity.realm.clone().unwrap_or_else(|| address.domain().to_owned());
        let hashes = hashes(row).map_err(&bad)?;
        let password = text(row, "password").filter(|password| !password.is_empty());
        if let Some(password) = password {
            let of_password = ha1s(address.user(), &realm, password);
            let contradicts = hashes.md5.is_some_and(|hash| of_password.md5 != Some(hash));
            return Ok(Self { address, realm, ha1: of_password, has_password: true, has_hash_mismatch: contradicts });
        }
        if hashes.is_empty() {
            let only_ha1b = text(row, "ha1b").is_some_and(|hash| !hash.is_empty());
            return Err(bad(match only_ha1b {
                true => "it has only ha1b, the hash for user names of the form user@domain, which are not supported",
                false => "it has neither a password nor a hash",
            }
            .to_owned()));
        }
        Ok(Self { address, realm, ha1: hashes, has_password: false, has_hash_mismatch: false })
    }
}

/// Reads the hash columns: `ha1`, which is SHA-256 if it has 64 digits, and the additional columns of OpenSIPS.
fn hashes(row: &Row) -> Result<Ha1s, String> {
    let sha256 = hash(row, "ha1_sha256")?;
    let sha512_256 = hash(row, "ha1_sha512t256")?;
    let is_sha256 = text(row, "ha1").is_some_and(|digits| digits.trim().len() == 64);
    if is_sha256 {
        return Ok(Ha1s { md5: None, sha256: hash(row, "ha1")?.or(sha256), sha512_256 });
    }
    Ok(Ha1s { md5: hash(row, "ha1")?, sha256, sha512_256 })
}

fn hash<const N: usize>(row: &Row, column: &str) -> Result<Option<[u8; N]>, String> {
    let digits = text(row, column).unwrap_or_default().trim();
    if digits.is_empty() {
        return Ok(None);
    }
    let bytes = HEXLOWER_PERMISSIVE.decode(digits.as_bytes()).ok();
    let hash = bytes.and_then(|bytes| bytes.try_into().ok());
    hash.map(Some).ok_or_else(|| format!("{column} is not {} hexadecimal digits", 2 * N))
}
