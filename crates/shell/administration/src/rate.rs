//! Limits of requests per client.
//!
//! Each client has three buckets, which fill with time: for requests, for files of the page, and for wrong tokens. A client is an IPv4
//! address or an IPv6 network of 64 bits. The table has a maximum size; clients beyond it share one entry.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

/// Maximum number of clients with buckets of their own.
const MAX_CLIENTS: usize = 1_024;
/// Requests that a client may send at once, and how fast they come back.
const REQUESTS: Bucket = Bucket { size: 100.0, per_s: 50.0 };
/// Files of the page, of which a browser loads fifty at a time: so much that a whole office behind one address can open
/// the page, and none of it at the cost of requests.
const FILES: Bucket = Bucket { size: 5_000.0, per_s: 500.0 };
/// Wrong tokens of a client, and how fast they are forgotten: five a minute.
const WRONG_TOKENS: Bucket = Bucket { size: 5.0, per_s: 5.0 / 60.0 };

/// What a bucket holds.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    size: f64,
    per_s: f64,
}

/// What a bucket still holds.
#[derive(Clone, Copy, Debug)]
struct Level {
    left: f64,
    at: Instant,
}

/// Buckets of a client.
#[derive(Clone, Copy, Debug)]
struct Client {
    requests: Level,
    files: Level,
    wrong_tokens: Level,
}

/// Whether a request may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It may.
    Allowed,
    /// It is refused; the client may try again after this time.
    Wait(Duration),
}

/// The limits of all clients.
#[derive(Debug, Default)]
pub(crate) struct RateLimits {
    clients: HashMap<IpAddr, Client>,
    /// Buckets of all clients beyond [`MAX_CLIENTS`].
    others: Option<Client>,
}

impl RateLimits {
    /// Counts a request.
    pub(crate) fn on_request(&mut self, client: IpAddr, now: Instant) -> Verdict {
        self.client(client, now).requests.take(REQUESTS, now)
    }

    /// Counts a request for a file of the page.
    pub(crate) fn on_file(&mut self, client: IpAddr, now: Instant) -> Verdict {
        self.client(client, now).files.take(FILES, now)
    }

    /// Counts a wrong token. [`Verdict::Wait`] once there are too many.
    pub(crate) fn on_wrong_token(&mut self, client: IpAddr, now: Instant) -> Verdict {
        self.client(client, now).wrong_tokens.take(WRONG_TOKENS, now)
    }

    fn client(&mut self, client: IpAddr, now: Instant) -> &mut Client {
        let client = network(client);
        if !self.clients.contains_key(&client) && self.clients.len() >= MAX_CLIENTS {
            // Full buckets are the same as none.
            self.clients.retain(|_, client| !client.is_full(now));
            if self.clients.len() >= MAX_CLIENTS {
                return self.others.get_or_insert_with(|| Client::full(now));
            }
        }
        self.clients.entry(client).or_insert_with(|| Client::full(now))
    }
}

impl Client {
    const fn full(now: Instant) -> Self {
        Self {
            requests: Level { left: REQUESTS.size, at: now },
            files: Level { left: FILES.size, at: now },
            wrong_tokens: Level { left: WRONG_TOKENS.size, at: now },
        }
    }

    fn is_full(&self, now: Instant) -> bool {
        let buckets = [(self.requests, REQUESTS), (self.files, FILES), (self.wrong_tokens, WRONG_TOKENS)];
        buckets.into_iter().all(|(level, bucket)| level.at(bucket, now) >= bucket.size)
    }
}

impl Level {
    /// Returns the level at a later time.
    fn at(self, bucket: Bucket, now: Instant) -> f64 {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        passed.mul_add(bucket.per_s, self.left).min(bucket.size)
    }

    fn take(&mut self, bucket: Bucket, now: Instant) -> Verdict {
        let left = self.at(bucket, now);
        self.at = now;
        if left >= 1.0 {
            self.left = left - 1.0;
            return Verdict::Allowed;
        }
        self.left = left;
        Verdict::Wait(Duration::from_secs_f64((1.0 - left) / bucket.per_s))
    }
}

