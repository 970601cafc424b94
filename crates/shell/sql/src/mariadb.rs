//! MariaDB and MySQL.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use mysql_async::consts::ColumnType;
use mysql_async::prelude::Queryable as _;
use mysql_async::{Column, Conn, Error, Opts, OptsBuilder, Params, ServerError};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::session::{Each, Fault, Session};
use crate::{Row, Server, SqlError, Value};

/// Id of the character set of binary data.
const BINARY: u16 = 63;

/// Timeout of closing a connection.
const FAREWELL: Duration = Duration::from_millis(200);

/// A connection.
pub(crate) struct MariaDb {
    runtime: Runtime,
    connection: Option<Conn>,
    patience: Duration,
}

impl MariaDb {
    pub(crate) fn connect(server: &Server, runtime: Runtime, patience: Duration) -> Result<Self, Fault> {
        let opts = OptsBuilder::default()
            .ip_or_hostname(&server.host)
            .tcp_port(server.port)
            .user(server.user.clone())
            .pass(server.password.clone())
            .db_name(Some(&server.database))
            // Count matched rows like the other databases, also if an update does not change them.
            .client_found_rows(true)
            .prefer_socket(false);
        let connecting = async { timeout(patience, Conn::new(Opts::from(opts))).await };
        let connected = runtime.block_on(connecting).map_err(|_| Fault::timeout(patience))?;
        let connection = Some(connected.map_err(connect_fault)?);
        Ok(Self { runtime, connection, patience })
    }
}

/// Waits for a future, up to the timeout.
fn wait<T>(runtime: &Runtime, patience: Duration, asked: impl Future<Output = Result<T, Error>>) -> Result<T, Fault> {
    let answered = runtime.block_on(async { timeout(patience, asked).await });
    answered.map_err(|_| Fault::timeout(patience))?.map_err(fault)
}

fn closed() -> Fault {
    Fault::Unreachable("the connection is closed".to_owned())
}

impl Session for MariaDb {
    fn for_each(&mut self, sql: &str, values: &[Value], each: Each<'_>) -> Result<(), Fault> {
        let (runtime, patience) = (&self.runtime, self.patience);
        let connection = self.connection.as_mut().ok_or_else(closed)?;
        let mut result = wait(runtime, patience, connection.exec_iter(sql, params(values)))?;
        let kinds = result.columns().unwrap_or_default();
        let columns: Arc<[String]> = kinds.iter().map(|column| column.name_str().into_owned()).collect();
        while let Some(row) = wait(runtime, patience, result.next())? {
            let values = row.unwrap().into_iter().zip(&*kinds);
            let values = values.map(|(value, column)| value_of(value, column)).collect::<Result<_, _>>()?;
            each(Row::new(Arc::clone(&columns), values))?;
        }
        Ok(())
    }

    fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, Fault> {
        let connection = self.connection.as_mut().ok_or_else(closed)?;
        let executed = async {
            let result = connection.exec_iter(sql, params(values)).await?;
            let changed = result.affected_rows();
            result.drop_result().await.map(|()| changed)
        };
        wait(&self.runtime, self.patience, executed)
    }

    fn batch(&mut self, sql: &str) -> Result<(), Fault> {
        let connection = self.connection.as_mut().ok_or_else(closed)?;
        wait(&self.runtime, self.patience, connection.query_drop(sql))
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            let _ = self.runtime.block_on(async { timeout(FAREWELL, connection.disconnect()).await });
        }
    }
}

fn params(values: &[Value]) -> Params {
    if values.is_empty() {
        return Params::Empty;
    }
    let value = |value: &Value| match value {
        Value::Null => mysql_async::Value::NULL,
        Value::Integer(number) => mysql_async::Value::Int(*number),
        Value::Real(number) => mysql_async::Value::Double(*number),
        Value::Text(text) => mysql_async::Value::Bytes(text.clone().into_bytes()),
        Value::Bytes(bytes) => mysql_async::Value::Bytes(bytes.clone()),
    };
    Params::Positional(values.iter().map(value).collect())
}

fn value_of(value: mysql_async::Value, column: &Column) -> Result<Value, SqlError> {
    use mysql_async::Value as Mysql;

    Ok(match value {
        Mysql::NULL => Value::Null,
        Mysql::Int(number) => Value::Integer(number),
        Mysql::UInt(number) => {
            let too_large = |_| SqlError::unreadable(&column.name_str(), format!("{number} is too large"));
            Value::Integer(i64::try_from(number).map_err(too_large)?)
        }
        // The nearest decimal fraction: 0.1 stays 0.1.
        Mysql::Float(number) => Value::Real(number.to_string().parse().unwrap_or(f64::from(number))),
        Mysql::Double(number) => Value::Real(number),
        Mysql::Bytes(bytes) => bytes_or_text(bytes, column),
        Mysql::Date(year, month, day, hour, minute, second, micros) => {
            let whole = format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}");
            Value::Text(if micros == 0 { whole } else { format!("{whole}.{micros:06}") })
        }
        Mysql::Time(..) => Value::Text(value.as_sql(true).trim_matches('\'').to_owned()),
    })
}

/// Returns bytes, except for decimal numbers, which are text although their column type is binary.
fn bytes_or_text(bytes: Vec<u8>, column: &Column) -> Value {
    let is_decimal = matches!(column.column_type(), ColumnType::MYSQL_TYPE_NEWDECIMAL | ColumnType::MYSQL_TYPE_DECIMAL);
    if column.character_set() == BINARY && !is_decimal {
        return Value::Bytes(bytes);
    }
    String::from_utf8(bytes).map_or_else(|error| Value::Bytes(error.into_bytes()), Value::Text)
}

fn connect_fault(error: Error) -> Fault {
    match error {
        // Too many connections, or the server is shutting down.
        Error::Server(ServerError { code: 1_040 | 1_053 | 1_129 | 1_203, message, .. }) => Fault::Unreachable(message),
        Error::Server(said) => Fault::Refused(said.message),
        Error::Driver(said) => Fault::Refused(said.to_string()),
        Error::Io(error) => Fault::Unreachable(error.to_string()),
        other => Fault::Unreachable(other.to_string()),
    }
}

fn fault(error: Error) -> Fault {
    match error {
        // The server is shutting down or has killed this connection.
        Error::Server(ServerError { code: 1_053 | 1_927, message, .. }) => Fault::Unreachable(message),
        Error::Server(ServerError { message, state, .. }) => Fault::Failed { why: message, state: Some(state) },
        Error::Io(error) => Fault::Unreachable(error.to_string()),
        Error::Driver(error @ mysql_async::DriverError::ConnectionClosed) => Fault::Unreachable(error.to_string()),
        other => Fault::Failed { why: other.to_string(), state: None },
    }
}
