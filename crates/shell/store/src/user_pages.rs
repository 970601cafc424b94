//! Lists of users in pages, for databases with more users than anybody reads at once.

use strowger_sql::Value;

use crate::backend::Sql;
use crate::error::Fault;
use crate::users::user_entry;
use crate::{Address, AliasEntry, Backend, StoreError, UserEntry, UserStore};

/// Maximum number of users of a page.
pub const MAX_PAGE: usize = 1_000;

const COLUMNS: &str = "aor, realm, ha1_md5, ha1_sha256, ha1_sha512_256, enabled, created";

/// Selection of users.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserSelection<'a> {
    /// Text that the address, or an alias, contains.
    pub search: Option<&'a str>,
    /// Address that those of the page sort after.
    pub after: Option<&'a str>,
    /// Maximum number, up to [`MAX_PAGE`].
    pub limit: usize,
}

/// A page of users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The users, ordered by address.
    pub users: Vec<UserEntry>,
    /// Their aliases, ordered by alias.
    pub aliases: Vec<AliasEntry>,
    /// Whether there are more users.
    pub more: bool,
}

impl<P: Backend> UserStore<P> {
    /// Returns a page of users with their aliases.
    ///
    /// # Errors
    /// File errors.
    pub fn page(&mut self, selection: &UserSelection<'_>) -> Result<Page, StoreError> {
        let limit = selection.limit.clamp(1, MAX_PAGE);
        self.backend.read(|sql| {
            let (users, aliases) = (sql.tables().users, sql.tables().aliases);
            let mut conditions = Vec::new();
            let mut values: Vec<Value> = Vec::new();
            if let Some(after) = selection.after {
                conditions.push("aor > ?".to_owned());
                values.push(after.into());
            }
            if let Some(search) = selection.search {
                let pattern = format!("%{}%", escaped(search));
                conditions.push(format!(
                    "(aor LIKE ? ESCAPE '!' OR aor IN (SELECT aor FROM {aliases} WHERE alias LIKE ? ESCAPE '!'))"
                ));
                values.extend([Value::from(pattern.as_str()), pattern.as_str().into()]);
            }
            let all = if conditions.is_empty() { String::new() } else { format!("WHERE {}", conditions.join(" AND ")) };
            let query = format!("SELECT {COLUMNS} FROM {users} {all} ORDER BY aor LIMIT {}", limit + 1);
            let mut found: Vec<_> = sql.query(&query, &values)?.iter().map(user_entry).collect::<Result<_, _>>()?;
            let more = found.len() > limit;
            found.truncate(limit);
            Ok(Page { aliases: aliases_of(sql, &found)?, users: found, more })
        })
    }

    /// Returns a user with its aliases, if it exists.
    ///
    /// # Errors
    /// File errors.
    pub fn find(&mut self, address: &Address) -> Result<Option<(UserEntry, Vec<AliasEntry>)>, StoreError> {
        self.backend.read(|sql| {
            let query = format!("SELECT {COLUMNS} FROM {} WHERE aor = ?", sql.tables().users);
            let Some(row) = sql.query(&query, &[address.as_str().into()])?.into_iter().next() else { return Ok(None) };
            let user = user_entry(&row)?;
            let aliases = aliases_of(sql, std::slice::from_ref(&user))?;
            Ok(Some((user, aliases)))
        })
    }
}

fn aliases_of(sql: &mut dyn Sql, users: &[UserEntry]) -> Result<Vec<AliasEntry>, Fault> {
    if users.is_empty() {
        return Ok(Vec::new());
    }
    let places = vec!["?"; users.len()].join(", ");
    let query = format!("SELECT alias, aor FROM {} WHERE aor IN ({places}) ORDER BY alias", sql.tables().aliases);
    let values: Vec<Value> = users.iter().map(|user| user.aor.as_str().into()).collect();
    let rows = sql.query(&query, &values)?;
    rows.iter().map(|row| Ok(AliasEntry { alias: row.text(0)?, aor: row.text(1)? })).collect()
}

/// Escapes what has a meaning in a pattern.
fn escaped(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for character in text.chars() {
        if matches!(character, '!' | '%' | '_') {
            pattern.push('!');
        }
        pattern.push(character);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aors(page: &Page) -> Vec<&str> {
        page.users.iter().map(|user| user.aor.as_str()).collect()
    }

    #[test]
    fn pages_follow_each_other_and_a_search_finds_aliases() {
        let mut store = UserStore::open_memory().expect("made");
        for user in ["alice", "bob", "carol", "100%", "1_0"] {
            store.add_user(&format!("{user}@example.com"), "example.com", "secret").expect("added");
        }
        store.add_alias("200@example.com", "bob@example.com").expect("added");
        store.add_alias("201@example.com", "bob@example.com").expect("added");
        let mut page = |search, after, limit| store.page(&UserSelection { search, after, limit }).expect("read");
        let first = page(None, None, 2);
        assert_eq!((aors(&first), first.more), (vec!["100%@example.com", "1_0@example.com"], true));
        let second = page(None, Some("1_0@example.com"), 2);
        assert_eq!((aors(&second), second.more), (vec!["alice@example.com", "bob@example.com"], true));
        let aliases: Vec<_> = second.aliases.iter().map(|alias| (&*alias.alias, &*alias.aor)).collect();
        assert_eq!(aliases, [("200@example.com", "bob@example.com"), ("201@example.com", "bob@example.com")]);
        let last = page(None, Some("bob@example.com"), 2);
        assert_eq!((aors(&last), last.more), (vec!["carol@example.com"], false));
        assert_eq!(aors(&page(Some("200"), None, 9)), ["bob@example.com"]);
        assert_eq!(aors(&page(Some("%"), None, 9)), ["100%@example.com"], "a pattern is a text");
        assert_eq!(aors(&page(Some("_"), None, 9)), ["1_0@example.com"]);
        assert!(aors(&page(Some("!"), None, 9)).is_empty());
        assert_eq!(page(Some("example"), None, usize::MAX).users.len(), 5);
    }

    #[test]
    fn a_user_is_found_by_its_address() {
        let mut store = UserStore::open_memory().expect("made");
        store.add_user("alice@example.com", "example.com", "secret").expect("added");
        store.add_alias("100@example.com", "alice@example.com").expect("added");
        let mut find = |aor: &str| store.find(&Address::parse(aor).expect("an address")).expect("read");
        let (user, aliases) = find("alice@example.com").expect("there");
        assert_eq!((&*user.aor, user.enabled, aliases.len()), ("alice@example.com", true, 1));
        assert_eq!(find("100@example.com"), None, "this is an alias");
    }
}
