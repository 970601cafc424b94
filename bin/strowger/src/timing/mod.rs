//! Display of packet times: tables, a live view, and pictures.

mod chart;
mod finding;
mod live;
mod output;
pub(crate) mod server;
mod text;
mod timeline;

pub(crate) use live::LiveView;
pub(crate) use output::PictureArguments;
pub(crate) use text::text;
pub(crate) use timeline::{TimePoint, Timeline};
