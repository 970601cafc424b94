//! Figures printed in the papers. Each test names its source; no expected value is computed by the code under test.

use strowger_plan::{
    Availability, Beta, Calls, Curve, FailoverTimes, MessageTiming, PacketTiming, Part, PlanError, ServiceTime,
    StageRequirements, TwoStage, cores, databases, failover, mg1, mmck, part_stateful_capacity, stages,
    threads_on_one_core, traffic,
};

#[track_caller]
fn within(what: &str, computed: f64, printed: f64, tolerance: f64) {
    let error = (computed / printed - 1.0).abs();
    assert!(error <= tolerance, "{what}: {computed} computed, {printed} printed: {:.2} % apart", error * 100.0);
}

/// Column of a table of waiting times: packets/s, E\[X\] in µs, ρ as printed, W (model) in µs.
type Waiting = (f64, f64, f64, f64);

#[track_caller]
fn waiting_times(columns: &[Waiting], scv: f64) {
    for &(rate, service_us, rho, wait_us) in columns {
        let answer = mg1(rate, ServiceTime::with_scv(service_us * 1e-6, scv).unwrap()).unwrap();
        within(&format!("W at {rate}/s"), answer.wait_s * 1e6, wait_us, 0.05);
        within(&format!("ρ at {rate}/s"), answer.rho, rho, 0.015);
    }
}

#[track_caller]
fn overloaded(rate: f64, service_us: f64) {
    let service = ServiceTime::constant(service_us * 1e-6).unwrap();
    assert!(
        matches!(mg1(rate, service), Err(PlanError::Unstable { .. })),
        "{rate}/s × {service_us} µs has no mean wait"
    );
}

/// Krishnamurthy, thesis, table 4.4: Poisson arrivals. E[X²] is not printed; one squared coefficient of variation
/// fits all columns.
#[test]
fn waiting_times_of_the_thesis_table_4_4() {
    let columns = [
        (600.0, 133.4, 0.080, 6.0),
        (1_200.0, 149.88, 0.1798, 16.89),
        (2_400.0, 174.53, 0.4188, 64.21),
        (3_600.0, 179.98, 0.6479, 169.19),
        (4_200.0, 181.09, 0.7606, 293.98),
        (4_800.0, 181.185, 0.8698, 617.77),
        (5_400.0, 183.49, 0.9908, 10_171.9),
    ];
    waiting_times(&columns, 0.022);
    overloaded(6_000.0, 185.23);
    overloaded(7_200.0, 189.5);
}

/// Krishnamurthy, thesis, table 4.5: deterministic arrivals of calls.
#[test]
fn waiting_times_of_the_thesis_table_4_5() {
    let columns = [
        (600.0, 121.03, 0.0726, 4.93),
        (1_200.0, 130.22, 0.156, 12.45),
        (2_400.0, 152.97, 0.3671, 45.39),
        (3_600.0, 159.89, 0.5756, 111.12),
        (4_200.0, 163.54, 0.686, 183.89),
        (4_800.0, 164.77, 0.7909, 319.68),
        (5_400.0, 166.59, 0.8995, 765.55),
    ];
    waiting_times(&columns, 0.026);
    overloaded(6_000.0, 168.2);
    overloaded(7_200.0, 171.29);
}

/// Krishnamurthy, thesis, table 5.1: the second machine, one thread.
#[test]
fn waiting_times_of_the_thesis_table_5_1() {
    let columns = [
        (1_200.0, 61.65, 0.074, 2.57),
        (3_600.0, 60.66, 0.218, 8.86),
        (6_000.0, 63.12, 0.378, 20.03),
        (7_200.0, 67.01, 0.482, 32.28),
        (9_000.0, 65.61, 0.591, 49.24),
        (12_000.0, 65.16, 0.782, 121.75),
        (15_000.0, 65.78, 0.987, 2_566.36),
        (14_800.0, 67.09, 0.992, 4_691.1),
        (14_250.0, 69.842, 0.995, 7_679.62),
    ];
    waiting_times(&columns, 0.042);
}

