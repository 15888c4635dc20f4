// The command line of the real program. Errors are found before any process starts.
#include <fmt/core.h>
#include <gmock/gmock-more-matchers.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/base/text.h"
#include "common/base/version.h"
#include "common/config/hardware.h"
#include "tests/cli/commands/command_line_fixture.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(CommandLineTest, NoArgumentsShowTheHelp) {
  Finished finished = Run({});
  EXPECT_EQ(finished.exit_code, 2);
  EXPECT_THAT(finished.err, HasSubstr("Subcommands:"));
}

TEST_F(CommandLineTest, HelpAndVersion) {
  EXPECT_THAT(Run({"--help"}).out, HasSubstr("muster launch configs/cifar10.txtpb"));
  Finished launch = Run({"launch", "--help"});
  EXPECT_EQ(launch.exit_code, 0);
  for (const char* text : {"--workers", "--run-dir", "--set", "Exit codes", "metrics.jsonl"}) {
    EXPECT_THAT(launch.out, HasSubstr(text));
  }
  EXPECT_EQ(Run({"--version"}).out, std::string("muster ") + kVersion + "\n");
}

// The commands listed in a help text.
std::vector<std::string> CommandsOf(const std::string& help) {
  std::vector<std::string> names;
  std::istringstream lines(help.substr(std::min(help.find("Subcommands:\n"), help.size())));
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line) && !line.empty()) {
    if (line.starts_with("  ") && line[2] != ' ') {
      names.push_back(line.substr(2, line.find(' ', 2) - 2));
    }
  }
  return names;
}

TEST_F(CommandLineTest, NoHelpTextIsWiderThanATerminal) {
  std::vector<std::vector<std::string>> commands{{}};
  for (size_t i = 0; i < commands.size(); ++i) {
    std::vector<std::string> arguments = commands[i];
    arguments.emplace_back("--help");
    const Finished finished = Run(arguments);
    EXPECT_EQ(finished.exit_code, 0);
    std::istringstream lines(finished.out);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), 80u) << Join(arguments, " ") << ": " << line;
    }
    for (const std::string& name : CommandsOf(finished.out)) {
      commands.push_back(commands[i]);
      commands.back().push_back(name);
    }
  }
  EXPECT_GE(commands.size(), 19u);  // 15 of muster, 2 of data, 1 of gpus
  std::istringstream lines(Run({}).err);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
}

// An empty value is most likely an unset shell variable.
TEST_F(CommandLineTest, AnEmptyValueIsRefused) {
  for (const char* option : {"--devices", "--run-dir", "--data", "--workers", "--epochs", "--trace",
                             "--seed", "--initial-weights"}) {
    ExpectRefused(Run({"launch", config(), option, ""}),
                  std::string(option) + ": expected a value, got \"\"");
  }
  ExpectRefused(Run({"launch", "--resume", ""}), "--resume: expected a value, got \"\"");
  ExpectRefused(Run({"server", config(), "--endpoint", ""}), "--endpoint: expected a value");
  ExpectRefused(RunLaunch({"--wait", ""}), "--wait: expected a value, got");
}

TEST_F(CommandLineTest, ToWaitIsForCards) {
  const std::string message = "--wait: no GPUs are requested, so there is nothing to wait for";
  ExpectRefused(RunLaunch({"--wait"}), message);
  ExpectRefused(RunLaunch({"--wait", "5", "--devices", "cpu"}), message);
}

TEST_F(CommandLineTest, UnknownCommandsAndOptionsNameTheNearest) {
  ExpectRefused(Run({"lanch"}), "did you mean 'launch'?");
  ExpectRefused(Run({"frobnicate"}),
                "known: launch, inspect, import, export, eval, predict, trace, bench, gpus, data, "
                "server, worker");
  for (const auto& [word, meant] :
       {std::pair("train", "launch"), {"fit", "launch"}, {"test", "eval"}, {"help", "--help"}}) {
    ExpectRefused(Run({word}), fmt::format("did you mean '{}'?", meant));
  }
  EXPECT_EQ(Run({"frobnicate"}).err.find("host"), std::string::npos);  // users do not type it
  ExpectRefused(RunLaunch({"--epoch", "2"}), "did you mean '--epochs'?");
  ExpectRefused(Run({"data", "sinth", "x"}), "did you mean 'synth'?");
}

