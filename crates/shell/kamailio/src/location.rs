//! The table `location`.

use strowger_sql::{ClockReading, Row, Value, seconds_of_text};
use strowger_store::Address;

use crate::subscriber::Identity;
use crate::tables::{BadRow, text};
use crate::versions::Table;

/// Before this, in seconds since 1970, an expiry means that the contact never expires.
const PERMANENT_BEFORE_S: f64 = 366.0 * 86_400.0;

/// The Julian day of 1970-01-01 00:00:00, in which Kamailio's SQLite counts.
const JULIAN_1970: f64 = 2_440_587.5;

/// A row of `location`: one contact of an address of record.
#[derive(Clone, Debug, PartialEq)]
pub struct Registration {
    /// The address of record.
    pub address: Address,
    /// The contact's URI.
    pub contact: String,
    /// For how many seconds more it is registered; 0 or less where it has expired.
    pub expires_in_s: i64,
    /// The URI of where its REGISTER came from, where that is another place than the contact's.
    pub received: Option<String>,
    /// The proxies between, as in Path.
    pub path: Option<String>,
    /// The preference in thousandths.
    pub q: Option<u16>,
    /// The Call-ID of its REGISTER.
    pub call_id: String,
    /// The CSeq of its REGISTER.
    pub cseq: u32,
    /// The listener that the REGISTER came in at, as `udp:192.0.2.1:5060`.
    pub socket: Option<String>,
    /// The name of the device, without quotes and brackets; empty where it has none.
    pub instance: String,
    /// Which of the device's flows it is.
    pub reg_id: Option<u32>,
}

impl Registration {
    /// Reads a row at `now`.
    ///
    /// # Errors
    /// [`BadRow`] where it names no address or contact, or never expires.
    pub fn read(row: &Row, identity: &Identity, now: &ClockReading) -> Result<Self, BadRow> {
        let username = text(row, "username").unwrap_or_default();
        let domain = Some(text(row, "domain").unwrap_or_default()).filter(|domain| !domain.is_empty());
        let domain = domain.unwrap_or(&identity.domain);
        let contact = text(row, "contact").unwrap_or_default().to_owned();
        let bad = |why: String| BadRow { table: Table::Location, row: format!("{username}@{domain} {contact}"), why };
        let address = Address::parse(&format!("{username}@{domain}")).map_err(|error| bad(error.to_string()))?;
        if contact.is_empty() {
            return Err(bad("it names no contact".to_owned()));
        }
        let filled = |column| text(row, column).filter(|text| !text.is_empty()).map(str::to_owned);
        let number = |column| row.integer_or_null(column).map_err(|error| bad(error.to_string()));
        let left_s = left_s(row.value("expires"), now).map_err(&bad)?;
        let call_id = filled("callid").ok_or_else(|| bad("it has no Call-ID".to_owned()))?;
        let cseq = u32::try_from(number("cseq")?.unwrap_or(0)).map_err(|_| bad("its CSeq is none".to_owned()))?;
        // Kamailio calls it instance, OpenSIPS sip_instance, which has no column for the flow.
        let instance = filled("instance").or_else(|| filled("sip_instance")).unwrap_or_default();
        let instance = instance.trim_matches('"').trim_start_matches('<').trim_end_matches('>').to_owned();
        let reg_id = row.integer("reg_id").ok().and_then(|reg_id| u32::try_from(reg_id).ok());
        let reg_id = reg_id.filter(|reg_id| *reg_id > 0 && !instance.is_empty());
        let (received, path, socket) = (filled("received"), filled("path"), filled("socket"));
        let q = row.real("q").ok().and_then(thousandths);
        Ok(Self { address, contact, expires_in_s: left_s, received, path, q, call_id, cseq, socket, instance, reg_id })
    }
}

/// A date is in the database's time zone, as Kamailio has written it; a number is in seconds since 1970, a fraction in days.
fn left_s(expires: Option<&Value>, now: &ClockReading) -> Result<i64, String> {
    let (at_s, now_s) = match expires {
        #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 are far below 2^53")]
        Some(Value::Integer(seconds)) => (*seconds as f64, now.utc_s),
        Some(Value::Real(day)) => ((day - JULIAN_1970) * 86_400.0, now.utc_s),
        Some(Value::Text(text)) => {
            (seconds_of_text(text).ok_or_else(|| format!("its expiry {text:?} is no moment"))?, now.database_s)
        }
        _ => return Err("it has no expiry".to_owned()),
    };
    if at_s < PERMANENT_BEFORE_S {
        return Err("it never expires, so no phone has registered it; give the user an alias, or a route".to_owned());
    }
    #[expect(clippy::cast_possible_truncation, reason = "both are moments within a few centuries")]
    Ok((at_s - now_s).round() as i64)
}

/// −1 stands for none.
fn thousandths(q: f64) -> Option<u16> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1000")]
    (0.0..=1.0).contains(&q).then(|| (q * 1_000.0).round() as u16)
}
