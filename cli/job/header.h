// The lines printed before a job (the header) and when its workers have started. Pure functions;
// lines have no newline.
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
  int cores = 1;  // cores of this host for the workers
  // Where the workers run if not on this host: "started by hand".
  std::string elsewhere = {};
  std::string server = {};  // its address and interface, for workers on other hosts
  std::string memory;       // a warning, or ""
  DataCount data = {};
  std::string resumed = {};                       // the progress of a resumed run, or ""
  std::vector<std::string> cards = {};            // the workers' GPUs, or why they have none
  std::vector<std::string> initial_weights = {};  // the source of the initial weights
  bool all_of_bits = false;                       // also print what the bits depend on
};

// Describes the job. The most useful rows come first; a typical job has at most 12 lines.
std::vector<std::string> HeaderLines(const std::string& config_path, const config::Config& config,
                                     const Graph& graph, const std::string& shown_dir,
                                     const HeaderOptions& options);

// The optimizer, the schedule and the rate, with its scaling by the number of workers:
// "SGD, COSINE 0.4 = 0.1 (base) x 4/1 (LINEAR scaling of workers / base_workers)".
std::string LearningRateText(const config::Config& config);
// LearningRateText with warm-up, weight decay, clipping and moving average.
std::string UpdateText(const config::Config& config);

// The cores that a process of this host may use, as "0-3,8"; "-" if unknown.
std::string CoresOf(pid_t pid);

// A table of ranks with host, pid, device, threads and cores. With `places`, one for each rank, it
// also has the GPU's UUID, name and memory.
std::vector<std::string> PlacementLines(const events::Started& started,
                                        const std::function<std::string(pid_t)>& cores_of,
                                        std::span<const WorkerPlace> places = {});

// Whether any worker computes on a GPU.
bool AreOnGpus(const events::Started& started);

// For a CUDA job, lines that name its GPUs and libraries, because its bits depend on them, and the
// ranks without a GPU (worker.soft_placement). Empty for other jobs: the header covers them.
std::vector<std::string> DeviceTexts(const config::Config& config, const events::Started& started);

}  // namespace muster
