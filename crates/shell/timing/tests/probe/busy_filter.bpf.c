// A socket filter that keeps the processor busy for some time before each packet comes into the socket's queue.

typedef unsigned long long u64;
typedef unsigned int u32;

static u64 (*const ktime_ns)(void) = (void *)5;
static long (*const loop)(u32 iterations, void *body, void *context, u64 flags) = (void *)181;

const volatile u64 busy_ns = 0;

static long wait(u64 iteration, u64 *end) {
    return ktime_ns() >= *end;
}

__attribute__((section("socket/busy"), used)) int busy(void *packet) {
    u64 end = ktime_ns() + busy_ns;
    loop(1 << 20, wait, &end, 0);
    return 65535;
}

char LICENSE[] __attribute__((section("license"), used)) = "Dual MIT/GPL";
