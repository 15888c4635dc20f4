// Which settings may differ when a run goes on. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "proto/config.pb.h"

namespace muster {

// `config`, resolved, with what follows from the number of workers spelled out: run.global_batch
// for batch_per_worker, and the scaled learning rate. So it means the same for any number of them.
config::Config FrozenConfig(const config::Config& config);
std::string FrozenConfigText(const config::Config& config);

// What FrozenConfigText wrote, as a checkpoint holds it. Throws Error(kData).
config::Config ParseKeptConfig(const std::string& text);

// `kept` is the text that a checkpoint holds, `now` what the run is to go on with, resolved. Throws
// Error(kUsage) that names the first setting that differs and may not. Returns a line for each that
// may, but changes bits.
std::vector<std::string> CheckResumable(const std::string& kept, const config::Config& now);

// Whether the rate of a step depends on how long the run is.
bool RateFollowsLength(const config::LearningRate& rate);

}  // namespace muster
