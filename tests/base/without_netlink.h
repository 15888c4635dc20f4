// Runs code in a thread that cannot query this host's network interfaces, as under systemd's
// RestrictAddressFamilies and in other sandboxes.
#pragma once

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <functional>
#include <iterator>
#include <thread>

namespace muster::testing {

// Runs `call` in a thread that cannot create AF_NETLINK sockets, and neither can threads that it
// starts. The filter only applies to that thread, so it ends with it.
inline void WithoutNetlink(const std::function<void()>& call) {
  std::thread([&call] {
    sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_NETLINK, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAFNOSUPPORT),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog filter{std::size(steps), steps};
    ASSERT_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    ASSERT_EQ(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0), 0);
    EXPECT_EQ(::socket(AF_NETLINK, SOCK_RAW, 0), -1);
    EXPECT_EQ(errno, EAFNOSUPPORT);
    call();
  }).join();
}

}  // namespace muster::testing
