// A checkpoint alone: to copy the state, to write it, to read it again. Beside each, in turn, its
// limit: an update's pass over the same memory, a plain O_DIRECT write and fsync of as many bytes,
// and a plain read of the file.
//
//   checkpoint_bench [--size 100MB] [--dir DIR] [--threads 2] [--rounds 5] [--json]
//
// --size: bytes of the weights; with momentum the state is twice that. What is read is compared
// with what was written, and the files are removed.
#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/memory_limit.h"
#include "bench/team.h"
#include "common/base/error.h"
#include "common/base/program_options.h"
#include "common/base/unique_fd.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "ps/checkpoint/write_checkpoint.h"
#include "ps/checkpoint_arenas.h"

namespace muster::bench {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

struct Options {
  double bytes = 100e6;
  std::string dir;
  int threads = 2, rounds = 5;
  bool json = false;
};

double SecondsOf(const std::function<void()>& work) {
  const auto begin = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

[[noreturn]] void Fail(const std::string& what) { throw Error(ExitCode::kFailure, what); }

// Ten variables of one size.
VariableLayout LayoutOf(double bytes) {
  std::vector<Variable> variables;
  const auto count = static_cast<size_t>(bytes / 4 / 10) / 16 * 16;
  for (size_t i = 0; i < 10; ++i) {
    variables.push_back({.name = fmt::format("layer{}/weights", i),
                         .layer = static_cast<int>(i),
                         .shape = {static_cast<int64_t>(count)},
                         .offset = i * count,
                         .count = count,
                         .fan_in = 1,
                         .fan_out = 1,
                         .initializer = {}});
  }
  return {std::move(variables), {"a bench"}};
}

// Of aligned memory, in the pieces that a checkpoint is written in.
void PlainWrite(const std::string& path, std::span<const std::byte> bytes) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
  UniqueFd fd(::open(path.c_str(), kFlags | O_DIRECT, 0644));
  if (!fd.valid()) fd.Reset(::open(path.c_str(), kFlags, 0644));  // tmpfs
  if (!fd.valid()) Fail(path + " cannot be written");
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd.get(), bytes.data(), std::min<size_t>(bytes.size(), 8 << 20));
    if (n <= 0) Fail(path + " cannot be written");
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  if (::fsync(fd.get()) != 0) Fail(path + " cannot be synced");
}

