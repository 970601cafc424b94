//! Guaranteed results of `strowger plan`, checked on the models.

use strowger_plan::{Availability, Explain, Explanation, ServiceTime, TwoStage, cores, mg1, mmck};

/// Checks that an explanation can be verified by hand: each step has a formula, numbers, a value and a source.
#[track_caller]
fn explained(answer: &impl Explain, formula: &str) -> Explanation {
    let explanation = answer.explain();
    assert!(explanation.steps.iter().any(|step| step.formula.contains(formula)), "{explanation:?}");
    for step in &explanation.steps {
        assert!(
            ![&step.symbol, &step.meaning, &step.numbers, &step.value, &step.source].iter().any(|text| text.is_empty())
        );
    }
    explanation
}

/// `plan mg1 --rate 4800 --service 181.185us --scv 0.022`
#[test]
fn mg1_has_rho_and_the_wait() {
    let answer = mg1(4_800.0, ServiceTime::with_scv(181.185e-6, 0.022).unwrap()).unwrap();
    assert!((answer.rho - 0.869_688).abs() < 1e-6);
    assert!((answer.wait_s * 1e6 - 617.9).abs() < 0.1, "{}", answer.wait_s);
    let explanation = explained(&answer, "λ·E[X²] / (2·(1 − ρ))");
    assert!(explanation.steps.iter().any(|step| step.numbers == "4,800/s × 181.185 µs" && step.value == "0.869688"));
    assert!(explanation.steps.iter().any(|step| step.source.contains("eq. 4.2")));
}

/// `plan mmck --rate 14400 --service 140.37us --servers 2 --queue 200`
#[test]
fn mmck_has_rho_and_the_drop_probability() {
    let answer = mmck(14_400.0, 140.37e-6, 2, 200).unwrap();
    assert!((answer.rho - 1.010_664).abs() < 1e-6);
    assert!((answer.drop_probability - 0.0119).abs() < 0.0004, "{}", answer.drop_probability);
    let explanation = explained(&answer, "(λ/μ)^K / (c^(K−c)·c!) · p_0");
    assert!(explanation.steps.iter().any(|step| step.source.contains("eq. 5.4")));
}

/// `plan cores --processors 2 --cores 6 --base 1000`
#[test]
fn cores_has_threads_and_capacity() {
    let answer = cores(2, 6, 1_000.0).unwrap();
    assert_eq!((answer.threads, answer.capacity_per_s), (6, 6_000.0));
    explained(&answer, "T·C₁");
}

/// `plan two-stage --first 2 --first-capacity 1050 --second 2 --second-capacity 900 --shares 0.6,0.4`
#[test]
fn two_stage_has_the_capacity_and_the_break_points() {
    let cluster = TwoStage::new(2, 1_050.0, 900.0, &[0.6, 0.4]).unwrap();
    assert!((cluster.capacity() - 1_740.0).abs() < 1e-9);
    let points: Vec<[f64; 2]> =
        cluster.break_points().iter().map(|point| [point.load_per_s.round(), point.throughput_per_s.round()]).collect();
    assert_eq!(points, [[1_500.0, 1_500.0], [2_100.0, 1_740.0]]);
    explained(&cluster, "Σ_j min(f_j·min(λ, n·C_s), C_p)");
}

/// `plan availability --first 3 --clusters 3 --members 3 --node 0.99`
#[test]
fn availability_has_the_availability() {
    let answer = Availability::two_stage(3, 0.99, 3, 3, 0.99).unwrap();
    assert!((answer.availability - 0.999_996).abs() < 1e-9);
    // Two minutes and six seconds per year.
    assert!((answer.downtime_s_per_year - 126.2).abs() < 0.1, "{}", answer.downtime_s_per_year);
    let explanation = explained(&answer, "(1 − (1 − R_s)^S)·(1 − (1 − R_p)^B)^P");
    assert!(explanation.steps.iter().any(|step| step.value == "99.9996 %"), "{explanation:?}");
}
