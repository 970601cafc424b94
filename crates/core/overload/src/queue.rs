//! Receive queue of a datagram, determined by its first eight bytes. The kernel's program implements this table if it
//! is available, else the worker does.

/// One of a worker's two receive queues on an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Messages of something in progress: responses, ACK, PRACK, BYE, CANCEL and so on. Drained first.
    InProgress,
    /// Messages that may begin something. The wait in this queue is bounded.
    NewWork,
}

/// First bytes of messages of something in progress: a response, or a request within a dialog or transaction. INVITE,
/// REGISTER, SUBSCRIBE, OPTIONS, MESSAGE and PUBLISH may begin something; inside a dialog they wait with new work and
/// are never refused.
pub const IN_PROGRESS: [[u8; 4]; 9] =
    [*b"SIP/", *b"ACK ", *b"BYE ", *b"CANC", *b"PRAC", *b"INFO", *b"UPDA", *b"NOTI", *b"REFE"];

/// Second four bytes of a STUN message: its magic cookie (RFC 8489 §5). A phone that gets no answer to its keep-alives
/// registers again, which costs more than the answers.
pub const STUN_COOKIE: [u8; 4] = [0x21, 0x12, 0xA4, 0x42];

/// Returns the queue of a datagram. A keep-alive, and one too short for a message, is [in
/// progress](Queue::InProgress). Any other that starts with no known method is [new work](Queue::NewWork), so that a
/// flood of them cannot delay calls.
#[must_use]
pub fn queue_of(datagram: &[u8]) -> Queue {
    let Some((first, rest)) = datagram.split_first_chunk::<4>() else { return Queue::InProgress };
    if IN_PROGRESS.contains(first) || *first == *b"\r\n\r\n" {
        return Queue::InProgress;
    }
    match rest.first_chunk::<4>() {
        Some(second) if *second != STUN_COOKIE => Queue::NewWork,
        _ => Queue::InProgress,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_in_progress_and_keep_alives_go_first() {
        for first in ["SIP/2.0 200 OK", "ACK sip:a", "BYE sip:a", "CANCEL sip:a", "PRACK sip:a", "\r\n\r\n", "\r\n", ""]
        {
            assert_eq!(queue_of(first.as_bytes()), Queue::InProgress, "{first}");
        }
        for first in
            ["INVITE sip:a", "REGISTER sip:a", "OPTIONS sip:a", "MESSAGE sip:a", "GET / HTTP/1.1", "\0\0\0\0\0\0\0\0"]
        {
            assert_eq!(queue_of(first.as_bytes()), Queue::NewWork, "{first}");
        }
        for kind_and_length in [[0, 1, 0, 0], [0, 1, 0, 12], [0, 0x11, 0, 0]] {
            assert_eq!(queue_of(&[kind_and_length, STUN_COOKIE].concat()), Queue::InProgress, "{kind_and_length:?}");
        }
    }
}
