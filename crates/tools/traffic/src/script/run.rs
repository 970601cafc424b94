//! Execution of actions. They access the session and the run through [`ActionEnvironment`].

use std::io::Write as _;
use std::time::Duration;

use super::{Action, ClockForm, Condition, Operand, Place, Relation, Stop, Variable, body_of, field_value};
use crate::session::Value;

/// Maximum length of a variable's text in bytes; longer texts are truncated.
pub(crate) const MAX_VALUE_BYTES: usize = 65_536;

/// What actions need from the session and the run.
pub(crate) trait ActionEnvironment {
    /// Returns the last message (empty without one) and the session's variables.
    fn parts(&mut self) -> (&[u8], &mut Vec<Value>);
    /// Appends the text of a template of the script.
    fn render(&mut self, template: u16, out: &mut Vec<u8>);
    /// Samples a law of the script, in seconds.
    fn sample(&mut self, law: u16) -> f64;
    /// Returns the wall time since 1970.
    fn wall(&mut self) -> Duration;
    /// Starts or stops a timer.
    fn timer(&mut self, number: u8, begins: bool);
    /// Compares the response just received with the recorded one.
    fn compare(&mut self, verb: super::MethodId, recorded: u16);
    /// Writes to the run's log.
    fn log(&mut self, text: &[u8]);
    /// Returns the time since the run began.
    fn ticks(&mut self) -> Duration;
    /// Returns a random number.
    fn random(&mut self) -> u64;
    /// Returns the number of the session's user.
    fn user(&mut self) -> u32;
    /// Ends the run.
    fn stop(&mut self, stop: Stop);
}

/// Result of actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The script continues.
    Continue,
    /// The call fails: something required was not found, or the script failed it.
    Fail,
}

/// Runs `actions` in order until one ends the call.
pub(crate) fn run(actions: &[Action], world: &mut impl ActionEnvironment) -> Outcome {
    for action in actions {
        match one(action, world) {
            Outcome::Continue => {}
            other => return other,
        }
    }
    Outcome::Continue
}

/// Returns whether a condition holds.
pub(crate) fn holds(condition: &Condition, values: &[Value]) -> bool {
    let value = |variable: &Variable| values.get(usize::from(*variable)).unwrap_or(&Value::Nothing);
    match condition {
        Condition::Set(variable) => is_set(value(variable)),
        Condition::Unset(variable) => !is_set(value(variable)),
        #[expect(clippy::cast_precision_loss, reason = "scripts compare small numbers")]
        Condition::Compares(variable, order, with) => {
            number(value(variable)).partial_cmp(&(*with as f64)) == Some(*order)
        }
        Condition::Is(variable, text) => text_of(value(variable)) == text.as_bytes(),
    }
}

fn is_set(value: &Value) -> bool {
    match value {
        Value::Nothing => false,
        Value::Number(_) => true,
        Value::Text(text) => !text.is_empty(),
    }
}

