//! Both ends of calls in one process and thread, with no server between: what the generator itself can do.
//!
//! `cargo run --release --example both_ends -- RATE SECONDS` prints the accounts, the lateness and the CPU time of a call.

use std::time::Duration;

use strowger_traffic::arrival::Arrivals;
use strowger_traffic::engine::{Callee, Load, Mix, Phase, Plan, Run, Side, Who};
use strowger_traffic::population::Users;
use strowger_traffic::workload::Workload;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let rate: f64 = arguments.next().unwrap_or_default().parse().unwrap_or(1_000.0);
    let seconds: f64 = arguments.next().unwrap_or_default().parse().unwrap_or(5.0);
    let closed: usize = arguments.next().unwrap_or_default().parse().unwrap_or(0);
    let workload = Workload::by_name("proxy-200")?.ok_or("built in")?;
    let mut plan = Plan::new(Users::generated("u%", "p", "127.0.0.1", 10_000), 1);
    plan.caller = Some(Side { scripts: workload.callers.into(), answers: Vec::new() });
    let side = Side { scripts: workload.callees.into(), answers: workload.answers };
    plan.callee = Some(Callee { side, listen: None, service: None });
    plan.phases.push(Phase {
        name: "calls".to_owned(),
        who: Who::Caller,
        mix: Mix::One(0),
        load: if closed > 0 { Load::Closed(closed) } else { Load::Open(Arrivals::poisson(rate)) },
        calls: None,
        time: Some(Duration::from_secs_f64(seconds)),
        warm_up: Duration::from_millis(500),
        drain: Duration::from_secs(5),
        callers: 0..5_000,
        callees: 5_000..10_000,
        is_measured: true,
    });
    let report = Run::prepare(plan)?.go()?;
    for phase in &report.phases {
        let accounts = phase.caller.began;
        println!("{accounts:?} adds up: {}", accounts.add_up());
        println!("answered {:?}", phase.callee.answered);
        println!("carried a second: {:.0}", accounts.carried as f64 / phase.elapsed.as_secs_f64());
        println!("CPU a call: {:.2} µs", phase.cpu.as_secs_f64() * 1e6 / accounts.carried.max(1) as f64);
        let late = &phase.caller.lateness;
        println!("late: {:?} {:?} {:?} of {}", late.quantile(0.5), late.quantile(0.99), late.max(), late.count());
        for (verb, answer, times) in phase.caller.answers() {
            println!("{verb:?} {answer:?}: p50 {:?} p99 {:?}", times.quantile(0.5), times.quantile(0.99));
        }
        println!(
            "repeats {} {} late {} unexpected {}",
            phase.caller.repeats_sent, phase.callee.repeats_sent, phase.caller.late, phase.caller.unexpected
        );
        println!("{:?} {:?}", phase.links, phase.bottleneck());
    }
    Ok(())
}