/// Krishnamurthy, thesis, tables 4.4, 4.5 and 5.1, the rows of α, and section 4.3.1.
#[test]
fn interrupt_overhead_of_the_thesis() {
    let rows: [(Curve, &[(f64, f64)]); 3] = [
        (Curve::alpha_exponential(), &[(0.0, 1.0), (600.0, 3.0), (1_200.0, 5.0), (2_400.0, 8.0), (7_200.0, 8.0)]),
        (Curve::alpha_deterministic(), &[(0.0, 1.0), (600.0, 1.5), (1_200.0, 3.0), (2_400.0, 6.0), (7_200.0, 6.0)]),
        (
            Curve::alpha_second_machine(),
            &[(1_200.0, 1.3), (3_600.0, 2.0), (6_000.0, 2.5), (7_200.0, 3.2), (15_000.0, 3.2)],
        ),
    ];
    for (alpha, points) in rows {
        for &(rate, value) in points {
            assert!((alpha.at(rate) - value).abs() < 1e-12, "α({rate}) is {} instead of {value}", alpha.at(rate));
        }
    }
}

/// Krishnamurthy, thesis, table 4.3: K_sockq^{s,base} and K_snd by message type in µs, whose means are 7.9 and 5.6;
/// K_copy is 2 µs (section 4.2.1). At 2,400 packets/s α is 8 and E\[X\] 174.53 µs (table 4.4), which leaves
/// T_sip = 103.73 µs.
#[test]
fn service_time_of_the_thesis_from_its_parts() {
    let table = [
        ("INVITE", 8.3, 6.15),
        ("180", 7.6, 5.2),
        ("200 (INVITE)", 8.5, 5.5),
        ("ACK", 7.4, 5.6),
        ("BYE", 8.1, 5.9),
        ("200 (BYE)", 7.5, 5.2),
    ];
    let messages = table.map(|(message, sockq_us, send_us)| MessageTiming {
        message: message.into(),
        share: 1.0 / 6.0,
        sockq_base: Part::constant(sockq_us * 1e-6),
        copy: Part::constant(2e-6),
        sip: Part::constant(103.73e-6),
        send: Part::constant(send_us * 1e-6),
    });
    let timing = PacketTiming {
        messages: messages.to_vec(),
        alpha: Curve::alpha_exponential(),
        sip_growth: Curve::constant(1.0),
    };
    timing.check().unwrap();
    within("E[X] at 2,400/s", timing.service_at(2_400.0).unwrap().mean_s() * 1e6, 174.53, 0.002);
    within("E[X] at rest", timing.service_at(0.0).unwrap().mean_s() * 1e6, 7.9 + 2.0 + 103.73 + 5.6, 0.002);
    let explained = timing.explain_at(2_400.0).unwrap();
    assert!(explained.steps.iter().any(|step| step.source.contains("eq. 4.4") && step.numbers.contains("8 ×")));
}

/// Krishnamurthy, thesis, tables 5.2 to 5.6, K = 200: packets/s, E\[X\] in µs, c, the model's drop probability.
#[test]
fn drops_of_the_thesis_tables_5_2_to_5_6() {
    let columns: [(f64, f64, u32, f64); 13] = [
        (13_200.0, 151.0, 2, 0.0035),
        (14_400.0, 140.37, 2, 0.0119),
        (10_800.0, 372.0, 4, 0.0075),
        (13_200.0, 342.57, 4, 0.115),
        (8_400.0, 711.0, 6, 0.0031),
        (9_600.0, 629.0, 6, 0.0088),
        (10_800.0, 563.31, 6, 0.0147),
        (7_200.0, 1_113.0, 8, 0.0059),
        (8_400.0, 959.0, 8, 0.0093),
        (9_600.0, 874.75, 8, 0.047),
        (4_800.0, 3_325.0, 16, 0.00425),
        (5_400.0, 2_980.0, 16, 0.0087),
        (6_000.0, 2_758.0, 16, 0.0334),
    ];
    for (rate, service_us, servers, printed) in columns {
        let answer = mmck(rate, service_us * 1e-6, servers, 200).unwrap();
        within(&format!("p_K of {servers} threads at {rate}/s"), answer.drop_probability, printed, 0.04);
    }
    // Table 5.2, first column: 0.00.
    assert!(mmck(12_000.0, 151.0e-6, 2, 200).unwrap().drop_probability < 5e-5);
    // Table 5.3, second column: E[X] is printed rounded, as 337.0, which moves the drops by 11 %.
    within("p_K of 4 threads at 12,000/s", mmck(12_000.0, 337.0e-6, 4, 200).unwrap().drop_probability, 0.0110, 0.12);
}

