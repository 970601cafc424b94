//! OTLP: spans in the format of OpenTelemetry, as Protocol Buffers.
//!
//! Written by hand, since the few messages needed do not change: fields are only ever added to them.

use crate::span::{Attribute, Span, Value};

/// Wire types.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const BYTES: u32 = 2;
/// A span that failed (`STATUS_CODE_ERROR`).
const STATUS_ERROR: u64 = 2;

/// What the spans of one request have in common.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resource {
    /// Attributes of the server.
    pub attributes: Vec<Attribute>,
    /// Version of the program that makes the spans.
    pub version: &'static str,
}

/// Returns an `ExportTraceServiceRequest`.
pub(crate) fn encode_request(resource: &Resource, spans: &[Span]) -> Vec<u8> {
    let mut scope = Writer::default();
    scope.bytes(1, b"strowger");
    scope.bytes(2, resource.version.as_bytes());
    let mut scope_spans = Writer::default();
    scope_spans.message(1, &scope);
    for span in spans {
        scope_spans.message(2, &encode_span(span));
    }
    let mut described = Writer::default();
    described.attributes(1, &resource.attributes);
    let mut resource_spans = Writer::default();
    resource_spans.message(1, &described);
    resource_spans.message(2, &scope_spans);
    let mut request = Writer::default();
    request.message(1, &resource_spans);
    request.0
}

fn encode_span(span: &Span) -> Writer {
    let mut writer = Writer::default();
    writer.bytes(1, &span.trace_id);
    writer.bytes(2, &span.span_id);
    if let Some(parent) = &span.parent_id {
        writer.bytes(4, parent);
    }
    writer.bytes(5, span.name.as_bytes());
    writer.number(6, span.kind as u64);
    writer.fixed64(7, span.start_ns);
    writer.fixed64(8, span.end_ns);
    writer.attributes(9, &span.attributes);
    for event in &span.events {
        let mut told = Writer::default();
        told.fixed64(1, event.at_ns);
        told.bytes(2, event.name.as_bytes());
        writer.message(11, &told);
    }
    if span.is_error {
        let mut status = Writer::default();
        status.number(3, STATUS_ERROR);
        writer.message(15, &status);
    }
    writer
}

/// Returns how many spans the receiver rejected, and why: the `partial_success` of an `ExportTraceServiceResponse`.
pub(crate) fn decode_rejection(response: &[u8]) -> Option<(u64, String)> {
    let (mut count, mut why) = (0, String::new());
    for (field, value) in fields(response) {
        let (1, FieldValue::Bytes(partial)) = (field, value) else { continue };
        for (field, value) in fields(partial) {
            match (field, value) {
                (1, FieldValue::Number(rejected)) => count = rejected,
                (2, FieldValue::Bytes(text)) => why = String::from_utf8_lossy(text).into_owned(),
                _ => {}
            }
        }
    }
    (count > 0).then_some((count, why))
}

/// A message being written.
#[derive(Debug, Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn tag(&mut self, field: u32, wire: u32) {
        self.varint(u64::from(field << 3 | wire));
    }

    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            // The low seven bits, and that there are more.
            self.0.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.0.push(number.to_le_bytes()[0]);
    }

    fn number(&mut self, field: u32, number: u64) {
        self.tag(field, VARINT);
        self.varint(number);
    }

    fn fixed64(&mut self, field: u32, number: u64) {
        self.tag(field, FIXED64);
        self.0.extend(number.to_le_bytes());
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.tag(field, BYTES);
        self.varint(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        self.0.extend(bytes);
    }

    fn message(&mut self, field: u32, message: &Self) {
        self.bytes(field, &message.0);
    }

    fn attributes(&mut self, field: u32, attributes: &[Attribute]) {
        for (name, value) in attributes {
            let mut any = Self::default();
            match value {
                Value::Text(text) => any.bytes(1, text.as_bytes()),
                Value::Number(number) => any.number(3, number.cast_unsigned()),
            }
            let mut pair = Self::default();
            pair.bytes(1, name.as_bytes());
            pair.message(2, &any);
            self.message(field, &pair);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FieldValue<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Returns the fields of a message up to the first that cannot be read.
fn fields(mut message: &[u8]) -> impl Iterator<Item = (u64, FieldValue<'_>)> {
    std::iter::from_fn(move || {
        let tag = read_varint(&mut message)?;
        let value = match u32::try_from(tag & 7).ok()? {
            VARINT => FieldValue::Number(read_varint(&mut message)?),
            BYTES => {
                let length = usize::try_from(read_varint(&mut message)?).ok()?;
                let (bytes, rest) = message.split_at_checked(length)?;
                message = rest;
                FieldValue::Bytes(bytes)
            }
            _ => return None,
        };
        Some((tag >> 3, value))
    })
}

fn read_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_they_are_read() {
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut writer = Writer::default();
            writer.varint(number);
            assert_eq!(read_varint(&mut &writer.0[..]), Some(number));
        }
        assert_eq!(read_varint(&mut &[0x80_u8; 11][..]), None);
    }

    #[test]
    fn a_rejection_is_read() {
        let mut partial = Writer::default();
        partial.number(1, 300);
        partial.bytes(2, b"too old");
        let mut response = Writer::default();
        response.message(1, &partial);
        assert_eq!(decode_rejection(&response.0), Some((300, "too old".to_owned())));
        for nothing in [&b""[..], b"\x0a\x00", b"\x0a\x7f", b"garbage"] {
            assert_eq!(decode_rejection(nothing), None);
        }
    }
}
