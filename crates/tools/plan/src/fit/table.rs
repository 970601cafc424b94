//! Measurements as comma-separated values.

use super::error::FitError;
use super::observation::{MessageObservation, Observation};

/// Columns, as shown in `--help` and error messages.
pub const COLUMNS: &str = "rate (packets/s; or calls, of --packets-per-call each), service, waiting, drops, and if \
    known servers (threads on the core), queue (K), cpu (processors, or %), scv, base (K_sockq without load), rest (service without the socket's part), sockq (all of K_sockq), message and count (a row \
    for each message type), name";

/// Meaning of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Name,
    Rate,
    Calls,
    Service,
    Base,
    Rest,
    Sockq,
    Waiting,
    Drops,
    Servers,
    Queue,
    Cpu,
    Scv,
    Message,
    Count,
    /// Column that is not used.
    Other,
}

/// Accepted column names.
const NAMES: &[(&str, Column)] = &[
    ("name", Column::Name),
    ("run", Column::Name),
    ("rate", Column::Rate),
    ("lambda", Column::Rate),
    ("packets", Column::Rate),
    ("packets_per", Column::Rate),
    ("rate_per", Column::Rate),
    ("calls", Column::Calls),
    ("cps", Column::Calls),
    ("calls_per", Column::Calls),
    ("service", Column::Service),
    ("base", Column::Base),
    ("rest", Column::Rest),
    ("sockq", Column::Sockq),
    ("waiting", Column::Waiting),
    ("wait", Column::Waiting),
    ("drops", Column::Drops),
    ("drop", Column::Drops),
    ("drop_rate", Column::Drops),
    ("servers", Column::Servers),
    ("threads", Column::Servers),
    ("queue", Column::Queue),
    ("k", Column::Queue),
    ("cpu", Column::Cpu),
    ("scv", Column::Scv),
    ("message", Column::Message),
    ("type", Column::Message),
    ("count", Column::Count),
    ("weight", Column::Count),
];

/// Units that a column name may end with.
const UNITS: &[(&str, f64)] = &[("_ns", 1e-9), ("_us", 1e-6), ("_ms", 1e-3), ("_s", 1.0)];

/// Reads a table; `name` is the file's name. `packets_per_call` converts calls to packets.
///
/// # Errors
/// No heading, no rate, a number without a unit, or an impossible number. The text names the line and what to do.
pub fn from_csv(name: &str, text: &str, packets_per_call: f64) -> Result<Vec<Observation>, FitError> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).comment(Some(b'#')).from_reader(text.as_bytes());
    let wrong = |line: u64, what: &str| FitError(format!("{name}:{line}: {what}"));
    let heads = reader.headers().map_err(|error| wrong(1, &format!("this is not a table: {error}")))?.clone();
    let columns: Vec<(Column, Option<f64>)> = heads.iter().map(column).collect();
    let has = |wanted: Column| columns.iter().any(|(column, _)| *column == wanted);
    if !has(Column::Rate) && !has(Column::Calls) {
        return Err(wrong(1, &format!("the first line has no column rate; the columns are {COLUMNS}")));
    }
    let mut rows: Vec<Row> = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| {
            let line = error.position().map_or(0, csv::Position::line);
            wrong(line, &format!("this is not a row of the table: {error}"))
        })?;
        let line = record.position().map_or(0, csv::Position::line);
        let mut row = Row { name: format!("{name}:{line}"), ..Row::default() };
        for ((column, unit), cell) in
            columns.iter().zip(record.iter()).filter(|(_, cell)| !cell.is_empty() && *cell != "-")
        {
            row.read(*column, *unit, cell).map_err(|what| wrong(line, &what))?;
        }
        if row.calls > 0.0 && row.rate == 0.0 {
            row.rate = row.calls * packets_per_call;
        }
        if row.rate <= 0.0 {
            return Err(wrong(line, "the rate must be above zero"));
        }
        rows.push(row);
    }
    if rows.is_empty() {
        return Err(wrong(1, "the table has no rows"));
    }
    Ok(joined(rows))
}