/// Krishnamurthy, thesis, eq. 5.6 and the last columns of tables 5.2 to 5.6: packets/s, c, E\[X_1\]·c in µs, β, E\[X\] in µs.
#[test]
fn thread_overhead_of_the_thesis_eq_5_6() {
    let columns: [(f64, u32, f64, f64, f64); 5] = [
        (14_400.0, 2, 130.32, 1.077, 140.37),
        (13_200.0, 4, 260.64, 1.314, 342.57),
        (10_800.0, 6, 393.66, 1.4408, 563.31),
        (9_600.0, 8, 536.08, 1.678, 874.75),
        (6_000.0, 16, 1_008.0, 2.737, 2_758.0),
    ];
    for (rate, threads, single_times_c_us, beta, service_us) in columns {
        let single = ServiceTime::exponential(single_times_c_us * 1e-6 / f64::from(threads)).unwrap();
        let answer = threads_on_one_core(rate, single, threads, Beta::THESIS).unwrap();
        within(&format!("β of {threads} threads"), answer.beta, beta, 0.001);
        // The table of 8 threads prints E[X] = 874.75, but β·E[X_8] is 899.5.
        within(&format!("E[X_{threads}]"), answer.service.mean_s() * 1e6, service_us, 0.03);
    }
    // Section 5.3.3: one thread keeps β = 1.
    assert_eq!(Beta::THESIS.at(12_000.0, 1).unwrap(), 1.0);
}

/// Krishnamurthy, thesis, section 7.6: 4, 6 and 6 threads, 4000, 6000 and 6000 cps with C₁ = 1000; the system of 6 cores has
/// two processors.
#[test]
fn capacity_formula_of_the_thesis_eq_7_1() {
    for (processors, many, threads, capacity) in [(1, 2, 4, 4_000.0), (1, 4, 6, 6_000.0), (2, 6, 6, 6_000.0)] {
        let answer = cores(processors, many, 1_000.0).unwrap();
        assert_eq!((answer.threads, answer.capacity_per_s), (threads, capacity));
    }
}

/// Singh and Schulzrinne, figure 16 with section 5.2: C_s = 1050 and C_p = 900 calls/s (the text swaps them); the
/// hash gives {0.6, 0.4} and {0.4, 0.3, 0.3}.
#[test]
fn capacities_and_break_points_of_figure_16() {
    let halves = [0.6, 0.4];
    let thirds = [0.4, 0.3, 0.3];
    type Row<'a> = (u32, &'a [f64], f64, &'a [(f64, f64)]);
    let rows: [Row<'_>; 6] = [
        (0, &[1.0], 900.0, &[(900.0, 900.0)]),
        (1, &[1.0], 900.0, &[(900.0, 900.0)]),
        (1, &halves, 1_050.0, &[(1_050.0, 1_050.0)]),
        (2, &halves, 1_740.0, &[(1_500.0, 1_500.0), (2_100.0, 1_740.0)]),
        (2, &thirds, 2_100.0, &[(2_100.0, 2_100.0)]),
        (3, &thirds, 2_700.0, &[(2_250.0, 2_250.0), (3_000.0, 2_700.0)]),
    ];
    for (first, shares, capacity, printed) in rows {
        let cluster = TwoStage::new(first, 1_050.0, 900.0, shares).unwrap();
        let name = format!("s{first}p{}", shares.len());
        assert!((cluster.capacity() - capacity).abs() < 1e-6, "{name}: {}", cluster.capacity());
        let points: Vec<(f64, f64)> =
            cluster.break_points().iter().map(|point| (point.load_per_s, point.throughput_per_s)).collect();
        assert_eq!(points.len(), printed.len(), "{name}: {points:?}");
        for (point, printed) in points.iter().zip(printed) {
            assert!((point.0 - printed.0).abs() < 1e-6 && (point.1 - printed.1).abs() < 1e-6, "{name}: {points:?}");
        }
        // Throughput is constant after the last break point.
        assert!((cluster.throughput(1e6) - capacity).abs() < 1e-6, "{name}");
    }
    // Section 5.2: of 2100 calls/s that pass, 1260 go to P1, which drops 360.
    let skewed = TwoStage::new(2, 1_050.0, 900.0, &halves).unwrap();
    assert!((skewed.break_points()[0].slope_after - 0.4).abs() < 1e-12);
    assert!((skewed.carries_all_up_to() - 1_500.0).abs() < 1e-9);
    // Figure 17: an even hash carries everything up to 1800 calls/s.
    let even = TwoStage::even(2, 1_050.0, 2, 900.0).unwrap();
    assert!((even.carries_all_up_to() - 1_800.0).abs() < 1e-9 && (even.capacity() - 1_800.0).abs() < 1e-9);
}

