//! Import of users from CSV.

use std::io::{self, Read};

use strowger_directory::Ha1s;
use strowger_store::{ErrorOwner, StoreError, UserStore, ha1s};

const REALM: &str = "example.com";
const MD5: &str = "3d78807defe7de2157e2b0b6573a855f";
const SHA256: &str = "7987C64C30E25F1B74BE53F966B49B90F2808AA92FAF9A00262392D7B4794232";
const SHA512_256: &str = "fb174f5c3c7802721517cae13b98e2b8dae2e0118cb705d94ee29946319204ce";

fn imported(table: &str) -> UserStore {
    let mut store = UserStore::open_memory().expect("memory");
    store.import_csv(table.as_bytes(), REALM).expect("imported");
    store
}

fn ha1_of(store: &UserStore, aor: &str) -> Ha1s {
    store.load(1).expect("loads").0.user(aor.as_bytes()).expect("known").ha1
}

/// Returns the error message for `table`, and checks that nothing was imported.
fn refusal(table: impl Read) -> String {
    let mut store = UserStore::open_memory().expect("memory");
    store.add_user("old@example.com", REALM, "x").expect("added");
    let error = store.import_csv(table, REALM).expect_err("refused");
    assert_eq!(error.owner(), ErrorOwner::Request, "{error}");
    assert_eq!(store.list().expect("lists").len(), 1, "all or nothing");
    error.to_string()
}

#[test]
fn passwords_are_hashed() {
    let table = "aor,password\nalice@example.com,wonderland\r\nsip:Bob@EXAMPLE.com,\" a,\"\"b\"\" \"\n\ncarol@example.com,é:#\n";
    let mut store = imported(table);
    assert_eq!(store.list().expect("lists").len(), 3);
    assert_eq!(ha1_of(&store, "alice@example.com"), ha1s("alice", REALM, "wonderland"));
    assert_eq!(ha1_of(&store, "Bob@example.com"), ha1s("Bob", REALM, " a,\"b\" "));
    assert_eq!(ha1_of(&store, "carol@example.com"), ha1s("carol", REALM, "é:#"));
}

#[test]
fn hashes_are_imported_as_is() {
    let mufasa = ha1s("Mufasa", "http-auth@example.org", "Circle of Life");
    let store = imported(&format!("aor,ha1_md5\nm@example.com,{MD5}\n"));
    assert_eq!(ha1_of(&store, "m@example.com"), Ha1s { md5: mufasa.md5, ..Ha1s::default() });
    let mut store = imported(&format!(
        "aor, ha1_md5, ha1_sha256, ha1_sha512_256\nm@example.com, {MD5}, {SHA256}, {SHA512_256}\nn@example.com,,{SHA256},\n"
    ));
    assert_eq!(ha1_of(&store, "m@example.com"), mufasa);
    assert_eq!(ha1_of(&store, "n@example.com"), Ha1s { sha256: mufasa.sha256, ..Ha1s::default() });
    let algorithms: Vec<_> = store.list().expect("lists").into_iter().map(|user| user.algorithms).collect();
    assert_eq!(algorithms, [vec!["MD5", "SHA-256", "SHA-512-256"], vec!["SHA-256"]]);
}

#[test]
fn an_empty_table_imports_nobody() {
    let mut store = UserStore::open_memory().expect("memory");
    assert!(store.import_csv("aor,password\n".as_bytes(), REALM).expect("imported").is_empty());
    let domains = store.import_csv("\u{feff}aor,password\na@example.com,x".as_bytes(), REALM).expect("imported");
    assert_eq!(domains, [("example.com".to_owned(), 1)].into());
}

#[test]
fn the_first_line_names_the_columns() {
    for header in [
        "",
        "alice@example.com,wonderland",
        "aor",
        "aor;password",
        "password",
        "aor,password,ha1_md5",
        "aor,password,name",
        "aor,ha1_md5,name",
        "aor,ha1_md5,ha1_md5",
        "ha1_md5",
    ] {
        assert_eq!(
            refusal(format!("{header}\na@example.com,x\n").as_bytes()),
            "line 1: the first line names the columns: aor,password or aor,ha1_md5[,ha1_sha256[,ha1_sha512_256]], with \
             commas between; nothing was imported",
            "{header}"
        );
    }
}

#[test]
fn errors_name_the_line() {
    for (table, expected) in [
        (
            "aor,password\na@example.com,x\nbob,y\n",
            "line 3: \"bob\" is not a valid address: it has no \"@\" before a domain; ",
        ),
        ("aor,password\na@example.com,x\n\n\nb@example.com,\n", "line 5: this is not a valid password: it is empty; "),
        ("aor,password\r\na@example.com,x\r\nb@example.com\r\n", "line 3: it has 1 columns, the first line 2; "),
        ("\r\naor,password\r\n\r\na@example.com,\"x\"\r\n\r\n\r\nb,y\r\n", "line 7: \"b\" is not a valid address: "),
        ("aor,password\na@example.com,x\nb@example.com,y,z\n", "line 3: it has 3 columns, the first line 2; "),
        (
            "aor,password\na@example.com,x\nb@example.com,y\nA@example.com,x\na@EXAMPLE.com,z\n",
            "line 5: a@example.com is already on line 2; ",
        ),
        (
            "aor,password\na@example.com,x\nold@example.com,y\n",
            "line 3: old@example.com already exists; `strowger user passwd` changes the password; ",
        ),
        ("aor,ha1_md5\na@example.com,wonderland\n", "line 2: ha1_md5 is not 32 hexadecimal digits; "),
        (
            "aor,ha1_sha512_256\na@example.com,3d78807defe7de2157e2b0b6573a855f\n",
            "line 2: ha1_sha512_256 is not 64 hexadecimal digits; ",
        ),
        ("aor,ha1_md5\na@example.com, \n", "line 2: it has no hash; "),
        (
            "aor,password\na@example.com,\"x\nb@example.com,y\n",
            "line 2: this is not a valid password: it has a line end or another control character; ",
        ),
    ] {
        let message = refusal(table.as_bytes());
        assert!(message.starts_with(expected) && message.ends_with("nothing was imported"), "{table:?}: {message}");
    }
    let latin1 = b"aor,password\na@example.com,x\nb@example.com,caf\xe9\n";
    assert_eq!(refusal(&latin1[..]), "line 3: it is not UTF-8 text; nothing was imported");
}

#[test]
fn an_unreadable_table_imports_nothing() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the pipe broke"))
        }
    }
    let message = refusal("aor,password\na@example.com,x\n".as_bytes().chain(Broken));
    assert_eq!(message, "the table cannot be read: the pipe broke; nothing was imported");
}

#[test]
fn a_bad_realm_is_refused_before_the_table_is_read() {
    let mut store = UserStore::open_memory().expect("memory");
    assert!(matches!(store.import_csv(io::empty(), ""), Err(StoreError::BadRealm { .. })));
}
