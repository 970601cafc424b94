//! The table `dispatcher`, and the attributes of Kamailio's destinations.

use std::collections::BTreeMap;

use strowger_directory::Gateway;
use strowger_sql::{Row, Value};
use strowger_store::{MAX_CAPACITY, MAX_SET_GATEWAYS};

use crate::row::{BadRow, text};
use crate::versions::{Flavor, Table};

/// Kamailio's flags of a destination that is out of service: inactive and disabled.
const OUT_OF_SERVICE: i64 = 1 | 4;
/// Attributes that say how to reach a destination, which here its URI and the listeners determine.
const IGNORED_ATTRIBUTES: [&str; 4] = ["socket", "sockname", "obproxy", "ping_from"];

/// Whether Kamailio's flags mark a destination as in service.
#[must_use]
pub const fn is_in_service(flags: i64) -> bool {
    flags & OUT_OF_SERVICE == 0
}

/// A row of `dispatcher`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Number of its set.
    pub set: i64,
    /// URI with `sip:`, which may be missing in the table.
    pub uri: String,
    /// Whether it takes calls.
    pub enabled: bool,
    /// Priority; higher first.
    pub priority: i64,
    /// Share among destinations of the same priority.
    pub weight: u16,
    /// Maximum number of simultaneous calls; `None` for no limit.
    pub capacity: Option<u32>,
    /// Description for people.
    pub description: String,
    /// Attributes with an effect in Kamailio that is not supported.
    pub ignored: Vec<&'static str>,
}

impl Destination {
    /// Parses a row.
    ///
    /// # Errors
    /// [`BadRow`] if it has no valid URI or an invalid attribute.
    pub fn read(row: &Row, flavor: Flavor) -> Result<Self, BadRow> {
        let destination = text(row, "destination").unwrap_or_default();
        let set = row.integer("setid");
        let shown = set.as_ref().map_or_else(|_| "?".to_owned(), ToString::to_string);
        let bad = |why: String| BadRow { table: Table::Dispatcher, row: format!("{shown} {destination}"), why };
        let set = set.map_err(|error| bad(error.to_string()))?;
        if destination.is_empty() {
            return Err(bad("it has no destination URI".to_owned()));
        }
        let attributes = Attributes::read(text(row, "attrs").unwrap_or_default()).map_err(&bad)?;
        let number = |column| row.integer_or_null(column).map_err(|error| bad(error.to_string()));
        let (enabled, weight) = match flavor {
            Flavor::Kamailio => (is_in_service(number("flags")?.unwrap_or(0)), attributes.weight()),
            Flavor::OpenSips => (number("state")?.unwrap_or(0) == 0, weight_of_column(row).map_err(&bad)?),
        };
        Ok(Self {
            set,
            uri: with_scheme(destination),
            enabled,
            priority: number("priority")?.unwrap_or(0),
            weight,
            capacity: attributes.capacity,
            description: text(row, "description").unwrap_or_default().to_owned(),
            ignored: attributes.ignored,
        })
    }
}

fn with_scheme(destination: &str) -> String {
    let begins = |scheme: &str| destination.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    if begins("sip:") || begins("sips:") { destination.to_owned() } else { format!("sip:{destination}") }
}

/// Returns the weight from a column that in OpenSIPS is a number or text: the number, or how to ask a FreeSWITCH for
/// its load.
fn weight_of_column(row: &Row) -> Result<u16, String> {
    let text = match row.value("weight") {
        None | Some(Value::Null) => return Ok(1),
        Some(Value::Integer(number)) => number.to_string(),
        Some(Value::Text(text)) => text.clone(),
        Some(_) => String::new(),
    };
    let share = text.trim().parse().ok().filter(|weight: &u16| *weight > 0);
    share.ok_or_else(|| format!("its weight {text:?} is not valid; write an integer from 1 to 65535"))
}

/// A destination set, in this server's terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DestinationSet {
    /// Name: a prefix and the set's number.
    pub name: String,
    /// Members, in the order of their rows.
    pub members: Vec<Member>,
}

/// A member of a [`DestinationSet`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The member as a gateway. The set's highest priority becomes 0, because here lower priorities come first.
    pub gateway: Gateway,
    /// Description for people.
    pub description: String,
    /// Attributes with an effect in Kamailio that is not supported.
    pub ignored: Vec<&'static str>,
}