/// Singh and Schulzrinne, section 5.4: C = 800, C′ = 650 calls/s, effective capacity (1 − f_s)·C + f_s·C′.
#[test]
fn part_stateful_capacity_of_section_5_4() {
    for (share, capacity) in [(0.0, 800.0), (0.5, 725.0), (1.0, 650.0)] {
        assert!((part_stateful_capacity(share, 800.0, 650.0).unwrap() - capacity).abs() < 1e-9);
    }
}

/// Singh and Schulzrinne, section 5.6: C_s = 2500 and C_p = 2400 registrations/s, which authentication halves, so
/// S3P3 serves more than ten million subscribers that register every hour. Section 5.2: 900 calls/s are about three
/// million calls an hour.
#[test]
fn ten_million_subscribers_of_section_5_6() {
    let registrar = TwoStage::new(3, 2_500.0, 2_400.0, &[0.4, 0.3, 0.3]).unwrap();
    let subscribers = registrar.capacity() / 2.0 * 3_600.0;
    assert!((10e6..15e6).contains(&subscribers), "{subscribers}");
    let calls = traffic(1.0, 3_600.0, Calls::Total(3.24e6), 180.0, 3.0).unwrap();
    assert!((calls.calls_per_s - 900.0).abs() < 1e-9);
}

/// Singh and Schulzrinne, section 4.1: 280 updates per second for a million subscribers that register every hour.
#[test]
fn updates_of_a_million_subscribers() {
    let million = traffic(1e6, 3_600.0, Calls::Total(0.0), 180.0, 3.0).unwrap();
    within("updates/s", million.registers_per_s, 280.0, 0.01);
}

/// Ono and Schulzrinne, section 3.2: 300,000 subscribers at 0.1 erlang, in calls of 180 s, that register every hour
/// make 83 REGISTERs/s, 167 calls/s (600,000 an hour) and 833 requests/s with PRACK, ACK, UPDATE and BYE.
#[test]
fn traffic_of_300_000_subscribers() {
    let traffic = traffic(300_000.0, 3_600.0, Calls::Erlangs(0.1), 180.0, 5.0).unwrap();
    assert_eq!(traffic.registers_per_s.round(), 83.0);
    assert_eq!(traffic.calls_per_s.round(), 167.0);
    assert_eq!(traffic.requests_per_s.round(), 833.0);
    assert!((traffic.calls_per_s * 3_600.0 - 600_000.0).abs() < 1e-6);
    assert!((traffic.calls_in_progress - 30_000.0).abs() < 1e-6);
}

