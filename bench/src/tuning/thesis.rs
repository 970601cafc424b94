//! Figures of Krishnamurthy's thesis: OpenSIPS on Xeon E5540 cores of 2.53 GHz, Linux with CFS.

/// Figures for a number of server threads.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Server threads.
    pub threads: u32,
    /// Highest calls per second with at most 1 % of drops: baseline and enhanced server mode.
    pub calls: (u32, u32),
    /// Calls per second of the comparison: the first rate at which the baseline drops more than 1 %.
    pub compared_at: u32,
    /// Share of packets dropped at that rate, in percent.
    pub drops_percent: (f64, f64),
    /// K_rcv at that rate, in microseconds.
    pub kernel_time_us: (f64, f64),
}

const fn row(
    threads: u32,
    calls: (u32, u32),
    compared_at: u32,
    drops_percent: (f64, f64),
    kernel_time_us: (f64, f64),
) -> Row {
    Row { threads, calls, compared_at, drops_percent, kernel_time_us }
}

/// One core: tables 6.1 to 6.3.
pub const ONE_CORE: [Row; 5] = [
    row(2, (2_200, 2_400), 2_400, (1.33, 0.98), (1_752.26, 1_624.2)),
    row(4, (2_000, 2_000), 2_200, (1.57, 1.15), (2_184.27, 1_805.35)),
    row(6, (1_800, 1_800), 2_000, (1.59, 1.10), (1_981.73, 1_418.35)),
    row(8, (1_600, 1_600), 1_800, (1.80, 1.13), (1_974.84, 1_321.15)),
    row(16, (1_200, 1_400), 1_400, (1.37, 0.81), (1_394.47, 918.58)),
];

/// Two cores: tables 7.1 to 7.3.
pub const TWO_CORES: [Row; 5] = [
    row(2, (3_000, 3_800), 3_200, (1.30, 0.60), (684.87, 186.83)),
    row(4, (3_600, 4_400), 3_800, (1.19, 0.82), (373.72, 253.45)),
    row(6, (3_400, 3_800), 3_600, (1.13, 0.58), (436.66, 264.13)),
    row(8, (3_000, 3_200), 3_200, (1.37, 0.98), (412.81, 358.59)),
    row(16, (2_400, 2_600), 2_600, (1.00, 0.96), (395.01, 388.73)),
];
