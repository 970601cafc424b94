//! The table `subscriber`.

use data_encoding::HEXLOWER_PERMISSIVE;
use strowger_directory::Ha1s;
use strowger_sql::Row;
use strowger_store::{Address, ha1s};

use crate::tables::{BadRow, text};
use crate::versions::Table;

/// What a subscriber is called where the table does not say it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The domain of rows that have none.
    pub domain: String,
    /// The realm that hashes are made with; `None` for the domain of each.
    pub realm: Option<String>,
}

/// A row of `subscriber`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscriber {
    /// The address of record.
    pub address: Address,
    /// The realm of the hashes.
    pub realm: String,
    /// What proves the subscriber, of the password where the row has one, else of the row's hashes.
    pub ha1: Ha1s,
    /// The row has the password.
    pub has_password: bool,
    /// The password and the hash `ha1` of the row are not of one another: the password is taken.
    pub has_hash_mismatch: bool,
}

impl Subscriber {
    /// Reads a row; what is missing is taken from `identity`.
    ///
    /// # Errors
    /// [`BadRow`] where it has no address, or nothing that proves the subscriber.
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
                true => "it has ha1b alone, the hash of who sends user@domain as the user's name, which is not served",
                false => "it has neither a password nor a hash",
            }
            .to_owned()));
        }
        Ok(Self { address, realm, ha1: hashes, has_password: false, has_hash_mismatch: false })
    }
}

/// The hashes in their columns: `ha1`, which with 64 digits is one of SHA-256, and those that OpenSIPS has besides.
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
