//! WebSockets: their upgrade, pings and end.

use strowger_foundation::Timestamp;
use strowger_net::WebSocket;
use strowger_wire::websocket::{CloseCode, write_close, write_ping};

use super::{CloseReason, Streams};
use crate::connection::Phase;

impl Streams {
    /// Lets messages be sent on a connection whose WebSocket has just been opened.
    pub(crate) fn on_upgraded(&mut self, slot: u32) {
        let Some(connection) = self.get(slot).filter(|connection| connection.phase == Phase::Upgrading) else { return };
        let handshake = connection.handshake();
        connection.phase = Phase::Open;
        if let Some(source) = handshake {
            self.index.end_handshake(source);
        }
        self.counters.ws_opened += 1;
        self.claim(slot);
    }

    //= rfc7118#6
    /// Pings a WebSocket that has been silent. Returns when it will have been silent for too long; `None` if it is
    /// not pinged.
    pub(super) fn ping_if_silent(&mut self, now: Timestamp, slot: u32) -> Option<Timestamp> {
        let period = Some(self.limits.ping).filter(|period| !period.is_zero())?;
        let connection = self.get(slot)?;
        let heard = connection.heard;
        let web_socket = connection.channel.web_socket_mut()?;
        if let Some(pinged) = web_socket.pinged().filter(|pinged| *pinged > heard) {
            return Some(pinged + period);
        }
        if heard + period > now {
            return Some(heard + period);
        }
        web_socket.note_ping(now);
        let mut ping = Vec::new();
        write_ping(&mut ping, b"", None);
        self.queue(slot, &ping);
        Some(now + period)
    }

    /// Tells the peer why its WebSocket ends, if it is our decision and nothing else waits to be sent.
    pub(super) fn say_close(&mut self, slot: u32, reason: CloseReason) {
        let code = match reason {
            CloseReason::Idle | CloseReason::HandedOver => CloseCode::GOING_AWAY,
            CloseReason::Slow | CloseReason::Malformed => CloseCode::POLICY_VIOLATION,
            CloseReason::Memory => CloseCode::TRY_AGAIN_LATER,
            _ => return,
        };
        let Some(connection) = self.get(slot).filter(|connection| connection.unsent() == 0) else { return };
        if connection.channel.web_socket().is_some_and(WebSocket::is_open) {
            // Whoever does not take it learns from the end of the connection.
            let before = (0, connection.held());
            let mut frame = Vec::new();
            write_close(&mut frame, Some(code), "", None);
            let _ = connection.channel.write(&frame);
            self.recount(before, slot);
        }
    }
}
