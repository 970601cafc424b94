//! Fits to packet logs of simulated queues, whose truth is known.

use std::fmt::Write as _;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};
use rand_distr::{Distribution as _, Exp, Gamma};
use strowger_plan::fit::{Observation, Options, fit, from_packet_log, from_packet_log_in_parts, is_packet_log};
use strowger_plan::validate::validate;
use strowger_plan::{Profile, ServiceTime, mg1};

/// Message types with their mean service times, µs.
const TYPES: [(&str, f64); 3] = [("INVITE", 180.0), ("200 INVITE", 90.0), ("BYE", 60.0)];
/// Mean of all, s.
const MEAN_S: f64 = 110e-6;
/// Variation of each type.
const SCV: f64 = 0.25;
/// Time that the sleeping server needs to wake up, ns.
const SETUP_NS: f64 = 12_000.0;
const STACK_NS: u64 = 2_000;

/// A log of an M/G/1 queue with setup time.
fn log(load: f64, packets: usize, seed: u64) -> String {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let rate_per_ns = load / (MEAN_S * 1e9);
    let gaps = Exp::new(rate_per_ns).expect("sound");
    let mut text = "# strowger packet log 1\n# program: simulated\n\
        arrived_ns,received_ns,ready_ns,thread,port,transport,length_bytes,message,batch,sent,queue,k_stack_ns,k_sockq_ns,\
        wake_up_ns,k_copy_ns,k_rcv_ns,receive_batch_ns,t_sip_common_ns,t_sip_specific_ns,t_sip_ns,send_batch_ns,k_snd_ns,\
        send_call_ns\n"
        .to_owned();
    let (mut at, mut free) = (1e9_f64, 0.0_f64);
    for _ in 0..packets {
        at += gaps.sample(&mut random);
        let (message, mean_us) = TYPES[random.random_range(0..TYPES.len())];
        let service = Gamma::new(1.0 / SCV, mean_us * 1e3 * SCV).expect("sound").sample(&mut random);
        let sleeps = at >= free;
        let taken = if sleeps { at + SETUP_NS } else { free };
        free = taken + service;
        let (queued, taken, ready) = (at.round() as u64, taken.round() as u64, free.round() as u64);
        let (copy, sip, send) = (1_000, (ready - taken) * 6 / 10, (ready - taken) * 2 / 10);
        let wake_up = if sleeps { "5000" } else { "" };
        let sockq = taken - queued;
        writeln!(
            text,
            "{},{},{ready},7,5060,udp,400,{message},1,1,0,{STACK_NS},{sockq},{wake_up},{copy},,,,,{sip},,,{send}",
            queued - STACK_NS,
            taken + copy
        )
        .expect("a String");
    }
    writeln!(text, "# seconds: {:.6}\n# cpu: {load}\n# lost events: 0\n# drops: 0", (at - 1e9) / 1e9)
        .expect("a String");
    text
}

fn read(load: f64, seed: u64) -> Observation {
    let text = log(load, 60_000, seed);
    assert!(is_packet_log(&text));
    from_packet_log("log.csv", &text).expect("sound")
}

fn near(found: f64, wanted: f64, within: f64) -> bool {
    (found / wanted - 1.0).abs() < within
}

#[test]
fn a_log_gives_the_service_time_and_the_wait() {
    // Var[X]/E[X]² over the types, and within each.
    let second = TYPES.iter().map(|(_, mean)| mean * mean * (1.0 + SCV)).sum::<f64>() / 3.0 * 1e-12;
    let truth = ServiceTime::from_moments(MEAN_S, second).expect("sound");
    for (load, seed) in [(0.1, 1), (0.3, 2), (0.5, 3), (0.7, 4)] {
        let found = read(load, seed);
        assert!(near(found.rate_per_s, load / MEAN_S, 0.02), "{found:?}");
        assert!(found.service_s.is_some_and(|mean| near(mean, MEAN_S, 0.02)), "{found:?}");
        assert!(found.scv.is_some_and(|scv| near(scv, truth.scv(), 0.05)), "{} {found:?}", truth.scv());
        let wait = mg1(found.rate_per_s, truth).expect("stable").wait_s;
        assert!(found.wait_s.is_some_and(|own| (own - wait).abs() < (0.06 * wait).max(1e-6)), "{wait} {found:?}");
        for (message, mean_us) in TYPES {
            let own = found.messages.iter().find(|own| own.message == message).and_then(|own| own.service_s);
            assert!(own.is_some_and(|own| near(own, mean_us * 1e-6, 0.03)), "{message} {found:?}");
        }
        assert_eq!((found.servers, found.drops), (1, Some(0.0)));
    }
    let idle = read(0.1, 1);
    let setup = idle.sockq_s.zip(idle.wait_s).map(|(sockq, wait)| sockq - wait);
    assert!(setup.is_some_and(|setup| near(setup, SETUP_NS * 1e-9, 0.01)), "{idle:?}");
}

