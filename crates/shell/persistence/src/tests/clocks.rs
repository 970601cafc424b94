//! Setting a clock does not expire bindings.

use super::*;

const DAY: i64 = 86_400_000;
const YEARS: i64 = 3650 * DAY;

/// Registers for an hour, kills the server, applies `set` to the clocks and restarts it.
fn restart(set: impl FnOnce(&mut Clocks)) -> (Site, Server) {
    let site = Site::new(Mode::WriteThrough);
    let server = site.start();
    assert!(server.register("a", 1, &contact(1)));
    let site = site.crash(server);
    set(&mut site.clocks.lock().expect("whole"));
    let server = site.start();
    (site, server)
}

fn shift(wall_ms: &mut u64, by: i64) {
    *wall_ms = wall_ms.saturating_add_signed(by);
}

#[test]
fn a_wall_clock_jump_within_one_boot_expires_nothing() {
    for jump in [0, DAY, -DAY, YEARS, -YEARS, i64::MIN] {
        let (_site, server) = restart(|clocks| {
            shift(&mut clocks.wall_ms, jump);
            clocks.boot_ms += 60_000;
        });
        assert_eq!(server.contents().len(), 1, "{jump}");
        server.pass(Duration::from_secs(3530));
        assert_eq!(server.contents().len(), 1, "{jump}: not before its time");
        server.pass(Duration::from_secs(20));
        assert_eq!(server.contents().len(), 0, "{jump}: and then it does");
    }
}

#[test]
fn a_wall_clock_set_back_over_a_boot_expires_nothing() {
    for jump in [0, 600_000, -DAY, -YEARS, i64::MIN] {
        let (_site, server) = restart(|clocks| {
            shift(&mut clocks.wall_ms, jump);
            (clocks.boot, clocks.boot_ms) = (2, 10_000);
        });
        assert_eq!(server.contents().len(), 1, "{jump}");
    }
}

#[test]
fn bindings_expired_while_powered_off_are_not_loaded() {
    let (_site, server) = restart(|clocks| {
        clocks.wall_ms += 3_700_000;
        (clocks.boot, clocks.boot_ms) = (2, 10_000);
    });
    assert_eq!(server.contents().len(), 0);
    // The report follows the table.
    server.until(|| server.engine.status().load_report.expired == 1);
}

#[test]
fn time_resumes_from_the_database_if_the_journal_is_empty() {
    for (off, left) in [(3_500_000, 1), (3_700_000, 0)] {
        let site = Site::new(Mode::WriteThrough);
        let server = site.start();
        assert!(server.register("a", 1, &contact(1)));
        assert!(server.engine.stop(PATIENCE).clean);
        drop(server);
        site.clocks.lock().expect("whole").boot_ms += off;
        // Twice: a start alone must not set the time back.
        drop(site.start());
        assert_eq!(site.start().contents().len(), left, "{off} ms");
    }
}

#[test]
fn a_journaled_refresh_keeps_an_expired_row() {
    let site = Site::new(Mode::WriteThrough);
    let server = site.start();
    assert!(server.register("a", 1, &contact(1)));
    assert!(server.engine.stop(PATIENCE).clean);
    drop(server);
    let server = site.start();
    server.pass(Duration::from_secs(3500));
    assert!(server.register("a", 2, &contact(1)));
    let site = site.crash(server);
    site.clocks.lock().expect("whole").boot_ms += 600_000;
    let server = site.start();
    assert_eq!(server.contents().len(), 1);
    assert_eq!(server.engine.status().load_report.expired, 0);
}

#[test]
fn a_refresh_in_the_database_counts() {
    let site = Site::new(Mode::WriteThrough);
    let server = site.start();
    assert!(server.register("a", 1, &contact(1)));
    assert!(server.engine.stop(PATIENCE).clean);
    drop(server);
    let server = site.start();
    server.pass(Duration::from_secs(3500));
    assert!(server.register("a", 2, &contact(1)));
    assert!(server.engine.stop(PATIENCE).clean);
    drop(server);
    site.clocks.lock().expect("whole").boot_ms += 3_000_000;
    assert_eq!(site.start().contents().len(), 1);
    site.clocks.lock().expect("whole").boot_ms += 700_000;
    assert_eq!(site.start().contents().len(), 0);
}
