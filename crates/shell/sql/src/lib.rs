//! Blocking SQL client for the databases that operators run: SQLite, PostgreSQL, and MariaDB or MySQL.
//!
//! It is for the control plane: commands and threads that may wait. Workers never use it. Each wait is limited by the
//! timeout passed to [`Database::connect`]. Nothing is encrypted: the database is on the same host or in a trusted
//! network.
//!
//! ```no_run
//! use strowger_sql::{Database, SqlError, Value};
//!
//! # fn main() -> Result<(), SqlError> {
//! let url = "postgresql://strowger:secret@192.0.2.10/strowger".parse().expect("a database's URL");
//! let mut database = Database::connect(&url, Database::TIMEOUT)?;
//! for row in database.query("SELECT id, name FROM users WHERE domain = ?", &[Value::from("example.com")])? {
//!     println!("{} {}", row.integer("id")?, row.text("name")?);
//! }
//! # Ok(())
//! # }
//! ```

mod database;
mod date;
mod error;
mod mariadb;
mod placeholders;
mod postgres;
mod row;
mod session;
mod sqlite;
mod url;

pub use database::Database;
pub use date::{ClockReading, seconds_of_text};
pub use error::SqlError;
pub use row::{Row, Value};
pub use url::{DatabaseUrl, Dialect, Server};
