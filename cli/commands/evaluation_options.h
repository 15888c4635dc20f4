// What `muster eval` and `muster predict` have in common: which weights to compute with, on which
// data.
#pragma once

#include "cli/commands/options.h"
#include "cli/evaluate/evaluation_config.h"

namespace muster {

struct EvaluationOptions {
  std::string from;
  ModelChoice choice;
  ConfigOptions config;
  bool json = false;

  void Add(CLI::App& command) {
    AddFrom(command, from);
    AddChoice(command, choice);
    config.AddShorthand(command, "--data", "data.dir", "DIR",
                        "Directory of the data; default: the run's");
    AddOption(command, "--config", config.config, "CONFIG",
              "Network and data, where the file says none");
    config.AddSet(command, "A setting of data, worker or evaluation; may be repeated");
    command.add_flag("--json", json, "Print one JSON object instead");
  }
  EvaluationSource source() const {
    return {.from = from,
            .choice = choice,
            .config_path = config.path(),
            .settings = config.settings()};
  }
};

}  // namespace muster
