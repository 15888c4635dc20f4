// The trace parts (common/trace/session.h) of the workers on an agent's host, on their way to the
// launcher.
#pragma once

#include <deque>
#include <fstream>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "cli/process/held_file.h"
#include "proto/config.pb.h"

namespace muster {

class TraceParts {
 public:
  // If the config wants a trace, makes it name a folder of this host for the parts, or none if
  // there cannot be one. The folder disappears with this object. If this process is killed, the
  // next TemporaryFolder removes it.
  explicit TraceParts(config::Config& config);

  // Takes the part of a worker that has ended. If there is none, the launcher gets an empty one.
  void Take(int rank);
  // The next message to the launcher (see host_agent.h), if there is any.
  std::optional<nlohmann::json> Next();

 private:
  struct Part {
    int rank;
    std::ifstream file;
  };
  const bool wanted_;
  std::optional<TemporaryFolder> folder_;
  config::Config config_;
  std::deque<Part> parts_;  // still to be sent
};

}  // namespace muster
