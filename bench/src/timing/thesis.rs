//! The thesis's figures: Krishnamurthy, on a framework for evaluating SIP proxy servers. Its proxy is OpenSIPS 1.6 on
//! Linux 2.6.26.

/// A row of table 4.3: a message at one call per second, µs.
#[derive(Clone, Copy, Debug)]
pub struct Unloaded {
    /// Type of the message, as in a report.
    pub message: &'static str,
    /// K_stack.
    pub stack_us: f64,
    /// K_sockq without waiting.
    pub socket_queue_us: f64,
    /// K_snd.
    pub send_us: f64,
}

const fn unloaded(message: &'static str, stack_us: f64, socket_queue_us: f64, send_us: f64) -> Unloaded {
    Unloaded { message, stack_us, socket_queue_us, send_us }
}

/// Table 4.3.
pub const UNLOADED: [Unloaded; 6] = [
    unloaded("INVITE", 2.6, 8.3, 6.15),
    unloaded("180 INVITE", 2.2, 7.6, 5.2),
    unloaded("200 INVITE", 2.5, 8.5, 5.5),
    unloaded("ACK", 2.2, 7.4, 5.6),
    unloaded("BYE", 2.5, 8.1, 5.9),
    unloaded("200 BYE", 2.2, 7.5, 5.2),
];
/// The last row of table 4.3, over all messages.
pub const UNLOADED_ALL: Unloaded = unloaded("all", 2.4, 7.9, 5.6);
/// K_copy at any rate (section 4.2.1), µs.
pub const COPY_US: f64 = 2.0;

/// A column of table 4.4: Poisson arrivals.
#[derive(Clone, Copy, Debug)]
pub struct Loaded {
    /// Calls per second.
    pub calls_per_s: f64,
    /// K_rcv (table 4.1), µs.
    pub receive_us: f64,
    /// α(λ).
    pub alpha: f64,
    /// E\[X\], µs.
    pub service_us: f64,
    /// ρ.
    pub rho: f64,
    /// W by M/G/1, µs.
    pub predicted_us: f64,
    /// W as measured, µs.
    pub measured_us: f64,
}

/// Returns a column from its calls per second, K_rcv, α, E\[X\], ρ, and W as predicted and as measured.
const fn loaded(of: [f64; 7]) -> Loaded {
    let [calls_per_s, receive_us, alpha, service_us, rho, predicted_us, measured_us] = of;
    Loaded { calls_per_s, receive_us, alpha, service_us, rho, predicted_us, measured_us }
}

/// Table 4.4 with the last row of means of table 4.1, where the server is stable.
pub const LOADED: [Loaded; 6] = [
    loaded([100.0, 33.17, 3.0, 133.4, 0.080, 6.0, 5.485]),
    loaded([200.0, 57.2, 5.0, 149.88, 0.1798, 16.89, 13.59]),
    loaded([400.0, 120.8, 8.0, 174.53, 0.4188, 64.21, 53.27]),
    loaded([600.0, 258.33, 8.0, 179.98, 0.6479, 169.19, 190.92]),
    loaded([700.0, 400.93, 8.0, 181.09, 0.7606, 293.98, 333.52]),
    loaded([800.0, 731.99, 8.0, 181.185, 0.8698, 617.77, 664.57]),
];

/// The rate of tables 5.2 to 5.6 that is nearest to 1 % drops.
#[derive(Clone, Copy, Debug)]
pub struct Threads {
    /// c: number of threads.
    pub count: u32,
    /// Calls per second.
    pub calls_per_s: f64,
    /// β(λ, c).
    pub beta: f64,
    /// Share of drops by M/M/c/K.
    pub predicted: f64,
    /// Share of drops as measured.
    pub measured: f64,
}

const fn threads(count: u32, calls_per_s: f64, beta: f64, predicted: f64, measured: f64) -> Threads {
    Threads { count, calls_per_s, beta, predicted, measured }
}

/// Tables 5.2 to 5.6: the column whose measured drops are nearest to 1 %.
pub const THREADS: [Threads; 5] = [
    threads(2, 2_400.0, 1.077, 0.0119, 0.0139),
    threads(4, 2_000.0, 1.284, 0.0110, 0.0101),
    threads(6, 1_800.0, 1.4408, 0.0147, 0.01),
    threads(8, 1_400.0, 1.789, 0.0093, 0.0096),
    threads(16, 900.0, 2.956, 0.0087, 0.00873),
];