fn one(action: &Action, world: &mut impl ActionEnvironment) -> Outcome {
    match action {
        Action::Assign(variable, operand) => {
            let value = match operand {
                Operand::Text(text) => Value::Text(text.as_bytes().to_vec()),
                Operand::Variable(from) => get(world, *from),
                Operand::Number(_) | Operand::Law(_) => Value::Number(value_of(operand, world)),
            };
            set(world, *variable, value);
        }
        Action::Add(variable, operand) => compute(world, *variable, operand, |a, b| a + b),
        Action::Subtract(variable, operand) => compute(world, *variable, operand, |a, b| a - b),
        Action::Multiply(variable, operand) => compute(world, *variable, operand, |a, b| a * b),
        Action::Divide(variable, operand) => {
            compute(world, *variable, operand, |a, b| if b == 0.0 { a } else { a / b });
        }
        Action::Text(variable, template) => {
            let text = rendered(world, *template);
            set(world, *variable, Value::Text(text));
        }
        Action::Match(search) => return matches(search, world),
        Action::Find { place, after, before, into, must } => {
            let (message, values) = world.parts();
            let found = place_in(place, 1, message, values).and_then(|text| between(text, after, before));
            let found = found.map(<[u8]>::to_vec);
            if found.is_none() && *must {
                return Outcome::Fail;
            }
            set(world, *into, found.map_or(Value::Nothing, Value::Text));
        }
        Action::Test(variable, condition) => {
            let does = holds(condition, world.parts().1);
            set(world, *variable, truth(does));
        }
        Action::Relate { into, left, relation, right } => {
            let (left, right) = (number(&get(world, *left)), value_of(right, world));
            set(world, *into, truth(relates(left, *relation, right)));
        }
        Action::Order { into, left, right } => {
            let right = rendered(world, *right);
            let order = text_of(&get(world, *left)).as_slice().cmp(&right);
            set(world, *into, Value::Number(f64::from(order as i8)));
        }
        Action::Number { into, from } => {
            let value = number(&get(world, *from));
            set(world, *into, Value::Number(value));
        }
        Action::Escape(variable) => {
            let text = escape(&text_of(&get(world, *variable)));
            set(world, *variable, Value::Text(text));
        }
        Action::Unescape(variable) => {
            let text = unescape(&text_of(&get(world, *variable)));
            set(world, *variable, Value::Text(text));
        }
        Action::WallTime { seconds, micros } => {
            let wall = world.wall();
            #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 are exact in 52 bits")]
            set(world, *seconds, Value::Number(wall.as_secs() as f64));
            set(world, *micros, Value::Number(f64::from(wall.subsec_micros())));
        }
        Action::Log(text, variable) => {
            let mut line = text.clone().into_bytes();
            if let Some(variable) = variable {
                line.extend_from_slice(&text_of(&get(world, *variable)));
            }
            world.log(&line);
        }
        Action::LogTemplate(template) => {
            let line = rendered(world, *template);
            world.log(&line);
        }
        Action::BeginTimer(timer) => world.timer(*timer, true),
        Action::EndTimer(timer) => world.timer(*timer, false),
        Action::Compare { verb, recorded } => world.compare(*verb, *recorded),
        Action::Clock { into, form } => {
            let text = match form {
                ClockForm::Ticks => world.ticks().as_millis().to_string(),
                ClockForm::Stamp => stamp(world.wall()),
                ClockForm::Date => date(world.wall()),
            };
            set(world, *into, Value::Text(text.into_bytes()));
        }
        Action::Line { into, table } => {
            let line = table.next_line(world.user(), world.random());
            set(world, *into, Value::Number(f64::from(line)));
        }
        Action::Cell { into, table, line, column } => {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts of floats saturate")]
            let line = value_of(line, world) as u32;
            set(world, *into, Value::Text(table.cell(line, *column).into_bytes()));
        }
        Action::Stop(Stop::Call) => return Outcome::Fail,
        Action::Stop(stop) => world.stop(*stop),
    }
    Outcome::Continue
}

fn matches(search: &super::Match, world: &mut impl ActionEnvironment) -> Outcome {
    let mut found = Vec::new();
    let (message, values) = world.parts();
    let text = place_in(&search.place, search.occurrence, message, values);
    let goes_on = search.search(text, |variable, group| {
        found.push((variable, group.get(..group.len().min(MAX_VALUE_BYTES)).unwrap_or(group).to_vec()));
    });
    for (variable, text) in found {
        set(world, variable, Value::Text(text));
    }
    if goes_on { Outcome::Continue } else { Outcome::Fail }
}

fn place_in<'a>(place: &Place, occurrence: u16, message: &'a [u8], values: &'a [Value]) -> Option<&'a [u8]> {
    match place {
        Place::Message => Some(message),
        Place::Body => Some(body_of(message)),
        Place::Header(name) => field_value(message, name, occurrence),
        Place::Variable(variable) => match values.get(usize::from(*variable)) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        },
    }
}

/// Returns the text between `after` and `before`, or the end of the line.
fn between<'a>(text: &'a [u8], after: &str, before: &str) -> Option<&'a [u8]> {
    let start = memchr::memmem::find(text, after.as_bytes())? + after.len();
    let rest = text.get(start..)?;
    let end = if before.is_empty() {
        memchr::memchr2(b'\r', b'\n', rest).unwrap_or(rest.len())
    } else {
        memchr::memmem::find(rest, before.as_bytes())?
    };
    rest.get(..end)
}

fn rendered(world: &mut impl ActionEnvironment, template: u16) -> Vec<u8> {
    let mut text = Vec::new();
    world.render(template, &mut text);
    text.truncate(MAX_VALUE_BYTES);
    text
}

