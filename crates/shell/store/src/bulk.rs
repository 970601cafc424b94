//! Many users at once, as another server had them.

use strowger_directory::Ha1s;

use crate::error::Fault;
use crate::ha1::check_realm;
use crate::place::Sql;
use crate::users::{hexadecimal, insert_user, is_user, target_of};
use crate::{Address, Place, StoreError, UserStore};

/// A user with the hashes of a password that nobody knows here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewUser {
    /// The address of record.
    pub address: Address,
    /// The realm of the hashes.
    pub realm: String,
    /// At least one hash.
    pub ha1: Ha1s,
}

/// What becomes of users that are there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// They stay as they are.
    Keep,
    /// They get the new realm and hashes.
    Replace,
}

/// What became of a user, or of a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Put {
    /// It is new.
    Added,
    /// It was there, and is now as it was given.
    Replaced,
    /// It was there, and is as it was.
    Kept,
    /// It cannot be there: why.
    Refused(String),
}

impl<P: Place> UserStore<P> {
    /// Adds `users` in one transaction, and says of each what became of it. One that is an alias, or has no hash, is refused, and the others are
    /// added all the same.
    ///
    /// # Errors
    /// What befalls the file; then nothing was changed.
    pub fn put_users(&mut self, users: &[NewUser], existing: Existing) -> Result<Vec<Put>, StoreError> {
        self.place.write(|sql| {
            let put = |user| {
                let fate = fate(sql, user, existing)?;
                carry_out(sql, user, &fate).map(|()| fate)
            };
            users.iter().map(put).collect()
        })
    }

    /// As [`put_users`](Self::put_users), but changes nothing.
    ///
    /// # Errors
    /// What befalls the file.
    pub fn would_put_users(&mut self, users: &[NewUser], existing: Existing) -> Result<Vec<Put>, StoreError> {
        self.place.read(|sql| users.iter().map(|user| fate(sql, user, existing)).collect())
    }
}

/// What becomes of the user.
fn fate(sql: &mut dyn Sql, user: &NewUser, existing: Existing) -> Result<Put, Fault> {
    if let Err(error) = check_realm(&user.realm) {
        return Ok(Put::Refused(error.to_string()));
    }
    if user.ha1.is_empty() {
        return Ok(Put::Refused("it has no hash".to_owned()));
    }
    if is_user(sql, &user.address)? {
        return Ok(if existing == Existing::Replace { Put::Replaced } else { Put::Kept });
    }
    match target_of(sql, &user.address)? {
        Some(aor) => Ok(Put::Refused(StoreError::UserIsAlias { alias: user.address.to_string(), aor }.to_string())),
        None => Ok(Put::Added),
    }
}

fn carry_out(sql: &mut dyn Sql, user: &NewUser, fate: &Put) -> Result<(), Fault> {
    match fate {
        Put::Added => insert_user(sql, &user.address, &user.realm, &user.ha1),
        Put::Replaced => {
            let [md5, sha256, sha512_256] = hexadecimal(&user.ha1);
            let update = format!(
                "UPDATE {} SET realm = ?, ha1_md5 = ?, ha1_sha256 = ?, ha1_sha512_256 = ? WHERE aor = ?",
                sql.tables().users
            );
            sql.execute(&update, &[user.realm.as_str().into(), md5, sha256, sha512_256, user.address.as_str().into()])?;
            Ok(())
        }
        Put::Kept | Put::Refused(_) => Ok(()),
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

        let would = store.would_put_users(&users, Existing::Keep).expect("sound");
        assert!(
            matches!(&would[..], [Put::Kept, Put::Added, Put::Refused(alias), Put::Refused(_)] if alias.contains("an alias of"))
        );
        assert_eq!(store.list().expect("sound").len(), 1);
        assert_eq!(store.put_users(&users, Existing::Keep).expect("sound"), would);
        assert_eq!(ha1(&store), before);
        assert_eq!(store.list().expect("sound").len(), 2);

        let replaced = store.put_users(&users[..2], Existing::Replace).expect("sound");
        assert_eq!(replaced, [Put::Replaced, Put::Replaced]);
        assert_eq!(ha1(&store), Some(users[0].ha1));
    }
}