/// Returns what is limited as one: a client of IPv6 has a whole network.
fn network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & (u128::MAX << 64))),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn allowed(mut ask: impl FnMut() -> Verdict) -> usize {
        (0..1_000).take_while(|_| ask() == Verdict::Allowed).count()
    }

    #[test]
    fn a_burst_is_followed_by_a_steady_rate() {
        let (mut limits, start) = (RateLimits::default(), Instant::now());
        let one = ip("192.0.2.1");
        assert_eq!(allowed(|| limits.on_request(one, start)), 100);
        assert_eq!(limits.on_request(one, start), Verdict::Wait(Duration::from_millis(20)));
        assert_eq!(allowed(|| limits.on_request(one, start + SECOND)), 50);
        assert_eq!(allowed(|| limits.on_request(one, start + 60 * SECOND)), 100, "no more than a burst is saved");
        assert_eq!(allowed(|| limits.on_request(ip("192.0.2.2"), start)), 100, "others are not concerned");
        assert_eq!(allowed(|| limits.on_request(one, start)), 0, "time does not go back");
    }

    #[test]
    fn an_office_behind_one_address_loads_the_page_at_once_and_can_use_it() {
        let (mut limits, start) = (RateLimits::default(), Instant::now());
        let office = ip("192.0.2.1");
        // Fifty browsers without a cache; each loads fewer than a hundred files.
        for _ in 0..50 * 100 {
            assert_eq!(limits.on_file(office, start), Verdict::Allowed);
        }
        assert_eq!(allowed(|| limits.on_request(office, start)), 100, "files are counted apart");
        assert_eq!(limits.on_file(office, start), Verdict::Wait(Duration::from_millis(2)), "a flood is refused");
        assert_eq!(allowed(|| limits.on_file(office, start + SECOND)), 500);
    }

    #[test]
    fn five_wrong_tokens_a_minute() {
        let (mut limits, start) = (RateLimits::default(), Instant::now());
        let one = ip("192.0.2.1");
        assert_eq!(allowed(|| limits.on_wrong_token(one, start)), 5);
        assert_eq!(limits.on_wrong_token(one, start), Verdict::Wait(12 * SECOND));
        assert_eq!(limits.on_request(one, start), Verdict::Allowed, "requests are counted apart");
        assert_eq!(allowed(|| limits.on_wrong_token(one, start + 12 * SECOND)), 1);
        assert_eq!(allowed(|| limits.on_wrong_token(one, start + 72 * SECOND)), 5);
    }

    #[test]
    fn a_network_of_ipv6_is_one_client_and_a_mapped_address_is_ipv4() {
        let (mut limits, start) = (RateLimits::default(), Instant::now());
        for host in 0..100_u16 {
            assert_eq!(limits.on_request(ip(&format!("2001:db8:0:1::{host:x}")), start), Verdict::Allowed);
        }
        assert_ne!(limits.on_request(ip("2001:db8:0:1:ffff::1"), start), Verdict::Allowed);
        assert_eq!(limits.on_request(ip("2001:db8:0:2::1"), start), Verdict::Allowed);
        assert_eq!(allowed(|| limits.on_request(ip("::ffff:192.0.2.1"), start)), 100);
        assert_ne!(limits.on_request(ip("192.0.2.1"), start), Verdict::Allowed);
    }

    #[test]
    fn the_table_is_bounded_and_idle_clients_make_room() {
        let (mut limits, start) = (RateLimits::default(), Instant::now());
        let client = |at: u32| IpAddr::from((0x0a00_0000 + at).to_be_bytes());
        for at in 0..10_000 {
            limits.on_request(client(at), start);
        }
        assert_eq!(limits.clients.len(), MAX_CLIENTS);
        assert_ne!(limits.on_request(client(10_000), start), Verdict::Allowed, "all others share one bucket");
        assert_eq!(limits.on_request(client(0), start), Verdict::Allowed, "known clients keep theirs");
        assert_eq!(limits.on_request(client(20_000), start + 60 * SECOND), Verdict::Allowed);
        assert_eq!(limits.clients.len(), 1);
    }
}
