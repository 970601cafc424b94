//! Import of users from the table `subscriber`.

use std::collections::{BTreeMap, HashSet};

use strowger_kamailio::{BadRow, Subscriber, Table, Tables};
use strowger_store::{Address, AnyBackend, NewUser, PutOutcome, UserStore};

use super::{Import, Part};
use crate::backup::Progress;
use crate::failure::Failure;
use crate::text::count;

/// Number of users per transaction.
const AT_ONCE: usize = 1_000;

pub(super) fn import(import: &Import, tables: &mut Tables) -> Result<Part, Failure> {
    let of = tables.count(Table::Subscriber).map_err(|error| Failure::No(error.to_string()))?;
    let mut users = Users {
        import,
        store: import.store()?,
        waiting: Vec::new(),
        seen: HashSet::new(),
        part: Part::new(Table::Subscriber),
        noticed: UserWarnings::default(),
    };
    let mut progress = Progress::new("reading subscribers");
    let (mut done, mut outcome) = (0, Ok(()));
    let read = tables.for_each_subscriber(&import.identity, &mut |row| {
        done += 1;
        progress.show(done, of.max(done));
        if outcome.is_ok() {
            outcome = users.take(row);
        }
    });
    outcome?;
    read.map_err(|error| Failure::No(error.to_string()))?;
    users.write()?;
    drop(progress);
    users.noticed.report(import, &mut users.part);
    Ok(users.part)
}

struct Users<'i> {
    import: &'i Import,
    store: UserStore<AnyBackend>,
    waiting: Vec<NewUser>,
    seen: HashSet<Address>,
    part: Part,
    noticed: UserWarnings,
}

impl Users<'_> {
    fn take(&mut self, row: Result<Subscriber, BadRow>) -> Result<(), Failure> {
        let subscriber = match row {
            Ok(subscriber) => subscriber,
            Err(bad) => {
                self.part.refuse(bad);
                return Ok(());
            }
        };
        if !self.seen.insert(subscriber.address.clone()) {
            let why = "another row has the same address".to_owned();
            self.part.count(subscriber.address.as_str(), PutOutcome::Refused(why));
            return Ok(());
        }
        self.noticed.note(&subscriber);
        let Subscriber { address, realm, ha1, .. } = subscriber;
        self.waiting.push(NewUser { address, realm, ha1 });
        if self.waiting.len() >= AT_ONCE { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<(), Failure> {
        let existing = self.import.existing();
        let put = match self.import.from.dry_run {
            true => self.store.dry_run_put_users(&self.waiting, existing)?,
            false => self.store.put_users(&self.waiting, existing)?,
        };
        for (user, put) in self.waiting.drain(..).zip(put) {
            self.part.count(user.address.as_str(), put);
        }
        Ok(())
    }
}

/// Warnings about the users as a whole.
#[derive(Default)]
struct UserWarnings {
    /// Number of users by domain and realm.
    users: BTreeMap<(String, String), u64>,
    of_hashes: u64,
    contradictions: u64,
}

impl UserWarnings {
    fn note(&mut self, subscriber: &Subscriber) {
        let key = (subscriber.address.domain().to_owned(), subscriber.realm.clone());
        *self.users.entry(key).or_default() += 1;
        self.of_hashes += u64::from(!subscriber.has_password);
        self.contradictions += u64::from(subscriber.has_hash_mismatch);
    }

    fn report(&self, import: &Import, part: &mut Part) {
        let configured = import.config.auth.realm.as_ref().map(ToString::to_string);
        for ((domain, realm), users) in &self.users {
            let users = count(*users, "user");
            if !import.is_served(domain) {
                part.note(format!("{domain} is not in server.domains, so the server does not serve its {users}"));
            } else if configured.as_ref().unwrap_or(domain) != realm {
                let asked = configured.as_ref().unwrap_or(domain);
                part.note(format!(
                    "the server challenges the {users} of {domain} with realm {asked}, but their hashes are for {realm}: they will \
                     be refused; import them with --realm {asked} if their hashes are for that realm"
                ));
            }
        }
        if self.of_hashes > 0 {
            let realm = match &import.identity.realm {
                Some(realm) => format!("the realm {realm}"),
                None => "their domain as realm".to_owned(),
            };
            let users = count(self.of_hashes, "user");
            part.note(format!(
                "hashes without passwords for {users}: they can register if the hashes were computed with {realm}"
            ));
        }
        if self.contradictions > 0 {
            let users = count(self.contradictions, "user");
            part.note(format!(
                "the hash and the password of {users} do not match, or the hash is for another realm: the password was used"
            ));
        }
    }
}
