//! Upgrades that are refused because of who asks for them and where.

mod common;

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use common::CommandResult;
use common::chain::Chain;
use common::server::Server;

/// A user and group that no server has.
const NOBODY: u32 = 65_534;

/// Returns whether this process may become another user and make namespaces.
fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

#[test]
fn an_upgrade_that_would_leave_nobody_in_is_refused() {
    let mut chain = Chain::start("");
    let config = chain.server.folder.read("strowger.toml");
    assert!(config.contains("admin.listen = \"off\""));
    let other = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = format!("admin.listen = \"{}\"", other.local_addr().expect("bound"));
    fs::create_dir(chain.server.folder.path().join("folder")).expect("a new folder");
    for (change, expected) in [
        (config.replace("admin.listen = \"off\"", &taken), "the HTTP listener 127.0.0.1:"),
        (
            config.replace(
                "admin.listen = \"off\"",
                "admin.listen = \"127.0.0.1:0\"\nadmin.tls = { certificate = \"a.pem\", key = \"a.pem\" }",
            ),
            "a.pem",
        ),
        (format!("{config}control.socket = \"folder\"\n"), "folder exists and is not a socket"),
    ] {
        chain.server.folder.write("strowger.toml", &change);
        let reason = chain.refused(&["--socket", "data/control.sock"]);
        assert!(reason.contains(expected), "{reason}");
    }
    drop(other);
    chain.server.folder.write("strowger.toml", &config.replace("admin.listen = \"off\"", &taken));
    chain.upgrade(&[]);
}

#[test]
fn the_first_process_of_a_container_is_not_replaced() {
    if !is_root() {
        println!("SKIPPED: only root can make a process namespace");
        return;
    }
    let (folder, address) = Server::prepare("");
    let serve = folder.command(&["serve"]);
    let mut first = Command::new("unshare");
    // Its processes end with it.
    first.args(["--pid", "--fork", "--kill-child"]).arg(serve.get_program()).args(serve.get_args());
    first.current_dir(folder.path());
    let server = Server::started_by(first, folder, address);
    server.until("registrations are loaded", || server.status()["store"]["state"] == "ok");
    assert_eq!(server.status()["pid"], 1);
    let reason = server.folder.run(&["upgrade"]).refused(1);
    assert!(reason.contains("the first one of its container"), "{reason}");
    assert_eq!(server.status()["pid"], 1);
}

#[test]
fn only_root_and_the_servers_user_name_the_program() {
    if !is_root() {
        println!("SKIPPED: only root can run a command as another user");
        return;
    }
    let mut chain = Chain::start("");
    let folder = chain.server.folder.path();
    // The group may use the control socket.
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).expect("its owner");
    fs::set_permissions(folder.join("data"), fs::Permissions::from_mode(0o750)).expect("its owner");
    // Others may not see the folder of the tests' program.
    let program = folder.join("strowger");
    fs::hard_link(env!("CARGO_BIN_EXE_strowger"), &program)
        .or_else(|_| fs::copy(env!("CARGO_BIN_EXE_strowger"), &program).map(drop))
        .expect("there is room");
    let member = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.arg("upgrade").args(arguments).current_dir(folder);
        command.uid(NOBODY).gid(fs::metadata(folder).expect("it is there").gid());
        CommandResult::of(command, "")
    };
    let reason = member(&["--binary", env!("CARGO_BIN_EXE_strowger")]).refused(1);
    assert!(reason.contains("only root and the server's user may name the program"), "{reason}");
    member(&[]).ok();
    chain.pids.push(chain.server.status()["pid"].as_u64().expect("a process"));
    chain.upgrade(&["--binary", env!("CARGO_BIN_EXE_strowger")]);
}
