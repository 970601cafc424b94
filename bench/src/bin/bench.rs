//! `bench parse`: the cost of parsing a typical INVITE.

use std::hint::black_box;
use std::time::Instant;

use clap::{Parser, Subcommand};
use strowger_allocations::{CountingAllocator, allocations_of};
use strowger_bench::messages::INVITE;
use strowger_message::{Message, Peek, Rewrite};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[derive(Debug, Parser)]
#[command(about = "Measures one part of the server; a report, not a test")]
struct Arguments {
    #[command(subcommand)]
    what: Benchmark,
}

#[derive(Debug, Subcommand)]
enum Benchmark {
    /// Parses a typical INVITE with Peek and Message, and forwards it with an added Via.
    Parse {
        /// Number of batches; the median counts.
        #[arg(long, default_value_t = 1_001)]
        batches: usize,
        /// Messages in a batch.
        #[arg(long, default_value_t = 1_000)]
        batch: u32,
    },
}

fn main() {
    let Benchmark::Parse { batches, batch } = Arguments::parse().what;
    println!("a usual INVITE, {} bytes", INVITE.len());
    report("peek", batches, batch, || drop(black_box(Peek::read(black_box(INVITE)))));
    report("peek and message", batches, batch, || read(black_box(INVITE), |message| _ = black_box(message)));
    let mut out = Vec::with_capacity(2 * INVITE.len());
    report("the same, and a Via more", batches, batch, || {
        read(black_box(INVITE), |message| forward(message, &mut out));
    });
}

fn read(bytes: &[u8], then: impl FnOnce(&Message<'_>)) {
    let peek = Peek::read(bytes).expect("valid");
    black_box(&peek);
    then(&Message::from_peek(&peek).expect("valid"));
}

fn forward(message: &Message<'_>, out: &mut Vec<u8>) {
    let head = message.head();
    out.clear();
    let mut copy = Rewrite::new(head, out);
    copy.copy_to(head.fields_start()).add(&[b"Via: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK0123456789abcdef\r\n"]).finish();
    black_box(out);
}

fn report(what: &str, batches: usize, batch: u32, mut work: impl FnMut()) {
    let mut times: Vec<f64> = Vec::with_capacity(batches);
    let ((), allocations) = allocations_of(|| {
        for _ in 0..batches.max(1) {
            let start = Instant::now();
            for _ in 0..batch {
                work();
            }
            times.push(start.elapsed().as_secs_f64() * 1e9 / f64::from(batch));
        }
    });
    times.sort_by(f64::total_cmp);
    let (median, best) = (times[times.len() / 2], times[0]);
    println!("{what:<26} {median:7.1} ns (best {best:.1})   allocations {allocations}");
}
