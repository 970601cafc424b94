//! Plots: data, and files of them.

mod chart;
mod document;
mod draw;
mod page;
mod unit;

pub(crate) use chart::{Chart, Line};
pub(crate) use document::{Document, Table};
pub(crate) use draw::{FileFormat, draw, draw_as};
pub(crate) use unit::DisplayUnit;
