//! Conversion to and from the types of PostgreSQL. A parameter takes the type that the server assigns it in the
//! prepared statement.

use std::error::Error;

use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use crate::{SqlError, Value, date};

/// Microseconds from 1970 to 2000, PostgreSQL's epoch.
const EPOCH_MICROS: i64 = 946_684_800_000_000;
const MICROS_A_DAY: i64 = 86_400_000_000;

type Fault = Box<dyn Error + Sync + Send>;

/// Returns the value of a column.
pub(super) fn of_row(row: &tokio_postgres::Row, at: usize) -> Result<Value, SqlError> {
    row.try_get(at).map_err(|error| {
        let column = row.columns().get(at);
        let why = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        SqlError::unreadable(column.map_or("?", |column| column.name()), why)
    })
}

impl ToSql for Value {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, Fault> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Integer(number) => integer(*number, kind, out),
            Self::Real(number) => real(*number, kind, out),
            Self::Text(text) => text_or_date(text, kind, out),
            Self::Bytes(bytes) if *kind == Type::BYTEA => bytes.to_sql(kind, out),
            Self::Bytes(_) => Err(unfit("bytes", kind)),
        }
    }

    /// The types are checked when a value is written.
    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

fn integer(number: i64, kind: &Type, out: &mut BytesMut) -> Result<IsNull, Fault> {
    match *kind {
        Type::INT2 => i16::try_from(number)?.to_sql(kind, out),
        Type::INT4 => i32::try_from(number)?.to_sql(kind, out),
        Type::INT8 => number.to_sql(kind, out),
        Type::OID => u32::try_from(number)?.to_sql(kind, out),
        Type::BOOL => (number != 0).to_sql(kind, out),
        #[expect(clippy::cast_precision_loss, reason = "the column holds fractions, rounded")]
        Type::FLOAT4 | Type::FLOAT8 => real(number as f64, kind, out),
        _ => Err(unfit("a whole number", kind)),
    }
}

fn real(number: f64, kind: &Type, out: &mut BytesMut) -> Result<IsNull, Fault> {
    match *kind {
        #[expect(clippy::cast_possible_truncation, reason = "the column holds no more")]
        Type::FLOAT4 => (number as f32).to_sql(kind, out),
        Type::FLOAT8 => number.to_sql(kind, out),
        _ => Err(unfit("a number with a fraction", kind)),
    }
}

fn text_or_date(text: &str, kind: &Type, out: &mut BytesMut) -> Result<IsNull, Fault> {
    match *kind {
        Type::TIMESTAMP | Type::TIMESTAMPTZ => {
            let micros = date::micros_of_text(text).ok_or_else(|| unfit("text that is not a date and time", kind))?;
            (micros - EPOCH_MICROS).to_sql(&Type::INT8, out)
        }
        Type::BYTEA => text.as_bytes().to_sql(kind, out),
        _ if <&str as ToSql>::accepts(kind) => text.to_sql(kind, out),
        _ => Err(unfit("a text", kind)),
    }
}

fn unfit(value: &str, kind: &Type) -> Fault {
    format!("{value} cannot be converted to {kind}").into()
}

impl<'a> FromSql<'a> for Value {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, Fault> {
        Ok(match *kind {
            Type::BOOL => Self::Integer(bool::from_sql(kind, raw)?.into()),
            Type::INT2 => Self::Integer(i16::from_sql(kind, raw)?.into()),
            Type::INT4 => Self::Integer(i32::from_sql(kind, raw)?.into()),
            Type::INT8 => Self::Integer(i64::from_sql(kind, raw)?),
            Type::OID => Self::Integer(u32::from_sql(kind, raw)?.into()),
            Type::FLOAT4 => Self::Real(f32::from_sql(kind, raw)?.into()),
            Type::FLOAT8 => Self::Real(f64::from_sql(kind, raw)?),
            Type::BYTEA => Self::Bytes(raw.to_vec()),
            Type::TIMESTAMP | Type::TIMESTAMPTZ => moment(i64::from_sql(&Type::INT8, raw)?)?,
            Type::DATE => moment(i64::from(i32::from_sql(&Type::INT4, raw)?).saturating_mul(MICROS_A_DAY))?,
            _ if <&str as FromSql<'_>>::accepts(kind) => Self::Text(String::from_sql(kind, raw)?),
            _ => return Err(format!("its type {kind} is not supported; cast it to text").into()),
        })
    }

    fn from_sql_null(_: &Type) -> Result<Self, Fault> {
        Ok(Self::Null)
    }

    /// The types are checked when a value is read.
    fn accepts(_: &Type) -> bool {
        true
    }
}

/// Converts microseconds since 2000; `infinity` becomes the latest representable time.
fn moment(micros: i64) -> Result<Value, Fault> {
    let since_1970 = micros.checked_add(EPOCH_MICROS).ok_or("it is not a date and time")?;
    Ok(Value::Text(date::text_of_micros(since_1970)))
}
