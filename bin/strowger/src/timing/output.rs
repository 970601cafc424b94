//! Files of a report.

use std::path::PathBuf;

use clap::Args;
use strowger_timing::TimingReport;

use super::chart::document;
use super::timeline::Timeline;
use crate::failure::Failure;
use crate::plot::{FileFormat, draw_as};

/// Options for pictures of a report.
#[derive(Debug, Args)]
pub(crate) struct PictureArguments {
    /// Writes a self-contained page with the tables and plots
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) html: Option<PathBuf>,
    /// Writes the plots as a picture
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) svg: Option<PathBuf>,
}

impl PictureArguments {
    /// Writes the requested files.
    pub(crate) fn write(&self, report: &TimingReport, timeline: &Timeline) -> Result<(), Failure> {
        let document = document(report, timeline);
        if let Some(file) = &self.html {
            draw_as(FileFormat::Html, file, &document)?;
        }
        if let Some(file) = &self.svg {
            draw_as(FileFormat::Svg, file, &document)?;
        }
        Ok(())
    }
}
