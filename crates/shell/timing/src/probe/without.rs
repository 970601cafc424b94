//! The probe of a program that was built without it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use super::{ProbeError, ProbeOptions};
use crate::record::PacketRecord;
use crate::target::Target;

/// A value of this type does not exist.
#[derive(Debug)]
pub(super) struct Attached(Infallible);

impl Attached {
    pub(super) fn start(_: Target, _: &ProbeOptions) -> Result<Self, ProbeError> {
        Err(ProbeError::NotBuiltIn)
    }

    pub(super) fn poll(&mut self, _: Duration, _: &mut Vec<PacketRecord>) {
        match self.0 {}
    }

    pub(super) fn stop(self, _: &mut Vec<PacketRecord>) {
        match self.0 {}
    }

    pub(super) fn drops(&self) -> BTreeMap<String, u64> {
        match self.0 {}
    }

    pub(super) fn lost_events(&self) -> u64 {
        match self.0 {}
    }

    pub(super) fn unpaired(&self) -> u64 {
        match self.0 {}
    }

    pub(super) fn processes(&self) -> Vec<u32> {
        match self.0 {}
    }

    pub(super) fn ports(&self) -> Vec<u16> {
        match self.0 {}
    }

    pub(super) fn cost(&self) -> Option<f64> {
        match self.0 {}
    }

    pub(super) fn notes(&self) -> Vec<String> {
        match self.0 {}
    }
}