TEST_F(CommandLineTest, AConfigThatIsNotThereNamesASimilarOne) {
  std::ofstream(Path("mine.txtpb")) << "\n";
  for (const char* name : {"mine.txt", "mine", "mine.textpb", "mien.txtpb"}) {
    ExpectRefused(Run({"launch", Path(name)}), "did you mean " + Path("mine.txtpb") + "?");
  }
  ExpectRefused(Run({"launch", Path("else.txtpb")}), "cannot be read");
}

TEST_F(CommandLineTest, ANameTellsTheFormatOfAnExport) {
  EXPECT_EQ(Run({"export", "x.safetensors", "y.onnx"}).exit_code, 3);  // there is no such file
  ExpectRefused(Run({"export", "x.safetensors", "y"}), ".safetensors, .npz, .onnx, or --format");
}

TEST_F(CommandLineTest, LatestIsTheNewestRunUnlessAFileHasThatName) {
  const std::string none = "found none: name a run directory";
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"top"},
                                             {"plot"},
                                             {"eval"},
                                             {"top", "latest"},
                                             {"launch", "--resume", "latest"},
                                             {"verify", "latest"},
                                             {"inspect", "latest"},
                                             {"export", "latest", "x.npz"},
                                             {"predict", "latest", "--samples", "0"}}) {
    ExpectRefused(Run(words), none);
  }
  std::filesystem::create_directories(Path("runs/r"));
  for (const char* file : {"config.txtpb", "server.log"}) std::ofstream(Path("runs/r/") + file);
  const Finished found = Run({"verify", "latest"});
  EXPECT_EQ(found.exit_code, 2);
  EXPECT_THAT(found.err, StartsWith("muster: latest is runs/r\n"));
  std::filesystem::create_directory(Path("latest"));
  EXPECT_THAT(Run({"verify", "latest"}).err, StartsWith("muster: error: latest: "));
}

TEST_F(CommandLineTest, OptionsOfOtherProgramsNameOurs) {
  for (const char* option : {"--gpus", "--gpu", "--num_gpus"}) {
    ExpectRefused(RunLaunch({option, "2"}), "--devices");
  }
  ExpectRefused(RunLaunch({"--lr", "0.1"}), "--set learning_rate.base=");
  ExpectRefused(RunLaunch({"--learning_rate=0.1"}), "--set learning_rate.base=");
  ExpectRefused(RunLaunch({"--batch-size", "64"}), "--set run.global_batch=");
}

// Control characters must not reach a terminal.
TEST_F(CommandLineTest, NamesArePrintedOnOneLineAndPrintable) {
  const std::string name = Path("a\n  b\x1b[31m");
  const Finished token = Run({"token", name});
  EXPECT_EQ(token.exit_code, 0);
  EXPECT_THAT(token.out, HasSubstr("a\\n  b\\x1b[31m\n"));
  const Finished data = Run({"data", "synth", name + "d", "--train", "5", "--test", "1"});
  EXPECT_EQ(data.exit_code, 0) << data.err;
  EXPECT_THAT(data.out, HasSubstr("a\\n  b\\x1b[31md/"));
  const Finished network = Run({"inspect", config(), "--set", "model.name=a\nb\x1b"});
  EXPECT_THAT(network.out, StartsWith("a\\nb\\x1b: input "));
  ExpectRefused(RunLaunch({"--seed", "x\n  y"}), "x\\n  y");
  ExpectRefused(RunLaunch({"--sed\n  y", "1"}), "--sed\\n  y");
}

