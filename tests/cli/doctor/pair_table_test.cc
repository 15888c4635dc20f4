#include "cli/doctor/pair_table.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "common/base/text.h"

namespace muster {
namespace pair_table_test {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// The pair of i and j has the bandwidths i j MB/s there and ten times as much back.
std::vector<PairLink> Pairs(size_t hosts) {
  std::vector<PairLink> pairs;
  for (size_t second = 1; second < hosts; ++second) {
    for (size_t first = 0; first < second; ++first) {
      const double rate = 1e6 * static_cast<double>((first + 1) * (second + 1));
      pairs.push_back({.first = first,
                       .second = second,
                       .link = {.latency_s = 0.001, .to_peer = rate, .from_peer = 10 * rate}});
    }
  }
  return pairs;
}

std::vector<ProbedHost> Probed(size_t count) {
  std::vector<ProbedHost> hosts;
  for (size_t i = 0; i < count; ++i) {
    hosts.push_back({.name = "h" + std::to_string(i), .address = "10.0.0." + std::to_string(i)});
  }
  return hosts;
}

TEST(PairTable, ARowAndAColumnForEachHost) {
  const std::string text = Join(PairLines(Probed(3), Pairs(3)), "\n");
  EXPECT_THAT(text, ContainsRegex("h0 +- +2.00 MB/s +3.00 MB/s"));
  EXPECT_THAT(text, ContainsRegex("h1 +20.0 MB/s +- +6.00 MB/s"));
  EXPECT_THAT(text, ContainsRegex("h2 +30.0 MB/s +60.0 MB/s +-"));
  EXPECT_THAT(text, ContainsRegex("h2 +1.00 ms +1.00 ms +-"));
  EXPECT_THAT(text, Not(HasSubstr("does not reach")));
}

TEST(PairTable, SaysWhoDoesNotReachWhom) {
  std::vector<PairLink> pairs = Pairs(3);
  pairs[1] = {.first = 0, .second = 2, .problem = "no answer in 5 s"};
  const std::string text = Join(PairLines(Probed(3), pairs), "\n");
  EXPECT_THAT(text, ContainsRegex("h0 +- +2.00 MB/s +fails"));
  EXPECT_THAT(text, ContainsRegex("h2 +fails +60.0 MB/s +-"));
  EXPECT_THAT(text, HasSubstr("Host h2 does not reach host h0 at 10.0.0.0: no answer in 5 s; "));
}

TEST(PairTable, ManyHostsAreAListOfTheSlowest) {
  const std::vector<std::string> lines = PairLines(Probed(9), Pairs(9));
  EXPECT_EQ(lines.size(), 2u + 2 + 10 + 1);
  EXPECT_THAT(lines[1], HasSubstr("of 36 pairs"));
  EXPECT_THAT(lines[4], ContainsRegex("h0 +h1 +1.00 ms +2.00 MB/s +20.0 MB/s"));
}

TEST(PairTable, OneHostHasNoNetwork) {
  EXPECT_EQ(PairLines(Probed(1), {}), std::vector<std::string>{""});
}

}  // namespace pair_table_test
}  // namespace muster
