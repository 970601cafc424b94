//! Whole runs over loopback, with both ends in this process.

use std::time::Duration;

use strowger_traffic::engine::{Report, Run};
use strowger_traffic::law::Law;
use strowger_traffic::meter::{ResponseClass, TimeHistogram};
use strowger_traffic::options::{AnswerOptions, CalleeLocation, Options, Target, workload};
use strowger_traffic::script::MethodId;
use strowger_traffic::service::{AppliesTo, ServiceLaw, ServiceTimes};

fn options(name: &str) -> Options {
    let mut options = Options::new(workload(name).expect("built in"), None, 7);
    options.callee_location = CalleeLocation::Local;
    (options.rate, options.calls) = (500.0, Some(500));
    options
}

fn run(options: &Options) -> Report {
    let (plan, _) = options.plan().expect("a plan");
    Run::prepare(plan).expect("sockets").go().expect("a run")
}

#[test]
fn all_calls_over_udp_succeed() {
    for threads in [1, 3] {
        let mut options = options("proxy-200");
        (options.threads, options.sockets) = (threads, 5);
        let report = run(&options);
        let phase = report.measured().expect("one phase");
        let accounts = phase.caller.began;
        assert!(accounts.add_up(), "{accounts:?}");
        assert_eq!((accounts.offered, accounts.carried), (500, 500), "{:?}", phase.caller.failures);
        assert_eq!(phase.callee.answered.carried, 500);
        assert_eq!(phase.caller.lateness.count(), 500);
        assert_eq!(phase.caller.answer(MethodId::Invite, ResponseClass::Success).map(TimeHistogram::count), Some(500));
        assert!(phase.elapsed > Duration::from_millis(600), "{:?}", phase.elapsed);
    }
}

#[test]
fn segmentation_joins_messages_only_when_enabled() {
    for joins in [false, true] {
        let mut options = options("proxy-200");
        (options.outstanding, options.has_segmentation) = (Some(64), joins);
        let report = run(&options);
        let phase = report.measured().expect("one phase");
        assert_eq!(phase.caller.began.carried, 500, "{:?}", phase.caller.failures);
        let (joined, sent) = (phase.links.segmented, phase.links.sent);
        assert!(if joins { 2 * joined > sent } else { joined == 0 }, "{joined} of {sent}");
        let text = report.to_text(&strowger_traffic::report::RunDescription::default());
        let told = format!("\n  {joined} of the generator's {sent} messages left in segmented packets\n");
        assert_eq!(text.contains(&told), joins, "{text}");
    }
}

#[test]
fn all_calls_over_tcp_succeed_with_every_connection_lifetime() {
    use strowger_traffic::driver::ConnectionLifetime::{Dialog, Persistent, PersistentWithOpen, Transaction};
    // Both ends of each connection are in this process. Shared connections are open before the phase begins, or
    // opened by its first calls.
    for (connecting, ends) in
        [(Transaction, 1_200..=1_208), (Dialog, 600..=608), (Persistent, 0..=16), (PersistentWithOpen, 8..=16)]
    {
        let mut options = options("proxy-200");
        (options.connection_lifetime, options.connections, options.calls) = (connecting, 4, Some(300));
        let (mut plan, _) = options.plan().expect("a plan");
        plan.transport = strowger_foundation::Transport::Tcp;
        let report = Run::prepare(plan).expect("sockets").go().expect("a run");
        let phase = report.measured().expect("one phase");
        let accounts = phase.caller.began;
        assert!(accounts.add_up(), "{accounts:?}");
        assert_eq!(accounts.carried, 300, "{connecting:?}: {:?} {:?}", phase.caller.failures, phase.links);
        assert!(ends.contains(&phase.links.connected), "{connecting:?}: {:?}", phase.links);
    }
}

