//! Bulk import of users from another server.

use strowger_directory::Ha1s;

use crate::backend::Sql;
use crate::error::Fault;
use crate::ha1::check_realm;
use crate::users::{hexadecimal, insert_user, is_user, target_of};
use crate::{Address, Backend, StoreError, UserStore};

/// A user with password hashes; the password is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewUser {
    /// Address of record.
    pub address: Address,
    /// Realm of the hashes.
    pub realm: String,
    /// At least one hash.
    pub ha1: Ha1s,
}

/// What to do with users that exist already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnConflict {
    /// Keep them unchanged.
    Keep,
    /// Replace realm and hashes.
    Replace,
}

/// Outcome of adding a user or a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// It was added.
    Added,
    /// It existed and was replaced.
    Replaced,
    /// It existed and was kept.
    Kept,
    /// It was refused, with the reason.
    Refused(String),
}

impl<P: Backend> UserStore<P> {
    /// Adds `users` in one transaction and returns the outcome for each. A user that is an alias or has no hash is
    /// refused; the others are added regardless.
    ///
    /// # Errors
    /// File errors; nothing was changed then.
    pub fn put_users(&mut self, users: &[NewUser], existing: OnConflict) -> Result<Vec<PutOutcome>, StoreError> {
        self.backend.write(|sql| {
            let put = |user| {
                let fate = put_outcome(sql, user, existing)?;
                apply_put(sql, user, &fate).map(|()| fate)
            };
            users.iter().map(put).collect()
        })
    }

    /// Like [`put_users`](Self::put_users), but changes nothing.
    ///
    /// # Errors
    /// File errors.
    pub fn dry_run_put_users(
        &mut self,
        users: &[NewUser],
        existing: OnConflict,
    ) -> Result<Vec<PutOutcome>, StoreError> {
        self.backend.read(|sql| users.iter().map(|user| put_outcome(sql, user, existing)).collect())
    }
}

/// Returns the outcome of putting a user.
fn put_outcome(sql: &mut dyn Sql, user: &NewUser, existing: OnConflict) -> Result<PutOutcome, Fault> {
    if let Err(error) = check_realm(&user.realm) {
        return Ok(PutOutcome::Refused(error.to_string()));
    }
    if user.ha1.is_empty() {
        return Ok(PutOutcome::Refused("it has no hash".to_owned()));
    }
    if is_user(sql, &user.address)? {
        return Ok(if existing == OnConflict::Replace { PutOutcome::Replaced } else { PutOutcome::Kept });
    }
    match target_of(sql, &user.address)? {
        Some(aor) => {
            Ok(PutOutcome::Refused(StoreError::UserIsAlias { alias: user.address.to_string(), aor }.to_string()))
        }
        None => Ok(PutOutcome::Added),
    }
}

fn apply_put(sql: &mut dyn Sql, user: &NewUser, fate: &PutOutcome) -> Result<(), Fault> {
    match fate {
        PutOutcome::Added => insert_user(sql, &user.address, &user.realm, &user.ha1),
        PutOutcome::Replaced => {
            let [md5, sha256, sha512_256] = hexadecimal(&user.ha1);
            let update = format!(
                "UPDATE {} SET realm = ?, ha1_md5 = ?, ha1_sha256 = ?, ha1_sha512_256 = ? WHERE aor = ?",
                sql.tables().users
            );
            sql.execute(&update, &[user.realm.as_str().into(), md5, sha256, sha512_256, user.address.as_str().into()])?;
            Ok(())
        }
        PutOutcome::Kept | PutOutcome::Refused(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ha1s;

    fn user(address: &str, password: &str) -> NewUser {
        let address = Address::parse(address).expect("an address");
        let ha1 = ha1s(address.user(), "example.com", password);
        NewUser { address, realm: "example.com".to_owned(), ha1 }
    }

    #[test]
    fn users_are_added_kept_replaced_and_refused() {
        let mut store = UserStore::open_memory().expect("memory");
        store.add_user("alice@example.com", "example.com", "old").expect("added");
        store.add_alias("100@example.com", "alice@example.com").expect("added");
        let nothing = NewUser { ha1: Ha1s::default(), ..user("dave@example.com", "") };
        let users =
            [user("alice@example.com", "new"), user("bob@example.com", "x"), user("100@example.com", "x"), nothing];
        let ha1 = |store: &UserStore| store.load(1).expect("sound").0.user(b"alice@example.com").map(|user| user.ha1);
        let before = ha1(&store);

        let would = store.dry_run_put_users(&users, OnConflict::Keep).expect("sound");
        assert!(
            matches!(&would[..], [PutOutcome::Kept, PutOutcome::Added, PutOutcome::Refused(alias), PutOutcome::Refused(_)] if alias.contains("an alias of"))
        );
        assert_eq!(store.list().expect("sound").len(), 1);
        assert_eq!(store.put_users(&users, OnConflict::Keep).expect("sound"), would);
        assert_eq!(ha1(&store), before);
        assert_eq!(store.list().expect("sound").len(), 2);

        let replaced = store.put_users(&users[..2], OnConflict::Replace).expect("sound");
        assert_eq!(replaced, [PutOutcome::Replaced, PutOutcome::Replaced]);
        assert_eq!(ha1(&store), Some(users[0].ha1));
    }
}