/// Row of the table.
#[derive(Clone, Debug, Default)]
struct Row {
    name: String,
    rate: f64,
    calls: f64,
    service: Option<f64>,
    base: Option<f64>,
    rest: Option<f64>,
    sockq: Option<f64>,
    waiting: Option<f64>,
    drops: Option<f64>,
    servers: Option<u32>,
    queue: Option<u64>,
    cpu: Option<f64>,
    scv: Option<f64>,
    message: Option<String>,
    count: Option<f64>,
}

impl Row {
    fn read(&mut self, column: Column, unit: Option<f64>, cell: &str) -> Result<(), String> {
        match column {
            Column::Name => cell.clone_into(&mut self.name),
            Column::Rate => self.rate = number(cell.trim_end_matches("/s"))?,
            Column::Calls => self.calls = number(cell.trim_end_matches("/s").trim_end_matches("cps"))?,
            Column::Service => self.service = Some(time(cell, unit)?).filter(|time| *time > 0.0),
            Column::Base => self.base = Some(time(cell, unit)?),
            Column::Rest => self.rest = Some(time(cell, unit)?),
            Column::Sockq => self.sockq = Some(time(cell, unit)?),
            Column::Waiting => self.waiting = Some(time(cell, unit)?),
            Column::Drops => {
                let drops = share(cell)?;
                if drops > 1.0 {
                    return Err(format!("'{cell}' is above 100 %; drops are 0 to 1, or 0% to 100%"));
                }
                self.drops = Some(drops);
            }
            Column::Servers => self.servers = Some(whole(cell)?),
            Column::Queue => self.queue = Some(u64::from(whole(cell)?)),
            Column::Cpu => self.cpu = Some(share(cell)?),
            Column::Scv => self.scv = Some(number(cell)?),
            Column::Message => self.message = Some(cell.to_owned()),
            Column::Count => self.count = Some(number(cell)?),
            Column::Other => {}
        }
        Ok(())
    }

    fn observation(self) -> Observation {
        let mut observation = Observation {
            name: self.name,
            rate_per_s: self.rate,
            calls_per_s: Some(self.calls).filter(|calls| *calls > 0.0),
            servers: self.servers.unwrap_or(1),
            queue: self.queue,
            base_s: self.base,
            rest_s: self.rest,
            sockq_s: self.sockq,
            wait_s: self.waiting,
            drops: self.drops,
            cpu: self.cpu,
            ..Observation::default()
        };
        match self.message {
            None => (observation.service_s, observation.scv) = (self.service, self.scv),
            Some(message) => observation.messages.push(MessageObservation {
                message,
                weight: self.count.unwrap_or(1.0),
                service_s: self.service,
                scv: self.scv,
            }),
        }
        observation
    }
}

/// Joins consecutive rows of message types with the same rate into one measurement.
fn joined(rows: Vec<Row>) -> Vec<Observation> {
    let mut observations: Vec<Observation> = Vec::new();
    for row in rows {
        let is_type = row.message.is_some();
        let next = row.observation();
        match observations.last_mut() {
            Some(last) if is_type && !last.messages.is_empty() && belong_together(last, &next) => {
                last.messages.extend(next.messages);
                last.wait_s = last.wait_s.or(next.wait_s);
                last.drops = last.drops.or(next.drops);
                last.cpu = last.cpu.or(next.cpu);
                last.base_s = last.base_s.or(next.base_s);
                last.rest_s = last.rest_s.or(next.rest_s);
                last.sockq_s = last.sockq_s.or(next.sockq_s);
            }
            _ => observations.push(next),
        }
    }
    observations
}

fn belong_together(last: &Observation, next: &Observation) -> bool {
    let is_new = |message: &MessageObservation| last.messages.iter().all(|other| other.message != message.message);
    last.rate_per_s == next.rate_per_s && last.servers == next.servers && next.messages.iter().all(is_new)
}

/// Returns the meaning of a column name and the unit at its end.
fn column(head: &str) -> (Column, Option<f64>) {
    let head = head.trim().to_ascii_lowercase().replace([' ', '-'], "_");
    let of = |name: &str| NAMES.iter().find(|(known, _)| *known == name).map(|(_, column)| *column);
    if let Some(column) = of(&head) {
        return (column, None);
    }
    let with_unit = UNITS.iter().find_map(|(end, scale)| Some((of(head.strip_suffix(end)?)?, Some(*scale))));
    with_unit.unwrap_or((Column::Other, None))
}

