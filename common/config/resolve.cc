// The values that depend on this machine, on the data's files, and on other settings.
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/base/control_group.h"
#include "common/base/error.h"
#include "common/base/plain_file.h"
#include "common/base/utf8.h"
#include "common/config/config.h"
#include "common/config/job_size.h"
#include "common/config/update_settings.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostLetters = 200;

std::vector<std::string> ReadNames(const std::string& path) {
  std::vector<std::string> names;
  std::ifstream file = ReadPlainFile(path);
  for (std::string line; names.size() < 100 && std::getline(file, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (line.size() > kMostLetters) return {};
    if (!line.empty()) names.push_back(ValidUtf8(line));
  }
  return names;
}

std::vector<std::string> KnownNames(const config::Data& data) {
  switch (data.format()) {
    case config::Data::MNIST:
      return {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
    case config::Data::CIFAR10:
      for (const char* folder : {"", "/cifar-10-batches-bin"}) {
        std::vector<std::string> names = ReadNames(data.dir() + folder + "/batches.meta.txt");
        if (!names.empty()) return names;
      }
      return {};
    default:
      return {};
  }
}

}  // namespace

void ResolveClassNames(config::Data& data) {
  if (data.class_names_size() > 0 || data.dir().empty()) return;
  const std::vector<std::string> names = KnownNames(data);
  if (static_cast<int64_t>(names.size()) != DataClasses(data)) return;
  for (const std::string& name : names) data.add_class_names(name);
}

void ResolveConfig(config::Config& config, int cores) {
  if (NeedsFiles(config.data()) && config.data().dir().empty()) {
    const bool cifar10 = config.data().format() == config::Data::CIFAR10;
    throw Error(ExitCode::kUsage,
                "data.dir: missing: give the data's directory with --data DIR ({}; data.format "
                "SYNTHETIC needs no files)",
                cifar10
                    ? "`muster data get cifar10 DIR` downloads CIFAR-10, `muster data synth DIR` "
                      "makes a procedural set"
                    : "`muster data get mnist DIR` downloads MNIST");
  }
  ResolveForMachine(config, cores);
}

void ResolveForMachine(config::Config& config, int cores) {
  const auto absolute = [](const std::string& path) {
    return fs::absolute(path).lexically_normal().string();
  };
  config::Data& data = *config.mutable_data();
  config::Run& run = *config.mutable_run();
  if (!data.dir().empty()) data.set_dir(absolute(data.dir()));
  if (!run.trace_file().empty()) run.set_trace_file(absolute(run.trace_file()));
  if (!run.initial_weights().empty()) run.set_initial_weights(absolute(run.initial_weights()));
  ResolveClassNames(data);
  ResolveJobSize(config, cores);
  ResolveOptimizer(*config.mutable_optimizer());
  config::Checkpoint& checkpoint = *config.mutable_checkpoint();
  const bool keeps = checkpoint.keep_last() > 0;
  if (keeps && checkpoint.every_case() == config::Checkpoint::EVERY_NOT_SET)
    checkpoint.set_every_epochs(1);
  if (config.server().threads() == 0) {
    config.mutable_server()->set_threads(static_cast<uint32_t>(std::clamp(cores, 1, 4)));
  }
  const bool zmq = config.cluster().transport() != config::Cluster::LOCAL;
  if (zmq && config.server().io_threads() == 0) {
    const auto most = std::min(config.cluster().workers(), 8u);
    config.mutable_server()->set_io_threads(std::clamp(static_cast<uint32_t>(cores) / 4, 1u, most));
  }
}

int AvailableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cores = 1;
  if (sched_getaffinity(0, sizeof set, &set) == 0) cores = std::max(1, CPU_COUNT(&set));
  const double quota = std::max(1.0, std::floor(ReadControlGroupLimits().cores));
  return quota < cores ? static_cast<int>(quota) : cores;
}

}  // namespace muster
