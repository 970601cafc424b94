//! Reads the events of the kernel's programs. The layout is that of `bpf/events.h`.

use super::event::{Event, Given, Queued, Received, Sent};
use crate::message_type::MessageType;

/// Transport protocol number of TCP.
const TCP: u16 = 6;

/// Reads an event; `None` if it is cut or of an unknown kind, which a probe of the same build never writes.
pub(crate) fn read(bytes: &[u8]) -> Option<Event> {
    let mut fields = Fields(bytes);
    match fields.u64()? {
        1 => read_queued(&mut fields).map(Event::Queued),
        2 => read_received(&mut fields).map(Event::Received),
        3 => read_sent(&mut fields).map(Event::Sent),
        4 => read_given(&mut fields).map(Event::Given),
        _ => None,
    }
}

fn read_queued(fields: &mut Fields<'_>) -> Option<Queued> {
    Some(Queued {
        socket: fields.u64()?,
        at: fields.u64()?,
        arrived: fields.time()?,
        length: fields.u32()?,
        stream_end: fields.u32()?,
    })
}

fn read_received(fields: &mut Fields<'_>) -> Option<Received> {
    let (socket, at, enter, mark) = (fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?);
    let (woken, ran) = (fields.time()?, fields.time()?);
    let (ready, returned) = (fields.u64()?, fields.time()?);
    let (thread, length, queue, stream_end) = (fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?);
    let (index, port, protocol, payload) = (fields.u16()?, fields.u16()?, fields.u16()?, fields.u16()?);
    Some(Received {
        thread,
        socket,
        port,
        is_stream: protocol == TCP,
        at,
        enter,
        mark,
        index,
        woken: woken.zip(ran),
        ready,
        returned,
        length,
        queue,
        stream_end,
        message: message_of(fields.bytes(usize::from(payload))?, length),
    })
}

/// Returns the type; a packet whose payload could not be read is no keep-alive.
fn message_of(payload: &[u8], length: u32) -> MessageType {
    if payload.is_empty() && length > 0 { MessageType::Other } else { MessageType::of(payload) }
}

fn read_sent(fields: &mut Fields<'_>) -> Option<Sent> {
    let (enter, exit, returned, given_ns) = (fields.u64()?, fields.u64()?, fields.time()?, fields.u64()?);
    Some(Sent {
        ready: fields.time()?,
        enter,
        exit,
        returned,
        given_ns,
        thread: fields.u32()?,
        call: fields.u32()?,
        messages: fields.u32()?,
        queued: fields.u32()?,
        given: fields.u32()?,
    })
}

fn read_given(fields: &mut Fields<'_>) -> Option<Given> {
    Some(Given { at: fields.u64()?, ns: fields.u64()?, thread: fields.u32()?, call: fields.u32()? })
}

/// Fields of a C structure, in order.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(head)
    }

    fn array<const LENGTH: usize>(&mut self) -> Option<[u8; LENGTH]> {
        self.bytes(LENGTH)?.try_into().ok()
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_ne_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_ne_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_ne_bytes)
    }

    /// Reads a time of which zero says that it was not seen.
    fn time(&mut self) -> Option<Option<u64>> {
        self.u64().map(|nanos| Some(nanos).filter(|nanos| *nanos > 0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::message_type::MethodName;

    #[test]
    fn a_received_message_is_read_with_its_type() {
        let payload = b"BYE sip:a@b SIP/2.0\r\n";
        let mut bytes: Vec<u8> =
            [2_u64, 9, 500, 100, 200, 0, 0, 90, 0].into_iter().flat_map(u64::to_ne_bytes).collect();
        bytes.extend([7_u32, 300, 4, 0].into_iter().flat_map(u32::to_ne_bytes));
        bytes.extend([1_u16, 5060, 17, 21].into_iter().flat_map(u16::to_ne_bytes));
        bytes.extend(payload);
        let Some(Event::Received(event)) = read(&bytes) else { panic!("not read") };
        assert_eq!((event.socket, event.at, event.enter, event.mark, event.ready), (9, 500, 100, 200, 90));
        assert_eq!((event.thread, event.length, event.queue, event.index, event.port), (7, 300, 4, 1, 5060));
        assert_eq!((event.woken, event.returned, event.is_stream), (None, None, false));
        assert_eq!(event.message, MessageType::Request(MethodName::Bye));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0_u8..6) {
            let mut bytes = bytes;
            if let Some(first) = bytes.get_mut(..8) {
                first.copy_from_slice(&u64::from(kind).to_ne_bytes());
            }
            let _ = read(&bytes);
        }
    }
}
