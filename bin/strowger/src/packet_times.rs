//! Measurements of the workers' packets for clients of the control socket.

use strowger_control::protocol::TimingRequest;
use strowger_control::socket::TimingSource;
use strowger_timing::TimingReport;
use strowger_worker::{FleetTimes, FleetTimesReader};

/// Starts a measurement.
///
/// # Errors
/// Timing is off.
pub(crate) fn measure(reader: &FleetTimesReader, request: &TimingRequest) -> Result<Box<dyn TimingSource>, String> {
    let begin = read(reader)?;
    let begin = (!request.since_start).then_some(begin);
    Ok(Box::new(Measurement { reader: reader.clone(), begin }))
}

struct Measurement {
    reader: FleetTimesReader,
    /// The times at its beginning; `None` if that is the start of the server.
    begin: Option<FleetTimes>,
}

impl TimingSource for Measurement {
    fn report(&mut self) -> Result<TimingReport, String> {
        let now = read(&self.reader)?;
        Ok(self.begin.as_ref().map_or_else(|| now.report(), |begin| now.since(begin).report()))
    }
}

fn read(reader: &FleetTimesReader) -> Result<FleetTimes, String> {
    let off = "the server does not measure packets: server.timing is false; set it to true and restart the server";
    reader.read().ok_or_else(|| off.to_owned())
}
