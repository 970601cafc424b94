//! Members and their engines are killed and isolated while clients register, refresh and unregister, in each
//! arrangement of engines. Each member must have what was acknowledged, and nothing that was removed.
//!
//! This is a short run. `cargo run -p strowger-interop --bin checker` does a full one, whose size is set by
//! `STROWGER_CHECKER_MEMBER_KILLS` and similar variables.

use strowger_interop::Arrangement;
use strowger_interop::checker::{Size, check};

fn loses_nothing(arrangement: Arrangement) {
    if !arrangement.available() {
        return;
    }
    let size = Size::SMALL.or_as_the_environment_says();
    let outcome = check(arrangement, &size);
    assert!(outcome.told.is_empty(), "{outcome}\n{}", outcome.told.join("\n"));
    assert!(outcome.acknowledged >= size.acknowledged, "{outcome}");
}

#[test]
fn redis() {
    loses_nothing(Arrangement::Redis);
}

#[test]
fn redis_with_sentinels() {
    loses_nothing(Arrangement::RedisSentinel);
}

#[test]
fn redis_cluster() {
    loses_nothing(Arrangement::RedisCluster);
}

#[test]
fn postgres() {
    loses_nothing(Arrangement::Postgres);
}

#[test]
fn postgres_with_standby() {
    loses_nothing(Arrangement::PostgresStandby);
}

#[test]
fn postgres_with_synchronous_standby() {
    loses_nothing(Arrangement::PostgresSynchronous);
}

#[test]
fn mariadb() {
    loses_nothing(Arrangement::MariaDb);
}

#[test]
fn mariadb_two_way() {
    loses_nothing(Arrangement::MariaDbTwoWay);
}

#[test]
fn mariadb_in_a_circle() {
    loses_nothing(Arrangement::MariaDbCircle);
}

#[test]
fn mariadb_with_galera() {
    loses_nothing(Arrangement::MariaDbGalera);
}
