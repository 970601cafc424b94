//! Results as a table for `strowger plan fit` and `strowger plan validate`.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use super::timing::TypeTiming;

/// Column names.
const HEAD: &str = "name,servers,queue,calls,rate,message,count,service_us,scv,waiting_us,drops,cpu";

/// A server at one rate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observation {
    /// Name of the server.
    pub name: String,
    /// c: threads or processes that receive from its socket.
    pub servers: u32,
    /// K: packets in the socket or in service; `None` if none is ever dropped.
    pub queue: Option<u64>,
    /// Calls per second.
    pub calls_per_s: f64,
    /// λ: packets per second.
    pub packets_per_s: f64,
    /// Times per message type. If empty, [`service_us`](Self::service_us) holds for all packets together.
    pub types: Vec<TypeTiming>,
    /// E\[X\] of one of the servers, in µs.
    pub service_us: Option<f64>,
    /// W, in µs.
    pub wait_us: Option<f64>,
    /// Share of dropped packets.
    pub drops: Option<f64>,
    /// Average number of cores busy with packets.
    pub busy: f64,
}

impl Observation {
    fn rows(&self, text: &mut String) {
        let shown =
            |value: Option<f64>, digits: usize| value.map(|value| format!("{value:.digits$}")).unwrap_or_default();
        let queue = self.queue.map(|queue| queue.to_string()).unwrap_or_default();
        let mut row = |message: &str, count: &str, service: Option<f64>, scv: Option<f64>| {
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "{},{},{queue},{:.1},{:.1},{message},{count},{},{},{},{},{:.4}",
                self.name,
                self.servers,
                self.calls_per_s,
                self.packets_per_s,
                shown(service, 3),
                shown(scv, 4),
                shown(self.wait_us, 3),
                shown(self.drops, 6),
                self.busy,
            );
        };
        for typed in &self.types {
            row(&typed.message, &typed.count.to_string(), Some(typed.service_us), Some(typed.scv));
        }
        if self.types.is_empty() {
            row("", "", self.service_us, None);
        }
    }
}

/// Writes a table with the conditions above it as comments.
///
/// # Errors
/// If the file cannot be written.
pub fn write(file: &Path, around: &str, measured: &[Observation]) -> io::Result<()> {
    let mut text = String::new();
    for line in around.lines() {
        let _ = writeln!(text, "# {line}");
    }
    let _ = writeln!(text, "{HEAD}");
    measured.iter().for_each(|one| one.rows(&mut text));
    fs::write(file, text)
}

/// Returns the conditions above a table.
///
/// # Errors
/// If it cannot be read.
pub fn circumstances(file: &Path) -> io::Result<String> {
    let text = fs::read_to_string(file)?;
    let lines: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# ")).collect();
    Ok(lines.join("\n"))
}

/// Returns the types of the measurement whose load is nearest to `busy`: name, share, E\[X_i\] in µs and
/// Var\[X_i\]/E\[X_i\]², as text.
///
/// # Errors
/// If the table cannot be read.
pub fn types_at(file: &Path, busy: f64) -> io::Result<Vec<(String, f64, String, String)>> {
    let text = fs::read_to_string(file)?;
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    let number = |row: &[&str], at: usize| row.get(at).and_then(|cell| cell.parse::<f64>().ok());
    let typed = || rows.iter().filter(|row| number(row, 6).is_some());
    let miss = |row: &[&str]| number(row, 11).map_or(f64::INFINITY, |load| (load - busy).abs());
    let nearest = typed().map(|row| miss(row)).fold(f64::INFINITY, f64::min);
    let own: Vec<&Vec<&str>> = typed().filter(|row| miss(row) <= nearest).collect();
    let all: f64 = own.iter().filter_map(|row| number(row, 6)).sum();
    let cell = |row: &[&str], at: usize| row.get(at).copied().unwrap_or_default().to_owned();
    Ok(own.iter().map(|row| (cell(row, 5), number(row, 6).unwrap_or(0.0) / all, cell(row, 7), cell(row, 8))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(message: &str, count: u64) -> TypeTiming {
        TypeTiming { message: message.to_owned(), count, service_us: 20.5, scv: 0.25 }
    }

    #[test]
    fn a_table_has_a_row_for_each_type_or_one_for_all() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("table.csv");
        let timed = Observation {
            name: "one thread".to_owned(),
            servers: 1,
            calls_per_s: 100.0,
            packets_per_s: 600.0,
            types: vec![typed("INVITE", 100), typed("ACK", 300)],
            wait_us: Some(1.5),
            busy: 0.5,
            ..Observation::default()
        };
        let pool = Observation {
            name: "pool".to_owned(),
            servers: 2,
            queue: Some(162),
            packets_per_s: 1_200.0,
            calls_per_s: 200.0,
            service_us: Some(80.0),
            drops: Some(0.01),
            busy: 0.9,
            ..Observation::default()
        };
        write(&file, "- Machine: one\n- Date: today\n", &[timed, pool]).expect("written");
        let expected = "# - Machine: one\n# - Date: today\n\
            name,servers,queue,calls,rate,message,count,service_us,scv,waiting_us,drops,cpu\n\
            one thread,1,,100.0,600.0,INVITE,100,20.500,0.2500,1.500,,0.5000\n\
            one thread,1,,100.0,600.0,ACK,300,20.500,0.2500,1.500,,0.5000\n\
            pool,2,162,200.0,1200.0,,,80.000,,,0.010000,0.9000\n";
        assert_eq!(fs::read_to_string(&file).expect("written"), expected);
        assert_eq!(circumstances(&file).expect("readable"), "- Machine: one\n- Date: today");
        let types = types_at(&file, 0.6).expect("readable");
        assert_eq!(types.len(), 2);
        assert_eq!(types[1], ("ACK".to_owned(), 0.75, "20.500".to_owned(), "0.2500".to_owned()));
    }
}