#[test]
fn an_emulated_server_works_at_capacity_with_exact_accounts() {
    let mut options = options("proxy-200");
    (options.rate, options.calls, options.retransmits) = (1_000.0, Some(1_500), false);
    options.drain = Some(Duration::from_millis(500));
    let law = Law::parse("exp(mean=4ms)").expect("a law");
    options.service = Some(ServiceLaw { times: law.into(), servers: 2, queue: 10, applies: AppliesTo::New });
    let report = run(&options);
    let phase = report.measured().expect("one phase");
    let accounts = phase.caller.began;
    assert!(accounts.add_up(), "{accounts:?}");
    assert_eq!(accounts.offered, 1_500);
    // Two servers with 250 calls per second each take half of the offered load, plus what is still queued.
    let carried = accounts.carried as f64 / 1_500.0;
    assert!((0.42..0.62).contains(&carried), "{accounts:?}");
    assert_eq!(accounts.unfinished + accounts.lost, phase.service_drops, "{accounts:?}");
    let text = report.to_text(&strowger_traffic::report::RunDescription::default());
    assert!(text.contains(&format!("{} messages were DROPPED because the queue", phase.service_drops)), "{text}");
}

#[test]
fn two_threads_on_an_overloaded_server_keep_exact_accounts() {
    for (seed, applies) in [(1, AppliesTo::New), (2, AppliesTo::Requests), (3, AppliesTo::All)] {
        let mut options = options("baseline");
        (options.rate, options.calls, options.threads) = (2_000.0, Some(1_500), 2);
        (options.seed, options.max_sessions, options.retransmits) = (seed, Some(600), seed == 3);
        (options.warm_up, options.drain) = (Duration::from_millis(100), Some(Duration::from_millis(600)));
        let law = Law::parse("exp(mean=5ms)").expect("a law");
        options.service = Some(ServiceLaw { times: law.into(), servers: 2, queue: 8, applies });
        let report = run(&options);
        let phase = report.measured().expect("one phase");
        let accounts = phase.caller.began;
        assert_eq!(accounts.offered, accounts.sent + accounts.refused, "{accounts:?}");
        let ended = accounts.carried + accounts.lost + accounts.failed;
        assert_eq!(accounts.sent, ended + accounts.unfinished, "{accounts:?}");
        assert_eq!(accounts.offered, 1_500, "calls of the warm-up are beside them");
        assert!(accounts.refused > 0 && accounts.carried > 0, "{accounts:?}");
        assert!(phase.service_drops > 0 && accounts.unfinished > 0, "{accounts:?}");
        assert_eq!(phase.caller.failures.values().sum::<u64>(), accounts.lost + accounts.failed);
    }
}

#[test]
fn a_closed_loop_keeps_its_number_of_calls() {
    let mut options = options("proxy-200");
    (options.outstanding, options.calls) = (Some(8), Some(400));
    let report = run(&options);
    let accounts = report.measured().expect("one phase").caller.began;
    assert!(accounts.add_up() && accounts.carried == 400, "{accounts:?}");
}

#[test]
fn busy_polling_threads_carry_all_calls() {
    let mut options = options("proxy-200");
    (options.rate, options.calls, options.is_busy_polling) = (1_000.0, Some(200), true);
    let report = run(&options);
    let accounts = report.measured().expect("one phase").caller.began;
    assert!(accounts.add_up() && accounts.carried == 200, "{accounts:?}");
}

#[test]
fn excess_sessions_are_counted() {
    let mut options = options("baseline");
    (options.rate, options.calls, options.max_sessions) = (1_000.0, Some(200), Some(50));
    let report = run(&options);
    let accounts = report.measured().expect("one phase").caller.began;
    assert!(accounts.add_up(), "{accounts:?}");
    assert_eq!((accounts.offered, accounts.sent, accounts.refused), (200, 50, 150), "{accounts:?}");
    assert_eq!(accounts.carried, 50);
}

