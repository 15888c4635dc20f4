// `muster bench` with stand-ins for the measuring programs.
#include <gmock/gmock-more-matchers.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/job/job_fixture.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr const char* kUpdate =
    R"(echo '{"p50_us":200.0,"limit_us":150.0,"instruction_set":"AVX2","verified":true}')";
constexpr const char* kSync = R"(echo '{"p50_us":300.0,"p99_us":400.0,"verified":true}')";

class BenchCommandTest : public JobTest {
 protected:
  BenchCommandTest() {
    Program("update_bench", kUpdate);
    Program("sync_bench", kSync);
  }
  // Creates a program beside `muster` that records its arguments and runs `script`.
  void Program(const std::string& name, const std::string& script) {
    std::ofstream(Path(name)) << "#!/bin/sh\necho \"$0 $*\" >> " << Path("calls") << "\n"
                              << script << "\n";
    std::filesystem::permissions(Path(name), std::filesystem::perms::owner_all);
  }
  void ExpectFailure(const Finished& finished, int code, const std::string& message) {
    EXPECT_EQ(finished.exit_code, code);
    EXPECT_THAT(finished.out, IsEmpty());
    EXPECT_THAT(finished.err, AllOf(StartsWith("muster: error: "), HasSubstr(message)));
  }
};

TEST_F(BenchCommandTest, MeasuresEachSizeOverBothTransports) {
  const Finished finished = Run({"bench", "--size", "4MiB", "--workers", "3"});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.out, AllOf(HasSubstr("AVX2"), HasSubstr("4.19 MB, 3 workers, MOMENTUM")));
  const std::string calls = ReadFile(Path("calls"));
  for (const char* size : {"4096 ", "1048576 ", "4194304 ", "33554432 "}) {
    EXPECT_THAT(calls, HasSubstr(std::string("update_bench --size ") + size));
    for (const char* transport : {"LOCAL", "TCP"}) {
      EXPECT_THAT(calls, HasSubstr(std::string("sync_bench --workers 3 --size ") + size +
                                   "--transport " + transport));
    }
  }
}

// A nearly identical second row would only double the user's wait.
TEST_F(BenchCommandTest, AModelNearAStandardSizeStandsForIt) {
  const auto sizes = [&](const char* model) {
    const auto json = nlohmann::json::parse(Run({"bench", "--size", model, "--json"}).out);
    std::vector<double> bytes;
    for (const auto& row : json["rows"]) bytes.push_back(row["bytes"]);
    return bytes;
  };
  EXPECT_THAT(sizes("33MB"), ElementsAre(4096, 1048576, 33000000));
  EXPECT_THAT(sizes("40MB"), ElementsAre(4096, 1048576, 40000000));
  EXPECT_THAT(sizes("28MB"), ElementsAre(4096, 1048576, 28000000));
  EXPECT_THAT(sizes("41MB"), ElementsAre(4096, 1048576, 33554432, 41000000));
  EXPECT_THAT(sizes("27MB"), ElementsAre(4096, 1048576, 27000000, 33554432));
  EXPECT_THAT(sizes("1MB"), ElementsAre(4096, 1000000, 33554432));
  EXPECT_THAT(sizes("4500"), ElementsAre(4500, 1048576, 33554432));
  EXPECT_THAT(sizes("32MiB"), ElementsAre(4096, 1048576, 33554432));
}

TEST_F(BenchCommandTest, TakesNetworkOptimizerAndWorkersFromAConfig) {
  const Finished finished =
      Run({"bench", "--model", config(), "--set", "optimizer.type=ADAM", "--set",
           "cluster.workers=5", "--set", "server.threads=3", "--set", "server.io_threads=2",
           "--set", "cluster.chunk_bytes=65536", "--set", "server.instruction_set=SCALAR"});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.out, HasSubstr("5 workers, ADAM"));
  EXPECT_THAT(ReadFile(Path("calls")),
              AllOf(HasSubstr("--instruction-set SCALAR --optimizer ADAM --threads 3"),
                    HasSubstr("--optimizer ADAM --instruction-set SCALAR --chunk-bytes 65536 "
                              "--io-threads 2 --server-threads 3")));
}

TEST_F(BenchCommandTest, PrintsOneObject) {
  const Finished finished = Run({"bench", "--json"});
  const auto json = nlohmann::json::parse(finished.out);
  EXPECT_EQ(json["workers"], 2);
  EXPECT_EQ(json["rows"].size(), 3u);
  EXPECT_EQ(json["rows"][1]["tcp_p50_us"], 300.0);
}

TEST_F(BenchCommandTest, AResultThatCannotBeWrittenIsAFailure) {
  for (const std::string& arguments :
       std::vector<std::string>{"bench --json", "bench", "inspect " + config()}) {
    Program("shell", Path("muster") + " " + arguments + " > /dev/full 2> " + Path("said") +
                         "; echo $? > " + Path("code"));
    ASSERT_EQ(std::system(Path("shell").c_str()), 0);
    EXPECT_EQ(ReadFile(Path("code")), "1\n") << arguments;
    EXPECT_THAT(ReadFile(Path("said")), HasSubstr("No space left on device")) << arguments;
  }
}

TEST_F(BenchCommandTest, AProgramThatFailsIsAFailure) {
  Program("sync_bench", "echo sync_bench: weight 7 is 3, expected 4; exit 3");
  ExpectFailure(Run({"bench"}), 1,
                "sync_bench ended with exit code 3: sync_bench: weight 7 is 3, expected 4");
  Program("sync_bench", "kill -9 $$");
  ExpectFailure(Run({"bench"}), 1, "sync_bench was killed by signal 9");
  Program("sync_bench", "");
  ExpectFailure(Run({"bench"}), 1, "sync_bench printed no result");
  Program("sync_bench", R"(echo '{"p50_us":300.0,"p99_us":400.0,"verified":false}')");
  ExpectFailure(Run({"bench"}), 1, "no verified p50_us");
  std::filesystem::remove(Path("update_bench"));
  ExpectFailure(Run({"bench"}), 1, "update_bench does not exist");
}

TEST_F(BenchCommandTest, RefusesWrongArguments) {
  for (const auto& [arguments, message] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--size", "12"}, "--size: expected 1KiB to 4GB, got 12 bytes"},
           {{"--size", "4 parsecs"}, "--size"},
           {{"--size", "4MB", "--model", config()}, "--model"},
           {{"--set", "server.threads=2"}, "--model"},
           {{"--workers", "0"}, "--workers"},
           {{"--workers", "65"}, "--workers"},
           {{"--model", config(), "--set", "cluster.workers=65"},
            "cluster.workers is 65: `muster bench` starts"},
           {{"--model", Path("nowhere.txtpb")}, "nowhere.txtpb"},
           {{"--sizes", "4MB"}, "did you mean '--size'?"}}) {
    std::vector<std::string> words{"bench"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    ExpectFailure(Run(words), 2, message);
  }
  EXPECT_FALSE(std::filesystem::exists(Path("calls")));
}

}  // namespace
}  // namespace muster::testing