#[test]
fn a_thread_that_was_not_seen_ready_again_does_not_lengthen_the_next_service_time() {
    // The first packet's thread slept for longer than the probe waits.
    let whole = log(0.5, 400, 1);
    let first = whole.lines().nth(3).expect("a packet");
    let mut cells: Vec<&str> = first.split(',').collect();
    cells[2] = "";
    let text = whole.replacen(first, &cells.join(","), 1);
    let text = text.replacen(cells[0], &cells[0][1..], 1).replacen(cells[1], &cells[1][1..], 1);
    let mean = |text: &str| from_packet_log("log.csv", text).expect("sound").service_s.expect("a mean");
    assert!(near(mean(&text), mean(&whole), 0.02), "{} {}", mean(&text), mean(&whole));
}

/// Packets of one receive call, of which the last has the time at which the thread was ready again.
#[test]
fn packets_of_one_call_share_its_time() {
    let head = log(0.5, 0, 1);
    let mut text = head.lines().take(3).fold(String::new(), |text, line| text + line + "\n");
    for call in 1..=100_u64 {
        let begin = call * 1_000_000;
        for index in 0..4 {
            let ready = if index == 3 { (begin + 200_000).to_string() } else { String::new() };
            writeln!(text, "{begin},{},{ready},7,5060,udp,400,BYE,4,1,0,0,0,,1000,,,,,40000,,,5000", begin + index)
                .expect("a String");
        }
    }
    text.push_str("# seconds: 0.1\n");
    let found = from_packet_log("log.csv", &text).expect("sound");
    assert!(found.service_s.is_some_and(|mean| near(mean, 50e-6, 1e-6)), "{found:?}");
}

#[test]
fn the_fit_predicts_waits_of_logs_that_it_has_not_seen() {
    let seen = [(0.1, 1), (0.35, 2), (0.6, 3), (0.85, 4)].map(|(load, seed)| {
        let parts = from_packet_log_in_parts("log.csv", &log(load, 60_000, seed)).expect("sound");
        assert!(parts.len() == 3 && parts.iter().all(|part| part.rate_per_s == parts[0].rate_per_s), "{parts:?}");
        parts
    });
    let seen = seen.concat();
    let from = Profile::measured();
    let fitted = fit(&seen, &Options { seed: 1, from, name: "simulated".to_owned() }).expect("fitted");
    assert_eq!(fitted.service.len(), 4, "a point for each rate");
    assert!(fitted.service.iter().all(|at| near(at.mean_s.value, MEAN_S, 0.02)), "{:?}", fitted.service);
    let unseen: Vec<Observation> = [(0.3, 11), (0.5, 12), (0.75, 13)].map(|(load, seed)| read(load, seed)).into();
    let found = validate(&unseen, &fitted.profile).expect("validated");
    assert_eq!((found.waits, found.holds), ((3, 3), Some(true)), "{found:?}");
}

#[test]
fn an_unusable_log_is_refused_with_a_remedy() {
    let whole = log(0.5, 200, 1);
    let error = |text: &str| from_packet_log("log.csv", text).expect_err("an error").0;
    let cut = whole.split("# seconds").next().expect("a part");
    assert!(error(cut).starts_with("log.csv: the log is cut"), "{}", error(cut));
    assert!(error(&log(0.5, 20, 1)).contains("has only 20 packets"));
    assert!(error(&whole.replace("lost events: 0", "lost events: 50")).contains("the probe lost 50 events"));
    assert!(error(&whole.replace("packet log 1", "packet log 2")).contains("has format 2"));
    assert!(error(&whole.replacen(",udp,", ",udp,,", 1)).contains("the file is damaged"));
}

#[test]
fn only_what_the_queue_lost_is_load() {
    let text = log(0.5, 400, 1)
        .replace("# drops: 0", "# drops: 310\n# drops by SOCKET_RCVBUFF: 100\n# drops by NETFILTER_DROP: 210");
    let found = from_packet_log("log.csv", &text).expect("sound");
    assert_eq!(found.drops, Some(0.2));
}

#[test]
fn times_that_cannot_be_added_name_their_line() {
    let whole = log(0.5, 400, 1);
    let packet = whole.lines().nth(4).expect("a packet");
    let arrived = packet.split(',').next().expect("a cell");
    let text = whole.replacen(packet, &packet.replacen(arrived, &u64::MAX.to_string(), 1), 1);
    let error = from_packet_log("log.csv", &text).expect_err("too large").0;
    assert!(error.starts_with("log.csv: line 5: its times are too large"), "{error}");
}
