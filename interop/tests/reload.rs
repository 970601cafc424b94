//! A server whose configuration is reloaded under load, with other listeners each time.

use std::time::Duration;

use strowger_interop::operate::{Exercise, Reloads, exercise};

/// Longest time until an answer: less, and no message was lost and sent again.
const LONGEST: Duration = Duration::from_millis(500);

#[test]
fn reloads_lose_nothing_and_delay_no_answer() {
    let reloads = Reloads::start(2);
    let how = Exercise { calls: 200, registrations: 200, rounds: 10, interval: Duration::from_secs(1) };
    let outcome = exercise(reloads.address(), &how, |round| {
        let printed = reloads.reload(round);
        assert!(printed.contains("server.listen: added udp:127.0.0.1:"), "{printed}");
        assert!(printed.contains("tcp.per_source: "), "{printed}");
    });
    assert!(outcome.calls.begun > 1_000 && outcome.registrations.begun > 1_000, "{outcome}");
    assert_eq!(outcome.lost(), 0, "{outcome}");
    assert!(outcome.longest() < LONGEST, "{outcome}");
}