TEST_F(CommandLineTest, HintsNameACommandThatThereIs) {
  ExpectRefused(Run({"data", "get", "cifar10"}), "(see muster data get --help)");
  ExpectRefused(Run({"data", "synth"}), "(see muster data synth --help)");
  ExpectRefused(Run({"data", "check"}), "(see muster data check --help)");
  ExpectRefused(Run({"data"}), "(see muster data --help)");
  for (const char* command : {"get", "synth", "check", "show"}) {
    EXPECT_EQ(Run({"data", command, "--help"}).exit_code, 0);
  }
}

// A command whose output cannot be written has failed.
TEST_F(CommandLineTest, AFullDeviceIsNamed) {
  Workers(R"(print:{"what":"weights","bytes":7000000,"holder":"server"};exit:0)");
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--help"},
        {"launch", "--help"},
        {"--version"},
        {"token"},
        {"inspect", config()},
        {"gpus"},
        {"launch", config(), "--data", ".", "--dry-run"}}) {
    Job job;
    Start(job, arguments, " > /dev/full");
    const Finished finished = job.Finish();
    EXPECT_EQ(finished.exit_code, 1) << arguments.back();
    EXPECT_THAT(finished.err, HasSubstr("standard output could not be written: No space left"))
        << arguments.back();
  }
}

TEST_F(CommandLineTest, WrongValues) {
  ExpectRefused(RunLaunch({"--epochs", "many"}), "--epochs many");
  ExpectRefused(RunLaunch({"--epochs", "2", "--steps", "3"}), "--steps");
  ExpectRefused(Run({"verify"}), "RUN_DIR is missing");
  ExpectRefused(Run({"verify", "nowhere"}), "nowhere: expected a run directory");
  ExpectRefused(RunLaunch({"--set", "run.epoch=2"}), "epochs");
  ExpectRefused(RunLaunch({"--set", "run.epochs"}), "path.to.key=value");
  ExpectRefused(RunLaunch({"--set", "cluster.workers=3"}), "--workers 2");
  ExpectRefused(Run({"launch", config()}), "--data DIR");
  ExpectRefused(Run({"launch", Path("missing.txtpb")}), "missing.txtpb");
  ExpectRefused(Run({"launch"}), "CONFIG");
  ExpectRefused(RunLaunch({"--epochs", "99999999999999"}), "at most 1000000 (passes");
  ExpectRefused(RunLaunch({"--seed", "18446744073709551616"}), "at most 18446744073709551615");
  ExpectRefused(RunLaunch({"--seed", "18446744073709551615", "--repeat", "2"}),
                "expected a seed of at most 18446744073709551614");
  ExpectRefused(Run({"worker", config(), "--rank", "-1", "--endpoint", "ipc://@x"}),
                "--rank -1: expected a number that is not negative");
  ExpectRefused(Run({"bench", "--size", "12"}), "expected 1KiB to 4GB, got 12 bytes");
  ExpectRefused(RunLaunch({"--set", "run.slices=1"}), "1 slice cannot keep 2 workers busy");
  ExpectRefused(RunLaunch({"--set", "run.slices=1"}), "or, for a new run, --set run.slices=2");
  ExpectRefused(Run({"data", "get", "imagenet", "x"}), "cifar10");
}

