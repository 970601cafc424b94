//! Times of packets over loopback, and of messages with known times.

use std::io::{Read as _, Write as _};

use strowger_foundation::{Flow, ListenerId, ShardId, Timestamp, Transport};
use strowger_timing::{Distribution, MessageReport, Part};

use super::single::SingleWorker;
use super::{ask, options, phone, receive, spin_until};
use crate::handover::HandoverCommand;
use crate::{FleetTimes, WorkerOptions};

/// Returns the row of a message type, empty if there is none.
fn row(messages: &[MessageReport], name: &str) -> MessageReport {
    messages.iter().find(|row| row.message == name).cloned().unwrap_or_default()
}

fn part(row: &MessageReport, part: Part) -> Distribution {
    row.parts.get(part.key()).cloned().unwrap_or_default()
}

#[test]
fn each_datagram_is_timed_and_each_answer_belongs_to_it() {
    let mut alone = SingleWorker::new(32);
    let phone = phone(alone.address);
    for number in 0..20 {
        phone.send(&options(&format!("0-{number}"))).expect("loopback takes it");
    }
    phone.send(b"\r\n\r\n").expect("loopback takes it");
    phone.send(b"no message").expect("loopback takes it");
    phone.send(&options("1-elsewhere")).expect("loopback takes it");
    spin_until(|| {
        alone.step();
        alone.times().counts.datagrams == 23
    });
    let times = alone.times();
    let (rows, all) = times.histograms.copy().report();
    let asked = row(&rows, "OPTIONS");
    assert_eq!((asked.packets, row(&rows, "keep-alive").packets, row(&rows, "other").packets), (20, 1, 1));
    let parts = [Part::Receive, Part::ReceiveBatch, Part::Common, Part::Specific, Part::Application];
    assert!(parts.iter().all(|each| part(&asked, *each).count == 20), "{asked:?}");
    assert_eq!((part(&asked, Part::SendBatch).count, part(&asked, Part::SendCall).count), (20, 20));
    assert_eq!(part(&all, Part::Receive).count, 22, "that of another worker is counted there");
    assert!(times.counts.depths.report().is_some_and(|depth| depth.mean >= 1.0));
}

#[test]
fn a_message_of_another_worker_has_that_ones_k_rcv() {
    let mut alone = SingleWorker::new(32);
    let phone = phone(alone.address);
    let flow = Flow::new(ListenerId(0), Transport::Udp, phone.local_addr().expect("bound"));
    let at = Timestamp::from_nanos;
    let arrival = (at(1_000), Some(at(1_200)));
    alone.from_second.send(HandoverCommand::Deliver, ShardId(2), arrival, flow, &options("2-a")).expect("room");
    alone.from_second.send(HandoverCommand::Deliver, ShardId(2), (at(900), None), flow, &options("2-b")).expect("room");
    spin_until(|| {
        alone.step();
        alone.times().histograms.copy().packets() == 2
    });
    let (rows, _) = alone.times().histograms.copy().report();
    let handed = row(&rows, "OPTIONS");
    let waited = part(&handed, Part::Receive);
    assert_eq!((waited.count, waited.mean_us), (1, 0.2), "only one is known");
    assert_eq!(part(&handed, Part::Application).count, 2);
    assert!(receive(&phone).starts_with("2-a shard 2"));
}

#[test]
fn without_timing_nothing_is_measured() {
    let mut alone = SingleWorker::with(32, &WorkerOptions { timing: false, ..WorkerOptions::default() });
    let phone = phone(alone.address);
    phone.send(&options("0-a")).expect("loopback takes it");
    alone.step();
    assert!(receive(&phone).starts_with("0-a shard 0"));
    assert!(alone.worker_times().is_none());
}

#[test]
fn a_fleet_reports_a_period_of_all_workers() {
    let running = super::tcp_streams::start(2, crate::StreamLimits::default());
    let read = || running.fleet.times().read().expect("it is on");
    let phone = running.phone();
    ask(&phone, "0-before");
    let begin: FleetTimes = read();
    for number in 0..6 {
        ask(&phone, &format!("{}-{number}", number % 2));
    }
    let mut line = running.line();
    line.write_all(&options("0-line")).expect("loopback takes it");
    assert!(line.read(&mut [0; 512]).is_ok_and(|length| length > 0), "an answer in time");
    let report = read().since(&begin).report();
    let asked = row(&report.messages, "OPTIONS");
    assert_eq!((asked.packets, part(&asked, Part::Application).count), (7, 7), "{report:?}");
    assert_eq!(part(&asked, Part::Receive).count, 6, "a connection has no K_rcv");
    assert!(report.seconds > 0.0 && report.packets_per_s > 0.0 && report.drops.is_empty());
    assert_eq!(report.packets_per_receive, 1.0);
}