/// Singh and Schulzrinne, section 4.5: servers that are 99 % available, S = P = B = 3: 99.9996 %.
#[test]
fn five_nines_of_section_4_5() {
    let system = Availability::two_stage(3, 0.99, 3, 3, 0.99).unwrap();
    assert_eq!(format!("{:.4} %", system.availability * 100.0), "99.9996 %");
    within("missing", system.unavailability, 4e-6, 1e-5);
    // Sections 3.7 and 4.5: the pair of figure 9 is S = 0, P = 1, B = 2.
    let pair = Availability::pair(0.99).unwrap();
    assert!((pair.availability - 0.9999).abs() < 1e-12);
    assert_eq!(pair.unavailability, Availability::two_stage(0, 0.0, 1, 2, 0.99).unwrap().unavailability);
    // Section 4.1: three proxies and two databases, as in figure 10.
    let replicated = Availability::replicated(3, 0.99, 2, 0.999).unwrap();
    assert!((replicated.availability - (1.0 - 1e-6) * (1.0 - 1e-6)).abs() < 1e-12);
    // Section 4.2: without redundancy the reliability falls with each group.
    let alone = Availability::without_redundancy(0.99, 3, 0.98, 0.97).unwrap();
    assert!((alone.availability - 0.99 * 0.98_f64.powi(3) * 0.97_f64.powi(3)).abs() < 1e-12);
}

/// Singh and Schulzrinne, section 3.7, computed by hand.
#[test]
fn failover_formulas_of_section_3_7() {
    let times = FailoverTimes {
        availability: 0.99,
        client_retry_s: 4.0,
        dns_ttl_s: 3_600.0,
        repair_s: 3_600.0,
        failure_s: 356_400.0,
        replication_s: 1.0,
        cache_s: 59.0,
        refresh_s: 3_600.0,
    };
    let answer = failover(times).unwrap();
    // 1 − 1/e
    within("P[t_M < T_D]", answer.repaired_within_ttl, 0.632_120_558_8, 1e-9);
    within("set-up", answer.setup_delay_s, 4.0 * 0.01 * 0.632_120_558_8, 1e-9);
    within("lost", answer.lost_registration, 2.805_832_2e-6, 1e-6);
    within("lost with a cache", answer.lost_registration_with_cache, 1.683_360_0e-4, 1e-6);
    assert_eq!(answer.unreachable_s, 3_604.0);
}

/// Singh and Schulzrinne, sections 4.1 and 4.2: with as many INVITEs as REGISTERs there are r = 2 reads per write.
#[test]
fn databases_of_sections_4_1_and_4_2() {
    let answer = databases(2, 280.0, 2.0, 0.001, 0.5).unwrap();
    // ((0.5·2/2) + 1)·0.001·280 and ((0.5·2 + 1)/2)·0.001·280
    within("replicas", answer.replicated, 0.42, 1e-12);
    within("partitions", answer.partitioned, 0.28, 1e-12);
    // Each replica receives all writes, however many there are.
    let many = databases(1_000_000, 280.0, 2.0, 0.001, 0.5).unwrap();
    within("replicas", many.replicated, 0.28, 1e-5);
    assert!(many.partitioned < 1e-6);
}

/// Singh and Schulzrinne, section 4.5: when a first stage is needed, and the servers of each stage.
#[test]
fn first_stage_is_needed_when_one_cluster_is_full() {
    let asked = StageRequirements {
        registers_per_s: 280.0,
        requests_per_s: 400.0,
        first_per_s: 1_050.0,
        register_per_s: 2_400.0,
        proxy_per_s: 900.0,
        utilization: 1.0,
        skew: 1.0,
    };
    let small = stages(asked).unwrap();
    assert!(!small.first_is_needed && small.first == 0 && small.clusters == 1);
    // ρ = 2800/2400 + 4000/900 = 5.611, (2800 + 4000)/1050 = 6.476
    let large = stages(StageRequirements { registers_per_s: 2_800.0, requests_per_s: 4_000.0, ..asked }).unwrap();
    assert!(large.first_is_needed);
    assert_eq!((large.first, large.clusters), (7, 6));
    within("one server", large.single_utilization, 5.611_111, 1e-6);
}