void PlainRead(const std::string& path, std::span<float> to) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  for (std::span<std::byte> rest = std::as_writable_bytes(to); !rest.empty();) {
    const ssize_t n = ::read(fd.get(), rest.data(), std::min<size_t>(rest.size(), 8 << 20));
    if (n <= 0) return;  // a little less than the memory
    rest = rest.subspan(static_cast<size_t>(n));
  }
}

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options),
        layout_(LayoutOf(options.bytes)),
        variables_(layout_, {.state_arenas = 1}),
        image_(layout_, 2),
        team_(options.threads),
        limit_(team_, {.floats = layout_.arena_floats(), .gradients = 2, .states = 1}) {
    for (auto& arena : CheckpointArenas(variables_, 0)) {
      for (size_t i = 0; i < arena.size(); ++i) arena[i] = static_cast<float>(i % 9973);
    }
  }

  nlohmann::ordered_json Run() {
    std::vector<double> copy, pass, write, plain_write, read, plain_read;
    for (int round = 0; round < options_.rounds; ++round) {
      pass.push_back(limit_.Seconds());
      copy.push_back(Copy());
      plain_write.push_back(
          SecondsOf([&] { PlainWrite(options_.dir + "/plain", image_.blocks()); }));
      write.push_back(SecondsOf([&] { Write(round); }));
      read.push_back(SecondsOf([&] { Read(round); }));
      fs::remove_all(
          CheckpointsFolder(options_.dir));  // as what is expired: when it is on the disk
      plain_read.push_back(SecondsOf([&] {
        PlainRead(options_.dir + "/plain", CheckpointArenas(plain_, 0)[0]);
        PlainRead(options_.dir + "/plain", CheckpointArenas(plain_, 0)[1]);
      }));
    }
    nlohmann::ordered_json json;
    json["state_bytes"] = image_.bytes();
    json["copy_ms"] = 1e3 * Median(copy);
    json["update_pass_ms"] = 1e3 * Median(pass);
    json["write_ms"] = 1e3 * Median(write);
    json["plain_write_ms"] = 1e3 * Median(plain_write);
    json["read_ms"] = 1e3 * Median(read);
    json["plain_read_ms"] = 1e3 * Median(plain_read);
    return json;
  }

 private:
  double Copy() {
    const std::vector<std::span<float>> arenas = CheckpointArenas(variables_, 0);
    const auto jobs = image_.CopyJobs({arenas.begin(), arenas.end()});
    return team_.TimeEach(jobs.size(), 1, [&](int, size_t job) { jobs[job](); });
  }

  void Write(int round) {
    CheckpointToWrite what{.run_dir = options_.dir,
                           .name = {1, round},
                           .tensors = CheckpointTensors(layout_, CheckpointArenaNames(variables_))};
    what.state.set_run_id("bench");
    what.state.set_generation(1);
    what.state.set_step(round);
    what.state.mutable_plan()->set_layout_hash(layout_.hash());
    WriteCheckpoint(what, image_);
  }

  void Read(int round) {
    const CheckpointReader reader(CheckpointsFolder(options_.dir) + "/" +
                                  CheckpointName{1, round}.Text());
    RestoreVariables(reader, plain_);
    for (size_t arena = 0; arena < 2; ++arena) {
      const auto was = CheckpointArenas(variables_, 0)[arena];
      const auto is = CheckpointArenas(plain_, round)[arena];
      if (was.front() != is.front() || was.back() != is.back()) Fail("another state was read");
    }
  }

  const Options options_;
  const VariableLayout layout_;
  Variables variables_;
  Variables plain_{layout_, {.state_arenas = 1}};
  TensorImage image_;
  Team team_;
  MemoryLimit limit_;
};

int Main(int argc, char** argv) {
  Options options;
  ProgramOptions program{"What a checkpoint costs: copy, write, read"};
  program.Add("--size", options.bytes, "Bytes of the weights").AsBytes();
  program.Add("--dir", options.dir, "Where to write; default: a new directory in /tmp");
  program.Add("--threads", options.threads, "Threads that copy").ShowDefault();
  program.Add("--rounds", options.rounds, "Medians are of so many").ShowDefault();
  program.AddFlag("--json", options.json, "Print one JSON object");
  if (const auto exit_code = program.Parse(argc, argv)) return *exit_code;
  std::string pattern = (options.dir.empty() ? "/tmp" : options.dir) + "/checkpoint_bench-XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) Fail(pattern + " cannot be made");
  options.dir = pattern;
  nlohmann::ordered_json json;
  try {
    json = Bench(options).Run();
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
  }
  fs::remove_all(options.dir);
  if (json.empty()) return 1;
  if (options.json) {
    fmt::print("{}\n", json.dump());
    return 0;
  }
  const double gb = json["state_bytes"].get<double>() * 1e-9;
  const auto row = [&](const char* what, const char* key, const char* limit, const char* beside) {
    const double ms = json[key], other = json[limit];
    fmt::print("{:<6} {:8.1f} ms  {:6.2f} GB/s   {}: {:.1f} ms   {:.2f} x\n", what, ms,
               1e3 * gb / ms, beside, other, ms / other);
  };
  fmt::print("state of {:.1f} MB\n", 1e3 * gb);
  row("copy", "copy_ms", "update_pass_ms", "an update's pass");
  row("write", "write_ms", "plain_write_ms", "plain O_DIRECT write and fsync");
  row("read", "read_ms", "plain_read_ms", "plain read");
  return 0;
}

}  // namespace
}  // namespace muster::bench

int main(int argc, char** argv) { return muster::bench::Main(argc, argv); }
