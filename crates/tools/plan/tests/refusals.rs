//! Invalid input is rejected with its name, the reason and a remedy.

use strowger_plan::capacity::mg1_capacity;
use strowger_plan::{
    Availability, Beta, Calls, Curve, MessageTiming, Objective, PacketTiming, Part, PlanError, Profile, Requirements,
    ServiceTime, TwoStage, cores, databases, mg1, mgck, mmck, part_stateful_capacity, size, traffic,
};

#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Result<T, PlanError>, input: &str, reason: &str, remedy: &str) {
    let error = answer.unwrap_err();
    assert_eq!(error.input(), input, "{error}");
    assert!(error.to_string().contains(reason), "“{error}” does not say “{reason}”");
    assert!(error.remedy().contains(remedy), "“{}” does not say “{remedy}”", error.remedy());
}

fn exponential() -> ServiceTime {
    ServiceTime::exponential(100e-6).unwrap()
}

#[test]
fn invalid_rates_and_times() {
    refused(mg1(-5.0, exponential()), "rate", "-5", "above 0");
    refused(mg1(0.0, exponential()), "rate", "0", "above 0");
    refused(mmck(f64::NAN, 1e-4, 1, 10), "rate", "NaN", "finite");
    refused(mmck(f64::INFINITY, 1e-4, 1, 10), "rate", "inf", "finite");
    refused(mmck(1.0, 0.0, 1, 10), "service time", "0", "above 0");
    refused(ServiceTime::with_scv(1e-4, -0.1), "squared coefficient of variation", "-0.1", "0 or more");
    refused(ServiceTime::from_moments(1e-3, 0.5e-6), "second moment", "second moment", "at least E[X]²");
    refused(mmck(1e300, 1e300, 1, 10), "offered load", "inf", "finite");
    refused(mmck(1e-300, 1e-300, 1, 10), "offered load", "above 0", "above 0");
}

#[test]
fn an_excessive_load_is_rejected() {
    refused(mg1(12_000.0, exponential()), "rate", "ρ = 1.2", "10,000/s");
    // A finite queue has a solution.
    assert!(mmck(12_000.0, 100e-6, 1, 200).is_ok());
}

#[test]
fn invalid_servers_and_queues() {
    refused(mmck(1.0, 1e-4, 0, 10), "servers", "no servers", "at least 1");
    refused(mgck(1.0, exponential(), 0, 10), "servers", "no servers", "at least 1");
    refused(mmck(1.0, 1e-4, 16, 10), "queue", "K = 10", "at least 16");
    refused(mmck(1.0, 1e-4, 1, 2_000_000_000), "queue", "more than", "at most");
    refused(mmck(1.0, 1e-4, 1_000_000, 2_000_000), "servers", "more than", "at most");
    refused(cores(0, 4, 1_000.0), "processors", "no processors", "at least 1");
    refused(cores(4, 2, 1_000.0), "cores", "4 processors cannot have 2 cores", "total number");
    refused(cores(1, 2, -1.0), "base capacity", "-1", "above 0");
    refused(databases(0, 1.0, 1.0, 1.0, 1.0), "databases", "no databases", "at least 1");
}

#[test]
fn invalid_shares() {
    let name = "shares of the second stage";
    refused(TwoStage::new(1, 100.0, 100.0, &[0.6, 0.3]), name, "add up to 0.9", "divide each by 0.9");
    refused(TwoStage::new(1, 100.0, 100.0, &[1.5, -0.5]), name, "1.5", "0 to 1");
    refused(TwoStage::new(1, 100.0, 100.0, &[]), name, "no shares", "at least 1");
    refused(TwoStage::new(1, 0.0, 100.0, &[1.0]), "first stage's capacity", "0", "above 0");
    refused(part_stateful_capacity(1.2, 800.0, 650.0), "stateful share", "1.2", "0 to 1");
    refused(Availability::two_stage(3, 99.0, 3, 3, 0.99), "availability of a first-stage server", "99", "99 % is 0.99");
    refused(Availability::two_stage(3, 0.99, 3, 0, 0.99), "members of a cluster", "no members", "at least 1");
    // Thirds rounded to five digits are accepted as thirds.
    assert!(TwoStage::new(1, 100.0, 100.0, &[0.333_33, 0.333_33, 0.333_34]).is_ok());
}

