//! `linphonec`, the phone in Debian that supports stronger digests than MD5. Skipped if it is not installed.

use strowger_interop::{Config, Linphone, Program};

#[test]
fn sha_256_is_answered() {
    if !Program::Linphone.available() {
        return;
    }
    let server = Config { algorithms: vec!["SHA-256"], ..Config::default() }.start();
    let mut phone = Linphone::start(&server, "alice", "secret of alice");
    assert!(phone.is_registered());
    assert_eq!(server.registrations(), 1);
    phone.quit();
    assert_eq!(server.registrations(), 0);
    assert!(phone.trace().contains("algorithm=SHA-256, username="), "it answered another challenge");
}

#[test]
fn the_first_of_two_challenges_is_answered() {
    if !Program::Linphone.available() {
        return;
    }
    let server = Config { algorithms: vec!["SHA-256", "MD5"], ..Config::default() }.start();
    let mut phone = Linphone::start(&server, "alice", "secret of alice");
    assert!(phone.is_registered());
    assert!(phone.trace().contains("algorithm=SHA-256, username="), "it answered another challenge");
}

#[test]
fn wrong_password_is_refused() {
    if !Program::Linphone.available() {
        return;
    }
    let server = Config { algorithms: vec!["SHA-256"], ..Config::default() }.start();
    let mut phone = Linphone::start(&server, "alice", "wrong");
    assert!(!phone.is_registered());
    assert_eq!(server.registrations(), 0);
}
