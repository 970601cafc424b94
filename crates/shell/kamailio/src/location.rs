//! The table `location`.

use strowger_sql::{ClockReading, Row, Value, seconds_of_text};
use strowger_store::Address;

use crate::row::{BadRow, text};
use crate::subscriber::Identity;
use crate::versions::Table;

/// Limit, in seconds since 1970, below which an expiry means that the contact never expires.
const PERMANENT_BEFORE_S: f64 = 366.0 * 86_400.0;

/// Julian day of 1970-01-01 00:00:00. Kamailio stores Julian days in SQLite.
const JULIAN_1970: f64 = 2_440_587.5;

/// A row of `location`: a contact of an address of record.
#[derive(Clone, Debug, PartialEq)]
pub struct Registration {
    /// Address of record.
    pub address: Address,
    /// Contact URI.
    pub contact: String,
    /// Seconds until the registration expires; 0 or less if it has expired.
    pub expires_in_s: i64,
    /// URI of the REGISTER's source, if it differs from the contact.
    pub received: Option<String>,
    /// Proxies on the path, as in Path.
    pub path: Option<String>,
    /// Preference in thousandths.
    pub q: Option<u16>,
    /// Call-ID of its REGISTER.
    pub call_id: String,
    /// CSeq of its REGISTER.
    pub cseq: u32,
    /// Listener that received the REGISTER, such as `udp:192.0.2.1:5060`.
    pub socket: Option<String>,
    /// Instance id of the device, without quotes and brackets; empty if there is none.
    pub instance: String,
    /// Number of the device's flow.
    pub reg_id: Option<u32>,
}

impl Registration {
    /// Parses a row at `now`.
    ///
    /// # Errors
    /// [`BadRow`] if it has no address or contact, or never expires.
    pub fn read(row: &Row, identity: &Identity, now: &ClockReading) -> Result<Self, BadRow> {
        let username = text(row, "username").unwrap_or_default();
        let domain = Some(text(row, "domain").unwrap_or_default()).filter(|domain| !domain.is_empty());
        let domain = domain.unwrap_or(&identity.domain);
        let contact = text(row, "contact").unwrap_or_default().to_owned();
        let bad = |why: String| BadRow { table: Table::Location, row: format!("{username}@{domain} {contact}"), why };
        let address = Address::parse(&format!("{username}@{domain}")).map_err(|error| bad(error.to_string()))?;
        if contact.is_empty() {
            return Err(bad("it has no contact".to_owned()));
        }
        let filled = |column| text(row, column).filter(|text| !text.is_empty()).map(str::to_owned);
        let number = |column| row.integer_or_null(column).map_err(|error| bad(error.to_string()));
        let left_s = left_s(row.value("expires"), now).map_err(&bad)?;
        let call_id = filled("callid").ok_or_else(|| bad("it has no Call-ID".to_owned()))?;
        let cseq = u32::try_from(number("cseq")?.unwrap_or(0)).map_err(|_| bad("its CSeq is not valid".to_owned()))?;
        // The column is `instance` in Kamailio and `sip_instance` in OpenSIPS, which has no column for the flow.
        let instance = filled("instance").or_else(|| filled("sip_instance")).unwrap_or_default();
        let instance = instance.trim_matches('"').trim_start_matches('<').trim_end_matches('>').to_owned();
        let reg_id = row.integer("reg_id").ok().and_then(|reg_id| u32::try_from(reg_id).ok());
        let reg_id = reg_id.filter(|reg_id| *reg_id > 0 && !instance.is_empty());
        let (received, path, socket) = (filled("received"), filled("path"), filled("socket"));
        let q = row.real("q").ok().and_then(thousandths);
        Ok(Self { address, contact, expires_in_s: left_s, received, path, q, call_id, cseq, socket, instance, reg_id })
    }
}

/// Returns the seconds until `expires`. A date is in the database's time zone, as Kamailio writes it; an integer is
/// in seconds since 1970, a real number is a Julian day.
fn left_s(expires: Option<&Value>, now: &ClockReading) -> Result<i64, String> {
    let (at_s, now_s) = match expires {
        #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 are far below 2^53")]
        Some(Value::Integer(seconds)) => (*seconds as f64, now.utc_s),
        Some(Value::Real(day)) => ((day - JULIAN_1970) * 86_400.0, now.utc_s),
        Some(Value::Text(text)) => {
            (seconds_of_text(text).ok_or_else(|| format!("its expiry {text:?} is not a valid date"))?, now.database_s)
        }
        _ => return Err("it has no expiry".to_owned()),
    };
    if at_s < PERMANENT_BEFORE_S {
        return Err("it never expires, so no phone has registered it; give the user an alias, or a route".to_owned());
    }
    #[expect(clippy::cast_possible_truncation, reason = "both are moments within a few centuries")]
    Ok((at_s - now_s).round() as i64)
}

/// Converts to thousandths; −1 means none.
fn thousandths(q: f64) -> Option<u16> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1000")]
    (0.0..=1.0).contains(&q).then(|| (q * 1_000.0).round() as u16)
}
