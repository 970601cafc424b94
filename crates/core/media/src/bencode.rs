//! Bencode, as in BitTorrent (BEP 3): integers, byte strings, lists and dictionaries.
//!
//! [`Value::parse`] borrows from the message. [`DictWriter`] writes a dictionary whose keys come in ascending order.

use core::fmt;

/// Largest depth of lists and dictionaries within each other.
pub const MAX_DEPTH: usize = 16;
/// Largest number of values in one message.
pub const MAX_VALUES: usize = 4096;

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// An integer.
    Int(i64),
    /// A byte string.
    Bytes(&'a [u8]),
    /// A list.
    List(Vec<Value<'a>>),
    /// A dictionary, in the order of the message.
    Dict(Vec<(&'a [u8], Value<'a>)>),
}

/// Why a text is no bencode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It ends within a value.
    Truncated,
    /// A value begins with another byte than `i`, `l`, `d` or a digit.
    Type,
    /// An integer or a length is malformed or too large.
    Number,
    /// A key of a dictionary is no byte string.
    Key,
    /// Deeper than [`MAX_DEPTH`], or more than [`MAX_VALUES`] values.
    TooComplex,
    /// Something follows the value.
    Trailing,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "ends within a value",
            Self::Type => "a value of an unknown type",
            Self::Number => "a malformed number",
            Self::Key => "a key that is no string",
            Self::TooComplex => "too many or too deeply nested values",
            Self::Trailing => "bytes after the value",
        })
    }
}

impl<'a> Value<'a> {
    /// Parses a text that is one value.
    ///
    /// # Errors
    /// Returns what is wrong with it.
    pub fn parse(text: &'a [u8]) -> Result<Self, Fault> {
        let mut reader = Reader { rest: text, values: MAX_VALUES };
        let value = reader.value(MAX_DEPTH)?;
        if reader.rest.is_empty() { Ok(value) } else { Err(Fault::Trailing) }
    }

    /// Returns the value of `key` in a dictionary.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Self> {
        let Self::Dict(entries) = self else { return None };
        entries.iter().find(|(name, _)| *name == key.as_bytes()).map(|(_, value)| value)
    }

    /// Returns the bytes of a byte string.
    #[must_use]
    pub const fn as_bytes(&self) -> Option<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Returns an integer.
    #[must_use]
    pub const fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(int) => Some(*int),
            _ => None,
        }
    }

    /// Appends the text of the value to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Int(int) => write_int(out, *int),
            Self::Bytes(bytes) => write_bytes(out, bytes),
            Self::List(values) => {
                out.push(b'l');
                values.iter().for_each(|value| value.write(out));
                out.push(b'e');
            }
            Self::Dict(entries) => {
                out.push(b'd');
                for (key, value) in entries {
                    write_bytes(out, key);
                    value.write(out);
                }
                out.push(b'e');
            }
        }
    }
}

struct Reader<'a> {
    rest: &'a [u8],
    /// How many values may still come.
    values: usize,
}

impl<'a> Reader<'a> {
    fn value(&mut self, depth: usize) -> Result<Value<'a>, Fault> {
        self.values = self.values.checked_sub(1).ok_or(Fault::TooComplex)?;
        let within = || depth.checked_sub(1).ok_or(Fault::TooComplex);
        match self.rest.split_first().ok_or(Fault::Truncated)? {
            (b'i', rest) => {
                self.rest = rest;
                self.int().map(Value::Int)
            }
            (b'0'..=b'9', _) => self.bytes().map(Value::Bytes),
            (b'l', rest) => {
                self.rest = rest;
                let mut values = Vec::new();
                while !self.ends()? {
                    values.push(self.value(within()?)?);
                }
                Ok(Value::List(values))
            }
            (b'd', rest) => {
                self.rest = rest;
                let mut entries = Vec::new();
                while !self.ends()? {
                    if !self.rest.first().is_some_and(u8::is_ascii_digit) {
                        return Err(Fault::Key);
                    }
                    let key = self.bytes()?;
                    entries.push((key, self.value(within()?)?));
                }
                Ok(Value::Dict(entries))
            }
            _ => Err(Fault::Type),
        }
    }

    /// Whether the list or dictionary ends here; skips its end.
    fn ends(&mut self) -> Result<bool, Fault> {
        match self.rest.split_first().ok_or(Fault::Truncated)? {
            (b'e', rest) => {
                self.rest = rest;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn int(&mut self) -> Result<i64, Fault> {
        let text = self.until(b'e')?;
        let digits = text.strip_prefix(b"-").unwrap_or(text);
        if !is_canonical(digits) || text == b"-0" {
            return Err(Fault::Number);
        }
        core::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(Fault::Number)
    }

    fn bytes(&mut self) -> Result<&'a [u8], Fault> {
        let digits = self.until(b':')?;
        if !is_canonical(digits) {
            return Err(Fault::Number);
        }
        let length = core::str::from_utf8(digits).ok().and_then(|text| text.parse().ok()).ok_or(Fault::Number)?;
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(Fault::Truncated)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// Returns what stands before `end`, which is at most a number away, and skips both.
    fn until(&mut self, end: u8) -> Result<&'a [u8], Fault> {
        let mut parts = self.rest.splitn(2, |byte| *byte == end);
        let (Some(text), rest) = (parts.next(), parts.next()) else { return Err(Fault::Truncated) };
        if text.iter().any(|byte| !byte.is_ascii_digit() && *byte != b'-') {
            return Err(Fault::Number);
        }
        self.rest = rest.ok_or(Fault::Truncated)?;
        Ok(text)
    }
}

/// Whether these are digits without leading zeros.
fn is_canonical(digits: &[u8]) -> bool {
    match digits {
        [b'0'] => true,
        [first, rest @ ..] => matches!(first, b'1'..=b'9') && rest.iter().all(u8::is_ascii_digit),
        [] => false,
    }
}

/// Appends a byte string.
fn write_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(bytes.len().to_string().as_bytes());
    out.push(b':');
    out.extend_from_slice(bytes);
}

