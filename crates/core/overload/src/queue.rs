//! Receive queue of a datagram, determined by its first four bytes. The kernel's program implements this table if it
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

/// Returns the queue of a datagram. One too short for a message (a keep-alive) is [in progress](Queue::InProgress).
/// One that starts with no known method is [new work](Queue::NewWork), so that a flood of them cannot delay calls.
#[must_use]
pub fn queue_of(datagram: &[u8]) -> Queue {
    match datagram.first_chunk::<4>() {
        None => Queue::InProgress,
        Some(first) if IN_PROGRESS.contains(first) || *first == *b"\r\n\r\n" => Queue::InProgress,
        Some(_) => Queue::NewWork,
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
        for first in ["INVITE sip:a", "REGISTER sip:a", "OPTIONS sip:a", "MESSAGE sip:a", "GET / HTTP/1.1", "\0\0\0\0"]
        {
            assert_eq!(queue_of(first.as_bytes()), Queue::NewWork, "{first}");
        }
    }
}
