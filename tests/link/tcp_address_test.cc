// tcp://HOST:PORT: its forms, their meaning, and the address of a listening server.
#include "common/link/tcp_address.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>

#include <array>
#include <functional>
#include <vector>

#include "common/base/error.h"
#include "tests/base/without_netlink.h"

namespace muster {
namespace {

std::string ErrorOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    return error.what();
  }
  return "";
}

TEST(TcpAddress, FormsThatAreOne) {
  struct Case {
    std::string endpoint, host;
    uint16_t port;
    bool any_host;
  };
  for (const Case& c :
       std::vector<Case>{{"tcp://127.0.0.1:7700", "127.0.0.1", 7700, false},
                         {"tcp://lab-3.example.org:1", "lab-3.example.org", 1, false},
                         {"tcp://[::1]:65535", "::1", 65535, false},
                         {"tcp://[fe80::1%eth0]:80", "fe80::1%eth0", 80, false},
                         {"tcp://127.0.0.1:*", "127.0.0.1", 0, false},
                         {"tcp://*:7700", "*", 7700, true},
                         {"tcp://0.0.0.0:7700", "0.0.0.0", 7700, true},
                         {"tcp://[::]:7700", "::", 7700, true}}) {
    const TcpAddress address = TcpAddress::Parse(c.endpoint);
    EXPECT_EQ(address.host, c.host);
    EXPECT_EQ(address.port, c.port);
    EXPECT_EQ(address.any_host(), c.any_host);
    EXPECT_EQ(address.ToEndpoint(), c.endpoint);
  }
  EXPECT_EQ(TcpAddress::Parse("tcp://lab3:0").port, 0);
}

TEST(TcpAddress, FormsThatAreNone) {
  for (const char* endpoint :
       {"", "tcp://", "tcp://lab3", "tcp://:7700", "tcp://lab3:", "tcp://lab3:70000",
        "tcp://lab3:-1", "tcp://lab3:+1", "tcp://lab3:07700", "tcp://lab3:77 ", "tcp://lab3:7x",
        "tcp://::1:7700", "tcp://[lab3]:7700", "tcp://[::1]7700", "tcp://[]:7700", "tcp://a/b:7700",
        "tcp://a;b:1", "udp://a:1", "ipc://@name"}) {
    EXPECT_NE(ErrorOf([&] { TcpAddress::Parse(endpoint); }), "") << endpoint;
  }
}

TEST(TcpAddress, WhatAddressesMeanHere) {
  const auto resolve = [](const std::string& endpoint) {
    return ResolvedAddress(TcpAddress::Parse(endpoint));
  };
  EXPECT_TRUE(resolve("tcp://127.0.0.1:1").loopback());
  EXPECT_TRUE(resolve("tcp://127.77.0.1:1").loopback());
  EXPECT_TRUE(resolve("tcp://[::1]:1").loopback());
  EXPECT_TRUE(resolve("tcp://[::1]:1").ipv6());
  EXPECT_TRUE(resolve("tcp://[::1]:1").of_this_host());
  EXPECT_FALSE(resolve("tcp://192.0.2.1:1").loopback());
  EXPECT_FALSE(resolve("tcp://192.0.2.1:1").of_this_host());  // a network for documentation
  EXPECT_FALSE(resolve("tcp://*:1").loopback());
  EXPECT_EQ(resolve("tcp://*:*").ToEndpoint(), "tcp://0.0.0.0:*");
  EXPECT_EQ(resolve("tcp://[::1]:77").ToEndpoint(), "tcp://[::1]:77");
  const std::string error = ErrorOf([&] { resolve("tcp://no..such..name:77"); });
  EXPECT_NE(error.find("cannot resolve the name no..such..name"), std::string::npos) << error;
}

// This host's IPv4 addresses that other hosts may use, except those of interfaces that are down.
std::vector<std::string> OwnAddresses() {
  std::vector<std::string> addresses;
  ifaddrs* list = nullptr;
  EXPECT_EQ(::getifaddrs(&list), 0);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    if ((entry->ifa_flags & IFF_LOOPBACK) != 0 || (entry->ifa_flags & IFF_UP) == 0) continue;
    std::array<char, INET_ADDRSTRLEN> text{};
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr,
                text.data(), text.size());
    addresses.emplace_back(text.data());
  }
  ::freeifaddrs(list);
  return addresses;
}

// Otherwise a worker in a sandbox would not share memory with its server.
TEST(TcpAddress, OwnAddressesAreKnownWithoutNetlink) {
  const std::vector<std::string> own = OwnAddresses();
  if (own.empty()) GTEST_SKIP() << "this host has only the loopback address";
  testing::WithoutNetlink([&] {
    for (const std::string& address : own) {
      EXPECT_TRUE(ResolvedAddress({address, 7700}).of_this_host()) << address;
    }
    EXPECT_TRUE(ResolvedAddress({"127.0.0.1", 7700}).of_this_host());
    EXPECT_FALSE(ResolvedAddress({"192.0.2.1", 7700}).of_this_host());
  });
}

// Independent of the resolver's order, so that server and workers agree.
TEST(TcpAddress, IPv4ComesFirst) {
  if (addrinfo* found = nullptr; ::getaddrinfo("localhost", nullptr, nullptr, &found) == 0) {
    ::freeaddrinfo(found);
  } else {
    GTEST_SKIP() << "this host cannot resolve localhost (/etc/hosts)";
  }
  EXPECT_EQ(ResolvedAddress(TcpAddress::Parse("tcp://localhost:77")).ToEndpoint(),
            "tcp://127.0.0.1:77");
}

TEST(TcpAddress, WhereAServerListens) {
  const auto choose = [](const std::string& endpoint, const std::string& bind) {
    const ListenAddress chosen = ChooseListenAddress(endpoint, bind);
    return std::vector<std::string>{chosen.bind, chosen.endpoint};
  };
  using Pair = std::vector<std::string>;
  EXPECT_EQ(choose("", ""), (Pair{"tcp://127.0.0.1:*", "tcp://127.0.0.1:*"}));
  EXPECT_EQ(choose("tcp://lab3:7700", ""), (Pair{"tcp://lab3:7700", "tcp://lab3:7700"}));
  EXPECT_EQ(choose("tcp://lab3:80", "tcp://*:7700"), (Pair{"tcp://*:7700", "tcp://lab3:80"}));
  EXPECT_EQ(choose("", "tcp://10.0.0.5:*"), (Pair{"tcp://10.0.0.5:*", "tcp://10.0.0.5:*"}));
  EXPECT_EQ(choose("ipc://@x", ""), (Pair{"ipc://@x", "ipc://@x"}));
  // Announced by host name, because clients cannot connect to all addresses.
  EXPECT_FALSE(TcpAddress::Parse(ChooseListenAddress("", "tcp://*:7700").endpoint).any_host());
  for (const char* everywhere : {"tcp://*:7700", "tcp://0.0.0.0:7700", "tcp://[::]:7700"}) {
    const std::string error = ErrorOf([&] { ChooseListenAddress(everywhere, ""); });
    EXPECT_NE(error.find("--bind tcp://*:7700"), std::string::npos) << error;
  }
  EXPECT_NE(ErrorOf([] { ChooseListenAddress("tcp://lab3:1", "ipc://@x"); }), "");
  EXPECT_NE(ErrorOf([] { ChooseListenAddress("ipc://@y", "ipc://@x"); }), "");
}

}  // namespace
}  // namespace muster
