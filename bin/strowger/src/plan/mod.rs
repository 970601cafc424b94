//! `strowger plan`: models for capacity planning.

mod availability;
mod cores;
mod databases;
mod failover;
mod field;
mod fit;
mod measured;
mod mg1;
mod mmck;
mod numbers;
mod overload;
mod presentation;
mod profile;
mod service;
mod size;
mod two_stage;
mod units;
mod validate;

use clap::{Args, Subcommand};

use crate::failure::Failure;

#[derive(Debug, Args)]
pub(crate) struct PlanArguments {
    #[command(subcommand)]
    command: PlanCommand,
}

#[derive(Debug, Subcommand)]
enum PlanCommand {
    /// Computes the servers for a number of subscribers: stages, cores, memory, network, stores, cost, and the
    /// reasons
    #[command(after_help = "Examples:\n  \
        strowger plan size --subscribers 2M\n  \
        strowger plan size --subscribers 300k --erlangs 0.05 --refresh 30min --availability 99.99% --explain\n  \
        strowger plan size --subscribers 10M --bhca 10M --replication store --node 99.9% --cores 32 --price 450\n  \
        strowger plan size --subscribers 100k..10M/100k --plot size.html\n  \
        strowger plan size --subscribers 2M --connected 30% --nat 50% --keepalive 25s --failover client --replication none\n  \
        strowger plan size --subscribers 2M --profile fitted.json --json\n\n\
        Only the number of subscribers is required; the report lists all assumptions, each with the option that changes \
        it. Costs come from a profile: measured (this server's benchmarks), goals, or a file that plan fit derives from your own \
        measurements. Members of a cluster share registrations through an engine (docs/operating/members.md), which is not included in the \
        number of servers; --replication none plans without it. The exit code is 1 if no plan meets the requirements.")]
    Size(Box<size::SizeArguments>),
    /// Waiting time of packets at one server (M/G/1)
    #[command(after_help = "Examples:\n  \
        strowger plan mg1 --rate 4800 --service 181.185us --scv 0.022\n  \
        strowger plan mg1 --rate 600..5400/600 --service 181us --scv 0.022 --plot wait.svg\n  \
        strowger plan mg1 --rate 4800 --type INVITE:310us --type 180:150us --type 200:170us:0.1:2 --type ACK:90us --type BYE:160us\n  \
        strowger plan mg1 --rate 100..5000/100 --service 118us --scv 0.02 --alpha exponential --base 7.9us --explain\n  \
        strowger plan mg1 --rate 5k --profile fitted.json --wait 1ms\n\n\
        --rate counts packets that arrive at the server, not calls: a call through a proxy has six (INVITE, 180, 200, ACK, BYE, 200). \
        Each number may be a sweep, FROM..TO/STEP, or a list, 2,4,8 ('4;800' where a comma could be a thousands separator). The exit code is 1 if the \
        queue is unstable; for a sweep, if all queues are.")]
    Mg1(Box<mg1::Mg1Arguments>),
    /// Losses of c servers with a queue of capacity K (M/M/c/K)
    #[command(after_help = "Examples:\n  \
        strowger plan mmck --rate 14400 --service 140.37us --servers 2 --queue 200\n  \
        strowger plan mmck --rate 6000..16000/500 --service 65.16us --servers 2,4,8 --beta thesis --plot drops.html\n  \
        strowger plan mmck --rate 12k --profile fitted.json --servers 4 --beta profile --drops 0.1%\n\n\
        --rate counts packets; --queue is the capacity in packets, including those in service. With --beta the servers are \
        threads on one core, --service is the service time of one alone, and β(λ,c) is their slowdown by contention.")]
    Mmck(Box<mmck::FiniteArguments>),
    /// The same with service times of any variance (M/G/c/K, Smith's approximation)
    #[command(after_help = "Examples:\n  \
        strowger plan mgck --rate 14400 --service 140.37us --scv 0.04 --servers 2 --queue 200\n  \
        strowger plan mgck --rate 14400 --service 140us --scv 0..2/0.25 --servers 2 --queue 50,200,1000 --plot scv.html")]
    Mgck(Box<mmck::FiniteArguments>),
    /// Capacity with more cores (C = T·C₁)
    #[command(after_help = "Examples:\n  \
        strowger plan cores --processors 2 --cores 6 --base 1000\n  \
        strowger plan cores --cores 2..16/2 --base 1000 --plot cores.svg")]
    Cores(cores::CoresArguments),
    /// Throughput under overload ((1 − x·r)/(1 − r))
    #[command(after_help = "Examples:\n  \
        strowger plan overload --refuse 0.9us --serve 28us --load 2,5,10\n  \
        strowger plan overload --refuse 0.9us --serve 28us --load 1..10/0.5 --transmissions 7 --plot overload.svg")]
    Overload(overload::OverloadArguments),
    /// Capacity of two stages, and when the first one is needed (SnPm)
    #[command(after_help = "Examples:\n  \
        strowger plan two-stage --first 2 --first-capacity 1050 --second 2 --second-capacity 900 --shares 0.6,0.4 --explain\n  \
        strowger plan two-stage --first 1..4/1 --first-capacity 1050 --second 1..5/1 --second-capacity 900 --json\n  \
        strowger plan two-stage --first 3 --first-capacity 1050 --second 3 --second-capacity 900 --load 100..4000/100 --plot t.html\n  \
        strowger plan two-stage --requests 8333 --registers 2777 --first-capacity 10500 --second-capacity 2500 --register-capacity 9000")]
    TwoStage(Box<two_stage::TwoStageArguments>),
    /// Compares replicated and partitioned databases
    #[command(after_help = "Examples:\n  \
        strowger plan databases --databases 3 --writes 2777 --reads-per-write 2 --write-time 120us\n  \
        strowger plan databases --databases 1..8/1 --writes 5000 --write-time 300us --plot databases.svg")]
    Databases(databases::DatabasesArguments),
    /// Availability of a service
    #[command(after_help = "Examples:\n  \
        strowger plan availability --first 3 --clusters 3 --members 3 --node 0.99\n  \
        strowger plan availability --members 2 --node 99%\n  \
        strowger plan availability --proxies 3 --databases 2 --node 99% --database-node 99.9%\n  \
        strowger plan availability --first 2..4/1 --clusters 5 --members 2,3 --node 99.9% --goal 99.999%\n\n\
        The exit code is 1 if --goal is not reached; for a sweep, if no row reaches it.")]
    Availability(Box<availability::AvailabilityArguments>),
    /// Effects of a failure on callers
    #[command(after_help = "Examples:\n  \
        strowger plan failover\n  \
        strowger plan failover --availability 99.9% --retry 500ms --ttl 60s --repair 30min --refresh 10min --explain\n  \
        strowger plan failover --refresh 1min..60min/1min --plot failover.svg")]
    Failover(Box<failover::FailoverArguments>),
    /// Derives a profile from measurements: E[X], E[X²], α(λ), β(λ,c), base capacity, costs of calls
    #[command(after_help = format!("Examples:\n  \
        strowger plan fit run-1000.json run-2000.json run-4000.json run-8000.json --output fitted.json\n  \
        strowger plan fit table.csv --plot fit.html --json\n  \
        strowger plan fit calls.json register.json --stateless stateless.json --from measured --output fitted.json\n\n\
        Runs are files written by strowger load run --json FILE, with the server on the same machine (or load run --pid): its CPU time \
        per packet is the service time, unless the report has the server's own timing. Runs at 30 to 90 % load are the most useful; several at \
        each rate give the confidence intervals.\n\n\
        A table is comma-separated; its first line names the columns, in any order: {}. Times have a unit (131.5us), or their column's name \
        does (service_us). Consecutive rows with the same rate and different messages are one measurement. Unknown values \
        stay empty.\n\n\
        α and the growth of T_sip are separated only if base and rest are given; with sockq instead of service, α follows from the M/G/1 \
        formula. β needs measurements of several threads: their service times, or drops between 0.001 % and 50 %. Intervals \
        are at 95 %, by Student's t or by a bootstrap with --seed.", strowger_plan::fit::COLUMNS))]
    Fit(Box<fit::FitArguments>),
    /// Compares the models' predictions with measurements
    #[command(after_help = "Examples:\n  \
        strowger plan validate other-runs.csv --profile fitted.json\n  \
        strowger plan validate run-*.json --profile fitted.json --plot validate.html --json\n  \
        strowger plan validate table.csv --profile fitted.json --strict\n\n\
        Files are as for plan fit. Use measurements other than those that the profile was fitted to. With --strict the exit code is 1 if \
        a prediction misses its tolerance: waits of one thread between 30 and 80 % load within 15 % or 5us, and the rate at which 1 % is \
        dropped within 10 %.")]
    Validate(Box<validate::ValidateArguments>),
}

pub(crate) fn run(arguments: &PlanArguments) -> Result<(), Failure> {
    match &arguments.command {
        PlanCommand::Size(size) => size.run(),
        PlanCommand::Mg1(mg1) => mg1.run(),
        PlanCommand::Mmck(mmck) => mmck.run_mmck(),
        PlanCommand::Mgck(mgck) => mgck.run_mgck(),
        PlanCommand::Cores(cores) => cores.run(),
        PlanCommand::Overload(overload) => overload.run(),
        PlanCommand::TwoStage(stages) => stages.run(),
        PlanCommand::Databases(databases) => databases.run(),
        PlanCommand::Availability(availability) => availability.run(),
        PlanCommand::Failover(failover) => failover.run(),
        PlanCommand::Fit(fit) => fit.run(),
        PlanCommand::Validate(validate) => validate.run(),
    }
}