#[test]
fn invalid_timings() {
    let part = Part::constant(1e-6);
    let message = |share: f64, sip: Part| MessageTiming {
        message: "INVITE".into(),
        share,
        sockq_base: part,
        copy: part,
        sip,
        send: part,
    };
    let timing = |messages: Vec<MessageTiming>| PacketTiming {
        messages,
        alpha: Curve::constant(1.0),
        sip_growth: Curve::constant(1.0),
    };
    refused(timing(vec![message(0.5, part)]).check(), "shares of the message types", "0.5", "divide each");
    refused(timing(Vec::new()).check(), "shares of the message types", "no shares", "at least 1");
    refused(timing(vec![message(1.0, Part::constant(-1e-6))]).check(), "part of a service time", "-", "0 or more");
    refused(Curve::new(vec![(2.0, 1.0), (1.0, 1.0)]), "curve", "x = 1", "ascending order");
    refused(Beta::THESIS.at(-1.0, 2), "rate", "-1", "0 or more");
    let falling =
        PacketTiming { alpha: Curve::new(vec![(0.0, 1.0), (1.0, -1.0)]).unwrap(), ..timing(vec![message(1.0, part)]) };
    refused(falling.check(), "α", "-1", "above 0");
}

#[test]
fn unreachable_objectives() {
    let answer = mg1_capacity(Objective::WaitS(-1.0), |_| Ok(exponential()));
    refused(answer, "wait at most", "-1", "above 0");
    let answer = mg1_capacity(Objective::WaitS(1e-15), |_| Ok(exponential()));
    refused(answer, "promise", "not met even", "relax the objective");
}

#[test]
fn invalid_requirements() {
    let (needs, profile) = (Requirements::default(), Profile::measured());
    let with = |change: fn(&mut Requirements)| {
        let mut needs = needs;
        change(&mut needs);
        size(&needs, &profile)
    };
    refused(with(|needs| needs.subscribers = -1.0), "subscribers", "-1", "above 0");
    refused(with(|needs| needs.stateful_share = 2.0), "stateful share", "2", "0 to 1");
    refused(with(|needs| needs.refresh_s = 0.0), "refresh interval", "0", "above 0");
    refused(with(|needs| needs.calls = Calls::Erlangs(-0.1)), "erlangs of a subscriber", "-0.1", "0 or more");
    refused(with(|needs| needs.skew = 0.5), "skew", "0.5", "1 for an even distribution");
    refused(with(|needs| needs.availability = 1.0), "availability", "99 % available", "more available");
    refused(with(|needs| needs.utilization = 0.0), "utilization", "0", "above 0");
    refused(with(|needs| needs.subscribers = 1e15), "load", "4096 clusters", "larger servers");
    let mut cheap = profile.clone();
    cheap.costs.challenged_register_s = 1e-9;
    refused(size(&needs, &cheap), "cost of a challenged REGISTER", "below", "both requests");
    refused(traffic(1.0, 1.0, Calls::Total(f64::NAN), 1.0, 1.0), "calls of the busy hour", "NaN", "finite");
}

#[test]
fn unknown_profile_keys_are_rejected() {
    let json = serde_json::to_string(&Profile::design_goals()).unwrap();
    let again: Profile = serde_json::from_str(&json).unwrap();
    assert_eq!(again, Profile::design_goals());
    let wrong = json.replace("\"stateful_call_s\"", "\"statefull_call_s\"");
    let error = serde_json::from_str::<Profile>(&wrong).unwrap_err();
    assert!(error.to_string().contains("statefull_call_s"), "{error}");
}