#[test]
fn an_absent_server_ends_the_run() {
    let nobody = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound");
    let mut options = options("proxy-200");
    options.to = Some(Target::parse(&format!("udp:{nobody}")).expect("a target"));
    options.callee_location = CalleeLocation::Remote;
    (options.rate, options.calls) = (50.0, Some(10_000));
    let begun = std::time::Instant::now();
    let report = run(&options);
    assert!(report.broken_off.expect("nobody is there").contains("start the server"), "a remedy");
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn calls_ended_after_the_last_arrival_are_in_no_rate() {
    let mut options = options("proxy-200");
    (options.rate, options.calls, options.time) = (400.0, None, Some(Duration::from_secs(1)));
    (options.retransmits, options.drain) = (false, Some(Duration::from_secs(10)));
    let law = Law::parse("constant(5ms)").expect("a law");
    options.service = Some(ServiceLaw { times: law.into(), servers: 1, queue: 100_000, applies: AppliesTo::New });
    let (plan, about) = options.plan().expect("a plan");
    let report = Run::prepare(plan).expect("sockets").go().expect("a run");
    let phase = report.measured().expect("one phase");
    let accounts = phase.caller.began;
    assert!(accounts.add_up() && accounts.carried == accounts.offered && accounts.offered > 300, "{accounts:?}");
    assert_eq!(phase.elapsed, Duration::from_secs(1));
    let json = report.to_json(&about);
    let rate = json["carried_per_s"].as_f64().expect("a rate");
    assert!(rate <= 202.0 && rate > 80.0, "one server takes 200 a second: {rate}");
    assert_eq!(json["carried"].as_u64(), Some(accounts.carried), "the account is exact");
    let behind = accounts.carried - phase.carried_in_time;
    let text = report.to_text(&about);
    assert!(text.contains(&format!("{behind} carried calls ended after the last arrival")), "{text}");
    assert!(text.contains(&format!("(carried {rate:.1}/s, 100 %)")), "{text}");
}

#[test]
fn calls_are_counted_after_the_warm_up() {
    for outstanding in [None, Some(6)] {
        let mut options = options("proxy-200");
        (options.calls, options.threads, options.outstanding) = (Some(101), 2, outstanding);
        options.warm_up = Duration::from_millis(300);
        let report = run(&options);
        let phase = report.measured().expect("one phase");
        assert!(phase.is_warm && !phase.is_used_up);
        assert_eq!((phase.caller.began.offered, phase.caller.began.carried), (101, 101), "{outstanding:?}");
        let sent = [MethodId::Invite, MethodId::Ack, MethodId::Bye].map(|verb| phase.caller.sent.requests(verb));
        assert_eq!(sent, [101; 3], "{outstanding:?}");
        // Without due times, no time is measured from them.
        let text = report.to_text(&strowger_traffic::report::RunDescription::default());
        let due: Vec<&str> = text.lines().filter(|line| line.contains("from due")).collect();
        match outstanding {
            None => assert!(due.len() == 1 && due[0].starts_with("  INVITE   from due       101 "), "{text}"),
            Some(_) => assert!(due.is_empty(), "{text}"),
        }
    }
}

#[test]
fn a_run_stopped_in_its_warm_up_has_measured_nothing() {
    let mut options = options("proxy-200");
    options.warm_up = Duration::from_secs(60);
    let (plan, about) = options.plan().expect("a plan");
    let run = Run::prepare(plan).expect("sockets");
    let stopper = run.stopper();
    let stopping = std::thread::spawn(move || {
        while stopper.progress().caller.began.carried == 0 {
            std::thread::yield_now();
        }
        stopper.stop();
    });
    let report = run.go().expect("a run");
    stopping.join().expect("it stops");
    let phase = report.measured().expect("one phase");
    assert!(!phase.is_warm);
    assert_eq!((phase.caller.began.offered, phase.elapsed, phase.carried_in_time), (0, Duration::ZERO, 0));
    let text = report.to_text(&about);
    assert!(text.contains("STOPPED") && text.contains("NOTHING WAS MEASURED"), "{text}");
    assert_eq!(report.to_json(&about)["ended_in_warm_up"], true);
}

#[test]
fn users_without_requests_are_not_conforming() {
    let mut options = options("users");
    (options.users, options.calls, options.time) = (2, None, Some(Duration::from_millis(10)));
    let (mut plan, about) = options.plan().expect("a plan");
    plan.phases.retain(|phase| phase.is_measured);
    plan.phases.iter_mut().for_each(|phase| phase.warm_up = Duration::ZERO);
    let report = Run::prepare(plan).expect("sockets").go().expect("a run");
    let phase = report.measured().expect("one phase");
    assert_eq!((phase.transactions().sum().all, phase.is_conforming()), (0, Some(false)));
    let text = report.to_text(&about);
    assert!(text.contains("2 users: NOT conforming; no transaction was started"), "{text}");
}

#[test]
fn a_trace_that_is_too_short_is_reported() {
    let path = std::env::temp_dir().join(format!("strowger-traffic-trace-{}", std::process::id()));
    std::fs::write(&path, "0\n0.01\n0.02\n").expect("a file");
    for (calls, is_used_up) in [(50, true), (3, false), (2, false)] {
        let mut options = options("proxy-200");
        (options.calls, options.arrivals) = (Some(calls), format!("file({},unit=s)", path.display()));
        let (plan, about) = options.plan().expect("a plan");
        let report = Run::prepare(plan).expect("sockets").go().expect("a run");
        let phase = report.measured().expect("one phase");
        assert_eq!((phase.caller.began.offered, phase.is_used_up), (calls.min(3), is_used_up));
        assert_eq!(report.to_text(&about).contains("the arrivals ran out"), is_used_up);
    }
    std::fs::remove_file(&path).expect("ours");
}

#[test]
fn a_verdict_on_the_generator_needs_more_than_a_few_calls() {
    let mut options = options("proxy-200");
    options.calls = Some(1);
    let (plan, about) = options.plan().expect("a plan");
    let mut report = Run::prepare(plan).expect("sockets").go().expect("a run");
    let text = report.to_text(&about);
    assert!(text.contains("(carried 100 %)") && !text.contains("/s)"), "one call has no rate: {text}");
    let phase = report.phases.last_mut().expect("one phase");
    phase.caller.lateness.record(Duration::from_secs(1));
    assert_eq!(phase.bottleneck(), None);
    (0..20).for_each(|_| phase.caller.lateness.record(Duration::from_secs(1)));
    assert!(phase.bottleneck().expect("late").contains("--threads"));
}

#[test]
fn slowly_read_answers_make_the_generator_the_bottleneck() {
    let mut options = options("proxy-200");
    options.calls = Some(1);
    let (plan, about) = options.plan().expect("a plan");
    let mut report = Run::prepare(plan).expect("sockets").go().expect("a run");
    let phase = report.phases.last_mut().expect("one phase");
    assert!(phase.caller.unread.count() > 0 && phase.callee.unread.count() > 0, "both ends have read something");
    phase.caller.unread = TimeHistogram::default();
    phase.callee.unread = TimeHistogram::default();
    (0..100).for_each(|_| phase.caller.unread.record(Duration::from_micros(200)));
    assert_eq!(phase.bottleneck(), None, "so much is usual");
    (0..3).for_each(|_| phase.callee.unread.record(Duration::from_millis(60)));
    let why = phase.bottleneck().expect("one in a hundred waited for too long, at the end that is called");
    assert!(why.contains("were read late") && why.contains("--threads"), "{why}");
    let (text, json) = (report.to_text(&about), report.to_json(&about));
    assert!(text.contains("delay of reads") && text.contains("THE GENERATOR WAS THE BOTTLENECK"), "{text}");
    assert_eq!(json["generator"]["unread_us"]["count"], 103);
    assert_eq!(json["generator"]["was_bottleneck"], true);
}

#[test]
fn a_closed_loop_that_overloads_the_generator_is_detected() {
    // The run has no due times, so nothing is late: what one thread cannot handle waits in its own buffers.
    let mut options = options("proxy-200");
    (options.outstanding, options.calls, options.retransmits) = (Some(1_000), Some(10_000), false);
    options.drain = Some(Duration::from_millis(500));
    let report = run(&options);
    let phase = report.measured().expect("one phase");
    assert_eq!(phase.caller.lateness.count(), 0);
    let why = phase.bottleneck().expect("a thousand at once");
    assert!(why.contains("were read late"), "{why}");
}

#[test]
fn connections_measure_how_long_messages_wait() {
    let mut options = options("proxy-200");
    (options.rate, options.calls) = (200.0, Some(50));
    let (mut plan, _) = options.plan().expect("a plan");
    plan.transport = strowger_foundation::Transport::Tcp;
    let report = Run::prepare(plan).expect("sockets").go().expect("a run");
    let phase = report.measured().expect("one phase");
    assert!(phase.caller.unread.count() > 0 && phase.callee.unread.count() > 0, "{:?}", phase.links);
}

#[test]
fn counts_depend_on_the_arrival_law_alone() {
    // The rate is so high that many arrivals are due in each round: the warm-up ends at an arrival, not at a round.
    for threads in [1, 2] {
        let mut options = options("baseline");
        (options.rate, options.arrivals, options.threads) = (100_000.0, "uniform".to_owned(), threads);
        (options.calls, options.time, options.max_sessions) = (None, Some(Duration::from_millis(30)), Some(threads));
        options.warm_up = Duration::from_millis(20);
        let report = run(&options);
        let accounts = report.measured().expect("one phase").caller.began;
        assert_eq!(accounts.offered, 3_000, "{threads} threads: {accounts:?}");
    }
}

#[test]
fn threads_share_a_stream_listener() {
    let mut options = options("proxy-200");
    (options.threads, options.calls) = (2, Some(200));
    options.connection_lifetime = strowger_traffic::driver::ConnectionLifetime::Persistent;
    let (mut plan, _) = options.plan().expect("a plan");
    plan.transport = strowger_foundation::Transport::Tcp;
    plan.callee.as_mut().expect("it is here").listen = vec![([127, 0, 0, 1], 0).into()];
    let run = Run::prepare(plan).expect("both threads listen");
    let listening = run.listening();
    assert!(listening.len() == 2 && listening[0] == listening[1], "{listening:?}");
    let report = run.go().expect("a run");
    let phase = report.measured().expect("one phase");
    assert_eq!(phase.caller.began.carried, 200, "{:?} {:?}", phase.caller.failures, phase.links);
}

#[test]
fn all_threads_share_one_emulated_server() {
    let mut options = options("proxy-200");
    (options.rate, options.arrivals, options.calls) = (900.0, "uniform".to_owned(), Some(900));
    (options.threads, options.retransmits, options.drain) = (2, false, Some(Duration::from_millis(300)));
    let law = Law::parse("2ms").expect("a law");
    options.service = Some(ServiceLaw { times: law.into(), servers: 1, queue: 5, applies: AppliesTo::New });
    let report = run(&options);
    let carried = report.measured().expect("one phase").caller.began.carried;
    // 500 per second for 1 s, plus what is queued at its end.
    assert!((450..600).contains(&carried), "{carried} of 900");
}

#[test]
fn an_emulated_cluster_has_a_server_behind_each_address() {
    let any = |ip: [u8; 4]| Target::new(strowger_foundation::Transport::Udp, (ip, 0).into());
    let answering = AnswerOptions {
        secure: strowger_traffic::options::SecureOptions::default(),
        listen: vec![any([127, 0, 1, 1]), any([127, 0, 1, 2])],
        workload: workload("proxy-200").expect("built in"),
        scenario: None,
        calls: Some(60),
        time: None,
        threads: 1,
        is_busy_polling: false,
        has_segmentation: false,
        retransmits: false,
        service: Some(ServiceLaw {
            times: ServiceTimes::parse("INVITE=2ms,BYE=1ms").expect("laws"),
            servers: 1,
            queue: 100,
            applies: AppliesTo::New,
        }),
        seed: 7,
    };
    let (plan, about) = answering.plan().expect("a plan");
    let cluster = Run::prepare(plan).expect("it listens at both");
    let listening = cluster.listening();
    let ips: Vec<_> = listening.iter().map(|address| address.ip().to_string()).collect();
    assert_eq!(ips, ["127.0.1.1", "127.0.1.2"], "{about:?}");
    let cluster = std::thread::spawn(move || cluster.go().expect("a run"));
    let calls: Vec<_> = listening
        .into_iter()
        .map(|address| {
            let mut options = options("proxy-200");
            options.to = Some(Target { address, ..any([127, 0, 0, 1]) });
            options.callee_location = CalleeLocation::Remote;
            (options.rate, options.arrivals, options.calls) = (1_000.0, "uniform".to_owned(), Some(30));
            std::thread::spawn(move || run(&options))
        })
        .collect();
    for report in calls.into_iter().map(|thread| thread.join().expect("a run")) {
        let phase = report.measured().expect("one phase");
        let accounts = phase.caller.began;
        assert_eq!(accounts.carried, 30, "the calls go on where they began: {accounts:?} {:?}", phase.caller.failures);
    }
    let report = cluster.join().expect("a run");
    let phase = report.measured().expect("one phase");
    assert_eq!(phase.callee.answered.carried, 60, "{:?}", phase.callee.failures);
}

#[test]
fn too_many_outstanding_calls_are_rejected_before_the_run() {
    let mut options = options("proxy-200");
    (options.outstanding, options.max_sessions) = (Some(100), Some(10));
    let (plan, _) = options.plan().expect("a plan");
    let error = Run::prepare(plan).expect_err("a contradiction").to_string();
    assert!(error.contains("--outstanding") && error.contains("10"), "{error}");
}

#[test]
fn a_run_waits_for_long_ringing_and_long_calls() {
    let set = [("ring".to_owned(), "20s".to_owned()), ("hold".to_owned(), "45s".to_owned())];
    let mut options = options("proxy-200");
    options.workload = strowger_traffic::options::workload_with("proxy-200", &set, 1.0).expect("built in");
    let (plan, _) = options.plan().expect("a plan");
    let drain = plan.phases.last().expect("one").drain;
    assert!(drain >= Duration::from_secs(32 + 20 + 45), "{drain:?}");
    options.drain = Some(Duration::from_secs(1));
    assert_eq!(options.plan().expect("a plan").0.phases.last().expect("one").drain, Duration::from_secs(1));
}

#[test]
fn calls_held_back_by_the_generator_count_in_the_times() {
    let mut options = options("proxy-200");
    (options.rate, options.arrivals, options.calls) = (200_000.0, "uniform".to_owned(), Some(2_000));
    let (plan, about) = options.plan().expect("a plan");
    let report = Run::prepare(plan).expect("sockets").go().expect("a run");
    let phase = report.measured().expect("one phase");
    let meter = phase.meter();
    let sent = meter.answer(MethodId::Invite, ResponseClass::Success).expect("answered");
    let due = &meter.from_due[&MethodId::Invite];
    assert_eq!((due.count(), sent.count()), (2_000, 2_000));
    // 10 ms of arrivals take far longer to start.
    let late = meter.lateness.quantile(0.5);
    assert!(late > Duration::from_millis(2), "{late:?}");
    assert!(
        due.quantile(0.5) >= sent.quantile(0.5) && due.quantile(0.5) > late.mul_f64(0.9),
        "{:?}",
        due.quantile(0.5)
    );
    assert!(phase.warning().is_some_and(|why| why.contains("INVITE")), "{:?}", phase.warning());
    let (text, json) = (report.to_text(&about), report.to_json(&about));
    assert!(text.contains("from due") && text.contains("CAUTION"), "{text}");
    assert_eq!(json["answers_from_due"][0]["us"]["count"], 2_000);
    assert!(json["caution"].is_string() && json["lateness_limits_us"]["p99"] == 50_000);
}

#[test]
fn problems_of_a_run_are_warned_of_beforehand() {
    let warned = |options: &Options| {
        let (_, about) = options.plan().expect("a plan");
        let of = about.declared.into_iter().filter(|(name, _)| name == strowger_traffic::options::WARNING);
        of.map(|(_, text)| text).collect::<Vec<_>>().join("; ")
    };
    let target = Target::parse("udp:127.0.0.1:5060").expect("a target");
    let mut options = Options::new(workload("users").expect("built in"), Some(target), 7);
    (options.users, options.register_rate) = (10_000, Some(10.0));
    assert!(warned(&options).contains("--register-rate"), "17 minutes for registrations of 15");
    options.register_rate = Some(100.0);
    assert_eq!(warned(&options), "");
}

#[test]
fn calls_after_the_measured_time_keep_up_the_load_uncounted() {
    let mut options = options("proxy-200");
    (options.calls, options.threads) = (None, 2);
    (options.warm_up, options.time) = (Duration::from_millis(200), Some(Duration::from_millis(400)));
    options.cool_down = Duration::from_millis(600);
    let report = run(&options);
    let phase = report.measured().expect("one phase");
    let accounts = phase.caller.began;
    assert!(accounts.add_up(), "{accounts:?}");
    // 500 per second for 0.4 s, within five standard deviations.
    assert!(accounts.offered.abs_diff(200) < 71 && accounts.carried == accounts.offered, "{accounts:?}");
    assert_eq!(phase.elapsed, Duration::from_millis(400));
    assert_eq!(phase.caller.lateness.count(), accounts.offered);
    assert_eq!(phase.callee.answered.carried, accounts.carried);
    // The socket counters include calls that are not counted.
    assert!(phase.links.sent > 6 * accounts.offered * 3 / 2, "{:?}", phase.links);
    options.time = None;
    assert!(options.plan().is_err_and(|error| error.to_string().contains("--time")));
}

#[test]
fn phones_recover_over_sockets_and_the_report_shows_when() {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = socket.local_addr().expect("bound");
    socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
    let is_over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let over = std::sync::Arc::clone(&is_over);
    let registrar = std::thread::spawn(move || {
        let mut buffer = [0; 4_096];
        while !over.load(std::sync::atomic::Ordering::SeqCst) {
            let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            // Each is rejected once.
            let status = if text.contains("CSeq: 1 REGISTER") { 503 } else { 200 };
            let copied = ["Via:", "From:", "To:", "Call-ID:", "CSeq:"];
            let copied = text.lines().filter(|line| copied.iter().any(|name| line.starts_with(name)));
            let copied: String = copied.map(|line| format!("{line}\r\n")).collect();
            let answer = format!("SIP/2.0 {status} x\r\n{copied}Content-Length: 0\r\n\r\n");
            socket.send_to(answer.as_bytes(), from).expect("sent");
        }
    });
    let set = [("spread", "100ms"), ("base-time", "100ms")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    let avalanche = strowger_traffic::options::workload_with("avalanche", &set, 1.0).expect("known");
    let to = Target::parse(&format!("udp:{address}")).expect("a target");
    let mut options = Options::new(avalanche, Some(to), 7);
    (options.users, options.threads, options.sockets) = (300, 2, 3);
    let (plan, about) = options.plan().expect("a plan");
    let report = Run::prepare(plan).expect("sockets").go().expect("a run");
    is_over.store(true, std::sync::atomic::Ordering::SeqCst);
    registrar.join().expect("it ends");
    let phase = report.measured().expect("one phase");
    let recovery = phase.recovery.as_ref().expect("phones");
    assert_eq!((recovery.phones(), recovery.registered()), (300, 300));
    assert!(recovery.attempts().mean() == 2.0 && recovery.requests().mean() >= 2.0);
    assert_eq!((phase.caller.began.carried, phase.caller.began.failed), (300, 300));
    // At least half of 200 ms.
    assert!(recovery.time_of(0.01).expect("registered") >= Duration::from_millis(100));
    let json = report.to_json(&about);
    assert_eq!(json["recovery"]["registered"], 300);
    assert!(json["recovery"]["times"][4]["s"].as_f64().is_some_and(|time| time < 30.0), "{}", json["recovery"]);
    assert!(report.to_text(&about).contains("of 300 phones 300 registered: 50 % after"), "{}", report.to_text(&about));
}
