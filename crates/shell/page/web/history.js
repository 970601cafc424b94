// The last ten minutes, kept in this window for the plots.

const KEPT_S = 600;

/// Series by name; each has one value for each time. A value is null where nothing was measured.
export class History {
  constructor() {
    this.clear();
  }

  clear() {
    this.times = [];
    this.calls_per_s = [];
    this.calls = [];
    this.registrations = [];
    this.registrations_per_s = [];
    this.loads = [];
    this.whyNoTiming = null;
    this.latency = { times: [], p50: [], p99: [], waiting: [] };
    this.last = null;
  }

  /// Adds a status taken at `now`, s.
  addStatus(status, now) {
    const shards = status.counters?.shards ?? {};
    const read = { now, pid: status.pid, uptime: status.uptime_s, calls: shards.calls ?? 0, registered: shards.registered ?? 0 };
    // Counters begin again with another process.
    if (this.last && (this.last.pid !== read.pid || read.uptime < this.last.uptime)) this.clear();
    const took = this.last ? read.uptime - this.last.uptime : 0;
    const rate = (name) => (took > 0 ? Math.max(0, read[name] - this.last[name]) / took : null);
    this.times.push(now);
    this.calls_per_s.push(rate("calls"));
    this.registrations_per_s.push(rate("registered"));
    this.calls.push(Math.max(0, read.calls - (shards.calls_ended ?? 0)));
    this.registrations.push(status.registrations);
    this.loads.push((status.loads ?? []).map((worker) => worker.load * 100));
    this.last = read;
    const old = firstAfter(this.times, now - KEPT_S);
    for (const series of [this.times, this.calls_per_s, this.registrations_per_s, this.calls, this.registrations, this.loads]) {
      series.splice(0, old);
    }
  }

  /// Adds a report of the times of packets.
  addTiming(report, now) {
    const parts = report.all?.parts ?? {};
    const own = parts.t_sip;
    const { times, p50, p99, waiting } = this.latency;
    this.whyNoTiming = null;
    times.push(now);
    p50.push(own?.count > 0 ? own.p50_us : null);
    p99.push(own?.count > 0 ? own.p99_us : null);
    waiting.push(parts.k_rcv?.count > 0 ? parts.k_rcv.p99_us : null);
    const old = firstAfter(times, now - KEPT_S);
    for (const series of [times, p50, p99, waiting]) series.splice(0, old);
  }

  /// Returns the loads by worker instead of by time.
  loadsByWorker() {
    const workers = Math.max(0, ...this.loads.map((loads) => loads.length));
    return Array.from({ length: workers }, (_, worker) => this.loads.map((loads) => loads[worker] ?? null));
  }
}

function firstAfter(times, start) {
  const at = times.findIndex((time) => time >= start);
  return at < 0 ? times.length : at;
}
