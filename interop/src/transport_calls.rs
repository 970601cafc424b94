//! Two calls that use all transports, for tests of what the server tells others about messages.

use std::net::SocketAddr;

use crate::{Phone, SeenMessage, Server};

/// Lets alice (TLS, at this listener) call bob (TCP), and then bob call carol (UDP). Returns the phones, which stay
/// registered.
///
/// # Panics
/// If a phone cannot register or call.
#[must_use]
pub fn call_over_all_transports(server: &Server, secure: SocketAddr) -> [Phone; 3] {
    let [mut alice, mut bob, mut carol] = ["alice", "bob", "carol"].map(Phone::start);
    assert_eq!(alice.register_over("tls", secure).kind, "REGISTER_OK");
    assert_eq!(bob.register_over("tcp", server.address()).kind, "REGISTER_OK");
    assert_eq!(carol.register(server, "secret of carol").kind, "REGISTER_OK");
    alice.call(&mut bob);
    bob.call(&mut carol);
    [alice, bob, carol]
}

/// Whether these messages have the end of both calls, as received and as sent.
#[must_use]
pub fn have_both_calls_ended(messages: &[SeenMessage]) -> bool {
    let is_end = |[_, _, _, start, _, cseq]: &&SeenMessage| start == "SIP/2.0 200 OK" && cseq.ends_with(" BYE");
    messages.iter().filter(is_end).count() >= 4
}