fn write_int(out: &mut Vec<u8>, int: i64) {
    out.push(b'i');
    out.extend_from_slice(int.to_string().as_bytes());
    out.push(b'e');
}

/// A dictionary being written. The keys must come in ascending order of their bytes, as bencode requires.
#[derive(Debug)]
pub struct DictWriter<'a> {
    out: &'a mut Vec<u8>,
    last: &'static str,
}

impl<'a> DictWriter<'a> {
    /// Begins a dictionary at the end of `out`.
    #[must_use]
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        out.push(b'd');
        Self { out, last: "" }
    }

    /// Adds a byte string.
    pub fn bytes(&mut self, key: &'static str, value: &[u8]) -> &mut Self {
        self.key(key);
        write_bytes(self.out, value);
        self
    }

    /// Adds a byte string if there is one.
    pub fn optional(&mut self, key: &'static str, value: Option<&[u8]>) -> &mut Self {
        match value {
            Some(value) => self.bytes(key, value),
            None => self,
        }
    }

    /// Adds a list of byte strings, unless it is empty.
    pub fn list(&mut self, key: &'static str, values: &[&[u8]]) -> &mut Self {
        if values.is_empty() {
            return self;
        }
        self.key(key);
        self.out.push(b'l');
        values.iter().for_each(|value| write_bytes(self.out, value));
        self.out.push(b'e');
        self
    }

    /// Ends the dictionary.
    pub fn finish(&mut self) {
        self.out.push(b'e');
    }

    fn key(&mut self, key: &'static str) {
        debug_assert!(self.last < key, "{key} comes after {}", self.last);
        self.last = key;
        write_bytes(self.out, key.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_written() {
        let text = b"d3:agei-5e4:listl1:a0:i0ee6:result2:oke";
        let value = Value::parse(text).expect("valid");
        assert_eq!(value.get("age").and_then(Value::as_int), Some(-5));
        assert_eq!(value.get("result").and_then(Value::as_bytes), Some(&b"ok"[..]));
        assert_eq!(value.get("list"), Some(&Value::List(vec![Value::Bytes(b"a"), Value::Bytes(b""), Value::Int(0)])));
        let mut out = Vec::new();
        value.write(&mut out);
        assert_eq!(out, text);
    }

    #[test]
    fn malformed_texts_are_refused_with_the_reason() {
        let nested = [vec![b'l'; 40], vec![b'e'; 40]].concat();
        let many = [&b"l"[..], &b"0:".repeat(MAX_VALUES), b"e"].concat();
        for (text, fault) in [
            (&b""[..], Fault::Truncated),
            (b"d3:key", Fault::Truncated),
            (b"5:abc", Fault::Truncated),
            (b"i5", Fault::Truncated),
            (b"x", Fault::Type),
            (b"i05e", Fault::Number),
            (b"i-0e", Fault::Number),
            (b"i-e", Fault::Number),
            (b"ie", Fault::Number),
            (b"i99999999999999999999e", Fault::Number),
            (b"99999999999999999999999:", Fault::Number),
            (b"01:a", Fault::Number),
            (b"di1e1:ae", Fault::Key),
            (b"i1ei2e", Fault::Trailing),
            (&nested, Fault::TooComplex),
            (&many, Fault::TooComplex),
        ] {
            assert_eq!(Value::parse(text), Err(fault), "{}", String::from_utf8_lossy(text));
        }
    }
}
