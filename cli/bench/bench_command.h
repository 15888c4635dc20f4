// `muster bench`: measures how fast this machine completes a round of push, average, update and
// pull.
#pragma once

#include <string>
#include <vector>

#include "common/config/config.h"

namespace muster {

struct BenchArguments {
  std::string update_program, sync_program;  // paths of update_bench and sync_bench
  // The model, given by its size in bytes or by a config. If neither is given, a typical size is
  // used.
  double size = 0;
  std::string config_path;
  std::vector<Setting> settings;  // for the config
  int workers = 0;                // 0: the config's number, or 2 without a config
  bool json = false;
};

// Prints results to standard output and progress to standard error. Returns the exit code; throws
// Error.
int RunBench(const BenchArguments& arguments);

}  // namespace muster
