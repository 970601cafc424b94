//! PostgreSQL.

mod value;

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::error::{DbError, SqlState};
use tokio_postgres::{Client, Config, Error, NoTls, Statement};

use crate::session::{Each, Fault, Session};
use crate::{Row, Server, Value, placeholders};

/// Maximum number of prepared statements per connection.
const MAX_STATEMENTS: usize = 64;

/// Timeout of closing a connection.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(200);

/// A connection.
pub(crate) struct Postgres {
    runtime: Runtime,
    connection: Option<(Client, JoinHandle<()>)>,
    prepared: HashMap<String, Statement>,
    timeout: Duration,
}

impl Postgres {
    pub(crate) fn connect(server: &Server, runtime: Runtime, patience: Duration) -> Result<Self, Fault> {
        let mut config = Config::new();
        config.host(&server.host).port(server.port).dbname(&server.database);
        config.connect_timeout(patience).application_name("strowger");
        config.user(server.user.as_deref().unwrap_or("strowger"));
        if let Some(password) = &server.password {
            config.password(password);
        }
        let connecting = async { timeout(patience, config.connect(NoTls)).await };
        let (client, connection) = runtime
            .block_on(connecting)
            .map_err(|_| Fault::timeout(patience))?
            .map_err(|error| connect_fault(&error))?;
        let driver = runtime.spawn(async move { drop(connection.await) });
        Ok(Self { runtime, connection: Some((client, driver)), prepared: HashMap::new(), timeout: patience })
    }

    fn client(&self) -> Result<&Client, Fault> {
        let client = self.connection.as_ref().map(|(client, _)| client);
        client.ok_or_else(|| Fault::Unreachable("the connection is closed".to_owned()))
    }

    /// Waits for a future, up to the timeout.
    fn wait<T>(&self, asked: impl Future<Output = Result<T, Error>>) -> Result<T, Fault> {
        let answered = self.runtime.block_on(async { timeout(self.timeout, asked).await });
        answered.map_err(|_| Fault::timeout(self.timeout))?.map_err(|error| fault(&error))
    }

    fn prepared(&mut self, sql: &str) -> Result<Statement, Fault> {
        if let Some(statement) = self.prepared.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.wait(self.client()?.prepare(&placeholders::number_placeholders(sql)))?;
        if self.prepared.len() >= MAX_STATEMENTS {
            self.prepared.clear();
        }
        self.prepared.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }
}

impl Session for Postgres {
    fn for_each(&mut self, sql: &str, values: &[Value], each: Each<'_>) -> Result<(), Fault> {
        let statement = self.prepared(sql)?;
        let columns: Arc<[String]> = statement.columns().iter().map(|column| column.name().to_owned()).collect();
        let rows = self.wait(self.client()?.query_raw(&statement, values))?;
        let mut rows = std::pin::pin!(rows);
        while let Some(row) = self.wait(rows.try_next())? {
            let values = (0..columns.len()).map(|at| value::of_row(&row, at)).collect::<Result<_, _>>()?;
            each(Row::new(Arc::clone(&columns), values))?;
        }
        Ok(())
    }

    fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, Fault> {
        let statement = self.prepared(sql)?;
        self.wait(self.client()?.execute_raw(&statement, values))
    }

    fn batch(&mut self, sql: &str) -> Result<(), Fault> {
        self.wait(self.client()?.batch_execute(sql))
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.prepared.clear();
        if let Some((client, driver)) = self.connection.take() {
            drop(client);
            let _ = self.runtime.block_on(async { timeout(CLOSE_TIMEOUT, driver).await });
        }
    }
}

fn connect_fault(error: &Error) -> Fault {
    match (error.as_db_error(), std::error::Error::source(error)) {
        (Some(said), _) if is_refusal(said) => Fault::Refused(said.message().to_owned()),
        (Some(said), _) => Fault::Unreachable(said.message().to_owned()),
        (None, Some(cause)) if cause.is::<std::io::Error>() => Fault::Unreachable(cause.to_string()),
        // For example, the server asks for a password and none is configured.
        (None, Some(cause)) => Fault::Refused(format!("{error}: {cause}")),
        (None, None) => Fault::Unreachable(error.to_string()),
    }
}

fn is_refusal(said: &DbError) -> bool {
    let code = said.code();
    code.code().starts_with("28")
        || *code == SqlState::INVALID_CATALOG_NAME
        || *code == SqlState::INSUFFICIENT_PRIVILEGE
}

fn fault(error: &Error) -> Fault {
    match (error.as_db_error(), std::error::Error::source(error)) {
        // The server is shutting down or has terminated this connection.
        (Some(said), _) if said.code().code().starts_with("57P") => Fault::Unreachable(said.message().to_owned()),
        (Some(said), _) => Fault::Failed { why: said.message().to_owned(), state: Some(said.code().code().to_owned()) },
        (None, Some(cause)) if !error.is_closed() && !cause.is::<std::io::Error>() => {
            Fault::Failed { why: format!("{error}: {cause}"), state: None }
        }
        (None, Some(cause)) => Fault::Unreachable(cause.to_string()),
        (None, None) => Fault::Unreachable(error.to_string()),
    }
}
