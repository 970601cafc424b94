//! Packet files: pcap and pcapng, in both byte orders and with any time unit.

use std::io::Read;

use pcap_parser::{Block, PcapBlockOwned, PcapError, create_reader};

use super::CaptureError;
use super::skipped::{Reason, SkipCounts};

/// Maximum size of a block of a file, in bytes. Frames have up to 64 KiB, or 256 KiB with segmentation offload.
const MAX_BLOCK: usize = 4 * 1024 * 1024;

/// A captured frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame<'a> {
    /// Capture time, in ns since 1970.
    pub at: u64,
    /// The link type (`LINKTYPE_…`).
    pub link: i32,
    pub bytes: &'a [u8],
}

/// An interface of a pcapng file.
#[derive(Clone, Copy, Debug)]
struct Interface {
    link: i32,
    /// Time units per second.
    resolution: u64,
    /// Offset of its times, in seconds.
    offset: i64,
}

/// State from the preceding blocks of the section.
#[derive(Debug, Default)]
struct Section {
    interfaces: Vec<Interface>,
}

/// Passes the frames of a file to `each`, in order. A truncated file is read up to its last complete block.
pub(super) fn read_frames(
    name: &str,
    file: impl Read + Send,
    skipped: &mut SkipCounts,
    mut each: impl FnMut(Frame<'_>, &mut SkipCounts),
) -> Result<(), CaptureError> {
    let wrong = |what: &str| CaptureError(format!("{name}: {what}"));
    let mut reader = create_reader(MAX_BLOCK, file)
        .map_err(|_| wrong("is neither pcap nor pcapng nor the output of strowger ctl trace --json --messages"))?;
    let mut section = Section::default();
    loop {
        let next = match reader.next() {
            Ok((length, block)) => {
                section.block(&block, skipped, &mut each);
                BlockOutcome::Consume(length)
            }
            Err(PcapError::Eof) => return Ok(()),
            Err(PcapError::UnexpectedEof) => BlockOutcome::Stop(Reason::Truncated),
            Err(PcapError::Incomplete(_)) => BlockOutcome::Refill,
            // Each block gives the position of the next, so nothing can be found after a broken one.
            Err(_) => BlockOutcome::Stop(Reason::Malformed),
        };
        match next {
            BlockOutcome::Consume(0) => return Ok(()),
            BlockOutcome::Consume(length) => reader.consume(length),
            BlockOutcome::Refill => {
                let before = reader.data().len();
                if reader.refill().is_err() {
                    return Err(wrong("cannot be read completely"));
                }
                if reader.data().len() == before && !reader.reader_exhausted() {
                    skipped.add(Reason::Malformed);
                    return Ok(());
                }
            }
            BlockOutcome::Stop(reason) => {
                skipped.add(reason);
                return Ok(());
            }
        }
    }
}

/// Action after a block.
enum BlockOutcome {
    Consume(usize),
    Refill,
    Stop(Reason),
}

impl Section {
    fn block(
        &mut self,
        block: &PcapBlockOwned<'_>,
        skipped: &mut SkipCounts,
        each: &mut impl FnMut(Frame<'_>, &mut SkipCounts),
    ) {
        match block {
            PcapBlockOwned::LegacyHeader(header) => {
                let resolution = if header.is_nanosecond_precision() { 1_000_000_000 } else { 1_000_000 };
                self.interfaces = vec![Interface { link: header.network.0, resolution, offset: 0 }];
            }
            PcapBlockOwned::Legacy(packet) => {
                let Some(interface) = self.interfaces.first() else { return };
                let fraction = u64::from(packet.ts_usec).saturating_mul(1_000_000_000 / interface.resolution);
                let at = u64::from(packet.ts_sec).saturating_mul(1_000_000_000).saturating_add(fraction);
                if packet.caplen < packet.origlen {
                    return skipped.add(Reason::Truncated);
                }
                each(Frame { at, link: interface.link, bytes: packet.data }, skipped);
            }
            PcapBlockOwned::NG(Block::SectionHeader(_)) => self.interfaces.clear(),
            PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
                let resolution = units(interface.if_tsresol);
                let offset = interface.if_tsoffset;
                self.interfaces.push(Interface { link: interface.linktype.0, resolution, offset });
            }
            PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                let number = usize::try_from(packet.if_id).unwrap_or(usize::MAX);
                let Some(interface) = self.interfaces.get(number) else { return skipped.add(Reason::Malformed) };
                if packet.caplen < packet.origlen {
                    return skipped.add(Reason::Truncated);
                }
                let length = usize::try_from(packet.caplen).unwrap_or(usize::MAX);
                let bytes = packet.data.get(..length).unwrap_or(packet.data);
                let at = interface.time(u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low));
                each(Frame { at, link: interface.link, bytes }, skipped);
            }
            // A simple packet block has no time.
            PcapBlockOwned::NG(Block::SimplePacket(_)) => skipped.add(Reason::Malformed),
            PcapBlockOwned::NG(_) => {}
        }
    }
}

impl Interface {
    fn time(&self, units: u64) -> u64 {
        let nanos = u128::from(units) * 1_000_000_000 / u128::from(self.resolution);
        let offset = i128::from(self.offset) * 1_000_000_000;
        let nanos = i128::try_from(nanos).unwrap_or(i128::MAX).saturating_add(offset).max(0);
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }
}

/// Returns the time units per second from `if_tsresol`: a power of ten, or of two if the highest bit is set.
fn units(resolution: u8) -> u64 {
    let exponent = u32::from(resolution & 0x7F);
    let units = if resolution & 0x80 == 0 { 10_u64.checked_pow(exponent) } else { 2_u64.checked_pow(exponent) };
    units.unwrap_or(1_000_000)
}
