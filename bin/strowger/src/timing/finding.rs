//! What a report says about the cause of slowness, with the remedy.

use strowger_timing::{Distribution, Part, TimingReport};

/// Share of the processors that a program can use from which it is taken as busy all the time.
const BUSY: f64 = 0.9;
/// The same share below which a long wait for it is not for want of processors.
const IDLE: f64 = 0.5;
/// Times below this are not worth a remark, µs.
const NOTICED_US: f64 = 500.0;

/// A wake-up that takes longer means that others have the processor, µs.
const LATE_WAKE_UP_US: f64 = 200.0;

/// Returns conclusions, the most important first; none if nothing is conspicuous.
pub(super) fn findings(report: &TimingReport) -> Vec<String> {
    let mean = |part: Part| report.all.parts.get(part.key()).map(|times: &Distribution| times.mean_us);
    let mut found = Vec::new();
    let drops: u64 = report.drops.values().sum();
    if drops > 0 {
        found.push(
            "packets are dropped: see the causes above. A full socket buffer with a mean queue near zero means \
             bursts (raise SO_RCVBUF or net.core.rmem_max); with a long queue it means too little capacity"
                .to_owned(),
        );
    }
    let queue = mean(Part::SocketQueue).unwrap_or(0.0);
    let application = mean(Part::Application).unwrap_or(0.0);
    let cpu = report.cpu.unwrap_or(0.0);
    let load = report.load.unwrap_or(cpu);
    if queue > NOTICED_US && queue > application && load >= BUSY {
        found.push(format!(
            "packets wait {queue:.0} µs in the socket's queue while the program uses {cpu:.1} processors, {:.0} % of \
             what its receiving threads can use: it is at its capacity. Give it more processes, threads or cores, or less work",
            load * 100.0
        ));
    } else if let Some(late) = mean(Part::WakeUp).filter(|late| *late > LATE_WAKE_UP_US && load < BUSY) {
        found.push(format!(
            "the program waits {late:.0} µs for a processor when a packet wakes it: others have the processor. Give it a \
             core of its own or a better priority (strowger tune shows how)"
        ));
    } else if queue > NOTICED_US && queue > application && report.cpu.is_some() && load < IDLE {
        found.push(format!(
            "packets wait {queue:.0} µs in the socket's queue, although the program uses only {cpu:.2} processors: it is \
             blocked elsewhere while it should receive (DNS, a database, a lock), or it is not scheduled (see the threads)"
        ));
    }
    let busy_us = if report.packets_per_s > 0.0 { cpu * 1e6 / report.packets_per_s } else { 0.0 };
    if application > NOTICED_US && report.cpu.is_some() && busy_us < 0.5 * application {
        found.push(format!(
            "a packet takes {application:.0} µs in the program, but only {busy_us:.0} µs of processor time: the program \
             waits, for example for DNS, a database, a lock or the disk"
        ));
    }
    let batches = [Part::ReceiveBatch, Part::SendBatch].into_iter().filter_map(mean).sum::<f64>();
    if batches > NOTICED_US && batches > queue && batches > application {
        found.push(format!("packets wait {batches:.0} µs for others of their batch: the program handles many at once"));
    }
    found
}

#[cfg(test)]
mod tests {
    use strowger_timing::MessageReport;

    use super::*;

    fn report(parts: &[(Part, f64)], cpu: f64) -> TimingReport {
        let parts = parts.iter().map(|(part, mean_us)| {
            (part.key().to_owned(), Distribution { count: 10, mean_us: *mean_us, ..Distribution::default() })
        });
        let all = MessageReport { parts: parts.collect(), ..MessageReport::default() };
        TimingReport { all, cpu: Some(cpu), packets_per_s: 100.0, ..TimingReport::default() }
    }

    #[test]
    fn each_cause_is_told_apart() {
        let said = |parts: &[(Part, f64)], cpu: f64| findings(&report(parts, cpu)).join("\n");
        assert!(said(&[(Part::SocketQueue, 9_000.0), (Part::Application, 200.0)], 0.99).contains("at its capacity"));
        assert!(said(&[(Part::SocketQueue, 9_000.0), (Part::Application, 200.0)], 0.1).contains("blocked elsewhere"));
        assert!(said(&[(Part::SocketQueue, 900.0), (Part::WakeUp, 850.0)], 0.1).contains("others have the processor"));
        assert!(said(&[(Part::SocketQueue, 9.0), (Part::Application, 20_000.0)], 0.02).contains("the program waits"));
        assert!(said(&[(Part::ReceiveBatch, 2_000.0), (Part::Application, 20.0)], 0.4).contains("their batch"));
        assert_eq!(said(&[(Part::SocketQueue, 9.0), (Part::Application, 100.0)], 0.4), "");
        let waiting = [(Part::SocketQueue, 9_000.0), (Part::Application, 200.0)];
        let said_at = |cpu, load| findings(&TimingReport { load: Some(load), ..report(&waiting, cpu) }).join("\n");
        assert!(!said_at(1.2, 0.15).contains("at its capacity"), "eight threads could use more");
        assert!(
            said_at(7.6, 0.95).contains("7.6 processors, 95 % of what its receiving threads can use: it is at its")
        );
        let dropped = TimingReport { drops: [("RcvbufErrors".to_owned(), 5)].into(), ..report(&[], 0.5) };
        assert!(findings(&dropped)[0].contains("SO_RCVBUF"));
    }
}