/// Returns the sets of all readable destinations, and the rows that are in none.
pub(crate) fn sets(
    rows: impl IntoIterator<Item = Result<Destination, BadRow>>,
    prefix: &str,
) -> (Vec<DestinationSet>, Vec<BadRow>) {
    let (mut by_number, mut bad): (BTreeMap<i64, Vec<Destination>>, Vec<BadRow>) = (BTreeMap::new(), Vec::new());
    for row in rows {
        match row.and_then(|destination| admit(destination, &by_number)) {
            Ok(destination) => by_number.entry(destination.set).or_default().push(destination),
            Err(row) => bad.push(row),
        }
    }
    let set = |(number, destinations): (i64, Vec<Destination>)| {
        let highest = destinations.iter().map(|destination| destination.priority).max().unwrap_or(0);
        let members = destinations.into_iter().map(|destination| member(destination, highest)).collect();
        DestinationSet { name: format!("{prefix}{number}"), members }
    };
    (by_number.into_iter().map(set).collect(), bad)
}

/// Rejects duplicates within a set, and destinations that exceed the set's size limit.
fn admit(destination: Destination, sets: &BTreeMap<i64, Vec<Destination>>) -> Result<Destination, BadRow> {
    let Destination { set, uri, .. } = &destination;
    let others = sets.get(set).map_or(&[][..], |others| others);
    let why = if others.iter().any(|other| other.uri == *uri) {
        "another row of the set has the same destination".to_owned()
    } else if others.len() >= MAX_SET_GATEWAYS {
        format!("no set may have more than {MAX_SET_GATEWAYS} destinations")
    } else {
        return Ok(destination);
    };
    Err(BadRow { table: Table::Dispatcher, row: format!("{set} {uri}"), why })
}

fn member(destination: Destination, highest: i64) -> Member {
    let Destination { uri, enabled, priority, weight, capacity, description, ignored, .. } = destination;
    let priority = u16::try_from(highest.saturating_sub(priority)).unwrap_or(u16::MAX);
    let gateway = Gateway { uri: uri.into_bytes().into(), priority, weight, capacity, enabled };
    Member { gateway, description, ignored }
}

/// Attributes of a destination, such as `weight=50;maxload=30`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    weight: Option<u16>,
    relative_weight: Option<u16>,
    /// `maxload`, unless it is 0.
    pub capacity: Option<u32>,
    /// Attributes with an effect in Kamailio that is not supported.
    pub ignored: Vec<&'static str>,
}

impl Attributes {
    /// Parses attributes. Unknown ones are ignored: they are for the script that uses them.
    ///
    /// # Errors
    /// What is wrong with a known attribute.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut attributes = Self::default();
        for attribute in text.split(';') {
            attributes.take(attribute)?;
        }
        Ok(attributes)
    }

    /// Returns `rweight`, else `weight`, else 1. If both are set, `rweight` is the share among destinations in
    /// service, as weights are here.
    #[must_use]
    pub fn weight(&self) -> u16 {
        self.relative_weight.or(self.weight).unwrap_or(1)
    }

    fn take(&mut self, attribute: &str) -> Result<(), String> {
        let (name, value) = attribute.split_once('=').unwrap_or((attribute, ""));
        let name = name.to_ascii_lowercase();
        match &*name {
            "weight" => self.weight = Some(share(&name, attribute, value)?),
            "rweight" => self.relative_weight = Some(share(&name, attribute, value)?),
            "maxload" => {
                let calls = value.parse().ok().filter(|calls: &u32| *calls <= MAX_CAPACITY);
                let calls = calls.ok_or_else(|| {
                    format!("{attribute:?} is not a number of calls; write maxload=1 to maxload={MAX_CAPACITY}, or 0 for no limit")
                })?;
                self.capacity = (calls > 0).then_some(calls);
            }
            _ => self.ignored.extend(IGNORED_ATTRIBUTES.iter().find(|known| **known == name)),
        }
        Ok(())
    }
}

fn share(name: &str, attribute: &str, value: &str) -> Result<u16, String> {
    value.parse().ok().filter(|weight: &u16| *weight > 0).ok_or_else(|| {
        format!(
            "{attribute:?} is not a valid share; write {name}=1 to {name}=65535, or flags 4 to disable the destination"
        )
    })
}
