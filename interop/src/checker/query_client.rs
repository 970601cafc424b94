//! A client that looks up users as a caller does and reports whether their phones answer.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use super::clients::name;
use crate::machine::Machine;
use crate::wire;

/// Number of concurrent queries.
const AT_ONCE: usize = 32;
/// Time allowed for an answer, and the retransmission interval.
const PATIENCE: Duration = Duration::from_secs(4);
const RETRANSMIT: Duration = Duration::from_millis(500);

/// A query for a user at a server.
pub(super) type Question = (usize, SocketAddr);

/// A socket and the number of its last request.
#[derive(Debug)]
pub(super) struct QueryClient {
    socket: UdpSocket,
    cseq: u32,
}

#[derive(Debug)]
struct Pending {
    at: usize,
    server: SocketAddr,
    text: String,
    began: Instant,
    again: Instant,
}

impl QueryClient {
    pub(super) fn on(machine: &Machine) -> QueryClient {
        let socket = machine.socket();
        socket.set_read_timeout(Some(Duration::from_millis(5))).expect("a sound socket");
        QueryClient { socket, cseq: 0 }
    }

    /// Sends all queries and returns the status of each answer, or `None` on timeout.
    pub(super) fn ask(&mut self, questions: &[Question]) -> Vec<Option<u16>> {
        let mut answers = vec![None; questions.len()];
        let mut pending: HashMap<u32, Pending> = HashMap::new();
        let mut waiting = questions.iter().enumerate();
        loop {
            while pending.len() < AT_ONCE
                && let Some((at, (user, server))) = waiting.next()
            {
                self.cseq += 1;
                let (text, now) = (self.request(*user), Instant::now());
                pending.insert(self.cseq, Pending { at, server: *server, text, began: now, again: now });
            }
            if pending.is_empty() {
                return answers;
            }
            self.send_what_is_due(&mut pending);
            while let Some((cseq, status)) = self.receive() {
                if let Some(answered) = pending.remove(&cseq) {
                    answers[answered.at] = Some(status);
                }
            }
        }
    }

    fn send_what_is_due(&self, pending: &mut HashMap<u32, Pending>) {
        let now = Instant::now();
        pending.retain(|_, one| now < one.began + PATIENCE);
        for one in pending.values_mut().filter(|one| now >= one.again) {
            // Sending fails if a server is dead or isolated, which is no reason to give up.
            let _ = self.socket.send_to(one.text.as_bytes(), one.server);
            one.again = now + RETRANSMIT;
        }
    }

    /// Receives a final response and returns its number and status.
    fn receive(&self) -> Option<(u32, u16)> {
        let mut answer = [0; 4_096];
        loop {
            let length = match self.socket.recv_from(&mut answer) {
                Ok((length, _)) => length,
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => continue,
                Err(_) => return None,
            };
            let text = String::from_utf8_lossy(&answer[..length]);
            let cseq = wire::value(&text, "CSeq").split(' ').next().and_then(|cseq| cseq.parse().ok());
            if let (Some(cseq), Some(status)) = (cseq, wire::status(&text).filter(|status| *status >= 200)) {
                return Some((cseq, status));
            }
        }
    }

    fn request(&self, user: usize) -> String {
        let (user, cseq, own) = (name(user), self.cseq, self.socket.local_addr().expect("bound"));
        format!(
            "OPTIONS sip:{user}@example.com SIP/2.0\r\nVia: SIP/2.0/UDP {own};branch=z9hG4bK-ask-{cseq}\r\nMax-Forwards: 70\r\n\
             From: <sip:asker@example.com>;tag=ask-{cseq}\r\nTo: <sip:{user}@example.com>\r\nCall-ID: ask-{cseq}@{own}\r\n\
             CSeq: {cseq} OPTIONS\r\nContent-Length: 0\r\n\r\n"
        )
    }
}
