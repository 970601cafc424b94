//! Errors of `strowger watch` at its start; its operation is tested with a name server.

mod common;

use common::Folder;

const WATCH: &str = "[watch]\nserver = \"192.0.2.53\"\nzone = \"example.com\"\nkey_file = \"watch.key\"\n\
                     [[watch.record]]\nname = \"_sip._udp.example.com\"\ntarget = \"s1.example.com\"\naddress = \"192.0.2.1\"\n";

#[test]
fn watch_is_refused_without_servers_or_a_key() {
    let folder = Folder::new("");
    let error = folder.run(&["watch"]).refused(2);
    assert!(error.starts_with("the configuration has no [watch]"), "{error}");
    folder.write("strowger.toml", WATCH);
    let error = folder.run(&["watch", "--once"]).refused(2);
    assert!(error.starts_with("strowger.toml:4: watch.key_file: watch.key cannot be read: "), "{error}");
    folder.write("watch.key", "key \"watch\" { algorithm hmac-md5; secret \"c2VjcmV0\"; };");
    let error = folder.run(&["watch", "--once"]).refused(2);
    let expected = "strowger.toml:4: watch.key_file: watch.key: the algorithm \"hmac-md5\" is not supported";
    assert!(error.starts_with(expected) && !error.contains("c2VjcmV0"), "{error}");
}