TEST_F(CommandLineTest, WhatIsMissingOrTooMuchIsSaidInPlainWords) {
  const struct {
    std::vector<std::string> arguments;
    const char* message;
  } cases[] = {
      {{"data"},
       "a command is missing: expected one of get, synth, check, show, whiten (see muster data "
       "--help)"},
      {{"launch"}, "CONFIG is missing: expected a config file, or a program"},
      {{"worker", "c"}, "--endpoint is missing: The address"},
      {{"worker", "c", "--endpoint", "ipc://@x"}, "--rank is missing: give this worker's rank"},
      {{"worker", "c", "--endpoint", "ipc://@x", "--rank", "0", "--join"},
       "expected one of --rank, --join, got both"},
      {{"launch", "c", "d"}, "expected no more arguments, got d"},
      {{"launch", "c", "--steps"}, "--steps: expected a value, got none"},
      {{"launch", "c", "--seed", "1", "--seed", "2"}, "--seed: expected it once"},
      {{"launch", "c", "--steps", "1", "--epochs", "1"}, "expected one of --"},
      {{"bench", "--set", "a=b"}, "--set requires --model"},
      {{"launch", "c", "--repeat", "abc"},
       "--repeat: expected a whole number from 1 to 1000, got abc"},
      {{"launch", "c", "--repeat", "010"}, "--repeat: got 010: leave out the leading zero"},
      {{"launch", "c", "--wait", "08"}, "--wait: got 08: leave out the leading zero"},
      {{"launch", "c", "--trace-steps", "01-010"}, "--trace-steps 01-010: leave out the leading"},
      {{"bench", "--size", "0400MB"}, "--size: got 0400MB: leave out the leading zero"},
      {{"data", "whiten", "c", "--output", "f", "--epsilon", "00.1"},
       "--epsilon: got 00.1: leave out the leading zero"},
      {{"launch", "c", "--repeat", "1.5"}, "expected a whole number from 1 to 1000, got 1.5"},
      {{"worker", "c", "--rank", "x", "--endpoint", "e"},
       "--rank: expected a whole number from 0 to 1023, got x"},
      {{"bench", "--workers", "65"}, "--workers: expected a whole number from 1 to 64, got 65"},
      {{"bench", "--size", "5XB"}, "--size: expected a size such as 400MB (10^6) or 64MiB"},
      {{"data", "synth", "d", "--train", "x"}, "--train: expected a whole number from 1 to "},
      {{"data", "synth", "d", "--seed", "-1"}, "--seed -1: expected a number that is not negative"},
      {{"data", "synth", "d", "--seed=-1"}, "--seed: expected a whole number from 0 to "},
  };
  for (const auto& one : cases) ExpectRefused(Run(one.arguments), one.message);
}

TEST_F(CommandLineTest, AnInstructionSetThatThisHostLacks) {
  if (HostInstructionSets().back() == config::Server::AVX512) {
    GTEST_SKIP() << "this processor supports every instruction set that a config can name";
  }
  const std::vector<std::string> setting{"--set", "server.instruction_set=AVX512"};
  ExpectRefused(RunLaunch(setting), "the server's CPU does not support AVX512, only SCALAR");
  ExpectRefused(RunLaunch({setting[0], setting[1], "--dry-run"}), "does not support AVX512");
  // Another machine may support it.
  EXPECT_EQ(Run({"inspect", config(), setting[0], setting[1]}).exit_code, 0);
}

TEST_F(CommandLineTest, RunDirectoriesThatCannotBeUsed) {
  std::filesystem::create_directory(Path("old"));
  std::ofstream(Path("old/metrics.jsonl")) << "{}\n";
  ExpectRefused(RunLaunch({"--run-dir", Path("old")}), "already holds the metrics.jsonl");
  ExpectRefused(RunLaunch({"--run-dir", config() + "/x"}), "cannot create the run directory");
  std::ofstream(Path("runs")) << "in the way";
  ExpectRefused(RunLaunch(), "cannot create the run directory");
}

TEST_F(CommandLineTest, ProgramsThatAreMissing) {
  std::filesystem::remove(Path("muster-worker"));
  Finished finished = RunLaunch();
  EXPECT_EQ(finished.exit_code, 1);
  EXPECT_THAT(finished.err, HasSubstr("muster-worker: No such file"));
  EXPECT_THAT(RunDirs(), IsEmpty());
}

