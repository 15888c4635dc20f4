// What was typed, as the commands take it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/config/config.h"

namespace muster {

inline constexpr const char* kResumeAuto = "auto";

struct Arguments {
  std::string config;
  std::vector<std::string> set;
  std::string workers, data, run_dir, epochs, steps, seed;  // checked where the config is
  std::string trace, trace_steps;
  std::string resume;                      // a directory, or kResumeAuto
  std::vector<std::string> merge;          // parts of a trace
  std::string endpoint, bind, token_file;  // of processes started by hand
  std::optional<uint32_t> rank;
  bool join = false;  // instead of a rank
  std::string dataset, dir;
  std::string runs_dir = "runs";
  std::vector<std::string> run_dirs;
  std::string output, axis = "step";  // of a picture
  int repeat = 0;
  bool dry_run = false, log_placement = false, json = false, once = false;
  std::string devices;
  std::optional<double> wait_minutes;   // for GPUs
  std::optional<double> watch_seconds;  // between two looks at the GPUs
  int cards = 1;                        // GPUs for a command
  std::vector<std::string> command;
  std::string initial_weights, from, out, format, names;  // files of weights
  bool force = false;                                     // a file may be replaced
  bool skip_mismatched = false, ema = false, raw = false, best = false, show_config = false;
  bool confusion = false;
  std::string confusion_csv, samples;
  bool training_set = false;
  uint32_t top = 3;  // classes
  double size = 0;   // bytes of a model
  int bench_workers = 0;
  uint64_t synth_seed = 1;
  int64_t synth_train = 50000, synth_test = 10000;
};

// --set and the options that are shorter words for a setting.
std::vector<Setting> SettingsOf(const Arguments& arguments);

}  // namespace muster
