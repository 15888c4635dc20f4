// What is printed before a job: the header.
// Pure functions; every line comes without its newline.
#pragma once

#include <string>
#include <vector>

#include "common/config/config.h"
#include "common/graph/graph.h"

namespace muster {

struct HeaderOptions {
  int cores = 1;                        // of this host, for the workers
  bool by_hand = false;                 // the workers come from elsewhere
  std::string memory;                   // a warning about it
  std::string data = {};                // a remark on them
  std::string resumed = {};             // how far the run is that goes on; empty: it begins
  std::vector<std::string> cards = {};  // that the workers have, or why they have none
  std::vector<std::string> initial_weights = {};  // where they come from
  bool all_of_bits = false;                       // also what the bits depend on
};

// What is about to run. The most useful rows come first; a usual job has at most 12 lines.
std::vector<std::string> HeaderLines(const std::string& config_path, const config::Config& config,
                                     const Graph& graph, const std::string& shown_dir,
                                     const HeaderOptions& options);

// Optimizer, schedule and base rate, and how that follows from the number of workers:
// "SGD, COSINE 0.4 = 0.1 (base) x 4/1 (LINEAR scaling of workers / base_workers)".
std::string LearningRateText(const config::Config& config);
// The same, and what else is done with gradients and weights.
std::string UpdateText(const config::Config& config);

}  // namespace muster