TEST_F(CommandLineTest, ProgramsThatCannotBeExecuted) {
  std::filesystem::remove(Path("muster-server"));
  std::ofstream(Path("muster-server")) << "not a program";
  std::filesystem::permissions(Path("muster-server"), std::filesystem::perms::all);
  Finished finished = RunLaunch();
  EXPECT_EQ(finished.exit_code, 1);
  EXPECT_THAT(finished.err, HasSubstr("cannot execute"));
  EXPECT_THAT(RunDirs(), IsEmpty());
}

// The launcher reports it once, before there is anything to clean up.
TEST_F(CommandLineTest, DataThatCannotBeUsed) {
  const auto refused = [&](const Finished& finished, const std::string& message) {
    EXPECT_EQ(finished.exit_code, 3);
    EXPECT_THAT(finished.out, IsEmpty());
    EXPECT_EQ(std::count(finished.err.begin(), finished.err.end(), '\n'), 1) << finished.err;
    EXPECT_THAT(finished.err, HasSubstr(message));
    EXPECT_FALSE(std::filesystem::exists(Path("server-started")));
    EXPECT_THAT(RunDirs(), IsEmpty());
  };
  refused(Run({"launch", config(), "--data", Path("nowhere")}), Path("nowhere"));
  refused(Run({"launch", config(), "--data", config()}), "expected a directory");
  std::filesystem::resize_file(Path("data_batch_4.bin"), 3073 + 5);
  refused(RunLaunch(), "data_batch_4.bin: expected a whole number");
  refused(RunLaunch({"--repeat", "2"}), "data_batch_4.bin");
}

TEST_F(CommandLineTest, ATraceBeyondTheRun) {
  const auto launch = [&](const std::string& steps, const std::string& length) {
    return RunLaunch({"--trace", Path("t.json"), "--trace-steps", steps, length, "1"});
  };
  // The length in steps is known immediately, or only after reading the data.
  for (const char* length : {"--steps", "--epochs"}) {
    ExpectRefused(launch("500", length),
                  "run.trace_first_step: expected steps of this run, 0 to 0, got 500: choose them "
                  "with --trace-steps A-B");
    ExpectRefused(launch("0-2", length), "expected steps of this run, 0 to 0, got 0 to 2");
  }
}

TEST_F(CommandLineTest, AWorkerBecomesItsProgram) {
  Job job;
  Workers("dump:" + Path("dump") + ";exit:17");
  ASSERT_EQ(Run({"token", Path("token")}).exit_code, 0);
  Start(job, {"worker", config(), "--rank", "1", "--workers", "2", "--data", ".", "--endpoint",
              "ipc://@x", "--token-file", Path("token")});
  const Finished finished = job.Finish();
  EXPECT_EQ(finished.exit_code, 17) << finished.err;
  EXPECT_THAT(ReadFile(Path("dump")),
              AllOf(StartsWith(ReadFile(Path("token"))), HasSubstr("--endpoint\nipc://@x\n"),
                    HasSubstr("  workers: 2\n"), HasSubstr("  dir: \"" + Path(""))));
}

TEST_F(CommandLineTest, WrongCommandLinesOfAWorker) {
  const std::vector<std::string> good{"worker",     config(),   "--rank", "0",
                                      "--endpoint", "ipc://@x", "--data", "."};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = good;
    all.insert(all.end(), more.begin(), more.end());
    return Run(all);
  };
  ExpectRefused(with({}), "MUSTER_TOKEN");
  ExpectRefused(with({"--token-file", Path("none")}), "No such file");
  ExpectRefused(with({"--token-fil", "x"}), "did you mean '--token-file'?");
  const std::vector<std::string> far{"worker",     config(),   "--rank", "7",
                                     "--endpoint", "ipc://@x", "--data", "."};
  std::vector<std::string> one = far;
  one.insert(one.end(), {"--workers", "1"});
  ExpectRefused(Run(one), "--rank 7: expected 0 to 0");
  // If the number depends on the cores, the server's host decides.
  ExpectRefused(Run(far), "needs the job's token");
  ExpectRefused(Run({"worker", config(), "--endpoint", "ipc://@x"}), "--rank");
}