fn get(world: &mut impl ActionEnvironment, variable: Variable) -> Value {
    world.parts().1.get(usize::from(variable)).cloned().unwrap_or_default()
}

fn set(world: &mut impl ActionEnvironment, variable: Variable, value: Value) {
    let values = world.parts().1;
    if values.len() <= usize::from(variable) {
        values.resize(usize::from(variable) + 1, Value::Nothing);
    }
    if let Some(slot) = values.get_mut(usize::from(variable)) {
        *slot = value;
    }
}

fn compute(world: &mut impl ActionEnvironment, variable: Variable, operand: &Operand, how: impl Fn(f64, f64) -> f64) {
    let with = value_of(operand, world);
    let value = how(number(&get(world, variable)), with);
    set(world, variable, Value::Number(value));
}

fn value_of(operand: &Operand, world: &mut impl ActionEnvironment) -> f64 {
    match operand {
        Operand::Number(number) => *number,
        Operand::Text(text) => text.trim().parse().unwrap_or(0.0),
        Operand::Variable(variable) => number(&get(world, *variable)),
        Operand::Law(law) => world.sample(*law),
    }
}

fn truth(holds: bool) -> Value {
    if holds { Value::Number(1.0) } else { Value::Nothing }
}

/// Returns the number that a value represents; 0 if it is none.
pub(crate) fn number(value: &Value) -> f64 {
    match value {
        Value::Nothing => 0.0,
        Value::Number(number) => *number,
        Value::Text(text) => std::str::from_utf8(text).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0.0),
    }
}

/// Returns a variable's text; whole numbers have no fraction.
fn text_of(value: &Value) -> Vec<u8> {
    match value {
        Value::Nothing => Vec::new(),
        Value::Text(text) => text.clone(),
        Value::Number(number) => {
            let mut text = Vec::new();
            // Writing to a Vec cannot fail.
            let _ = write!(text, "{number}");
            text
        }
    }
}

fn relates(left: f64, relation: Relation, right: f64) -> bool {
    let order = left.partial_cmp(&right);
    match relation {
        Relation::Equal => order.is_some_and(std::cmp::Ordering::is_eq),
        Relation::NotEqual => !order.is_some_and(std::cmp::Ordering::is_eq),
        Relation::Greater => order.is_some_and(std::cmp::Ordering::is_gt),
        Relation::Less => order.is_some_and(std::cmp::Ordering::is_lt),
        Relation::AtLeast => order.is_some_and(std::cmp::Ordering::is_ge),
        Relation::AtMost => order.is_some_and(std::cmp::Ordering::is_le),
    }
}

/// Encodes all but the unreserved characters as `%XX`.
fn escape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for byte in text {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) {
            out.push(*byte);
        } else {
            // Writing to a Vec cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, behind)) = rest.split_first() {
        let hex = |at: usize| behind.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        match (first, hex(0), hex(1)) {
            (b'%', Some(high), Some(low)) => {
                out.push(u8::try_from(high * 16 + low).unwrap_or(b'?'));
                rest = behind.get(2..).unwrap_or(&[]);
            }
            _ => {
                out.push(*first);
                rest = behind;
            }
        }
    }
    out
}

/// Returns year, month and day of a day since 1970 (Gregorian, as everywhere in SIP).
const fn civil(day: u64) -> (u64, u64, u64) {
    // Years begin in March, so that the leap day is the last one.
    let day = day + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (year, month) = (era * 400 + year_of_era, if month < 10 { month + 3 } else { month - 9 });
    (if month <= 2 { year + 1 } else { year }, month, day)
}

fn stamp(wall: Duration) -> String {
    let seconds = wall.as_secs();
    let ((year, month, day), rest) = (civil(seconds / 86_400), seconds % 86_400);
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{:06}", wall.subsec_micros())
}

fn date(wall: Duration) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let seconds = wall.as_secs();
    let ((year, month, day), rest) = (civil(seconds / 86_400), seconds % 86_400);
    let pick = |names: &[&'static str], number: u64| {
        usize::try_from(number).ok().and_then(|at| names.get(at).copied()).unwrap_or("")
    };
    let (weekday, month) = (pick(&DAYS, seconds / 86_400 % 7), pick(&MONTHS, month - 1));
    format!("{weekday}, {day:02} {month} {year:04} {:02}:{:02}:{:02} GMT", rest / 3_600, rest / 60 % 60, rest % 60)
}
