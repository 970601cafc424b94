// What the programs need of the kernel: types, map definitions and helpers.
//
// Only the fields in use are declared. The loader relocates each access to the running kernel's layout (CO-RE), so no
// headers of a particular kernel are needed.

#ifndef STROWGER_KERNEL_H
#define STROWGER_KERNEL_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
typedef long long s64;

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define RELOCATED __attribute__((preserve_access_index))

// Fields of a map definition, as the loader expects them.
#define NUMBER(name, value) int(*name)[value]
#define TYPE(name, type) type *name

enum {
    MAP_HASH = 1,
    MAP_ARRAY = 2,
    MAP_PERCPU_ARRAY = 6,
    MAP_RINGBUF = 27,
};

enum {
    RINGBUF_NO_WAKEUP = 1,
};

static void *(*const map_lookup)(void *map, const void *key) = (void *)1;
static long (*const map_update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*const map_delete)(void *map, const void *key) = (void *)3;
static u64 (*const ktime_ns)(void) = (void *)5;
static u32 (*const processor)(void) = (void *)8;
static u64 (*const pid_tgid)(void) = (void *)14;
// Numbers of the current thread and process in a namespace.
struct namespace_ids {
    u32 thread;
    u32 process;
};

static long (*const ids_in_namespace)(u64 device, u64 inode, struct namespace_ids *ids, u32 size) = (void *)120;
static long (*const read_user)(void *to, u32 size, const void *from) = (void *)112;
static long (*const read_kernel)(void *to, u32 size, const void *from) = (void *)113;
static long (*const ringbuf_output)(void *ring, void *data, u64 size, u64 flags) = (void *)130;

enum {
    FAMILY_INET = 2,
    FAMILY_INET6 = 10,
    PROTOCOL_TCP = 6,
    PROTOCOL_UDP = 17,
    FLAG_PEEK = 2,
    FLAG_DO_NOT_WAIT = 0x40,
    FLAG_ERROR_QUEUE = 0x2000,
};

struct sk_buff;

struct sk_buff_head {
    struct sk_buff *next;
    struct sk_buff *prev;
    u32 qlen;
} RELOCATED;

struct sock_common {
    u16 skc_family;
    u16 skc_num;
} RELOCATED;

struct sock {
    struct sock_common __sk_common;
    struct sk_buff_head sk_receive_queue;
    u16 sk_protocol;
} RELOCATED;

struct udp_sock {
    struct sk_buff_head reader_queue;
} RELOCATED;

struct tcp_sock {
    u32 copied_seq;
    u32 rcv_nxt;
} RELOCATED;

struct sk_buff {
    struct sk_buff *prev;
    struct sock *sk;
    u32 len;
} RELOCATED;

struct task_struct {
    s32 pid;
    s32 tgid;
} RELOCATED;

#if defined(__TARGET_x86_64)
struct pt_regs {
    unsigned long di;
    unsigned long si;
    unsigned long orig_ax;
} RELOCATED;
#define FIRST_ARGUMENT(context) ((context)->di)
#define SECOND_ARGUMENT(context) ((context)->si)
#define SYSTEM_CALL(context) ((context)->orig_ax)
#elif defined(__TARGET_aarch64)
struct pt_regs {
    u64 regs[31];
    s32 syscallno;
} RELOCATED;
#define FIRST_ARGUMENT(context) ((context)->regs[0])
#define SECOND_ARGUMENT(context) ((context)->regs[1])
#define SYSTEM_CALL(context) ((context)->syscallno)
#else
#error "the probe knows the system calls of x86_64 and aarch64 only"
#endif

// Reads a field that is not reached through a pointer that the verifier trusts.
#define READ(field)                                                                                                    \
    ({                                                                                                                 \
        typeof(field) value_ = 0;                                                                                      \
        read_kernel((void *)&value_, sizeof(value_), (const void *)__builtin_preserve_access_index(&(field)));         \
        value_;                                                                                                        \
    })

// Hides a value of 32 bits from the optimizer, which would otherwise replace a bound that the verifier has to see.
#define OPAQUE(value) asm volatile("" : "+w"(value))

#endif
