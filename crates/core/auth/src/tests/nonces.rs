//! How long a nonce is valid, and how often.

use super::*;

//= rfc7616#5.5:replay
#[test]
fn a_replay_is_stale() {
    let mut server = Server::new(Policy::default());
    let bytes = signed(&server.challenge(T0), &client(1));
    assert_eq!(server.check_at(0, T0, &bytes), accepted());
    assert_eq!(server.check_at(1, T0, &bytes), STALE);
}

//= rfc7616#3.4:count-rises
#[test]
fn nonce_counts_may_be_reordered_but_each_passes_once() {
    let mut server = Server::new(Policy::default());
    let challenge = server.challenge(T0);
    let check = |nc| server.check(T0, &signed(&challenge, &client(nc)));
    for nc in [3, 1, 2, 70, 7, 8, 69] {
        assert_eq!(check(nc), accepted(), "{nc}");
    }
    // 6 was never seen but is 64 below the highest; the others were seen.
    for nc in [6, 3, 1, 2, 70, 7, 8, 69] {
        assert_eq!(check(nc), STALE, "{nc}");
    }
    assert_eq!(check(u32::MAX), accepted());
    assert_eq!(check(u32::MAX), STALE);
    assert_eq!(check(70), STALE);
}

//= rfc7616#3.3:stale
#[test]
fn an_aged_nonce_is_stale_but_not_for_a_wrong_password() {
    let mut server = Server::new(Policy { nonce_age: Duration::from_secs(60), ..Policy::default() });
    let challenge = server.challenge(T0);
    assert_eq!(server.check(T0 + Duration::from_secs(60), &signed(&challenge, &client(1))), accepted());
    // It counts as issued at the end of its window.
    let late = T0 + Duration::from_millis(60_001) + NONCE_WINDOW;
    assert_eq!(server.check(late, &signed(&challenge, &client(2))), STALE);
    let wrong = Request { secret: Secret::Password(b"guess"), ..client(3) };
    assert_eq!(server.check(late, &signed(&challenge, &wrong)), REFUSED);
    assert_eq!(server.check(T0, &signed(&challenge, &wrong)), REFUSED);
}

//= rfc7616#3.3:stale
//= rfc7616#5.12:random
#[test]
fn a_forged_nonce_is_stale_only_with_the_right_password() {
    let mut server = Server::new(Policy::default());
    let challenge = server.challenge(T0);
    let nonce = AuthParams::parse(&challenge).unwrap().value("nonce").unwrap().to_vec();
    let nonce = std::str::from_utf8(&nonce).unwrap();
    for at in 1..nonce.len() - 1 {
        let mut forged = nonce.to_owned().into_bytes();
        forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
        let forged = edited(&challenge, nonce, std::str::from_utf8(&forged).unwrap());
        assert_eq!(server.check(T0, &signed(&forged, &client(1))), STALE, "character {at}");
    }
    for odd in [
        "\"\"",
        "\"x\"",
        "\"\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\"",
    ] {
        let forged = edited(&challenge, nonce, odd);
        assert_eq!(server.check(T0, &signed(&forged, &client(1))), STALE, "{odd}");
        let wrong = Request { secret: Secret::Password(b"guess"), ..client(1) };
        assert_eq!(server.check(T0, &signed(&forged, &wrong)), REFUSED, "{odd}");
    }
}

#[test]
fn nonces_survive_one_rotation_and_not_a_restart() {
    let ring = KeyRing::new(TagKey::new([1; 16]));
    let mut server = Server::with(Policy::default(), NonceWindows::new(1, 5), &ring);
    let bytes = signed(&server.challenge(T0), &client(1));
    let once = ring.rotated(TagKey::new([2; 16]));
    for shard in &mut server.shards {
        shard.handle_keys(&once.rotated(TagKey::new([3; 16])));
    }
    assert_eq!(server.check(T0, &bytes), STALE, "two rotations");
    for shard in &mut server.shards {
        shard.handle_keys(&once);
    }
    assert_eq!(server.check(T0, &bytes), accepted(), "one rotation");
    let restarted = Server::with(Policy::default(), NonceWindows::new(1, 6), &ring);
    assert_eq!(restarted.check(T0, &bytes), STALE, "another process has forgotten the uses");
}

#[test]
fn nonce_windows_are_bounded_and_evicted_nonces_never_pass() {
    let ring = KeyRing::new(TagKey::new([1; 16]));
    let windows = NonceWindows::with_limit(1, 5, 4);
    let mut server = Server::with(Policy::default(), windows, &ring);
    let at = |n: u64| T0 + NONCE_WINDOW * u32::try_from(n).unwrap();
    let signed: Vec<_> = (0..10).map(|n| signed(&server.challenge(at(n)), &client(1))).collect();
    for bytes in &signed[1..] {
        assert_eq!(server.check(at(20), bytes), accepted());
    }
    let Server { shards, .. } = &server;
    let stats = shards[0].window_stats();
    assert_eq!(stats, WindowStats { nonces: 4, evicted: 5 });
    for (n, bytes) in signed.iter().enumerate() {
        assert_eq!(server.check(at(20), bytes), STALE, "{n}: used, or older than one that was evicted");
    }
}

#[test]
fn windows_shrink_when_nonces_age() {
    let mut server = Server::with(Policy::default(), NonceWindows::new(1, 5), &KeyRing::new(TagKey::new([1; 16])));
    for _ in 0..40 {
        let bytes = signed(&server.challenge(T0), &client(1));
        assert_eq!(server.check(T0, &bytes), accepted());
    }
    let later = T0 + Duration::from_secs(301) + NONCE_WINDOW;
    for _ in 0..10 {
        let bytes = signed(&server.challenge(later), &client(1));
        assert_eq!(server.check(later, &bytes), accepted());
    }
    assert_eq!(server.shards[0].window_stats(), WindowStats { nonces: 10, evicted: 0 });
}

#[test]
fn a_wrong_password_uses_no_memory() {
    let mut server = Server::new(Policy::default());
    let wrong = Request { secret: Secret::Password(b"guess"), ..client(1) };
    for _ in 0..50 {
        let bytes = signed(&server.challenge(T0), &wrong);
        assert_eq!(server.check(T0, &bytes), REFUSED);
    }
    assert_eq!(server.shards[0].window_stats().nonces, 0);
}
