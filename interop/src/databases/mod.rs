//! Databases through which servers share registrations. Each is started by the test that uses it, and its data is
//! deleted afterwards.

mod arrangement;
mod galera;
mod mariadb;
mod node;
mod postgres;
mod redis;
mod user;

use tempfile::TempDir;

use crate::machine::Machine;
use crate::{Program, free_port};

use self::node::Node;

pub use self::arrangement::{Arrangement, Engines};

/// A running database.
#[derive(Debug)]
pub struct Database {
    kind: Program,
    node: Node,
    _folder: TempDir,
}

impl Database {
    /// Starts a database on a free port of 127.0.0.1: [`Program::Redis`], [`Program::Postgres`] or
    /// [`Program::MariaDb`].
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start(kind: Program) -> Database {
        let folder = folder();
        let place = (Machine::local(), free_port());
        let node = match kind {
            Program::Postgres => postgres::start(place, folder.path(), &[]),
            Program::MariaDb => mariadb::start(place, folder.path(), &["--innodb-flush-log-at-trx-commit=0"]),
            _ => redis::start(place, folder.path(), &[]),
        };
        Database { kind, node, _folder: folder }
    }

    /// Returns the URL that servers use.
    #[must_use]
    pub fn url(&self) -> String {
        let authority = self.node.authority();
        match self.kind {
            Program::Postgres => postgres::url(&authority),
            Program::MariaDb => mariadb::url(&authority),
            _ => format!("redis://{authority}"),
        }
    }

    /// Stops the database until [`go_on`](Self::go_on). It accepts connections and answers nothing.
    pub fn freeze(&self) {
        self.node.signal("STOP");
    }

    /// Continues the stopped database.
    pub fn go_on(&self) {
        self.node.signal("CONT");
    }

    /// Kills and restarts the database. A Redis is empty afterwards.
    pub fn start_again(&mut self) {
        self.node.kill();
        self.node.start_again(&[]);
    }
}

/// Creates a temporary folder that other users may enter.
fn folder() -> TempDir {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::Builder::new().prefix("database-").tempdir().expect("a temporary folder");
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).expect("the folder is ours");
    folder
}