TEST_F(CommandLineTest, WrongAddressesOfAServer) {
  const auto server = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all{"server", config(), "--data", "."};
    all.insert(all.end(), more.begin(), more.end());
    return Run(all);
  };
  // Listens on all interfaces only if requested explicitly.
  ExpectRefused(server({"--endpoint", "tcp://*:7700"}), "--bind tcp://*:7700");
  ExpectRefused(server({"--endpoint", "tcp://0.0.0.0:*"}), "--bind tcp://*:*");
  ExpectRefused(server({"--endpoint", "tcp://[::]:7700"}), "--bind");
  for (const char* endpoint :
       {"tcp://lab3", "tcp://:7700", "tcp://lab3:port", "tcp://lab3:70000", "tcp://::1:7700",
        "tcp://lab3:7700/", "tcp://", "http://lab3:7700", "lab3:7700", "ipc://", "local://name"}) {
    ExpectRefused(server({"--endpoint", endpoint}), "expected tcp://HOST:PORT");
    ExpectRefused(server({"--bind", endpoint}), "expected tcp://HOST:PORT");
    ExpectRefused(Run({"worker", config(), "--rank", "0", "--data", ".", "--endpoint", endpoint}),
                  "expected tcp://HOST:PORT");
  }
  ExpectRefused(server({"--endpoint", "tcp://127.0.0.1:7700", "--bind", "tcp://:7700"}),
                "tcp://:7700: expected tcp://HOST:PORT");
  ExpectRefused(server({"--endpoint", "tcp://no..such..name:7700"}), "cannot resolve the name");
  ExpectRefused(server({"--endpoint", "ipc://@a", "--bind", "ipc://@b"}),
                "only tcp:// endpoints allow both");
  ExpectRefused(server({"--token-file", config()}), "chmod 600");
}

TEST_F(CommandLineTest, TokensAreNewAndTheirOwnersAlone) {
  const Finished finished = Run({"token", Path("token")});
  EXPECT_EQ(finished.exit_code, 0);
  const std::string token = ReadFile(Path("token"));
  EXPECT_EQ(token.size(), 33u);
  EXPECT_THAT(finished.out, Not(HasSubstr(token.substr(0, 32))));
  EXPECT_EQ(std::filesystem::status(Path("token")).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  ExpectRefused(Run({"token", Path("token")}), "File exists");
  EXPECT_EQ(ReadFile(Path("token")), token);
  const std::string other = Run({"token"}).out;
  EXPECT_EQ(other.size(), 33u);
  EXPECT_NE(other, token);
}

TEST_F(CommandLineTest, InspectShowsTheNetwork) {
  Finished finished = Run({"inspect", config(), "--set", "model.layer[fc].dense.units=10", "--set",
                           "cluster.workers=1"});
  EXPECT_EQ(finished.exit_code, 0);
  EXPECT_THAT(finished.out, HasSubstr("17,290"));  // 24 * 24 * 3 * 10 + 10
  EXPECT_THAT(finished.out, HasSubstr("fc/weights"));
  EXPECT_THAT(finished.out, HasSubstr("64 images"));
}

// The output may be larger than the console's buffer for a slow reader.
TEST_F(CommandLineTest, NoLineOfALongResultIsLost) {
  std::string network;
  for (int i = 0; i < 20'000; ++i)
    network += fmt::format("layer {{ name: \"r{}\" relu {{}} }}\n", i);
  std::ofstream(Path("long.txtpb")) << network << "layer { name: \"fc\" dense { units: 10 } }\n"
                                    << "layer { name: \"loss\" softmax_cross_entropy {} }\n";
  Job job;
  Start(job, {"inspect", config(), "--set", "model_file=" + Path("long.txtpb")},
        " | { sleep 0.5; grep -c relu; }; exit ${PIPESTATUS[0]}");
  const Finished finished = job.Finish();
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_EQ(finished.out, "20000\n");
}

}  // namespace
}  // namespace muster::testing
