// The options that `muster eval` and `muster predict` share: the weights and the data.
#pragma once

#include "cli/commands/options.h"
#include "cli/evaluate/evaluation_config.h"

namespace muster {

struct EvaluationOptions {
  std::string from = kLatest;
  ModelChoice choice;
  ConfigOptions config;
  bool json = false;

  void Add(CLI::App& command) {
    AddFrom(command, from);
    AddChoice(command, choice);
    config.AddShorthand(command, "--data", "data.dir", "DIR", "Data directory; default: the run's");
    AddOption(command, "--config", config.config, "CONFIG",
              "Config with the network and data, for files that have none");
    config.AddSet(command,
                  "Change a setting of data, model or worker, evaluation.batch or evaluation.flip; "
                  "may be repeated");
    command.add_flag("--json", json, "Print a JSON object instead of text");
  }
  EvaluationSource source() const {
    return {.from = RunNamed(from),
            .choice = choice,
            .config_path = config.path(),
            .settings = config.settings()};
  }
};

}  // namespace muster