fn number(cell: &str) -> Result<f64, String> {
    let value = cell.trim().replace(['_', ','], "").parse::<f64>().ok().filter(|value| value.is_finite());
    let value = value.ok_or_else(|| format!("'{cell}' is not a number"))?;
    if value < 0.0 { Err(format!("'{cell}' is below zero")) } else { Ok(value) }
}

fn whole(cell: &str) -> Result<u32, String> {
    let value = cell.trim().parse().ok().filter(|value| *value > 0);
    value.ok_or_else(|| format!("'{cell}' is not a positive integer"))
}

fn share(cell: &str) -> Result<f64, String> {
    match cell.strip_suffix('%') {
        Some(percent) => Ok(number(percent)? / 100.0),
        None => number(cell),
    }
}

/// Parses a time with its own unit or that of its column.
fn time(cell: &str, unit: Option<f64>) -> Result<f64, String> {
    let units = [("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let own = units.into_iter().find_map(|(end, scale)| Some((cell.strip_suffix(end)?, scale)));
    // `5ms` ends with an s as well.
    let own = own.filter(|(digits, _)| number(digits).is_ok());
    match (own, unit) {
        (Some((digits, scale)), _) => Ok(number(digits)? * scale),
        (None, Some(scale)) => Ok(number(cell)? * scale),
        (None, None) if number(cell) == Ok(0.0) => Ok(0.0),
        (None, None) => {
            Err(format!("'{cell}' has no unit; write {cell}us, or name the column service_us, waiting_us or base_us"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_table_is_read() {
        let table = "rate,service,waiting,drops\n600,133.4us,5.485us,0\n14400,140.37 µs,,1.39%\n";
        let read = from_csv("t.csv", table, 6.0).expect("two rows");
        assert_eq!(read.len(), 2);
        assert_eq!((read[0].rate_per_s, read[0].servers, read[0].drops), (600.0, 1, Some(0.0)));
        assert!(read[0].service_s.is_some_and(|time| (time - 133.4e-6).abs() < 1e-12));
        assert_eq!((read[1].wait_s, read[1].name.as_str()), (None, "t.csv:3"));
        assert!(read[1].drops.is_some_and(|drops| (drops - 0.0139).abs() < 1e-12));
    }

    #[test]
    fn units_in_headers_and_rows_per_message_type_are_read() {
        let table = "# measured on Tuesday\ncalls,message,count,service_us,scv,waiting_us,threads,CPU,operator\n\
            100,INVITE,1,230,0.1,5.5,1,8%,me\n100,ACK,1,90,0.2,,1,,me\n200,INVITE,1,240,0.1,13,1,0.18,me\n";
        let read = from_csv("t.csv", table, 6.0).expect("two measurements");
        assert_eq!(read.len(), 2, "{read:?}");
        assert_eq!((read[0].messages.len(), read[0].rate_per_s, read[0].calls_per_s), (2, 600.0, Some(100.0)));
        assert!(read[0].mean_s().is_some_and(|mean| (mean - 160e-6).abs() < 1e-12));
        assert_eq!((read[0].cpu, read[1].cpu), (Some(0.08), Some(0.18)));
    }

    #[test]
    fn errors_name_the_line() {
        for (table, part) in [
            ("service,waiting\n1us,2us\n", "t.csv:1: the first line has no column rate; the columns are rate"),
            ("rate,service\n600,133.4\n", "t.csv:2: '133.4' has no unit; write 133.4us"),
            ("rate,service\n600,1us\nfast,2us\n", "t.csv:3: 'fast' is not a number"),
            ("rate,drops\n600,140%\n", "t.csv:2: '140%' is above 100 %"),
            ("rate,waiting_us\n600,-1\n", "t.csv:2: '-1' is below zero"),
            ("rate,threads\n600,0\n", "t.csv:2: '0' is not a positive integer"),
            ("rate,service\n0,1us\n", "t.csv:2: the rate must be above zero"),
            ("rate,service\n", "t.csv:1: the table has no rows"),
            ("rate,service\n1,2us,3\n", "t.csv:2: this is not a row"),
        ] {
            let error = from_csv("t.csv", table, 6.0).expect_err(table).0;
            assert!(error.starts_with(part), "{error}");
        }
    }
}
