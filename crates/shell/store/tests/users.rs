//! Operations of one store.

use strowger_directory::Ha1s;
use strowger_store::{AliasEntry, ErrorOwner, StoreError, UserStore, ha1s};

const REALM: &str = "example.com";

fn with_alice() -> UserStore {
    let mut store = UserStore::open_memory().expect("memory");
    store.add_user("alice@example.com", REALM, "wonderland").expect("added");
    store
}

fn ha1_of(store: &UserStore, aor: &str) -> Option<Ha1s> {
    store.load(1).expect("loads").0.user(aor.as_bytes()).map(|user| user.ha1)
}

/// Returns the message, and checks who has to act on the error.
fn refusal<T: std::fmt::Debug>(result: Result<T, StoreError>) -> String {
    let error = result.expect_err("refused");
    assert_eq!(error.owner(), ErrorOwner::Request, "{error}");
    error.to_string()
}

#[test]
fn a_user_is_added_listed_changed_and_removed() {
    let mut store = with_alice();
    let bob = store.add_user(" sip:Bob@Example.COM ", REALM, "builder").expect("added");
    assert_eq!(bob.as_str(), "Bob@example.com");
    let listed = store.list().expect("lists");
    assert_eq!(
        listed.iter().map(|user| user.aor.as_str()).collect::<Vec<_>>(),
        ["Bob@example.com", "alice@example.com"]
    );
    assert_eq!(listed[1].algorithms, ["MD5", "SHA-256", "SHA-512-256"]);
    assert!(listed[1].enabled && listed[1].realm == REALM && listed[1].created_s > 1_700_000_000);

    assert_eq!(ha1_of(&store, "Bob@example.com"), Some(ha1s("Bob", REALM, "builder")));
    store.set_password("Bob@example.com", "other.example", "manager").expect("changed");
    assert_eq!(ha1_of(&store, "Bob@example.com"), Some(ha1s("Bob", "other.example", "manager")));
    assert_eq!(store.list().expect("lists")[0].realm, "other.example");

    store.set_enabled("Bob@example.com", false).expect("disabled");
    let (directory, _) = store.load(1).expect("loads");
    assert!(directory.user(b"Bob@example.com").is_some_and(|user| !user.enabled));

    store.remove_user("Bob@example.com").expect("removed");
    assert_eq!(ha1_of(&store, "Bob@example.com"), None);
    assert_eq!(store.list().expect("lists").len(), 1);
}

#[test]
fn errors_give_a_remedy() {
    let mut store = with_alice();
    assert_eq!(
        refusal(store.add_user("alice@EXAMPLE.com", REALM, "again")),
        "alice@example.com already exists; `strowger user passwd` changes the password"
    );
    let unknown = "there is no user carol@example.com; `strowger user list` shows all, `strowger user add` adds one";
    assert_eq!(refusal(store.set_password("carol@example.com", REALM, "x")), unknown);
    assert_eq!(refusal(store.remove_user("carol@example.com")), unknown);
    assert_eq!(refusal(store.set_enabled("carol@example.com", true)), unknown);
    assert_eq!(
        refusal(store.add_user("carol", REALM, "x")),
        r#""carol" is not a valid address: it has no "@" before a domain; write user@domain, such as alice@example.com"#
    );
    assert_eq!(refusal(store.add_user("carol@example.com", REALM, "")), "this is not a valid password: it is empty");
    assert_eq!(
        refusal(store.add_user("carol@example.com", REALM, "x\n")),
        "this is not a valid password: it has a line end or another control character"
    );
    for realm in ["", "a\"b", "a\\b", "a\r\nb"] {
        assert!(refusal(store.add_user("carol@example.com", realm, "x")).starts_with("this is not a valid realm: it "));
    }
    assert_eq!(store.list().expect("lists").len(), 1);
}

#[test]
fn an_alias_leads_only_to_a_user() {
    let mut store = with_alice();
    let (alias, aor) = store.add_alias("sip:Reception@EXAMPLE.com", "alice@example.com").expect("added");
    assert_eq!((alias.as_str(), aor.as_str()), ("Reception@example.com", "alice@example.com"));
    let (directory, _) = store.load(1).expect("loads");
    assert_eq!(directory.resolve(b"Reception@example.com"), b"alice@example.com");
    let listed = AliasEntry { alias: "Reception@example.com".into(), aor: "alice@example.com".into() };
    assert_eq!(store.list_aliases().expect("lists"), [listed]);

    assert_eq!(
        refusal(store.add_alias("alice@example.com", "alice@example.com")),
        "alice@example.com is a user, so it cannot be an alias too; choose another address, or remove the user"
    );
    assert_eq!(
        refusal(store.add_alias("desk@example.com", "Reception@example.com")),
        "Reception@example.com is itself an alias of alice@example.com; make the new alias point to alice@example.com"
    );
    assert_eq!(
        refusal(store.add_alias("Reception@example.com", "alice@example.com")),
        "Reception@example.com is already an alias of alice@example.com; remove it first to assign it to another user"
    );
    assert!(matches!(store.add_alias("x@example.com", "nobody@example.com"), Err(StoreError::UnknownUser { .. })));
    assert_eq!(
        refusal(store.add_user("Reception@example.com", REALM, "x")),
        "Reception@example.com is an alias of alice@example.com; remove the alias to create a user with this address"
    );
    store.remove_alias("Reception@example.com").expect("removed");
    assert_eq!(refusal(store.remove_alias("Reception@example.com")), "there is no alias Reception@example.com");
    store.add_user("Reception@example.com", REALM, "x").expect("free now");
}

#[test]
fn aliases_go_with_their_user() {
    let mut store = with_alice();
    store.add_user("bob@example.com", REALM, "x").expect("added");
    store.add_alias("a@example.com", "alice@example.com").expect("added");
    store.add_alias("b@example.com", "bob@example.com").expect("added");
    store.remove_user("alice@example.com").expect("removed");
    let left: Vec<_> = store.list_aliases().expect("lists").into_iter().map(|alias| alias.alias).collect();
    assert_eq!(left, ["b@example.com"]);
}

#[test]
fn output_never_has_passwords_or_hashes() {
    let mut store = with_alice();
    let shown = format!("{store:?} {:?} {:?}", store.list(), store.load(1));
    let refused = refusal(store.import_csv("aor,ha1_md5\nbob@example.com,hunter2\n".as_bytes(), REALM));
    for secret in ["wonderland", "hunter2", &format!("{:?}", ha1s("alice", REALM, "wonderland").md5.expect("computed"))]
    {
        assert!(!shown.contains(secret), "{shown}");
        assert!(!refused.contains(secret), "{refused}");
    }
}
