// The system calls that receive, send or wait.

#ifndef STROWGER_CALLS_H
#define STROWGER_CALLS_H

#include "kernel.h"

// Kinds of system calls. How the second argument leads to the payload depends on the kind.
enum {
    NOTHING,
    RECEIVE_BUFFER,   // recvfrom, read: the buffer
    RECEIVE_VECTOR,   // readv: a vector of buffers
    RECEIVE_MESSAGE,  // recvmsg: a header with a vector
    RECEIVE_MESSAGES, // recvmmsg: an array of headers
    SEND,             // sendto, sendmsg, write, writev
    SEND_MESSAGES,    // sendmmsg
    WAIT,
};

INLINE int is_receive(u32 kind) {
    return kind >= RECEIVE_BUFFER && kind <= RECEIVE_MESSAGES;
}

INLINE int is_send(u32 kind) {
    return kind == SEND || kind == SEND_MESSAGES;
}

INLINE u32 kind_of(long call) {
    switch (call) {
#if defined(__TARGET_x86_64)
    case 0:  // read
    case 45: // recvfrom
        return RECEIVE_BUFFER;
    case 19: // readv
        return RECEIVE_VECTOR;
    case 47: // recvmsg
        return RECEIVE_MESSAGE;
    case 299: // recvmmsg
        return RECEIVE_MESSAGES;
    case 1:   // write
    case 20:  // writev
    case 44:  // sendto
    case 46:  // sendmsg
        return SEND;
    case 307: // sendmmsg
        return SEND_MESSAGES;
    case 7:   // poll
    case 23:  // select
    case 232: // epoll_wait
    case 270: // pselect6
    case 271: // ppoll
    case 281: // epoll_pwait
    case 441: // epoll_pwait2
        return WAIT;
#elif defined(__TARGET_aarch64)
    case 63:  // read
    case 207: // recvfrom
        return RECEIVE_BUFFER;
    case 65: // readv
        return RECEIVE_VECTOR;
    case 212: // recvmsg
        return RECEIVE_MESSAGE;
    case 243: // recvmmsg
        return RECEIVE_MESSAGES;
    case 64:  // write
    case 66:  // writev
    case 206: // sendto
    case 211: // sendmsg
        return SEND;
    case 269: // sendmmsg
        return SEND_MESSAGES;
    case 22:  // epoll_pwait
    case 72:  // pselect6
    case 73:  // ppoll
    case 441: // epoll_pwait2
        return WAIT;
#endif
    }
    return NOTHING;
}

INLINE int is_poll(long call) {
#if defined(__TARGET_x86_64)
    return call == 7 || call == 271;
#else
    return call == 73;
#endif
}

// Returns what tells a program's waiting calls apart: the call, and the descriptor of epoll, the first descriptor of
// poll, or the number of descriptors of select.
INLINE u64 place_of_wait(long call, u64 first_argument) {
    u32 descriptor = (u32)first_argument;
    if (is_poll(call))
        read_user(&descriptor, sizeof(descriptor), (const void *)first_argument);
    return ((u64)call + 1) << 32 | descriptor;
}

// Sizes in the ABI of the system calls, bytes.
enum {
    VECTOR_IN_MESSAGE = 16,
    MESSAGE_IN_ARRAY = 64,
};

// Returns the buffer of the call's message number `index`; null if it cannot be read.
INLINE void *payload_of(u32 kind, void *argument, u32 index) {
    void *buffer = argument;
    if (kind == RECEIVE_MESSAGE || kind == RECEIVE_MESSAGES) {
        if (kind == RECEIVE_MESSAGES)
            buffer += (u64)MESSAGE_IN_ARRAY * index;
        if (read_user(&buffer, sizeof(buffer), buffer + VECTOR_IN_MESSAGE))
            return 0;
    }
    if (kind != RECEIVE_BUFFER && read_user(&buffer, sizeof(buffer), buffer))
        return 0;
    return buffer;
}

#endif
