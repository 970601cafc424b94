//! Computes the number of users that a server carries from the cost of users, which depends on their number.

use std::time::Duration;

use clap::ValueEnum;

use super::table::{PARTS, SWEEP_EVERY};

/// Upper limit of the number of users.
const MOST: f64 = 1e9;

/// Values measured at some numbers of users: linear in between, and constant beyond the last one.
#[derive(Clone, Debug, Default)]
pub struct Curve(Vec<(f64, f64)>);

impl Curve {
    /// Creates a curve through these points, by ascending number of users.
    #[must_use]
    pub fn new(points: Vec<(f64, f64)>) -> Self {
        Self(points)
    }

    /// Returns the value at a number of users.
    #[must_use]
    pub fn at(&self, users: f64) -> f64 {
        let Some(first) = self.0.first() else { return 0.0 };
        let Some(last) = self.0.last() else { return 0.0 };
        if users <= first.0 {
            return first.1;
        }
        let pair = self.0.windows(2).find(|pair| users <= pair[1].0);
        let Some(&[(from, low), (to, high)]) = pair else { return last.1 };
        low + (high - low) / (to - from) * (users - from)
    }

    /// Returns the largest measured number of users.
    #[must_use]
    pub fn end(&self) -> f64 {
        self.0.last().map_or(0.0, |last| last.0)
    }
}

/// How expired registrations are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum Expiry {
    /// All are checked once a minute.
    Sweep,
    /// A sixtieth of them is checked each second, as in the paper.
    Parts,
    /// The table knows which are due; the cost is part of the users' cost.
    Own,
}

/// A measured server.
#[derive(Clone, Debug)]
pub struct Server {
    /// Thread seconds per second of a user, by number of users.
    pub user: Curve,
    /// Seconds of a full sweep per user, by number of users.
    pub sweep: Curve,
    /// How often sweeps occur and how they are divided.
    pub expiry: Expiry,
    /// Number of cores.
    pub cores: f64,
}

impl Server {
    /// Returns the average number of busy cores at a number of users.
    #[must_use]
    pub fn load(&self, users: f64) -> f64 {
        let sweeps = if self.expiry == Expiry::Own { 0.0 } else { self.sweep_at(users) };
        users * self.user.at(users) + sweeps / SWEEP_EVERY.as_secs_f64()
    }

    /// Returns the cores needed in the busiest second at a number of users.
    #[must_use]
    pub fn peak(&self, users: f64) -> f64 {
        let sweep = match self.expiry {
            Expiry::Sweep => self.sweep_at(users),
            Expiry::Parts => self.sweep_at(users) / PARTS as f64,
            Expiry::Own => 0.0,
        };
        // A sweep runs in one thread, which has at most one core second per second.
        users * self.user.at(users) + sweep.min(1.0)
    }

    fn sweep_at(&self, users: f64) -> f64 {
        users * self.sweep.at(users)
    }

    /// Returns the number of users at which the cores are fully busy on average.
    #[must_use]
    pub fn users_on_average(&self) -> f64 {
        self.most(Self::load)
    }

    /// Returns the number of users at which the cores are fully busy in the busiest second.
    #[must_use]
    pub fn users_at_peak(&self) -> f64 {
        self.most(Self::peak)
    }

    fn most(&self, needs: fn(&Self, f64) -> f64) -> f64 {
        let (mut low, mut high) = (1.0, MOST);
        while high / low > 1.000_1 {
            let middle = f64::sqrt(low * high);
            if needs(self, middle) <= self.cores { low = middle } else { high = middle }
        }
        low
    }
}

/// Adds the kernel's time for a user's messages to the user's seconds.
#[must_use]
pub fn with_kernel(user: f64, messages: f64, pair: Duration, refresh: Duration) -> f64 {
    // Sending and receiving a message takes `pair`; a server does one half of it.
    user + messages * pair.as_secs_f64() / 2.0 / refresh.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) {
        assert!((a / b - 1.0).abs() < 0.001, "{a} for {b}");
    }

    #[test]
    fn a_curve_is_linear_between_points_and_constant_beyond() {
        let curve = Curve::new(vec![(10.0, 1.0), (20.0, 2.0), (40.0, 6.0)]);
        for (users, value) in [(1.0, 1.0), (10.0, 1.0), (15.0, 1.5), (30.0, 4.0), (40.0, 6.0), (50.0, 6.0)] {
            near(curve.at(users), value);
        }
        let falling = Curve::new(vec![(10.0, 2.0), (20.0, 1.0)]);
        near(falling.at(100.0), 1.0);
    }

    #[test]
    fn capacity_is_where_the_users_fill_the_core() {
        let flat = |value| Curve::new(vec![(1.0, value)]);
        let server = |expiry| Server { user: flat(1e-6), sweep: flat(1e-6), expiry, cores: 1.0 };
        near(server(Expiry::Own).users_on_average(), 1e6);
        near(server(Expiry::Own).users_at_peak(), 1e6);
        near(server(Expiry::Sweep).users_on_average(), 1e6 / (1.0 + 1.0 / 60.0));
        near(server(Expiry::Sweep).users_at_peak(), 5e5);
        near(server(Expiry::Parts).users_at_peak(), 1e6 / (1.0 + 1.0 / 60.0));
        let chains = Curve::new(vec![(1.0, 1e-12), (1e9, 1e-3)]);
        near(Server { user: chains, ..server(Expiry::Own) }.users_on_average(), 1e6);
    }

    #[test]
    fn a_sweep_uses_at_most_one_of_two_cores() {
        let flat = |value| Curve::new(vec![(1.0, value)]);
        let server = |expiry| Server { user: flat(1e-6), sweep: flat(4e-6), expiry, cores: 2.0 };
        // The other core serves a million users; their sweep lasts four seconds.
        near(server(Expiry::Sweep).users_at_peak(), 1e6);
        near(Server { cores: 1.0, ..server(Expiry::Sweep) }.users_at_peak(), 2e5);
        near(server(Expiry::Parts).users_at_peak(), 2e6 / (1.0 + 4.0 / 60.0));
    }
}
