// Where the processes of a job run: `muster launch --log-placement`.
#pragma once

#include <sys/types.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cli/gpu/gpu.h"
#include "proto/config_fwd.h"
#include "proto/events.pb.h"

namespace muster {

// The cores that a process of this host may use, as "0-3,8"; "-" where that cannot be found out.
std::string CoresOf(pid_t pid);

// Numbers in ascending order as ranges: {0, 1, 2, 5} -> "0-2,5".
std::string RangesText(const std::vector<int>& numbers);

// A table of ranks with host, pid, device, threads and cores; with `places`, one for each rank,
// also with the card's UUID, name and memory.
std::vector<std::string> PlacementLines(const events::Started& started,
                                        const std::function<std::string(pid_t)>& cores_of,
                                        std::span<const WorkerPlace> places = {});

// "card", "cpu", or "" of a worker that did not say.
std::string DeviceKind(const events::Started::Worker& worker);
// Whether any of the workers computes on a GPU.
bool AreOnGpus(const events::Started& started);

// For a job that asks for CUDA, lines that name cards and libraries, on which its bits depend, and
// the ranks that got none (worker.soft_placement). Empty for all others, whose header has said it
// all.
std::vector<std::string> DeviceTexts(const config::Config& config, const events::Started& started);

}  // namespace muster
