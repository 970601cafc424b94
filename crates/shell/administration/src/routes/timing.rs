//! Times of packets.

use std::time::Duration;

use serde::Deserialize;
use strowger_control::protocol::TimingRequest;
use strowger_timing::TimingReport;
use tokio::time::sleep;
use utoipa::IntoParams;

use super::bad_query;
use crate::backend::{Backend, Refusal};
use crate::body::{Json, Parameters};
use crate::context::Context;
use crate::problem::Problem;

/// Lengths of a measurement, in ms.
const DURATIONS_MS: std::ops::RangeInclusive<u64> = 100..=60_000;

/// Period of the measurement.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Period {
    /// Length of a measurement that begins now, in ms. Without it, the answer is about the time since the start.
    #[param(minimum = 100, maximum = 60_000)]
    duration_ms: Option<u64>,
}

/// Times of packets
///
/// Where the time of packets goes; the same as `strowger ctl timing --json`.
#[utoipa::path(
    get,
    path = "/api/v1/timing",
    operation_id = "timing",
    tag = "server",
    params(Period),
    responses(
        (status = 200, description = "The times", body = TimingReport),
        (status = 409, description = "The server does not measure packets", body = Problem),
    ),
    security(("token" = ["viewer"])),
)]
pub(super) async fn timing(
    context: Context,
    Parameters(Period { duration_ms }): Parameters<Period>,
) -> Result<Json<TimingReport>, Problem> {
    if duration_ms.is_some_and(|duration| !DURATIONS_MS.contains(&duration)) {
        let (least, most) = (DURATIONS_MS.start(), DURATIONS_MS.end());
        return Err(bad_query(format!("duration_ms must be from {least} to {most}")));
    }
    let request = TimingRequest { for_ms: duration_ms, every_ms: None, since_start: duration_ms.is_none() };
    let start = move |backend: &dyn Backend| backend.handler().timing(&request).map_err(Refusal::Conflict);
    let mut source = context.run(None, start).await?;
    if let Some(duration) = duration_ms {
        sleep(Duration::from_millis(duration)).await;
    }
    context.run(None, move |_| source.report().map_err(Refusal::Conflict)).await.map(Json)
}
