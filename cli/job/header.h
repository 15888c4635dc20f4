// What is printed before a job, which is the header, and when its workers have started.
// Pure functions; every line comes without its newline.
#pragma once

#include <sys/types.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cli/data/count_samples.h"
#include "cli/gpu/gpu.h"
#include "common/config/config.h"
#include "common/graph/graph.h"
#include "proto/config_fwd.h"
#include "proto/events.pb.h"

namespace muster {

struct HeaderOptions {
  int cores = 1;                        // of this host, for the workers
  bool by_hand = false;                 // the workers come from elsewhere
  std::string memory;                   // a warning about it
  DataCount data = {};                  // what was found
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

// The cores that a process of this host may use, as "0-3,8"; "-" where that cannot be found out.
std::string CoresOf(pid_t pid);

// A table of ranks with host, pid, device, threads and cores; with `places`, one for each rank,
// also with the card's UUID, name and memory.
std::vector<std::string> PlacementLines(const events::Started& started,
                                        const std::function<std::string(pid_t)>& cores_of,
                                        std::span<const WorkerPlace> places = {});

// Whether any of the workers computes on a GPU.
bool AreOnGpus(const events::Started& started);

// For a job that asks for CUDA, lines that name cards and libraries, on which its bits depend, and
// the ranks that got none (worker.soft_placement). Empty for all others, whose header has said it
// all.
std::vector<std::string> DeviceTexts(const config::Config& config, const events::Started& started);

}  // namespace muster
