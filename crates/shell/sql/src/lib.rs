//! One blocking SQL client over the databases that operators run: SQLite, PostgreSQL, and MariaDB or MySQL.
//!
//! It is for the control plane: commands and threads that may wait. Workers never use it. Each wait is bounded by the patience that
//! [`Database::connect`] is given. Nothing is encrypted: the database stands on the same host or in a network that is trusted.
//!
//! ```no_run
//! use strowger_sql::{Database, SqlError, Value};
//!
//! # fn main() -> Result<(), SqlError> {
//! let url = "postgresql://strowger:secret@192.0.2.10/strowger".parse().expect("a database's URL");
//! let mut database = Database::connect(&url, Database::PATIENCE)?;
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
