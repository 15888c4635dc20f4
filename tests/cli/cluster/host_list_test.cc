#include "cli/cluster/host_list.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <fstream>

#include "cli/cluster/server_address.h"
#include "common/base/error.h"
#include "common/base/process.h"
#include "tests/cli/cluster/refusal.h"
#include "tests/data/temp_dir.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

std::string TextOf(const std::vector<Host>& hosts) {
  std::string text;
  for (const Host& host : hosts) text += host.name + "=" + std::to_string(host.slots) + " ";
  return text;
}

std::string ListRefusal(const std::string& list) {
  return RefusalOf([&] { ParseHosts("-H", list); });
}

TEST(HostListTest, NamesAndSlots) {
  EXPECT_EQ(TextOf(ParseHosts("-H", "a:4,b.example.org:2,c")), "a=4 b.example.org=2 c=1 ");
  EXPECT_EQ(TextOf(ParseHosts("-H", "me@10.0.0.1:3")), "me@10.0.0.1=3 ");
  EXPECT_EQ(TextOf(ParseHosts("-H", "[fd00::5]:2,me@[fd00::6]")), "fd00::5=2 me@fd00::6=1 ");
  EXPECT_EQ(SlotsOf(ParseHosts("-H", "a:4,b")), 5u);
}

TEST(HostListTest, MistakesAreNamed) {
  EXPECT_EQ(ListRefusal(""), "-H: expected at least one host, such as a:4, got none");
  EXPECT_EQ(ListRefusal("a,,b"), "-H: expected HOST or HOST:SLOTS, such as a:4, got nothing");
  EXPECT_THAT(ListRefusal("a,"), HasSubstr("got nothing"));
  EXPECT_THAT(ListRefusal("a:0"), HasSubstr("host a: expected 1 to 1024 slots (workers), got 0"));
  EXPECT_THAT(ListRefusal("a:010"), HasSubstr("host a: got 010: leave out the leading zero"));
  EXPECT_THAT(ListRefusal("a:x"), HasSubstr("expected HOST or HOST:SLOTS, such as a:4, got a:x"));
  EXPECT_THAT(ListRefusal("a:-1"), HasSubstr("got a:-1"));
  EXPECT_THAT(ListRefusal("a b"), HasSubstr("got a b"));
  EXPECT_THAT(ListRefusal("a:600,b:600"),
              HasSubstr("expected at most 1024 slots in all, got 1200"));
  EXPECT_THAT(ListRefusal("a:4,a:2"),
              AllOf(HasSubstr("host a is named twice, with 4 and 2 slots"), HasSubstr("a:6")));
  // ssh would take them for options, and some run a command.
  EXPECT_THAT(ListRefusal("-oProxyCommand=x"), HasSubstr("which ssh would take for an option"));
  for (const char* name : {"-x@a", "a@-b", "a@-oProxyCommand=x:2", "[-1]"}) {
    EXPECT_THAT(ListRefusal(name), AnyOf(HasSubstr("which ssh would take for an option"),
                                         HasSubstr("expected HOST or HOST:SLOTS")))
        << name;
  }
  for (const char* name : {"a$(x)", "`x`", "a;x", "a|x", "me&@a", "a/b", "a\\b"}) {
    EXPECT_THAT(ListRefusal(name), HasSubstr("of letters, digits and ._%-")) << name;
  }
}

class HostfileTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& text) const {
    std::ofstream(dir_.path() / "hosts") << text;
    return dir_.path() / "hosts";
  }
  std::string Refusal(const std::string& text) const {
    return RefusalOf([&] { ReadHostfile(Write(text)); });
  }

  testing::TempDir dir_;
};

TEST_F(HostfileTest, TheFormatsOfOthers) {
  EXPECT_EQ(TextOf(ReadHostfile(Write("# Horovod, Open MPI\n\na slots=4\n  b:2 # two\nc\n"
                                      "[fd00::5] slots=3\nme@d\tslots=1"))),
            "a=4 b=2 c=1 fd00::5=3 me@d=1 ");
  EXPECT_EQ(TextOf(ReadHostfile(Write("\xEF\xBB\xBF"
                                      "a:2\r\nb:2\r\n"))),
            "a=2 b=2 ");
}

TEST_F(HostfileTest, MistakesHaveTheirLine) {
  EXPECT_THAT(Refusal("a\nb slots=x\n"), AllOf(HasSubstr("line 2 of "), HasSubstr("HOST slots=N")));
  EXPECT_THAT(Refusal("a:2 slots=2"), HasSubstr("expected HOST slots=N or HOST:N"));
  EXPECT_THAT(Refusal("a slots=2 b"), HasSubstr("expected HOST slots=N or HOST:N"));
  EXPECT_THAT(Refusal("a slots=0"), HasSubstr("expected 1 to 1024 slots"));
  EXPECT_THAT(Refusal("a slots=2\na slots=3"), HasSubstr("named twice"));
  EXPECT_THAT(Refusal("# nobody\n"), HasSubstr("expected at least one host"));
  EXPECT_THAT(Refusal(std::string("a\0b slots=2", 11)), HasSubstr("zero byte"));
}

TEST(ThisHostTest, IsKnownByItsNamesAndAddresses) {
  EXPECT_TRUE(IsThisHost("localhost"));
  EXPECT_TRUE(IsThisHost(HostName()));
  EXPECT_TRUE(IsThisHost("127.0.0.1"));
  EXPECT_FALSE(IsThisHost("no-such-host.invalid"));
  EXPECT_FALSE(IsThisHost("no-such-user@localhost"));
}

TEST(ThisHostTest, IsNamedOnce) {
  std::vector<Host> hosts = ParseHosts("-H", "no-such-host.invalid,127.0.0.1:2");
  FindHere("-H", hosts);
  EXPECT_FALSE(hosts[0].here);
  EXPECT_TRUE(hosts[1].here);
  hosts = ParseHosts("-H", "localhost:2,127.0.0.1");
  EXPECT_THAT(RefusalOf([&] { FindHere("-H", hosts); }),
              HasSubstr("localhost and 127.0.0.1 both name this host; expected it once, such as "
                        "localhost:3"));
}

TEST(ServerAddressTest, OfAnInterface) {
  const ServerAddress loopback = AddressOfInterface("lo");
  EXPECT_EQ(loopback.address, "127.0.0.1");
  EXPECT_EQ(loopback.endpoint(), "tcp://127.0.0.1:*");
  EXPECT_THAT(RefusalOf([] { AddressOfInterface("no-such"); }), HasSubstr("lo (127.0.0.1)"));
  EXPECT_EQ(InterfaceWith("127.0.0.1"), "lo");
  EXPECT_GT(MtuOf("lo"), 0);
  EXPECT_EQ(MtuOf("no-such"), 0);
}

TEST(ServerAddressTest, AnotherHostCannotReachTheLoopbackInterface) {
  const ServerAddress chosen = AddressTowards("127.0.1.1");
  EXPECT_EQ(chosen.interface, "lo");
  EXPECT_THAT(RefusalOf([&] { RequireReachable(chosen, "b"); }),
              AllOf(HasSubstr("host b would have to reach the server at 127.0."),
                    HasSubstr("/etc/hosts"), HasSubstr("cluster.interface")));
}

}  // namespace
}  // namespace muster
