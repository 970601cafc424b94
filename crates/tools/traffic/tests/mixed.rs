//! Mixes by weight over loopback, with both ends here: each member is answered by its own callee, with any number of
//! threads.

use std::collections::BTreeMap;
use std::time::Duration;

use strowger_traffic::engine::{CallRole, Run};
use strowger_traffic::meter::ResponseClass;
use strowger_traffic::options::{CalleeLocation, Options, workload_with};
use strowger_traffic::script::MethodId;

#[test]
fn each_member_is_answered_by_its_own_callee() {
    let set = [("proxy-200.ring".to_owned(), "1ms".to_owned())];
    let mix = workload_with("proxy-200:50,baseline:30,message:20", &set, 1.0).expect("a mix");
    for threads in [1, 3] {
        let mut options = Options::new(mix.clone(), None, 5);
        options.callee_location = CalleeLocation::Local;
        (options.rate, options.calls, options.threads) = (400.0, Some(600), threads);
        let (plan, about) = options.plan().expect("a plan");
        let report = Run::prepare(plan).expect("sockets").go().expect("a run");
        let phase = report.measured().expect("one phase");
        let began = phase.caller.began;
        assert!(began.add_up() && began.carried == 600, "{began:?} {:?}", phase.caller.failures);
        let of = |who: CallRole| -> BTreeMap<&str, u64> {
            let of_end = phase.scripts.iter().filter(|script| script.who == who);
            of_end.map(|script| (script.name.split(' ').next().unwrap_or_default(), script.accounts.carried)).collect()
        };
        let (called, answered) = (of(CallRole::Caller), of(CallRole::Callee));
        assert_eq!(called, answered, "{threads} threads");
        for (name, share) in [("proxy-200", 0.5), ("baseline", 0.3), ("message", 0.2)] {
            let deviation = (600.0_f64 * share * (1.0 - share)).sqrt();
            let count = called[name] as f64;
            assert!((count - 600.0 * share).abs() < 4.0 * deviation, "{name}: {count}");
        }
        // A call of the baseline rings for 250 ms, a proxy-200 call does not: each was answered by its own callee.
        let times = phase.caller.answer(MethodId::Invite, ResponseClass::Success).expect("calls");
        let quick = called["proxy-200"] as f64 / (called["proxy-200"] + called["baseline"]) as f64;
        assert!(times.quantile(quick - 0.01) < Duration::from_millis(240), "{threads} threads");
        assert!(times.quantile(quick + 0.02) > Duration::from_millis(240), "{threads} threads");
        let json = report.to_json(&about);
        assert_eq!(json["scripts"].as_array().map(Vec::len), Some(6), "{}", json["scripts"]);
        assert_eq!(json["transactions"]["MESSAGE"]["succeeded"], called["message"]);
        assert_eq!(json["declared"]["proxy-200.ring"], "1ms (set)");
        assert!(report.to_text(&about).contains("baseline caller"), "{}", report.to_text(&about));
    }
}
